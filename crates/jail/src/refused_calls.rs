//! Hears which system calls a jail's processes make that the filter refuses, and fails them.
//!
//! ```text
//!   process inside ── a refused call ──► kernel ── its number ──► supervisor
//!                  ◄── the errno ─────── kernel ◄── the errno ───
//! ```
//!
//! To a call that is refused the supervisor only ever answers with an error, and the errno depends
//! on nothing but the registers that the kernel has copied. So nothing that a process changes meanwhile
//! matters. The filter may also ask about calls that it allows ([`FollowedCall`]), in jails whose init has
//! the listener itself (`init::calls`): only these can continue. Where no process holds the listener any more,
//! the kernel fails all of them with `ENOSYS`.

#[cfg(test)]
mod live_tests;
mod notification;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::notification::Notification;
use crate::seccomp;

/// How many calls are answered in one turn.
const BATCH: usize = 64;
/// How long the supervisor leaves the calls unanswered after a turn with that many: a jail that makes
/// nothing but refused calls takes little of the time of its supervisor, which is outside of the
/// jail's limits.
pub const REST: Duration = Duration::from_millis(5);
/// No number of a system call that is reported is as high as this one.
const NUMBERS: usize = 512;
/// How many bits a word has.
const WORD: usize = 64;
/// How many words a set of calls has.
pub(crate) const WORDS: usize = NUMBERS / WORD;

/// The listener for the refused calls of one jail.
#[derive(Debug)]
pub struct CallListener(OwnedFd);

/// A call that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedCall {
    /// The process that made it, by its id in this process's namespace; 0 if it is not in it.
    pub process: i32,
    /// The number of the call.
    pub number: u32,
}

/// What a turn has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallsState {
    /// Nothing more waits.
    All,
    /// More may wait: continue after [`REST`].
    Flood,
    /// No process is left that could make such a call.
    Over,
}

impl CallListener {
    /// The listener of a jail, as its init has sent it.
    pub(crate) const fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// As [`CallListener::new`], for a receiver that answers at once.
    pub(crate) fn answering_at_once(descriptor: OwnedFd) -> Self {
        notification::wake_on_same_processor(&descriptor);
        Self(descriptor)
    }

    /// Answers a bounded number of the calls that wait, and never blocks. Each answer is the errno
    /// of the filter, and `refused` hears of the call before. Calls that are allowed continue.
    pub fn answer(&self, refused: impl FnMut(RefusedCall)) -> CallsState {
        self.answer_with(refused, |call| self.proceed(&call))
    }

    /// As [`CallListener::answer`], but `followed` gets each call that is allowed, to answer it now or
    /// later.
    pub(crate) fn answer_with(
        &self,
        mut refused: impl FnMut(RefusedCall),
        mut followed: impl FnMut(FollowedCall),
    ) -> CallsState {
        for _ in 0..BATCH {
            match self.is_readable() {
                Ok(Some(true)) => {}
                Ok(Some(false)) => return CallsState::All,
                Ok(None) | Err(_) => return CallsState::Over,
            }
            match self.answer_next(&mut refused, &mut followed) {
                Ok(()) => {}
                // The process was killed or interrupted meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return CallsState::Over,
            }
        }
        CallsState::Flood
    }

    fn answer_next(
        &self,
        refused: &mut impl FnMut(RefusedCall),
        followed: &mut impl FnMut(FollowedCall),
    ) -> io::Result<()> {
        let notification = Notification::receive(&self.0)?;
        if seccomp::is_followed(notification.call.number) {
            followed(FollowedCall(notification));
            return Ok(());
        }
        refused(RefusedCall { process: notification.thread, number: notification.call.number });
        notification.answer(&self.0, seccomp::errno(&notification.call))
    }

    /// Lets the kernel make a followed call.
    pub(crate) fn proceed(&self, call: &FollowedCall) {
        // The process may have been killed meanwhile.
        let _ = call.0.proceed(&self.0);
    }

    /// Answers a followed call: it fails with an errno, or has been done where that is 0.
    pub(crate) fn complete(&self, call: &FollowedCall, errno: i32) {
        // As above.
        let _ = call.0.answer(&self.0, errno);
    }

    /// Whether the thread of the followed call with this id still waits, see [`notification::is_waiting`].
    pub(crate) fn is_waiting(&self, id: u64) -> bool {
        notification::is_waiting(&self.0, id)
    }

    /// Whether a call waits; `None` once there will be none any more. Receiving blocks when none
    /// waits, so it must be known before.
    fn is_readable(&self) -> io::Result<Option<bool>> {
        let mut waiting = [PollFd::new(&self.0, PollFlags::IN)];
        loop {
            match poll(&mut waiting, Some(&Timespec::default())) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let seen = waiting[0].revents();
        if seen.contains(PollFlags::IN) {
            return Ok(Some(true));
        }
        let is_over = seen.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
        Ok((!is_over).then_some(false))
    }
}

impl AsFd for CallListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A call that the filter allows, about which it has asked. Its thread waits for an answer.
#[derive(Debug)]
pub(crate) struct FollowedCall(Notification);

impl FollowedCall {
    /// By which the listener knows it.
    pub(crate) const fn id(&self) -> u64 {
        self.0.id
    }

    /// The thread that has made it, by its id in this process's namespace; 0 if it is not in it.
    pub(crate) const fn thread(&self) -> i32 {
        self.0.thread
    }

    /// The number of the call.
    pub(crate) const fn number(&self) -> u32 {
        self.0.call.number
    }

    /// Its arguments.
    pub(crate) const fn arguments(&self) -> [u64; 6] {
        self.0.call.arguments
    }
}

/// A set of refused calls. Its size does not depend on how many calls there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RefusedCalls([u64; WORDS]);

impl RefusedCalls {
    /// Adds a call; false if it was in the set already, or has no place in it.
    pub fn insert(&mut self, call: RefusedCall) -> bool {
        let number = call.number as usize;
        let Some(word) = self.0.get_mut(number / WORD) else { return false };
        let bit = 1 << (number % WORD);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Whether a call is in the set.
    pub fn contains(&self, call: RefusedCall) -> bool {
        let number = call.number as usize;
        self.0.get(number / WORD).is_some_and(|word| word & 1 << (number % WORD) != 0)
    }

    /// Adds the calls of another set; false if all of them were in this one already.
    pub fn add(&mut self, other: Self) -> bool {
        let before = *self;
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
        *self != before
    }

    /// Whether no call is in the set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The set in a message.
    pub(crate) fn to_words(self) -> [u64; WORDS] {
        self.0
    }

    /// The set that a message contains.
    pub(crate) const fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// The names of the calls, in the order of their numbers.
    pub fn names(&self) -> Vec<&'static str> {
        let contains = |number: &u32| self.contains(RefusedCall { process: 0, number: *number });
        (0..).take(NUMBERS).filter(contains).filter_map(seccomp::name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn call(number: u32) -> RefusedCall {
        RefusedCall { process: 7, number }
    }

    #[test]
    fn the_set_has_each_call_once_and_only_calls_with_a_name() {
        let mut calls = RefusedCalls::default();
        assert!(calls.names().is_empty());
        for number in [250, 165, 250, 0, 400, 511, 512, u32::MAX] {
            calls.insert(call(number));
        }
        assert!(!calls.insert(call(250)) && !calls.insert(call(512)));
        assert!(calls.contains(call(250)) && !calls.contains(call(251)));
        assert_eq!(calls.names(), ["read", "mount", "keyctl"]);
    }

    #[test]
    fn a_set_is_added_to_another_once() {
        let (mut all, mut more) = (RefusedCalls::default(), RefusedCalls::default());
        assert!(all.is_empty() && !all.add(more));
        more.insert(call(250));
        assert!(all.add(more) && !all.add(more) && !all.is_empty());
        assert_eq!(RefusedCalls::from_words(all.to_words()).names(), ["keyctl"]);
    }
}
