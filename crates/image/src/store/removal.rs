//! Removing what no name and no sandbox needs.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind, Rename};

use super::{
    Error, LAYERS, OWNED_LAYERS, Record, Store, UNFINISHED, io_error, lock, references, relative,
};
use crate::digest::Digest;
use crate::layer::chain;
use crate::reference::Reference;

/// The manifests that sandboxes and snapshots use, each with the name of one that uses it.
pub type InUse = BTreeMap<Digest, String>;

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// The records whose names were removed.
    pub records: Vec<Record>,
    /// How many blobs were removed.
    pub blobs: u64,
    /// How many unpacked layers were removed.
    pub layers: u64,
    /// The size of the removed blobs and layers in bytes.
    pub bytes: u64,
    /// Layers that a running sandbox still uses, and that stay for now.
    pub kept_layers: u64,
}

/// How much space the store takes on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The bytes of the blobs.
    pub blob_bytes: u64,
    /// The bytes of the unpacked layers.
    pub layer_bytes: u64,
    /// The bytes of both that no name needs.
    pub unused_bytes: u64,
}

/// What has to stay.
#[derive(Debug, Default)]
struct Needed {
    blobs: BTreeSet<String>,
    layers: BTreeSet<String>,
}

impl Store {
    /// Removes a name, for all platforms, and everything that nothing needs any more. A name with a
    /// digest removes every name of that manifest in its repository.
    ///
    /// # Errors
    /// [`Error::InUse`], and nothing was removed.
    pub fn remove(&self, reference: &Reference, in_use: &InUse) -> Result<Removed, Error> {
        let _lock = lock::exclusive(&self.root)?;
        let records = self.list()?;
        let (removed, kept): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| record.answers(reference));
        for record in &removed {
            let has_another_name = kept.iter().any(|other| other.digest == record.digest);
            if let Some(by) = in_use.get(&record.digest)
                && !has_another_name
            {
                return Err(Error::InUse { digest: record.digest.clone(), by: by.clone() });
            }
        }
        references::change(&self.root, &self.path, |records| {
            records.retain(|record| !record.answers(reference));
        })?;
        Ok(Removed { records: removed, ..self.sweep(in_use)? })
    }

    /// Removes everything that no name and no sandbox needs; with `all`, also the names that no
    /// sandbox uses.
    ///
    /// # Errors
    /// The store cannot be read or changed.
    pub fn prune(&self, all: bool, in_use: &InUse) -> Result<Removed, Error> {
        let _lock = lock::exclusive(&self.root)?;
        let mut removed = Vec::new();
        if all {
            references::change(&self.root, &self.path, |records| {
                let is_unused = |record: &mut Record| !in_use.contains_key(&record.digest);
                removed = records.extract_if(.., is_unused).collect();
            })?;
        }
        Ok(Removed { records: removed, ..self.sweep(in_use)? })
    }

    /// How much space the store takes.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn usage(&self, in_use: &InUse) -> Result<Usage, Error> {
        let needed = self.needed(in_use)?;
        let mut usage = Usage::default();
        for (name, _) in self.blobs.entries()? {
            let Some(stat) = self.blobs.stat(&entry_name(&name)?)? else { continue };
            usage.blob_bytes += stat.size;
            if !needed.blobs.contains(&*String::from_utf8_lossy(&name)) {
                usage.unused_bytes += stat.size;
            }
        }
        for (name, _) in self.layers.entries()? {
            let bytes = self.layer_bytes(&entry_name(&name)?)?;
            usage.layer_bytes += bytes;
            if !needed.layers.contains(&*String::from_utf8_lossy(&name)) {
                usage.unused_bytes += bytes;
            }
        }
        Ok(usage)
    }

    /// What the names and the sandboxes need. An image that cannot be read needs nothing: it could
    /// not be used either.
    fn needed(&self, in_use: &InUse) -> Result<Needed, Error> {
        let mut needed = Needed::default();
        let records = self.list()?;
        let indices = records.iter().filter_map(|record| record.index.as_ref());
        needed.blobs.extend(indices.map(|index| index.hex().to_owned()));
        let manifests: BTreeSet<&Digest> =
            records.iter().map(|record| &record.digest).chain(in_use.keys()).collect();
        for manifest in manifests {
            let Ok((parsed, configuration)) = self.documents(manifest) else { continue };
            needed.blobs.insert(manifest.hex().to_owned());
            needed.blobs.extend(parsed.parts().map(|part| part.digest.hex().to_owned()));
            let layers = chain(&configuration.rootfs.diff_ids);
            needed.layers.extend(layers.map(|layer| layer.hex().to_owned()));
        }
        Ok(needed)
    }

    /// Removes what is not needed. Nobody adds anything meanwhile.
    fn sweep(&self, in_use: &InUse) -> Result<Removed, Error> {
        let needed = self.needed(in_use)?;
        let mut removed = Removed::default();
        for (name, _) in self.blobs.entries()? {
            if needed.blobs.contains(&*String::from_utf8_lossy(&name)) {
                continue;
            }
            let path = entry_name(&name)?;
            let size = self.blobs.stat(&path)?.map_or(0, |stat| stat.size);
            self.blobs.remove_file(&path)?;
            removed.blobs += 1;
            removed.bytes += size;
        }
        self.sweep_layers(&self.layers, &needed, &mut removed)?;
        // With subordinate ids, those without them are the caller's own, too.
        if self.layers_name == OWNED_LAYERS
            && let Ok(others) = self.root.open_dir(&relative(LAYERS)?)
        {
            self.sweep_layers(&others, &needed, &mut removed)?;
        }
        Ok(removed)
    }

    fn sweep_layers(
        &self,
        layers: &Dir,
        needed: &Needed,
        removed: &mut Removed,
    ) -> Result<(), Error> {
        for (name, kind) in layers.entries()? {
            if needed.layers.contains(&*String::from_utf8_lossy(&name)) {
                continue;
            }
            let path = entry_name(&name)?;
            if kind != FileKind::Directory {
                layers.remove_file(&path)?;
                continue;
            }
            let layer = layers.open_dir(&path)?;
            if !try_lock_alone(&layer)? {
                removed.kept_layers += 1;
                continue;
            }
            let bytes = self.layer_bytes(&path)?;
            // Under its own name a layer is always complete.
            let gone =
                relative(&format!("{UNFINISHED}removed-{}", String::from_utf8_lossy(&name)))?;
            layers.remove_tree(&gone)?;
            layers.rename(&path, layers, &gone, Rename::NoReplace)?;
            layers.remove_tree(&gone)?;
            removed.layers += 1;
            removed.bytes += bytes;
        }
        Ok(())
    }

    /// Whether a data directory has layers that only a process with the user's subordinate ids can remove.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn has_owned_layers(&self) -> Result<bool, Error> {
        match self.root.open_dir(&relative(OWNED_LAYERS)?) {
            Err(error) if error.errno() == Some(Errno::NOENT) => Ok(false),
            layers => Ok(!layers?.entries()?.is_empty()),
        }
    }

    /// The recorded size of an unpacked layer; 0 for what is not complete.
    fn layer_bytes(&self, name: &RelativePath) -> Result<u64, Error> {
        Ok(self.layer_record(name)?.map_or(0, |record| record.bytes))
    }
}

/// Locks a layer unless a sandbox runs on it.
fn try_lock_alone(layer: &Dir) -> Result<bool, Error> {
    match rustix::fs::flock(layer.as_fd(), FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(io_error("lock a layer")(errno.into())),
    }
}

fn entry_name(name: &[u8]) -> Result<RelativePath, Error> {
    RelativePath::new(name).map_err(|error| io_error("read")(std::io::Error::other(error)))
}
