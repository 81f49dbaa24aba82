//! Workers: processes of their own behind all walls of a jail, with no network, no file and no
//! variable, each of which serves one call and is gone. They are forked from a zygote, which has
//! prepared what they all need; it runs in a jail of its own, and nothing of the caller's memory is
//! in it, for it comes from a program that was just executed.
//!
//! The caller speaks to each worker over one stream ([`wire`]). Every word of a worker is checked,
//! and what it wants from the outside is done by the caller, who may refuse.

mod call;
mod inside;
pub mod wire;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::zygote::{self, NotReady, Requests, Work};
use stockade_jail::{Identity, Task};

use crate::walls::{self, STACK_BYTES};

pub use call::{Call, Ended, Told};
pub use inside::Wire;
pub use stockade_jail::Error as JailError;
pub use stockade_jail::zygote::{NotReady as NoZygote, Raised, Serve};

/// All memory that a worker may have for itself: its stack, the engine's heap, which has a limit of
/// its own far below, and what reading files takes.
const DATA_BYTES: u64 = 256 << 20;
/// Workers, and the zygote's own threads.
const PROCESSES: u64 = 300;
/// Processor time of a worker: more than any call may last.
const CPU_SECONDS: u64 = 20;
/// The most fetches of one call, and the bytes that all their requests may have.
const MAX_FETCHES: usize = 100;
const MAX_ASKED_BYTES: usize = 8 << 20;
/// How long preparing may take, on a machine under heavy load.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a zygote may take to end once nobody asks it any more.
const GRACE: Duration = Duration::from_secs(2);

/// The program that becomes a zygote, when its first action is to call [`process`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// A zygote that has prepared its workers. Dropping it ends them all.
#[derive(Debug)]
pub struct Zygote {
    requests: Option<Requests>,
    raised: Raised,
    process: Child,
}

/// Why there was no worker.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was to be prepared could not be handed over.
    #[error("send the libraries to a zygote")]
    Input(#[source] io::Error),
    /// The program could not be started.
    #[error("start the program that becomes a zygote")]
    Start(#[source] io::Error),
    /// It does not serve.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// It is gone.
    #[error("fork a worker")]
    Fork(#[source] io::Error),
    /// The stream to a worker failed here.
    #[error("communicate with a worker")]
    Wire(#[source] io::Error),
}

impl Zygote {
    /// Starts a zygote, and waits until it has prepared its workers.
    ///
    /// # Errors
    /// Why it does not serve.
    pub fn start(program: &Program, prepared: &[u8]) -> Result<Self, Error> {
        let input = memfd_create("prepared", MemfdFlags::CLOEXEC);
        let mut input = File::from(input.map_err(|error| Error::Input(error.into()))?);
        input.write_all(prepared).map_err(Error::Input)?;
        let (requests, theirs) = Requests::pair().map_err(Error::Start)?;
        let process = Command::new(&program.path)
            .args(&program.arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::Start)?;
        // Ends the process from here on, whatever happens.
        let mut zygote =
            Self { requests: None, raised: Raised { namespaces: false, landlock: 0 }, process };
        zygote.raised = requests.prepare(input.as_fd(), PATIENCE)?;
        zygote.requests = Some(requests);
        Ok(zygote)
    }

    /// What stands around its workers.
    pub const fn raised(&self) -> Raised {
        self.raised
    }
}

impl Zygote {
    /// Waits for the end of the process, a while.
    fn ends_by_itself(&self) -> bool {
        let Ok(process) = pidfd_open(Pid::from_child(&self.process), PidfdFlags::empty()) else {
            return false;
        };
        let timeout = Timespec::try_from(GRACE).ok();
        matches!(poll(&mut [PollFd::new(&process, PollFlags::IN)], timeout.as_ref()), Ok(1..))
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        // It ends when nobody can ask it any more.
        self.requests = None;
        if !self.ends_by_itself() {
            // Fails only when it is gone.
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// Is the process of a zygote, from its first action to its end: standard input is the socket on
/// which workers are asked for. The exit code.
pub fn process(prepare: fn(OwnedFd) -> Result<Serve, String>) -> u8 {
    let Ok(requests) = stand_alone() else { return 1 };
    let identity = match Identity::of_caller() {
        Ok(identity) => identity,
        Err(error) => {
            zygote::refuse(requests, &error.to_string());
            return 1;
        }
    };
    let work = Work {
        requests,
        prepare,
        stack_bytes: STACK_BYTES,
        worker: ResourceLimits {
            open_files: Some(64),
            file_bytes: Some(0),
            data_bytes: Some(DATA_BYTES),
            cpu_seconds: Some(CPU_SECONDS),
            locked_bytes: Some(0),
            message_queue_bytes: Some(0),
            ..ResourceLimits::default()
        },
    };
    let limits = ResourceLimits { processes: Some(PROCESSES), ..ResourceLimits::default() };
    zygote::run(walls::jail(identity, Task::Fork(work), limits))
}

/// Takes the socket from standard input, which it leaves empty.
fn stand_alone() -> io::Result<OwnedFd> {
    let requests = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(requests)
}
