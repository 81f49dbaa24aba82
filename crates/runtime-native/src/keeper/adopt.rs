//! Adoption of the sandboxes that an earlier keeper left: running ones continue without loss, of
//! ended ones the output is kept, and those that no client knows are removed.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use stockade_core::ExecId;
use stockade_jail::cgroup::Group;
use stockade_jail::control::{Control, Request};
use stockade_jail::watch;

use super::Key;
use super::boot_time::BootTime;
use super::command::{Command, Stage};
use super::context::{Context, KEPT};
use super::excess::Excess;
use super::jail::{Jail, SOCKET};
use super::reactor::{Interest, Source};
use super::record::{self, EndedRecord, JailRecord, Record};
use super::sandbox::{Lifecycle, Sandbox};
use stockade_plan::LEASE;
use stockade_plan::limits::WatchedLimits as Limits;
use stockade_runtime::{EndCause, Ending};

impl Sandbox {
    /// Takes over the sandbox in a directory. Returns `None` and discards the directory if there is
    /// nothing to keep. The files of a sandbox whose record was lost, such as by a power failure of
    /// the host, are kept beside the sandboxes. A running sandbox is [`Lifecycle::Connecting`] until
    /// its init has reported everything.
    pub(super) fn adopt(context: &mut Context, key: Key, name: String) -> Option<Self> {
        if name.starts_with(KEPT) {
            return None;
        }
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
                end_without_record(context, &name, dir.as_fd(), None);
                return None;
            }
        };
        let groups = Group::from_record(&record.groups).unwrap_or_default();
        let nobody = record.id.as_ref().is_none_or(|id| id.as_str() != name);
        let same_host = record.host_start == context.host_start;
        if nobody && !same_host {
            // The host stopped between the writes of the record and of the name.
            end_without_record(context, &name, dir.as_fd(), None);
            return None;
        }
        let is_starting = record.stage == record::Stage::Starting;
        if nobody || is_starting && (same_host || !has_files(dir.as_fd())) {
            // No client was notified that it exists.
            end_unknown(context, &name, dir.as_fd(), Some(groups).filter(|_| same_host));
            return None;
        }
        if is_starting {
            // The host stopped before the record of a running sandbox was on the disk.
            record.stage = record::Stage::Ended(EndedRecord {
                reason: HOST_RESTARTED.to_owned(),
                cause: EndCause::HostRestarted,
                host_start: match record.subordinate {
                    true => Some(0),
                    false => owner_of_files(dir.as_fd()),
                },
                isolation: None,
                commands: Vec::new(),
            });
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
                if same_host {
                    context.remove_groups(groups, None);
                } else {
                    groups.release();
                }
                sandbox.adopt_ended(ended);
                if is_starting && let Err(failure) = sandbox.write_record() {
                    context.log(&format!("{}: {failure:?}", sandbox.name));
                }
            }
            record::Stage::Held(held) if !same_host => {
                groups.release();
                let cause = EndCause::HostRestarted;
                sandbox.adopt_dead(context, held, (cause, HOST_RESTARTED));
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
            jail.pause.was_paused();
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

/// Ends a jail whose record is lost. Its files are kept, if it has any.
fn end_without_record(
    context: &mut Context,
    name: &str,
    dir: BorrowedFd<'_>,
    groups: Option<Group>,
) {
    // A sandbox of the pool belongs to nobody, and a removed one to nobody any more.
    if name.starts_with('.') || !has_files(dir) {
        end_unknown(context, name, dir, groups);
        return;
    }
    if let Ok(control) = Control::connect(dir, SOCKET) {
        let _ = control.send(&Request::End, &[]);
    }
    context.keep_files(name);
}

/// The directories of a sandbox that hold what its commands have written.
const LAYERS: [&str; 2] = ["workspace/upper", "layers/upper"];
/// The reason of an end, in words.
const HOST_RESTARTED: &str = "the host was rebooted";

/// Whether a command may have left files. What cannot be read counts as files.
fn has_files(dir: BorrowedFd<'_>) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    LAYERS.into_iter().any(|layer| {
        match rustix::fs::openat(dir, layer, flags, Mode::empty()).and_then(Dir::new) {
            Err(Errno::NOENT) => false,
            Err(_) => true,
            Ok(mut entries) => entries.any(|entry| {
                !entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b".."))
            }),
        }
    })
}

/// The host id of inside id 0, which owns the layers, if ids are mapped.
fn owner_of_files(dir: BorrowedFd<'_>) -> Option<u32> {
    let owner = |layer| rustix::fs::statat(dir, layer, AtFlags::SYMLINK_NOFOLLOW).ok();
    let owner = LAYERS.into_iter().rev().find_map(owner)?.st_uid;
    (owner != rustix::process::geteuid().as_raw()).then_some(owner)
}

/// Ends a jail that no client knows, and discards its directory.
fn end_unknown(context: &mut Context, name: &str, dir: BorrowedFd<'_>, groups: Option<Group>) {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use stockade_core::sandbox::{Root, User, Workspace};
    use stockade_core::{SandboxId, SandboxSpec};
    use stockade_plan::Users;
    use stockade_runtime::State;

    use super::*;
    use crate::bubblewrap::Launcher;
    use crate::directory::Directory;
    use crate::wire::Layers;

    const OWN: User = User { user: 4242, group: 4242 };

    fn context(place: &Path) -> (Context, PathBuf) {
        let data = place.join("data");
        fs::create_dir(&data).unwrap();
        rustix::fs::chmod(&data, Mode::RWXU).unwrap();
        let directory = Directory::open(&data, Launcher::Own).unwrap();
        let sandboxes = directory.path().join("sandboxes");
        (
            Context::new(&super::super::Options::for_tests(data), directory, Users::Own(OWN), 1024)
                .unwrap(),
            sandboxes,
        )
    }

    fn record(host_start: &str) -> Record {
        Record {
            id: Some(SandboxId::new("box").unwrap()),
            spec: SandboxSpec::default(),
            has_environment: false,
            root: Root::Host,
            begun: None,
            whole: None,
            is_container: false,
            subordinate: false,
            created_at_ms: 0,
            lease: None,
            user: OWN,
            home_owner: None,
            host_start: host_start.to_owned(),
            groups: Vec::new(),
            stage: record::Stage::Starting,
        }
    }

    fn kept(sandboxes: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(sandboxes).unwrap().map(|entry| entry.unwrap().path());
        let is_kept =
            |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(".kept-box-");
        entries.filter(is_kept).collect()
    }

    #[test]
    fn files_without_a_record_are_kept() {
        for text in [None, Some(""), Some("{\"id\":"), Some("{}")] {
            let place = tempfile::tempdir().unwrap();
            let (mut context, sandboxes) = context(place.path());
            fs::create_dir_all(sandboxes.join("box/workspace/upper")).unwrap();
            let write = |text| fs::write(sandboxes.join("box/record.json"), text).unwrap();
            if let Some(text) = text {
                write(text);
            }
            // Nothing is lost with one that has no files.
            assert!(Sandbox::adopt(&mut context, Key(1), "box".to_owned()).is_none());
            assert!(!sandboxes.join("box").exists() && kept(&sandboxes).is_empty(), "{text:?}");

            fs::create_dir_all(sandboxes.join("box/workspace/upper")).unwrap();
            fs::write(sandboxes.join("box/workspace/upper/work"), "mine").unwrap();
            if let Some(text) = text {
                write(text);
            }
            assert!(Sandbox::adopt(&mut context, Key(1), "box".to_owned()).is_none());
            let files = kept(&sandboxes);
            let work = fs::read_to_string(files[0].join("workspace/upper/work")).unwrap();
            assert_eq!((files.len(), &*work), (1, "mine"), "{text:?}");
            // The next keeper leaves them alone.
            let name = files[0].file_name().unwrap().to_str().unwrap().to_owned();
            assert!(Sandbox::adopt(&mut context, Key(1), name).is_none());
            assert_eq!(kept(&sandboxes), files);
        }
    }

    /// The second move fails, so the state is that of a keeper that was killed after the first one.
    #[test]
    fn nothing_is_kept_of_a_creation_that_stopped_between_its_steps() {
        let place = tempfile::tempdir().unwrap();
        let (mut context, sandboxes) = context(place.path());
        let staging = sandboxes.parent().unwrap().join("staging/copy/upper");
        fs::create_dir_all(&staging).unwrap();
        fs::write(staging.join("copied"), "from the host").unwrap();
        fs::create_dir(sandboxes.join("box")).unwrap();
        let dir = fs::File::open(sandboxes.join("box")).unwrap().into();
        let mut record = record(&context.host_start);
        record.spec.workspace = Some(Workspace { host: "/a".into(), inside: "/a".into() });
        let mut starting = Sandbox::new(Key(1), "box".to_owned(), dir, record);
        let layers = Layers {
            staged: "copy".to_owned(),
            root: Root::Host,
            range_start: None,
            begun: None,
            whole: None,
        };
        let stopped = starting.store(&context, record::Environment::new(), Some(&layers));
        assert!(stopped.is_err());
        assert!(sandboxes.join("box/layers/upper/copied").is_file());
        assert!(Sandbox::adopt(&mut context, Key(2), "box".to_owned()).is_none());
        assert!(!sandboxes.join("box").exists() && kept(&sandboxes).is_empty());
    }

    #[test]
    fn a_sandbox_whose_last_record_was_lost_with_the_host_has_its_files() {
        let place = tempfile::tempdir().unwrap();
        let (mut context, sandboxes) = context(place.path());
        let (own, name) = (sandboxes.join("box"), || "box".to_owned());
        let start = |host_start: &str, has_files: bool| {
            fs::create_dir_all(own.join("workspace/upper")).unwrap();
            if has_files {
                fs::write(own.join("workspace/upper/work"), "mine").unwrap();
            }
            let dir = fs::File::open(&own).unwrap();
            record(host_start).write(dir.as_fd()).unwrap();
        };
        let current = context.host_start.clone();
        for (host_start, has_files) in [(current.as_str(), true), ("earlier", false)] {
            start(host_start, has_files);
            assert!(Sandbox::adopt(&mut context, Key(1), name()).is_none());
            assert!(!own.exists() && kept(&sandboxes).is_empty());
        }
        start("earlier", true);
        for _ in 0..2 {
            let adopted = Sandbox::adopt(&mut context, Key(1), name()).unwrap();
            assert_eq!(adopted.status().unwrap().state, State::Ended);
            assert_eq!(adopted.end_cause, Some(EndCause::HostRestarted));
            assert_eq!(fs::read_to_string(own.join("workspace/upper/work")).unwrap(), "mine");
        }
    }
}
