//! The arguments, as they are written; each command turns its own into what the
//! rooms understand. Nothing here uses a command, or a room other than `core`.

pub mod debug;
pub mod held;
pub mod sandbox;
pub mod snippet;
pub mod workflow;

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, FromArgMatches as _, Parser, Subcommand};
use stockade_core::network::secret::BoundSecret;
use stockade_core::{parse_bytes, parse_duration};

use self::debug::Debug;
use self::held::{
    Collect, Copy, Create, Events, Exec, Kill, List, Logs, One, Prune, Reach, Remove, Renew,
    Restore, Shell, Snapshot, Snapshots, Tool, ToolCommand,
};
use self::sandbox::{Pair, SandboxFlags, pair};

/// Runs untrusted code in a sandbox and brings its changes back as a diff to review.
#[derive(Debug, Parser)]
#[command(name = "stockade", version, disable_help_subcommand = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// Reads the words behind the program's name. Those of `run`, which is to start quickly, are
    /// read without building what is known of all other commands.
    pub fn read(words: &[OsString]) -> Result<Self, clap::Error> {
        match Run::alone(words) {
            Some(run) => Ok(Self { command: Command::Run(Box::new(run)) }),
            None => {
                let program = std::env::args_os().next().unwrap_or_default();
                Self::try_parse_from(std::iter::once(program).chain(words.iter().cloned()))
            }
        }
    }
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Command {
    /// Run a command in a sandbox, on a copy-on-write view of the current project
    Run(Box<Run>),
    /// List the bundles of changes that wait for a decision
    Bundles(Bundles),
    /// Show what a bundle would change
    Diff(Diff),
    /// Apply a bundle's changes to the project, all or nothing
    Apply(Apply),
    /// Throw a bundle away
    Reject(Reject),
    /// Make a sandbox that lives on, and print its id
    Create(Box<Create>),
    /// Run a command in a sandbox; the exit code is the command's
    Exec(Box<Exec>),
    /// Open a shell in a sandbox
    Shell(Shell),
    /// List sandboxes
    Ls(List),
    /// Tell what is known of a sandbox
    Show(One),
    /// Copy files into or out of a sandbox
    Cp(Copy),
    /// Remove files from a sandbox, and directories with all that is in them
    Rm(Remove),
    /// Print what a detached command wrote
    Logs(Logs),
    /// Print what happened to sandboxes
    Events(Events),
    /// Start a sandbox that is stopped or failed
    Start(One),
    /// End a sandbox's processes and keep its files
    Stop(One),
    /// Stop every process of a sandbox where it is
    Pause(One),
    /// Let a run go on that failed or was interrupted, or every process of a paused sandbox
    Resume(workflow::Resume),
    /// Let a sandbox live longer
    Renew(Renew),
    /// Let a sandbox that has a way out reach more hosts
    Allow(Reach),
    /// Let a sandbox no longer reach hosts that it was allowed
    Refuse(Reach),
    /// Keep the state of a sandbox's files
    Snapshot(Snapshot),
    /// Keep what a sandbox has changed in its workspace as a bundle to review
    Collect(Collect),
    /// List or remove snapshots
    Snapshots(Snapshots),
    /// Make a sandbox from a snapshot
    Restore(Box<Restore>),
    /// End sandboxes with all that they have
    Kill(Kill),
    /// End sandboxes that failed or are stopped
    Prune(Prune),
    /// Run tools in a sandbox
    Tool(Tool),
    /// Check and run small TypeScript programs, and tell what they did
    Snippet(snippet::Snippet),
    /// Serve tools to agents over the standard streams, by the Model Context Protocol
    Mcp(snippet::Mcp),
    /// Write a first workflow file, and what editors need to know of such files
    Init(workflow::Init),
    /// Run a workflow file
    Up(Box<workflow::Up>),
    /// List runs of workflows
    Runs(workflow::Runs),
    /// Print what is measured of the sandboxes of workflows, as Prometheus collects it
    Metrics(workflow::Metrics),
    /// Tell what is known of a run and its tasks
    Inspect(workflow::OneRun),
    /// Show what a workflow file would do
    Graph(workflow::Graph),
    /// Say yes to what a run asks
    Approve(workflow::Approve),
    /// Say no to what a run asks
    Deny(workflow::Decide),
    /// Send a signal to a run
    Signal(workflow::Signal),
    /// Cancel a run
    Cancel(workflow::OneRun),
    /// Serve this user's sandboxes until interrupted, instead of on demand
    #[command(after_help = SERVE_HELP)]
    Serve,
    /// Print a script that completes the arguments of this program in a shell
    Completions(Completions),
    /// Print the manual page of this program, or of one of its commands
    Man(Man),
    /// Tell which walls and limits this host can raise, proving each by trying it
    Doctor(Doctor),
    /// Drive a part of Stockade by hand
    #[command(hide = true)]
    Debug(Box<Debug>),
}

/// What a server takes from its environment, also one that is started on demand.
const SERVE_HELP: &str = "\
Environment, also of a server that is started on demand:
  STOCKADE_SERVER_IDLE_SECONDS  how long a server that was started on demand and holds nothing
                                waits for somebody [default: 60]
  STOCKADE_MAX_SANDBOXES        how many sandboxes there may be at once [default: 1000]
  STOCKADE_MAX_SNAPSHOTS        how many snapshots there may be [default: 1000]
  STOCKADE_POOL                 how many never-used sandboxes are kept ready once one was asked
                                for, at most 512 [default: 64]";

#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct Man {
    /// One of the commands, such as `run`
    pub command: Option<String>,
}

#[derive(Debug, Default, Args)]
pub struct Run {
    /// Keep the changes as a bundle to review (the default)
    #[arg(long, group = "fate")]
    pub review: bool,
    /// Apply the changes at once if the command succeeds; keep them for review if it fails
    #[arg(long, group = "fate")]
    pub apply: bool,
    /// Throw the changes away
    #[arg(long, group = "fate")]
    pub discard: bool,
    #[command(flatten)]
    pub sandbox: SandboxFlags,
    /// Give the secret of this environment variable to a host and not to the command, which has
    /// a placeholder in its place: it is swapped in requests to that host. Can be repeated; the
    /// host is to be allowed too
    #[arg(long, value_name = "NAME@HOST[:PORT]")]
    pub secret: Vec<BoundSecret>,
    /// How long the command may take, such as 30s
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
    /// How large the changes may be to become a bundle [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub max_bundle: Option<u64>,
    /// Give the command a terminal
    #[arg(long)]
    pub tty: bool,
    /// Capture the command's output and print one JSON object about the run
    #[arg(long, conflicts_with = "tty")]
    pub json: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

impl Run {
    /// Reads the words of a `run` in which nothing is wrong; help and errors are left to whoever
    /// knows the whole program.
    fn alone(words: &[OsString]) -> Option<Self> {
        words.first().filter(|name| *name == "run")?;
        // Nothing is asked for but the command: there is nothing to read, which saves 80 us.
        if let [_, end, command @ ..] = words
            && end == "--"
            && !command.is_empty()
        {
            return Some(Self { command: command.to_vec(), ..Self::default() });
        }
        let command = Self::augment_args(clap::Command::new("run"));
        Self::from_arg_matches(&command.try_get_matches_from(words).ok()?).ok()
    }
}

#[derive(Debug, Args)]
pub struct Bundles {
    /// Only those with this label
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub label: Vec<Pair>,
    /// How large the changes that killed runs left may be to become bundles [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub max_bundle: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Diff {
    /// A bundle's id, an unambiguous beginning of it, or `latest`
    pub id: String,
    /// Only these paths, below the project's root
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Print how many lines changed in each file
    #[arg(long, conflicts_with = "json")]
    pub stat: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Apply {
    /// A bundle's id, an unambiguous beginning of it, or `latest`
    pub id: String,
    /// Only these paths, below the project's root; names ignored ones too
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Apply what git ignores too
    #[arg(long)]
    pub include_ignored: bool,
    /// Accept files that tools of the host run by themselves: hooks, editor tasks, CI files
    #[arg(long)]
    pub allow_executed: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Reject {
    /// A bundle's id, an unambiguous beginning of it, or `latest`
    pub id: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Command {
    /// Whether only the program with the engines can do this.
    #[must_use]
    pub fn needs_engine(&self) -> bool {
        match self {
            Self::Debug(_) | Self::Snippet(_) | Self::Mcp(_) | Self::Graph(_) | Self::Serve => true,
            Self::Up(up) => up.result.is_some(),
            _ => false,
        }
    }

    /// Whether errors are to be printed as JSON too.
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Run(run) => run.json,
            Self::Bundles(Bundles { json, .. })
            | Self::Diff(Diff { json, .. })
            | Self::Apply(Apply { json, .. })
            | Self::Reject(Reject { json, .. })
            | Self::Doctor(Doctor { json }) => *json,
            Self::Debug(debug) => debug.wants_json(),
            Self::Snippet(snippet) => snippet.wants_json(),
            Self::Create(create) => create.json,
            Self::Restore(restore) => restore.create.json,
            Self::Exec(exec) => exec.json,
            Self::Ls(List { json, .. })
            | Self::Cp(Copy { json, .. })
            | Self::Rm(Remove { json, .. })
            | Self::Logs(Logs { json, .. })
            | Self::Events(Events { json, .. })
            | Self::Renew(Renew { json, .. })
            | Self::Allow(Reach { json, .. })
            | Self::Refuse(Reach { json, .. })
            | Self::Snapshot(Snapshot { json, .. })
            | Self::Snapshots(Snapshots { json, .. })
            | Self::Collect(Collect { json, .. })
            | Self::Kill(Kill { json, .. })
            | Self::Prune(Prune { json, .. })
            | Self::Tool(Tool { what: ToolCommand::Ls { json, .. } }) => *json,
            Self::Show(one) | Self::Start(one) | Self::Stop(one) | Self::Pause(one) => one.json,
            Self::Up(up) => up.json,
            Self::Resume(resume) => resume.json,
            Self::Runs(runs) => runs.json,
            Self::Metrics(metrics) => metrics.json,
            Self::Inspect(one) | Self::Cancel(one) => one.json,
            Self::Graph(graph) => graph.json,
            Self::Approve(approve) => approve.decide.json,
            Self::Deny(decide) => decide.json,
            Self::Signal(signal) => signal.json,
            Self::Tool(_) => true,
            Self::Shell(_)
            | Self::Mcp(_)
            | Self::Init(_)
            | Self::Serve
            | Self::Completions(_)
            | Self::Man(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory as _;
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_follows_the_command_is_the_commands() {
        let parsed =
            Arguments::try_parse_from(["stockade", "run", "--", "ls", "--json", "--", "-x"])
                .unwrap();
        let Command::Run(run) = parsed.command else { panic!("{parsed:?}") };
        assert_eq!(run.command, ["ls", "--json", "--", "-x"]);
        assert!(!run.json);
    }

    #[test]
    fn a_run_has_one_fate() {
        let both = ["stockade", "run", "--apply", "--discard", "--", "x"];
        assert!(Arguments::try_parse_from(both).is_err());
    }

    #[test]
    fn a_run_is_read_alone_as_it_is_among_all_commands() {
        for line in [
            "run -- true",
            "run -- ls --json -- -x",
            "run -- ",
            "run -- -- --help",
            "run --",
            "run --discard --env A=b --env C=d --memory 1G --timeout 2s ls -l --json",
            "run --best-effort landlock --mount /a:/b:ro --pids 7 -- sh -c exit",
            "run help",
            "run --help",
            "run --version",
            "run",
            "run --apply --discard -- true",
            "run --json --tty -- true",
            "run --nonsense -- true",
            "ls",
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let alone = Run::alone(&words).map(|run| format!("{run:?}"));
            let all = std::iter::once("stockade".into()).chain(words);
            let among = match Arguments::try_parse_from(all).map(|arguments| arguments.command) {
                Ok(Command::Run(run)) => Some(format!("{run:?}")),
                _ => None,
            };
            assert_eq!(alone, among, "{line}");
        }
    }
}
