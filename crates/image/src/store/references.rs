//! The list of names: which manifest a name leads to, for each platform.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, Rename};
use stockade_core::StoredImage;

use super::{Error, io_error, lock};
use crate::digest::Digest;
use crate::platform::Platform;
use crate::reference::Reference;

/// The file of the list.
const FILE: &str = "references.json";
/// Its next version.
const NEXT: &str = "references.json.next";

/// A name in the store, for one platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The name.
    pub reference: Reference,
    /// The platform.
    pub platform: Platform,
    /// The digest of the manifest.
    pub digest: Digest,
    /// The digest of the index that the manifest was chosen from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<Digest>,
    /// The digest of the configuration, which Docker shows as the id of an image.
    pub configuration: Digest,
    /// The size of the parts as they were fetched.
    pub size_bytes: u64,
    /// When the image was made, as its configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// When it was added, in RFC 3339.
    pub added: String,
}

impl Record {
    /// The record as lists show it.
    #[must_use]
    pub fn to_stored(&self) -> StoredImage {
        StoredImage {
            reference: self.reference.to_string(),
            platform: self.platform.to_string(),
            id: self.configuration.to_string(),
            digest: self.digest.to_string(),
            repository_digest: self.index.as_ref().unwrap_or(&self.digest).to_string(),
            size_bytes: self.size_bytes,
            created_at: self.created.clone(),
            added_at: self.added.clone(),
        }
    }

    /// The record that lists show like this; `None` if it is invalid.
    #[must_use]
    pub fn from_stored(shown: &StoredImage) -> Option<Self> {
        let digest: Digest = shown.digest.parse().ok()?;
        let repository_digest: Digest = shown.repository_digest.parse().ok()?;
        Some(Self {
            reference: shown.reference.parse().ok()?,
            platform: shown.platform.parse().ok()?,
            index: (repository_digest != digest).then_some(repository_digest),
            digest,
            configuration: shown.id.parse().ok()?,
            size_bytes: shown.size_bytes,
            created: shown.created_at.clone(),
            added: shown.added_at.clone(),
        })
    }

    /// Whether the name in a request means this record.
    pub fn answers(&self, wanted: &Reference) -> bool {
        match wanted.digest() {
            Some(digest) => {
                self.reference.is_same_repository(wanted)
                    && (self.digest == *digest || self.index.as_ref() == Some(digest))
            }
            None => {
                self.reference.is_same_repository(wanted) && self.reference.tag() == wanted.tag()
            }
        }
    }

    /// What only one record may have: its name, the digest of a name without a tag, and the platform.
    fn key(&self) -> (String, Option<Digest>, Platform) {
        let name = &self.reference;
        let tag = name.tag();
        let whole =
            format!("{}/{}:{}", name.registry(), name.repository(), tag.unwrap_or_default());
        (whole, tag.is_none().then(|| self.digest.clone()), self.platform.clone())
    }
}

/// Adds records. Each takes its name from the record that had it.
pub(super) fn add(known: &mut Vec<Record>, new: Vec<Record>) {
    let mut named: BTreeMap<_, Record> =
        known.drain(..).map(|record| (record.key(), record)).collect();
    named.extend(new.into_iter().map(|record| (record.key(), record)));
    known.extend(named.into_values());
}

/// The present time.
pub(super) fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// The records, sorted by name and platform. The file is replaced as a whole, so no lock is needed.
pub(super) fn read(root: &Dir, path: &Path) -> Result<Vec<Record>, Error> {
    let mut file = match root.open_file(&RelativePath::literal(FILE)) {
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(io_error("read the list of images"))?;
    serde_json::from_slice(&text)
        .map_err(|source| Error::References { path: path.join(FILE), source })
}

/// Changes the records.
pub(super) fn change(
    root: &Dir,
    path: &Path,
    change: impl FnOnce(&mut Vec<Record>),
) -> Result<(), Error> {
    let _lock = lock::references(root)?;
    let mut records = read(root, path)?;
    change(&mut records);
    records.sort_by(|one, other| {
        (&one.reference, &one.platform).cmp(&(&other.reference, &other.platform))
    });
    let failed = io_error("write the list of images");
    let text = serde_json::to_vec_pretty(&records).map_err(|error| failed(error.into()))?;
    let (next, file) = (RelativePath::literal(NEXT), RelativePath::literal(FILE));
    // A process that died left it.
    match root.remove_file(&next) {
        Err(error) if error.errno() != Some(Errno::NOENT) => return Err(error.into()),
        _ => {}
    }
    let mut written: File = root.create_file(&next, 0o600)?;
    written.write_all(&text).and_then(|()| written.sync_all()).map_err(&failed)?;
    root.rename(&next, root, &file, Rename::Replace)?;
    Ok(root.sync()?)
}
