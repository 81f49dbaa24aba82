//! Bundles on disk: one directory each, named by the hash of its manifest.
//!
//! A bundle is written to a directory of another name and renamed when all of it is on disk, so
//! every bundle that can be found is complete. Its manifest and contents never change; only
//! `state.json` does. Opening the store removes what killed processes left behind.

mod create;
mod ledger;
mod state;
mod times;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;

use rustix::io::Errno;
use stockade_core::BundleLimits;

pub use create::Draft;
pub use ledger::remove_undone;
pub use state::{State, Status};

use crate::apply::merge::Bases;
use crate::beneath::{self, Dir, Timestamp};
use crate::claim;
use crate::commits::{self, Harvest};
use crate::data::{self, DataDir};
use crate::ignored_tree;
use crate::manifest::{ContentHash, Entry, Manifest, Node};
use crate::path::RelativePath;
use crate::validate;

/// The bundles of a data directory.
#[derive(Debug)]
pub struct Store {
    bundles: Dir,
}

/// One bundle.
#[derive(Debug)]
pub struct Bundle {
    id: String,
    /// The manifest.
    pub manifest: Manifest,
    bundles: Dir,
    dir: Dir,
}

/// One bundle in the list of [`Store::list`].
#[derive(Debug)]
pub struct StoredBundle {
    /// Its id.
    pub id: String,
    /// The bundle, or why it cannot be used.
    pub bundle: Result<Bundle, Error>,
}

/// Why a bundle could not be created, found or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// There is no such bundle.
    #[error("there is no bundle `{0}`")]
    NotFound(String),
    /// There is no bundle at all.
    #[error("there are no bundles")]
    None,
    /// Several bundle ids have this prefix.
    #[error("`{prefix}` is the prefix of {} bundle ids", ids.len())]
    Ambiguous {
        /// The requested prefix.
        prefix: String,
        /// The ids with this prefix.
        ids: Vec<String>,
    },
    /// The latest bundle was requested, and the bundles are of several projects.
    #[error("`latest` is ambiguous: there are bundles of several projects")]
    SeveralProjects {
        /// The ids, newest first.
        ids: Vec<String>,
    },
    /// Another command is deciding about the bundle.
    #[error("another command is using the bundle {0}")]
    Busy(String),
    /// The manifest differs from the one that the bundle was created with.
    #[error("the manifest of the bundle {0} was modified")]
    Altered(String),
    /// The manifest is not valid, or exceeds a limit.
    #[error(transparent)]
    Invalid(#[from] validate::Error),
    /// The changes in an ignored directory were modified.
    #[error(transparent)]
    Listing(#[from] ignored_tree::Error),
    /// The bundle's record of what was applied is invalid.
    #[error("the state of the bundle is damaged: {0}")]
    State(String),
    /// A file changed while the bundle was being created.
    #[error("{0} changed while the bundle was made")]
    Changed(RelativePath),
    /// The commits of the command could not be copied.
    #[error(transparent)]
    Commits(#[from] commits::Error),
    /// A file operation failed.
    #[error("cannot {operation} the bundle")]
    Io {
        /// The attempted operation, as a verb.
        operation: &'static str,
        /// Why.
        #[source]
        source: Cause,
    },
}

/// Why a file operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// An operation beneath a directory.
    #[error(transparent)]
    Beneath(#[from] beneath::Error),
    /// An operation on an open file.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The name prefix of incomplete bundles: those being created and those being removed.
const UNFINISHED: &str = ".unfinished-";

impl Bases for Bundle {
    fn base(&self, hash: ContentHash) -> Option<Vec<u8>> {
        Self::base(self, hash).ok().flatten()
    }
}

impl Store {
    /// Opens the store and removes incomplete bundles that killed processes left in it.
    pub fn open(data: &DataDir) -> Result<Self, Error> {
        let store = Self { bundles: data.bundles()? };
        store.sweep()?;
        Ok(store)
    }

    /// All bundles, newest first; those that cannot be read come last.
    pub fn list(&self, limits: &BundleLimits) -> Result<Vec<StoredBundle>, Error> {
        let mut listed: Vec<StoredBundle> = self
            .ids()?
            .into_iter()
            .map(|id| StoredBundle { bundle: self.load(&id, limits), id })
            // Removed after it was listed.
            .filter(|listed| !matches!(listed.bundle, Err(Error::NotFound(_))))
            .collect();
        let made =
            |listed: &StoredBundle| listed.bundle.as_ref().ok().map(|b| b.manifest.created_at_ms);
        listed.sort_by(|a, b| (made(b), &b.id).cmp(&(made(a), &a.id)));
        Ok(listed)
    }

    /// Whether there is a bundle with this id.
    pub fn contains(&self, id: &str) -> bool {
        RelativePath::new(id).is_ok_and(|name| self.bundles.exists(&name).unwrap_or(true))
    }

    /// Finds the bundle called `name`: an id, a unique prefix of an id, or `latest` if all bundles
    /// are of one project.
    pub fn find(&self, name: &str, limits: &BundleLimits) -> Result<Bundle, Error> {
        if name == "latest" {
            let listed = self.list(limits)?;
            let projects: BTreeSet<_> = listed
                .iter()
                .filter_map(|listed| Some(listed.bundle.as_ref().ok()?.manifest.project.as_slice()))
                .collect();
            if projects.len() > 1 {
                let ids = listed.into_iter().map(|listed| listed.id).collect();
                return Err(Error::SeveralProjects { ids });
            }
            return listed.into_iter().next().ok_or(Error::None)?.bundle;
        }
        let is_prefix = !name.is_empty() && name.bytes().all(|b| b.is_ascii_hexdigit());
        let mut ids = self.ids()?;
        ids.retain(|id| is_prefix && id.starts_with(name));
        match ids.as_slice() {
            [] => Err(Error::NotFound(name.to_owned())),
            [id] => self.load(id, limits),
            _ => {
                ids.sort();
                Err(Error::Ambiguous { prefix: name.to_owned(), ids })
            }
        }
    }

    /// The ids of all bundles, in no order, without reading them.
    pub fn ids(&self) -> Result<Vec<String>, Error> {
        let entries = with_operation("list", self.bundles.entries())?;
        let names = entries.into_iter().filter_map(|(name, _)| String::from_utf8(name).ok());
        Ok(names.filter(|name| ContentHash::from_hex(name).is_some()).collect())
    }

    fn load(&self, id: &str, limits: &BundleLimits) -> Result<Bundle, Error> {
        let not_found = || Error::NotFound(id.to_owned());
        let name = RelativePath::new(id).map_err(|_| not_found())?;
        let dir = match self.bundles.open_dir(&name) {
            Err(error) if error.errno() == Some(Errno::NOENT) => return Err(not_found()),
            other => with_operation("open", other)?,
        };
        let file = match dir.open_file(&manifest_name()) {
            // Another command is removing it.
            Err(error) if error.errno() == Some(Errno::NOENT) => return Err(not_found()),
            other => with_operation("open", other)?,
        };
        let mut bytes = Vec::new();
        let most = limits.manifest_bytes.saturating_add(1);
        with_operation("read", file.take(most).read_to_end(&mut bytes))?;
        let size = bytes.len() as u64;
        validate::check_limit(size, "manifest_bytes", limits.manifest_bytes, limits)
            .map_err(validate::Error::from)?;
        if ContentHash::of(&bytes).to_hex() != id {
            return Err(Error::Altered(id.to_owned()));
        }
        let mut manifest = Manifest::parse(&bytes, limits)?;
        State::read(&dir, &manifest)?.rebase(&mut manifest);
        let bundles = with_operation("open", self.bundles.reopen())?;
        Ok(Bundle { id: id.to_owned(), manifest, bundles, dir })
    }

    fn sweep(&self) -> Result<(), Error> {
        for (name, _) in with_operation("list", self.bundles.entries())? {
            if !name.starts_with(UNFINISHED.as_bytes()) {
                continue;
            }
            let Ok(path) = RelativePath::new(name) else { continue };
            let Ok(dir) = self.bundles.open_dir(&path) else { continue };
            if with_operation("lock", claim::try_lock(&dir))? {
                with_operation("remove", self.bundles.remove_tree(&path))?;
            }
        }
        Ok(())
    }
}

impl Bundle {
    /// The bundle's id: the hash of its manifest.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Prevents other commands from deciding about this bundle as long as it is open.
    ///
    /// # Errors
    /// [`Error::Busy`] if another command is deciding about it, [`Error::NotFound`] if one has
    /// just removed it.
    pub fn lock(&self) -> Result<(), Error> {
        if !with_operation("lock", claim::try_lock(&self.dir))? {
            return Err(Error::Busy(self.id.clone()));
        }
        let name =
            RelativePath::new(self.id.as_str()).map_err(|_| Error::NotFound(self.id.clone()))?;
        match with_operation("inspect", self.bundles.stat(&name))? {
            Some(_) => Ok(()),
            None => Err(Error::NotFound(self.id.clone())),
        }
    }

    /// The files of the commits that the command has made.
    ///
    /// # Errors
    /// [`commits::Error::None`].
    pub fn harvest(&self) -> Result<Harvest, commits::Error> {
        Harvest::of(&self.dir)
    }

    /// The directory of the new contents, each named by its hash.
    pub fn blobs(&self) -> Result<Dir, Error> {
        with_operation("open", self.dir.open_dir(&blobs_name()))
    }

    /// Opens the new content with this hash. The content was not verified: the caller must compare
    /// the hash.
    pub fn blob(&self, hash: ContentHash) -> Result<File, Error> {
        let name = hash_name(hash)?;
        with_operation("read", self.blobs()?.open_file(&name))
    }

    /// The old content with this hash, verified. It is stored only for small texts that are not
    /// ignored, and for texts of which a part was applied.
    pub fn base(&self, hash: ContentHash) -> Result<Option<Vec<u8>>, Error> {
        let is_partial = |node: &Node| matches!(node, Node::File { hash: it, .. } if *it == hash);
        let mut directories = vec![base_name()];
        if self.state()?.partial.values().any(is_partial) {
            directories.push(blobs_name());
        }
        for dir in directories {
            let dir = with_operation("open", self.dir.open_dir(&dir))?;
            let file = match dir.open_file(&hash_name(hash)?) {
                Err(error) if error.errno() == Some(Errno::NOENT) => continue,
                other => with_operation("read", other)?,
            };
            let mut content = Vec::new();
            let file = file.take(create::MAX_BASE_BYTES + 1);
            with_operation("read", { file }.read_to_end(&mut content))?;
            if ContentHash::of(&content) == hash {
                return Ok(Some(content));
            }
        }
        Ok(None)
    }

    /// The changes in an ignored directory that has one entry; nothing for another entry.
    pub fn listing(&self, entry: &Entry) -> Result<Vec<Entry>, Error> {
        let Some(tree) = &entry.tree else { return Ok(Vec::new()) };
        let mut text = Vec::new();
        let file = self.blob(tree.listing)?.take(ignored_tree::MAX_LISTING_BYTES);
        with_operation("read", { file }.read_to_end(&mut text))?;
        Ok(ignored_tree::parse(&entry.path, tree, &text, &self.manifest.project)?)
    }

    /// The manifest with an entry for each path in ignored directories.
    pub fn whole_manifest(&self) -> Result<Manifest, Error> {
        let mut whole = self.manifest.clone();
        if whole.entries.iter().all(|entry| entry.tree.is_none()) {
            return Ok(whole);
        }
        let mut entries = Vec::new();
        for entry in std::mem::take(&mut whole.entries) {
            match entry.tree {
                Some(_) => entries.extend(self.listing(&entry)?),
                None => entries.push(entry),
            }
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        whole.entries = entries;
        Ok(whole)
    }

    /// When the sandbox last modified each file, as far as it is recorded.
    pub fn times(&self) -> Result<BTreeMap<RelativePath, Timestamp>, Error> {
        times::read(&self.dir)
    }

    /// Which parts of the bundle were applied.
    pub fn state(&self) -> Result<State, Error> {
        State::read(&self.dir, &self.manifest)
    }
}

/// The manifest in a bundle's directory, without any check.
fn read_manifest(dir: &Dir) -> Result<Manifest, Error> {
    let mut bytes = Vec::new();
    let file = with_operation("open", dir.open_file(&manifest_name()))?;
    with_operation("read", { file }.read_to_end(&mut bytes))?;
    serde_json::from_slice(&bytes).map_err(|error| Error::State(error.to_string()))
}

fn manifest_name() -> RelativePath {
    RelativePath::literal("manifest.json")
}

fn blobs_name() -> RelativePath {
    RelativePath::literal("blobs")
}

fn base_name() -> RelativePath {
    RelativePath::literal("base")
}

fn hash_name(hash: ContentHash) -> Result<RelativePath, Error> {
    let hex = hash.to_hex();
    RelativePath::new(hex.as_str()).map_err(|_| Error::NotFound(hex))
}

fn with_operation<T>(
    operation: &'static str,
    result: Result<T, impl Into<Cause>>,
) -> Result<T, Error> {
    result.map_err(|source| Error::Io { operation, source: source.into() })
}

#[cfg(test)]
mod tests;
