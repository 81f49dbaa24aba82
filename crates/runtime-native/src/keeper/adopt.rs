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
use super::boot_time::BootTime;
use super::command::{Command, Stage};
use super::context::Context;
use super::excess::Excess;
use super::jail::{Jail, SOCKET};
use super::pause::Pause;
use super::reactor::{Interest, Source};
use super::record::{self, EndedRecord, JailRecord, Record};
use super::sandbox::{Lifecycle, Sandbox};
use stockade_plan::LEASE;
use stockade_plan::limits::WatchedLimits as Limits;
use stockade_runtime::{EndCause, Ending};

impl Sandbox {
    /// Takes over the sandbox in a directory. Returns `None` and discards the directory if there is
    /// nothing to keep. A running sandbox is [`Lifecycle::Connecting`] until its init has reported
    /// everything.
    pub(super) fn adopt(context: &mut Context, key: Key, name: String) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&context.sandboxes, &name, flags, Mode::empty());
        let dir = match dir {
            Ok(dir) => dir,
            Err(errno) => {
                context.log(&format!("{name} cannot be opened: {errno}"));
                context.discard(&name);
                return None;
            }
        };
        let mut record = match Record::read(dir.as_fd()) {
            Ok(record) => record,
            Err(error) => {
                context.log(&format!("{name} has no record: {error}"));
                end_unknown(context, &name, dir.as_fd(), None);
                return None;
            }
        };
        let groups = Group::from_record(&record.groups).unwrap_or_default();
        let nobody = record.id.as_ref().is_none_or(|id| id.as_str() != name);
        let same_host = record.host_start == context.host_start;
        if nobody || record.stage == record::Stage::Starting {
            // No client was notified that it exists.
            end_unknown(context, &name, dir.as_fd(), Some(groups).filter(|_| same_host));
            return None;
        }
        if !same_host {
            record.lease = record.lease.map(record::Lease::after_restart);
            record.host_start.clone_from(&context.host_start);
        }
        let mut sandbox = Self::new(key, name, dir, record);
        sandbox.watch_lease(context);
        match sandbox.record.stage.clone() {
            record::Stage::Starting => return None,
            record::Stage::Ended(ended) => {
                context.remove_groups(groups, None);
                sandbox.adopt_ended(ended);
            }
            record::Stage::Held(held) if !same_host => {
                groups.release();
                let cause = EndCause::HostRestarted;
                sandbox.adopt_dead(context, held, (cause, "the host was rebooted"));
            }
            record::Stage::Held(held) => sandbox.adopt_running(context, held, groups),
        }
        Some(sandbox)
    }

    /// Takes over an ended sandbox: all its data is in its directory.
    fn adopt_ended(&mut self, ended: EndedRecord) {
        for status in ended.commands {
            // The numbers are only identifiers here.
            let number = self.commands.len() as u64;
            let mut command = Command::adopted(self.dir.as_fd(), status.id, number);
            command.set_ended(status.ending.unwrap_or(Ending::Unknown));
            self.commands.insert(number, command);
        }
        self.reason = Some(ended.reason);
        self.end_cause = Some(ended.cause);
    }

    /// Takes over a sandbox whose jail ended while no keeper was running.
    fn adopt_dead(
        &mut self,
        context: &mut Context,
        jail: JailRecord,
        (cause, reason): (EndCause, &str),
    ) {
        self.add_unreported();
        self.reason = Some(reason.to_owned());
        self.end_cause = Some(cause);
        self.record.stage = record::Stage::Ended(EndedRecord {
            reason: reason.to_owned(),
            cause,
            host_start: jail.host_start,
            isolation: Some(jail.isolation),
            commands: self.commands.values().map(Command::status).collect(),
        });
        if let Err(failure) = self.write_record() {
            context.log(&format!("{}: {failure:?}", self.name));
        }
    }

    /// Finds the commands that have spool files but that init has not reported.
    pub(super) fn add_unreported(&mut self) {
        let mut ids: BTreeSet<_> = self.spooled().into_iter().collect();
        ids.retain(|id| self.commands.values().all(|command| command.id != *id));
        for id in ids {
            let number = self.commands.keys().next_back().map_or(0, |last| last + 1);
            let mut command = Command::adopted(self.dir.as_fd(), id, number);
            command.set_ended(Ending::Unknown);
            self.commands.insert(number, command);
        }
    }

    fn spooled(&self) -> Vec<ExecId> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(spool) = rustix::fs::openat(&self.dir, "spool", flags, Mode::empty()) else {
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

    fn adopt_running(&mut self, context: &mut Context, record: JailRecord, groups: Group) {
        let process = Pid::from_raw(record.init);
        let life = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
        // The process id may have been reused; while this descriptor is open it is not.
        let life =
            life.filter(|_| watch::start_time(record.init).ok() == Some(record.init_started));
        let watched = life.and_then(|life| {
            context.reactor.watch(life, Source::Exit(self.key), Interest::IN).ok()
        });
        let Some(life) = watched else {
            context.remove_groups(groups, None);
            let reason = "its init exited while no keeper was running";
            self.adopt_dead(context, record, (EndCause::ProcessesLost, reason));
            return;
        };
        self.watched = Limits::new(&self.record.spec, &record.isolation.limits);
        self.excess = self.watched.disk_bytes.map(|_| Excess::unknown());
        let (init, paused) = (record.init, record.paused);
        let mut jail = Jail::new(life, None, groups, record);
        if paused {
            jail.pause = Pause::paused();
        } else if jail.group.can_stop() {
            // It may have been held for a client that has disconnected.
            let _ = jail.group.resume(init);
        }
        let connected = jail.connect(&context.reactor, self.key, self.dir.as_fd());
        self.life = Lifecycle::Connecting(Box::new(jail));
        self.joining_since = Some(BootTime::now());
        if let Err(error) = connected {
            self.distrust(context, &format!("its init does not listen: {error}"));
            return;
        }
        self.send(context, Request::Lease(LEASE), Vec::new());
        if !paused {
            self.send(context, Request::Continue, Vec::new());
        }
        self.send(context, Request::Root, Vec::new());
        self.send(context, Request::List, Vec::new());
        context.metrics.adopted += 1;
    }
}

/// Ends a jail that no client knows, and discards its directory.
fn end_unknown(
    context: &mut Context,
    name: &str,
    dir: std::os::fd::BorrowedFd<'_>,
    groups: Option<Group>,
) {
    // If no init listens, the jail ended with the keeper that was creating it.
    if let Ok(control) = Control::connect(dir, SOCKET) {
        let _ = control.send(&Request::End, &[]);
    }
    let groups = groups.unwrap_or_default();
    let _ = groups.thaw();
    let name = context.set_aside(name);
    context.remove_groups(groups, Some(name));
}

impl Command {
    /// Marks a command that an earlier keeper started as ended.
    fn set_ended(&mut self, ending: Ending) {
        self.stage = Stage::Ended(ending);
        self.gone = true;
        self.close_streams();
    }
}

/// How long the inits of adopted jails may take to report everything.
pub(super) const ADOPT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// Whether the keeper may still wait for adopted jails.
pub(super) fn may_wait(since: BootTime) -> bool {
    BootTime::now().since(since) < ADOPT_TIMEOUT
}
