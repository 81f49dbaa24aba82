//! Unpacking a layer, entry by entry, into a directory of its own.
//!
//! A layer is hostile input. Nothing outside the directory is touched: a name is reduced to a path
//! below the image's root; links on its way are resolved by this crate, within the image, as they
//! would be in a sandbox; and the kernel is then given the result with the order to follow no link.
//! Devices, pipes and sockets are left out and listed. What the directory becomes is a lower layer
//! of an overlay: a deletion is a character device with the number 0:0, and a directory that hides
//! the ones below has the attribute `user.overlay.opaque`.
//!
//! The set-id bits of programs are kept: no process of a sandbox can gain anything by them, since
//! all of them have `no_new_privs`, and nobody else can reach the directory.

pub(crate) mod bounds;
pub(crate) mod decompress;
pub(crate) mod entries;
pub(crate) mod merged;
#[cfg(test)]
mod replaced_tests;
#[cfg(test)]
mod tests;
mod tree;

use std::cell::Cell;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use stockade_bundle::beneath::{self, Dir};

use crate::digest::{Digest, Sha256Stream};
use crate::limits::Limits;

/// Why a layer was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read or decompressed.
    #[error("the layer cannot be read")]
    Read(#[source] io::Error),
    /// It is not a TAR that can be understood.
    #[error("the layer is not a valid TAR: {0}")]
    Malformed(String),
    /// An entry has a name that leads out of the image, or that no file can have.
    #[error("the layer's entry {path} {reason}")]
    Entry {
        /// The name, printable.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// It is larger than allowed.
    #[error("the layer exceeds the limit `{limit}`: {value}")]
    Limit {
        /// The name of the limit.
        limit: &'static str,
        /// Its value.
        value: u64,
    },
    /// Its content is not what the configuration of the image says.
    #[error("the layer's content has the digest {found}, but the image says {expected}")]
    DiffId {
        /// What the configuration says.
        expected: Digest,
        /// What was found.
        found: Digest,
    },
    /// Something could not be written.
    #[error(transparent)]
    Write(#[from] beneath::Error),
    /// Something could not be written.
    #[error("cannot {operation} {path}")]
    Io {
        /// What was attempted.
        operation: &'static str,
        /// The path, printable.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What is known about an unpacked layer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LayerRecord {
    /// The number of entries.
    pub entries: u64,
    /// The size of its files in bytes.
    pub bytes: u64,
    /// How many entries were left out: devices, pipes and entries of unknown types.
    #[serde(default)]
    pub skipped: u64,
    /// Descriptions of the first entries that were left out.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The highest user or group id that owns something.
    #[serde(default)]
    pub highest_id: u32,
    /// Whether the files have the owners that the layer names.
    #[serde(default)]
    pub has_owners: bool,
}

/// The digest of each layer's content with all below it: where the digests of the layers' contents
/// are the same, so is what the layers make together.
pub(crate) fn chain(diff_ids: &[Digest]) -> impl Iterator<Item = Digest> {
    diff_ids.iter().scan(None::<Digest>, |below, diff_id| {
        let chained = match below {
            None => diff_id.clone(),
            Some(below) => Digest::of(format!("{below} {diff_id}").as_bytes()),
        };
        *below = Some(chained.clone());
        Some(chained)
    })
}

/// Unpacks a layer into `to`, an empty directory. `below` are the layers below it, the topmost
/// first. With `keep_owners` (only root can do this) files get the owners that the layer names;
/// otherwise all belong to the user of this process.
///
/// # Errors
/// All of [`Error`]. What was unpacked before stays, and the caller must remove it.
pub fn unpack(
    blob: impl Read,
    to: &Dir,
    below: &[Dir],
    diff_id: Option<&Digest>,
    limits: &Limits,
    keep_owners: bool,
) -> Result<LayerRecord, Error> {
    let (compressed, exceeded) = (Cell::new(0), Cell::new(None));
    let blob = bounds::Counted { inner: blob, read: &compressed };
    let content = decompress::decompress(blob).map_err(Error::Read)?;
    let content = bounds::Bounded::new(content, &compressed, &exceeded, limits);
    let mut hashed = Sha256Stream::new(content);
    let unpacked = tree::unpack(&mut hashed, to, below, limits, keep_owners);
    let record = match (unpacked, exceeded.get()) {
        (Err(_), Some((limit, value))) => Err(Error::Limit { limit, value }),
        (unpacked, _) => unpacked,
    }?;
    let (found, _) = hashed.finish();
    match diff_id {
        Some(expected) if found != *expected => {
            Err(Error::DiffId { expected: expected.clone(), found })
        }
        _ => Ok(record),
    }
}
