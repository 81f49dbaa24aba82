//! Files inside a sandbox. Paths are absolute; links are followed inside only.

use std::fmt;
use std::pin::Pin;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stockade_core::SandboxId;
use tokio::io::AsyncRead;

use crate::bytes::Bytes;

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, socket or device.
    Other,
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// Its path.
    pub path: Bytes,
    /// What it is; a link at the end of the path is followed only where that was asked for.
    pub kind: FileKind,
    /// How long it is, in bytes.
    pub size_bytes: u64,
    /// Its permission bits.
    pub mode: u32,
    /// Whose it is.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// When its content changed last.
    pub modified_at: Timestamp,
    /// Where a link points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Bytes>,
}

/// What is known of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StatFile {
    /// Where.
    pub sandbox_id: SandboxId,
    /// Which.
    pub path: Bytes,
    /// Whether a link at the end of the path is followed, inside only. The answer is then about
    /// where it leads, by that path.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
}

/// What is in a directory, by name. What may not be read is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListDirectory {
    /// Where.
    pub sandbox_id: SandboxId,
    /// Which.
    pub path: Bytes,
    /// How many levels down; 1 when absent.
    #[serde(default)]
    pub depth: Option<u32>,
}

/// What is in a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listing {
    /// The entries; with more than one level, a directory before what is in it.
    pub entries: Vec<FileEntry>,
    /// How many were left out because they may not be read.
    pub hidden: u64,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadFile {
    /// Where.
    pub sandbox_id: SandboxId,
    /// Which.
    pub path: Bytes,
    /// How many bytes to leave out.
    #[serde(default)]
    pub offset: u64,
    /// How many bytes to read at most.
    #[serde(default)]
    pub length: Option<u64>,
}

/// Bytes of a file as they are read.
pub struct FileContent(pub Pin<Box<dyn AsyncRead + Send>>);

impl fmt::Debug for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileContent")
    }
}

/// A file that is written whole, or not at all. Its content comes beside this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteFile {
    /// Where.
    pub sandbox_id: SandboxId,
    /// Which.
    pub path: Bytes,
    /// Its permission bits where it is new; 0644 when absent.
    #[serde(default)]
    pub mode: Option<u32>,
    /// Whose it becomes; the sandbox's ordinary user when absent.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The group it becomes; needs `uid`.
    #[serde(default)]
    pub gid: Option<u32>,
}

/// How much was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// The file's length in bytes.
    pub size_bytes: u64,
}

/// A directory that is made, with those that are missing on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MakeDirectory {
    /// Where.
    pub sandbox_id: SandboxId,
    /// Which.
    pub path: Bytes,
    /// Its permission bits; 0755 when absent.
    #[serde(default)]
    pub mode: Option<u32>,
}

/// Another name for a file or directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MoveFile {
    /// Where.
    pub sandbox_id: SandboxId,
    /// The name it has.
    pub from: Bytes,
    /// The name it gets.
    pub to: Bytes,
}

/// A directory that is copied out to the host, to a new one there that belongs to the server's user.
/// Links stay as they are; pipes, sockets and devices are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CollectDirectory {
    /// Where.
    pub sandbox_id: SandboxId,
    /// Which.
    pub path: Bytes,
    /// The absolute path on the host that it gets. It is there once all of it is, and not before.
    pub to: Bytes,
    /// How long its files may be together, in bytes.
    pub limit_bytes: u64,
}

/// A file that goes, or a directory with all that is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveFile {
    /// Where.
    pub sandbox_id: SandboxId,
    /// Which.
    pub path: Bytes,
}

/// Other permissions or another owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetPermissions {
    /// Where.
    pub sandbox_id: SandboxId,
    /// Which.
    pub path: Bytes,
    /// Its permission bits.
    #[serde(default)]
    pub mode: Option<u32>,
    /// Whose it becomes.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The group it becomes.
    #[serde(default)]
    pub gid: Option<u32>,
}

/// Files below a directory whose paths a pattern matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SearchFiles {
    /// Where.
    pub sandbox_id: SandboxId,
    /// Below which directory.
    pub path: Bytes,
    /// A glob on the path below it: `*` stays within a name, `**` crosses directories.
    pub pattern: String,
}

/// Texts that are replaced in files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplaceText {
    /// Where.
    pub sandbox_id: SandboxId,
    /// What, file by file.
    pub edits: Vec<EditFile>,
}

/// A text that is replaced in one file, wherever it occurs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EditFile {
    /// Which.
    pub path: Bytes,
    /// The text that goes; not empty.
    pub old: Bytes,
    /// The text that comes.
    pub new: Bytes,
}

/// How often a text was replaced in each file, in the order of the edits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replaced {
    /// The counts.
    pub counts: Vec<u64>,
}
