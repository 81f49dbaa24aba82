//! The host's own programs that sandboxes see. Looking them up takes longer than all other
//! preparation of a jail outside, so in a burst of launches it is done once.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use stockade_bundle::data::DataDir;
use stockade_core::sandbox::User;
use stockade_jail::{HostTree, Mount, Source};

use crate::account::account;
use crate::error::Error;
use crate::private_base;
use crate::request::HOSTNAME;
use crate::skeleton;

/// What a sandbox sees of the system.
#[derive(Debug)]
pub struct Found {
    /// The lower layer of its root.
    pub skeleton: PathBuf,
    /// The mounts above it.
    pub mounts: Vec<(PathBuf, Mount)>,
    /// What keeps the private base from being removed, if there is one.
    pub lock: Option<OwnedFd>,
}

/// How long a lookup stays valid. If a file was replaced meanwhile, a launch that finds another
/// file at its path fails.
const CACHE_TIME: Duration = Duration::from_secs(1);

/// The host's programs, as found by the last lookup.
#[derive(Debug)]
pub struct Programs {
    /// Where skeletons are made.
    directory: PathBuf,
    /// The data directory, with the copies of the system directories.
    data: PathBuf,
    /// One lookup for each user that owns a home directory.
    entries: Vec<Entry>,
    /// A skeleton differs from the previous one of the same user.
    changed: bool,
}

#[derive(Debug)]
struct Entry {
    found_at: Instant,
    owner: User,
    skeleton: PathBuf,
    mounts: Vec<(PathBuf, Mount)>,
}

impl Programs {
    /// An empty cache; skeletons are made in `directory`.
    pub const fn new(directory: PathBuf, data: PathBuf) -> Self {
        Self { directory, data, entries: Vec::new(), changed: false }
    }

    /// What a sandbox of this user sees of the system. With `private`, the directories are those of
    /// the private base, which must have been made.
    ///
    /// # Errors
    /// [`Error::HostPath`] where the host's system directories cannot be read or a skeleton cannot be
    /// written, and [`Error::Base`].
    pub fn find(&mut self, own: User, private: bool) -> Result<Found, Error> {
        let failed = |source| Error::HostPath { path: "/usr".into(), source };
        let (skeleton, mounts) = self.of_host(own).map_err(failed)?;
        if !private {
            return Ok(Found { skeleton, mounts, lock: None });
        }
        let refused = |error| Error::Base(Box::new(error));
        let data = DataDir::open(&self.data).map_err(|error| refused(error.into()))?;
        let base = private_base::current(&data).map_err(refused)?;
        let (mounts, lock) = private_base::replace(mounts, &base).map_err(failed)?;
        Ok(Found { skeleton, mounts, lock: Some(lock) })
    }

    fn of_host(&mut self, own: User) -> io::Result<(PathBuf, Vec<(PathBuf, Mount)>)> {
        let now = Instant::now();
        let last = self.entries.iter().position(|found| found.owner == own);
        let last = last.map(|index| self.entries.swap_remove(index));
        let before = last.as_ref().map(|last| last.skeleton.clone());
        let entry = match last.filter(|found| now.duration_since(found.found_at) < CACHE_TIME) {
            Some(found) => found,
            None => {
                let skeleton = skeleton::ensure(&self.directory, &account(own), HOSTNAME)?;
                let path = skeleton.path().to_owned();
                Entry { found_at: now, owner: own, skeleton: path, mounts: skeleton.mounts() }
            }
        };
        self.changed |= before.as_ref() != Some(&entry.skeleton);
        let mounts = entry.mounts.iter().map(|(path, mount)| Ok((path.clone(), copy(mount)?)));
        let mounts = mounts.collect::<io::Result<_>>()?;
        let skeleton = entry.skeleton.clone();
        self.entries.push(entry);
        Ok((skeleton, mounts))
    }

    /// Whether a skeleton changed since the last call.
    pub const fn have_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    /// The names of the skeletons of the last lookups.
    pub fn skeletons(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|found| found.skeleton.file_name()?.to_str())
    }
}

/// The same mount, with a file descriptor of its own.
fn copy(mount: &Mount) -> io::Result<Mount> {
    Ok(match mount {
        Mount::Tree(Source::Host { tree, access, owners }) => {
            let file = tree.file.try_clone()?;
            let tree = HostTree { path: tree.path.clone(), file };
            Mount::Tree(Source::Host { tree, access: *access, owners: *owners })
        }
        Mount::File(content) => Mount::File(content.clone()),
        Mount::Link(target) => Mount::Link(target.clone()),
        Mount::Scratch(scratch) => Mount::Scratch(*scratch),
        Mount::Directory => Mount::Directory,
        // A skeleton has no such mounts.
        Mount::Optional(_)
        | Mount::Tree(
            Source::Empty | Source::ReadOnly(_) | Source::Layer(_) | Source::Overlay(_),
        ) => {
            return Err(io::ErrorKind::Unsupported.into());
        }
    })
}
