//! The command line of `cargo xtask`.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One command with its options. The help shows the first line of each comment.
#[derive(Debug, Subcommand, PartialEq, Eq)]
pub(crate) enum Command {
    /// Format, lints, the rules of the house and unit tests: what to run while one works
    Check,
    /// Tests of one kind, with the programs that they start
    Test(TestOptions),
    /// Writes the snapshots of help, errors and JSON anew; review the difference
    Snapshots,
    /// Everything that must hold before a change is merged
    Ci(CiOptions),
    /// The programs that tests start: they refuse one that is older than its sources
    Build,
    /// The archive that is shipped: both programs, completions, manual pages, licences, checksums, SBOM
    Dist(DistOptions),
    /// The rules of the house that no compiler checks
    Tidy,
    /// Limits on a kernel with control groups v2 alone, and a reset of a machine, in QEMU
    Guest(GuestOptions),
    /// What a thing costs, beside its peers or its parts
    #[command(subcommand)]
    Bench(Bench),
    /// Kills processes under load, and looks at what is left
    #[command(subcommand)]
    Crash(Crash),
    /// The tests of released clients, and the table of their versions in docs/clients/e2b.md
    Clients,
    /// What 1 to 1000 servers ask of the database that they share
    Simulate(SimulateOptions),
    /// The generated part of the client libraries, written from docs/openapi.json
    Sdk,
    /// The pages of the server, built from their sources with Node
    Web(WebOptions),
    /// Mutated input for the parsers that read what a sandbox wrote
    Fuzz(FuzzOptions),
}

/// Options of `test`.
#[derive(Debug, Args, PartialEq, Eq)]
pub(crate) struct TestOptions {
    /// The kind
    #[arg(value_enum)]
    pub(crate) suite: Suite,
    /// Parts of the names of the tests to run [default: all]
    pub(crate) names: Vec<String>,
}

/// A kind of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Those within the sources
    Unit,
    /// The built programs, run as a person would
    E2e,
    /// The native runtime under the suite of all backends, attacks and faults
    Runtime,
    /// Those that are left out everywhere else, for they take more than a minute
    Slow,
    /// All but the slow ones
    All,
}

/// Options of `guest`.
#[derive(Debug, Args, PartialEq, Eq)]
pub(crate) struct GuestOptions {
    /// Also reset a machine with a disk while Stockade is at work
    #[arg(long)]
    pub(crate) with_reset: bool,
}

/// Options of `web`.
#[derive(Debug, Args, PartialEq, Eq)]
pub(crate) struct WebOptions {
    /// Only compare: build the pages elsewhere
    #[arg(long)]
    pub(crate) check: bool,
}

/// Options of `ci`.
#[derive(Debug, Args, PartialEq, Eq)]
pub(crate) struct CiOptions {
    /// Install what is missing: nextest, and Debian packages as root. So does `CI=true`
    #[arg(long)]
    pub(crate) install: bool,
    /// All versions of what Stockade works with, and longer runs of what is random
    #[arg(long)]
    pub(crate) all: bool,
}

/// Options of `dist`.
#[derive(Debug, Args, PartialEq, Eq)]
pub(crate) struct DistOptions {
    /// The directory for the archive [default: `archives` in cargo's target directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// The target of `stockade` [default: x86_64-unknown-linux-musl where it is installed, else
    /// x86_64-unknown-linux-gnu]
    #[arg(long, value_name = "TRIPLE")]
    pub(crate) target: Option<String>,
    /// Build files that differ from the last commit
    #[arg(long)]
    pub(crate) allow_dirty: bool,
}

/// What is measured.
#[derive(Debug, Subcommand, PartialEq, Eq)]
pub(crate) enum Bench {
    /// A sandbox from start to exit, beside its peers
    Start(BenchOptions),
    /// A sandbox through the library of E2B
    Clients(BenchOptions),
    /// A held sandbox, beside a process of the host
    Runtime(BenchOptions),
    /// A durable step, beside a commit on the same disk, or on PostgreSQL beside the library of DBOS
    Durable(DurableOptions),
    /// The server over TCP, beside a stub that does nothing
    Server(BenchOptions),
    /// An operation of the product, beside its parts
    Service(BenchOptions),
    /// The egress process, beside a direct connection
    Egress(BenchOptions),
    /// A snippet, beside a start of the program
    Snippet(BenchOptions),
    /// A run of a workflow, beside a start of the program
    Workflow(BenchOptions),
}

/// Options of `bench`.
#[derive(Debug, Args, PartialEq, Eq)]
pub(crate) struct BenchOptions {
    /// How many rounds are counted; each starts every contender once
    #[arg(long, value_name = "N")]
    runs: Option<NonZeroUsize>,
    /// Where the numbers go as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The image that `docker run` starts
    #[arg(long, value_name = "NAME", default_value = "busybox")]
    pub(crate) docker_image: String,
    /// Also start with `--private-base`, whose copy of the system is made first
    #[arg(long)]
    pub(crate) private_base: bool,
}

/// Options of `bench durable`.
#[derive(Debug, Args, PartialEq, Eq)]
pub(crate) struct DurableOptions {
    #[command(flatten)]
    pub(crate) bench: BenchOptions,
    /// On PostgreSQL, which is started for it
    #[arg(long)]
    pub(crate) postgres: bool,
}

/// Options of `simulate`.
#[derive(Debug, Args, PartialEq, Eq)]
pub(crate) struct SimulateOptions {
    /// What `bench durable --postgres --json FILE` has written [default: benches/postgres/costs.json]
    #[arg(long, value_name = "FILE")]
    pub(crate) costs: Option<PathBuf>,
    /// The processors of the database
    #[arg(long, value_name = "N", default_value = "4")]
    pub(crate) processors: NonZeroU32,
    /// How many sandboxes each server holds
    #[arg(long, value_name = "N", default_value = "20")]
    pub(crate) sandboxes: u32,
    /// How many operations each sandbox has in a minute
    #[arg(long, value_name = "N", default_value = "6")]
    pub(crate) operations: u32,
    /// How many percent of the operations go through the queue
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    pub(crate) queued: u32,
}

impl BenchOptions {
    /// How many rounds are counted, where a benchmark has a number of its own.
    pub(crate) fn rounds(&self, default: usize) -> usize {
        self.runs.map_or(default, NonZeroUsize::get)
    }
}

/// What is killed.
#[derive(Debug, Subcommand, PartialEq, Eq)]
pub(crate) enum Crash {
    /// Clients, keepers, helpers and inits, at random
    Runtime(CrashRuntimeOptions),
    /// A process that executes workflows, at every write and at random
    Durable(CrashOptions),
    /// Several processes on one PostgreSQL database, and the database
    Cluster(CrashOptions),
    /// The local server, the keeper and inits, under load
    Service(CrashOptions),
    /// A process that runs a workflow file, at every write; then the local server, at random
    Workflow(CrashOptions),
}

/// Options of `crash`.
#[derive(Debug, Args, PartialEq, Eq)]
pub(crate) struct CrashOptions {
    /// How many processes are killed
    #[arg(long, value_name = "N", default_value = "50")]
    pub(crate) kills: NonZeroUsize,
    /// Where the sequence of choices starts [default: the clock]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

/// Options of `crash runtime`.
#[derive(Debug, Args, PartialEq, Eq)]
pub(crate) struct CrashRuntimeOptions {
    #[command(flatten)]
    pub(crate) crash: CrashOptions,
    /// The id of the user that all of it runs as; only root can name another
    #[arg(long, value_name = "ID")]
    pub(crate) user: Option<u32>,
}

/// Options of `fuzz`.
#[derive(Debug, Args, PartialEq, Eq)]
pub(crate) struct FuzzOptions {
    /// How many seconds each target runs
    #[arg(long, value_name = "N", default_value = "60")]
    pub(crate) seconds: NonZeroUsize,
    /// Where the sequence of inputs starts [default: the clock]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// The one target to run [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) target: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        let words = ["cargo xtask"].into_iter().chain(line.split_whitespace());
        Arguments::try_parse_from(words).map(|arguments| arguments.command)
    }

    #[test]
    fn options_and_their_defaults_are_read() {
        let Ok(Command::Bench(Bench::Start(given))) = parse("bench start --runs 7 --json out.json")
        else {
            panic!("it is not understood")
        };
        assert_eq!((given.rounds(300), given.json), (7, Some("out.json".into())));
        let Ok(Command::Bench(Bench::Durable(default))) = parse("bench durable") else {
            panic!("it is not understood")
        };
        let DurableOptions { bench, postgres } = default;
        assert_eq!((bench.rounds(100), bench.docker_image.as_str()), (100, "busybox"));
        assert!(!postgres);
        let Ok(Command::Crash(Crash::Durable(default))) = parse("crash durable") else {
            panic!("it is not understood")
        };
        assert_eq!((default.kills.get(), default.seed), (50, None));
        let Ok(Command::Crash(Crash::Runtime(given))) =
            parse("crash runtime --kills 9 --seed 4 --user 1000")
        else {
            panic!("it is not understood")
        };
        let CrashRuntimeOptions { crash: CrashOptions { kills, seed }, user } = given;
        assert_eq!((kills.get(), seed, user), (9, Some(4), Some(1000)));
    }

    #[test]
    fn what_ci_may_install_is_said() {
        let ci = |install, all| Command::Ci(CiOptions { install, all });
        assert_eq!(parse("ci").unwrap(), ci(false, false));
        assert_eq!(parse("ci --all --install").unwrap(), ci(true, true));
        let e2e = TestOptions { suite: Suite::E2e, names: vec!["run::".to_owned()] };
        assert_eq!(parse("test e2e run::").unwrap(), Command::Test(e2e));
    }

    #[test]
    fn a_changed_tree_is_shipped_only_when_asked_for() {
        let Ok(Command::Dist(default)) = parse("dist") else { panic!("it is not understood") };
        assert_eq!((default.out, default.target, default.allow_dirty), (None, None, false));
        let Ok(Command::Dist(given)) = parse("dist --out o --target t --allow-dirty") else {
            panic!("it is not understood")
        };
        assert_eq!(given.out, Some("o".into()));
        assert_eq!((given.target.as_deref(), given.allow_dirty), (Some("t"), true));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in [
            "",
            "cii",
            "ci --fast",
            "test",
            "test cie",
            "bench",
            "bench start --runs",
            "bench start --runs 0",
            "bench start --postgres",
            "simulate --processors 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in ["bench start --rums 3", "fuzz --seconds -1", "fuzz --seed x", "tidy all"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("crash durable --user 1000").is_err(), "only `crash runtime` has users");
    }

    #[test]
    fn every_documented_xtask_command_is_understood() {
        let listed = include_str!("../../tests/documents/commands.txt");
        let commands: Vec<_> = listed
            .lines()
            .filter_map(|line| line.split(" => ").next()?.strip_prefix("cargo xtask "))
            .collect();
        assert!(commands.contains(&"ci"), "{commands:?}");
        for command in commands {
            parse(command).unwrap_or_else(|error| panic!("{command}: {error:#}"));
        }
    }
}
