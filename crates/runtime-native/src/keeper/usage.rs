//! Measuring what a sandbox uses, for limits that no control group enforces. A sandbox that uses
//! too much loses its commands, not its files.
//!
//! A sandbox that takes too much on disk can be cleaned up: its commands are still started, each
//! after a measurement of the disk, and are measured more often. They may take no more than was
//! taken already. After [`MAX_OVERRUNS`] failed cleanups no more commands are started until files are
//! removed from outside. So the sandbox grows no further, however many commands there are.

use std::time::Duration;

use stockade_core::sandbox::LimitName;
use stockade_jail::control::Request;

use super::boot_time::BootTime;
use super::command::Stage;
use super::context::Context;
use super::excess::{Excess, MAX_OVERRUNS};
use super::helpers::Outcome;
use super::sandbox::{Lifecycle, Sandbox};
use super::timers::Timer;
use crate::wire::Failure;
use stockade_runtime::Ending;

/// How long until memory is watched again after a sandbox has exceeded its limit.
pub(super) const MEMORY_INTERVAL: Duration = Duration::from_millis(100);
/// The shortest interval between measurements of the disk.
pub(super) const DISK_INTERVAL: Duration = Duration::from_millis(250);
/// The interval while the sandbox exceeds its disk limit.
const EXCESS_INTERVAL: Duration = Duration::from_millis(20);

/// The command to name in remedies for limits: the keeper runs in the control group that it was
/// started in. A running keeper exits a minute after its last sandbox.
pub(crate) const STARTER: &str = "stockade serve";

impl Sandbox {
    /// Starts measurements, if any limit is watched.
    pub(super) fn watch_usage(&self, context: &mut Context) {
        if self.watched.memory_bytes.is_some() {
            context.timers.at(BootTime::now(), Timer::Memory(self.key));
        }
        if self.watched.disk_bytes.is_some() {
            context.timers.after(DISK_INTERVAL, Timer::Disk(self.key));
        }
    }

    /// Whether its processes can increase their use.
    pub(super) fn is_active(&self) -> bool {
        let stopped = matches!(&self.life, Lifecycle::Running(jail) if !jail.pause.is_running());
        !stopped && self.commands.values().any(super::command::Command::is_alive)
    }

    /// Whether a command waits for a measurement of its disk.
    pub(super) fn is_waited_for(&self) -> bool {
        self.excess.is_some() && !self.deferred.is_empty()
    }

    /// Records a measurement of its disk, and starts the commands that waited for it.
    pub(super) fn disk_measured(
        &mut self,
        context: &mut Context,
        outcome: Outcome,
        taken_bytes: Option<u64>,
    ) {
        self.measuring = false;
        match outcome {
            Outcome::Done => self.excess = None,
            Outcome::TooMuch => {
                let is_active = self.is_active();
                let new = Excess { ceiling_bytes: None, overruns_left: MAX_OVERRUNS - 1 };
                if self.excess.get_or_insert(new).update(taken_bytes, is_active) {
                    self.used_too_much(context, LimitName::Disk);
                }
            }
            Outcome::Failed | Outcome::Killed => {}
        }
        self.start_measured(context, outcome);
        let is_close = self.excess.is_some() && self.is_active();
        let interval = if is_close { EXCESS_INTERVAL } else { DISK_INTERVAL };
        context.timers.after(interval, Timer::Disk(self.key));
    }

    fn start_measured(&mut self, context: &mut Context, outcome: Outcome) {
        let is_refused = match self.excess {
            None => false,
            Some(_) if outcome == Outcome::Failed => true,
            Some(Excess { overruns_left: 0, .. }) => true,
            // The next measurement decides.
            Some(Excess { ceiling_bytes: None, .. }) => return,
            Some(_) => false,
        };
        self.is_admitting = true;
        for deferred in std::mem::take(&mut self.deferred) {
            if is_refused {
                context.refuse(deferred.client, self.excessive());
            } else {
                self.execute(context, deferred);
            }
        }
        self.is_admitting = false;
    }

    fn excessive(&self) -> Failure {
        Failure::Exceeded {
            limit: LimitName::Disk,
            reason: format!(
                "its files use more than the limit of {} bytes, and its commands continued to write",
                self.watched.disk_bytes.unwrap_or(0)
            ),
            remedy: "remove files with `stockade rm`, or terminate it with `stockade kill`"
                .to_owned(),
        }
    }

    /// Kills every command of it.
    pub(super) fn used_too_much(&mut self, context: &mut Context, limit: LimitName) {
        let alive = self.commands.values_mut().filter(|command| command.is_alive());
        let numbers: Vec<_> = alive
            .map(|command| {
                if !matches!(command.stage, Stage::Ended(_)) {
                    let ending = Ending::LimitExceeded(limit.as_str().to_owned());
                    command.force_ending(std::os::fd::AsFd::as_fd(&self.dir), ending);
                }
                command.number
            })
            .collect();
        for number in numbers {
            self.send(context, Request::Kill { number }, Vec::new());
        }
    }
}
