//! Adoption of the sandboxes that an earlier keeper left: running ones continue without loss, of
//! ended ones the output is kept, and those that no client knows are removed.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use stockade_core::ExecId;
use stockade_jail::cgroup::Group;
use stockade_jail::control::{Control, Request};
use stockade_jail::watch;

use super::Key;
use super::command::{Command, Stage};
use super::desk::Desk;
use super::jail::{Jail, SOCKET};
use super::moment::Moment;
use super::pause::Pause;
use super::reactor::{Interest, Source};
use super::record::{self, Ended, Held, Record};
use super::sandbox::{Life, Sandbox};
use super::usage::Excess;
use stockade_plan::LEASE;
use stockade_plan::limits::Watched as Limits;
use stockade_runtime::Ending;

impl Sandbox {
    /// Takes over the sandbox in a directory. Returns `None` and discards the directory if there is
    /// nothing to keep. A running sandbox is [`Life::Joining`] until its init has reported
    /// everything.
    pub(super) fn adopt(desk: &mut Desk, key: Key, name: String) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = rustix::fs::openat(&desk.sandboxes, &name, flags, Mode::empty());
        let place = match place {
            Ok(place) => place,
            Err(errno) => {
                desk.note(&format!("{name} cannot be opened: {errno}"));
                desk.discard(&name);
                return None;
            }
        };
        let mut record = match Record::read(place.as_fd()) {
            Ok(record) => record,
            Err(error) => {
                desk.note(&format!("{name} has no record: {error}"));
                dismiss(desk, &name, place.as_fd(), None);
                return None;
            }
        };
        let groups = Group::recorded(&record.groups).unwrap_or_default();
        let nobody = record.id.as_ref().is_none_or(|id| id.as_str() != name);
        let same_host = record.host_start == desk.host_start;
        if nobody || record.stage == record::Stage::Starting {
            // No client was notified that it exists.
            dismiss(desk, &name, place.as_fd(), Some(groups).filter(|_| same_host));
            return None;
        }
        if !same_host {
            record.lease = record.lease.map(record::Lease::after_restart);
            record.host_start.clone_from(&desk.host_start);
        }
        let mut sandbox = Self::new(key, name, place, record);
        sandbox.watch_lease(desk);
        match sandbox.record.stage.clone() {
            record::Stage::Starting => return None,
            record::Stage::Ended(ended) => {
                desk.remove_groups(groups, None);
                sandbox.found_ended(ended);
            }
            record::Stage::Held(held) if !same_host => {
                groups.release();
                sandbox.found_gone(desk, held, "the host was rebooted");
            }
            record::Stage::Held(held) => sandbox.found_held(desk, held, groups),
        }
        Some(sandbox)
    }

    /// Takes over an ended sandbox: all its data is in its directory.
    fn found_ended(&mut self, ended: Ended) {
        for status in ended.commands {
            // The numbers are only identifiers here.
            let number = self.commands.len() as u64;
            let mut command = Command::found(self.place.as_fd(), status.id, number);
            command.found_ended(status.ending.unwrap_or(Ending::Unknown));
            self.commands.insert(number, command);
        }
        self.reason = Some(ended.reason);
    }

    /// Takes over a sandbox whose jail ended while no keeper was running.
    fn found_gone(&mut self, desk: &mut Desk, held: Held, reason: &str) {
        self.find_untold();
        self.reason = Some(reason.to_owned());
        self.record.stage = record::Stage::Ended(Ended {
            reason: reason.to_owned(),
            host_start: held.host_start,
            isolation: Some(held.isolation),
            commands: self.commands.values().map(Command::status).collect(),
        });
        if let Err(failure) = self.write_down() {
            desk.note(&format!("{}: {failure:?}", self.name));
        }
    }

    /// Finds the commands that have spool files but that init has not reported.
    pub(super) fn find_untold(&mut self) {
        let mut ids: BTreeSet<_> = self.spooled().into_iter().collect();
        ids.retain(|id| self.commands.values().all(|command| command.id != *id));
        for id in ids {
            let number = self.commands.keys().next_back().map_or(0, |last| last + 1);
            let mut command = Command::found(self.place.as_fd(), id, number);
            command.found_ended(Ending::Unknown);
            self.commands.insert(number, command);
        }
    }

    fn spooled(&self) -> Vec<ExecId> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(spool) = rustix::fs::openat(&self.place, "spool", flags, Mode::empty()) else {
            return Vec::new();
        };
        let Ok(entries) = rustix::fs::Dir::new(spool) else { return Vec::new() };
        entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().to_str().ok()?.to_owned();
                ExecId::new(name.split('.').next()?).ok()
            })
            .collect()
    }

    fn found_held(&mut self, desk: &mut Desk, held: Held, groups: Group) {
        let process = Pid::from_raw(held.init);
        let life = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
        // The process id may have been reused; while this descriptor is open it is not.
        let life = life.filter(|_| watch::started(held.init).ok() == Some(held.init_started));
        let watched = life
            .and_then(|life| desk.reactor.watch(life, Source::Life(self.key), Interest::IN).ok());
        let Some(life) = watched else {
            desk.remove_groups(groups, None);
            self.found_gone(desk, held, "its init exited while no keeper was running");
            return;
        };
        self.watched = Limits::of(&self.record.spec, &held.isolation.limits);
        self.excess = self.watched.disk_bytes.map(|_| Excess::unknown());
        let (init, paused) = (held.init, held.paused);
        let mut jail = Jail::new(life, None, groups, held);
        if paused {
            jail.pause = Pause::found();
        } else if jail.group.can_stop() {
            // It may have been held for a client that has disconnected.
            let _ = jail.group.go_on(init);
        }
        let connected = jail.connect(&desk.reactor, self.key, self.place.as_fd());
        self.life = Life::Joining(Box::new(jail));
        self.joining_since = Some(Moment::now());
        if let Err(error) = connected {
            self.distrust(desk, &format!("its init does not listen: {error}"));
            return;
        }
        self.say(desk, Request::Lease(LEASE), Vec::new());
        if !paused {
            self.say(desk, Request::Continue, Vec::new());
        }
        self.say(desk, Request::Root, Vec::new());
        self.say(desk, Request::List, Vec::new());
        desk.metrics.adopted += 1;
    }
}

/// Ends a jail that no client knows, and discards its directory.
fn dismiss(desk: &mut Desk, name: &str, place: std::os::fd::BorrowedFd<'_>, groups: Option<Group>) {
    // If no init listens, the jail ended with the keeper that was creating it.
    if let Ok(control) = Control::connect(place, SOCKET) {
        let _ = control.send(&Request::End, &[]);
    }
    let groups = groups.unwrap_or_default();
    let _ = groups.thaw();
    let name = desk.set_aside(name);
    desk.remove_groups(groups, Some(name));
}

impl Command {
    /// Marks a command that an earlier keeper started as ended.
    fn found_ended(&mut self, ending: Ending) {
        self.stage = Stage::Ended(ending);
        self.gone = true;
        self.close_streams();
    }
}

/// How long the inits of adopted jails may take to report everything.
pub(super) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Whether the keeper may still wait for adopted jails.
pub(super) fn may_wait(since: Moment) -> bool {
    Moment::now().since(since) < PATIENCE
}
