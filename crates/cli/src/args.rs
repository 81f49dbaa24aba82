//! The command-line arguments in the form in which they are written. Each command converts its
//! own arguments for the crates that it uses. This module depends on no command, and on no
//! crate of the workspace but `core`.

pub mod audit;
pub mod backup;
pub mod bundle;
pub mod debug;
pub mod decide;
pub mod examples;
pub mod global;
pub mod help;
#[cfg(test)]
mod help_tests;
#[cfg(test)]
mod hint_tests;
pub mod image;
mod json;
pub mod live;
pub mod login;
pub mod mcp;
pub mod place;
pub mod policy;
pub mod ports;
mod runtime_name;
pub mod sandbox;
pub mod sandbox_flags;
pub mod secrets;
pub mod serve;
pub mod snippet;
pub mod sync;
pub mod volume;
pub mod workflow;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use stockade_core::{OrNone, parse_bytes_or_none, parse_duration_or_none};

use self::bundle::{Apply, Bundles, Diff, Reject};
use self::debug::Debug;
use self::live::{Attach, Forward, Open, Ps, Wait};
use self::sandbox::{
    AllowHosts, Collect, Copy, Create, Events, Exec, Kill, List, Logs, NetworkChange, OneSandbox,
    Prune, Remove, Renew, Restore, Sandboxes, Secret, Shell, Snapshot, Snapshots, Tool, Update,
};
use self::sandbox_flags::{SandboxFlags, SecretFlags};
use crate::programs::FRONT;

/// Runs untrusted code in a sandbox and brings its changes back as a diff to review.
#[derive(Debug, Parser)]
#[command(name = "stockade", version, disable_help_subcommand = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: global::Global,
}

/// The description of `stockade-server`, which has the commands of `stockade`.
const SERVER_ABOUT: &str = "Executes the commands of stockade that need an engine";
const SERVER_LONG_ABOUT: &str = "\
Executes the commands of stockade that need an engine: the local server, workflows and snippets.

The program stockade finds this program in its own directory and starts it where a command needs it.
Both have the same commands, so call stockade instead.";

impl Arguments {
    /// The definition of the arguments of [`FRONT`] or of `stockade-server`.
    pub fn definition(program: &'static str) -> clap::Command {
        let columns = crate::terminal::columns();
        let definition = help::with_help(Self::command(), help::width(columns));
        if program == FRONT {
            return definition;
        }
        definition.name(program).about(SERVER_ABOUT).long_about(SERVER_LONG_ABOUT)
    }

    /// Parses the arguments after the program's name. Those of `run`, which must start quickly,
    /// are parsed without building the definitions of all other commands.
    pub fn parse(program: &'static str, words: &[OsString]) -> Result<Self, clap::Error> {
        if let Some(run) = Run::parse_run(words) {
            let command = Command::Run(Box::new(run));
            return Ok(Self { command, global: global::Global::default() });
        }
        let mut definition = Self::definition(program);
        let first = std::env::args_os().next().unwrap_or_default();
        let all = std::iter::once(first).chain(without_help_command(words));
        let mut matches = definition.try_get_matches_from_mut(all)?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut definition))
    }
}

/// The words with `COMMAND --help` instead of `help COMMAND`.
fn without_help_command(words: &[OsString]) -> Vec<OsString> {
    match words {
        [first, command @ ..]
            if first == "help"
                && !command.iter().any(|word| word.as_encoded_bytes().starts_with(b"-")) =>
        {
            command.iter().cloned().chain(["--help".into()]).collect()
        }
        _ => words.to_vec(),
    }
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Command {
    /// Run a command in a sandbox, on a copy-on-write view of the current project
    #[command(after_help = examples::RUN)]
    Run(Box<Run>),
    /// List the bundles that wait for a decision
    #[command(after_help = examples::BUNDLES)]
    Bundles(Bundles),
    /// Show what a bundle would change
    #[command(after_help = examples::DIFF)]
    Diff(Diff),
    /// Apply a bundle's changes to the project, all or nothing
    #[command(after_help = examples::APPLY)]
    Apply(Apply),
    /// Delete bundles
    #[command(after_help = examples::REJECT)]
    Reject(Reject),
    /// Take back the last `apply` to the current project
    #[command(after_help = examples::UNDO)]
    Undo(decide::Undo),
    /// List which bundles were applied, undone or rejected
    #[command(after_help = examples::HISTORY)]
    History(decide::History),
    /// Show what the project's stockade.toml asks for, and trust exactly this content
    #[command(after_help = examples::TRUST)]
    Trust(Trust),
    /// Create a persistent sandbox and print its id
    #[command(after_help = examples::CREATE)]
    Create(Box<Create>),
    /// Run a command in a sandbox; the exit code is the command's
    #[command(after_help = examples::EXEC)]
    Exec(Box<Exec>),
    /// Open a shell in a sandbox
    #[command(after_help = examples::SHELL)]
    Shell(Shell),
    /// List sandboxes
    #[command(after_help = examples::LS)]
    Ls(List),
    /// Show a sandbox
    #[command(after_help = examples::SHOW)]
    Show(OneSandbox),
    /// Copy files into or out of a sandbox
    #[command(after_help = examples::CP)]
    Cp(Copy),
    /// Make a directory of a sandbox and one outside equal
    #[command(after_help = examples::SYNC)]
    Sync(Box<sync::Sync>),
    /// Remove files and directories from a sandbox
    #[command(after_help = examples::RM)]
    Rm(Remove),
    /// List the commands in sandboxes
    #[command(after_help = examples::PS)]
    Ps(Ps),
    /// Join a command in a sandbox: its output, its input, and its terminal
    #[command(after_help = examples::ATTACH)]
    Attach(Attach),
    /// Wait until commands in sandboxes end; the exit code is the command's
    #[command(after_help = examples::WAIT)]
    Wait(Wait),
    /// Make ports inside a sandbox reachable on this host until interrupted
    #[command(after_help = examples::FORWARD)]
    Forward(Forward),
    /// Print a link that opens a port inside a sandbox in a browser, once
    #[command(after_help = examples::OPEN)]
    Open(Open),
    /// Print the output of a detached command
    #[command(after_help = examples::LOGS)]
    Logs(Logs),
    /// Print the events of sandboxes
    #[command(after_help = examples::EVENTS)]
    Events(Events),
    /// Start stopped or failed sandboxes
    #[command(after_help = examples::START)]
    Start(Sandboxes),
    /// End the processes of sandboxes and keep their files
    #[command(after_help = examples::STOP)]
    Stop(Sandboxes),
    /// Freeze all processes of sandboxes
    #[command(after_help = examples::PAUSE)]
    Pause(Sandboxes),
    /// Resume a failed or interrupted workflow run, or a paused sandbox
    #[command(after_help = examples::RESUME)]
    Resume(workflow::Resume),
    /// Extend the time to live of a sandbox
    #[command(after_help = examples::RENEW)]
    Renew(Renew),
    /// Change limits of sandboxes, also while their commands run
    #[command(after_help = examples::UPDATE)]
    Update(Update),
    /// Allow a sandbox with network access to connect to more hosts
    #[command(after_help = examples::ALLOW)]
    Allow(AllowHosts),
    /// Remove hosts from those that a sandbox may connect to
    #[command(after_help = examples::REFUSE)]
    Refuse(NetworkChange),
    /// Give a sandbox secrets, or take them away
    #[command(after_help = examples::SECRET)]
    Secret(Secret),
    /// Take a snapshot of a sandbox's files
    #[command(after_help = examples::SNAPSHOT)]
    Snapshot(Snapshot),
    /// Create a bundle from the changes in a sandbox's workspace
    #[command(after_help = examples::COLLECT)]
    Collect(Collect),
    /// List or remove snapshots
    #[command(after_help = examples::SNAPSHOTS)]
    Snapshots(Snapshots),
    /// Create a sandbox from a snapshot
    #[command(after_help = examples::RESTORE)]
    Restore(Box<Restore>),
    /// Terminate sandboxes and delete their files, or end commands in them
    #[command(after_help = examples::KILL)]
    Kill(Kill),
    /// Terminate failed and stopped sandboxes
    #[command(after_help = examples::PRUNE)]
    Prune(Prune),
    /// Create, list and remove volumes: named directories that outlive sandboxes
    #[command(after_help = examples::VOLUME)]
    Volume(volume::Volume),
    /// List and remove the caches of tools
    #[command(after_help = examples::CACHE)]
    Cache(volume::Cache),
    /// Named trees of files with staged writes, commits and a history
    #[command(after_help = examples::WORKSPACE)]
    Workspace(sync::Workspace),
    /// Download, list, remove, import and export images
    #[command(after_help = examples::IMAGE)]
    Image(image::Image),
    /// Run tools in a sandbox
    #[command(after_help = examples::TOOL)]
    Tool(Tool),
    /// Check and run small TypeScript programs
    #[command(after_help = examples::SNIPPET)]
    Snippet(snippet::Snippet),
    /// Serve tools to agents over the Model Context Protocol, or run such a server in a sandbox
    #[command(after_help = examples::MCP)]
    Mcp(Box<mcp::Mcp>),
    /// Write a first workflow file and type declarations for editors
    #[command(after_help = examples::INIT)]
    Init(workflow::Init),
    /// Run a workflow file
    #[command(after_help = examples::UP)]
    Up(Box<workflow::Up>),
    /// List workflow runs
    #[command(after_help = examples::RUNS)]
    Runs(workflow::Runs),
    /// Print metrics of workflow sandboxes in the format of Prometheus
    #[command(after_help = examples::METRICS)]
    Metrics(workflow::Metrics),
    /// Show a workflow run and its tasks
    #[command(after_help = examples::INSPECT)]
    Inspect(workflow::OneRun),
    /// Show the tasks of a workflow file without running it
    #[command(after_help = examples::GRAPH)]
    Graph(workflow::Graph),
    /// Approve a request of a workflow run
    #[command(after_help = examples::APPROVE)]
    Approve(workflow::Approve),
    /// Deny a request of a workflow run
    #[command(after_help = examples::DENY)]
    Deny(workflow::Decide),
    /// Send a signal to a workflow run
    #[command(after_help = examples::SIGNAL)]
    Signal(workflow::Signal),
    /// Cancel a workflow run
    #[command(after_help = examples::CANCEL)]
    Cancel(workflow::OneRun),
    /// Serve sandboxes over TCP, to clients of OpenSandbox, until interrupted
    #[command(after_help = examples::SERVE)]
    Serve(Box<serve::Serve>),
    /// Manage the API keys of the server
    #[command(after_help = examples::KEYS)]
    Keys(serve::Keys),
    /// Check, explain or compare network policies
    #[command(after_help = examples::POLICY)]
    Policy(policy::PolicyArguments),
    /// Manage the secrets in the vault of the server: set, list, rotate, remove
    #[command(after_help = examples::SECRETS)]
    Secrets(secrets::Secrets),
    /// List, check or export the audit records
    #[command(after_help = examples::AUDIT)]
    Audit(audit::Audit),
    /// Store the records and files of the data directory in one file, or restore them from one
    #[command(after_help = examples::BACKUP)]
    Backup(backup::Backup),
    /// Move the records of the data directory to PostgreSQL, or back to a file
    #[command(after_help = examples::MIGRATE)]
    Migrate(backup::Migrate),
    /// Store the API key for a server at a URL
    #[command(after_help = examples::LOGIN)]
    Login(login::Login),
    /// Remove the API key for a server at a URL
    #[command(after_help = examples::LOGOUT)]
    Logout(login::Logout),
    /// Print a shell completion script
    #[command(after_help = examples::COMPLETIONS)]
    Completions(Completions),
    /// Print the manual page of this program or of a command
    #[command(after_help = examples::MAN)]
    Man(Man),
    /// Print the ids that complete a command line, for completion scripts
    #[command(hide = true)]
    Complete(Complete),
    /// Test which isolation mechanisms and limits this host supports
    #[command(after_help = examples::DOCTOR)]
    Doctor(Doctor),
    /// Show where the data directory is and how much disk space its parts use
    #[command(after_help = examples::DF)]
    Df(Df),
    /// Make, renew or remove the copy of the system directories that `--private-base` uses
    #[command(after_help = examples::BASE)]
    Base(Base),
    /// Explain an error code, or list all
    #[command(after_help = examples::EXPLAIN)]
    Explain(Explain),
    /// Print this help, or the help of a command
    #[command(after_help = examples::HELP)]
    Help(Help),
    /// Call internal parts of Stockade, for development
    #[command(hide = true)]
    Debug(Box<Debug>),
}

#[derive(Debug, Args)]
pub struct Completions {
    /// The shell to complete for
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct Df {}

#[derive(Debug, Args)]
pub struct Base {
    /// Make the copy again, for a change that was not noticed: a file of the system that was
    /// overwritten in place, without a package
    #[arg(long)]
    pub renew: bool,
    /// Remove all copies that no sandbox uses
    #[arg(long, conflicts_with = "renew")]
    pub rm: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Explain {
    /// The code, such as BUNDLE_CONFLICT; without it, all codes are listed
    pub code: Option<String>,
}

#[derive(Debug, Args)]
pub struct Help {
    /// A command, such as `run` or `tool run`
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Trust {
    /// Accept this mount of the file, as it is written there. Can be repeated
    #[arg(long, value_name = "HOST:PATH[:ro]")]
    pub accept_mount: Vec<String>,
    /// Accept this volume of the file. Can be repeated
    #[arg(long, value_name = "NAME:PATH[:ro]")]
    pub accept_volume: Vec<String>,
    /// Accept that commands see this toolchain of your home directory. Can be repeated
    #[arg(long, value_name = "NAME")]
    pub accept_tools: Vec<String>,
    /// Accept that commands use this secret, as it is written in the file. Can be repeated
    #[arg(long, value_name = "NAME@HOST[:PORT]")]
    pub accept_secret: Vec<String>,
    /// Accept that commands see this environment variable of yours. Can be repeated
    #[arg(long, value_name = "NAME")]
    pub accept_env: Vec<String>,
    /// Decide about the project's devcontainer.json instead, or the one of this name if there are several
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub devcontainer: Option<String>,
    /// Stop trusting the file
    #[arg(long, conflicts_with_all = ["accept_mount", "accept_volume", "accept_tools", "accept_secret", "accept_env"])]
    pub remove: bool,
}

#[derive(Debug, Args)]
pub struct Complete {
    /// The words of the command line up to the cursor, with the program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Man {
    /// A command, such as `run` or `snippet check`
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Default, Args)]
pub struct Run {
    /// Keep the changes as a bundle for review (the default)
    #[arg(long, group = "fate")]
    pub review: bool,
    /// Apply the changes at once if the command succeeds; keep them for review if it fails
    #[arg(long, group = "fate")]
    pub apply: bool,
    /// Delete the changes
    #[arg(long, group = "fate")]
    pub discard: bool,
    /// How the project is shown: as an overlay, or as a copy, in which directories can be renamed and
    /// hard links stay together
    #[arg(long, value_enum, value_name = "KIND", default_value_t, hide_default_value = true)]
    pub view: View,
    /// Keep the directories that git ignores, such as node_modules, for the next run with this flag in
    /// this project. They are in no bundle, and never get into the project
    #[arg(long)]
    pub keep_ignored: bool,
    #[command(flatten)]
    pub sandbox: SandboxFlags,
    #[command(flatten)]
    pub secrets: SecretFlags,
    /// Let programs use keys of your own ssh agent, for what this file permits and for nothing else:
    /// logins at hosts with certain keys, and signatures of commits. The keys stay outside
    #[arg(long, value_name = "FILE")]
    pub ssh_agent: Option<PathBuf>,
    /// Where `--net learn` writes the policy [default: stockade-policy.toml]
    #[arg(long, value_name = "FILE")]
    pub learn_file: Option<PathBuf>,
    /// Reach the allowed hosts through this HTTP proxy of the host's network, or with `env` through
    /// that of the caller's HTTPS_PROXY; needs a network policy. Names are checked by the policy and
    /// resolved by the proxy, so their addresses are not checked
    #[arg(long, value_name = "URL|env")]
    pub upstream_proxy: Option<OsString>,
    /// The runtime that holds the sandbox: `native`, `bwrap` or `docker` [default: native]
    #[arg(long, value_name = "NAME")]
    pub runtime: Option<String>,
    /// The runtime that is used if that of --runtime is not usable here, or lacks what is requested
    #[arg(long, value_name = "NAME", requires = "runtime")]
    pub fallback_runtime: Option<String>,
    /// Time limit of the command, such as 30s, 1h30m or 2d, or `none`
    #[arg(long, value_name = "DURATION", value_parser = parse_duration_or_none)]
    pub timeout: Option<OrNone<Duration>>,
    /// Maximum size of the bundle, or `none` [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes_or_none)]
    pub max_bundle: Option<OrNone<u64>>,
    /// Maximum number of changed paths of the bundle; a directory that git ignores counts as one if
    /// many paths in it changed [default: 200000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub max_paths: Option<u64>,
    /// Give the command a terminal
    #[arg(long, short)]
    pub tty: bool,
    /// Connect standard input to the command (the default)
    #[arg(long, short)]
    pub interactive: bool,
    /// Capture the command's output and print one JSON object about the run
    #[arg(long, conflicts_with = "tty")]
    pub json: bool,
    /// Where the project is visible, if not at its own path.
    #[arg(skip)]
    pub inside: Option<PathBuf>,
    /// The directory whose project it is, if not the current one.
    #[arg(skip)]
    pub start: Option<PathBuf>,
    /// How long the command may last after its input has ended.
    #[arg(skip)]
    pub after_input: Option<Duration>,
    /// Start this program instead of the image's entrypoint; the image's arguments are then left out
    #[arg(long, requires = "image", value_name = "PROGRAM")]
    pub entrypoint: Option<OsString>,
    /// The command and its arguments; with an image of the store these are the arguments of its
    /// entrypoint, and may be left out
    #[arg(trailing_var_arg = true, required_unless_present_any = ["image", "profile", "devcontainer"], value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// How a run shows the project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum View {
    /// An overlay, or a copy where that is not possible
    #[default]
    Overlay,
    /// A copy
    Copy,
}

impl Run {
    /// Parses the arguments of a valid `run`. Help and errors are left to the parser of the
    /// whole program.
    fn parse_run(words: &[OsString]) -> Option<Self> {
        words.first().filter(|name| *name == "run")?;
        // There are no flags, so there is nothing to parse, which saves 80 us.
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
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Command {
    /// Whether only the program with the engines can execute this command.
    #[must_use]
    pub fn needs_engine(&self) -> bool {
        match self {
            Self::Debug(_)
            | Self::Snippet(_)
            | Self::Graph(_)
            | Self::Serve(_)
            | Self::Backup(_)
            | Self::Migrate(_) => true,
            Self::Mcp(mcp) => mcp.what.is_none(),
            Self::Up(up) => up.result.is_some(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
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
            let alone = Run::parse_run(&words).map(|run| format!("{run:?}"));
            let all = std::iter::once("stockade".into()).chain(words);
            let among = match Arguments::try_parse_from(all).map(|arguments| arguments.command) {
                Ok(Command::Run(run)) => Some(format!("{run:?}")),
                _ => None,
            };
            assert_eq!(alone, among, "{line}");
        }
    }
}
