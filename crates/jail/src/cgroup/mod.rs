//! Control groups: limits on what the processes of a jail use together.
//!
//! Each jail has one group, of version 1, 2 or both, depending on which has the controllers. A
//! limit that cannot be enforced is an error with its reason and remedy, never a warning. Without a
//! requested limit no group is created.

mod change;
mod detect;
mod files;
mod freezer;
mod parent;
mod remedy;
mod v1;
mod v2;
mod view;

#[cfg(test)]
mod live_tests;

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};

pub use change::ChangeRefused;
use detect::{Hierarchies, Unified};
use freezer::Freezer;
pub use parent::ParentGroup;
pub use remedy::Remedy;
use remedy::{Caller, Cause, TopGroup};
pub(crate) use view::{UnifiedView, View};

/// The limits of a jail; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, swap included.
    pub memory_bytes: Option<u64>,
    /// Thousandths of a processor's time: 1000 is one processor.
    pub cpu_millis: Option<u64>,
    /// Processes and threads, the jail's init included.
    pub pids: Option<u64>,
}

/// One kind of limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Memory.
    Memory,
    /// Processor time.
    Cpus,
    /// Processes and threads.
    Pids,
}

/// A jail's control groups. Dropping it removes them as far as that can be done.
#[derive(Debug, Default)]
pub struct Group {
    parts: Vec<Part>,
    /// Where all processes except init can be stopped.
    freezer: Option<Freezer>,
}

/// One directory of a group, in one hierarchy.
#[derive(Debug)]
struct Part {
    version: Version,
    directory: PathBuf,
    enforced: Vec<Limit>,
    /// The child of our own group that this process was moved to (version 2).
    leaf: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The limits that cannot be enforced here; no group was created.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct Unavailable {
    /// Each of them.
    pub refusals: Vec<Refusal>,
}

/// One limit that cannot be enforced here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The limit.
    pub limit: Limit,
    /// The reason, in one sentence.
    pub reason: String,
    /// How to fix it.
    pub remedy: Remedy,
}

impl Unavailable {
    fn text(&self) -> String {
        let each: Vec<_> = self
            .refusals
            .iter()
            .map(|refusal| format!("the {} limit: {}", refusal.limit.name(), refusal.reason))
            .collect();
        each.join("; ")
    }
}

impl Limit {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Cpus, Self::Pids];

    /// The limit's name in reports: `memory`, `cpus` or `pids`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpus => "cpus",
            Self::Pids => "pids",
        }
    }

    const fn controller(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpus => "cpu",
            Self::Pids => "pids",
        }
    }
}

impl Limits {
    const fn get(&self, limit: Limit) -> Option<u64> {
        match limit {
            Limit::Memory => self.memory_bytes,
            Limit::Cpus => self.cpu_millis,
            Limit::Pids => self.pids,
        }
    }

    /// These limits, restricted to those in `held`.
    fn only(&self, enforced: &[Limit]) -> Self {
        let keep = |limit| self.get(limit).filter(|_| enforced.contains(&limit));
        Self {
            memory_bytes: keep(Limit::Memory),
            cpu_millis: keep(Limit::Cpus),
            pids: keep(Limit::Pids),
        }
    }
}

/// The directory of a group; `None` where it cannot be opened.
fn open_group(directory: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(directory, flags, Mode::empty()).ok()
}

fn controllers_of(limits: &[Limit]) -> Vec<&'static str> {
    limits.iter().map(|limit| limit.controller()).collect()
}

/// The processor time and the period, in microseconds. The kernel requires a quota of at least a
/// millisecond, so small shares need a long period.
const fn cpu_quota(millis: u64) -> (u64, u64) {
    if millis < 10 { (millis * 1000, 1_000_000) } else { (millis.saturating_mul(100), 100_000) }
}

impl Group {
    /// Creates groups that enforce `limits`. `name` must be new: [`fresh_name`] makes one.
    ///
    /// On a host of version 2 the calling process may be moved into a child of its own group;
    /// removing the group moves it back.
    ///
    /// # Errors
    /// Every limit that cannot be enforced; then none is.
    pub fn create(name: &str, limits: &Limits) -> Result<Self, Unavailable> {
        if *limits == Limits::default() {
            return Ok(Self::default());
        }
        Self::create_in(&hierarchies(), name, limits)
    }

    fn create_in(
        hierarchies: &Hierarchies,
        name: &str,
        limits: &Limits,
    ) -> Result<Self, Unavailable> {
        let mut group = Self::default();
        let mut refusals = Vec::new();
        let mut refuse = |refused: &[Limit], unified: Option<&Unified>, cause: &Cause| {
            let asker = Caller {
                user: rustix::process::geteuid().as_raw(),
                systemd: Path::new("/run/systemd/system").exists(),
                unified: unified.map(|unified| TopGroup {
                    mount: &unified.mount,
                    is_root: v2::is_root(&unified.mount),
                }),
            };
            refusals.extend(refused.iter().map(|limit| Refusal {
                limit: *limit,
                reason: cause.reason(*limit),
                remedy: cause.remedy(*limit, asker),
            }));
        };

        let requested = Limit::ALL.into_iter().filter(|limit| limits.get(*limit).is_some());
        let (in_v1, in_v2): (Vec<_>, Vec<_>) =
            requested.partition(|limit| hierarchies.v1(*limit).is_some());
        // Controllers can share a hierarchy, and then the group.
        let mut directories: Vec<(&Path, Vec<Limit>)> = Vec::new();
        for (limit, own) in in_v1.into_iter().filter_map(|l| Some((l, hierarchies.v1(l)?))) {
            match directories.iter_mut().find(|(directory, _)| *directory == own) {
                Some((_, held)) => held.push(limit),
                None => directories.push((own, vec![limit])),
            }
        }
        for (own, held) in directories {
            match v1::make(own, name, &limits.only(&held)) {
                Ok(directory) => {
                    group.parts.push(Part {
                        version: Version::One,
                        directory,
                        enforced: held,
                        leaf: None,
                    });
                }
                Err(cause) => refuse(&held, None, &cause),
            }
        }
        // On a host with hierarchies of version 1, those are used.
        let manager = hierarchies.v2.as_ref().filter(|_| hierarchies.v1.is_empty());
        match Self::create_in_v2(hierarchies, name, &in_v2, limits) {
            Ok(mut unified) => group.parts.append(&mut unified.parts),
            Err(joint) => {
                // To find the limits that fail, each is tried by itself and removed again.
                let mut together = true;
                for limit in &in_v2 {
                    if let Err(cause) = Self::create_in_v2(hierarchies, name, &[*limit], limits) {
                        refuse(&[*limit], manager, &cause);
                        together = false;
                    }
                }
                if together {
                    refuse(&in_v2, manager, &joint);
                }
            }
        }
        if refusals.is_empty() { Ok(group) } else { Err(Unavailable { refusals }) }
    }

    /// The one group of version 2 that enforces some of the limits; `None` where there are none.
    fn create_in_v2(
        hierarchies: &Hierarchies,
        name: &str,
        enforced: &[Limit],
        limits: &Limits,
    ) -> Result<Self, Cause> {
        if enforced.is_empty() {
            return Ok(Self::default());
        }
        let unified = hierarchies.v2.as_ref().ok_or(Cause::NoController)?;
        let v2::NewGroup { directory, leaf } =
            v2::create_group(unified, name, &controllers_of(enforced))?;
        let part = Part {
            version: Version::Two,
            directory: directory.clone(),
            enforced: enforced.to_vec(),
            leaf,
        };
        let group = Self { parts: vec![part], freezer: None };
        v2::set(&directory, &limits.only(enforced))?;
        Ok(group)
    }

    /// Moves a process, and thereby all that it will start, into the groups. Must be called before
    /// the process continues.
    ///
    /// # Errors
    /// The kernel's error; the process may be in some of the groups then.
    pub fn add(&self, pid: i32) -> io::Result<()> {
        self.add_where(pid, |_| true)
    }

    /// Does the same for a process that was created in [`Group::clone_target`].
    pub(crate) fn add_forked(&self, pid: i32) -> io::Result<()> {
        self.add_where(pid, |version| version == Version::One)
    }

    fn add_where(&self, pid: i32, filter: impl Fn(Version) -> bool) -> io::Result<()> {
        let pid = pid.to_string();
        let parts = self.parts.iter().map(|part| (part.version, &part.directory));
        // The freezer comes last, as it may lie in one of the others.
        let freezer = self.freezer.iter().map(|freezer| (freezer.version, &freezer.directory));
        parts
            .chain(freezer)
            .filter(|(version, _)| filter(*version))
            .try_for_each(|(_, directory)| files::write(directory, "cgroup.procs", &pid))
    }

    /// The group of version 2 in which a process can be created, so that it need not be moved
    /// there.
    pub(crate) fn clone_target(&self) -> Option<OwnedFd> {
        let freezer = self.freezer.iter().map(|freezer| (freezer.version, &freezer.directory));
        let parts = self.parts.iter().map(|part| (part.version, &part.directory));
        let (_, directory) = freezer.chain(parts).find(|(version, _)| *version == Version::Two)?;
        open_group(directory)
    }

    /// What enforces a limit, `cgroup v1` or `cgroup v2`; `None` where this group does not.
    pub fn enforcer(&self, limit: Limit) -> Option<&'static str> {
        self.part(limit).map(|part| match part.version {
            Version::One => "cgroup v1",
            Version::Two => "cgroup v2",
        })
    }

    fn part(&self, limit: Limit) -> Option<&Part> {
        self.parts.iter().find(|part| part.enforced.contains(&limit))
    }

    /// How many processes were killed for lack of memory; 0 where memory is not limited.
    ///
    /// # Errors
    /// The error of reading the counter.
    pub fn oom_kills(&self) -> io::Result<u64> {
        match self.part(Limit::Memory) {
            None => Ok(0),
            Some(part) => match part.version {
                Version::One => v1::oom_kills(&part.directory),
                Version::Two => v2::oom_kills(&part.directory),
            },
        }
    }

    /// The peak memory use, in bytes.
    ///
    /// # Errors
    /// `NotFound` where memory is not limited or the kernel does not report it.
    pub fn memory_peak(&self) -> io::Result<u64> {
        match self.part(Limit::Memory) {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(part) => match part.version {
                Version::One => v1::memory_peak(&part.directory),
                Version::Two => v2::memory_peak(&part.directory),
            },
        }
    }

    /// The current memory use, in bytes, including the page cache.
    ///
    /// # Errors
    /// `NotFound` where memory is not limited or the kernel does not report it.
    pub fn memory_current(&self) -> io::Result<u64> {
        let part = self.part(Limit::Memory).ok_or(io::ErrorKind::NotFound)?;
        let name = match part.version {
            Version::One => "memory.usage_in_bytes",
            Version::Two => "memory.current",
        };
        files::number(&part.directory, name)
    }

    /// Kills every process in the groups and waits until none exists.
    ///
    /// # Errors
    /// `TimedOut` when some are left after two seconds, else the kernel's error.
    pub fn kill(&self) -> io::Result<()> {
        self.parts.iter().try_for_each(|part| match part.version {
            Version::One => v1::kill(&part.directory, &part.enforced),
            Version::Two => v2::kill(&part.directory),
        })
    }

    /// Removes the groups, whose processes must be dead or dying.
    ///
    /// # Errors
    /// The error of the first that could not be removed: `ResourceBusy` when processes live in it.
    pub fn remove(mut self) -> io::Result<()> {
        self.remove_parts()
    }

    fn remove_parts(&mut self) -> io::Result<()> {
        let mut result = match self.freezer.take() {
            Some(freezer) => files::remove_group(&freezer.directory),
            None => Ok(()),
        };
        for part in self.parts.drain(..) {
            let removed = files::remove_group(&part.directory);
            result = result.and(removed);
            if let (Some(own), Some(leaf)) = (part.directory.parent(), &part.leaf) {
                v2::move_back(own, leaf, &controllers_of(&part.enforced));
            }
        }
        result
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Callers that need the result call `remove`; `sweep` removes what is left.
        let _ = self.remove_parts();
    }
}

const PREFIX: &str = "stockade-";

/// A name for a new group, from which [`sweep`] recognises the creator.
pub fn fresh_name() -> String {
    let random = RandomState::new().hash_one(SystemTime::now());
    format!("{PREFIX}{}-{:x}-{random:016x}", std::process::id(), process_namespace())
}

/// The number of this process's pid namespace; 0 where it is unknown.
fn process_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// Removes the groups that killed processes of Stockade left behind, and returns how many: empty
/// ones whose creator is dead. A creator in another pid namespace looks dead while it lives, and
/// its group is empty for a moment, so such a group is left alone for a minute.
pub fn sweep() -> usize {
    let found = hierarchies();
    let own = found.v1.iter().map(|(_, directory)| directory.as_path());
    let unified = found.v2.iter().flat_map(|unified| {
        unified.own.ancestors().take_while(|group| group.starts_with(&unified.mount))
    });
    let freezer = found.freezer.as_deref();
    own.chain(unified).chain(freezer).map(|parent| sweep_in(parent, Duration::from_secs(60))).sum()
}

fn sweep_in(parent: &Path, age: Duration) -> usize {
    let Ok(entries) = fs::read_dir(parent) else { return 0 };
    let own = format!("{:x}", process_namespace());
    let abandoned = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let (maker, rest) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
        let maker = maker.parse::<u32>().ok()?;
        let is_of_here = rest.split_once('-').is_some_and(|(namespace, _)| namespace == own);
        let made = entry.metadata().ok()?.modified().ok()?;
        let old = SystemTime::now().duration_since(made).is_ok_and(|since| since >= age);
        let is_dead = !Path::new("/proc").join(maker.to_string()).exists();
        (is_dead && (old || is_of_here)).then_some(())
    };
    entries
        .flatten()
        .filter(|entry| abandoned(entry).is_some())
        // The kernel refuses to remove a group that has processes.
        .filter(|entry| parent::remove_abandoned(&entry.path()).is_ok())
        .count()
}

fn hierarchies() -> Hierarchies {
    // Without /proc nothing is found, and every limit is reported as unavailable.
    let read = |file: &str| fs::read(Path::new("/proc/self").join(file)).unwrap_or_default();
    detect::parse(&read("cgroup"), &read("mountinfo"))
}

/// How many processes of a group were killed for lack of memory, where another program has made the
/// group: that of this process.
///
/// # Errors
/// The error of finding the group, or of reading the counter.
pub fn oom_kills_beside(process: i32) -> io::Result<u64> {
    let own = std::fs::read(format!("/proc/{process}/cgroup"))?;
    let found = detect::parse(&own, &std::fs::read("/proc/self/mountinfo")?);
    match (found.v1(Limit::Memory), &found.v2) {
        (Some(directory), _) => v1::oom_kills(directory),
        (None, Some(unified)) => v2::oom_kills(&unified.own),
        (None, None) => Err(io::ErrorKind::NotFound.into()),
    }
}
