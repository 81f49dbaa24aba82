//! The audit records of commands that work without a server: each has one before it changes anything,
//! and one when it has ended. A command that cannot be recorded is refused, unless it frees space.

use std::os::fd::AsFd as _;

use serde_json::Value;
use stockade_audit::{Actor, Decision, Door, Entry, Error, KeyDirectory, Log, Reason, redact};
use stockade_bundle::data::DataDir;
use stockade_core::{Code, Problem};
use stockade_review::problem::FREE_SPACE_REMEDY;

use crate::args::backup::{Backup, BackupCommand};
use crate::args::image::ImageCommand;
use crate::args::volume::{CacheCommand, VolumeCommand};
use crate::args::{Base, Command};
use crate::data_dir::{data_path, find_data_dir, open_data_dir};
use crate::problem::{Failure, caused};
use crate::remote::chosen::chosen;

/// The record of one operation of this process.
#[derive(Debug)]
pub(crate) struct Recording {
    log: Option<Log>,
    entry: Entry,
}

/// The key of the audit records of this user.
pub(crate) fn keys() -> Option<KeyDirectory> {
    KeyDirectory::from_environment(|name| std::env::var_os(name))
}

/// The problem of records that cannot be used.
pub fn audit_problem(error: &Error) -> Problem {
    if error.is_full() {
        return caused(Code::StorageFull, error).remedied_by(FREE_SPACE_REMEDY);
    }
    let problem = caused(Code::Io, error);
    let Some(path) = keys().map(|keys| keys.path().display().to_string()) else { return problem };
    match error {
        Error::ForeignKey => {
            problem.remedied_by(format!("chmod -R go-rwx {}", crate::shell::shell_word(&path)))
        }
        Error::InvalidKey => {
            let key = crate::shell::shell_word(&format!("{path}/key"));
            problem.remedied_by(format!("mv {key} {key}.damaged"))
        }
        _ => problem,
    }
}

impl Recording {
    /// Records an operation that starts. `frees_space` allows it also if it cannot be recorded.
    ///
    /// # Errors
    /// If it cannot be recorded.
    pub(crate) fn start(
        data: &DataDir,
        operation: &str,
        frees_space: bool,
        details: Vec<(&str, Value)>,
    ) -> Result<Self, Problem> {
        let entry = Entry::new(operation, Actor::this_user(Door::Command));
        let entry = details.into_iter().fold(entry, |entry, (name, value)| entry.with(name, value));
        let path = data.real_path().map_err(|error| caused(Code::Io, &error))?;
        let log = Log::open(data.as_fd(), &path, keys().as_ref()).and_then(|log| {
            log.append(std::slice::from_ref(&entry))?;
            Ok(log)
        });
        match log {
            Ok(log) => Ok(Self { log: Some(log), entry }),
            Err(error) if error.is_full() && frees_space => Ok(Self { log: None, entry }),
            Err(error) => Err(audit_problem(&error)),
        }
    }

    /// Records the end. A failure is reported, but the operation has ended as it has.
    pub(crate) fn end(self, details: Vec<(&str, Value)>, problem: Option<&Problem>) {
        let Some(log) = self.log else { return };
        let decision = problem.map_or(Decision::Allowed, |it| Decision::of_problem(it.code));
        let reason =
            problem.map(|it| Reason { code: it.code.to_string(), message: it.message.clone() });
        let ended = self.entry.ended(decision, reason);
        let ended = details.into_iter().fold(ended, |ended, (name, value)| ended.with(name, value));
        if let Err(error) = log.append(&[ended]) {
            let problem = audit_problem(&error);
            eprint_line!(
                "stockade: the end of the operation is not in the audit records: {}",
                problem.message
            );
        }
    }

    /// Records an operation that was refused before it started. Without a data directory there are no
    /// records.
    pub(crate) fn refused(operation: &str, details: Vec<(&str, Value)>, problem: &Problem) {
        Self::only_end(operation, details, Some(problem));
    }

    /// Records the end of an operation whose start has no record.
    fn only_end(operation: &str, details: Vec<(&str, Value)>, problem: Option<&Problem>) {
        let data = data_path().and_then(|path| find_data_dir(&path));
        let Ok(Some(data)) = data else { return };
        let Ok(path) = data.real_path() else { return };
        let Ok(log) = Log::open(data.as_fd(), &path, keys().as_ref()) else { return };
        let entry = Entry::new(operation, Actor::this_user(Door::Command));
        let entry = details.into_iter().fold(entry, |entry, (name, value)| entry.with(name, value));
        Self { log: Some(log), entry }.end(Vec::new(), problem);
    }

    /// Records an operation around `act`.
    pub(crate) fn around<T>(
        data: &DataDir,
        operation: &str,
        frees_space: bool,
        details: Vec<(&str, Value)>,
        act: impl FnOnce() -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let recording = Self::start(data, operation, frees_space, details)?;
        let done = act();
        recording.end(Vec::new(), done.as_ref().err());
        done
    }
}

/// The operation of a command that works without a server and changes something, and whether it frees
/// space. `run`, `apply` and `reject` record themselves.
fn operation(command: &Command) -> Option<(&'static str, bool)> {
    Some(match command {
        Command::Undo(_) => ("undo", false),
        Command::Trust(_) => ("trust", false),
        Command::Login(_) => ("login", false),
        Command::Logout(_) => ("logout", true),
        Command::Apply(apply) if apply.commits || apply.decision.branch.is_some() => {
            ("apply_to_branch", false)
        }
        Command::Volume(volume) => match volume.what {
            VolumeCommand::Create(_) => ("volume.create", false),
            VolumeCommand::Rm(_) => ("volume.remove", true),
            VolumeCommand::Prune(_) => ("volume.prune", true),
            VolumeCommand::Ls(_) | VolumeCommand::Inspect(_) => return None,
        },
        Command::Cache(cache) => match cache.what {
            CacheCommand::Ls(_) => return None,
            _ => ("cache.remove", true),
        },
        Command::Base(Base { renew: true, .. }) => ("base.make", false),
        Command::Base(Base { rm: true, .. }) => ("base.remove", true),
        Command::Backup(backup) => match backup.what {
            None => ("backup", false),
            Some(BackupCommand::Restore(_)) => ("backup.restore", false),
            Some(BackupCommand::Check(_)) => return None,
        },
        Command::Migrate(_) => ("migrate", false),
        Command::Image(image) => match image.command {
            ImageCommand::Pull(_) => ("image.pull", false),
            ImageCommand::Import(_) => ("image.import", false),
            ImageCommand::Rm(_) => ("image.remove", true),
            ImageCommand::Prune(_) => ("image.prune", true),
            ImageCommand::Ls(_) | ImageCommand::Inspect(_) | ImageCommand::Export(_) => {
                return None;
            }
        },
        _ => return None,
    })
}

/// Runs a command, and records it if it changes something without a server.
pub(crate) fn recorded(
    command: Command,
    run: impl FnOnce(Command) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    // A server records what it is asked for itself.
    if chosen().is_some() {
        return run(command);
    }
    let Some((operation, frees_space)) = operation(&command) else { return run(command) };
    if makes_data_directory(&command) {
        let done = run(command);
        record_afterwards(operation, done.as_ref().err().map(Failure::problem));
        return done;
    }
    // The command itself reports a data directory that cannot be used, or does not exist.
    let data = data_path().and_then(|path| match command {
        Command::Backup(_) | Command::Migrate(_) => find_data_dir(&path),
        _ => open_data_dir(&path).map(Some),
    });
    let Ok(Some(data)) = data else { return run(command) };
    let details = command_details();
    let recording = Recording::start(&data, operation, frees_space, details)?;
    let done = run(command);
    let exit_code = done.as_ref().ok().copied().filter(|code| *code != 0);
    let details = exit_code.map(|code| ("exitCode", code.into()));
    recording.end(details.into_iter().collect(), done.as_ref().err().map(Failure::problem));
    done
}

/// Whether a command makes the data directory, which has no records before.
const fn makes_data_directory(command: &Command) -> bool {
    matches!(command, Command::Backup(Backup { what: Some(BackupCommand::Restore(_)), .. }))
}

/// Records a command that has ended, in the data directory that it has made, or that was there. An empty one
/// stays empty.
fn record_afterwards(operation: &str, problem: Option<&Problem>) {
    let Ok(path) = data_path() else { return };
    let is_filled = std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    if is_filled {
        Recording::only_end(operation, command_details(), problem);
    }
}

/// The words of the command, without what looks like a secret, and the current directory.
fn command_details() -> Vec<(&'static str, Value)> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let arguments = redact::command(words.iter().map(AsRef::as_ref));
    vec![("arguments", arguments.into()), ("project", directory())]
}

/// The current directory.
fn directory() -> Value {
    std::env::current_dir().map_or(Value::Null, |path| path.to_string_lossy().into())
}
