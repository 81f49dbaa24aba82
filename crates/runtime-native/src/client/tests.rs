//! The client with a keeper whose responses each test defines.

mod files;
mod inputs;
mod keeper;
mod ports;
mod requests;
mod snapshots;
mod starts;
mod streams;

use std::ffi::OsString;
use std::path::PathBuf;

use stockade_core::{ExecId, Isolation, Level, SandboxId};
use stockade_test_support::skipped;

use self::keeper::Keeper;
use super::{Native, Options};
use crate::bubblewrap::Launcher;
use crate::directory::Directory;
use crate::socket::Message;
use crate::wire::Request;
use stockade_runtime::{State, Status};

/// A data directory for one test, and its client.
struct Fixture {
    scratch: tempfile::TempDir,
    native: Native,
}

impl Fixture {
    /// With no program that could be started as a keeper.
    fn new() -> Self {
        Self::with(&["/bin/false"])
    }

    /// With this program as the keeper.
    fn with(keeper: &[&str]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let native = native(scratch.path().into(), keeper);
        Self { scratch, native }
    }

    fn directory(&self) -> Directory {
        Directory::open(&self.scratch.path().join("data"), Launcher::Own).unwrap()
    }

    /// Starts a keeper that answers each request with `serve`.
    fn keeper(
        &self,
        serve: impl Fn(&keeper::Peer, Message<Request>) -> bool + Send + Sync + 'static,
    ) -> Keeper {
        Keeper::start(&self.directory(), serve)
    }
}

fn native(scratch: PathBuf, keeper: &[&str]) -> Native {
    let keeper = keeper.iter().map(OsString::from).collect();
    Native::open(Options { data: scratch.join("data"), keeper, pool: 3 }).unwrap()
}

fn sandbox() -> SandboxId {
    SandboxId::new("box").unwrap()
}

fn exec() -> ExecId {
    ExecId::new("one").unwrap()
}

fn status() -> Status {
    Status {
        id: sandbox(),
        state: State::Running,
        reason: None,
        end_cause: None,
        labels: [("a".to_owned(), "b".to_owned())].into(),
        created_at_ms: 1,
        lease_left: None,
        isolation: Isolation {
            level: Level::Full,
            walls: Vec::new(),
            limits: Vec::new(),
            reasons: Vec::new(),
        },
        execs: Vec::new(),
    }
}
