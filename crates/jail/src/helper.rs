//! A second process that raises walls beside the jail's first one: it makes the network, which takes
//! longest of all, then a root of the jail's own with what is in it, lets go of the host's root and
//! furnishes `/proc`, while the first one does all else.
//!
//! It shares memory and descriptors with the first process and runs at the same time. So it
//! allocates nothing, touches nothing but what is meant for it, and makes bare calls on a stack of
//! its own. It ends before the command starts.

use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::LinkNameSpaceType;

use crate::beside::Beside;
use crate::content::Content;
use crate::fixtures::{self, Fixtures, Step};
use crate::mounts::{self, At as _, Failure};
use crate::network::{self, Listeners, egress};
use crate::spec::Network;
use crate::walls::Wall;
use crate::word::Word;

/// How long it may take on a machine under heavy load.
const DEADLINE: Duration = Duration::from_secs(20);
/// The helper makes a few calls and holds small structures.
const STACK_BYTES: usize = 64 * 1024;

/// No descriptor.
const NONE: RawFd = -1;

/// The helper. Dropping this waits for its end.
#[derive(Debug)]
pub(crate) struct Helper(Beside<Shared>);

#[derive(Debug)]
struct Shared {
    /// What there is to be in the network.
    network_content: Network,
    /// What is to be in a root of the jail's own, where it is to have one.
    root_content: Option<Content>,
    /// What every jail has, and the root that it is attached in.
    fixtures: OnceLock<Fixtures>,
    kind: fixtures::Root,
    /// Whether the inside ids are to be taken on.
    take_ids: AtomicU8,
    /// The ids are mapped.
    mapped: Word,
    /// What is to be put together is there.
    gathered: Word,
    /// The jail's own root, where it was made here.
    root: AtomicI32,
    /// The jail's root is that of both processes.
    entered: Word,
    /// Nothing is left of the host's.
    alone: Word,
    /// What is in `/dev` is there, where the helper attaches it.
    terminals: Word,
    /// What `/proc` needs is in its place.
    furnished: Word,
    /// The network is there.
    networked: Word,
    /// There is nothing left to do, or something has failed.
    over: Word,
    /// The network's namespace.
    network: AtomicI32,
    /// The network's listeners, where there are to be some.
    listeners: [AtomicI32; egress::LISTENERS],
    /// The step that failed, and its error number.
    failed: AtomicU8,
    errno: AtomicI32,
}

impl Helper {
    /// Starts the helper. Nobody has anything yet of a root with `root_content`.
    pub(crate) fn start(
        network_content: Network,
        kind: fixtures::Root,
        root_content: Option<Content>,
    ) -> io::Result<Self> {
        let shared = Shared {
            network_content,
            root_content,
            fixtures: OnceLock::new(),
            kind,
            take_ids: AtomicU8::new(0),
            mapped: Word::default(),
            gathered: Word::default(),
            root: AtomicI32::new(NONE),
            entered: Word::default(),
            alone: Word::default(),
            terminals: Word::default(),
            furnished: Word::default(),
            networked: Word::default(),
            over: Word::default(),
            network: AtomicI32::new(NONE),
            listeners: [const { AtomicI32::new(NONE) }; egress::LISTENERS],
            failed: AtomicU8::new(0),
            errno: AtomicI32::new(0),
        };
        // SAFETY: `run` allocates nothing, touches nothing else and makes bare calls.
        unsafe { Beside::start(shared, STACK_BYTES, run) }.map(Self)
    }

    /// Takes hold of the fixtures, while the host's root is there.
    pub(crate) fn gather(&self) -> Result<(), Failure> {
        let shared = self.0.shared();
        let fixtures = Fixtures::gather(shared.kind).map_err(|(step, errno)| step.failed(errno))?;
        shared.fixtures.get_or_init(|| fixtures);
        Ok(())
    }

    /// Says that the ids are mapped. With `take_ids` the helper takes on the inside ids, which are not
    /// its own yet.
    pub(crate) fn say_mapped(&self, take_ids: bool) {
        let shared = self.0.shared();
        shared.take_ids.store(take_ids.into(), Ordering::Relaxed);
        shared.mapped.say();
    }

    /// Waits until the root is there, where it was made here.
    pub(crate) fn gathered(&self) -> Result<Option<OwnedFd>, Failure> {
        let shared = self.0.shared();
        if shared.root_content.is_some() {
            self.hear(&shared.gathered, Wall::Root)?;
        }
        let root = shared.root.swap(NONE, Ordering::Relaxed);
        // SAFETY: the helper has opened this descriptor for us and does nothing with it any more.
        Ok((root != NONE).then(|| unsafe { OwnedFd::from_raw_fd(root) }))
    }

    /// Has the helper let go of the host's root, which must have been left for the jail's.
    pub(crate) fn let_go(&self) {
        self.0.shared().entered.say();
    }

    /// Waits until nothing is left of the host's root.
    pub(crate) fn wait_until_alone(&self) -> Result<(), Failure> {
        self.hear(&self.0.shared().alone, Wall::Root)
    }

    /// Attaches the fixtures below the current root, of which `/proc` is left to the helper, and all that
    /// has its place there; whether there can be a `/proc`.
    pub(crate) fn furnish(&self) -> Result<bool, Failure> {
        let shared = self.0.shared();
        let failed = |(step, errno): (Step, Errno)| step.failed(errno);
        let Some(fixtures) = shared.fixtures.get() else {
            return Err(Step::Device.failed(Errno::INVAL));
        };
        fixtures.attach_first().map_err(failed)?;
        shared.furnished.say();
        if !shared.has_places() {
            fixtures.attach_devices().map_err(failed)?;
            let terminals = Fixtures::new_terminals().map_err(failed)?;
            fixtures.attach_terminals(&terminals).map_err(failed)?;
        }
        Ok(fixtures.has_proc())
    }

    /// Waits until `/dev` is complete.
    pub(crate) fn wait_for_terminals(&self) -> Result<(), Failure> {
        let shared = self.0.shared();
        if shared.has_places() { self.hear(&shared.terminals, Wall::Devices) } else { Ok(()) }
    }

    /// Waits for a word that is also said when something has failed.
    fn hear(&self, word: &Word, wall: Wall) -> Result<(), Failure> {
        self.0.expect(word, DEADLINE).at(wall, || "wait for the helper".to_owned())?;
        if self.0.shared().failed.load(Ordering::Relaxed) == 0 { Ok(()) } else { self.finish() }
    }

    /// Enters the network, once it is there.
    pub(crate) fn enter_network(&self) -> Result<(), Failure> {
        let words = |text: &'static str| move || text.to_owned();
        let shared = self.0.shared();
        self.0
            .expect(&shared.networked, DEADLINE)
            .at(Wall::Network, words("wait for the network"))?;
        let network = shared.network.swap(NONE, Ordering::Relaxed);
        if network == NONE {
            return self.finish();
        }
        // SAFETY: the helper has opened this descriptor for us and does nothing with it any more.
        let network = unsafe { OwnedFd::from_raw_fd(network) };
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(network.as_fd(), kind)
            .at(Wall::Network, words("enter the network"))
    }

    /// Waits for the helper's end, and leaves what it held to this process's: nobody waits then until
    /// all of it is given back, piece by piece. The descriptors stay open.
    pub(crate) fn leave(self) {
        self.0.leave();
    }

    /// The network's listeners, once all is done, where there are to be some.
    pub(crate) fn listeners(&self) -> Option<Listeners> {
        let places = self.0.shared().listeners.iter();
        let opened = places.map(|place| place.swap(NONE, Ordering::Relaxed));
        // SAFETY: the helper has opened these descriptors for us and does nothing with them.
        let owned = |descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) };
        Listeners::of(opened.filter(|descriptor| *descriptor != NONE).map(owned))
    }

    /// Waits until all is done. The helper is about to end.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let shared = self.0.shared();
        self.0
            .expect(&shared.over, DEADLINE)
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
    /// Whether the root has places for the fixtures from the start.
    fn has_places(&self) -> bool {
        self.kind == fixtures::Root::Furnished
    }
}

/// The helper's own code.
fn run(shared: &Shared) {
    if let Err((step, errno)) = work(shared) {
        shared.errno.store(errno.raw_os_error(), Ordering::Relaxed);
        shared.failed.store(step as u8, Ordering::Relaxed);
    }
    shared.over.say();
    shared.networked.say();
    shared.gathered.say();
    shared.terminals.say();
    shared.alone.say();
}

fn work(shared: &Shared) -> Result<(), (Step, Errno)> {
    if shared.root_content.is_none() {
        make_network(shared)?;
    }
    shared.mapped.wait();
    if shared.take_ids.load(Ordering::Relaxed) != 0 {
        crate::command::become_ids(0, 0).map_err(|errno| (Step::Ids, errno))?;
    }
    // Both are the caller's, as they were when this process began.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    if let Some(content) = &shared.root_content {
        let root = Fixtures::new_root()?;
        content.make(root.as_fd()).map_err(|errno| (Step::Content, errno))?;
        shared.root.store(root.into_raw_fd(), Ordering::Relaxed);
    }
    shared.gathered.say();
    if shared.root_content.is_some() {
        make_network(shared)?;
    }
    if shared.network_content == Network::Egress {
        for (place, listener) in shared.listeners.iter().zip(egress::open()?) {
            place.store(listener.into_raw_fd(), Ordering::Relaxed);
        }
    }
    let terminals = if shared.has_places() { Some(Fixtures::new_terminals()?) } else { None };
    shared.entered.wait();
    if let (Some(terminals), Some(fixtures)) = (terminals, shared.fixtures.get()) {
        fixtures.attach_devices()?;
        fixtures.attach_terminals(&terminals)?;
        shared.terminals.say();
    }
    mounts::let_go_of_old_root().map_err(|errno| (Step::HostRoot, errno))?;
    shared.alone.say();
    shared.furnished.wait();
    shared.fixtures.get().map_or(Ok(()), Fixtures::attach_proc)
}

/// Makes the network.
fn make_network(shared: &Shared) -> Result<(), (Step, Errno)> {
    let network = network::make(0).map_err(|errno| (Step::Network, errno))?;
    shared.network.store(network, Ordering::Relaxed);
    shared.networked.say();
    Ok(())
}
