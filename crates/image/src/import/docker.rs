//! What `docker save` writes: `manifest.json` names the configuration and the layers of each image.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;

use super::{Error, Selection, archive};
use crate::digest::Digest;
use crate::document::{Descriptor, InvalidDocument, Manifest};
use crate::reference::Reference;
use crate::store::{Image, Store, Taken};

/// The most names of all images of an archive.
const MAX_NAMES: usize = 10_000;

/// One image in `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Option<Vec<String>>,
}

/// Imports from an archive: the images that it has, with all their names, or the one that is named.
pub(super) fn archive(
    store: &Store,
    path: &Path,
    tag: Option<&str>,
    wanted: Selection<'_>,
) -> Result<Vec<Image>, Error> {
    let addition = store.start()?;
    let content = archive::read(&addition, path)?;
    let wrong = |reason: String| Error::Kind {
        path: path.to_owned(),
        what: "an archive of `docker save`",
        reason,
    };
    let text = content
        .documents
        .get("manifest.json")
        .ok_or_else(|| wrong("it has no manifest.json".to_owned()))?;
    let mut saved: Vec<Saved> = serde_json::from_slice(text)
        .map_err(|source| InvalidDocument::Json { what: "manifest.json", source })?;
    let known: Vec<String> =
        saved.iter().flat_map(|image| image.repo_tags.iter().flatten()).cloned().collect();
    if let Some(tag) = tag {
        let named: Option<Reference> = tag.parse().ok();
        saved.retain(|image| {
            let mut names = image.repo_tags.iter().flatten();
            names.any(|name| name == tag || (named.is_some() && name.parse().ok() == named))
        });
        if saved.is_empty() {
            return Err(Error::NoTag { path: path.to_owned(), tag: tag.to_owned(), known });
        }
    }
    if saved.is_empty() {
        return Err(wrong("it has no image".to_owned()));
    }
    if saved.len() > MAX_NAMES || known.len() > MAX_NAMES {
        return Err(wrong(format!("it has more than {MAX_NAMES} names")));
    }
    if saved.len() > 1 && wanted.reference.is_some() {
        return Err(Error::Several { path: path.to_owned(), known });
    }
    let mut images = Vec::new();
    let mut taken: BTreeMap<Vec<u8>, Taken> = BTreeMap::new();
    for image in saved {
        let part = |name: &str| {
            content.file(name).cloned().ok_or_else(|| wrong(format!("{name} is missing")))
        };
        let (config, size) = part(&image.config)?;
        let config = descriptor("application/vnd.oci.image.config.v1+json", config, size);
        let layers = image.layers.unwrap_or_default();
        let layers = layers.iter().map(|name| {
            let (digest, size) = part(name)?;
            let is_gzip = is_gzip(store, &digest)?;
            let suffix = if is_gzip { "+gzip" } else { "" };
            let kind = format!("application/vnd.oci.image.layer.v1.tar{suffix}");
            Ok(descriptor(&kind, digest, size))
        });
        let manifest = Manifest::new(config, layers.collect::<Result<_, Error>>()?);
        let text = serde_json::to_vec(&manifest)
            .map_err(|source| InvalidDocument::Json { what: "manifest", source })?;
        let names: Vec<Reference> = match (wanted.reference, tag) {
            (Some(reference), _) => vec![reference.clone()],
            (None, Some(tag)) => vec![tag.parse()?],
            (None, None) => {
                let names = image.repo_tags.unwrap_or_default();
                names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?
            }
        };
        if names.is_empty() {
            return Err(Error::NoName(path.to_owned()));
        }
        // Many entries may be one image.
        let known = taken.get(&text).cloned();
        let image = known.map_or_else(|| addition.take(wanted.platform, &text, None), Ok)?;
        taken.insert(text, image.clone());
        images.push(image.named(names));
    }
    Ok(addition.add_all(images)?)
}

fn descriptor(kind: &str, digest: Digest, size: u64) -> Descriptor {
    Descriptor::new(kind, digest, size)
}

fn is_gzip(store: &Store, digest: &Digest) -> Result<bool, Error> {
    let mut start = [0; 2];
    let blob = store.open_blob(digest)?;
    let read = blob.map(|mut blob| blob.read(&mut start));
    Ok(matches!(read, Some(Ok(2))) && start == *b"\x1f\x8b")
}
