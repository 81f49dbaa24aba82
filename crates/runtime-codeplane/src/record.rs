//! What is known here of a sandbox: written before Codeplane is asked. It has no environment, no key and
//! no token.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stockade_core::ending::Ending;
use stockade_core::{ExecId, SandboxId};
use stockade_runtime::{EndCause, Error, Offsets, Result, State};
use stockade_runtime_remote::Copies;

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: SandboxId,
    /// The name of its workspace.
    pub(crate) name: String,
    /// Whether the workspace is one of the user, which is kept.
    pub(crate) is_sticky: bool,
    /// The id of the workspace; absent until everything in it is ready.
    pub(crate) remote: Option<String>,
    /// A hash of what was requested.
    pub(crate) requested: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) working_directory: Option<String>,
    /// The copies of files of the host in it.
    #[serde(default)]
    pub(crate) copies: Copies,
    pub(crate) created_at_ms: u64,
    /// When its lease ends.
    pub(crate) lease_until_ms: Option<u64>,
    pub(crate) ended: Option<(EndCause, String)>,
    /// The limits that were requested and are not enforced, by name.
    #[serde(default)]
    pub(crate) limits: Vec<String>,
    #[serde(default)]
    pub(crate) execs: BTreeMap<ExecId, ExecRecord>,
}

/// A command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExecRecord {
    /// Whether it has certainly been started.
    pub(crate) is_started: bool,
    pub(crate) timeout_at_ms: Option<u64>,
    pub(crate) output_limit: Option<u64>,
    /// Whether its input is streamed, and how many pieces of it were passed on.
    pub(crate) is_fed: bool,
    pub(crate) pieces: u64,
    /// The signals that were sent to it.
    #[serde(default)]
    pub(crate) signals: Vec<i32>,
    /// How it was ended from here.
    pub(crate) cause: Option<Ending>,
    pub(crate) ending: Option<Ending>,
    pub(crate) written: Offsets,
}

impl stockade_runtime_remote::Record for Record {
    fn id(&self) -> &SandboxId {
        &self.id
    }
}

impl Record {
    /// The directory inside with the files of its commands.
    pub(crate) fn directory(&self) -> String {
        format!("/tmp/.stockade-{}", self.id)
    }

    /// Refuses an operation on a sandbox that does not run.
    pub(crate) fn require_running(&self, operation: &'static str) -> Result<()> {
        match self.ended {
            None => Ok(()),
            Some(_) => {
                Err(Error::WrongState { id: self.id.clone(), state: State::Ended, operation })
            }
        }
    }

    /// A command, which must exist.
    pub(crate) fn exec(&self, exec: &ExecId) -> Result<&ExecRecord> {
        let missing = || Error::NoExec { sandbox: self.id.clone(), exec: exec.clone() };
        self.execs.get(exec).ok_or_else(missing)
    }

    /// The same record, ended for this reason unless it has ended before.
    pub(crate) fn ended_by(mut self, cause: EndCause) -> Self {
        let reason = match cause {
            EndCause::LeaseExpired => "its lease expired",
            EndCause::Requested => "a client requested it",
            EndCause::HostRestarted | EndCause::ProcessesLost => "its workspace was lost",
        };
        self.ended.get_or_insert_with(|| (cause, reason.to_owned()));
        self
    }
}
