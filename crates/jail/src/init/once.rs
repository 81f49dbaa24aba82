//! The init of one command: reaps processes, forwards signals, and ends everything once the command
//! has ended.
//!
//! It shares the supervisor's memory image, so it is undumpable and its arguments are erased; it
//! has no capability, and no file descriptor but its socket and the locks that must be held as long
//! as the jail lives.

use std::os::fd::AsFd as _;

use rustix::event::{PollFd, PollFlags, poll};

use super::renames::Renames;
use crate::channel::{Channel, FromInit, ToInit};
use crate::sys::{self, WaitOutcome};

/// Stays until the command has ended and nothing else is alive; returns the exit code of init.
pub(crate) fn run(channel: &Channel, command: libc::pid_t, mut renames: Renames) -> i32 {
    let Ok(children) = sys::signal_descriptor(&[libc::SIGCHLD]) else { return 1 };
    let status = loop {
        match reap_until(command, |child, status| renames.ended(channel, child, status)) {
            Some(status) => break status,
            None => {
                let mut waiting =
                    [PollFd::new(&children, PollFlags::IN), PollFd::new(channel, PollFlags::IN)];
                if poll(&mut waiting, None).is_err() {
                    continue;
                }
                let (child, word) = (waiting[0].revents(), waiting[1].revents());
                if !child.is_empty() {
                    let _ = sys::next_signal(children.as_fd());
                }
                if !word.is_empty() && !handle_request(channel, command, &mut renames) {
                    return 1;
                }
            }
        }
    };
    // Init is pid 1, so -1 means every other process here.
    let _ = sys::kill(-1, libc::SIGKILL);
    while let Ok(WaitOutcome::Child(..)) = sys::reap(true) {}
    let _ = channel.send(&FromInit::Ended { status }.encode(), &[]);
    0
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
fn handle_request(channel: &Channel, command: libc::pid_t, renames: &mut Renames) -> bool {
    let Ok(Some((bytes, descriptors))) = channel.receive() else { return false };
    match ToInit::decode(&bytes) {
        Some(ToInit::Signal(signal)) => send(signal, command),
        Some(ToInit::Rename(rename)) => renames.start(channel, &rename, &descriptors),
        _ => {}
    }
    true
}
