//! Subreapers that have no command: one waits for the next a little while, for it costs less to
//! wake a process than to make one and to take leave of it.

use std::time::{Duration, Instant};

use super::subreaper::Subreaper;

/// How long one waits for another command: a jail where nothing happens has its init alone.
const WAITING: Duration = Duration::from_secs(1);

/// Those of one init.
#[derive(Debug, Default)]
pub(super) struct Spare {
    /// One that waits, and until when.
    waiting: Option<(Subreaper, Instant)>,
    /// Those that are on their way out.
    leaving: Vec<Subreaper>,
}

impl Spare {
    /// The one that waits.
    pub(super) fn take(&mut self) -> Option<Subreaper> {
        self.waiting.take().map(|(subreaper, _)| subreaper)
    }

    /// Takes in one whose command is gone.
    pub(super) fn add(&mut self, subreaper: Subreaper, now: Instant) {
        if self.waiting.is_none() {
            self.waiting = Some((subreaper, now + WAITING));
        } else {
            self.let_go(subreaper);
        }
    }

    /// When there is something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.as_ref().map(|(_, until)| *until)
    }

    /// Lets go of who has waited long enough.
    pub(super) fn keep_deadline(&mut self, now: Instant) {
        if self.next_deadline().is_some_and(|until| until <= now) {
            self.let_all_go();
        }
    }

    /// Lets go of who waits.
    pub(super) fn let_all_go(&mut self) {
        self.take().into_iter().for_each(|subreaper| self.let_go(subreaper));
    }

    /// Lets go of one whose command is gone.
    pub(super) fn let_go(&mut self, subreaper: Subreaper) {
        subreaper.leave();
        self.leaving.push(subreaper);
    }

    /// Whether this process is one of them.
    pub(super) fn has(&self, process: i32) -> bool {
        let waiting = self.waiting.iter().map(|(subreaper, _)| subreaper);
        waiting.chain(&self.leaving).any(|subreaper| subreaper.is(process))
    }

    /// Notes that a process was reaped.
    pub(super) fn ended(&mut self, process: i32) {
        self.waiting.take_if(|(subreaper, _)| subreaper.is(process));
        self.leaving.retain(|subreaper| !subreaper.is(process));
    }
}
