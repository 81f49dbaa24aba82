//! Subreapers without a command: one stays idle for the next command for a short time, because
//! waking a process costs less than creating and ending one.

use std::time::{Duration, Instant};

use super::subreaper::Subreaper;

/// How long a subreaper stays idle: in a jail without activity, init is alone.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// The subreapers of one init that have no command.
#[derive(Debug, Default)]
pub(super) struct IdleSubreaper {
    /// An idle subreaper, and when it must exit.
    waiting: Option<(Subreaper, Instant)>,
    /// Those that are exiting.
    leaving: Vec<Subreaper>,
}

impl IdleSubreaper {
    /// The idle subreaper, if any.
    pub(super) fn take(&mut self) -> Option<Subreaper> {
        self.waiting.take().map(|(subreaper, _)| subreaper)
    }

    /// Takes a subreaper whose command has ended.
    pub(super) fn add(&mut self, subreaper: Subreaper, now: Instant) {
        if self.waiting.is_none() {
            self.waiting = Some((subreaper, now + IDLE_TIMEOUT));
        } else {
            self.release(subreaper);
        }
    }

    /// The time of the next deadline, if any.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.as_ref().map(|(_, until)| *until)
    }

    /// Makes the idle subreaper exit once its time is over.
    pub(super) fn enforce_deadline(&mut self, now: Instant) {
        if self.next_deadline().is_some_and(|until| until <= now) {
            self.release_all();
        }
    }

    /// Makes the idle subreaper exit.
    pub(super) fn release_all(&mut self) {
        self.take().into_iter().for_each(|subreaper| self.release(subreaper));
    }

    /// Makes a subreaper exit whose command has ended.
    pub(super) fn release(&mut self, subreaper: Subreaper) {
        subreaper.exit();
        self.leaving.push(subreaper);
    }

    /// Whether this process is one of them.
    pub(super) fn has(&self, process: i32) -> bool {
        let waiting = self.waiting.iter().map(|(subreaper, _)| subreaper);
        waiting.chain(&self.leaving).any(|subreaper| subreaper.is(process))
    }

    /// Records that a process was reaped.
    pub(super) fn note_reaped(&mut self, process: i32) {
        self.waiting.take_if(|(subreaper, _)| subreaper.is(process));
        self.leaving.retain(|subreaper| !subreaper.is(process));
    }
}
