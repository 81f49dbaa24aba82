//! Looking at what a sandbox uses, for limits that no control group holds. One that uses too much
//! loses its commands, not its files.

use stockade_core::sandbox::LimitName;
use stockade_jail::control::Request;

use super::command::Stage;
use super::desk::Desk;
use super::limits::DISK_INTERVAL;
use super::moment::Moment;
use super::sandbox::{Life, Sandbox};
use super::timers::Timer;
use crate::exec::Ending;

impl Sandbox {
    /// Begins to look, where there is anything to look at.
    pub(super) fn watch_usage(&self, desk: &mut Desk) {
        if self.watched.memory_bytes.is_some() {
            desk.timers.at(Moment::now(), Timer::Memory(self.key));
        }
        if self.watched.disk_bytes.is_some() {
            desk.timers.after(DISK_INTERVAL, Timer::Disk(self.key));
        }
    }

    /// Whether its processes can use more than they do.
    pub(super) fn is_active(&self) -> bool {
        let stopped = matches!(&self.life, Life::Held(jail) if !jail.pause.is_going());
        !stopped && self.commands.values().any(super::command::Command::is_alive)
    }

    /// Kills every command of it.
    pub(super) fn used_too_much(&mut self, desk: &mut Desk, limit: LimitName) {
        let alive = self.commands.values_mut().filter(|command| command.is_alive());
        let numbers: Vec<_> = alive
            .map(|command| {
                if !matches!(command.stage, Stage::Ended(_)) {
                    let ending = Ending::LimitExceeded(limit.as_str().to_owned());
                    command.doom(std::os::fd::AsFd::as_fd(&self.place), ending);
                }
                command.number
            })
            .collect();
        for number in numbers {
            self.say(desk, Request::Kill { number }, Vec::new());
        }
    }
}
