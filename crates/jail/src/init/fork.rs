//! The zygote: performs the preparation once, then forks a worker for each request, and reports how
//! each ended. It never runs untrusted input itself: that is done by a worker, which is a copy of
//! it with fewer rights, and whose end affects nothing else.
//!
//! Workers are in the zygote's own namespaces. They are separated from it and from each other by
//! their filter, which allows no call that affects another process, and by their own Landlock
//! domain; they have no file descriptor but their wire, and none of them can trace another
//! (undumpable).

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::channel::Channel;
use crate::landlock::Ruleset;
use crate::rlimits::ResourceLimits;
use crate::spec::{Serve, ZygoteTask};
use crate::sys::{self, ForkResult};
use crate::zygote_messages::{Confinement, FromZygote, ToZygote, WorkerExit};
use crate::{seccomp, zygote_messages};

/// The maximal number of workers; further requests are not followed.
const MAX_WORKERS: usize = 256;
/// The exit code of a worker whose last walls could not be enabled.
const CONFINEMENT_FAILED: i32 = 125;
/// The exit code of a worker that panicked.
const PANICKED: i32 = 101;

/// A zygote whose own walls are all enabled.
#[derive(Debug)]
pub(crate) struct Zygote {
    requests: Channel,
    prepare: fn(OwnedFd) -> Result<Serve, String>,
    stack_bytes: usize,
    limits: ResourceLimits,
    deny_all: Ruleset,
    confinement: Confinement,
}

/// A worker that was not reaped.
struct Worker {
    process: OwnedFd,
    /// Hangs up when the client no longer needs the worker; `None` after that.
    leash: Option<OwnedFd>,
}

impl Zygote {
    /// A zygote for this work, behind enabled walls; the ruleset allows nothing.
    pub(crate) fn new(work: ZygoteTask, nothing: Ruleset, raised: Confinement) -> Self {
        let ZygoteTask { requests, prepare, stack_bytes, worker } = work;
        let requests = Channel::from_descriptor(requests);
        Self {
            requests,
            prepare,
            stack_bytes,
            limits: worker,
            deny_all: nothing,
            confinement: raised,
        }
    }

    /// Serves until no client can send a request any more; returns the exit code.
    pub(crate) fn run(self) -> i32 {
        // A stack with the requested size, on which workers continue.
        let thread = std::thread::Builder::new().stack_size(self.stack_bytes);
        match thread.spawn(move || self.serve()).map(std::thread::JoinHandle::join) {
            Ok(Ok(code)) => code,
            Ok(Err(_)) | Err(_) => 1,
        }
    }

    fn serve(self) -> i32 {
        let serve = match self.prepare() {
            Ok(serve) => serve,
            Err(why) => {
                // If this fails, the end of the socket reports it.
                let _ = self.requests.send(&FromZygote::PrepareFailed(why).encode(), &[]);
                return 1;
            }
        };
        if self.requests.send(&FromZygote::Ready(self.confinement).encode(), &[]).is_err() {
            return 1;
        }
        let mut workers: Vec<Worker> = Vec::new();
        loop {
            match wait(&self.requests, &mut workers) {
                Ok(false) => {}
                Ok(true) => match self.requests.receive() {
                    Ok(Some((bytes, descriptors))) => {
                        if ToZygote::decode(&bytes) == Some(ToZygote::Fork)
                            && let Ok([wire, leash]) = <[OwnedFd; 2]>::try_from(descriptors)
                            && workers.len() < MAX_WORKERS
                        {
                            workers.extend(self.fork(wire, leash, &serve));
                        }
                    }
                    // The client has disconnected. Where this is pid 1, the kernel ends the
                    // workers.
                    Ok(None) | Err(_) => return end(&workers),
                },
                Err(_) => return end(&workers),
            }
        }
    }

    fn prepare(&self) -> Result<Serve, String> {
        let message = self.requests.receive().map_err(|error| error.to_string())?;
        let (bytes, descriptors) = message.ok_or("no preparation was requested")?;
        let input = descriptors.into_iter().next();
        match (ToZygote::decode(&bytes), input) {
            (Some(ToZygote::Prepare), Some(input)) => (self.prepare)(input),
            _ => Err("the preparation request is invalid".to_owned()),
        }
    }

    /// Forks a worker. If that fails, the leash is dropped, which reports it.
    fn fork(&self, wire: OwnedFd, leash: OwnedFd, serve: &Serve) -> Option<Worker> {
        // SAFETY: the only other thread waits for this one to end, and holds no lock.
        match unsafe { sys::fork() } {
            Ok(ForkResult::Child) => {
                let work = || match confine(&wire, &self.limits, &self.deny_all) {
                    Ok(()) => serve(wire).into(),
                    Err(_) => CONFINEMENT_FAILED,
                };
                sys::exit_now(catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED))
            }
            Ok(ForkResult::Parent(_, process)) => Some(Worker { process, leash: Some(leash) }),
            Err(_) => None,
        }
    }
}

/// Enables a worker's own walls, in the worker.
fn confine(wire: &OwnedFd, limits: &ResourceLimits, nothing: &Ruleset) -> io::Result<()> {
    let ruleset: RawFd = nothing.as_fd().as_raw_fd();
    sys::close_all_but(vec![wire.as_raw_fd(), ruleset])?;
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL.cast_unsigned().into())?;
    sys::prctl(libc::PR_SET_DUMPABLE, 0)?;
    limits.apply()?;
    nothing.restrict()?;
    sys::close_all_but(vec![wire.as_raw_fd()])?;
    seccomp::install(seccomp::worker_program())
}

/// Waits for events: kills workers whose leash was hung up, and reaps those that have ended.
/// Returns whether there is a request.
fn wait(requests: &Channel, workers: &mut Vec<Worker>) -> rustix::io::Result<bool> {
    let mut waiting = vec![PollFd::new(requests, PollFlags::IN)];
    for worker in workers.iter() {
        waiting.push(PollFd::new(&worker.process, PollFlags::IN));
        waiting.extend(worker.leash.as_ref().map(|leash| PollFd::new(leash, PollFlags::IN)));
    }
    match poll(&mut waiting, None) {
        Err(rustix::io::Errno::INTR) => return Ok(false),
        other => other?,
    };
    let happened: Vec<bool> = waiting.iter().map(|one| !one.revents().is_empty()).collect();
    drop(waiting);
    let mut events = happened.iter().copied();
    let is_asked = events.next().unwrap_or_default();
    workers.retain_mut(|worker| {
        let has_ended = events.next().unwrap_or_default();
        let is_unwanted = worker.leash.is_some() && events.next().unwrap_or_default();
        if has_ended && let Some(ended) = reap(worker) {
            if let Some(leash) = &worker.leash {
                let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
                // If the other end is closed, no one needs this message.
                let _ = rustix::net::send(leash, &zygote_messages::encode_exit(ended), flags);
            }
            return false;
        }
        if is_unwanted {
            // It may be exiting by itself. Its end is reported when it has ended.
            let _ = pidfd_send_signal(&worker.process, Signal::KILL);
            worker.leash = None;
        }
        true
    });
    Ok(is_asked)
}

/// Reaps a worker that has ended.
fn reap(worker: &Worker) -> Option<WorkerExit> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match waitid(WaitId::PidFd(worker.process.as_fd()), options) {
        Ok(None) | Err(rustix::io::Errno::INTR) => None,
        Ok(Some(status)) => Some(match status.terminating_signal() {
            Some(signal) => WorkerExit::Signaled(byte(signal)),
            None => WorkerExit::Exited(status.exit_status().map_or(u8::MAX, byte)),
        }),
        // No other code reaps it; a process that cannot be waited for no longer exists.
        Err(_) => Some(WorkerExit::Signaled(0)),
    }
}

/// Ends every worker; returns the zygote's exit code.
fn end(workers: &[Worker]) -> i32 {
    for worker in workers {
        let _ = pidfd_send_signal(&worker.process, Signal::KILL);
    }
    for worker in workers {
        let options = WaitIdOptions::EXITED;
        while let Err(rustix::io::Errno::INTR) =
            waitid(WaitId::PidFd(worker.process.as_fd()), options)
        {}
    }
    0
}
