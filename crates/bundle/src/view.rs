//! Copy-on-write views of a project: the directories that receive a command's changes, separate
//! from the project.
//!
//! This module creates, finds and removes views. It mounts nothing and starts no process.
//! `scan` evaluates the changes that the command made.

mod collected;
mod copy;
mod hard_links;
mod placed;
mod pool;
mod record;
mod repository;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;

pub use collected::{LayerChanges, LayerCollector};
pub use copy::{copy_whole, later_stamp};
pub use hard_links::{HardLinkLimits, HardLinks};
pub(crate) use placed::PlacedDirectories;
pub use record::{Record, Summary, ViewPurpose};
pub use repository::DIRECTORY as REPOSITORY;

use crate::beneath::{self, Dir, Timestamp};
use crate::claim;
use crate::data::{self, DataDir};
use crate::layer::Marks;
use crate::manifest::ViewKind;
use crate::path::RelativePath;
use crate::project::Project;

/// The mapping of a sandbox's ids to host ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// The host id of inside id 0.
    pub host_start: u32,
    /// The number of ids.
    pub count: u32,
}

/// A view that this process has locked; no other process can open or remove it meanwhile.
#[derive(Debug)]
pub struct View {
    name: RelativePath,
    /// The name of the unused view that it was made from.
    pool_name: Option<RelativePath>,
    views: Dir,
    /// Locked as long as it is open.
    dir: Dir,
    layers: Layers,
    /// The layer of the git directory, where that lies outside of the project.
    repository: Option<Dir>,
    record: Record,
    /// Paths that no bundle of it contains.
    excluded: Vec<RelativePath>,
}

#[derive(Debug)]
enum Layers {
    Overlay { upper: Dir, work: Dir },
    Copy { copy: Dir },
    Collected { upper: Dir, removed: Vec<RelativePath> },
}

/// Why a view could not be created, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// An operation on the view's own directories failed.
    #[error("cannot {operation} the view")]
    Operation {
        /// The attempted operation, as a verb.
        operation: &'static str,
        /// Why.
        #[source]
        source: beneath::Error,
    },
    /// Another process uses the view.
    #[error("the view {0} is in use")]
    InUse(String),
    /// There is no such view.
    #[error("there is no view {0}")]
    NotFound(String),
    /// The view's description is missing or invalid.
    #[error("the record of the view {id} is invalid: {reason}")]
    Record {
        /// The view.
        id: String,
        /// What is wrong.
        reason: String,
    },
    /// The project's owner has no id inside the sandbox.
    #[error("the project's owner {owner} has no id inside; {count} ids are available")]
    Unmapped {
        /// The owner's uid or gid.
        owner: u32,
        /// The number of ids inside.
        count: u32,
    },
    /// A file of the project could not be copied.
    #[error("cannot copy {path}")]
    Copy {
        /// The file, printable.
        path: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Ownership {
    /// The host id for what belongs to `id` on disk.
    fn host_id(self, id: u32) -> Result<u32, Error> {
        // Ids that have no counterpart inside become root there.
        let inside = if id < self.count { id } else { 0 };
        self.host_start.checked_add(inside).ok_or(Error::Unmapped { owner: id, count: self.count })
    }
}

impl View {
    /// Creates a view of `project`. `command` is what will run in it, `started` the present
    /// time; both are on disk when this returns, so that [`View::list`] finds the view even if
    /// its process is killed.
    ///
    /// With `ownership`, everything that the sandbox sees belongs to the host ids that
    /// correspond to the owners in the project.
    pub fn create(
        data: &DataDir,
        project: &Project,
        kind: ViewKind,
        ownership: Option<Ownership>,
        about: impl Into<ViewPurpose>,
        started: Timestamp,
    ) -> Result<Self, Error> {
        let views = data.views()?;
        let prefix = format!("{:010x}{:08x}-", started.seconds, started.nanoseconds);
        let (name, dir, spare) = claim_dir(&views, &prefix, kind)?;
        let view = Self::fill(project, kind, ownership, about.into(), started, &dir);
        match view {
            Ok((layers, repository, record)) => {
                let excluded = Vec::new();
                Ok(Self {
                    name,
                    pool_name: spare,
                    views,
                    dir,
                    layers,
                    repository,
                    record,
                    excluded,
                })
            }
            Err(error) => {
                // If this fails, an unlocked view without a description remains, which `sweep`
                // removes.
                let _ = views.remove_tree(&name);
                Err(error)
            }
        }
    }

    fn fill(
        project: &Project,
        kind: ViewKind,
        ownership: Option<Ownership>,
        about: ViewPurpose,
        started: Timestamp,
        dir: &Dir,
    ) -> Result<(Layers, Option<Dir>, Record), Error> {
        let root = RelativePath::literal(match kind {
            ViewKind::Overlay => "upper",
            ViewKind::Copy => "copy",
        });
        let layer = open_or_create(dir, &root)?;
        let work = match kind {
            ViewKind::Overlay => Some(pool::create_work(dir)?),
            ViewKind::Copy => None,
        };
        if let Some(ownership) = ownership {
            let uid = ownership.host_id(project.stat.uid)?;
            let gid = ownership.host_id(project.stat.gid)?;
            for layer in [Some(&layer), work.as_ref()].into_iter().flatten() {
                with_operation("give away", layer.chown_self(uid, gid))?;
            }
        }
        set_mode(&layer, project.stat.mode)?;
        if ownership.is_some() && kind == ViewKind::Overlay {
            Marks::of_new(&layer);
        }
        let repository = repository::create(&project.git, kind, ownership, dir)?;
        let mut record = Record::new(project, kind, about, started);
        record.started = record.started.max(boundary_time(&layer, project.stat.mode)?);
        let layers = match work {
            Some(work) => Layers::Overlay { upper: layer, work },
            None => {
                copy::copy_tree(&project.dir, &layer, ownership)?;
                set_mode(&layer, project.stat.mode)?;
                record.copied = Some(copy::later_stamp(dir)?);
                Layers::Copy { copy: layer }
            }
        };
        record.write(dir)?;
        Ok((layers, repository, record))
    }

    /// Puts files of the project that have several names into the upper layer, so that a command that
    /// writes to one sees it in the others; before the view is used. A copy has them already.
    ///
    /// # Errors
    /// [`Error::Copy`], [`Error::Unmapped`].
    pub fn place_hard_links(
        &mut self,
        links: &HardLinks,
        project: &Project,
        ownership: Option<Ownership>,
        limits: HardLinkLimits,
    ) -> Result<(), Error> {
        let Layers::Overlay { upper, .. } = &self.layers else { return Ok(()) };
        match links.place(&project.root, upper, ownership, limits)? {
            true => self.record_placed(),
            false => Ok(()),
        }
    }

    /// Leaves paths, and what is below, out of the bundles of this view.
    pub fn exclude(&mut self, paths: Vec<RelativePath>) {
        self.excluded = paths;
    }

    /// The paths that were left out.
    pub(crate) fn excluded(&self) -> &[RelativePath] {
        &self.excluded
    }

    /// Records that all that the layer has now is as it was placed there before the start.
    pub(crate) fn record_placed(&mut self) -> Result<(), Error> {
        self.record.copied = Some(copy::later_stamp(&self.dir)?);
        self.record.write(&self.dir)
    }

    /// Stores the exit code of the command, for a later bundle.
    ///
    /// # Errors
    /// [`Error::Own`] when it cannot be written.
    pub fn store_exit_code(&mut self, exit_code: u8) -> Result<(), Error> {
        self.record.exit_code = Some(exit_code);
        self.record.write(&self.dir)
    }

    /// Opens a view that a killed process left.
    pub fn open(data: &DataDir, id: &str) -> Result<Self, Error> {
        let views = data.views()?;
        let name = RelativePath::new(id)
            .ok()
            .filter(|name| name.parent().is_none())
            .ok_or_else(|| Error::NotFound(id.to_owned()))?;
        let dir = match views.open_dir(&name) {
            Err(error) if error.errno() == Some(Errno::NOENT) => {
                return Err(Error::NotFound(id.to_owned()));
            }
            other => with_operation("open", other)?,
        };
        if !lock(&dir)? {
            return Err(Error::InUse(id.to_owned()));
        }
        let record =
            Record::read(&dir).map_err(|reason| Error::Record { id: id.to_owned(), reason })?;
        let open = |name| with_operation("open", dir.open_dir(&RelativePath::literal(name)));
        let layers = match record.kind {
            ViewKind::Overlay => Layers::Overlay { upper: open("upper")?, work: open("work")? },
            ViewKind::Copy => Layers::Copy { copy: open("copy")? },
        };
        let repository = repository::find(&dir, record.kind);
        let excluded = Vec::new();
        Ok(Self { name, pool_name: None, views, dir, layers, repository, record, excluded })
    }

    /// All views, oldest first, including those in use.
    pub fn list(data: &DataDir) -> Result<Vec<Summary>, Error> {
        let views = data.views()?;
        let mut found = Vec::new();
        for (name, _) in with_operation("list", views.entries())? {
            let Ok(id) = String::from_utf8(name) else { continue };
            let Ok(path) = RelativePath::new(id.clone()) else { continue };
            // It may have been removed meanwhile.
            let Ok(dir) = views.open_dir(&path) else { continue };
            let live = !lock(&dir)?;
            found.push(Summary { id, live, record: Record::read(&dir).ok() });
        }
        found.sort_by(|a, b| (a.started(), &a.id).cmp(&(b.started(), &b.id)));
        Ok(found)
    }

    /// Removes the views that killed processes left before their command started: views without
    /// a description. Returns their number.
    pub fn sweep(data: &DataDir) -> Result<usize, Error> {
        let views = data.views()?;
        let mut swept = 0;
        for (name, _) in with_operation("list", views.entries())? {
            let Ok(path) = RelativePath::new(name) else { continue };
            let Ok(dir) = views.open_dir(&path) else { continue };
            if lock(&dir)? && Record::is_absent(&dir) {
                with_operation("remove", views.remove_tree(&path))?;
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// The view's name.
    pub fn id(&self) -> String {
        self.name.quoted()
    }

    /// The view's description on disk.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The upper layer; `None` for a copy.
    pub fn upper(&self) -> Option<&Dir> {
        match &self.layers {
            Layers::Overlay { upper, .. } | Layers::Collected { upper, .. } => Some(upper),
            Layers::Copy { .. } => None,
        }
    }

    /// The overlay's working directory; `None` if the view is not mounted as an overlay.
    pub fn work(&self) -> Option<&Dir> {
        match &self.layers {
            Layers::Overlay { work, .. } => Some(work),
            Layers::Copy { .. } | Layers::Collected { .. } => None,
        }
    }

    /// The copy; `None` for an overlay.
    pub fn copy(&self) -> Option<&Dir> {
        match &self.layers {
            Layers::Overlay { .. } | Layers::Collected { .. } => None,
            Layers::Copy { copy } => Some(copy),
        }
    }

    /// The list of removed paths, which only a view of collected changes has.
    pub fn removed(&self) -> &[RelativePath] {
        match &self.layers {
            Layers::Overlay { .. } | Layers::Copy { .. } => &[],
            Layers::Collected { removed, .. } => removed,
        }
    }

    /// The layer that contains the changes, of either kind.
    pub fn changed(&self) -> &Dir {
        match &self.layers {
            Layers::Overlay { upper, .. } | Layers::Collected { upper, .. } => upper,
            Layers::Copy { copy } => copy,
        }
    }

    /// The layer with what git has written to a git directory outside of the project.
    pub fn repository(&self) -> Option<&Dir> {
        self.repository.as_ref()
    }

    /// The file descriptor that holds the lock: the view is in use as long as any copy of it is
    /// open.
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Replaces the upper layer by another directory: one on a file system in memory, which no
    /// longer exists once its file descriptor is closed.
    pub fn replace_upper(&mut self, layer: OwnedFd) {
        if let Layers::Overlay { upper, .. } = &mut self.layers {
            *upper = Dir::from_fd(layer);
        }
    }

    /// Removes what the previous use of the view left in it, if there was one. It does not affect this
    /// use, so call it when no user waits. The returned file descriptors should also be closed at such
    /// a time: the file system finishes the removal only then.
    pub fn tidy(&self) -> Vec<OwnedFd> {
        // If this fails, the next use does it.
        let removed = pool::tidy(&self.dir).unwrap_or_default();
        removed.into_iter().map(OwnedFd::from).collect()
    }

    /// Ends a view whose command has changed nothing. Its directories are stored for reuse unless
    /// the use left something in them.
    pub fn release(self) -> Result<(), Error> {
        if self.repository.is_some() {
            return self.remove();
        }
        pool::put(self)
    }

    /// Removes the view and everything that was written to it.
    pub fn remove(self) -> Result<(), Error> {
        drop(self.layers);
        // A partly removed view must not be found as a complete one.
        Record::remove(&self.dir)?;
        with_operation("remove", self.views.remove_tree(&self.name))
    }
}

/// Locks a view's directory; `false` if another process holds the lock.
fn lock(dir: &Dir) -> Result<bool, Error> {
    with_operation("lock", claim::try_lock(dir))
}

/// A locked directory for a view: an unused one from the pool, with its former name, else a new
/// one.
fn claim_dir(
    views: &Dir,
    prefix: &str,
    kind: ViewKind,
) -> Result<(RelativePath, Dir, Option<RelativePath>), Error> {
    if kind == ViewKind::Overlay {
        let process = rustix::process::getpid().as_raw_nonzero();
        if let Ok(name) = RelativePath::new(format!("{prefix}{process}"))
            && let Some((dir, spare)) = pool::take(views, &name)?
        {
            return Ok((name, dir, Some(spare)));
        }
    }
    let (name, dir) = with_operation("create", claim::claim(views, prefix))?;
    // The root user of a sandbox must pass through to the layers; a caller's umask could prevent
    // that.
    set_mode(&dir, 0o711)?;
    Ok((name, dir, None))
}

/// Opens a layer, or creates it if it does not exist; a view from the pool already has it.
fn open_or_create(dir: &Dir, layer: &RelativePath) -> Result<Dir, Error> {
    match dir.open_dir(layer) {
        Err(error) if error.errno() == Some(Errno::NOENT) => {
            with_operation("create", dir.mkdir(layer, 0o700))?;
            with_operation("open", dir.open_dir(layer))
        }
        other => with_operation("open", other),
    }
}

/// The last moment before the view, by the clock that file systems use for change timestamps.
///
/// Most timestamps are those of a clock tick, some milliseconds long, which many changes share.
/// Since Linux 6.13 a second change within a tick gets a timestamp of its own if the timestamp of
/// the first was read in between, and no later change anywhere gets an earlier one (the kernel's
/// `filesystems/multigrain-ts.rst`). So this changes the directory twice: everything that was
/// changed before has a timestamp not later than the first, and everything that is changed
/// afterwards has one not earlier than the second. If both are equal, the moment is a tick, which
/// must be over before any process reads the view.
///
/// As the change, it sets the mode of the directory `layer` again.
pub fn boundary_time(layer: &Dir, mode: u32) -> Result<Timestamp, Error> {
    let changed = || -> Result<Timestamp, Error> {
        set_mode(layer, mode)?;
        Ok(with_operation("inspect", layer.stat_self())?.changed)
    };
    let before = changed()?;
    let after = changed()?;
    Ok(match after.nanoseconds.checked_sub(1) {
        Some(nanoseconds) if after > before => Timestamp { nanoseconds, ..after },
        _ => before,
    })
}

/// Whether a change from now on can be distinguished from those until a [`boundary_time`]. This is false
/// while that moment is a tick which is not over.
pub fn is_tick_over(moment: Timestamp) -> bool {
    coarse_now() != moment
}

/// The present time of the clock that file systems use for change timestamps.
pub fn coarse_now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Timestamp { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// Sets the mode of an open directory, regardless of the umask.
fn set_mode(dir: &Dir, mode: u32) -> Result<(), Error> {
    let set = rustix::fs::fchmod(dir.as_fd(), rustix::fs::Mode::from_bits_truncate(mode));
    let failed = |errno: Errno| beneath::Error::Io {
        operation: "change the mode of",
        path: ".".to_owned(),
        source: errno.into(),
    };
    with_operation("set the mode of", set.map_err(failed))
}

fn with_operation<T>(
    operation: &'static str,
    result: Result<T, beneath::Error>,
) -> Result<T, Error> {
    result.map_err(|source| Error::Operation { operation, source })
}

#[cfg(test)]
mod tests;
