//! A worker that lives on: a process behind the same walls as [`worker`](crate::worker), whose
//! standard streams are those of the process that called for it. It ends when its input does.

use std::ffi::CString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::{
    self as jail, Command, Ending, Identity, JailSpec, Payload, Signals, Sink, Source, Streams,
    Supervision, Task, identity,
};

/// Who a worker is inside when it has a range of ids.
const USER: u32 = 1_000;
/// The engine, and threads for it.
const PROCESSES: u64 = 16;
/// All of its memory; the engine's heap has a limit of its own, far below.
const ADDRESS_SPACE_BYTES: u64 = 4 << 30;
/// How long it may take to end when it was asked to.
const GRACE: Duration = Duration::from_secs(1);

/// Why there was no worker.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No ids could be had for it.
    #[error("find ids for a worker")]
    Identity(#[source] identity::Error),
    /// Its streams could not be laid down.
    #[error("hand a worker its streams")]
    Streams(#[source] io::Error),
    /// Signals could not be held back.
    #[error("hold signals back")]
    Signals(#[source] io::Error),
    /// The jail could not be raised, or failed.
    #[error("jail a worker")]
    Jail(#[source] jail::Error),
}

/// Runs `serve` in a jail, its standard streams joined to those of this process, and waits for its
/// end. This process must have a single thread, and nothing in memory that the worker may not know.
///
/// # Errors
/// When a wall cannot be raised: nothing has been served then.
pub fn serve(serve: fn() -> u8) -> Result<Ending, Error> {
    let signals = Signals::hold().map_err(Error::Signals)?;
    let identity = Identity::of_caller().map_err(Error::Identity)?;
    let (user, group) = match &identity {
        Identity::Own { user, group } => (*user, *group),
        Identity::Range(_) => (USER, USER),
    };
    let input = own(rustix::stdio::stdin()).map_err(Error::Streams)?;
    let output = own(rustix::stdio::stdout()).map_err(Error::Streams)?;
    let error = own(rustix::stdio::stderr()).map_err(Error::Streams)?;
    let command = Command {
        payload: Payload::Function(serve),
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
        input: Some(input),
        output: Sink::Descriptor(output),
        error: Sink::Descriptor(error),
        timeout: None,
        output_limit_bytes: None,
        grace: GRACE,
        terminal: None,
        watches: Vec::new(),
    };
    Ok(jail::supervise(jail, supervision, signals).map_err(Error::Jail)?.ending)
}

fn own(stream: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    stream.try_clone_to_owned()
}
