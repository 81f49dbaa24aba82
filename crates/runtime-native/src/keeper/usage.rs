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

/// How often the commands of a sandbox may take too much on disk before none is started.
pub(super) const MAX_OVERRUNS: u32 = 4;
/// What a command that frees space may take, such as for a log or a directory.
const SLACK_BYTES: u64 = 1 << 20;

/// The state of a sandbox that exceeds its disk limit, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Excess {
    /// What it may take until it is below its limit again; none until it was measured while no
    /// command ran.
    ceiling_bytes: Option<u64>,
    /// How often its commands may still exceed it.
    overruns_left: u32,
}

impl Excess {
    /// The state of a sandbox of which an earlier keeper may have known more.
    pub(super) const fn unknown() -> Self {
        Self { ceiling_bytes: None, overruns_left: MAX_OVERRUNS }
    }

    /// Handles a measurement of the disk; `None` for an unknown size. Returns whether the sandbox's
    /// commands are to be killed.
    fn update(&mut self, taken_bytes: Option<u64>, is_active: bool) -> bool {
        let Some(ceiling) = self.ceiling_bytes else {
            if !is_active {
                self.ceiling_bytes = Some(taken_bytes.map_or(0, with_slack));
            }
            // Killed processes may not have ended yet.
            return is_active;
        };
        if is_active && taken_bytes.is_none_or(|taken| taken > ceiling) {
            self.ceiling_bytes = None;
            self.overruns_left = self.overruns_left.saturating_sub(1);
            return true;
        }
        // Space that was freed is not granted again.
        self.ceiling_bytes = Some(taken_bytes.map_or(ceiling, with_slack).min(ceiling));
        false
    }
}

const fn with_slack(bytes: u64) -> u64 {
    bytes.saturating_add(SLACK_BYTES)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_over_its_limit_may_shrink_and_not_grow() {
        let mut excess = Excess::unknown();
        // Processes that are being killed may run a moment longer.
        assert!(excess.update(Some(30 * MIB), true) && excess.update(Some(40 * MIB), true));
        assert!(!excess.update(Some(41 * MIB), false));
        assert!(!excess.update(Some(41 * MIB + SLACK_BYTES), true));
        assert!(!excess.update(Some(20 * MIB), true));
        assert_eq!(excess.overruns_left, MAX_OVERRUNS);
        // Space that was freed is not granted again.
        assert!(excess.update(Some(22 * MIB), true));
        assert_eq!(excess.overruns_left, MAX_OVERRUNS - 1);
    }

    #[test]
    fn what_cannot_be_told_is_growth() {
        let mut excess = Excess::unknown();
        for left in (0..MAX_OVERRUNS).rev() {
            assert!(!excess.update(None, false));
            assert!(excess.update(None, true));
            assert_eq!(excess.overruns_left, left);
        }
        assert!(!excess.update(None, false));
        assert!(excess.update(Some(1), true) && excess.overruns_left == 0);
    }
}
