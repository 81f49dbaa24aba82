//! The outer half of a launch: clone, map ids, send the trees, wait for the message that the walls
//! are enabled.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Gid, Uid};

use crate::cgroup::Group;
use crate::channel::{Channel, FromInit, ToInit};
use crate::container::WaitingInit;
use crate::deferred_close::DeferredClose;
use crate::host_overlay;
use crate::identity::{Identity, Range};
use crate::inside::{self, InnerStreams};
use crate::mounts::{self, Mapping, Sent};
use crate::network::{Listeners, StubListeners};
use crate::read_only;
use crate::refused_calls::CallListener;
use crate::spec::{ContainerSettings, JailSpec, Network, Source, Streams, Task};
use crate::sys::{self, ForkResult, KillOnDrop};
use crate::vm_helper::RootPlan;
use crate::walls::Wall;
use crate::watch;

/// How long enabling the walls may take, on a machine under heavy load.
const LAUNCH_DEADLINE: Duration = Duration::from_secs(30);
/// How many trees one message carries.
const BATCH: usize = 8;

/// Why a jail could not be launched. Nothing of the command has run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A pipe or socket could not be created.
    #[error("make the jail's pipes")]
    Pipe(#[source] io::Error),
    /// The kernel refused new namespaces.
    #[error("create namespaces")]
    Namespaces(#[source] io::Error),
    /// The ids could not be mapped.
    #[error("map the jail's ids in {file}")]
    MapIds {
        /// The file of `/proc/PID`.
        file: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The owners of a tree cannot be mapped: its file system or this kernel has no idmapped
    /// mounts, or the caller is not root of the host.
    #[error("map the owners of {}", path.display())]
    MapOwners {
        /// The tree.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The jail could not join its control groups.
    #[error("join the control groups")]
    JoinGroup(#[source] io::Error),
    /// The jail's first process was killed for lack of memory: the limit is too low for it.
    #[error("the memory limit leaves no room for the jail's first process")]
    OutOfMemory,
    /// A wall could not be enabled.
    #[error("enable the wall `{wall}`: {step}")]
    Wall {
        /// The wall.
        wall: Wall,
        /// The step that failed.
        step: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The program bubblewrap ended before it had executed init: what it wrote.
    #[error("bubblewrap failed: {0}")]
    Bubblewrap(String),
    /// The jail's first process ended or sent an invalid message.
    #[error("the jail's first process exited before all walls were enabled")]
    Lost,
    /// Enabling the walls took too long.
    #[error("the walls were not enabled within {} s", LAUNCH_DEADLINE.as_secs())]
    Deadline,
}

/// A jail whose walls are enabled and whose command is running. Dropping it ends every process in
/// it.
#[derive(Debug)]
pub struct Jail {
    pub(crate) init: OwnedFd,
    pub(crate) channel: Channel,
    pub(crate) streams: Option<OuterStreams>,
    pub(crate) cgroup: Option<Group>,
    /// The upper layer, where it is in memory: it exists as long as this descriptor is open.
    pub upper: Option<OwnedFd>,
    /// The listener for refused system calls, if the spec requested it and the kernel has it, and init
    /// does not keep it.
    pub(crate) refused_calls: Option<CallListener>,
    /// The network listeners, if the spec requested them.
    pub listeners: Option<Listeners>,
    /// The listeners of a network without access, if the spec requested them.
    pub stub: Option<StubListeners>,
    /// `/proc` had to be omitted, because the caller's own is partly covered.
    pub proc_missing: bool,
    /// Landlock's version; 0 where the kernel has none.
    pub landlock: i32,
    /// The host's process id of the jail's init.
    pub init_process: i32,
    /// Init reported that nothing else was alive, and is about to exit: the supervisor waits for
    /// that.
    pub(crate) ended: bool,
    /// Keeps the mounts alive after init's end. The kernel unmounts them later and then releases
    /// the files that are closed with them.
    pub(crate) mounts: Option<DeferredClose>,
    _range: Option<Range>,
}

/// The outer ends of the command's streams.
#[derive(Debug)]
pub(crate) enum OuterStreams {
    Pipes { input: OwnedFd, output: OwnedFd, error: OwnedFd },
    Terminal(OwnedFd),
}

/// A persistent jail whose walls are being enabled. Dropping it ends it.
#[derive(Debug)]
pub struct Launching {
    process: libc::pid_t,
    init: KillOnDrop,
    channel: Channel,
    host_start: Option<u32>,
    cgroup: Option<Group>,
    deadline: Instant,
    /// Kept until the walls are enabled: the locks, and what is unmapped late.
    parts: Option<(JailSpec, Option<RootPlan>)>,
}

/// A jail whose walls are enabled and whose init serves requests. Dropping it ends nothing: the
/// jail lives until its lease ends, or its init receives the request to end or is killed.
#[derive(Debug)]
pub struct PersistentJail {
    /// The pidfd of the jail's init, which is a child of this process: readable once init is dead
    /// and can be reaped.
    pub init: OwnedFd,
    /// The host's process id of init; of bubblewrap, where that has made the jail: it ends with the
    /// init that it has started, and that init with it.
    pub init_process: i32,
    /// The host's process id of the init that serves requests.
    pub serving_process: i32,
    /// The root directory inside, for resolving paths below it (`O_PATH`).
    pub root: OwnedFd,
    /// The listener for refused system calls, if the spec requested it and the kernel has it, and init
    /// does not keep it.
    pub refused_calls: Option<CallListener>,
    /// Whether init keeps that listener and makes renames of directories for its commands: then it must
    /// finish them before its processes are stopped ([`crate::control::Request::FinishRenames`]).
    pub follows_renames: bool,
    /// The network listeners, if the spec requested them.
    pub listeners: Option<Listeners>,
    /// `/proc` had to be omitted, because the caller's own is partly covered.
    pub proc_missing: bool,
    /// Landlock's version; 0 where the kernel has none.
    pub landlock: i32,
    /// The jail's control groups.
    pub cgroup: Option<Group>,
    /// The host id of inside id 0; absent where the ids are the same inside and outside.
    pub host_start: Option<u32>,
}

/// Builds the jail and starts its command, which must be one ([`Task::Once`]).
///
/// The caller must have a single thread, as the jail is forked from it; with more the launch is
/// refused.
pub fn launch(mut spec: JailSpec) -> Result<Jail, Error> {
    let Task::Once { command, streams } = &spec.task else {
        return Err(Error::Pipe(io::ErrorKind::InvalidInput.into()));
    };
    let (inner, outer) = match streams {
        Streams::Pipes => {
            let pipe = || {
                rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
                    .map_err(|e| Error::Pipe(e.into()))
            };
            let ((input_read, input), (output, output_write), (error, error_write)) =
                (pipe()?, pipe()?, pipe()?);
            (
                InnerStreams::Pipes([input_read, output_write, error_write]),
                Some((input, output, error)),
            )
        }
        Streams::Terminal(_) => (InnerStreams::Terminal, None),
    };
    if let (InnerStreams::Pipes(pipes), Some(range)) = (&inner, spec.identity.range()) {
        // Only a pipe's owner may open it again, as programs do through /dev/stdout.
        let user = Uid::from_raw(range.start + command.user);
        let group = Gid::from_raw(range.start + command.group);
        for pipe in pipes {
            rustix::fs::fchown(pipe, Some(user), Some(group)).map_err(|e| Error::Pipe(e.into()))?;
        }
    }
    let cgroup = spec.cgroup.take();
    let InitHandle { spec, process, init: guard, channel, plan } =
        fork(spec, inner, cgroup.as_ref())?;
    let ready =
        wait_until_ready(&channel).map_err(|error| or_out_of_memory(error, cgroup.as_ref()))?;
    drop(plan);
    let mut descriptors = ready.descriptors.into_iter();
    let streams = match outer {
        Some((input, output, error)) => OuterStreams::Pipes { input, output, error },
        None => OuterStreams::Terminal(
            ready.terminal.then(|| descriptors.next()).flatten().ok_or(Error::Lost)?,
        ),
    };
    let upper = if ready.upper { Some(descriptors.next().ok_or(Error::Lost)?) } else { None };
    // Without it only the end of the jail takes longer.
    let mounts = ready.mounts.then(|| descriptors.next()).flatten().map(DeferredClose::new);
    let refused_calls = call_listener(ready.refused_calls, &mut descriptors)?;
    let (listeners, stub) = if ready.listeners && spec.network == Network::Stub {
        (None, Some(StubListeners::take_from(descriptors).ok_or(Error::Lost)?))
    } else {
        (listeners(ready.listeners, descriptors)?, None)
    };
    let JailSpec { identity, .. } = spec;
    Ok(Jail {
        init: guard.disarm().ok_or(Error::Lost)?,
        channel,
        streams: Some(streams),
        cgroup,
        upper,
        refused_calls,
        listeners,
        stub,
        proc_missing: ready.proc_missing,
        landlock: ready.landlock,
        init_process: process,
        ended: false,
        mounts: mounts.and_then(Result::ok),
        _range: match identity {
            Identity::Range(range) => Some(range),
            Identity::Own { .. } => None,
        },
    })
}

/// Builds a jail whose pid 1 forks workers ([`Task::Fork`]), and returns its pidfd, which must be
/// waited for. The caller must have a single thread.
pub(crate) fn launch_zygote(mut spec: JailSpec) -> Result<OwnedFd, Error> {
    let cgroup = spec.cgroup.take();
    let InitHandle { spec, init, channel, .. } = fork(spec, InnerStreams::None, cgroup.as_ref())?;
    wait_until_ready(&channel).map_err(|error| or_out_of_memory(error, cgroup.as_ref()))?;
    // The range of ids stays locked as long as this process waits for the jail's end.
    std::mem::forget(spec.identity);
    init.disarm().ok_or(Error::Lost)
}

/// Starts to build a persistent jail ([`Task::Serve`]), and does not wait for it.
///
/// The caller must have a single thread, as the jail is forked from it; with more the launch is
/// refused. Descriptors that must stay open as long as the jail lives, such as the lock of its
/// range of ids, must be in the spec's list of kept descriptors.
pub fn launch_persistent(mut spec: JailSpec) -> Result<Launching, Error> {
    if !matches!(spec.task, Task::Serve { .. }) {
        return Err(Error::Pipe(io::ErrorKind::InvalidInput.into()));
    }
    let cgroup = spec.cgroup.take();
    let InitHandle { spec, process, init, channel, plan } =
        fork(spec, InnerStreams::None, cgroup.as_ref())?;
    Ok(Launching {
        process,
        init,
        channel,
        host_start: spec.identity.range().map(|range| range.start),
        cgroup,
        deadline: Instant::now() + LAUNCH_DEADLINE,
        parts: Some((spec, plan)),
    })
}

/// Sends the init of a container that another engine has made what it needs to serve, and does not
/// wait for it. `host_start` is the host id of inside id 0, where this process can act as other
/// users.
///
/// # Errors
/// [`Error::Lost`] when init has ended.
pub fn launch_in_container(
    init: WaitingInit,
    settings: ContainerSettings,
    listener: &OwnedFd,
    host_start: Option<u32>,
) -> Result<Launching, Error> {
    init.proceed(settings, listener).map_err(|_| Error::Lost)?;
    let WaitingInit { channel, process, pidfd } = init;
    Ok(Launching {
        process,
        init: KillOnDrop(Some(pidfd)),
        channel,
        host_start,
        cgroup: None,
        deadline: Instant::now() + LAUNCH_DEADLINE,
        parts: None,
    })
}

impl Launching {
    /// The jail, once its walls are enabled; `None` before that. Does not block once the descriptor
    /// of this value is readable.
    ///
    /// # Errors
    /// As [`launch`]; the caller must drop the jail then.
    pub fn advance(&mut self) -> Result<Option<PersistentJail>, Error> {
        let Self { process, init, channel, host_start, parts, .. } = self;
        match poll(&mut [PollFd::new(&*channel, PollFlags::IN)], Some(&Timespec::default())) {
            Ok(0) if Instant::now() >= self.deadline => return Err(Error::Deadline),
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(e) => return Err(Error::Pipe(e.into())),
        }
        let ready = recv_ready(channel)
            .map_err(|error| or_out_of_memory(error, self.cgroup.as_ref()))
            .map_err(|error| match parts {
                Some((spec, _)) => or_reported(error, spec),
                None => error,
            })?;
        let mut descriptors = ready.descriptors.into_iter();
        let root = ready.root.then(|| descriptors.next()).flatten();
        let refused_calls = call_listener(ready.refused_calls, &mut descriptors)?;
        let task = parts.as_ref().map(|(spec, _)| &spec.task);
        let serving_process = match task {
            Some(Task::Serve { bubblewrap: Some(_), .. }) => {
                let step = || "find the init that bubblewrap has started".to_owned();
                let failed = |source| Error::Wall { wall: Wall::Pid, step: step(), source };
                let init = watch::only_child(*process).map_err(failed)?;
                let group = self.cgroup.as_ref();
                group.map_or(Ok(()), |group| group.exclude(*process)).map_err(Error::JoinGroup)?;
                init
            }
            _ => *process,
        };
        Ok(Some(PersistentJail {
            serving_process,
            root: root.ok_or(Error::Lost)?,
            refused_calls,
            follows_renames: ready.follows_renames,
            listeners: listeners(ready.listeners, descriptors)?,
            init: init.0.take().ok_or(Error::Lost)?,
            init_process: *process,
            proc_missing: ready.proc_missing,
            landlock: ready.landlock,
            cgroup: self.cgroup.take(),
            host_start: *host_start,
        }))
    }

    /// When [`Launching::advance`] gives up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl AsFd for Launching {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// The inner half, as seen from outside.
#[derive(Debug)]
struct InitHandle {
    spec: JailSpec,
    process: libc::pid_t,
    init: KillOnDrop,
    channel: Channel,
    /// No longer needed. It is dropped late: unmapping it here would compete with the child for the
    /// processor.
    plan: Option<RootPlan>,
}

/// Forks the inner half, and does the work that must be done from outside: control groups, ids,
/// trees.
fn fork(
    mut spec: JailSpec,
    streams: InnerStreams,
    cgroup: Option<&Group>,
) -> Result<InitHandle, Error> {
    sys::single_thread().map_err(Error::Namespaces)?;
    let plan = plan(&mut spec)?;
    let (ours, theirs) = Channel::pair().map_err(Error::Pipe)?;
    // Moving a process into a group may make the kernel wait for every processor; creating it there
    // does not.
    let birthplace = cgroup.and_then(Group::clone_target);
    let view = cgroup.map(Group::view).unwrap_or_default();
    // SAFETY: this process has a single thread, checked above.
    let clone = |group| unsafe { sys::clone_process(sys::NAMESPACES, group) };
    let (side, born) = match clone(birthplace.as_ref().map(AsFd::as_fd)) {
        Err(_) if birthplace.is_some() => (clone(None).map_err(Error::Namespaces)?, false),
        side => (side.map_err(Error::Namespaces)?, birthplace.is_some()),
    };
    let (process, init) = match side {
        ForkResult::Child => {
            drop(ours);
            // All other values here belong to the parent and are never dropped.
            inside::run(spec, theirs, streams, plan, &view)
        }
        ForkResult::Parent(pid, init) => (pid, KillOnDrop(Some(init))),
    };
    drop((birthplace, theirs, streams));
    if let Some(group) = cgroup {
        let join = if born { Group::add_forked } else { Group::add };
        join(group, process).map_err(Error::JoinGroup)?;
    }
    map_ids_and_send_trees(&spec, &ours, process)
        .map_err(|error| or_out_of_memory(error, cgroup))?;
    Ok(InitHandle { spec, process, init, channel: ours, plan })
}

/// The planned content of a root that is the jail's own and read-only.
fn plan(spec: &mut JailSpec) -> Result<Option<RootPlan>, Error> {
    if spec.root_writable || !matches!(spec.root, Source::Empty) {
        return Ok(None);
    }
    let step = || "plan the content of the root".to_owned();
    let refused = |source| Error::Wall { wall: Wall::Root, step: step(), source };
    RootPlan::new(&mut spec.mounts).map(Some).map_err(refused)
}

/// The given error, unless the memory limit ended the launch.
fn or_out_of_memory(error: Error, cgroup: Option<&Group>) -> Error {
    let kills = cgroup.map_or(0, |group| group.oom_kills().unwrap_or(0));
    if kills > 0 { Error::OutOfMemory } else { error }
}

/// The given error, unless bubblewrap has reported another one.
fn or_reported(error: Error, spec: &JailSpec) -> Error {
    /// How much of its output an error contains.
    const REPORT_BYTES: usize = 1024;
    let (Error::Lost, Task::Serve { bubblewrap: Some(bubblewrap), .. }) = (&error, &spec.task)
    else {
        return error;
    };
    let mut report = vec![0; REPORT_BYTES];
    match rustix::io::pread(&bubblewrap.log, &mut report, 0) {
        Ok(length) if length > 0 => {
            report.truncate(length);
            let text = String::from_utf8_lossy(&report);
            Error::Bubblewrap(text.trim().trim_start_matches("bwrap: ").to_owned())
        }
        _ => error,
    }
}

/// Maps the ids where the supervisor must do that, and sends the trees with the message to start.
fn map_ids_and_send_trees(
    spec: &JailSpec,
    channel: &Channel,
    pid: libc::pid_t,
) -> Result<(), Error> {
    let go = |trees: &[OwnedFd]| {
        let descriptors: Vec<_> = trees.iter().map(|tree| tree.as_fd()).collect();
        match channel.send(&ToInit::Proceed.encode(), &descriptors) {
            // The process failed and has sent its error, which is received next.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent.map_err(|_| Error::Lost),
        }
    };
    let Some(range) = spec.identity.range() else {
        return go(&[]);
    };
    if let Some(ids) = range.subordinate() {
        ids.map(pid).map_err(|source| Error::MapIds { file: "uid_map", source })?;
        return go(&[]);
    }
    let (users, groups) = spec.identity.maps();
    for (file, text) in [("uid_map", users), ("gid_map", groups)] {
        fs::write(format!("/proc/{pid}/{file}"), text)
            .map_err(|source| Error::MapIds { file, source })?;
    }
    if range.is_unshifted() {
        // The process clones the trees itself, as one with the caller's own ids does.
        return go(&[]);
    }
    let namespace = fs::File::open(format!("/proc/{pid}/ns/user"))
        .map_err(|source| Error::MapIds { file: "ns/user", source })?;
    let mut users_only: Option<OwnedFd> = None;
    let trees = mounts::trees_to_send(&spec.root, &spec.mounts)
        .map(|sent| {
            let failed = |source| Error::MapOwners { path: sent.path().to_owned(), source };
            let (tree, mapping) = match sent {
                Sent::Tree(tree, mapping) => (tree, mapping),
                Sent::View(overlay, view) => {
                    let lower = mounts::clone_mapped(&overlay.lower, Some(namespace.as_fd()));
                    let lower = lower.map_err(failed)?;
                    let view = mounts::clone_mapped(view, None).map_err(failed)?;
                    return host_overlay::make(&lower, &view, overlay.synced).map_err(|source| {
                        let step = "mount the overlay".to_owned();
                        Error::Wall { wall: Wall::View, step, source }
                    });
                }
            };
            let namespace = match (mapping, &users_only) {
                (Mapping::None, _) => None,
                (Mapping::Owners, _) => Some(namespace.as_fd()),
                (Mapping::UsersOnly, Some(users_only)) => Some(users_only.as_fd()),
                (Mapping::UsersOnly, None) => {
                    let made = read_only::users_only(range).map_err(failed)?;
                    Some(OwnedFd::as_fd(users_only.insert(made)))
                }
            };
            mounts::clone_mapped(tree, namespace).map_err(failed)
        })
        .collect::<Result<Vec<_>, _>>()?;
    if trees.is_empty() {
        return go(&[]);
    }
    trees.chunks(BATCH).try_for_each(go)
}

struct Ready {
    terminal: bool,
    upper: bool,
    root: bool,
    mounts: bool,
    refused_calls: bool,
    follows_renames: bool,
    listeners: bool,
    proc_missing: bool,
    landlock: i32,
    descriptors: Vec<OwnedFd>,
}

fn wait_until_ready(channel: &Channel) -> Result<Ready, Error> {
    let deadline = Instant::now() + LAUNCH_DEADLINE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| Error::Deadline)?;
        match poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(Error::Deadline),
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::Pipe(e.into())),
        }
    }
    recv_ready(channel)
}

/// Receives the message that the walls are enabled, or why they are not.
fn recv_ready(channel: &Channel) -> Result<Ready, Error> {
    let (bytes, descriptors) = channel.receive().map_err(Error::Pipe)?.ok_or(Error::Lost)?;
    match FromInit::decode(&bytes) {
        Some(FromInit::Ready {
            terminal,
            upper,
            root,
            mounts,
            refused_calls,
            follows_renames,
            listeners,
            proc_missing,
            landlock,
        }) => Ok(Ready {
            terminal,
            upper,
            root,
            mounts,
            refused_calls,
            follows_renames,
            listeners,
            proc_missing,
            landlock,
            descriptors,
        }),
        Some(FromInit::Failed { wall, errno, step }) => Err(failed(wall, step, errno)),
        _ => Err(Error::Lost),
    }
}

/// The listener for refused calls, if the message carries it: the next descriptor.
fn call_listener(
    is_attached: bool,
    descriptors: &mut impl Iterator<Item = OwnedFd>,
) -> Result<Option<CallListener>, Error> {
    let descriptor = is_attached.then(|| descriptors.next().ok_or(Error::Lost)).transpose()?;
    Ok(descriptor.map(CallListener::new))
}

/// The listeners, if the message carries them: the remaining descriptors.
fn listeners(
    are_attached: bool,
    descriptors: impl Iterator<Item = OwnedFd>,
) -> Result<Option<Listeners>, Error> {
    if !are_attached {
        return Ok(None);
    }
    Listeners::take_from(descriptors).map(Some).ok_or(Error::Lost)
}

/// The error for a wall that init could not enable.
pub(crate) fn failed(wall: Wall, step: String, errno: i32) -> Error {
    Error::Wall { wall, step, source: io::Error::from_raw_os_error(errno) }
}

impl Jail {
    /// Closes descriptors that take long to close together with the jail's mounts, so that no
    /// process waits for it; without mounts, closes them immediately.
    pub fn close_with_mounts(&mut self, descriptors: Vec<OwnedFd>) {
        if let Some(mounts) = &mut self.mounts {
            mounts.extend(descriptors);
        }
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        if !self.ended {
            sys::kill_and_reap(&self.init);
        }
    }
}
