//! What can be asked of `cargo xtask`, and how it is written.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

/// What `cargo xtask help` prints.
pub(crate) const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci                          everything that must hold before a change is merged
  tidy                        the rules of the house that no compiler checks
  guest                       limits on a kernel of control groups v2 alone, in QEMU
  bench start [--runs N] [--json FILE] [--docker-image NAME]
                              how long a sandbox takes from start to exit, beside its peers
  bench runtime [--runs N] [--json FILE] [--docker-image NAME]
                              what a held sandbox costs, beside a process of the host
  bench durable [--runs N] [--json FILE]
                              what a durable step costs, beside a commit of the same disk
  bench service [--runs N] [--json FILE]
                              what an operation of the product costs, beside its parts
  bench snippet [--runs N] [--json FILE]
                              what a snippet costs, beside a start of the binary
  bench workflow [--runs N] [--json FILE]
                              what a run of a workflow costs, beside a start of the binary
  crash runtime [--kills N] [--seed N] [--user ID]
                              clients, keepers, helpers and inits are killed at random
  crash durable [--kills N] [--seed N]
                              what executes workflows is killed at every write and at random
  crash service [--kills N] [--seed N]
                              the local server, the keeper and inits are killed under load
  crash workflow [--kills N] [--seed N]
                              what does runs of workflows is killed at every write of one, then
                              the local server at random
  fuzz [--seconds N] [--seed N] [--target NAME]
                              mutated input for the parsers that read what a sandbox wrote";

/// One command with its options.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Print the usage.
    Help,
    /// Run every check.
    Ci,
    /// Run the checks of the tree itself.
    Tidy,
    /// Boot a kernel of control groups of version 2 and try the limits there.
    Guest,
    /// Measure the start of a sandbox.
    BenchStart(BenchOptions),
    /// Measure what held sandboxes cost.
    BenchRuntime(BenchOptions),
    /// Measure what durable steps cost.
    BenchDurable(BenchOptions),
    /// Measure what operations of the product cost.
    BenchService(BenchOptions),
    /// Measure what runs of workflows cost.
    BenchWorkflow(BenchOptions),
    /// Measure what snippets cost.
    BenchSnippet(BenchOptions),
    /// Kill what holds sandboxes, and look at what is left.
    CrashRuntime(CrashOptions),
    /// Kill what executes workflows, and look at what is left.
    CrashDurable(CrashOptions),
    /// Kill the local server and what is behind it, and look at what is left.
    CrashService(CrashOptions),
    /// Kill what does runs of workflows.
    CrashWorkflow(CrashOptions),
    /// Feed mutated input to the parsers.
    Fuzz(FuzzOptions),
}

/// Options of `bench`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BenchOptions {
    /// How many rounds are counted; each starts every contender once.
    pub(crate) rounds: usize,
    /// Where the numbers go as JSON.
    pub(crate) json: Option<PathBuf>,
    /// The image that `docker run` starts.
    pub(crate) docker_image: String,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self { rounds: 300, json: None, docker_image: "busybox".to_owned() }
    }
}

/// Options of `crash`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CrashOptions {
    /// How many processes are killed.
    pub(crate) kills: usize,
    /// Where the sequence of choices starts; the clock decides when it is not given.
    pub(crate) seed: Option<u64>,
    /// The id of the user that all of it runs as; only root can name another.
    pub(crate) user: Option<u32>,
}

impl Default for CrashOptions {
    fn default() -> Self {
        Self { kills: 50, seed: None, user: None }
    }
}

/// Options of `fuzz`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FuzzOptions {
    /// How long each target runs.
    pub(crate) duration: Duration,
    /// Where the sequence of inputs starts; the clock decides when it is not given.
    pub(crate) seed: Option<u64>,
    /// The one target to run; all when it is not given.
    pub(crate) target: Option<String>,
}

impl Default for FuzzOptions {
    fn default() -> Self {
        Self { duration: Duration::from_secs(60), seed: None, target: None }
    }
}

impl Command {
    /// Reads the words after `cargo xtask`.
    pub(crate) fn parse(words: &[String]) -> anyhow::Result<Self> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["help" | "--help" | "-h"] => Ok(Self::Help),
            ["ci"] => Ok(Self::Ci),
            ["tidy"] => Ok(Self::Tidy),
            ["guest"] => Ok(Self::Guest),
            ["bench", "start", options @ ..] => {
                Ok(Self::BenchStart(bench(options, BenchOptions::default())?))
            }
            ["bench", "runtime", options @ ..] => {
                Ok(Self::BenchRuntime(bench(options, BenchOptions::default())?))
            }
            ["bench", "durable", options @ ..] => {
                // Its rounds are long ones.
                let default = BenchOptions { rounds: 100, ..BenchOptions::default() };
                Ok(Self::BenchDurable(bench(options, default)?))
            }
            ["bench", "service", options @ ..] => {
                Ok(Self::BenchService(bench(options, BenchOptions::default())?))
            }
            ["bench", "workflow", options @ ..] => {
                // Its rounds are long ones.
                let default = BenchOptions { rounds: 50, ..BenchOptions::default() };
                Ok(Self::BenchWorkflow(bench(options, default)?))
            }
            ["bench", "snippet", options @ ..] => {
                Ok(Self::BenchSnippet(bench(options, BenchOptions::default())?))
            }
            ["crash", "runtime", options @ ..] => Ok(Self::CrashRuntime(crash(options)?)),
            ["crash", "durable", options @ ..] => Ok(Self::CrashDurable(as_oneself(options)?)),
            ["crash", "service", options @ ..] => Ok(Self::CrashService(as_oneself(options)?)),
            ["crash", "workflow", options @ ..] => Ok(Self::CrashWorkflow(as_oneself(options)?)),
            ["fuzz", options @ ..] => {
                let mut parsed = FuzzOptions::default();
                for (name, value) in pairs(options)? {
                    match name {
                        "--seconds" => {
                            let seconds: usize = positive(name, value)?;
                            parsed.duration = Duration::from_secs(seconds as u64);
                        }
                        "--seed" => {
                            let seed = value.parse();
                            parsed.seed = Some(seed.with_context(|| format!("`{name} {value}`"))?);
                        }
                        "--target" => parsed.target = Some(value.to_owned()),
                        _ => bail!("`fuzz` has no option `{name}`"),
                    }
                }
                Ok(Self::Fuzz(parsed))
            }
            [] => bail!("no command was given"),
            other => bail!("there is no command `{}`", other.join(" ")),
        }
    }
}

fn pairs<'a>(words: &[&'a str]) -> anyhow::Result<Vec<(&'a str, &'a str)>> {
    words
        .chunks(2)
        .map(|pair| match *pair {
            [name, value] => Ok((name, value)),
            _ => bail!("`{}` needs a value", pair.concat()),
        })
        .collect()
}

fn positive(name: &str, value: &str) -> anyhow::Result<usize> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => bail!("`{name} {value}`: a whole number above zero is needed"),
    }
}

fn crash(options: &[&str]) -> anyhow::Result<CrashOptions> {
    let mut parsed = CrashOptions::default();
    for (name, value) in pairs(options)? {
        match name {
            "--kills" => parsed.kills = positive(name, value)?,
            "--seed" => {
                let seed = value.parse();
                parsed.seed = Some(seed.with_context(|| format!("`{name} {value}`"))?);
            }
            "--user" => {
                let user = value.parse();
                parsed.user = Some(user.with_context(|| format!("`{name} {value}`"))?);
            }
            _ => bail!("`crash` has no option `{name}`"),
        }
    }
    Ok(parsed)
}

/// Options of a `crash` that runs as whoever starts it.
fn as_oneself(options: &[&str]) -> anyhow::Result<CrashOptions> {
    let parsed = crash(options)?;
    ensure!(parsed.user.is_none(), "only `crash runtime` has the option `--user`");
    Ok(parsed)
}

fn bench(options: &[&str], mut parsed: BenchOptions) -> anyhow::Result<BenchOptions> {
    for (name, value) in pairs(options)? {
        match name {
            "--runs" => parsed.rounds = positive(name, value)?,
            "--json" => parsed.json = Some(PathBuf::from(value)),
            "--docker-image" => parsed.docker_image = value.to_owned(),
            _ => bail!("`bench` has no option `{name}`"),
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> anyhow::Result<Command> {
        Command::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn commands_and_options_are_read() {
        assert_eq!(parse("ci").unwrap(), Command::Ci);
        assert_eq!(parse("tidy").unwrap(), Command::Tidy);
        assert_eq!(
            parse("bench start --runs 7 --json out.json").unwrap(),
            Command::BenchStart(BenchOptions {
                rounds: 7,
                json: Some("out.json".into()),
                ..BenchOptions::default()
            })
        );
        assert_eq!(
            parse("crash runtime --kills 9 --seed 4 --user 1000").unwrap(),
            Command::CrashRuntime(CrashOptions { kills: 9, seed: Some(4), user: Some(1000) })
        );
        assert!(matches!(parse("bench runtime").unwrap(), Command::BenchRuntime(_)));
        assert!(matches!(parse("bench durable").unwrap(), Command::BenchDurable(_)));
        assert!(matches!(parse("bench service").unwrap(), Command::BenchService(_)));
        assert!(matches!(parse("bench workflow").unwrap(), Command::BenchWorkflow(_)));
        assert!(matches!(parse("bench snippet").unwrap(), Command::BenchSnippet(_)));
        assert!(matches!(parse("crash durable").unwrap(), Command::CrashDurable(_)));
        assert!(parse("crash durable --user 1000").is_err());
        assert!(matches!(parse("crash service").unwrap(), Command::CrashService(_)));
        assert!(matches!(parse("crash workflow").unwrap(), Command::CrashWorkflow(_)));
        assert_eq!(
            parse("fuzz --seconds 3 --seed 9 --target patch").unwrap(),
            Command::Fuzz(FuzzOptions {
                duration: Duration::from_secs(3),
                seed: Some(9),
                target: Some("patch".to_owned()),
            })
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for line in ["", "cii", "ci --fast", "bench", "bench start --runs", "bench start --runs 0"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in ["bench start --rums 3", "fuzz --seconds -1", "fuzz --seed x", "tidy all"] {
            assert!(parse(line).is_err(), "{line}");
        }
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
