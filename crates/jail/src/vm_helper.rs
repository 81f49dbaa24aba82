//! A VM helper that raises walls in parallel with the jail's first process. It creates the network
//! namespace, which takes longest; then the jail's own root with its content; it unmounts the
//! host's root, and mounts `/dev` and `/proc`. The first process does everything else.
//!
//! Both share memory and file descriptors (`CLONE_VM`, [`process`]). So the code of the helper
//! allocates nothing, touches nothing but [`Shared`], and makes bare system calls on a stack of its
//! own. The helper is dead before the command starts.

mod event;
mod process;
mod root_content;

use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::LinkNameSpaceType;

use self::event::Event;
use self::process::VmProcess;
pub(crate) use self::process::reserve_descriptors;
pub(crate) use self::root_content::{RootContent, RootPlan};
use crate::boot_id;
use crate::dev_proc::{self, DevProc};
use crate::helper_step::Step;
use crate::mounts::{self, At as _, Failure};
use crate::network::{self, Listeners, StubListeners, egress, stub};
use crate::spec::Network;
use crate::walls::Wall;

/// How long the helper may take, on a machine under heavy load.
const DEADLINE: Duration = Duration::from_secs(20);
/// The helper makes a few calls and holds small structures.
const STACK_BYTES: usize = 64 * 1024;

/// No file descriptor.
const NONE: RawFd = -1;

/// The helper. Dropping it kills and reaps the process.
#[derive(Debug)]
pub(crate) struct VmHelper(VmProcess<Shared>);

/// What both processes use.
#[derive(Debug)]
struct Shared {
    /// The content of the network namespace.
    network_content: Network,
    /// The content of the jail's own root, where it has one.
    root_content: Option<RootContent>,
    /// `/proc/sys` of the host, until it was used.
    settings: AtomicI32,
    /// The mounts that every jail has, and the kind of root to which they are attached.
    dev_proc: OnceLock<DevProc>,
    root_kind: dev_proc::Root,
    /// Whether the helper must take on the inside ids.
    take_ids: AtomicU8,
    /// Set by the first process: the ids are mapped.
    ids_mapped: Event,
    /// Set by the first process: both processes are in the jail's root.
    root_entered: Event,
    /// Set by the first process: everything that `/proc` requires is mounted.
    proc_ready: Event,
    /// Set by the helper: the jail's own root is complete, where the helper makes it.
    root_made: Event,
    /// Set by the helper: the network namespace is complete.
    network_made: Event,
    /// Set by the helper: `/dev` is complete, where the helper attaches it.
    devices_attached: Event,
    /// Set by the helper: the host's root is unmounted.
    host_root_gone: Event,
    /// Set by the helper: all work is done, or a step has failed. All other events of the helper
    /// are set then, too.
    finished: Event,
    /// The jail's own root, where the helper makes it.
    root: AtomicI32,
    /// The network namespace.
    network: AtomicI32,
    /// The network listeners, where they are requested.
    listeners: [AtomicI32; egress::LISTENERS],
    /// The step that failed, and its error number.
    failed: AtomicU8,
    errno: AtomicI32,
}

impl VmHelper {
    /// Starts the helper, while the host's root is mounted. It makes a root with `root_content`; without
    /// that, the jail has another root.
    pub(crate) fn start(
        network_content: Network,
        root_kind: dev_proc::Root,
        root_content: Option<RootContent>,
    ) -> io::Result<Self> {
        // The calling process may leave the host's root before the helper runs for the first time.
        let settings = network::host_settings();
        let shared = Shared {
            settings: AtomicI32::new(settings.map_or(NONE, OwnedFd::into_raw_fd)),
            network_content,
            root_content,
            dev_proc: OnceLock::new(),
            root_kind,
            take_ids: AtomicU8::new(0),
            ids_mapped: Event::default(),
            root_entered: Event::default(),
            proc_ready: Event::default(),
            root_made: Event::default(),
            network_made: Event::default(),
            devices_attached: Event::default(),
            host_root_gone: Event::default(),
            finished: Event::default(),
            root: AtomicI32::new(NONE),
            network: AtomicI32::new(NONE),
            listeners: [const { AtomicI32::new(NONE) }; egress::LISTENERS],
            failed: AtomicU8::new(0),
            errno: AtomicI32::new(0),
        };
        // SAFETY: `run` allocates nothing, touches nothing else and makes bare calls.
        unsafe { VmProcess::start(shared, STACK_BYTES, run) }.map(Self)
    }

    /// Opens the fixtures, while the host's root is mounted.
    pub(crate) fn open_dev_proc(&self) -> Result<(), Failure> {
        let shared = self.0.shared();
        let fixtures =
            DevProc::gather(shared.root_kind).map_err(|(step, errno)| step.failed(errno))?;
        shared.dev_proc.get_or_init(|| fixtures);
        Ok(())
    }

    /// Reports that the ids are mapped. With `take_ids` the helper takes on the inside ids.
    pub(crate) fn report_ids_mapped(&self, take_ids: bool) {
        let shared = self.0.shared();
        shared.take_ids.store(take_ids.into(), Ordering::Relaxed);
        shared.ids_mapped.set();
    }

    /// The root that the helper makes, once it exists; `None` where it makes none.
    pub(crate) fn wait_for_root(&self) -> Result<Option<OwnedFd>, Failure> {
        let shared = self.0.shared();
        if shared.root_content.is_some() {
            self.wait(&shared.root_made, Wall::Root)?;
        }
        let root = shared.root.swap(NONE, Ordering::Relaxed);
        // SAFETY: the helper has opened this descriptor for us and no longer uses it.
        Ok((root != NONE).then(|| unsafe { OwnedFd::from_raw_fd(root) }))
    }

    /// Reports that this process has left the host's root, so that the helper can unmount it.
    pub(crate) fn report_root_entered(&self) {
        self.0.shared().root_entered.set();
    }

    /// Waits until the host's root is unmounted.
    pub(crate) fn wait_until_host_root_is_gone(&self) -> Result<(), Failure> {
        self.wait(&self.0.shared().host_root_gone, Wall::Root)
    }

    /// Attaches the fixtures below the current root, except those that the helper attaches:
    /// `/proc`, and those whose mount points exist already. Returns whether `/proc` is possible.
    pub(crate) fn attach_dev_proc(&self) -> Result<bool, Failure> {
        let shared = self.0.shared();
        let failed = |(step, errno): (Step, Errno)| step.failed(errno);
        let Some(fixtures) = shared.dev_proc.get() else {
            return Err(Step::Device.failed(Errno::INVAL));
        };
        fixtures.attach_first().map_err(failed)?;
        shared.proc_ready.set();
        if !shared.has_mount_points() {
            fixtures.attach_devices().map_err(failed)?;
            let terminals = DevProc::new_terminals().map_err(failed)?;
            fixtures.attach_terminals(&terminals).map_err(failed)?;
        }
        Ok(fixtures.has_proc())
    }

    /// Waits until `/dev` is complete.
    pub(crate) fn wait_for_devices(&self) -> Result<(), Failure> {
        let shared = self.0.shared();
        if shared.has_mount_points() {
            self.wait(&shared.devices_attached, Wall::Devices)
        } else {
            Ok(())
        }
    }

    /// Waits for an event that is also set when a step has failed.
    fn wait(&self, event: &Event, wall: Wall) -> Result<(), Failure> {
        self.0.wait(event, DEADLINE).at(wall, || "wait for the helper".to_owned())?;
        if self.0.shared().failed.load(Ordering::Relaxed) == 0 { Ok(()) } else { self.finish() }
    }

    /// Enters the network namespace, once it is complete.
    pub(crate) fn enter_network(&self) -> Result<(), Failure> {
        let words = |text: &'static str| move || text.to_owned();
        let shared = self.0.shared();
        self.0
            .wait(&shared.network_made, DEADLINE)
            .at(Wall::Network, words("wait for the network"))?;
        let network = shared.network.swap(NONE, Ordering::Relaxed);
        if network == NONE {
            return self.finish();
        }
        // SAFETY: the helper has opened this descriptor for us and no longer uses it.
        let network = unsafe { OwnedFd::from_raw_fd(network) };
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(network.as_fd(), kind)
            .at(Wall::Network, words("enter the network"))
    }

    /// Kills and reaps the helper, but leaves its memory mapped until this process ends, because
    /// unmapping takes longer. Its file descriptors stay open.
    pub(crate) fn leak(self) {
        self.0.leak();
    }

    /// The network listeners, where they were requested. Must be called after [`VmHelper::finish`].
    pub(crate) fn listeners(&self) -> Option<Listeners> {
        let is_egress = self.0.shared().network_content == Network::Egress;
        is_egress.then(|| Listeners::take_from(self.opened())).flatten()
    }

    /// The listeners of a network without access, where they were requested. Must be called after
    /// [`VmHelper::finish`].
    pub(crate) fn stub_listeners(&self) -> Option<StubListeners> {
        let is_stub = self.0.shared().network_content == Network::Stub;
        is_stub.then(|| StubListeners::take_from(self.opened())).flatten()
    }

    /// The sockets that the helper has opened.
    fn opened(&self) -> impl Iterator<Item = OwnedFd> {
        let slots = self.0.shared().listeners.iter();
        let opened = slots.map(|slot| slot.swap(NONE, Ordering::Relaxed));
        // SAFETY: the helper has opened these descriptors for us and no longer uses them.
        let owned = |descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) };
        opened.filter(|descriptor| *descriptor != NONE).map(owned)
    }

    /// Waits until the helper has done all its work; returns the error of the step that failed. The
    /// process is about to exit then.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let shared = self.0.shared();
        self.0
            .wait(&shared.finished, DEADLINE)
            .at(Wall::Proc, || "wait for the helper".to_owned())?;
        let failed = shared.failed.load(Ordering::Relaxed);
        match Step::ALL.into_iter().find(|step| *step as u8 == failed) {
            None => Ok(()),
            Some(step) => {
                Err(step.failed(Errno::from_raw_os_error(shared.errno.load(Ordering::Relaxed))))
            }
        }
    }
}

impl Shared {
    /// Whether the root has the mount points of the fixtures from the start.
    fn has_mount_points(&self) -> bool {
        self.root_kind == dev_proc::Root::Populated
    }
}

/// The helper's own code.
fn run(shared: &Shared) {
    if let Err((step, errno)) = work(shared) {
        shared.errno.store(errno.raw_os_error(), Ordering::Relaxed);
        shared.failed.store(step as u8, Ordering::Relaxed);
    }
    shared.finished.set();
    shared.network_made.set();
    shared.root_made.set();
    shared.devices_attached.set();
    shared.host_root_gone.set();
}

fn work(shared: &Shared) -> Result<(), (Step, Errno)> {
    if shared.root_content.is_none() {
        make_network(shared)?;
    }
    shared.ids_mapped.wait();
    if shared.take_ids.load(Ordering::Relaxed) != 0 {
        crate::command::become_ids(0, 0, &[]).map_err(|errno| (Step::Ids, errno))?;
    }
    // This process has inherited the caller's umask.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    if let Some(content) = &shared.root_content {
        let root = DevProc::new_root()?;
        content.make(root.as_fd()).map_err(|errno| (Step::Content, errno))?;
        shared.root.store(root.into_raw_fd(), Ordering::Relaxed);
        shared.root_made.set();
        make_network(shared)?;
    }
    let keep = |opened: &mut dyn Iterator<Item = OwnedFd>| {
        for (slot, listener) in shared.listeners.iter().zip(opened) {
            slot.store(listener.into_raw_fd(), Ordering::Relaxed);
        }
    };
    match shared.network_content {
        Network::Off => {}
        Network::Stub => {
            let opened = stub::open().map_err(|errno| (Step::ListenStub, errno))?;
            keep(&mut opened.into_iter());
        }
        Network::Egress => keep(&mut egress::open()?.into_iter()),
    }
    let terminals = if shared.has_mount_points() { Some(DevProc::new_terminals()?) } else { None };
    shared.root_entered.wait();
    if let (Some(terminals), Some(fixtures)) = (terminals, shared.dev_proc.get()) {
        fixtures.attach_devices()?;
        fixtures.attach_terminals(&terminals)?;
        shared.devices_attached.set();
    }
    mounts::detach_old_root().map_err(|errno| (Step::HostRoot, errno))?;
    shared.host_root_gone.set();
    shared.proc_ready.wait();
    shared.dev_proc.get().map_or(Ok(()), DevProc::attach_proc)?;
    boot_id::mount().map_err(|errno| (Step::Mask, errno))
}

/// Creates the network namespace and its content.
fn make_network(shared: &Shared) -> Result<(), (Step, Errno)> {
    let settings = shared.settings.swap(NONE, Ordering::Relaxed);
    // SAFETY: the descriptor was opened for the helper, and nothing else uses it.
    let settings = (settings != NONE).then(|| unsafe { OwnedFd::from_raw_fd(settings) });
    let network = network::make(0).map_err(|errno| (Step::Network, errno))?;
    if let Some(settings) = settings {
        network::open_low_ports(&settings);
    }
    shared.network.store(network, Ordering::Relaxed);
    shared.network_made.set();
    Ok(())
}
