//! The init of one command: reaps processes, forwards signals, and ends everything once the command
//! has ended.
//!
//! It shares the supervisor's memory image, so it is undumpable and its arguments are erased; it
//! has no capability, and no file descriptor but its socket, the locks that must be held as long
//! as the jail lives, and the listener of a jail whose renames it follows.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::calls::{CallSource, Calls};
use super::renames::Families;
use crate::channel::{Channel, FromInit, ToInit};
use crate::refused_calls::RefusedCalls;
use crate::sys::{self, WaitOutcome};

/// Stays until the command has ended and nothing else is alive; returns the exit code of init.
pub(crate) fn run(channel: &Channel, command: libc::pid_t, mut calls: Option<Calls>) -> i32 {
    let Ok(children) = sys::signal_descriptor(&[libc::SIGCHLD]) else { return 1 };
    let mut reported = RefusedCalls::default();
    let status = loop {
        let other_ended =
            |child, status| _ = calls.as_mut().map(|calls| calls.ended(child, status));
        if let Some(status) = reap_until(command, other_ended) {
            break status;
        }
        let Some((child, word, sources)) = wait(&children, channel, calls.as_ref()) else {
            continue;
        };
        if child {
            let _ = sys::next_signal(children.as_fd());
        }
        if let Some(calls) = &mut calls {
            for source in sources {
                calls.handle(source, Families::One, |call| {
                    if reported.insert(call) {
                        // If this fails, there is no supervisor, and init ends.
                        let report = FromInit::RefusedCall { number: call.number };
                        let _ = channel.send(&report.encode(), &[]);
                    }
                });
            }
            calls.enforce_deadline(Instant::now());
        }
        if word && !handle_message(channel, command) {
            return 1;
        }
    };
    // Init is pid 1, so -1 means every other process here.
    let _ = sys::kill(-1, libc::SIGKILL);
    while let Ok(WaitOutcome::Child(..)) = sys::reap(true) {}
    let _ = channel.send(&FromInit::Ended { status }.encode(), &[]);
    0
}

/// Waits until a child has ended, the supervisor has sent a message, or something has happened to the calls;
/// returns which of them. `None` if something else has interrupted it.
fn wait(
    children: &OwnedFd,
    channel: &Channel,
    calls: Option<&Calls>,
) -> Option<(bool, bool, Vec<CallSource>)> {
    let now = Instant::now();
    let deadline = calls.and_then(|calls| calls.next_deadline(now));
    let left = deadline.map(|at| at.saturating_duration_since(now));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    let (sources, ends): (Vec<_>, Vec<_>) =
        calls.into_iter().flat_map(|calls| calls.sources(now)).unzip();
    let own = [children.as_fd(), channel.as_fd()].into_iter().chain(ends);
    let mut waiting: Vec<_> = own.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN)).collect();
    poll(&mut waiting, timeout.as_ref()).ok()?;
    let seen: Vec<_> = waiting.iter().map(|waited| !waited.revents().is_empty()).collect();
    let &[child, word, ref calls @ ..] = &*seen else { return None };
    let sources =
        sources.into_iter().zip(calls).filter_map(|(source, seen)| seen.then_some(source));
    Some((child, word, sources.collect()))
}

/// Reaps processes that have ended; returns the command's status, once it is among them.
fn reap_until(command: libc::pid_t, mut other_ended: impl FnMut(libc::pid_t, i32)) -> Option<i32> {
    while let Ok(WaitOutcome::Child(pid, status)) = sys::reap(false) {
        if pid == command {
            return Some(status);
        }
        other_ended(pid, status);
    }
    None
}

/// Sends a signal to the command's own process group, or to the command alone before it has one.
fn send(signal: i32, command: libc::pid_t) {
    if sys::kill(-command, signal).is_err() {
        let _ = sys::kill(command, signal);
    }
}

/// Handles a message of the supervisor; false once there is no supervisor.
fn handle_message(channel: &Channel, command: libc::pid_t) -> bool {
    let Ok(Some((bytes, _))) = channel.receive() else { return false };
    if let Some(ToInit::Signal(signal)) = ToInit::decode(&bytes) {
        send(signal, command);
    }
    true
}
