//! The backend of sandboxes elsewhere under test: its server is another Stockade, a process of its own
//! on the loopback with a data directory of its own.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod faults;
mod proxy;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stockade_runtime::Runtime;
use stockade_runtime::conformance::{self, Backend};
use stockade_runtime_opensandbox::{Address, OpenSandbox, Options};
use stockade_runtime_remote::Protocol;
use stockade_test_support::{program, require_nextest, skipped};
use tempfile::TempDir;

/// The line in which a server says where it listens.
const LISTENING: &str = "listening on http://";

/// Runs a case, or records why it cannot run.
pub(crate) fn run(case: &str) {
    require_nextest();
    if case.contains("workspaces::mounts_") {
        return skipped("a directory of the host is copied at the start");
    }
    conformance::run(case, Ok(Arc::new(Elsewhere::start()) as _));
}

/// A server, and a data directory of a client.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    directory: TempDir,
    server: Child,
    pub(crate) domain: String,
    pub(crate) key: String,
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Elsewhere {
    /// Starts a server that needs a key.
    pub(crate) fn start() -> Self {
        let directory = tempfile::Builder::new().prefix("stockade-elsewhere-").tempdir().unwrap();
        let stockade = |words: &[&str]| {
            let mut stockade = Process::new(program("stockade"));
            stockade.args(words).env("STOCKADE_DATA_DIR", directory.path().join("server"));
            stockade.env("HOME", directory.path()).env("STOCKADE_POOL", "2");
            stockade.stdin(Stdio::null());
            stockade
        };
        let created = stockade(&["keys", "create"]).output().unwrap();
        let text = String::from_utf8_lossy(&created.stdout);
        let key = text.split_whitespace().find(|word| word.starts_with("e2b_"));
        let key = key.unwrap_or_else(|| panic!("no key: {created:?}")).to_owned();
        let mut serve = stockade(&["serve", "--listen", "127.0.0.1:0"]);
        let mut server = serve.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
        let domain = lines.find_map(|line| {
            let line = line.ok()?;
            line.split_once(LISTENING).map(|(_, domain)| domain.trim().to_owned())
        });
        let domain = domain.unwrap_or_else(|| panic!("a server that does not listen"));
        // Nothing it prints later is needed, and it must not stop because nobody reads.
        std::thread::spawn(move || lines.for_each(drop));
        Self { directory, server, domain, key }
    }

    /// The data directory of the client.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("client")
    }

    pub(crate) fn client(&self) -> OpenSandbox {
        self.client_at(&self.domain, Duration::from_secs(20))
    }

    /// A client that reaches the server at another address.
    pub(crate) fn client_at(&self, domain: &str, timeout: Duration) -> OpenSandbox {
        self.client_of(Address { domain: domain.to_owned(), timeout, ..self.address() })
    }

    /// A client with another key.
    pub(crate) fn client_with_key(&self, key: &str) -> OpenSandbox {
        self.client_of(Address { key: Some(key.to_owned()), ..self.address() })
    }

    fn client_of(&self, address: Address) -> OpenSandbox {
        OpenSandbox::new(Options { data: self.data(), address: Ok(Some(address)) })
    }

    fn address(&self) -> Address {
        Address {
            domain: self.domain.clone(),
            protocol: Protocol::Http,
            key: Some(self.key.clone()),
            use_server_proxy: false,
            timeout: Duration::from_secs(20),
        }
    }

    /// The ids of the sandboxes that the server has.
    pub(crate) fn at_the_server(&self) -> Vec<String> {
        let listed = Process::new(program("stockade"))
            .args(["ls", "-q"])
            .env("STOCKADE_DATA_DIR", self.directory.path().join("server"))
            .output()
            .unwrap();
        assert!(listed.status.success(), "{listed:?}");
        String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect()
    }
}

#[async_trait]
impl Backend for Elsewhere {
    async fn open(&self) -> Result<Arc<dyn Runtime>, String> {
        Ok(Arc::new(self.client()))
    }

    fn pipes(&self) -> Result<(), String> {
        Err("a command elsewhere writes its output to files, and waits for nobody".to_owned())
    }

    fn processes(&self) -> Result<(), String> {
        Err("a shell inside reports signals as exit codes".to_owned())
    }

    fn raw_paths(&self) -> Result<(), String> {
        Err("the interface of OpenSandbox has only paths that are text".to_owned())
    }

    async fn leftovers(&self) -> Vec<String> {
        let records = std::fs::read_dir(self.data().join("runtime-opensandbox/sandboxes"));
        let records = records.into_iter().flatten().flatten();
        let records = records.map(|entry| entry.path().display().to_string());
        self.at_the_server().into_iter().chain(records).collect()
    }
}
