//! The store of images below the data directory, shared by all processes of its owner.
//!
//! ```text
//! images/
//!   blobs/<hex>          manifests, indices, configurations and layers as they were fetched
//!   layers/<hex>/        an unpacked layer, by the digest of its content and all below it
//!   owned-layers/<hex>/  the same with subordinate ids as owners, made where an image is used with them
//!   references.json      which name leads to which manifest, by platform
//!   lock                 held shared while something is added, exclusively while it is removed
//!   references.lock      held while `references.json` is changed
//! ```
//!
//! A blob and a layer get their final names only when they are complete, checked and on disk, so
//! what has such a name can be used without a lock. What has no reference is removed only by
//! [`Store::prune`] and [`Store::remove`], which wait for those who add something.

mod blob;
mod layers;
mod lock;
mod references;
mod removal;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir};
use stockade_bundle::data::{self, DataDir};
use stockade_core::caller::outside_user;

use crate::digest::Digest;
use crate::document::{
    Configuration, Descriptor, Document, InvalidDocument, MAX_DOCUMENT_BYTES, Manifest,
};
use crate::limits::Limits;
use crate::platform::Platform;
use crate::reference::Reference;

pub use blob::BlobWriter;
pub use references::Record;
pub use removal::{InUse, Removed, Usage};

/// The directory of the blobs.
const BLOBS: &str = "blobs";
/// The directory of the unpacked layers.
const LAYERS: &str = "layers";
/// The same for those that an ordinary user has unpacked with the owners that they name, as subordinate ids.
const OWNED_LAYERS: &str = "owned-layers";

/// The start of the names of what is not complete.
const UNFINISHED: &str = ".unfinished-";

/// Why the store refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// Something in the store cannot be read or written.
    #[error(transparent)]
    Write(#[from] beneath::Error),
    /// Reading or writing failed.
    #[error("cannot {operation} in the store of images")]
    Io {
        /// What was attempted.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The file of the references is damaged.
    #[error("the list of images ({}) cannot be read", path.display())]
    References {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Content is not what its digest says.
    #[error("the content has the digest {found}, not {expected}")]
    Digest {
        /// The digest that it should have.
        expected: Digest,
        /// The digest that it has.
        found: Digest,
    },
    /// Content has another size than its descriptor says.
    #[error("the content of {digest} has {found} bytes, not {expected}")]
    Size {
        /// The content.
        digest: Digest,
        /// The size that it should have.
        expected: u64,
        /// The size that it has, or how much of it was read.
        found: u64,
    },
    /// A blob is larger than allowed.
    #[error("the content of {digest} has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// The content.
        digest: Digest,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A part that a manifest names is not there.
    #[error("the image's part {0} is not in the store")]
    MissingBlob(Digest),
    /// An unpacked layer is not there, or is just being removed.
    #[error("the image's unpacked layer {0} is not in the store")]
    MissingLayer(Digest),
    /// A document of the image cannot be used.
    #[error(transparent)]
    Document(#[from] InvalidDocument),
    /// A layer cannot be unpacked.
    #[error("cannot unpack the layer {digest}")]
    Layer {
        /// The layer's blob.
        digest: Digest,
        /// Why.
        #[source]
        source: crate::layer::Error,
    },
    /// The image is made for another platform than was asked for.
    #[error("the image is made for {found}, not for {wanted}")]
    Platform {
        /// What was asked for.
        wanted: Box<Platform>,
        /// What it is made for.
        found: Box<Platform>,
    },
    /// The lock was not free in time.
    #[error("another process uses the store of images, and has not ended within {0} seconds")]
    Busy(u64),
    /// An image that is to be removed is used.
    #[error("the image {digest} is used by {by}")]
    InUse {
        /// The manifest.
        digest: Digest,
        /// The sandbox or snapshot that uses it.
        by: String,
    },
}

/// The store of images of one data directory.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    root: Dir,
    blobs: Dir,
    layers: Dir,
    /// The name of their directory.
    layers_name: &'static str,
    limits: Limits,
}

/// An image in the store, with all its layers unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The name by which it was found; `None` if by its digest alone.
    pub reference: Option<Reference>,
    /// The digest of its manifest: the digest that is recorded.
    pub digest: Digest,
    /// Its manifest.
    pub manifest: Manifest,
    /// Its configuration.
    pub configuration: Configuration,
    /// The directories of its unpacked layers, the lowest one first.
    pub layers: Vec<PathBuf>,
}

/// An image that was taken into the store, and the names that it gets.
#[derive(Debug, Clone)]
pub struct Taken {
    digest: Digest,
    index: Option<Digest>,
    platform: Platform,
    manifest: Manifest,
    configuration: Configuration,
    names: Vec<Reference>,
}

impl Taken {
    /// The image with these names.
    #[must_use]
    pub fn named(mut self, names: Vec<Reference>) -> Self {
        self.names = names;
        self
    }

    /// One record for each name.
    fn records<'a>(&'a self, added: &'a str) -> impl Iterator<Item = Record> + 'a {
        let size = self.manifest.parts().map(|part| part.size).fold(0, u64::saturating_add);
        self.names.iter().map(move |name| Record {
            reference: name.clone(),
            platform: self.platform.clone(),
            digest: self.digest.clone(),
            index: self.index.clone(),
            configuration: self.manifest.config.digest.clone(),
            size_bytes: size,
            created: self.configuration.created.clone(),
            added: added.to_owned(),
        })
    }
}

/// The right to add parts to the store: nothing is removed meanwhile.
#[derive(Debug)]
pub struct Addition<'a> {
    store: &'a Store,
    /// Released when it is closed.
    _lock: File,
}

impl Store {
    /// Opens the store of a data directory; its directories are created.
    ///
    /// # Errors
    /// The data directory cannot be used.
    pub fn open(data: &DataDir) -> Result<Self, Error> {
        Self::with_limits(data, Limits::default())
    }

    /// The same with the layers whose owners are subordinate ids, for a process that does not have
    /// these ids: it finds only what one with them has unpacked.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_owned(data: &DataDir) -> Result<Self, Error> {
        Self::with_layers(data, Limits::default(), OWNED_LAYERS)
    }

    /// The same as [`Store::open`] with other limits.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn with_limits(data: &DataDir, limits: Limits) -> Result<Self, Error> {
        let layers_name = match outside_user() {
            Some(_) => OWNED_LAYERS,
            None => LAYERS,
        };
        Self::with_layers(data, limits, layers_name)
    }

    fn with_layers(
        data: &DataDir,
        limits: Limits,
        layers_name: &'static str,
    ) -> Result<Self, Error> {
        let root = data.images()?;
        // The root user of a sandbox must pass through it to the layers; the data directory
        // denies access to all others.
        let (blobs, layers) = (subdirectory(&root, BLOBS)?, subdirectory(&root, layers_name)?);
        let path = data.path().join("images");
        Ok(Self { path, root, blobs, layers, layers_name, limits })
    }

    /// The limits on one image.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Starts to add parts. The lock is held until the value is dropped.
    ///
    /// # Errors
    /// [`Error::Busy`] where images are being removed for too long.
    pub fn start(&self) -> Result<Addition<'_>, Error> {
        Ok(Addition { store: self, _lock: lock::shared(&self.root)? })
    }

    /// The image of a name for a platform, if it is in the store. A digest in the name decides;
    /// it may be that of the manifest or of the index that the manifest was chosen from.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn get(&self, reference: &Reference, platform: &Platform) -> Result<Option<Image>, Error> {
        let records = references::read(&self.root, &self.path)?;
        let found =
            records.iter().find(|record| record.platform == *platform && record.answers(reference));
        found.map(|record| self.load(&record.digest, Some(record.reference.clone()))).transpose()
    }

    /// The image of a digest, of its manifest, index or configuration, for a platform.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn get_by_digest(
        &self,
        digest: &Digest,
        platform: &Platform,
    ) -> Result<Option<Image>, Error> {
        let records = references::read(&self.root, &self.path)?;
        let found = records.iter().find(|record| {
            record.digest == *digest
                || record.configuration == *digest
                || (record.index.as_ref() == Some(digest) && record.platform == *platform)
        });
        found.map(|record| self.load(&record.digest, None)).transpose()
    }

    /// Everything in the store: one record for each name and platform, sorted.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn list(&self) -> Result<Vec<Record>, Error> {
        references::read(&self.root, &self.path)
    }

    /// Whether a blob is there.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn has_blob(&self, digest: &Digest) -> Result<bool, Error> {
        Ok(self.blobs.stat(&relative(digest.hex())?)?.is_some())
    }

    /// Opens a blob for reading; `None` if it is not there.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn open_blob(&self, digest: &Digest) -> Result<Option<File>, Error> {
        match self.blobs.open_file(&relative(digest.hex())?) {
            Err(error) if error.errno() == Some(Errno::NOENT) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    /// Reads a document; its digest is checked again.
    ///
    /// # Errors
    /// [`Error::MissingBlob`], and what is wrong with it.
    pub fn read_document(&self, digest: &Digest) -> Result<Vec<u8>, Error> {
        let file = self.open_blob(digest)?.ok_or_else(|| Error::MissingBlob(digest.clone()))?;
        let mut text = Vec::new();
        file.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut text).map_err(io_error("read"))?;
        if text.len() as u64 > MAX_DOCUMENT_BYTES {
            return Err(InvalidDocument::TooLarge { what: "document" }.into());
        }
        match Digest::of(&text) {
            found if found == *digest => Ok(text),
            found => Err(Error::Digest { expected: digest.clone(), found }),
        }
    }

    /// Loads the image of a manifest.
    ///
    /// # Errors
    /// A part is missing or damaged.
    pub fn load(&self, manifest: &Digest, reference: Option<Reference>) -> Result<Image, Error> {
        let (parsed, configuration) = self.documents(manifest)?;
        let layers = match self.layer_directories(&configuration) {
            // The image was taken into the store without owners.
            Err(Error::MissingLayer(_))
                if self.layers_name == OWNED_LAYERS && outside_user().is_some() =>
            {
                let _lock = lock::shared(&self.root)?;
                self.unpack(&parsed, &configuration)?;
                self.layer_directories(&configuration)?
            }
            layers => layers?,
        };
        Ok(Image { reference, digest: manifest.clone(), manifest: parsed, configuration, layers })
    }
}

impl Addition<'_> {
    /// The limits on one image.
    pub const fn limits(&self) -> &Limits {
        &self.store.limits
    }

    /// Whether a blob is there.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn has_blob(&self, digest: &Digest) -> Result<bool, Error> {
        self.store.has_blob(digest)
    }

    /// Starts to write a blob of a known digest and size.
    ///
    /// # Errors
    /// It is larger than allowed, or cannot be created.
    pub fn write_blob(&self, digest: &Digest, size: u64) -> Result<BlobWriter<'_>, Error> {
        let limit = self.store.limits.blob_bytes;
        if size > limit {
            return Err(Error::TooLarge { digest: digest.clone(), size, limit });
        }
        BlobWriter::create(&self.store.blobs, Some(digest.clone()), size)
    }

    /// Starts to write a blob whose digest is not known yet: content that this process makes, or
    /// that has no descriptor. It may have up to `limit` bytes.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn write_unknown_blob(&self, limit: u64) -> Result<BlobWriter<'_>, Error> {
        BlobWriter::create(&self.store.blobs, None, limit.min(self.store.limits.blob_bytes))
    }

    /// Writes a document, unless it is there.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_document(&self, text: &[u8]) -> Result<Digest, Error> {
        let digest = Digest::of(text);
        if !self.has_blob(&digest)? {
            let mut writer = self.write_blob(&digest, text.len() as u64)?;
            io::Write::write_all(&mut writer, text).map_err(io_error("write"))?;
            writer.finish()?;
        }
        Ok(digest)
    }

    /// Adds an image under a name, as [`Self::add_all`] does.
    ///
    /// # Errors
    /// A part is missing, or is not what it should be. The name is unchanged then.
    pub fn add(
        &self,
        reference: &Reference,
        platform: Option<&Platform>,
        manifest: &[u8],
        index: Option<&[u8]>,
    ) -> Result<Image, Error> {
        let image = self.take(platform, manifest, index)?.named(vec![reference.clone()]);
        self.add_all(vec![image])?.pop().ok_or_else(|| Error::MissingBlob(Digest::of(manifest)))
    }

    /// Takes an image into the store without a name: writes the manifest, and the index that it was
    /// chosen from; and unpacks each layer that is not there unpacked. The configuration and the layers
    /// must have been written.
    ///
    /// `platform` is what was asked for: an image of another platform is refused.
    ///
    /// # Errors
    /// A part is missing, or is not what it should be.
    pub fn take(
        &self,
        platform: Option<&Platform>,
        manifest: &[u8],
        index: Option<&[u8]>,
    ) -> Result<Taken, Error> {
        let store = self.store;
        let Document::Manifest(parsed) = Document::parse(manifest, None)? else {
            let reason = "an index where a manifest should be".to_owned();
            return Err(InvalidDocument::Invalid { what: "manifest", reason }.into());
        };
        for part in parsed.parts() {
            self.check_part(part)?;
        }
        let configuration = Configuration::parse(&store.read_document(&parsed.config.digest)?)?;
        let found = configuration.platform();
        if let Some(wanted) = platform
            && !wanted.accepts(&found)
        {
            let (wanted, found) = (Box::new(wanted.clone()), Box::new(found));
            return Err(Error::Platform { wanted, found });
        }
        store.unpack(&parsed, &configuration)?;
        let digest = self.write_document(manifest)?;
        let index = index.map(|index| self.write_document(index)).transpose()?;
        let platform = platform.cloned().unwrap_or(found);
        Ok(Taken { digest, index, platform, manifest: parsed, configuration, names: Vec::new() })
    }

    /// Records the names of images, all at once. What a name meant before for the same platform has no
    /// name any more; of two images with the same name the last one has it.
    ///
    /// # Errors
    /// The list of names cannot be written, or an image is damaged. The names are unchanged in the first
    /// case.
    pub fn add_all(&self, images: Vec<Taken>) -> Result<Vec<Image>, Error> {
        let store = self.store;
        let added = references::now();
        let records = images.iter().flat_map(|image| image.records(&added)).collect();
        references::change(&store.root, &store.path, |known| references::add(known, records))?;
        let mut all = Vec::new();
        for Taken { digest, names, .. } in images {
            let image = store.load(&digest, None)?;
            all.extend(
                names.into_iter().map(|name| Image { reference: Some(name), ..image.clone() }),
            );
        }
        Ok(all)
    }

    fn check_part(&self, part: &Descriptor) -> Result<(), Error> {
        let missing = || Error::MissingBlob(part.digest.clone());
        let found = self.store.blobs.stat(&relative(part.digest.hex())?)?.ok_or_else(missing)?;
        if found.size != part.size {
            let (digest, expected) = (part.digest.clone(), part.size);
            return Err(Error::Size { digest, expected, found: found.size });
        }
        Ok(())
    }
}

fn relative(name: &str) -> Result<RelativePath, Error> {
    RelativePath::new(name).map_err(|error| io_error("name a file")(io::Error::other(error)))
}

fn subdirectory(root: &Dir, name: &'static str) -> Result<Dir, Error> {
    let path = RelativePath::literal(name);
    match root.mkdir(&path, 0o711) {
        Err(error) if error.errno() != Some(Errno::EXIST) => Err(error)?,
        _ => Ok(root.open_dir(&path)?),
    }
}

fn io_error(operation: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io { operation, source }
}
