//! An OCI layout: `index.json` and blobs by their digests.

use std::io::{self, Read as _};
use std::path::Path;

use stockade_bundle::RelativePath;
use stockade_bundle::beneath::Dir;

use super::{Error, Selection, archive, read_error};
use crate::digest::Digest;
use crate::document::{Descriptor, Document, Index, InvalidDocument, MAX_DOCUMENT_BYTES};
use crate::platform::Platform;
use crate::reference::Reference;
use crate::store::{Addition, Image, Store};

/// The annotation with the tag, or the whole name, of an image of a layout.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation in which containerd and Docker store the whole name.
const IMAGE_NAME: &str = "io.containerd.image.name";
/// How many indices may lead to a manifest.
const MAX_INDICES: u32 = 4;

/// Imports from a directory.
pub(super) fn directory(
    store: &Store,
    path: &Path,
    tag: Option<&str>,
    wanted: Selection<'_>,
) -> Result<Vec<Image>, Error> {
    let real = path.canonicalize().map_err(read_error(path))?;
    let failed = |error: stockade_bundle::beneath::Error| read_error(path)(io::Error::other(error));
    let layout = Dir::open_recorded(&real).map_err(failed)?;
    let open = |name: &str| -> Result<std::fs::File, Error> {
        let name = RelativePath::new(name).map_err(|e| read_error(path)(io::Error::other(e)))?;
        layout.open_file(&name).map_err(failed)
    };
    let mut index = Vec::new();
    let file = open("index.json")?;
    file.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut index).map_err(read_error(path))?;
    let addition = store.start()?;
    let fetch = |part: &Descriptor| -> Result<(), Error> {
        if addition.has_blob(&part.digest)? {
            return Ok(());
        }
        let mut from = open(&format!("blobs/sha256/{}", part.digest.hex()))?;
        let mut blob = addition.write_blob(&part.digest, part.size)?;
        io::copy(&mut from, &mut blob).map_err(read_error(path))?;
        blob.finish()?;
        Ok(())
    };
    import(store, &addition, (path, &index), tag, wanted, &fetch)
}

/// Imports from an archive.
pub(super) fn archive(
    store: &Store,
    path: &Path,
    tag: Option<&str>,
    wanted: Selection<'_>,
) -> Result<Vec<Image>, Error> {
    let addition = store.start()?;
    let content = archive::read(&addition, path)?;
    let index = content.documents.get("index.json").ok_or_else(|| Error::Kind {
        path: path.to_owned(),
        what: "an archive of an OCI layout",
        reason: "it has no index.json".to_owned(),
    })?;
    // Every blob of the archive is in the store by its digest, whatever its name is.
    import(store, &addition, (path, index), tag, wanted, &|_| Ok(()))
}

fn import(
    store: &Store,
    addition: &Addition<'_>,
    (path, index): (&Path, &[u8]),
    tag: Option<&str>,
    wanted: Selection<'_>,
    fetch: &dyn Fn(&Descriptor) -> Result<(), Error>,
) -> Result<Vec<Image>, Error> {
    let Document::Index(index) = Document::parse(index, None)? else {
        return Err(Error::Kind {
            path: path.to_owned(),
            what: "an OCI layout",
            reason: "its index.json is a manifest".to_owned(),
        });
    };
    let chosen = choose(path, &index, tag)?;
    let reference = match (wanted.reference, name_of(&chosen)) {
        (Some(reference), _) => reference.clone(),
        (None, Some(name)) => name,
        (None, None) => return Err(Error::NoName(path.to_owned())),
    };
    let host = Platform::host();
    let platform = wanted.platform.unwrap_or(&host);
    let (manifest, within) = find_manifest(store, path, &chosen, platform, fetch)?;
    let text = store.read_document(&manifest.digest)?;
    if let Document::Manifest(parsed) = Document::parse(&text, Some(&manifest.media_type))? {
        parsed.parts().try_for_each(fetch)?;
    }
    let index = within.map(|index| store.read_document(&index)).transpose()?;
    let image = addition.add(&reference, Some(platform), &text, index.as_deref())?;
    Ok(vec![image])
}

/// The entry of a layout's index that is meant.
fn choose(path: &Path, index: &Index, tag: Option<&str>) -> Result<Descriptor, Error> {
    let tags = |entry: &Descriptor| -> Vec<String> {
        let names = [REF_NAME, IMAGE_NAME].map(|name| entry.annotations.get(name).cloned());
        names.into_iter().flatten().collect()
    };
    let known = || index.manifests.iter().flat_map(tags).collect::<Vec<_>>();
    if let Some(tag) = tag {
        let is_it = |entry: &&Descriptor| tags(entry).iter().any(|known| known == tag);
        return index.manifests.iter().find(is_it).cloned().ok_or_else(|| Error::NoTag {
            path: path.to_owned(),
            tag: tag.to_owned(),
            known: known(),
        });
    }
    match index.manifests.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Error::Kind {
            path: path.to_owned(),
            what: "an OCI layout",
            reason: "it has no image".to_owned(),
        }),
        // One image for several platforms.
        many if many.iter().all(|entry| entry.platform().is_some()) => Ok(many[0].clone()),
        _ => Err(Error::Several { path: path.to_owned(), known: known() }),
    }
}

fn name_of(entry: &Descriptor) -> Option<Reference> {
    let names = [IMAGE_NAME, REF_NAME].map(|name| entry.annotations.get(name));
    // A tag alone is no name.
    let whole = names.into_iter().flatten().filter(|name| name.contains([':', '/']));
    whole.filter_map(|name| name.parse().ok()).next()
}

/// The manifest for a platform, and the index that it is in, both fetched into the store.
fn find_manifest(
    store: &Store,
    path: &Path,
    chosen: &Descriptor,
    platform: &Platform,
    fetch: &dyn Fn(&Descriptor) -> Result<(), Error>,
) -> Result<(Descriptor, Option<Digest>), Error> {
    let mut entry = chosen.clone();
    let mut within = None;
    for _ in 0..MAX_INDICES {
        if entry.size > MAX_DOCUMENT_BYTES {
            return Err(InvalidDocument::TooLarge { what: "manifest" }.into());
        }
        fetch(&entry)?;
        let text = store.read_document(&entry.digest)?;
        match Document::parse(&text, Some(&entry.media_type))? {
            Document::Manifest(_) => return Ok((entry, within)),
            Document::Index(index) => {
                let found = index.select(platform).cloned().ok_or_else(|| Error::NoPlatform {
                    path: path.to_owned(),
                    platform: Box::new(platform.clone()),
                    known: index.platforms().into_iter().collect(),
                })?;
                within = Some(std::mem::replace(&mut entry, found).digest);
            }
        }
    }
    let reason = "its indices are nested too deep".to_owned();
    Err(InvalidDocument::Invalid { what: "index", reason }.into())
}
