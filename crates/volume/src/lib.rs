//! Volumes: named directories of an owner that outlive every sandbox.
//!
//! The volumes of an owner lie in one directory below the data directory. Each has a directory of
//! its name, with its record (`volume.json`) and its content (`data`). It is made under another name
//! and then renamed, and removed after it was renamed, so a name always leads to a whole volume.
//! Who uses one holds a shared lock on its directory; only an unlocked one is removed.
//!
//! The content is written by untrusted commands. It is never read here, and a path in it is opened
//! below the content's directory without following a link.

mod error;
mod mount;
pub mod problem;
mod record;
mod users;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind, Rename};
use stockade_bundle::claim::{claim, try_lock};
use stockade_bundle::data::DataDir;
use stockade_bundle::manifest::ContentHash;
use stockade_core::sandbox::CacheMount;
use stockade_core::{OwnerId, Time, VolumeName, cache};

pub use self::error::Error;
pub use self::mount::{Mounted, Part};
use self::record::Record;

/// The directory of all volumes, below the data directory.
pub const VOLUMES: &str = "volumes";
/// The content of a volume, in its directory.
const CONTENT: &str = "data";
/// The record of a volume, in its directory.
const RECORD: &str = "volume.json";
/// The largest record.
const MAX_RECORD_BYTES: u64 = 256 << 10;
/// How many volumes one owner may have.
const MAX_VOLUMES: usize = 4096;
/// The prefix of a volume that is not complete yet.
const NEW: &str = ".new-";
/// The prefix of a volume that is being removed.
const REMOVED: &str = ".removed-";
/// Every user of a sandbox may write to a volume's own directory, whichever user that is. The data
/// directory denies access to the other users of the host.
const CONTENT_MODE: u32 = 0o777;

/// The volumes of one owner.
#[derive(Debug)]
pub struct Volumes {
    directory: Dir,
    path: PathBuf,
    owner: OwnerId,
}

/// The properties of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: VolumeName,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Time,
    /// Whether its name was generated.
    pub is_anonymous: bool,
    /// The directory of its content on the host.
    pub path: PathBuf,
    /// The processes of the host that keep it in use.
    pub processes: Vec<u32>,
}

impl Volume {
    /// The name of the cache that it is, if it is one.
    pub fn cache(&self) -> Option<&str> {
        self.labels.get(cache::LABEL).map(String::as_str)
    }
}

/// The volume of a cache, and its labels. It is named after the cache and the project.
///
/// # Errors
/// [`Error::Name`] if the name of the cache is too long.
pub fn of_cache(mount: &CacheMount) -> Result<(VolumeName, BTreeMap<String, String>), Error> {
    let mut labels = BTreeMap::from([(cache::LABEL.to_owned(), mount.name.to_string())]);
    let hash = mount.project.as_ref().map(|project| {
        let shown = project.to_string_lossy().into_owned();
        labels.insert(cache::PROJECT_LABEL.to_owned(), shown);
        ContentHash::of(project.as_os_str().as_encoded_bytes()).to_hex()[..16].to_owned()
    });
    Ok((cache::volume_name(&mount.name, hash.as_deref())?, labels))
}

impl Volumes {
    /// Opens the directory of an owner's volumes, which is created if missing.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn open(data: &DataDir, owner: &OwnerId) -> Result<Self, Error> {
        let all = data.volumes()?;
        let name = directory_name(owner)?;
        match all.mkdir(&name, 0o700) {
            Err(error) if error.errno() != Some(Errno::EXIST) => return Err(error.into()),
            _ => {}
        }
        let path = data.path().join(VOLUMES).join(name.as_os_str());
        Ok(Self { directory: all.open_dir(&name)?, path, owner: owner.clone() })
    }

    /// Creates a volume, unless there is one of that name.
    ///
    /// # Errors
    /// [`Error::TooMany`], and the errors of the file system.
    pub fn create(
        &self,
        name: &VolumeName,
        labels: &BTreeMap<String, String>,
        is_anonymous: bool,
        now: Time,
    ) -> Result<bool, Error> {
        let entry = entry_name(name.as_str())?;
        if self.directory.exists(&entry)? {
            return Ok(false);
        }
        self.sweep()?;
        if self.names()?.len() >= MAX_VOLUMES {
            return Err(Error::TooMany(MAX_VOLUMES));
        }
        let (unfinished, volume) = claim(&self.directory, NEW)?;
        let made = self.fill(&volume, name, labels, is_anonymous, now).and_then(|()| {
            match self.directory.rename(&unfinished, &self.directory, &entry, Rename::NoReplace) {
                Err(error) if error.errno() == Some(Errno::EXIST) => Ok(false),
                renamed => Ok(renamed.map(|()| true)?),
            }
        });
        if matches!(made, Ok(true)) {
            self.directory.sync()?;
        } else {
            // Another creation removes what cannot be removed now.
            let _ = self.directory.remove_tree(&unfinished);
        }
        made
    }

    fn fill(
        &self,
        volume: &Dir,
        name: &VolumeName,
        labels: &BTreeMap<String, String>,
        is_anonymous: bool,
        now: Time,
    ) -> Result<(), Error> {
        let content = entry_name(CONTENT)?;
        volume.mkdir(&content, CONTENT_MODE)?;
        set_mode(&volume.open_dir(&content)?)?;
        let record = Record {
            name: name.clone(),
            owner: self.owner.clone(),
            labels: labels.clone(),
            created_at: now,
            is_anonymous,
        };
        let mut file = volume.create_file(&entry_name(RECORD)?, 0o600)?;
        let text = serde_json::to_vec(&record)?;
        file.write_all(&text).and_then(|()| file.sync_all())?;
        Ok(volume.sync()?)
    }

    /// All volumes, by name. One whose record cannot be read is left out.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn list(&self) -> Result<Vec<Volume>, Error> {
        let locks = users::Locks::read();
        let mut volumes = Vec::new();
        for name in self.names()? {
            // Otherwise it was removed meanwhile, or its record is damaged.
            if let Ok(Some(volume)) = self.read(&name, &locks) {
                volumes.push(volume);
            }
        }
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(volumes)
    }

    /// The volume of that name.
    ///
    /// # Errors
    /// The errors of the file system, and of a damaged record.
    pub fn get(&self, name: &VolumeName) -> Result<Option<Volume>, Error> {
        self.read(name, &users::Locks::read())
    }

    /// Refuses a volume that is a cache. Otherwise anyone who may name volumes could change what the
    /// sandboxes of another project get from its caches.
    ///
    /// # Errors
    /// [`Error::Cache`], and the errors of the file system.
    pub fn refuse_cache(&self, name: &VolumeName) -> Result<(), Error> {
        match self.labels(name)?.contains_key(cache::LABEL) {
            true => Err(Error::Cache(name.clone())),
            false => Ok(()),
        }
    }

    /// Refuses a volume that is not the cache with these labels ([`of_cache`]): the name of a cache may
    /// look like that of another one with its project.
    ///
    /// # Errors
    /// [`Error::OtherCache`], and the errors of the file system.
    pub fn require_cache(
        &self,
        name: &VolumeName,
        labels: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let found = self.labels(name)?;
        let is_same = |label: &str| found.get(label) == labels.get(label);
        match is_same(cache::LABEL) && is_same(cache::PROJECT_LABEL) {
            true => Ok(()),
            false => Err(Error::OtherCache(name.clone())),
        }
    }

    fn labels(&self, name: &VolumeName) -> Result<BTreeMap<String, String>, Error> {
        let volume = self.read(name, &users::Locks::default())?;
        volume.map(|volume| volume.labels).ok_or_else(|| Error::NotFound(name.clone()))
    }

    /// Removes a volume and its content.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::InUse`] while a running sandbox has it mounted; [`Error::FilesLeft`] if
    /// the caller may not remove all its files; and the errors of the file system.
    pub fn remove(&self, name: &VolumeName) -> Result<(), Error> {
        self.sweep()?;
        let entry = entry_name(name.as_str())?;
        let missing = || Error::NotFound(name.clone());
        let Some(volume) = found(self.directory.open_dir(&entry))? else { return Err(missing()) };
        if !try_lock(&volume)? {
            let processes = users::Locks::read().of(&volume);
            return Err(Error::InUse { name: name.clone(), processes });
        }
        if !self.leads_to(&entry, &volume)? {
            return Err(missing());
        }
        let removed = self.removed_name()?;
        self.directory.rename(&entry, &self.directory, &removed, Rename::NoReplace)?;
        self.directory.sync()?;
        // From here on the name is free; what remains after a crash is removed by the next command.
        match self.directory.remove_tree(&removed) {
            Err(error) if is_denied(&error) => Err(Error::FilesLeft(name.clone())),
            done => Ok(done?),
        }
    }

    /// Opens the content of a volume, or the part of it at a path, for a mount.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::SubPath`] for a path that does not lead to a directory or a
    /// regular file of the volume; and the errors of the file system.
    pub fn mount(&self, name: &VolumeName, sub_path: Option<&Path>) -> Result<Mounted, Error> {
        self.mount_part(name, sub_path.map_or(Part::Whole, Part::Existing))
    }

    /// Removes what a creation or removal has left that did not end.
    fn sweep(&self) -> Result<(), Error> {
        for (name, kind) in self.directory.entries()? {
            let is_left = name.starts_with(NEW.as_bytes()) || name.starts_with(REMOVED.as_bytes());
            if !is_left || kind != FileKind::Directory {
                continue;
            }
            let Ok(name) = RelativePath::new(name) else { continue };
            let Some(dir) = found(self.directory.open_dir(&name))? else { continue };
            if try_lock(&dir)? {
                match self.directory.remove_tree(&name) {
                    // Subordinate ids own it. It must not stop the use of all other volumes.
                    Err(error) if is_denied(&error) => {}
                    removed => removed?,
                }
            }
        }
        Ok(())
    }

    fn removed_name(&self) -> Result<RelativePath, Error> {
        let process = rustix::process::getpid().as_raw_nonzero();
        for number in 0..1000_u32 {
            let name = entry_name(&format!("{REMOVED}{process}-{number}"))?;
            if !self.directory.exists(&name)? {
                return Ok(name);
            }
        }
        Err(Error::Io(std::io::ErrorKind::AlreadyExists.into()))
    }

    fn names(&self) -> Result<Vec<VolumeName>, Error> {
        let entries = self.directory.entries()?.into_iter();
        let directories = entries.filter(|(_, kind)| *kind == FileKind::Directory);
        let names = directories.filter_map(|(name, _)| String::from_utf8(name).ok());
        Ok(names.filter_map(|name| VolumeName::new(name).ok()).collect())
    }

    fn read(&self, name: &VolumeName, locks: &users::Locks) -> Result<Option<Volume>, Error> {
        let Some(dir) = found(self.directory.open_dir(&entry_name(name.as_str())?))? else {
            return Ok(None);
        };
        let mut text = Vec::new();
        let file = dir.open_file(&entry_name(RECORD)?)?;
        file.take(MAX_RECORD_BYTES).read_to_end(&mut text)?;
        let record: Record = serde_json::from_slice(&text)?;
        Ok(Some(Volume {
            name: name.clone(),
            labels: record.labels,
            created_at: record.created_at,
            is_anonymous: record.is_anonymous,
            path: self.path.join(name.as_str()).join(CONTENT),
            processes: locks.of(&dir),
        }))
    }

    /// Whether a name still leads to an open directory.
    fn leads_to(&self, entry: &RelativePath, volume: &Dir) -> Result<bool, Error> {
        let (named, open) = (self.directory.stat(entry)?, volume.stat_self()?);
        Ok(named.is_some_and(|named| (named.device, named.inode) == (open.device, open.inode)))
    }
}

fn directory_name(owner: &OwnerId) -> Result<RelativePath, Error> {
    entry_name(&ContentHash::of(owner.as_str().as_bytes()).to_hex()[..32])
}

fn entry_name(name: &str) -> Result<RelativePath, Error> {
    RelativePath::new(name)
        .map_err(|error| Error::Io(std::io::Error::new(std::io::ErrorKind::InvalidInput, error)))
}

/// Whether other ids own what could not be removed.
fn is_denied(error: &stockade_bundle::beneath::Error) -> bool {
    matches!(error.errno(), Some(Errno::ACCESS | Errno::PERM))
}

/// The directory that was opened; `None` if it is missing.
fn found(opened: Result<Dir, stockade_bundle::beneath::Error>) -> Result<Option<Dir>, Error> {
    match opened {
        Err(error) if error.errno() == Some(Errno::NOENT) => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// Lets every user of a sandbox write to a directory, regardless of the umask.
fn set_mode(directory: &Dir) -> Result<(), Error> {
    rustix::fs::fchmod(directory.as_fd(), Mode::from_raw_mode(CONTENT_MODE))
        .map_err(|errno| Error::Io(errno.into()))
}

#[cfg(test)]
mod tests;
