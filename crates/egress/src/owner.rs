//! The owner's side: how the process is started, what it is told of this machine first, and how it
//! ends. What it is asked is the owner's to know, and what it lets through is not decided here.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::control::{Ask, Owner};

/// The number of the question that [`Process::start`] asks: for [`Ask::Names`]. Its answer comes first.
pub const NAMES: u64 = 0;

/// Where the host finds names.
const NAME_SERVERS: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";
/// How much of what it says at its end is kept, in bytes.
const LAST_WORDS_BYTES: u64 = 4096;

/// A program that confines itself and then [serves](crate::serve) the owner at its standard input.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// The process, seen by its owner. Dropping this ends it.
#[derive(Debug)]
pub struct Process {
    owner: Arc<Owner>,
    child: Child,
}

impl Process {
    /// Starts the process, and does not wait for it. It inherits whatever descriptor of this process
    /// is not closed on exec.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub fn start(program: &Program) -> io::Result<Self> {
        let (owner, theirs) = Owner::pair()?;
        let child = Command::new(&program.path)
            .args(&program.arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // What is typed to end its owner's command is for the command.
            .process_group(0)
            .spawn()?;
        let process = Self { owner: Arc::new(owner), child };
        process.owner.ask(NAMES, names(), &[])?;
        Ok(process)
    }

    /// Its socket.
    pub const fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }

    /// How it has ended; `None` while it has not.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends it on the spot, and gives what it said before it ended by itself, where it did.
    pub fn last_words(&mut self) -> Option<String> {
        let _ = self.child.kill();
        let mut text = String::new();
        self.child.stderr.take()?.take(LAST_WORDS_BYTES).read_to_string(&mut text).ok()?;
        Some(text).filter(|text| !text.is_empty())
    }

    /// Asks no more, lets it tell what is left, and ends it where it has not within that time. What it
    /// tells is to be heard meanwhile by somebody else. Gives how it has ended, where it has by then.
    pub fn end(&mut self, grace: Duration) -> Option<ExitStatus> {
        let _ = shutdown(self.owner.as_fd(), Shutdown::Write);
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

/// What it has to know to find names, as it is now. Without files it asks this machine, and knows no
/// name of its own.
pub fn names() -> Ask {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    Ask::Names { resolv_conf: text(NAME_SERVERS), hosts: text(HOSTS) }
}
