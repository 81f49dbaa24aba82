//! The backend of workspaces of Codeplane under test: against a local double of its interface, with a
//! real server of OpenSSH for each workspace.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod double;
mod faults;
mod kept;
mod machine;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stockade_runtime::Runtime;
use stockade_runtime::conformance::{self, Backend};
use stockade_runtime_codeplane::{Address, Codeplane, Options};
use stockade_runtime_remote::Protocol;
use stockade_test_support::{require_nextest, skipped};

use double::{Double, KEY, REPOSITORY};

/// The cases of promises that workspaces do not make, with the reasons.
const NOT_HERE: [(&str, &str); 6] = [
    ("workspaces::mounts_", "a directory of the host is copied at the start"),
    ("signals_are_told_from_codes", "a shell inside reports signals as exit codes"),
    ("who_stops_listening_is_not_waited_for", WRITES_FILES),
    ("who_does_not_read_holds_up_nobody_else", WRITES_FILES),
    ("a_tree_goes_through_a_stream", "trees are copied as archives, and not as streams"),
    ("pause::", SUSPENDED),
];
const WRITES_FILES: &str = "a command elsewhere writes its output to files, and waits for nobody";
const SUSPENDED: &str = "nothing of a suspended workspace can be reached";
/// The cases of a pause that reach nothing meanwhile.
const PAUSED: [&str; 5] = [
    "pause::it_is_told",
    "pause::twice_is_once",
    "pause::nothing_is_started",
    "pause::what_runs_loses_nothing",
    "pause::what_is_paused_is_cleaned_up",
];

/// Runs a case, or records why it cannot run.
pub(crate) fn run(case: &str) {
    require_nextest();
    let missing = NOT_HERE.iter().find(|(name, _)| case.contains(name));
    if let Some((_, reason)) = missing.filter(|_| !PAUSED.contains(&case)) {
        return skipped(reason);
    }
    conformance::run(case, Elsewhere::start().map(|it| Arc::new(it) as _));
}

/// A double, and a data directory of a client.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    pub(crate) double: Double,
}

impl Elsewhere {
    pub(crate) fn start() -> Result<Self, String> {
        Ok(Self { double: Double::start()? })
    }

    /// The data directory of the client.
    pub(crate) fn data(&self) -> PathBuf {
        self.double.directory.path().join("client")
    }

    pub(crate) fn address(&self) -> Address {
        let authority = self.double.url.trim_start_matches("http://").trim_end_matches("/api");
        let (owner, name) = REPOSITORY.split_once('/').unwrap();
        Address {
            protocol: Protocol::Http,
            authority: authority.to_owned(),
            path: "/api".to_owned(),
            key: KEY.to_owned(),
            repository: (owner.to_owned(), name.to_owned()),
            known_hosts: None,
            timeout: Duration::from_secs(5),
        }
    }

    pub(crate) fn client(&self) -> Codeplane {
        self.client_of(self.address())
    }

    pub(crate) fn client_of(&self, address: Address) -> Codeplane {
        Codeplane::new(Options { data: self.data(), address: Ok(address) })
    }
}

#[async_trait]
impl Backend for Elsewhere {
    async fn open(&self) -> Result<Arc<dyn Runtime>, String> {
        Ok(Arc::new(self.client()))
    }

    fn server(&self) -> Result<(), String> {
        Err("the machine has no program that echoes".to_owned())
    }

    async fn leftovers(&self) -> Vec<String> {
        let records = std::fs::read_dir(self.data().join("runtime-codeplane/sandboxes"));
        let records = records.into_iter().flatten().flatten();
        let records = records.map(|entry| entry.path().display().to_string());
        self.double.workspaces().into_iter().map(|(name, _)| name).chain(records).collect()
    }
}
