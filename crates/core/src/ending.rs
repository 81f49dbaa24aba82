//! How a command ended, for one-shot runs, commands in sandboxes and workflows, and the exit code
//! for it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Code;

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It exited with this code.
    Exited(u8),
    /// This signal ended it, sent by itself or another process.
    Signaled(i32),
    /// It was killed because it did not end in time after this signal was sent to it.
    Stopped(i32),
    /// It was killed when it timed out.
    TimedOut,
    /// It was killed because there was too little memory.
    OutOfMemory,
    /// It was killed because it wrote more output than allowed.
    OutputExceeded,
    /// It was killed because its sandbox exceeded this limit.
    LimitExceeded(String),
    /// It was killed on request.
    Killed,
    /// It did not start, with this error number of the kernel.
    NotRun {
        /// The error number, such as 2 for a program that was not found.
        errno: i32,
        /// What failed.
        step: Step,
    },
    /// Its sandbox ended while it ran.
    SandboxEnded,
    /// It was started, but how it ended is unknown.
    Unknown,
}

/// The step at which a command failed to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Step {
    /// Its working directory could not be entered.
    EnterDirectory,
    /// Its program could not be executed.
    RunProgram,
    /// Another step, in words.
    Other(String),
}

/// How a command ended, without details: the values of `ending` in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Ending")]
pub enum Kind {
    /// See [`Ending::Exited`].
    Exited,
    /// See [`Ending::Signaled`].
    Signaled,
    /// See [`Ending::Stopped`].
    Stopped,
    /// See [`Ending::TimedOut`].
    TimedOut,
    /// See [`Ending::OutOfMemory`].
    OutOfMemory,
    /// See [`Ending::OutputExceeded`].
    OutputExceeded,
    /// See [`Ending::LimitExceeded`].
    LimitExceeded,
    /// See [`Ending::Killed`].
    Killed,
    /// See [`Ending::NotRun`].
    NotRun,
    /// See [`Ending::SandboxEnded`].
    SandboxEnded,
    /// See [`Ending::Unknown`].
    Unknown,
}

/// The exit code of a command that a limit or a request killed: 128 and `SIGKILL`.
pub const KILLED: u8 = 137;
/// The exit code of a command whose ending is unknown: a failure of Stockade itself.
pub const UNKNOWN: u8 = 125;

/// The error number of a missing file, `ENOENT`.
const MISSING: i32 = 2;

impl Ending {
    /// The exit code, as shells and `timeout(1)` define it: the command's own, 128 plus the number
    /// of a signal, 124 for a timeout, 127 for a program that was not found, 126 for one that
    /// cannot be executed, 137 for a killed command. `None` if the ending is unknown.
    pub fn exit_code(&self) -> Option<u8> {
        Some(match self {
            Self::Exited(code) => *code,
            Self::Signaled(signal) | Self::Stopped(signal) => signal_exit_code(*signal),
            Self::TimedOut => 124,
            Self::OutOfMemory | Self::OutputExceeded | Self::LimitExceeded(_) | Self::Killed => {
                KILLED
            }
            Self::NotRun { errno: MISSING, step } if *step != Step::EnterDirectory => 127,
            Self::NotRun { .. } => 126,
            Self::SandboxEnded | Self::Unknown => return None,
        })
    }

    /// The exit code of a program that ran the command and reports its ending as its own.
    pub fn process_exit_code(&self) -> u8 {
        self.kind().process_exit_code(self.exit_code().map(i32::from))
    }

    /// The signal that ended it, if one did.
    pub const fn signal(&self) -> Option<i32> {
        match self {
            Self::Signaled(signal) | Self::Stopped(signal) => Some(*signal),
            _ => None,
        }
    }

    /// The error code, if a limit of Stockade ended the command.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::LimitExceeded(limit) => self.kind().code(Some(limit)),
            _ => self.kind().code(None),
        }
    }

    /// The ending without its details.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Exited(_) => Kind::Exited,
            Self::Signaled(_) => Kind::Signaled,
            Self::Stopped(_) => Kind::Stopped,
            Self::TimedOut => Kind::TimedOut,
            Self::OutOfMemory => Kind::OutOfMemory,
            Self::OutputExceeded => Kind::OutputExceeded,
            Self::LimitExceeded(_) => Kind::LimitExceeded,
            Self::Killed => Kind::Killed,
            Self::NotRun { .. } => Kind::NotRun,
            Self::SandboxEnded => Kind::SandboxEnded,
            Self::Unknown => Kind::Unknown,
        }
    }

    /// Details: the limit that was exceeded, or the step that failed and why, such as ``run `cc`:
    /// No such file or directory``.
    pub fn reason(&self, program: Option<&str>, directory: Option<&str>) -> Option<String> {
        match self {
            Self::LimitExceeded(limit) => Some(limit.clone()),
            Self::NotRun { errno, step } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                let named = |what: &str, name: &str| format!("{what} `{name}`: {error}");
                Some(match (step, program, directory) {
                    (Step::RunProgram, Some(program), _) => named("run", program),
                    (Step::EnterDirectory, _, Some(directory)) => named("enter", directory),
                    (step, ..) => format!("{}: {error}", step.as_str()),
                })
            }
            _ => None,
        }
    }
}

impl Kind {
    /// The error code, if a limit of Stockade ended the command; `limit` is the one that was
    /// exceeded, where that is known.
    pub fn code(self, limit: Option<&str>) -> Option<Code> {
        Some(match self {
            Self::TimedOut => Code::TimedOut,
            Self::OutOfMemory => Code::OutOfMemory,
            Self::OutputExceeded => Code::OutputExceeded,
            Self::LimitExceeded if limit == Some("memory") => Code::OutOfMemory,
            Self::LimitExceeded => Code::DiskExceeded,
            _ => return None,
        })
    }

    /// The exit code of a program that ran the command and reports its ending as its own;
    /// `exit_code` is that of the command: 137 if the sandbox ended, 125 if the ending is unknown.
    pub fn process_exit_code(self, exit_code: Option<i32>) -> u8 {
        let known = exit_code.and_then(|code| u8::try_from(code).ok());
        match self {
            Self::SandboxEnded => KILLED,
            _ => known.unwrap_or(UNKNOWN),
        }
    }
}

/// The exit code of a process that a signal ended, as in shells.
pub fn signal_exit_code(signal: i32) -> u8 {
    u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX)
}

impl Step {
    /// The step in words, as a verb.
    pub fn as_str(&self) -> &str {
        match self {
            Self::EnterDirectory => "enter the working directory",
            Self::RunProgram => "run the program",
            Self::Other(step) => step,
        }
    }
}

impl From<String> for Step {
    fn from(step: String) -> Self {
        let known = [Self::EnterDirectory, Self::RunProgram];
        known.into_iter().find(|known| known.as_str() == step).unwrap_or(Self::Other(step))
    }
}

impl From<Step> for String {
    fn from(step: Step) -> Self {
        step.as_str().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn not_run(errno: i32, step: Step) -> Ending {
        Ending::NotRun { errno, step }
    }

    #[test]
    fn exit_codes_are_those_of_shells() {
        for (ending, code) in [
            (Ending::Exited(0), Some(0)),
            (Ending::Exited(77), Some(77)),
            (Ending::Signaled(9), Some(137)),
            (Ending::Stopped(2), Some(130)),
            (Ending::Signaled(i32::MAX), Some(255)),
            (Ending::TimedOut, Some(124)),
            (Ending::OutOfMemory, Some(137)),
            (Ending::OutputExceeded, Some(137)),
            (Ending::LimitExceeded("disk".to_owned()), Some(137)),
            (Ending::Killed, Some(137)),
            (not_run(2, Step::RunProgram), Some(127)),
            (not_run(13, Step::RunProgram), Some(126)),
            (not_run(2, Step::EnterDirectory), Some(126)),
            (not_run(2, Step::Other("open a terminal".to_owned())), Some(127)),
            (Ending::SandboxEnded, None),
            (Ending::Unknown, None),
        ] {
            assert_eq!(ending.exit_code(), code, "{ending:?}");
        }
    }

    #[test]
    fn a_program_that_ran_a_command_ends_as_it_did() {
        assert_eq!(Kind::Exited.process_exit_code(Some(7)), 7);
        assert_eq!(Ending::TimedOut.process_exit_code(), 124);
        assert_eq!(Ending::SandboxEnded.process_exit_code(), 137);
        assert_eq!(Kind::SandboxEnded.process_exit_code(None), 137);
        assert_eq!(Kind::Unknown.process_exit_code(None), 125);
    }

    #[test]
    fn records_of_today_are_read_and_written_as_they_are() {
        for (ending, json) in [
            (Ending::Exited(3), r#"{"exited":3}"#),
            (Ending::TimedOut, r#""timed_out""#),
            (
                not_run(2, Step::EnterDirectory),
                r#"{"not_run":{"errno":2,"step":"enter the working directory"}}"#,
            ),
            (not_run(5, Step::Other("x".to_owned())), r#"{"not_run":{"errno":5,"step":"x"}}"#),
        ] {
            assert_eq!(serde_json::to_string(&ending).unwrap(), json);
            assert_eq!(serde_json::from_str::<Ending>(json).unwrap(), ending);
        }
        assert_eq!(serde_json::to_string(&Kind::TimedOut).unwrap(), r#""timedOut""#);
    }

    #[test]
    fn a_reason_names_what_was_tried() {
        let missing = "No such file or directory (os error 2)";
        let run = not_run(2, Step::RunProgram);
        assert_eq!(run.reason(Some("cc"), Some("/x")).unwrap(), format!("run `cc`: {missing}"));
        assert_eq!(run.reason(None, Some("/x")).unwrap(), format!("run the program: {missing}"));
        let enter = not_run(2, Step::EnterDirectory);
        assert_eq!(enter.reason(Some("cc"), Some("/x")).unwrap(), format!("enter `/x`: {missing}"));
        assert_eq!(Ending::Exited(1).reason(Some("cc"), None), None);
    }
}
