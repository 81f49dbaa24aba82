//! The unpacked layers of the store.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, Rename};
use stockade_bundle::claim::claim;

use super::{Error, Image, Store, UNFINISHED, io_error, relative};
use crate::digest::Digest;
use crate::document::{Configuration, Descriptor, Document, InvalidDocument, Manifest};
use crate::layer::{self, LayerRecord};
use crate::limits::Limits;

/// The directory of the content of a layer, in the layer's directory.
const CONTENT: &str = "root";
/// The file of what is known about it.
const RECORD: &str = "layer.json";
/// The largest such file.
const MAX_RECORD_BYTES: u64 = 1 << 20;

impl Store {
    /// The manifest and the configuration of an image.
    pub(super) fn documents(&self, manifest: &Digest) -> Result<(Manifest, Configuration), Error> {
        match Document::parse(&self.read_document(manifest)?, None)? {
            Document::Manifest(parsed) => {
                let text = self.read_document(&parsed.config.digest)?;
                Ok((parsed, Configuration::parse(&text)?))
            }
            Document::Index(_) => Err(invalid("manifest", "it is an index").into()),
        }
    }

    /// The directories of an image's layers, the lowest one first.
    pub(super) fn layer_directories(
        &self,
        configuration: &Configuration,
    ) -> Result<Vec<PathBuf>, Error> {
        let layers = layer::chain(&configuration.rootfs.diff_ids);
        layers
            .map(|layer| {
                let missing = || Error::MissingLayer(layer.clone());
                self.layers.stat(&relative(layer.hex())?)?.ok_or_else(missing)?;
                Ok(self.path.join(self.layers_name).join(layer.hex()).join(CONTENT))
            })
            .collect()
    }

    /// What is known about each layer of an image, the lowest one first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn layer_records(&self, image: &Image) -> Result<Vec<LayerRecord>, Error> {
        let layers = layer::chain(&image.configuration.rootfs.diff_ids);
        let record = |layer: Digest| {
            let missing = || Error::MissingLayer(layer.clone());
            self.layer_record(&relative(layer.hex())?)?.ok_or_else(missing)
        };
        layers.map(record).collect()
    }

    /// Keeps the layers of an image from being removed as long as the descriptors are open, also in
    /// processes that inherit them.
    ///
    /// # Errors
    /// [`Error::MissingLayer`] where one was removed meanwhile.
    pub fn hold(&self, image: &Image) -> Result<Vec<OwnedFd>, Error> {
        let layers = layer::chain(&image.configuration.rootfs.diff_ids);
        layers
            .map(|layer| {
                let missing = || Error::MissingLayer(layer.clone());
                let name = relative(layer.hex())?;
                let directory = match self.layers.open_dir(&name) {
                    Err(error) if error.errno() == Some(Errno::NOENT) => return Err(missing()),
                    opened => opened?,
                };
                match rustix::fs::flock(directory.as_fd(), FlockOperation::NonBlockingLockShared) {
                    Ok(()) => {}
                    Err(Errno::WOULDBLOCK) => return Err(missing()),
                    Err(errno) => return Err(io_error("lock a layer")(errno.into())),
                }
                let opened = directory.stat_self()?;
                match self.layers.stat(&name)? {
                    Some(found) if found.inode == opened.inode => Ok(directory.into()),
                    _ => Err(missing()),
                }
            })
            .collect()
    }

    /// Unpacks each layer that is not there.
    pub(super) fn unpack(
        &self,
        manifest: &Manifest,
        configuration: &Configuration,
    ) -> Result<(), Error> {
        let diff_ids = &configuration.rootfs.diff_ids;
        if diff_ids.len() != manifest.layers.len() {
            let reason = "it names another number of layers than the manifest";
            return Err(invalid("configuration", reason).into());
        }
        // The topmost first.
        let mut below: Vec<Dir> = Vec::new();
        let mut left = self.limits.image_bytes;
        for ((blob, diff_id), name) in
            manifest.layers.iter().zip(diff_ids).zip(layer::chain(diff_ids))
        {
            let name = relative(name.hex())?;
            if self.layers.stat(&name)?.is_none() {
                let layer_bytes = self.limits.layer_bytes.min(left);
                let limits = Limits { layer_bytes, ..self.limits };
                self.unpack_layer(blob, diff_id, (&name, &below), &limits)?;
            }
            left = left.saturating_sub(self.layer_record(&name)?.map_or(0, |record| record.bytes));
            let content = name
                .join(CONTENT.as_bytes())
                .map_err(|_| io_error("name a layer")(std::io::ErrorKind::InvalidInput.into()))?;
            below.insert(0, self.layers.open_dir(&content)?);
        }
        Ok(())
    }

    /// Unpacks a layer under a temporary name, and gives it its own when all of it is on disk.
    fn unpack_layer(
        &self,
        blob: &Descriptor,
        diff_id: &Digest,
        (name, below): (&RelativePath, &[Dir]),
        limits: &Limits,
    ) -> Result<(), Error> {
        let file =
            self.open_blob(&blob.digest)?.ok_or_else(|| Error::MissingBlob(blob.digest.clone()))?;
        let (temporary, directory) = claim(&self.layers, UNFINISHED)?;
        let unpack = || {
            let content = RelativePath::literal(CONTENT);
            directory.mkdir(&content, 0o755)?;
            let to = directory.open_dir(&content)?;
            let keep_owners = rustix::process::geteuid().is_root();
            let record = layer::unpack(file, &to, below, Some(diff_id), limits, keep_owners)
                .map_err(|source| Error::Layer { digest: blob.digest.clone(), source })?;
            write_record(&directory, &record)?;
            self.layers.sync_file_system()?;
            match self.layers.rename(&temporary, &self.layers, name, Rename::NoReplace) {
                // Another process has unpacked the same layer meanwhile.
                Err(error) if error.errno() == Some(Errno::EXIST) => {
                    Ok(self.layers.remove_tree(&temporary)?)
                }
                renamed => Ok(renamed?),
            }
        };
        let result = unpack();
        if result.is_err() {
            // What remains is removed by the next clean-up.
            let _ = self.layers.remove_tree(&temporary);
        }
        result.and_then(|()| Ok(self.layers.sync()?))
    }

    /// What is known about an unpacked layer; `None` for what is not complete.
    pub(super) fn layer_record(&self, name: &RelativePath) -> Result<Option<LayerRecord>, Error> {
        let path = name.join(RECORD.as_bytes());
        let path = path.map_err(|error| io_error("name a layer")(std::io::Error::other(error)))?;
        let file: File = match self.layers.open_file(&path) {
            Err(error) if matches!(error.errno(), Some(Errno::NOENT | Errno::NOTDIR)) => {
                return Ok(None);
            }
            opened => opened?,
        };
        let mut text = Vec::new();
        file.take(MAX_RECORD_BYTES).read_to_end(&mut text).map_err(io_error("read"))?;
        let record = serde_json::from_slice(&text);
        record.map(Some).map_err(|error| io_error("read the record of a layer")(error.into()))
    }
}

fn write_record(directory: &Dir, record: &LayerRecord) -> Result<(), Error> {
    let failed = io_error("write the record of a layer");
    let text = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
    let mut file = directory.create_file(&RelativePath::literal(RECORD), 0o600)?;
    file.write_all(&text).map_err(failed)
}

fn invalid(what: &'static str, reason: &str) -> InvalidDocument {
    InvalidDocument::Invalid { what, reason: reason.to_owned() }
}
