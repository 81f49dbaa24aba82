//! A root file system without a configuration, as a TAR or a directory: one layer.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::Path;

use super::{Error, Selection, read_error};
use crate::digest::{Digest, Sha256Stream};
use crate::document::{Configuration, Descriptor, InvalidDocument, Manifest, RootFs};
use crate::layer::bounds::{Bounded, Counted};
use crate::layer::decompress::decompress;
use crate::platform::Platform;
use crate::store::{Addition, Image, Store};

/// Imports a TAR, which may be compressed.
pub(super) fn tar(store: &Store, path: &Path, wanted: Selection<'_>) -> Result<Vec<Image>, Error> {
    if wanted.reference.is_none() {
        return Err(Error::NoName(path.to_owned()));
    }
    let file = File::open(path).map_err(read_error(path))?;
    let addition = store.start()?;
    let mut blob = addition.write_unknown_blob(u64::MAX)?;
    // The blob is stored without compression: its digest is also that of the content.
    let (compressed, exceeded) = (Cell::new(0), Cell::new(None));
    let counted = Counted { inner: file, read: &compressed };
    let content = decompress(counted).map_err(read_error(path))?;
    let mut bounded = Bounded::new(content, &compressed, &exceeded, addition.limits());
    io::copy(&mut bounded, &mut blob).map_err(|source| match exceeded.get() {
        Some((limit, value)) => Error::Layer {
            path: path.to_owned(),
            source: crate::layer::Error::Limit { limit, value },
        },
        None => read_error(path)(source),
    })?;
    let (digest, size) = blob.finish()?;
    add(&addition, path, digest, size, wanted)
}

/// Imports a directory. The files keep their modes and, where the caller is root, their owners.
pub(super) fn directory(
    store: &Store,
    path: &Path,
    wanted: Selection<'_>,
) -> Result<Vec<Image>, Error> {
    if wanted.reference.is_none() {
        return Err(Error::NoName(path.to_owned()));
    }
    let real = path.canonicalize().map_err(read_error(path))?;
    if !real.is_dir() {
        let reason = "it is a file".to_owned();
        return Err(Error::Kind { path: path.to_owned(), what: "a directory", reason });
    }
    let addition = store.start()?;
    let blob = addition.write_unknown_blob(u64::MAX)?;
    let mut archive = tar::Builder::new(Sha256Stream::new(blob));
    archive.follow_symlinks(false);
    archive.append_dir_all("", &real).map_err(read_error(path))?;
    let (blob, ..) = archive.into_inner().map_err(read_error(path))?.into_parts();
    let (digest, size) = blob.finish()?;
    add(&addition, path, digest, size, wanted)
}

/// Adds an image of one layer without compression.
fn add(
    addition: &Addition<'_>,
    path: &Path,
    digest: Digest,
    size: u64,
    wanted: Selection<'_>,
) -> Result<Vec<Image>, Error> {
    let reference = wanted.reference.ok_or_else(|| Error::NoName(path.to_owned()))?;
    let platform = wanted.platform.cloned().unwrap_or_else(Platform::host);
    let configuration = Configuration {
        architecture: platform.architecture.clone(),
        os: platform.os.clone(),
        variant: platform.variant.clone(),
        rootfs: RootFs { kind: "layers".to_owned(), diff_ids: vec![digest.clone()] },
        ..Configuration::default()
    };
    let json = |source| InvalidDocument::Json { what: "configuration", source };
    let text = serde_json::to_vec(&configuration).map_err(json)?;
    let config = addition.write_document(&text)?;
    let config =
        Descriptor::new("application/vnd.oci.image.config.v1+json", config, text.len() as u64);
    let layer = Descriptor::new("application/vnd.oci.image.layer.v1.tar", digest, size);
    let manifest = Manifest::new(config, vec![layer]);
    let text = serde_json::to_vec(&manifest).map_err(json)?;
    Ok(vec![addition.add(reference, Some(&platform), &text, None)?])
}
