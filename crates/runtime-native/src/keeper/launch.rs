//! The launch of a sandbox, from a request to a jail whose init serves.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use stockade_bundle::beneath::{Dir, Rename};
use stockade_bundle::view;
use stockade_core::sandbox::{LimitName, Root, Workspace};
use stockade_core::{Isolation, LimitReport, SandboxId, SandboxSpec};
use stockade_jail::control::{self, Request};
use stockade_jail::network::Listeners;
use stockade_jail::{self as jail, Identity, Range, Wall, watch};
use stockade_plan::layers::Origin;
use stockade_plan::limits::{self, Disk, Granted, Groups, Watched as Limits};
use stockade_plan::{Held as HeldPlan, HostPaths, Request as Planned, Standing};

use super::Key;
use super::desk::Desk;
use super::jail::{Jail, PATIENCE, SOCKET};
use super::moment::{self, Moment};
use super::network;
use super::reactor::{Interest, Source};
use super::record::{self, Record, Stage};
use super::sandbox::{Life, Sandbox};
use super::timers::Timer;
use crate::directory;
use crate::wire::{Answer, Begun, Below, Failure, Layers};

/// How long to wait for the next tick of the clock of file system timestamps.
const TICK: Duration = Duration::from_millis(1);
/// The remedy if no overlay can be mounted over a sandbox's layers.
const NO_OVERLAY: &str = "the data directory's file system does not support overlays: put the data directory on ext4, xfs, btrfs or tmpfs";
/// The remedy if the owners of files cannot be mapped.
const OTHER_OWNERS: &str = "its file system or this kernel does not support idmapped mounts: put the data directory on ext4, xfs or btrfs, or with Linux 6.3 or later on tmpfs";

/// The specification of a new sandbox.
#[derive(Debug)]
pub(super) struct Asked {
    /// Its id; none for one of the pool.
    pub(super) id: Option<SandboxId>,
    /// What the client requested.
    pub(super) spec: SandboxSpec,
    /// The prepared layers of its root and its workspace.
    pub(super) layers: Option<Layers>,
    /// The lock of the uid range that owns the layers.
    pub(super) lock: Option<OwnedFd>,
}

impl Sandbox {
    /// Starts to create a sandbox. If that fails, nothing of it remains.
    pub(super) fn begin(desk: &mut Desk, key: Key, asked: Asked) -> Result<Self, Failure> {
        let name = match &asked.id {
            Some(id) => id.to_string(),
            // No id has this prefix.
            None => format!(".pool-{}-{}", std::process::id(), key.0),
        };
        let mut made = false;
        let result = Self::try_begin(desk, key, name.clone(), asked, &mut made);
        if result.is_err() && made {
            desk.discard(&name);
        }
        result
    }

    fn try_begin(
        desk: &mut Desk,
        key: Key,
        name: String,
        asked: Asked,
        made: &mut bool,
    ) -> Result<Self, Failure> {
        let Asked { id, mut spec, layers, lock } = asked;
        let root = match (&spec.root, &layers) {
            (Root::Snapshot(_), Some(layers)) => layers.root.clone(),
            (Root::Snapshot(snapshot), None) => return Err(Failure::NoSnapshot(snapshot.clone())),
            (root, None) => root.clone(),
            (root, Some(Layers { whole: Some(_), .. })) => root.clone(),
            (_, Some(_)) => {
                return Err(Failure::Invalid(
                    "only a sandbox from a snapshot can start with layers".to_owned(),
                ));
            }
        };
        let paths = || HostPaths::of(&desk.data);
        let checked = Planned::check(&spec, &root, desk.users, &paths)?;
        let user = checked.own();
        let environment = std::mem::take(&mut spec.environment);
        let lease = spec.lease.map(record::Lease::from_now);

        let entry = directory::name(&name).map_err(|e| refused(&e))?;
        desk.sandboxes.mkdir(&entry, 0o700).map_err(|e| refused(&e))?;
        *made = true;
        let place = open(desk, &name)?;
        // The changes of a snapshot count from the initial state of its workspace.
        let begun = match (&spec.workspace, &layers) {
            (None, _) => None,
            (Some(workspace), Some(Layers { begun, .. })) => {
                begun.clone().map(|begun| Begun { host: workspace.host.clone(), ..begun })
            }
            (Some(workspace), None) => Some(begin_with(workspace, &place)?),
        };
        if let Some(layers) = &layers {
            take_layers(desk, layers, &name, spec.workspace.is_some())?;
        }
        let granted = limits::grant(Groups::At(&desk.place), &spec, Disk::Layers)?;
        let record = Record {
            id,
            has_environment: false,
            root,
            begun,
            whole: layers.as_ref().and_then(|layers| layers.whole.clone()),
            created_at_ms: moment::wall_ms(),
            lease,
            user,
            home_owner: Some(user),
            host_start: desk.host_start.clone(),
            groups: granted.group.to_record(),
            stage: Stage::Starting,
            spec,
        };
        let mut sandbox = Self::new(key, name, place, record);
        sandbox.keep_environment(environment)?;
        sandbox.write_down()?;
        sandbox.watched = Limits::of(&sandbox.record.spec, &granted.reports);
        let identity = match layers.and_then(|layers| layers.range_start) {
            Some(start) => {
                Range::handed_over(start, lock).map(Identity::Range).map_err(|error| {
                    Failure::Invalid(format!("the ids of the snapshot's layers: {error}"))
                })?
            }
            None => Identity::of_caller().map_err(|error| identity_refused(&error))?,
        };
        sandbox.launch(desk, checked, identity, granted)?;
        Ok(sandbox)
    }

    /// Stores the environment on disk, so that no process keeps it in memory.
    pub(super) fn keep_environment(
        &mut self,
        environment: record::Environment,
    ) -> Result<(), Failure> {
        self.record.has_environment = !environment.is_empty();
        if environment.is_empty() {
            return Ok(());
        }
        let written = record::write_environment(self.directory(), &environment);
        record::wipe_environment(environment);
        written.map_err(|error| {
            Failure::Exhausted(format!("the sandbox's environment cannot be stored: {error}"))
        })
    }

    fn launch(
        &mut self,
        desk: &mut Desk,
        checked: Planned,
        identity: Identity,
        granted: Granted,
    ) -> Result<(), Failure> {
        let path: PathBuf = desk.directory.path().join("sandboxes").join(&self.name);
        let origin = match (&self.record.whole, &self.record.spec.root) {
            (Some(_), _) => Origin::FullCopy,
            (None, Root::Snapshot(_)) => Origin::Snapshot,
            (None, _) => Origin::New,
        };
        let Granted { group, reports } = granted;
        let listener = control::listen(self.directory(), SOCKET)
            .map_err(|error| exhausted("a socket", &error))?;
        desk.afford_sandbox(&listener)?;
        let planned = checked.held(HeldPlan {
            identity,
            directory: &path,
            origin,
            programs: &mut desk.programs,
            group,
            listener,
            descriptors: desk.descriptors,
        })?;
        self.skeleton = planned.skeleton;
        // The jail's init is a copy of this process.
        desk.bench.wipe();
        let launching = jail::begin(planned.spec).map_err(|error| self.launch_refused(&error))?;
        let deadline = launching.deadline().saturating_duration_since(std::time::Instant::now());
        desk.timers.after(deadline, Timer::Launch(self.key));
        let launching = desk
            .reactor
            .watch(launching, Source::Launch(self.key), Interest::IN)
            .map_err(|error| exhausted("an event", &error))?;
        self.life = Life::Launching(Box::new(launching));
        self.watch_lease(desk);
        self.reports = reports;
        Ok(())
    }

    /// Takes over the jail once all walls are enabled, and gives up one that takes too long.
    pub(super) fn advance(&mut self, desk: &mut Desk) {
        let waits_for = |since: Moment| Moment::now().since(since);
        if matches!(self.life, Life::Joining(_))
            && self.joining_since.is_some_and(|since| waits_for(since) >= PATIENCE)
        {
            self.fail(desk, Failure::Deadline);
        }
        if std::mem::take(&mut self.is_early) {
            self.joined(desk);
        }
        let Life::Launching(launching) = &mut self.life else { return };
        match launching.advance() {
            Ok(None) => {}
            Ok(Some(held)) => {
                let limits = std::mem::take(&mut self.reports);
                let standing = Standing {
                    landlock: held.landlock,
                    proc_missing: held.proc_missing,
                    has_network: held.listeners.is_some(),
                    has_access_rules: !self.record.spec.access.is_empty(),
                };
                let mut isolation = stockade_plan::isolation(standing, limits);
                if let Some(why) = &self.record.whole {
                    let reason =
                        format!("the files were copied, because no overlay is available: {why}");
                    isolation.reasons.push(reason);
                }
                if let Err(error) = self.join(desk, held, isolation) {
                    self.fail(desk, exhausted("a new jail", &error));
                }
            }
            Err(error) => {
                let failure = self.launch_refused(&error);
                self.fail(desk, failure);
            }
        }
    }

    fn join(&mut self, desk: &mut Desk, held: jail::Held, isolation: Isolation) -> io::Result<()> {
        let jail::Held { init, init_process, root, cgroup, host_start, listeners, .. } = held;
        let group = cgroup.unwrap_or_default();
        let watched = desk.reactor.watch_or_return(init, Source::Life(self.key), Interest::IN);
        let life = watched.map_err(|(error, init)| {
            // It must be dead before its groups are removed.
            let _ = pidfd_send_signal(&init, Signal::KILL);
            error
        });
        let held = record::Held {
            init: init_process,
            init_started: 0,
            host_start,
            isolation,
            paused: false,
            skeleton: self.skeleton.take(),
            network: None,
        };
        // From here on init is killed when a step fails.
        let mut jail = Jail::new(life?, Some(root), group, held);
        let connected = watch::started(init_process)
            .map(|started| jail.held.init_started = started)
            // Init retains the listeners; they are requested when a client needs them.
            .and_then(|()| listeners.as_ref().map(Listeners::network).transpose())
            .map(|network| jail.held.network = network)
            .and_then(|()| jail.connect(&desk.reactor, self.key, self.place.as_fd()))
            .and_then(|()| jail.say(Request::List, Vec::new()));
        self.life = Life::Joining(Box::new(jail));
        self.joining_since = Some(Moment::now());
        desk.timers.after(PATIENCE, Timer::Launch(self.key));
        connected
    }

    /// Records that init serves: commands can be started from now on.
    pub(super) fn joined(&mut self, desk: &mut Desk) {
        let Life::Joining(jail) = std::mem::replace(&mut self.life, Life::Ended) else { return };
        if self.record.begun.as_ref().is_some_and(|begun| !view::is_over(begun.since)) {
            // A change on the host at this time would have the same timestamp as an earlier one.
            self.life = Life::Joining(jail);
            self.is_early = true;
            desk.timers.after(TICK, Timer::Launch(self.key));
            return;
        }
        self.life = Life::Held(jail);
        if let Err(failure) = self.write_down() {
            self.fail(desk, failure);
            return;
        }
        desk.joined.push(self.key);
        // A process of an adopted, paused sandbox may have to be ended.
        self.step_pause(desk);
        self.watch_usage(desk);
        if let Some(status) = self.status() {
            let creators = std::mem::take(&mut self.creators);
            desk.answer_all(creators, &Answer::Status(Box::new(status)));
        }
    }

    /// Turns a sandbox of the pool into the requested one.
    pub(super) fn become_the_one(
        &mut self,
        desk: &mut Desk,
        id: &SandboxId,
        mut spec: SandboxSpec,
    ) -> Result<(), Failure> {
        let environment = std::mem::take(&mut spec.environment);
        let user = desk.users.choose(spec.user, None)?;
        stockade_plan::check_command(spec.working_directory.as_deref(), &environment)?;
        self.keep_environment(environment)?;
        let record = &mut self.record;
        record.id = Some(id.clone());
        record.created_at_ms = moment::wall_ms();
        record.lease = spec.lease.map(record::Lease::from_now);
        record.user = user;
        record.spec = spec;
        self.write_down()?;
        let (from, to) = (directory::name(&self.name), directory::name(id.as_str()));
        let renamed = from.and_then(|from| {
            desk.sandboxes.rename(&from, &desk.sandboxes, &to?, Rename::NoReplace)
        });
        renamed.map_err(|e| refused(&e))?;
        self.name = id.to_string();
        self.watch_lease(desk);
        Ok(())
    }

    /// The failure for a jail that cannot be launched. If the cause is a missing overlay that the
    /// client could do without, the failure reports it.
    fn launch_refused(&self, error: &jail::Error) -> Failure {
        let spec = &self.record.spec;
        if spec.network.is_some()
            && let jail::Error::Wall { wall: Wall::Network, step, source } = error
            && !has_run_out(source)
        {
            return network::unsupported(step, source);
        }
        let mut failure = launch_refused(error);
        let has_layers = self.record.whole.is_some() || matches!(spec.root, Root::Snapshot(_));
        let of_mount = |path: &Path| {
            let is_it = |real: PathBuf| real == path;
            spec.mounts.iter().any(|mount| std::fs::canonicalize(&mount.host).is_ok_and(is_it))
        };
        let is_for_want_of_overlay = match error {
            jail::Error::Wall { wall: Wall::View, .. } => true,
            jail::Error::MapOwners { path, .. } => !of_mount(path),
            _ => false,
        };
        if let Failure::Wall { without_overlay, .. } = &mut failure
            && is_for_want_of_overlay
            && !has_layers
        {
            *without_overlay = Some(Below { skeleton: self.skeleton.clone() });
        }
        failure
    }

    /// Gives up a sandbox that cannot be created.
    pub(super) fn fail(&mut self, desk: &mut Desk, failure: Failure) {
        let creators = std::mem::take(&mut self.creators);
        if self.id().is_none() {
            desk.note(&format!("the pool cannot be filled: {failure:?}"));
        }
        desk.answer_all(creators, &Answer::Failed(failure));
        self.doomed = true;
        self.kill(desk, "it could not be created");
    }
}

/// Opens a sandbox's directory.
pub(super) fn open(desk: &Desk, name: &str) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::openat(&desk.sandboxes, name, flags, Mode::empty())
        .map_err(|errno| exhausted("the sandbox's directory", &errno.into()))?;
    desk.afford_sandbox(&place)?;
    Ok(place)
}

/// Records now as the time of the workspace's initial state. `place` is the sandbox's directory.
fn begin_with(workspace: &Workspace, place: &OwnedFd) -> Result<Begun, Failure> {
    let moment =
        place.try_clone().map_err(|error| exhausted("a descriptor", &error)).and_then(|place| {
            let failed = |error: view::Error| exhausted("the time", &io::Error::other(error));
            view::moment(&Dir::from_fd(place), 0o700).map_err(failed)
        });
    Ok(Begun { host: workspace.host.clone(), since: moment?, copied: None })
}

/// Moves the layers that a client has prepared into the sandbox's directory.
fn take_layers(
    desk: &Desk,
    layers: &Layers,
    name: &str,
    has_workspace: bool,
) -> Result<(), Failure> {
    let Layers { staged, .. } = layers;
    let text = |errno: Errno| Failure::Invalid(format!("the layers {staged}: {errno}"));
    directory::name(staged).map_err(|e| refused(&e))?;
    let staging = desk.directory.staging().map_err(|e| refused(&e))?;
    let moved = [("upper", "layers", true), ("workspace", "workspace", has_workspace)];
    for (from, to, wanted) in moved {
        let from = format!("{staged}/{from}");
        let there = rustix::fs::statat(&staging, &from, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if there != wanted {
            let text = match there {
                true => {
                    "the snapshot contains changes to a workspace: create the sandbox with that workspace"
                }
                false => {
                    "the snapshot contains no changes to a workspace: create the sandbox without a workspace"
                }
            };
            return Err(Failure::Invalid(text.to_owned()));
        }
        if wanted {
            let to = format!("{name}/{to}");
            rustix::fs::mkdirat(&desk.sandboxes, &to, Mode::RWXU).map_err(text)?;
            rustix::fs::renameat(&staging, &from, &desk.sandboxes, format!("{to}/upper"))
                .map_err(text)?;
        }
    }
    Ok(())
}

/// Whether the error means that a resource is exhausted.
fn has_run_out(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let all = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::AGAIN,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::USERS,
    ];
    errno.is_some_and(|errno| all.contains(&errno))
}

fn exhausted(what: &str, error: &io::Error) -> Failure {
    Failure::Exhausted(format!("cannot create {what}: {error}"))
}

fn refused(error: &stockade_bundle::beneath::Error) -> Failure {
    let errno = error.errno().unwrap_or(Errno::IO);
    exhausted("the sandbox's directory", &errno.into())
}

fn identity_refused(error: &jail::identity::Error) -> Failure {
    match error {
        jail::identity::Error::Exhausted => Failure::Exhausted(error.to_string()),
        _ => wall_refused(Wall::User, error.to_string()),
    }
}

fn wall_refused(wall: Wall, reason: String) -> Failure {
    Failure::Wall { wall: wall.to_string(), reason, without_overlay: None }
}

/// The failure that a client receives when a jail cannot be launched.
fn launch_refused(error: &jail::Error) -> Failure {
    use std::error::Error as _;
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let reason = match cause {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    if cause.is_some_and(has_run_out) {
        return Failure::Exhausted(reason);
    }
    let wall = |wall: Wall| wall_refused(wall, reason.clone());
    match error {
        jail::Error::Wall { wall: Wall::View, .. } => {
            wall_refused(Wall::View, format!("{reason}; {NO_OVERLAY}"))
        }
        jail::Error::Wall { wall: which, .. } => wall(*which),
        jail::Error::Namespaces(_) | jail::Error::MapIds { .. } => wall(Wall::User),
        jail::Error::MapOwners { .. } => {
            wall_refused(Wall::View, format!("{reason}; {OTHER_OWNERS}"))
        }
        jail::Error::JoinGroup(_) => wall(Wall::Cgroup),
        jail::Error::OutOfMemory => Failure::Limit {
            limit: LimitName::Memory,
            reason,
            remedy: "choose a larger limit".to_owned(),
        },
        jail::Error::Deadline => Failure::Deadline,
        jail::Error::Pipe(_) | jail::Error::Lost => Failure::Exhausted(reason),
    }
}

/// How each limit is enforced, until all walls are enabled.
pub(super) type Reports = Vec<LimitReport>;
