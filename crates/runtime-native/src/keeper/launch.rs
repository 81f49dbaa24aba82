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
use stockade_core::{Isolation, SandboxId, SandboxSpec};
use stockade_jail::control::{self, Request};
use stockade_jail::network::Listeners;
use stockade_jail::subordinate::Subordinate;
use stockade_jail::{self as jail, Identity, Range, Wall, watch};
use stockade_plan::layers::Origin;
use stockade_plan::limits::{self, Disk, EnforcedLimits, Groups, WatchedLimits as Limits};
use stockade_plan::{
    HostPaths, JailStatus, PersistentInput as HeldPlan, Request as Planned, TRUSTED_FILE, Users,
    owners,
};
use stockade_runtime::Capability;

use super::Key;
use super::boot_time::{self, BootTime};
use super::context::Context;
use super::helpers::prove;
use super::jail::{INIT_TIMEOUT, Jail, SOCKET};
use super::reactor::{Interest, Source};
use super::record::{self, Record, Stage};
use super::sandbox::{Lifecycle, Sandbox};
use super::timers::Timer;
use crate::bubblewrap::{self, Launcher};
use crate::directory;
use crate::wire::{Answer, Container, Failure, InitialState, Layers, LowerLayer};

/// How long to wait for the next tick of the clock of file system timestamps.
const TICK: Duration = Duration::from_millis(1);
/// The remedy if no overlay can be mounted over a sandbox's layers.
const NO_OVERLAY: &str = "the data directory's file system does not support overlays: put the data directory on ext4, xfs, btrfs or tmpfs";
/// The remedy if the owners of files cannot be mapped.
const OTHER_OWNERS: &str = "its file system or this kernel does not support idmapped mounts: put the data directory on ext4, xfs or btrfs, or with Linux 6.3 or later on tmpfs";

/// The specification of a new sandbox.
#[derive(Debug)]
pub(super) struct CreateRequest {
    /// Its id; none for one of the pool.
    pub(super) id: Option<SandboxId>,
    /// What the client requested.
    pub(super) spec: SandboxSpec,
    /// The prepared layers of its root and its workspace.
    pub(super) layers: Option<Layers>,
    /// Whether it has the caller's subordinate ids.
    pub(super) subordinate: bool,
    /// The lock of the uid range that owns the layers; with a container the connection to its init.
    pub(super) lock: Option<OwnedFd>,
    /// The container that another engine has made for it.
    pub(super) container: Option<Box<Container>>,
}

impl Sandbox {
    /// Starts to create a sandbox. If that fails, nothing of it remains.
    pub(super) fn create(
        context: &mut Context,
        key: Key,
        request: CreateRequest,
    ) -> Result<Self, Failure> {
        let name = match &request.id {
            Some(id) => id.to_string(),
            // No id has this prefix.
            None => format!(".pool-{}-{}", std::process::id(), key.0),
        };
        let mut is_created = false;
        let start = if request.container.is_some() { Self::take_over } else { Self::try_start };
        let result = start(context, key, name.clone(), request, &mut is_created);
        if result.is_err() && is_created {
            context.discard(&name);
        }
        result
    }

    fn try_start(
        context: &mut Context,
        key: Key,
        name: String,
        request: CreateRequest,
        is_created: &mut bool,
    ) -> Result<Self, Failure> {
        let CreateRequest { id, mut spec, layers, subordinate, lock, container: _ } = request;
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
        let paths = || HostPaths::new(&context.data);
        let identity = subordinate.then(subordinate_identity).transpose()?;
        let users = identity.as_ref().map_or(context.users, Users::for_identity);
        let checked = Planned::check(&spec, &root, users, &paths)?;
        let user = checked.own();
        let environment = std::mem::take(&mut spec.environment);
        let lease = spec.lease.map(record::Lease::from_now);

        let entry = directory::name(&name).map_err(|e| refused(&e))?;
        context.sandboxes.mkdir(&entry, 0o700).map_err(|e| refused(&e))?;
        *is_created = true;
        let dir = open(context, &name)?;
        // The changes of a snapshot count from the initial state of its workspace.
        let initial_state = match (&spec.workspace, &layers) {
            (None, _) => None,
            (Some(workspace), Some(Layers { begun, .. })) => {
                begun.clone().map(|begun| InitialState { host: workspace.host.clone(), ..begun })
            }
            (Some(workspace), None) => Some(initial_state(workspace, &dir)?),
        };
        let granted = limits::enforce(Groups::Parent(&context.parent_group), &spec, Disk::Layers)?;
        let record = Record {
            id,
            has_environment: false,
            root,
            begun: initial_state,
            whole: layers.as_ref().and_then(|layers| layers.whole.clone()),
            is_container: false,
            subordinate,
            created_at_ms: boot_time::wall_ms(),
            lease,
            user,
            home_owner: Some(user),
            host_start: context.host_start.clone(),
            groups: granted.group.to_record(),
            stage: Stage::Starting,
            spec,
        };
        let mut sandbox = Self::new(key, name, dir, record);
        sandbox.store(context, environment, layers.as_ref())?;
        sandbox.watched = Limits::new(&sandbox.record.spec, &granted.reports);
        let identity = match (identity, layers.and_then(|layers| layers.range_start)) {
            (Some(identity), _) => identity,
            (None, Some(start)) => {
                Range::adopt(start, lock).map(Identity::Range).map_err(|error| {
                    Failure::Invalid(format!("the ids of the snapshot's layers: {error}"))
                })?
            }
            (None, None) => Identity::for_caller().map_err(|error| identity_refused(&error))?,
        };
        sandbox.launch(context, checked, identity, granted)?;
        Ok(sandbox)
    }

    /// Stores its record, and then moves the layers that a client has prepared into its directory: a
    /// keeper that is killed meanwhile leaves no files without a record, which would count as the
    /// lost work of a user.
    pub(super) fn store(
        &mut self,
        context: &Context,
        environment: record::Environment,
        layers: Option<&Layers>,
    ) -> Result<(), Failure> {
        self.store_environment(environment)?;
        self.write_record()?;
        let Some(layers) = layers else { return Ok(()) };
        move_layers(context, layers, &self.name, self.record.spec.workspace.is_some())
    }

    /// Stores the environment on disk, so that no process keeps it in memory.
    pub(super) fn store_environment(
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
        context: &mut Context,
        checked: Planned,
        identity: Identity,
        granted: EnforcedLimits,
    ) -> Result<(), Failure> {
        let path: PathBuf = context.directory.path().join("sandboxes").join(&self.name);
        let origin = match (&self.record.whole, &self.record.spec.root) {
            (Some(_), _) => Origin::FullCopy,
            (None, Root::Snapshot(_)) => Origin::Snapshot,
            (None, _) => Origin::New,
        };
        let EnforcedLimits { group, reports } = granted;
        let whole = self.overlay_refused(&identity);
        let listener = control::listen(self.directory(), SOCKET)
            .map_err(|error| exhausted("a socket", &error))?;
        context.afford_sandbox(&listener)?;
        let bubblewrap = match context.launcher {
            Launcher::Own => None,
            Launcher::Bubblewrap => {
                Some(bubblewrap::find().map_err(|missing| Failure::Unsupported {
                    capability: Capability::HostRoot.as_str().to_owned(),
                    reason: missing.reason,
                    remedy: missing.remedy,
                })?)
            }
        };
        let planned = checked.persistent_jail(HeldPlan {
            bubblewrap,
            identity,
            directory: &path,
            origin,
            programs: &mut context.programs,
            group,
            listener,
            descriptors: context.descriptors,
        })?;
        self.skeleton = planned.skeleton;
        if let Some(reason) = whole {
            return Err(Failure::Wall {
                wall: Wall::View.to_string(),
                reason,
                without_overlay: Some(LowerLayer { skeleton: self.skeleton.clone() }),
            });
        }
        // The jail's init is a copy of this process.
        context.spool_context.wipe();
        let launching = jail::launch_persistent(planned.spec)
            .map_err(|error| self.launch_refused(&error, &context.data))?;
        let deadline = launching.deadline().saturating_duration_since(std::time::Instant::now());
        context.timers.after(deadline, Timer::Launch(self.key));
        let launching = context
            .reactor
            .watch(launching, Source::Launch(self.key), Interest::IN)
            .map_err(|error| exhausted("an event", &error))?;
        self.life = Lifecycle::Launching(Box::new(launching));
        self.watch_lease(context);
        self.reports = reports;
        Ok(())
    }

    /// Why an overlay cannot take all changes to the workspace, where a new sandbox would have one.
    fn overlay_refused(&self, identity: &Identity) -> Option<String> {
        let spec = &self.record.spec;
        if self.record.whole.is_some() || matches!(spec.root, Root::Snapshot(_)) {
            return None;
        }
        let host = &spec.workspace.as_ref()?.host;
        let path = owners::survey(identity, host, owners::ENTRIES_OF_A_KEEPER).unrepresentable?;
        Some(owners::reason(&path, identity))
    }

    /// Takes over the jail once all walls are enabled, and gives up one that takes too long.
    pub(super) fn advance(&mut self, context: &mut Context) {
        let waits_for = |since: BootTime| BootTime::now().since(since);
        if matches!(self.life, Lifecycle::Connecting(_))
            && self.joining_since.is_some_and(|since| waits_for(since) >= INIT_TIMEOUT)
        {
            self.fail(context, Failure::Deadline);
        }
        if std::mem::take(&mut self.is_early) {
            self.joined(context);
        }
        let Lifecycle::Launching(launching) = &mut self.life else { return };
        match launching.advance() {
            Ok(None) => {}
            Ok(Some(held)) => {
                let limits = std::mem::take(&mut self.reports);
                let standing = JailStatus {
                    landlock: held.landlock,
                    proc_missing: held.proc_missing,
                    has_network: held.listeners.is_some(),
                    has_access_rules: !self.record.spec.access.is_empty(),
                };
                let mut isolation = match self.isolation.take() {
                    Some(of_container) => of_container,
                    None => stockade_plan::isolation(standing, limits),
                };
                if let Some(why) = &self.record.whole {
                    let reason =
                        format!("the files were copied, because no overlay is available: {why}");
                    isolation.reasons.push(reason);
                }
                if let Err(error) = self.join(context, held, isolation) {
                    self.fail(context, exhausted("a new jail", &error));
                }
            }
            Err(error) => {
                let failure = self.launch_refused(&error, &context.data);
                self.fail(context, failure);
            }
        }
    }

    fn join(
        &mut self,
        context: &mut Context,
        launched: jail::PersistentJail,
        isolation: Isolation,
    ) -> io::Result<()> {
        let jail::PersistentJail {
            init,
            init_process,
            serving_process,
            root,
            refused_calls,
            follows_renames,
            cgroup,
            host_start,
            listeners,
            ..
        } = launched;
        let group = cgroup.unwrap_or_default();
        let watched = context.reactor.watch_or_return(init, Source::Exit(self.key), Interest::IN);
        let life = watched.map_err(|(error, init)| {
            // It must be dead before its groups are removed.
            let _ = pidfd_send_signal(&init, Signal::KILL);
            error
        });
        let record = record::JailRecord {
            init: init_process,
            serving: (serving_process != init_process).then_some(serving_process),
            init_started: 0,
            host_start,
            isolation,
            paused: false,
            takes_limits: true,
            follows_renames,
            skeleton: self.skeleton.take(),
            network: None,
        };
        // From here on init is killed when a step fails.
        let mut jail = Jail::new(life?, Some(root), group, record);
        // Without it the kernel fails the calls, unless init has it.
        let source = Source::RefusedCalls(self.key);
        jail.call_listener = refused_calls
            .and_then(|listener| context.reactor.watch(listener, source, Interest::IN).ok());
        let connected = watch::start_time(init_process)
            .map(|started| jail.record.init_started = started)
            // Init retains the listeners; they are requested when a client needs them.
            .and_then(|()| listeners.as_ref().map(Listeners::network).transpose())
            .map(|network| jail.record.network = network)
            .and_then(|()| jail.connect(&context.reactor, self.key, self.dir.as_fd()))
            .and_then(|()| jail.send(Request::List, Vec::new()));
        self.life = Lifecycle::Connecting(Box::new(jail));
        self.joining_since = Some(BootTime::now());
        context.timers.after(INIT_TIMEOUT, Timer::Launch(self.key));
        connected
    }

    /// Records that init serves: commands can be started from now on.
    pub(super) fn joined(&mut self, context: &mut Context) {
        let Lifecycle::Connecting(jail) = std::mem::replace(&mut self.life, Lifecycle::Ended)
        else {
            return;
        };
        if self.record.begun.as_ref().is_some_and(|begun| !view::is_tick_over(begun.since)) {
            // A change on the host at this time would have the same timestamp as an earlier one.
            self.life = Lifecycle::Connecting(jail);
            self.is_early = true;
            context.timers.after(TICK, Timer::Launch(self.key));
            return;
        }
        self.life = Lifecycle::Running(jail);
        if let Err(failure) = self.write_record() {
            self.fail(context, failure);
            return;
        }
        context.joined.push(self.key);
        if self.record.id.is_some() {
            context.store_soon(&self.name);
        }
        // A process of an adopted, paused sandbox may have to be ended.
        self.step_pause(context);
        self.watch_usage(context);
        if let Some(status) = self.status() {
            let creators = std::mem::take(&mut self.creators);
            context.answer_all(creators, &Answer::Status(Box::new(status)));
        }
    }

    /// Turns a sandbox of the pool into the requested one.
    pub(super) fn claim(
        &mut self,
        context: &mut Context,
        id: &SandboxId,
        mut spec: SandboxSpec,
    ) -> Result<(), Failure> {
        let environment = std::mem::take(&mut spec.environment);
        let user = context.users.choose(spec.user, None)?;
        stockade_plan::check_command(spec.working_directory.as_deref(), &environment)?;
        self.store_environment(environment)?;
        let record = &mut self.record;
        record.id = Some(id.clone());
        record.created_at_ms = boot_time::wall_ms();
        record.lease = spec.lease.map(record::Lease::from_now);
        record.user = user;
        record.spec = spec;
        self.write_record()?;
        let (from, to) = (directory::name(&self.name), directory::name(id.as_str()));
        let renamed = from.and_then(|from| {
            context.sandboxes.rename(&from, &context.sandboxes, &to?, Rename::NoReplace)
        });
        renamed.map_err(|e| refused(&e))?;
        self.name = id.to_string();
        context.store_soon(&self.name);
        self.watch_lease(context);
        Ok(())
    }

    /// The failure for a jail that cannot be launched. If the cause is a missing overlay that the
    /// client could do without, the failure reports it.
    pub(super) fn launch_refused(&self, error: &jail::Error, data: &Path) -> Failure {
        let spec = &self.record.spec;
        if spec.network.is_some()
            && let jail::Error::Wall { wall: Wall::Network, step, source } = error
            && !is_exhausted(source)
        {
            return prove::unsupported(step, source);
        }
        let mut failure = launch_refused(error);
        let has_layers = self.record.whole.is_some() || matches!(spec.root, Root::Snapshot(_));
        let volumes = data.join(stockade_plan::VOLUMES);
        let of_mount = |path: &Path| {
            let is_it = |real: PathBuf| real == path;
            path.starts_with(&volumes)
                || spec
                    .mounts
                    .iter()
                    .any(|mount| std::fs::canonicalize(&mount.host).is_ok_and(is_it))
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
            *without_overlay = Some(LowerLayer { skeleton: self.skeleton.clone() });
        }
        failure
    }

    /// Gives up a sandbox that cannot be created.
    pub(super) fn fail(&mut self, context: &mut Context, failure: Failure) {
        let creators = std::mem::take(&mut self.creators);
        if self.id().is_none() {
            context.log(&format!("the pool cannot be filled: {failure:?}"));
        }
        context.answer_all(creators, &Answer::Failed(failure));
        self.doomed = true;
        self.kill(context, "it could not be created");
    }
}

/// Opens a sandbox's directory.
pub(super) fn open(context: &Context, name: &str) -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(&context.sandboxes, name, flags, Mode::empty())
        .map_err(|errno| exhausted("the sandbox's directory", &errno.into()))?;
    context.afford_sandbox(&dir)?;
    Ok(dir)
}

/// Records now as the time of the workspace's initial state. `place` is the sandbox's directory.
fn initial_state(workspace: &Workspace, dir: &OwnedFd) -> Result<InitialState, Failure> {
    let now =
        dir.try_clone().map_err(|error| exhausted("a descriptor", &error)).and_then(|place| {
            let failed = |error: view::Error| exhausted("the time", &io::Error::other(error));
            view::boundary_time(&Dir::from_fd(place), 0o700).map_err(failed)
        });
    Ok(InitialState { host: workspace.host.clone(), since: now?, copied: None })
}

/// Moves the layers that a client has prepared into the sandbox's directory.
fn move_layers(
    context: &Context,
    layers: &Layers,
    name: &str,
    has_workspace: bool,
) -> Result<(), Failure> {
    let Layers { staged, .. } = layers;
    let text = |errno: Errno| Failure::Invalid(format!("the layers {staged}: {errno}"));
    directory::name(staged).map_err(|e| refused(&e))?;
    let staging = context.directory.staging().map_err(|e| refused(&e))?;
    // A container already uses the file of certificates.
    let trusted = format!("{staged}/{TRUSTED_FILE}");
    match rustix::fs::renameat(
        &staging,
        &trusted,
        &context.sandboxes,
        format!("{name}/{TRUSTED_FILE}"),
    ) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(text(errno)),
    }
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
            rustix::fs::mkdirat(&context.sandboxes, &to, Mode::RWXU).map_err(text)?;
            rustix::fs::renameat(&staging, &from, &context.sandboxes, format!("{to}/upper"))
                .map_err(text)?;
        }
    }
    Ok(())
}

/// Whether the error means that a resource is exhausted.
fn is_exhausted(error: &io::Error) -> bool {
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

pub(super) fn exhausted(what: &str, error: &io::Error) -> Failure {
    Failure::Exhausted(format!("cannot create {what}: {error}"))
}

pub(super) fn refused(error: &stockade_bundle::beneath::Error) -> Failure {
    let errno = error.errno().unwrap_or(Errno::IO);
    exhausted("the sandbox's directory", &errno.into())
}

/// The caller's subordinate ids.
fn subordinate_identity() -> Result<Identity, Failure> {
    Subordinate::find().map(Identity::subordinate).map_err(|missing| Failure::from(&missing))
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
    if cause.is_some_and(is_exhausted) {
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
        jail::Error::Bubblewrap(_) => {
            Failure::Wall { wall: "bwrap".to_owned(), reason, without_overlay: None }
        }
        jail::Error::OutOfMemory => Failure::Limit {
            limit: LimitName::Memory,
            reason,
            remedy: "choose a larger limit".to_owned(),
        },
        jail::Error::Deadline => Failure::Deadline,
        jail::Error::Pipe(_) | jail::Error::Lost => Failure::Exhausted(reason),
    }
}
