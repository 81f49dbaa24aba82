//! A persistent worker: a process behind the same walls as a [`worker`](crate::worker), whose
//! standard streams are connected to those of the process that started it. It ends when its input does.
//!
//! If no namespace can be created because this process is already confined by another sandbox, this
//! process itself serves, confined by seccomp and Landlock only, and reports that.

use std::ffi::CString;
use std::io::{self, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::{
    self as jail, Command, Ending, Identity, Payload, Signals, Sink, Streams, Supervision, Task,
    confined, identity, landlock, seccomp,
};

use crate::worker::Confinement;
use crate::worker_jail::{self, STACK_BYTES};

/// The user id of a worker inside, if it has a uid range.
const USER: u32 = 1_000;
/// The process limit: the engine and its threads.
const PROCESSES: u64 = 16;
/// The limit of its whole memory; the engine's heap has a limit of its own, far below.
const ADDRESS_SPACE_BYTES: u64 = 4 << 30;
/// How long it may take to end after the request to end.
const GRACE: Duration = Duration::from_secs(1);
/// The exit code of a worker whose last wall could not be enabled.
const EXIT_NO_ISOLATION: u8 = 125;
/// The exit code of a worker whose thread could not be started, or panicked.
const EXIT_NO_THREAD: u8 = 3;
/// Added to the number of the signal that ended a worker, as in shells.
const SIGNAL_EXIT_BASE: u8 = 128;

/// The work of a worker.
pub trait Serve {
    /// Serves on standard input and output, behind these walls; returns the exit code.
    fn serve(confinement: Confinement) -> u8;
}

/// Why a worker could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No ids are available for it.
    #[error("choose the ids of a worker")]
    Identity(#[source] identity::Error),
    /// Its streams could not be duplicated.
    #[error("send a worker its streams")]
    Streams(#[source] io::Error),
    /// Signals could not be blocked.
    #[error("block signals")]
    Signals(#[source] io::Error),
    /// The jail could not be launched, or failed.
    #[error("jail a worker")]
    Jail(#[source] jail::Error),
}

/// Serves in a jail, whose standard streams are connected to those of this process, and waits for
/// its end. Returns the exit code, which is 128 plus the signal number if a signal ended it. This
/// process must have a single thread, and no data in its memory that the worker must not see.
///
/// # Errors
/// If a wall is unavailable: nothing was served then.
pub fn serve<S: Serve>() -> Result<u8, Error> {
    let address_space_bytes = Some(ADDRESS_SPACE_BYTES);
    let limits = ResourceLimits { address_space_bytes, ..ResourceLimits::default() };
    if confined::is_already_confined() {
        let limits = ResourceLimits { file_bytes: Some(0), ..limits };
        confined::confine(&limits).map_err(Error::Jail)?;
        return Ok(serve_on_thread::<S>(false));
    }
    let signals = Signals::block().map_err(Error::Signals)?;
    let identity = Identity::for_caller().map_err(Error::Identity)?;
    let (user, group) = match &identity {
        Identity::Own { user, group } => (*user, *group),
        Identity::Range(_) => (USER, USER),
    };
    let input = duplicate(rustix::stdio::stdin()).map_err(Error::Streams)?;
    let output = duplicate(rustix::stdio::stdout()).map_err(Error::Streams)?;
    let error = duplicate(rustix::stdio::stderr()).map_err(Error::Streams)?;
    let command = Command {
        payload: Payload::Function(serve_jailed::<S>),
        environment: Vec::new(),
        working_directory: CString::from(c"/"),
        user,
        group,
        groups: Vec::new(),
        umask: 0o022,
        processors: None,
        not_before: None,
    };
    let task = Task::Once { command, streams: Streams::Pipes };
    // Without a user namespace, the limit would count all processes of the user.
    let limits = ResourceLimits { processes: Some(PROCESSES), ..limits };
    let jail = jail::launch(worker_jail::jail(identity, task, limits)).map_err(Error::Jail)?;
    let supervision = Supervision {
        input: Some(input),
        output: Sink::Descriptor(output),
        error: Sink::Descriptor(error),
        timeout: None,
        output_limit_bytes: None,
        grace: GRACE,
        terminal: None,
        watches: Vec::new(),
        after_input: None,
        first_request: None,
    };
    let outcome = jail::supervise(jail, supervision, signals).map_err(Error::Jail)?;
    Ok(match outcome.ending {
        Ending::Exited(code) => code,
        Ending::Signaled(signal) => {
            SIGNAL_EXIT_BASE.saturating_add(u8::try_from(signal).unwrap_or(0))
        }
        // Every other ending means that the jail did not let it run.
        _ => EXIT_NO_ISOLATION,
    })
}

/// The signal that ended a worker, if one did, from the exit status of the process that called
/// [`serve`].
pub fn signal(status: ExitStatus) -> Option<i32> {
    let coded = status.code().map(|code| code - i32::from(SIGNAL_EXIT_BASE));
    status.signal().or(coded).filter(|signal| *signal > 0)
}

fn duplicate(stream: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    stream.try_clone_to_owned()
}

fn serve_jailed<S: Serve>() -> u8 {
    serve_on_thread::<S>(true)
}

/// Serves on a thread with enough stack to parse files, which can only compute and use its open
/// streams.
fn serve_on_thread<S: Serve>(namespaces: bool) -> u8 {
    let serving = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        let landlock = landlock::abi().map_err(io::Error::from);
        let isolation = landlock.and_then(|landlock| {
            seccomp::install(seccomp::worker_program())?;
            Ok(Confinement { namespaces, landlock })
        });
        match isolation {
            Ok(confinement) => S::serve(confinement),
            Err(error) => {
                // The starting process reads this.
                let _ = write!(
                    io::stderr(),
                    "enable the last isolation mechanisms of a worker: {error}"
                );
                EXIT_NO_ISOLATION
            }
        }
    });
    serving.map_or(EXIT_NO_THREAD, |serving| serving.join().unwrap_or(EXIT_NO_THREAD))
}
