//! Creating a bundle from the entries that a scan found.
//!
//! The view is not changed before the bundle has its final name: contents are hard-linked, and
//! their owner and mode are set only afterwards.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::AtFlags;
use stockade_core::BundleLimits;

use super::{
    Bundle, Error, Store, UNFINISHED, base_name, blobs_name, hash_name, manifest_name, times,
    with_operation,
};
use crate::baseline::OldContents;
use crate::beneath::{Dir, FileKind, Rename};
use crate::claim;
use crate::commits;
use crate::ignored_tree::Listing;
use crate::manifest::{ContentHash, Entry, Manifest, Node, Refusal, VERSION};
use crate::path::RelativePath;
use crate::project::Project;
use crate::view::View;

/// The largest old text that is stored, so that the difference can be shown and merged later.
pub(super) const MAX_BASE_BYTES: u64 = 8 << 20;

/// The total size of the old texts in one bundle.
const MAX_ALL_BASE_BYTES: u64 = 256 << 20;

/// Up to this many contents are synced one by one; for more, the whole file system is synced.
const MAX_SINGLE_SYNCS: usize = 32;

/// The input for a bundle.
#[derive(Debug)]
pub struct Draft<'a> {
    /// The view that was scanned. It may be removed once the bundle is created.
    pub view: &'a View,
    /// Its project.
    pub project: &'a Project,
    /// What [`crate::scan::scan`] found.
    pub entries: Vec<Entry>,
    /// The old contents of entries that the project does not have any more.
    pub old_contents: OldContents,
    /// What [`crate::scan::scan`] found in ignored directories.
    pub listings: Vec<Listing>,
    /// The command's exit code.
    pub exit_code: u8,
    /// The present time, in milliseconds since the epoch.
    pub created_at_ms: u64,
}

impl Store {
    /// Creates a bundle; `None` if there are no changes. The bundle is on disk when this
    /// returns.
    ///
    /// # Errors
    /// After any error there is no bundle, and the view is unchanged.
    pub fn create(&self, draft: Draft<'_>, limits: &BundleLimits) -> Result<Option<Bundle>, Error> {
        let Some(bundle) = self.create_in_place(draft, limits)? else { return Ok(None) };
        bundle.take_ownership()?;
        Ok(Some(bundle))
    }

    /// The same, but the files of the view stay as they are, with owner and mode, because they may
    /// still be needed. Where they are hard-linked, no content is copied.
    /// [`Bundle::take_ownership`] completes the bundle when they are not needed any more.
    ///
    /// # Errors
    /// After any error there is no bundle, and the view is unchanged.
    pub fn create_in_place(
        &self,
        draft: Draft<'_>,
        limits: &BundleLimits,
    ) -> Result<Option<Bundle>, Error> {
        if draft.entries.is_empty() {
            return Ok(None);
        }
        let Draft { view, project, entries, listings, old_contents, exit_code, created_at_ms } =
            draft;
        let manifest = Manifest {
            version: VERSION,
            project: project.root.as_os_str().as_bytes().to_vec(),
            created_at_ms,
            command: view.record().command.clone(),
            labels: view.record().labels.clone(),
            image: view.record().image.clone(),
            exit_code,
            base_ref: view.record().base_ref.clone(),
            view: view.record().kind,
            entries,
        };
        let bytes = manifest.to_bytes(limits)?;
        let id = ContentHash::of(&bytes).to_hex();
        let path = hash_name(ContentHash::of(&bytes))?;
        let (name, dir) = with_operation("create", claim::claim(&self.bundles, UNFINISHED))?;
        let made = write(&dir, view, project, (&manifest, &listings), (&bytes, &old_contents))
            .and_then(|()| {
                with_operation(
                    "create",
                    self.bundles.rename(&name, &self.bundles, &path, Rename::NoReplace),
                )?;
                with_operation("create", self.bundles.sync())
            });
        if let Err(error) = made {
            // A directory that cannot be removed now is swept later.
            let _ = self.bundles.remove_tree(&name);
            return Err(error);
        }
        let bundles = with_operation("open", self.bundles.reopen())?;
        Ok(Some(Bundle { id, manifest, bundles, dir }))
    }
}

impl Bundle {
    /// Makes this process the only owner of the contents: until now they had the mode and owner
    /// that the command gave them, including set-id bits. May be repeated.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn take_ownership(&self) -> Result<(), Error> {
        let blobs = with_operation("open", self.dir.open_dir(&blobs_name()))?;
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        for (name, _) in with_operation("take over", blobs.entries())? {
            let Ok(name) = RelativePath::new(name) else { continue };
            with_operation("take over", blobs.chown(&name, uid, gid))?;
            with_operation("take over", blobs.chmod(&name, 0o600))?;
        }
        Ok(())
    }
}

/// Writes the whole bundle and waits until it is on disk.
fn write(
    dir: &Dir,
    view: &View,
    project: &Project,
    (manifest, listings): (&Manifest, &[Listing]),
    (bytes, old_contents): (&[u8], &OldContents),
) -> Result<(), Error> {
    with_operation("create", dir.mkdir(&blobs_name(), 0o700))?;
    with_operation("create", dir.mkdir(&base_name(), 0o700))?;
    let blobs = with_operation("create", dir.open_dir(&blobs_name()))?;
    let base = with_operation("create", dir.open_dir(&base_name()))?;
    let below = listings.iter().flat_map(|listing| &listing.entries);
    let entries = manifest.entries.iter().chain(below);
    let mut contents = link_contents(view.changed(), &blobs, entries)?;
    for listing in listings.iter().filter(|listing| contents.insert(listing.hash)) {
        let mut file =
            with_operation("create", blobs.create_file(&hash_name(listing.hash)?, 0o600))?;
        with_operation("write", file.write_all(&listing.text))?;
    }
    commits::harvest(dir, view, project)?;
    let below = listings.iter().flat_map(|listing| &listing.entries);
    times::write(dir, view.changed(), manifest.entries.iter().chain(below))?;
    let texts = store_old_texts(&project.dir, &base, &manifest.entries, old_contents)?;
    let mut file = with_operation("create", dir.create_file(&manifest_name(), 0o600))?;
    with_operation("write", file.write_all(bytes))?;
    if contents.len() + texts > MAX_SINGLE_SYNCS {
        return with_operation("sync", dir.sync_file_system());
    }
    for hash in &contents {
        let content = with_operation("sync", blobs.open_file(&hash_name(*hash)?))?;
        with_operation("sync", content.sync_all())?;
    }
    with_operation("sync", file.sync_all())?;
    for directory in [&blobs, &base, dir] {
        with_operation("sync", directory.sync())?;
    }
    Ok(())
}

/// Adds each new content to the blobs, hard-linked where possible, else copied.
fn link_contents<'e>(
    layer: &Dir,
    blobs: &Dir,
    entries: impl Iterator<Item = &'e Entry>,
) -> Result<HashSet<ContentHash>, Error> {
    let mut linked = HashSet::new();
    for entry in entries {
        // These have no readable content.
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
        let parent = with_operation("link the contents of", parent)?;
        let from = std::ffi::OsStr::from_bytes(entry.path.file_name());
        let link =
            rustix::fs::linkat(&parent, from, blobs.as_fd(), name.as_os_str(), AtFlags::empty());
        if link.is_err() {
            // Too many links, or a file system without hard links.
            let from = with_operation("copy the contents of", layer.open_file(&entry.path))?;
            let mut to = with_operation("copy the contents of", blobs.create_file(&name, 0o600))?;
            with_operation(
                "copy the contents of",
                std::io::copy(&mut from.take(*size + 1), &mut to),
            )?;
        }
        let stat = with_operation("inspect the contents of", blobs.stat(&name))?;
        if !stat.is_some_and(|stat| stat.kind == FileKind::File && stat.size == *size) {
            return Err(Error::Changed(entry.path.clone()));
        }
    }
    Ok(linked)
}

/// Stores the old versions of small texts of the project, so that the difference can still be
/// shown after the host has changed them. A text that cannot be read or has changed is left out
/// and not shown.
fn store_old_texts(
    project: &Dir,
    base: &Dir,
    entries: &[Entry],
    old_contents: &OldContents,
) -> Result<usize, Error> {
    let mut kept: HashSet<ContentHash> = HashSet::new();
    for (hash, content) in old_contents {
        if kept.insert(*hash) {
            let mut to = with_operation("create", base.create_file(&hash_name(*hash)?, 0o600))?;
            with_operation("write", to.write_all(content))?;
        }
    }
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
        {
            continue;
        }
        let mut to = with_operation("create", base.create_file(&hash_name(*hash)?, 0o600))?;
        with_operation("write", to.write_all(&content))?;
        kept.insert(*hash);
        bytes += size;
    }
    Ok(kept.len())
}
