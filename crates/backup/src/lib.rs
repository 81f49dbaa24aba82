//! Archives of a data directory. An archive is a tar file: a header, the records as a SQLite file, the
//! files of the data directory with their owners, times and attributes, a list of all entries with
//! their hashes, and a manifest with the hash of that list.
//!
//! An archive is input that may be damaged or made by somebody else: [`read`] reports content only
//! after its hash was compared, and a path in an archive leads nowhere but below the directory that
//! it is extracted to. This crate knows no database: the caller brings the file with the records, and
//! compares their tables with the manifest.
//!
//! Reading order: `parts` (what of a data directory is in an archive), `entry` and `manifest` (what is
//! recorded), `write`, `read`, `extract`.

mod entry;
mod error;
mod extract;
mod hashing;
mod manifest;
mod parts;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use error::Error;
pub use manifest::{Header, Manifest, Source, TableRows};
pub use read::{extract, read};
pub use write::write;

/// The name of the SQLite file with the records, in an archive and in a data directory.
pub const RECORDS: &str = "stockade.db";
