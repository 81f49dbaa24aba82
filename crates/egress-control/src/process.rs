//! The egress process as a child process of its owner: how it is started and how it ends.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::socket::OwnerSocket;

/// How much of what the process writes to its standard error is read, in bytes.
const STDERR_BYTES: u64 = 4096;

/// A program that confines itself and then serves the owner at its standard input.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// The running process. Dropping this kills it.
#[derive(Debug)]
pub struct Process {
    socket: Arc<OwnerSocket>,
    child: Child,
}

impl Process {
    /// Starts the process, and does not wait for it. It inherits every descriptor of this process that
    /// is not closed on exec.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub fn start(program: &Program) -> io::Result<Self> {
        let (owner, process_socket) = OwnerSocket::pair()?;
        let child = Command::new(&program.path)
            .args(&program.arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(process_socket))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A terminal sends its interrupts to the group of the owner's command, not to this one.
            .process_group(0)
            .spawn()?;
        Ok(Self { socket: Arc::new(owner), child })
    }

    /// The owner's end of its socket.
    pub const fn socket(&self) -> &Arc<OwnerSocket> {
        &self.socket
    }

    /// How it ended; `None` while it runs.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Kills it, and returns what it wrote to its standard error; `None` if it wrote nothing.
    pub fn kill(&mut self) -> Option<String> {
        let _ = self.child.kill();
        let mut text = String::new();
        self.child.stderr.take()?.take(STDERR_BYTES).read_to_string(&mut text).ok()?;
        Some(text).filter(|text| !text.is_empty())
    }

    /// Sends no more requests, and kills the process if it has not ended within that time. Another
    /// thread must receive its reports meanwhile. Returns how it ended, if it ended by itself.
    pub fn end(&mut self, grace: Duration) -> Option<ExitStatus> {
        self.socket.shut_down_writing();
        if let Ok(process) = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()) {
            let grace = Timespec::try_from(grace).ok();
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], grace.as_ref());
        }
        let ended = self.has_ended();
        let _ = self.child.kill();
        ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
