//! A worker: a process of its own behind all walls of a jail, with no network, no file and no
//! variable, that serves one request and is gone. It is forked, not executed: what the calling
//! process holds in memory it could read, so the caller has nothing in memory that it may not know.

use std::ffi::CString;
use std::io::{self, Seek as _, Write as _};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::{
    self as jail, Command, Identity, JailSpec, Payload, Signals, Sink, Source, Streams,
    Supervision, Task, identity,
};

pub use stockade_jail::{Captured, Ending, Error as JailError};

/// Who a worker is inside when it has a range of ids.
const USER: u32 = 1_000;
/// The engine, and threads for it.
const PROCESSES: u64 = 16;
/// All of its memory; the engine's heap has a limit of its own, far below.
const ADDRESS_SPACE_BYTES: u64 = 2 << 30;
/// How much of what it says when it fails is kept.
const ERROR_BYTES: usize = 4 << 10;
/// How long it may take to end when it was asked to.
const GRACE: Duration = Duration::from_secs(1);

/// What is asked of a worker.
#[derive(Debug)]
pub struct Request<'a> {
    /// Runs in the worker: reads the input from its standard input, answers on its standard output,
    /// and gives the exit code.
    pub serve: fn() -> u8,
    /// What it reads.
    pub input: &'a [u8],
    /// The time after which it is killed.
    pub timeout: Duration,
    /// The most that it may answer; what is more is lost.
    pub answer_bytes: usize,
}

/// What a worker left. Every byte is what the worker wanted it to be.
#[derive(Debug)]
pub struct Answer {
    /// What it wrote to its standard output.
    pub output: Captured,
    /// What it wrote to its standard error.
    pub error: Captured,
    /// How it ended.
    pub ending: Ending,
}

/// Why there was no worker.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No ids could be had for it.
    #[error("find ids for a worker")]
    Identity(#[source] identity::Error),
    /// Its input could not be laid down.
    #[error("hand a worker its input")]
    Input(#[source] io::Error),
    /// Signals could not be held back.
    #[error("hold signals back")]
    Signals(#[source] io::Error),
    /// The jail could not be raised, or failed.
    #[error("jail a worker")]
    Jail(#[source] jail::Error),
}

/// Has a request served by a new worker, and waits for its end. The calling process must have a
/// single thread.
///
/// # Errors
/// When a wall cannot be raised: nothing has been served then.
pub fn call(request: &Request<'_>) -> Result<Answer, Error> {
    let signals = Signals::hold().map_err(Error::Signals)?;
    let identity = Identity::of_caller().map_err(Error::Identity)?;
    let (user, group) = match &identity {
        Identity::Own { user, group } => (*user, *group),
        Identity::Range(_) => (USER, USER),
    };
    let mut input = std::fs::File::from(
        memfd_create("request", MemfdFlags::CLOEXEC).map_err(|e| Error::Input(e.into()))?,
    );
    input.write_all(request.input).and_then(|()| input.rewind()).map_err(Error::Input)?;
    let command = Command {
        payload: Payload::Function(request.serve),
        environment: Vec::new(),
        working_directory: CString::from(c"/"),
        user,
        group,
        not_before: None,
    };
    let spec = JailSpec {
        identity,
        root: Source::Empty,
        root_writable: false,
        mounts: Vec::new(),
        hostname: "worker".to_owned(),
        task: Task::Once { command, streams: Streams::Pipes },
        rlimits: ResourceLimits {
            processes: Some(PROCESSES),
            address_space_bytes: Some(ADDRESS_SPACE_BYTES),
            file_bytes: Some(0),
            ..ResourceLimits::default()
        },
        cgroup: None,
        kept: Vec::new(),
        areas: None,
        landlock_optional: false,
    };
    let jail = jail::launch(spec).map_err(Error::Jail)?;
    let supervision = Supervision {
        input: Some(input.into()),
        output: Sink::Capture(request.answer_bytes),
        error: Sink::Capture(ERROR_BYTES),
        timeout: Some(request.timeout),
        output_limit_bytes: None,
        grace: GRACE,
        terminal: None,
        watches: Vec::new(),
    };
    let outcome = jail::supervise(jail, supervision, signals).map_err(Error::Jail)?;
    Ok(Answer { output: outcome.output, error: outcome.error, ending: outcome.ending })
}
