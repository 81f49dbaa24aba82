//! Workers: separate processes behind all walls of a jail, without network, files and variables.
//! Each serves one call and ends. They are forked from a zygote, which has prepared their common
//! state. The zygote runs in its own jail and contains none of the caller's memory, because it is a
//! newly executed program.
//!
//! The caller communicates with each worker over one stream ([`wire`]). Every message of a worker
//! is validated, and the caller makes the worker's requests to the outside, or refuses them.

mod call;
mod channel;
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
use stockade_jail::zygote::{self, NotReady, Requests};
use stockade_jail::{Identity, Task, ZygoteTask};

use crate::worker_jail::{self, STACK_BYTES};

pub use call::{Call, WorkerEnd, WorkerOutput};
pub use channel::Channel;
pub use stockade_jail::Error as JailError;
pub use stockade_jail::zygote::NotReady as NoZygote;
pub use stockade_jail::{Confinement, Serve};

/// The limit of a worker's private memory: its stack, the engine's heap, which has a limit of its
/// own far below, and the memory for parsing files.
const DATA_BYTES: u64 = 256 << 20;
/// The limit of processes: workers, and the zygote's own threads.
const PROCESSES: u64 = 300;
/// Processor time of a worker: more than the longest call.
const CPU_SECONDS: u64 = 20;
/// The most fetches of one call, and the total size of their requests in bytes.
const MAX_FETCHES: usize = 100;
const MAX_REQUEST_BYTES: usize = 8 << 20;
/// How long the preparation may take, on a machine under heavy load.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a zygote may take to end after its socket is closed.
const GRACE: Duration = Duration::from_secs(2);

/// The program that becomes a zygote: its first action must be to call [`process`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// A zygote that has prepared its workers. Dropping it kills them all.
#[derive(Debug)]
pub struct Zygote {
    requests: Option<Requests>,
    confinement: Confinement,
    process: Child,
}

/// Why there was no worker.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data for the preparation could not be written.
    #[error("send the libraries to a zygote")]
    Input(#[source] io::Error),
    /// The program could not be started.
    #[error("start the program that becomes a zygote")]
    Start(#[source] io::Error),
    /// It is not ready.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// It no longer exists.
    #[error("fork a worker")]
    Fork(#[source] io::Error),
    /// The stream to a worker failed on this side.
    #[error("communicate with a worker")]
    Channel(#[source] io::Error),
}

impl Zygote {
    /// Starts a zygote, and waits until it is prepared.
    ///
    /// # Errors
    /// Why it is not ready.
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
        // From here on, dropping this ends the process.
        let mut zygote = Self {
            requests: None,
            confinement: Confinement { namespaces: false, landlock: 0 },
            process,
        };
        zygote.confinement = requests.prepare(input.as_fd(), PREPARE_TIMEOUT)?;
        zygote.requests = Some(requests);
        Ok(zygote)
    }

    /// The walls of its workers.
    pub const fn confinement(&self) -> Confinement {
        self.confinement
    }
}

impl Zygote {
    /// Waits a limited time for the end of the process.
    fn exits_in_time(&self) -> bool {
        let Ok(process) = pidfd_open(Pid::from_child(&self.process), PidfdFlags::empty()) else {
            return false;
        };
        let timeout = Timespec::try_from(GRACE).ok();
        matches!(poll(&mut [PollFd::new(&process, PollFlags::IN)], timeout.as_ref()), Ok(1..))
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        // Closing the socket makes it end.
        self.requests = None;
        if !self.exits_in_time() {
            // Fails only if it has ended.
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// Runs the process of a zygote, which must call this first: standard input is the socket for
/// requests to fork workers. Returns the exit code.
pub fn process(prepare: fn(OwnedFd) -> Result<Serve, String>) -> u8 {
    let Ok(requests) = detach_stdin() else { return 1 };
    let identity = match Identity::for_caller() {
        Ok(identity) => identity,
        Err(error) => {
            zygote::refuse(requests, &error.to_string());
            return 1;
        }
    };
    let work = ZygoteTask {
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
    zygote::run(worker_jail::jail(identity, Task::Fork(work), limits))
}

/// Takes the socket from standard input, and replaces that by `/dev/null`.
fn detach_stdin() -> io::Result<OwnedFd> {
    let requests = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(requests)
}
