//! What is known here of a sandbox elsewhere: a file for each, written before the server is asked, so
//! that nothing is left there that nobody knows. It has no environment and no key.

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
    /// Its id at the server; absent until that is known.
    pub(crate) remote: Option<String>,
    /// A hash of what was requested.
    pub(crate) requested: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) working_directory: Option<String>,
    /// The copies of files of the host in it.
    #[serde(default)]
    pub(crate) copies: Copies,
    /// Whether they may be incomplete: nothing uses the sandbox until they are not.
    #[serde(default)]
    pub(crate) is_being_filled: bool,
    pub(crate) created_at_ms: u64,
    /// Whether it was created without a lease: the server cannot give it one.
    #[serde(default)]
    pub(crate) is_endless: bool,
    /// When its lease ends.
    pub(crate) lease_until_ms: Option<u64>,
    pub(crate) ended: Option<(EndCause, String)>,
    /// The limits that were requested and are not enforced, by name.
    #[serde(default)]
    pub(crate) limits: Vec<(String, bool)>,
    #[serde(default)]
    pub(crate) execs: BTreeMap<ExecId, ExecRecord>,
}

/// A command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExecRecord {
    /// Its id at the server; absent until that is known.
    pub(crate) remote: Option<String>,
    /// Whether an earlier start may have run the command, whose id is not known.
    #[serde(default)]
    pub(crate) is_repeated: bool,
    pub(crate) timeout_at_ms: Option<u64>,
    pub(crate) output_limit: Option<u64>,
    /// Whether its input is streamed, and how many pieces of it were passed on.
    #[serde(default)]
    pub(crate) is_fed: bool,
    #[serde(default)]
    pub(crate) pieces: u64,
    /// The signals that were sent to it.
    #[serde(default)]
    pub(crate) signals: Vec<i32>,
    /// How it was ended from here, before the server says that it has ended.
    pub(crate) cause: Option<Ending>,
    pub(crate) ending: Option<Ending>,
    #[serde(default)]
    pub(crate) written: Offsets,
}

impl Record {
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
}

impl stockade_runtime_remote::Record for Record {
    fn id(&self) -> &SandboxId {
        &self.id
    }
}
