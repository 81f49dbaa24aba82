//! The calls about which the filter asks init, in a jail whose init has the listener itself because it
//! follows renames: refused calls fail, and workers make the renames that the kernel cannot.
//!
//! A thread that has made such a call waits for init, and init waits for nothing that a command could
//! delay: the registers are all that it looks at itself.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use super::renames::{Families, Renames, Rights};
use crate::landlock::Ruleset;
use crate::refused_calls::{CallListener, CallsState, REST, RefusedCall};

/// Where something has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallSource {
    /// A call waits.
    Listener,
    /// This worker says something.
    Worker(libc::pid_t),
}

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
        let listener = Some(CallListener::answering_at_once(listener));
        Self { listener, renames, listens_again: None, finishes: false }
    }

    /// What to wait for.
    pub(crate) fn sources(
        &self,
        now: Instant,
    ) -> impl Iterator<Item = (CallSource, BorrowedFd<'_>)> {
        let listens = !self.finishes && self.listens_again.is_none_or(|at| at <= now);
        let listener = self.listener.as_ref().filter(|_| listens);
        let listener = listener.map(|listener| (CallSource::Listener, listener.as_fd()));
        let workers = self.renames.workers();
        listener.into_iter().chain(workers.map(|(process, end)| (CallSource::Worker(process), end)))
    }

    /// When there is something to do without an event.
    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let listens = self.listens_again.filter(|at| *at > now && !self.finishes);
        listens.into_iter().chain(self.renames.next_deadline()).min()
    }

    /// Does what has to be done at a time.
    pub(crate) fn enforce_deadline(&mut self, now: Instant) {
        self.renames.enforce_deadline(now);
    }

    /// Handles an event. `refused` hears of each call that is refused before it fails.
    pub(crate) fn handle(
        &mut self,
        source: CallSource,
        families: Families<'_>,
        refused: impl FnMut(RefusedCall),
    ) {
        let Some(listener) = &self.listener else { return };
        let renames = &mut self.renames;
        match source {
            CallSource::Worker(process) => {
                renames.hear(listener, process);
                if self.finishes {
                    renames.release();
                }
            }
            CallSource::Listener => {
                let followed = |call| renames.follow(listener, families, call);
                self.listens_again = match listener.answer_with(refused, followed) {
                    CallsState::All => None,
                    CallsState::Flood => Some(Instant::now() + REST),
                    CallsState::Over => {
                        self.listener = None;
                        None
                    }
                };
            }
        }
    }

    /// A child of init has ended with this status of `wait(2)`; false if it was no worker.
    pub(crate) fn ended(&mut self, child: libc::pid_t, status: i32) -> bool {
        self.renames.ended(self.listener.as_ref(), child, status)
    }

    /// Whether a child of init is a worker.
    pub(crate) fn has(&self, child: libc::pid_t) -> bool {
        self.renames.has(child)
    }

    /// Nothing is left of what descends from this child of init.
    pub(crate) fn forget_family(&mut self, family: libc::pid_t) {
        self.renames.forget_family(family);
    }

    /// Receives no further call until [`Calls::resume`], so that the renames that are under way end: a
    /// thread whose rename is under way cannot be stopped.
    pub(crate) fn finish(&mut self) {
        self.finishes = true;
        self.renames.release();
    }

    /// Receives calls again.
    pub(crate) const fn resume(&mut self) {
        self.finishes = false;
    }

    /// Whether no worker is left, and none begins.
    pub(crate) fn has_finished(&self) -> bool {
        self.finishes && self.renames.is_empty()
    }
}
