//! Init as a program of its own: bubblewrap executes it as pid 1 of the namespaces that it has made,
//! with the filter installed. It checks what bubblewrap promises, reports to the launcher as the init
//! of any persistent jail does, and serves.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};

use crate::channel::{Channel, FromInit};
use crate::init::serve::{Descriptors, Init, Users};
use crate::landlock::{self, Access, Scope};
use crate::mounts::{self, At as _, Failure};
use crate::network::Listeners;
use crate::rlimits::{LIMITS, ResourceLimits};
use crate::walls::Wall;
use crate::{init_allocator, sys};

/// The first argument of the program that continues as init; the number of the descriptor with its
/// configuration follows.
pub const ARGUMENT: &str = "__init";

/// The largest configuration, in bytes.
const MOST_BYTES: usize = 1 << 20;

/// What init gets from the launcher. Descriptors are numbers: they are inherited.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub(crate) channel: RawFd,
    pub(crate) listener: RawFd,
    pub(crate) locks: Vec<RawFd>,
    pub(crate) listeners: Vec<RawFd>,
    pub(crate) lease: Duration,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// Landlock's version; 0 where the jail may be without.
    pub(crate) landlock: i32,
    pub(crate) rlimits: ResourceLimits,
    /// The paths with their Landlock rights, except `/dev`.
    pub(crate) targets: Vec<(CString, Access)>,
    /// Where commands may connect to sockets that they did not make, if that is restricted.
    pub(crate) sockets: Option<Vec<CString>>,
}

/// Runs init. Returns the exit code of a process that could not become init; otherwise the process
/// ends with the jail.
pub fn run(arguments: &[OsString]) -> u8 {
    let number = match arguments {
        [number] => number.to_str().and_then(|text| text.parse::<RawFd>().ok()),
        _ => None,
    };
    let Some(number) = number.filter(|number| *number > 2) else { return 2 };
    // Nothing that is opened from here on, and nothing inherited, reaches a command.
    if sys::close_on_exec_from(3).is_err() {
        return 1;
    }
    let Some(configuration) = Configuration::read(number) else { return 2 };
    // SAFETY: the launcher has passed this descriptor on to this process, and nothing else uses it.
    let channel = Channel::from_descriptor(unsafe { OwnedFd::from_raw_fd(configuration.channel) });
    match start(configuration, &channel) {
        Ok(init) => {
            drop(channel);
            sys::exit_now(init.run())
        }
        Err(Failure { wall, step, errno }) => {
            // If this fails, the launcher sees the end of the socket.
            let _ = channel.send(&FromInit::Failed { wall, errno, step }.encode(), &[]);
            1
        }
    }
}

fn start(configuration: Configuration, channel: &Channel) -> Result<Box<Init>, Failure> {
    let words = |text: &'static str| move || text.to_owned();
    sys::set_process_name(c"stockade-init");
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // Later it cannot read about itself.
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
    match threads.at(Wall::Proc, words("count the threads"))? {
        1 => {}
        _ => return Err(Errno::BUSY).at(Wall::Pid, words("continue with one thread")),
    }
    sys::prctl(libc::PR_SET_DUMPABLE, 0).at(Wall::Inheritance, words("become undumpable"))?;
    check(&configuration)?;
    mounts::check_root()?;
    let Configuration { listener, locks, listeners, lease, user, group, .. } = configuration;
    let Configuration { landlock, rlimits, targets, sockets, .. } = configuration;
    let ruleset = match landlock {
        0 => None,
        _ => Some(landlock::command_ruleset(&targets, sockets.as_deref(), Scope::Namespaces)?),
    };
    // SAFETY: the launcher has passed these descriptors on to this process, each under one name.
    let owned = |number: RawFd| unsafe { OwnedFd::from_raw_fd(number) };
    let listener = owned(listener);
    let is_network = !listeners.is_empty();
    let listeners = Listeners::take_from(listeners.into_iter().map(owned));
    if is_network != listeners.is_some() {
        return Err(Errno::BADF).at(Wall::Network, words("take the listeners"));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root =
        rustix::fs::open("/", flags, Mode::empty()).at(Wall::Root, words("open the root"))?;
    let ready = FromInit::Ready {
        terminal: false,
        upper: false,
        root: true,
        mounts: false,
        refused_calls: false,
        follows_renames: false,
        listeners: is_network,
        proc_missing: false,
        landlock,
    };
    let handed: Vec<BorrowedFd<'_>> = [std::os::fd::AsFd::as_fd(&root)]
        .into_iter()
        .chain(listeners.iter().flat_map(Listeners::each))
        .collect();
    let descriptors =
        Descriptors::open().at(Wall::Inheritance, words("open init's descriptors"))?;
    channel
        .send(&ready.encode(), &handed)
        .at(Wall::Inheritance, words("report to the supervisor"))?;
    let own = [listener.as_raw_fd(), std::os::fd::AsFd::as_fd(channel).as_raw_fd()]
        .into_iter()
        .chain(locks)
        .chain(handed.iter().map(|open| open.as_raw_fd()))
        .chain(ruleset.iter().map(|rules| std::os::fd::AsFd::as_fd(rules).as_raw_fd()))
        .chain(descriptors.each().map(|open| open.as_raw_fd()));
    sys::close_all_but(own.collect()).at(Wall::Inheritance, words("close the descriptors"))?;
    // SAFETY: this process has a single thread, checked above.
    unsafe { init_allocator::switch_to_fresh_memory() }
        .at(Wall::Inheritance, words("switch to fresh memory"))?;
    let parts = (Users::Own(user, group), rlimits, ruleset);
    Ok(Box::new(Init::new(listener, descriptors, (root, listeners), lease, parts)))
}

/// Checks that bubblewrap has done what this process relies on.
fn check(configuration: &Configuration) -> Result<(), Failure> {
    let refuse = |wall: Wall, what: &'static str| {
        Err(Errno::PERM).at(wall, || format!("check what bubblewrap has made: {what}"))
    };
    if rustix::process::getpid() != rustix::process::Pid::INIT {
        return refuse(Wall::Pid, "init is not the first process of its namespace");
    }
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if own != (configuration.user, configuration.group) {
        return refuse(Wall::User, "init has other ids than the sandbox");
    }
    let sets = capabilities(None).at(Wall::Capabilities, || "read the capabilities".to_owned())?;
    if sets.permitted != CapabilitySet::empty() || sets.inheritable != CapabilitySet::empty() {
        return refuse(Wall::Capabilities, "init has capabilities");
    }
    if !sys::is_confined() {
        return refuse(Wall::Seccomp, "the filter is not installed");
    }
    Ok(())
}

/// Writes numbers and texts.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn descriptor(&mut self, descriptor: RawFd) {
        self.number(u64::from(descriptor.cast_unsigned()));
    }

    fn text(&mut self, text: &CStr) {
        self.number(text.to_bytes().len() as u64);
        self.0.extend(text.to_bytes());
    }

    fn list<T>(&mut self, list: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.number(list.len() as u64);
        list.iter().for_each(|one| each(self, one));
    }
}

/// Reads what a [`Writer`] has written.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes(&mut self, length: usize) -> Option<&[u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn descriptor(&mut self) -> Option<RawFd> {
        self.small()?.try_into().ok()
    }

    fn text(&mut self) -> Option<CString> {
        let length = self.number()?.try_into().ok()?;
        CString::new(self.bytes(length)?).ok()
    }

    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = self.number()?;
        // Each element has at least one byte.
        let is_possible = length <= self.0.len() as u64;
        is_possible.then(|| (0..length).map(|_| each(self)).collect())?
    }
}

impl Configuration {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { channel, listener, locks, listeners, lease, user, group, .. } = self;
        let Self { landlock, rlimits, targets, sockets, .. } = self;
        let mut to = Writer::default();
        to.descriptor(*channel);
        to.descriptor(*listener);
        to.list(locks, |to, lock| to.descriptor(*lock));
        to.list(listeners, |to, listener| to.descriptor(*listener));
        to.number(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
        to.number(u64::from(*user));
        to.number(u64::from(*group));
        to.number(u64::from(landlock.cast_unsigned()));
        for limit in rlimits.to_numbers() {
            to.number(u64::from(limit.is_some()));
            to.number(limit.unwrap_or_default());
        }
        to.list(targets, |to, (path, access)| {
            to.text(path);
            let index = Access::ALL.iter().position(|known| known == access);
            to.number(index.unwrap_or_default() as u64);
        });
        to.number(u64::from(sockets.is_some()));
        to.list(sockets.as_deref().unwrap_or_default(), |to, path| to.text(path));
        to.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let (channel, listener) = (from.descriptor()?, from.descriptor()?);
        let (locks, listeners) = (from.list(Reader::descriptor)?, from.list(Reader::descriptor)?);
        let lease = Duration::from_millis(from.number()?);
        let (user, group) = (from.small()?, from.small()?);
        let landlock = from.small()?.cast_signed();
        let mut limits = [None; LIMITS];
        for limit in &mut limits {
            let is_set = from.number()? == 1;
            let number = from.number()?;
            *limit = is_set.then_some(number);
        }
        let targets = from.list(|from| {
            let path = from.text()?;
            let index = usize::try_from(from.number()?).ok()?;
            Some((path, *Access::ALL.get(index)?))
        })?;
        let has_sockets = from.number()? == 1;
        let sockets = from.list(Reader::text)?;
        let configuration = Self {
            channel,
            listener,
            locks,
            listeners,
            lease,
            user,
            group,
            landlock,
            rlimits: ResourceLimits::from_numbers(limits),
            targets,
            sockets: has_sockets.then_some(sockets),
        };
        from.0.is_empty().then_some(configuration)
    }

    /// Reads it from a descriptor, which is closed then.
    fn read(number: RawFd) -> Option<Self> {
        // SAFETY: the launcher has passed this descriptor on to this process, and nothing else uses
        // it.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        let mut bytes = Vec::new();
        let mut file = io::Read::take(std::fs::File::from(file), MOST_BYTES as u64);
        io::Read::read_to_end(&mut file, &mut bytes).ok()?;
        Self::decode(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_survives_the_way_and_a_cut_one_is_refused() {
        let configuration = Configuration {
            channel: 3,
            listener: 4,
            locks: vec![5, 6],
            listeners: vec![7, 8, 9, 10],
            lease: Duration::from_secs(60),
            user: 1000,
            group: 100,
            landlock: 7,
            rlimits: ResourceLimits { processes: Some(64), ..ResourceLimits::default() },
            targets: vec![(c"/".to_owned(), Access::ReadExecute), (c"/tmp".into(), Access::Write)],
            sockets: Some(vec![c"/run".to_owned()]),
        };
        let bytes = configuration.encode();
        for length in 0..bytes.len() {
            assert_eq!(Configuration::decode(&bytes[..length]), None, "{length}");
        }
        assert_eq!(Configuration::decode(&bytes), Some(configuration));
    }
}
