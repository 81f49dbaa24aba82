//! A zygote: a process behind all walls that performs a costly preparation once, and forks a worker
//! for each call. The worker starts with everything prepared and ends with the call.
//!
//! The client of a zygote has the outer end of a socket ([`Requests`]). The inner end goes to a
//! process that was just executed and contains nothing of the caller ([`run`]): it raises a jail
//! whose pid 1 is the zygote, and waits for its end. Each request carries two file descriptors: the
//! worker's *wire*, through which the caller communicates with it, and its *leash*, on which the
//! zygote reports its end. Closing the other end of the leash ends the worker.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::channel::{Channel, FromInit};
use crate::confined;
use crate::init::fork::Zygote;
use crate::launch::{self, Error};
use crate::mounts::Failure;
use crate::rlimits::ResourceLimits;
use crate::spec::{JailSpec, Task, ZygoteTask};
use crate::sys;
use crate::zygote_messages::{Confinement, FromZygote, ToZygote};

/// Why a zygote does not serve.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// Its jail could not be raised.
    #[error(transparent)]
    Jail(Error),
    /// The preparation failed, with this text.
    #[error("prepare the workers: {0}")]
    PrepareFailed(String),
    /// It took too long.
    #[error("the workers were not prepared after {0:?}")]
    Deadline(Duration),
    /// It ended too early, or communication with it failed.
    #[error("communicate with the zygote")]
    Lost(#[source] io::Error),
}

/// The caller's end of a zygote's socket. Dropping it ends the zygote and its workers.
#[derive(Debug)]
pub struct Requests(Channel);

impl Requests {
    /// A connected pair: the caller's end, and the one for [`run`].
    ///
    /// # Errors
    /// The error of socketpair(2).
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = Channel::pair()?;
        Ok((Self(ours), theirs.into_descriptor()))
    }

    /// Makes the zygote prepare the content of a file descriptor, and waits until it serves.
    ///
    /// # Errors
    /// Why it does not.
    pub fn prepare(
        &self,
        input: BorrowedFd<'_>,
        time_limit: Duration,
    ) -> Result<Confinement, NotReady> {
        self.0.send(&ToZygote::Prepare.encode(), &[input]).map_err(NotReady::Lost)?;
        let timeout = Timespec::try_from(time_limit).map_err(|_| NotReady::Deadline(time_limit))?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(NotReady::Deadline(time_limit)),
            Ok(_) => {}
            Err(error) => return Err(NotReady::Lost(error.into())),
        }
        let reply = self.0.receive().map_err(NotReady::Lost)?;
        let (bytes, _) =
            reply.ok_or_else(|| NotReady::Lost(io::ErrorKind::UnexpectedEof.into()))?;
        match FromZygote::decode(&bytes) {
            Some(FromZygote::Ready(raised)) => Ok(raised),
            Some(FromZygote::PrepareFailed(why)) => Err(NotReady::PrepareFailed(why)),
            Some(FromZygote::WallFailed(failed)) => match *failed {
                FromInit::Failed { wall, errno, step } => {
                    Err(NotReady::Jail(launch::failed(wall, step, errno)))
                }
                _ => Err(NotReady::Lost(io::ErrorKind::InvalidData.into())),
            },
            Some(FromZygote::LaunchFailed(why)) => Err(NotReady::Lost(io::Error::other(why))),
            None => Err(NotReady::Lost(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Makes the zygote fork a worker with this wire. The caller drops its own copy of the wire's
    /// inner end.
    ///
    /// # Errors
    /// When the zygote no longer exists.
    pub fn fork(&self, wire: BorrowedFd<'_>) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        self.0.send(&ToZygote::Fork.encode(), &[wire, theirs.as_fd()])?;
        Ok(ours)
    }
}

impl AsFd for Requests {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reports to the caller that there is no zygote, for a reason that is known before a jail is
/// raised.
pub fn refuse(requests: OwnedFd, why: &str) {
    // If this fails, the end of the socket reports it.
    let _ = Channel::from_descriptor(requests)
        .send(&FromZygote::LaunchFailed(why.to_owned()).encode(), &[]);
}

/// Raises a jail whose pid 1 is a zygote, and waits for its end. Failures are reported to the
/// caller over the socket. The calling process must have a single thread, and nothing in memory
/// that must be hidden from a worker.
///
/// Where no namespace can be created because another program has already confined this process, the
/// process becomes the zygote itself, with the filter and Landlock alone, and reports that. In all
/// other cases it fails closed.
pub fn run(spec: JailSpec) -> u8 {
    let Task::Fork(ZygoteTask { requests, prepare, stack_bytes, worker }) = &spec.task else {
        return 2;
    };
    let (prepare, stack_bytes, worker) = (*prepare, *stack_bytes, *worker);
    let Ok(again) = requests.try_clone() else { return 1 };
    if !confined::is_already_confined() {
        return match launch::launch_zygote(spec) {
            Ok(init) => {
                // The end of the socket reports the zygote's end, so the socket must be open
                // nowhere else.
                drop(again);
                sys::wait(&init);
                0
            }
            Err(error) => {
                report_failure(&Channel::from_descriptor(again), &error);
                1
            }
        };
    }
    match confined::confine_with_ruleset(&ResourceLimits::default()) {
        Ok((nothing, landlock)) => {
            let work = ZygoteTask { requests: again, prepare, stack_bytes, worker };
            let raised = Confinement { namespaces: false, landlock };
            u8::try_from(Zygote::new(work, nothing, raised).run()).unwrap_or(1)
        }
        Err(Failure { wall, step, errno }) => {
            report_failure(&Channel::from_descriptor(again), &launch::failed(wall, step, errno));
            1
        }
    }
}

/// Reports to the caller why there is no zygote.
fn report_failure(requests: &Channel, error: &Error) {
    let message = match error {
        Error::Wall { wall, step, source } => {
            let errno = source.raw_os_error().unwrap_or(libc::EIO);
            let failed = FromInit::Failed { wall: *wall, errno, step: step.clone() };
            FromZygote::WallFailed(Box::new(failed))
        }
        error => {
            let cause = std::error::Error::source(error);
            let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
            FromZygote::LaunchFailed(format!("{error}{cause}"))
        }
    };
    // If this fails, the end of the socket reports it.
    let _ = requests.send(&message.encode(), &[]);
}

#[cfg(test)]
mod live_tests;
