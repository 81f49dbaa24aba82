//! The documents at the begin and at the end of an archive.

use serde::{Deserialize, Serialize};

/// The form of archives that this version writes, and the newest one that it reads.
pub(crate) const FORM: u32 = 1;

/// The first entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The form of the archive.
    pub form: u32,
    /// The version of Stockade that wrote it.
    pub version: String,
    /// When, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// The user who wrote it: files of this user become those of the user who restores it.
    pub uid: u32,
    /// The group of this user.
    pub gid: u32,
    /// Where the records came from.
    pub source: Source,
}

/// The database of a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A file in it.
    Sqlite,
    /// A PostgreSQL server.
    Postgres,
}

/// The last entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The first entry again.
    pub header: Header,
    /// The tables with the records.
    pub tables: Vec<TableRows>,
    /// The number of files, directories and links.
    pub entries: u64,
    /// The length of all files in bytes, with that of the records.
    pub bytes: u64,
    /// Sockets and devices, which are not in the archive.
    pub left_out: u64,
    /// SHA-256 of the list of entries.
    pub list_sha256: String,
}

/// A table of the records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRows {
    /// Its name.
    pub table: String,
    /// The number of its rows.
    pub rows: u64,
    /// SHA-256 of its rows.
    pub sha256: String,
}
