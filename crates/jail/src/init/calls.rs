//! The calls about which the filter asks init, in a jail whose init has the listener itself because it
//! follows renames: refused calls fail, and children of init make the renames that the kernel cannot.
//!
//! A thread that has made such a call waits for init, and init waits for nothing that a command could
//! delay: the registers are all that it looks at itself.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use super::renames::{Families, Renames, Rights};
use crate::landlock::Ruleset;
use crate::refused_calls::{CallListener, CallsState, REST, RefusedCall};

/// The listener, and what it has led to.
#[derive(Debug)]
pub(crate) struct Calls {
    /// Without it the kernel fails the calls.
    listener: Option<CallListener>,
    renames: Renames,
    /// When it is listened to again, after too many calls.
    listens_again: Option<Instant>,
    /// No rename may begin, because the processes are to be stopped.
    finishes: bool,
}

impl Calls {
    /// `rights` and `ruleset` are those of the commands.
    pub(crate) fn new(listener: OwnedFd, rights: Rights, ruleset: Option<Rc<Ruleset>>) -> Self {
        let renames = Renames::new(rights, ruleset);
        let listener = Some(CallListener::new(listener));
        Self { listener, renames, listens_again: None, finishes: false }
    }

    /// The descriptor to wait for, while calls are received.
    pub(crate) fn descriptor(&self, now: Instant) -> Option<BorrowedFd<'_>> {
        let listens = !self.finishes && self.listens_again.is_none_or(|at| at <= now);
        self.listener.as_ref().filter(|_| listens).map(|listener| listener.as_fd())
    }

    /// When calls are received again, after too many.
    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        self.listens_again.filter(|at| *at > now && !self.finishes)
    }

    /// Receives the calls that wait. `refused` hears of each that is refused before it fails.
    pub(crate) fn answer(&mut self, families: Families<'_>, refused: impl FnMut(RefusedCall)) {
        self.listens_again = None;
        let Some(listener) = &self.listener else { return };
        let renames = &mut self.renames;
        match listener.answer_with(refused, |call| renames.follow(listener, families, call)) {
            CallsState::All => {}
            CallsState::Flood => self.listens_again = Some(Instant::now() + REST),
            CallsState::Over => self.listener = None,
        }
    }

    /// A child of init has ended with this status of `wait(2)`; false if it made no rename.
    pub(crate) fn ended(&mut self, child: libc::pid_t, status: i32) -> bool {
        self.renames.ended(self.listener.as_ref(), child, status)
    }

    /// Whether a child of init makes a rename.
    pub(crate) fn has(&self, child: libc::pid_t) -> bool {
        self.renames.has(child)
    }

    /// Nothing is left of what descends from this child of init.
    pub(crate) fn forget_family(&mut self, family: libc::pid_t) {
        self.renames.forget_family(family);
    }

    /// Receives no further call until [`Calls::resume`], so that the renames that are under way end: a
    /// thread whose rename is under way cannot be stopped.
    pub(crate) const fn finish(&mut self) {
        self.finishes = true;
    }

    /// Receives calls again.
    pub(crate) const fn resume(&mut self) {
        self.finishes = false;
    }

    /// Whether every rename has ended, and none begins.
    pub(crate) fn has_finished(&self) -> bool {
        self.finishes && self.renames.is_idle()
    }
}
