//! A server on a data directory of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::Failure;
use crate::client::Client;

/// The server, and a key for it.
pub(crate) struct Scene {
    place: PathBuf,
    server: Child,
    address: SocketAddr,
    key: String,
}

/// Raises the limit of open files: each client has a connection.
pub(crate) fn allow_many_files() -> Result<(), Failure> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(())
}

impl Scene {
    pub(crate) async fn start(program: &Path) -> Result<Self, Failure> {
        let place = std::env::temp_dir().join(format!("stockade-bench-{}", std::process::id()));
        std::fs::create_dir(&place)?;
        let command = |words: &[&str]| {
            let mut command = Command::new(program);
            command.args(words).env("STOCKADE_DATA_DIR", place.join("data")).env("HOME", &place);
            command.env("STOCKADE_MAX_SANDBOXES", "5000").kill_on_drop(true);
            command
        };
        let serve = ["serve", "--listen", "127.0.0.1:0", "--requests-per-minute", "4000000000"];
        let mut server = command(&serve).stderr(Stdio::piped()).spawn()?;
        let messages = server.stderr.take().ok_or("no messages")?;
        let mut lines = BufReader::new(messages).lines();
        let address = loop {
            let line = lines.next_line().await?.ok_or("the server does not start")?;
            if let Some((_, address)) = line.split_once("http://") {
                break address.trim().parse()?;
            }
        };
        // Nothing waits for a reader of further messages.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let created = command(&["keys", "create", "--owner", "bench"]).output().await?;
        let key = String::from_utf8(created.stdout)?.trim().to_owned();
        // The pool is filled.
        tokio::time::sleep(crate::QUIET).await;
        Ok(Self { place, server, address, key })
    }

    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        Ok(Client::connect(self.address).await?.with_key(&self.key))
    }

    /// The memory of the server, in KiB.
    pub(crate) fn server_memory(&self) -> Result<u64, Failure> {
        let pid = self.server.id().ok_or("the server has ended")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let words = line.and_then(|line| line.split_whitespace().next());
        Ok(words.ok_or("no memory is reported")?.parse()?)
    }

    /// Ends the server and removes its directory.
    pub(crate) async fn end(mut self) {
        if let Some(pid) = self.server.id().and_then(|pid| i32::try_from(pid).ok())
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.server.wait().await;
        let _ = std::fs::remove_dir_all(&self.place);
    }
}
