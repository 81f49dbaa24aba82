//! The zygote: prepares something once, then forks a worker for each request, and tells how each
//! ended. It never runs what it is not sure of: that is a worker's, which is a copy of it with fewer
//! rights, and whose end costs nothing else.
//!
//! Workers are in the zygote's own namespaces. What keeps them from it and from each other is their
//! filter, which has no call for it, and their own Landlock domain; they have no descriptor but
//! their wire, and none of them can look into another (undumpable).

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::channel::Channel;
use crate::landlock::Ruleset;
use crate::rlimits::ResourceLimits;
use crate::sys::{self, Side};
use crate::zygote::{ENDED_BYTES, FromZygote, Raised, Serve, ToZygote, Work, WorkerEnded};
use crate::{seccomp, zygote};

/// More workers than this are not forked, whatever is asked for.
const MAX_WORKERS: usize = 256;
/// The exit code of a worker whose last walls could not be raised.
const NO_WALLS: i32 = 125;
/// That of one that panicked.
const PANICKED: i32 = 101;

/// A zygote that has all its own walls.
#[derive(Debug)]
pub(crate) struct Zygote {
    requests: Channel,
    prepare: fn(OwnedFd) -> Result<Serve, String>,
    stack_bytes: usize,
    limits: ResourceLimits,
    nothing: Ruleset,
    raised: Raised,
}

/// A worker that was not reaped.
struct Worker {
    process: OwnedFd,
    /// Whoever has the other end wants the worker to live.
    leash: OwnedFd,
}

impl Zygote {
    /// What does this work, behind walls that stand; the ruleset allows nothing, to nobody.
    pub(crate) fn new(work: Work, nothing: Ruleset, raised: Raised) -> Self {
        let Work { requests, prepare, stack_bytes, worker } = work;
        let requests = Channel::of_descriptor(requests);
        Self { requests, prepare, stack_bytes, limits: worker, nothing, raised }
    }

    /// Serves until nobody can ask any more; the exit code.
    pub(crate) fn run(self) -> i32 {
        // A stack of its own size, which workers go on with.
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
                // Without it, the end of the socket is told.
                let _ = self.requests.send(&FromZygote::Unprepared(why).encode(), &[]);
                return 1;
            }
        };
        if self.requests.send(&FromZygote::Ready(self.raised).encode(), &[]).is_err() {
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
                    // Nobody asks any more. Where this is pid 1, the kernel ends the workers.
                    Ok(None) | Err(_) => return end(&workers),
                },
                Err(_) => return end(&workers),
            }
        }
    }

    fn prepare(&self) -> Result<Serve, String> {
        let told = self.requests.receive().map_err(|error| error.to_string())?;
        let (bytes, descriptors) = told.ok_or("nobody said what to prepare")?;
        let input = descriptors.into_iter().next();
        match (ToZygote::decode(&bytes), input) {
            (Some(ToZygote::Prepare), Some(input)) => (self.prepare)(input),
            _ => Err("what to prepare was not understood".to_owned()),
        }
    }

    /// Forks a worker. Without one, the leash is dropped, which tells.
    fn fork(&self, wire: OwnedFd, leash: OwnedFd, serve: &Serve) -> Option<Worker> {
        // SAFETY: the only other thread waits for this one to end, and holds no lock.
        match unsafe { sys::fork() } {
            Ok(Side::Child) => {
                let work = || match confine(&wire, &self.limits, &self.nothing) {
                    Ok(()) => serve(wire).into(),
                    Err(_) => NO_WALLS,
                };
                sys::exit_now(catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED))
            }
            Ok(Side::Parent(_, process)) => Some(Worker { process, leash }),
            Err(_) => None,
        }
    }
}

/// Raises a worker's own walls, in the worker.
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

/// Waits for a request, whether there is one, and meanwhile kills the workers that nobody wants any
/// more and reaps those that have ended.
fn wait(requests: &Channel, workers: &mut Vec<Worker>) -> rustix::io::Result<bool> {
    let mut waiting = vec![PollFd::new(requests, PollFlags::IN)];
    for worker in workers.iter() {
        waiting.push(PollFd::new(&worker.process, PollFlags::IN));
        waiting.push(PollFd::new(&worker.leash, PollFlags::IN));
    }
    match poll(&mut waiting, None) {
        Err(rustix::io::Errno::INTR) => return Ok(false),
        other => other?,
    };
    let happened: Vec<bool> = waiting.iter().map(|one| !one.revents().is_empty()).collect();
    drop(waiting);
    let mut events = happened.iter().skip(1);
    workers.retain(|worker| {
        let ended = events.next() == Some(&true);
        let unwanted = events.next() == Some(&true);
        if unwanted && !ended {
            // It may be ending by itself.
            let _ = pidfd_send_signal(&worker.process, Signal::KILL);
        }
        let ended = if unwanted || ended { reap(worker, unwanted) } else { None };
        if let Some(ended) = ended {
            // Whoever dropped the leash does not care.
            let _ = rustix::net::send(
                &worker.leash,
                &zygote::encode_ended(ended),
                rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT,
            );
            return false;
        }
        true
    });
    Ok(happened.first() == Some(&true))
}

/// Reaps a worker, waiting for the end of one that was killed.
fn reap(worker: &Worker, wait: bool) -> Option<WorkerEnded> {
    let mut options = WaitIdOptions::EXITED;
    options.set(WaitIdOptions::NOHANG, !wait);
    let status = loop {
        match waitid(WaitId::PidFd(worker.process.as_fd()), options) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other,
        }
    };
    let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match status {
        Ok(None) => None,
        Ok(Some(status)) => Some(match status.terminating_signal() {
            Some(signal) => WorkerEnded::Signaled(byte(signal)),
            None => WorkerEnded::Exited(status.exit_status().map_or(u8::MAX, byte)),
        }),
        // Reaped by nobody else; what cannot be waited for is gone.
        Err(_) => Some(WorkerEnded::Signaled(0)),
    }
}

/// Ends every worker; the zygote's exit code.
fn end(workers: &[Worker]) -> i32 {
    for worker in workers {
        let _ = pidfd_send_signal(&worker.process, Signal::KILL);
    }
    for worker in workers {
        reap(worker, true);
    }
    0
}

const _: () = assert!(ENDED_BYTES == 2);
