//! Making a bundle out of the entries that a scan found.
//!
//! Until the bundle is in its place, nothing of the view is changed: contents are linked, and
//! their owner and mode are set only afterwards.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::AtFlags;
use stockade_core::BundleLimits;

use super::{
    Bundle, Error, Store, UNFINISHED, base_name, blobs_name, failing, hash_name, manifest_name,
};
use crate::beneath::{Dir, FileKind, Rename};
use crate::claim;
use crate::manifest::{ContentHash, Entry, Manifest, Node, Refusal, VERSION};
use crate::path::RelativePath;
use crate::project::Project;
use crate::view::View;

/// The largest old text that is kept, so that the difference can be shown later.
pub(super) const MAX_BASE_BYTES: u64 = 1 << 20;

/// How much of old texts is kept in one bundle.
const MAX_ALL_BASE_BYTES: u64 = 256 << 20;

/// Where git looks for a NUL byte to tell binary files.
const TEXT_PROBE_BYTES: usize = 8000;

/// Up to so many contents are synced one by one; the whole file system is with more.
const FEW: usize = 32;

/// What a bundle is made from.
#[derive(Debug)]
pub struct Draft<'a> {
    /// The view that was scanned. It may be removed once the bundle is made.
    pub view: &'a View,
    /// Its project.
    pub project: &'a Project,
    /// What [`crate::scan::scan`] found.
    pub entries: Vec<Entry>,
    /// How the command ended.
    pub exit_code: u8,
    /// The present time, in milliseconds since the epoch.
    pub created_at_ms: u64,
}

impl Store {
    /// Makes a bundle; `None` where nothing was changed. When this returns, the bundle is on
    /// disk.
    ///
    /// # Errors
    /// Any error means that there is no bundle and that the view is as it was.
    pub fn create(&self, draft: Draft<'_>, limits: &BundleLimits) -> Result<Option<Bundle>, Error> {
        if draft.entries.is_empty() {
            return Ok(None);
        }
        let Draft { view, project, entries, exit_code, created_at_ms } = draft;
        let manifest = Manifest {
            version: VERSION,
            project: project.root.as_os_str().as_bytes().to_vec(),
            created_at_ms,
            command: view.record().command.clone(),
            labels: view.record().labels.clone(),
            exit_code,
            base_ref: view.record().base_ref.clone(),
            view: view.record().kind,
            entries,
        };
        let bytes = manifest.to_bytes(limits)?;
        let id = ContentHash::of(&bytes).to_hex();
        let place = hash_name(ContentHash::of(&bytes))?;
        let (name, dir) = failing("create", claim::claim(&self.bundles, UNFINISHED))?;
        let made = write(&dir, view, project, &manifest, &bytes).and_then(|contents| {
            failing(
                "create",
                self.bundles.rename(&name, &self.bundles, &place, Rename::NoReplace),
            )?;
            failing("create", self.bundles.sync())?;
            Ok(contents)
        });
        let contents = match made {
            Ok(contents) => contents,
            Err(error) => {
                // What cannot be removed now is swept later.
                let _ = self.bundles.remove_tree(&name);
                return Err(error);
            }
        };
        own(&dir, &contents)?;
        let bundles = failing("open", self.bundles.reopen())?;
        Ok(Some(Bundle { id, manifest, bundles, dir }))
    }
}

/// Writes all of a bundle and waits until it is on disk; gives the contents it holds.
fn write(
    dir: &Dir,
    view: &View,
    project: &Project,
    manifest: &Manifest,
    bytes: &[u8],
) -> Result<HashSet<ContentHash>, Error> {
    failing("create", dir.mkdir(&blobs_name(), 0o700))?;
    failing("create", dir.mkdir(&base_name(), 0o700))?;
    let blobs = failing("create", dir.open_dir(&blobs_name()))?;
    let base = failing("create", dir.open_dir(&base_name()))?;
    let contents = link_contents(view.changed(), &blobs, &manifest.entries)?;
    let texts = keep_old_texts(&project.dir, &base, &manifest.entries)?;
    let mut file = failing("create", dir.create_file(&manifest_name(), 0o600))?;
    failing("write", file.write_all(bytes))?;
    if contents.len() + texts > FEW {
        failing("sync", dir.sync_file_system())?;
        return Ok(contents);
    }
    for hash in &contents {
        let content = failing("sync", blobs.open_file(&hash_name(*hash)?))?;
        failing("sync", content.sync_all())?;
    }
    failing("sync", file.sync_all())?;
    for directory in [&blobs, &base, dir] {
        failing("sync", directory.sync())?;
    }
    Ok(contents)
}

/// Gives every new content a name of its own, without copying it where it can be linked.
fn link_contents(
    layer: &Dir,
    blobs: &Dir,
    entries: &[Entry],
) -> Result<HashSet<ContentHash>, Error> {
    let mut linked = HashSet::new();
    for entry in entries {
        // These have no content that could be reached.
        if matches!(entry.refused, Some(Refusal::SpecialFile | Refusal::PathTooLong)) {
            continue;
        }
        let Some(Node::File { hash, size, .. }) = entry.change.new_node() else { continue };
        if !linked.insert(*hash) {
            continue;
        }
        let name = hash_name(*hash)?;
        let parent = match entry.path.parent() {
            None => layer.reopen(),
            Some(parent) => layer.locate_dir(&parent),
        };
        let parent = failing("link the contents of", parent)?;
        let from = std::ffi::OsStr::from_bytes(entry.path.file_name());
        let link =
            rustix::fs::linkat(&parent, from, blobs.as_fd(), name.as_os_str(), AtFlags::empty());
        if link.is_err() {
            // Too many links, or a file system without them.
            let from = failing("copy the contents of", layer.open_file(&entry.path))?;
            let mut to = failing("copy the contents of", blobs.create_file(&name, 0o600))?;
            failing("copy the contents of", std::io::copy(&mut from.take(*size + 1), &mut to))?;
        }
        let stat = failing("inspect the contents of", blobs.stat(&name))?;
        if !stat.is_some_and(|stat| stat.kind == FileKind::File && stat.size == *size) {
            return Err(Error::Changed(entry.path.clone()));
        }
    }
    Ok(linked)
}

/// Keeps what small texts of the project were, so that the difference can be shown when the host
/// has changed since. What cannot be read or has changed is left out: it only is not shown.
fn keep_old_texts(project: &Dir, base: &Dir, entries: &[Entry]) -> Result<usize, Error> {
    let mut kept: HashSet<ContentHash> = HashSet::new();
    let mut bytes = 0_u64;
    for entry in entries.iter().filter(|entry| !entry.ignored && entry.refused.is_none()) {
        let Some(Node::File { hash, size, .. }) = entry.change.old() else { continue };
        let fits = *size <= MAX_BASE_BYTES && bytes + size <= MAX_ALL_BASE_BYTES;
        if !fits || kept.contains(hash) {
            continue;
        }
        let Ok(file) = project.open_file(&entry.path) else { continue };
        let mut content = Vec::new();
        if file.take(MAX_BASE_BYTES + 1).read_to_end(&mut content).is_err()
            || ContentHash::of(&content) != *hash
            || content.iter().take(TEXT_PROBE_BYTES).any(|b| *b == 0)
        {
            continue;
        }
        let mut to = failing("create", base.create_file(&hash_name(*hash)?, 0o600))?;
        failing("write", to.write_all(&content))?;
        kept.insert(*hash);
        bytes += size;
    }
    Ok(kept.len())
}

/// Makes the contents ours alone: until now they were what the command made them, set-id bits
/// and owner included.
fn own(dir: &Dir, contents: &HashSet<ContentHash>) -> Result<(), Error> {
    let blobs = failing("open", dir.open_dir(&blobs_name()))?;
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    for hash in contents {
        let name: RelativePath = hash_name(*hash)?;
        failing("take over", blobs.chown(&name, uid, gid))?;
        failing("take over", blobs.chmod(&name, 0o600))?;
    }
    Ok(())
}
