//! Files inside a sandbox. Paths are absolute; links are followed only inside the sandbox.

use std::fmt;
use std::pin::Pin;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::{SandboxId, Time};
use tokio::io::AsyncRead;

use stockade_core::Bytes;

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// The properties of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// Its path.
    pub path: Bytes,
    /// Its type; a link at the end of the path is followed only on request.
    pub kind: FileKind,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its permission bits.
    pub mode: u32,
    /// The file owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The time of its last change of content.
    pub modified_at: Time,
    /// The target of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Bytes>,
}

/// Gets the properties of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StatFile {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The path.
    pub path: Bytes,
    /// Whether a link at the end of the path is followed, only inside the sandbox. The response is
    /// then about its target, with that path.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follow: bool,
}

/// Lists a directory, sorted by name. Entries that may not be read are omitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListDirectory {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The path.
    pub path: Bytes,
    /// How many levels down; 1 when absent.
    #[serde(default)]
    pub depth: Option<u32>,
}

/// The content of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Listing {
    /// The entries; with more than one level, a directory before its content.
    pub entries: Vec<FileEntry>,
    /// How many entries were omitted because they may not be read.
    pub hidden: u64,
}

/// Reads the content of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadFile {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The path.
    pub path: Bytes,
    /// How many bytes to skip.
    #[serde(default)]
    pub offset: u64,
    /// The most bytes to read.
    #[serde(default)]
    pub length: Option<u64>,
}

/// A stream of the bytes of a file.
pub struct FileContent(pub Pin<Box<dyn AsyncRead + Send>>);

impl fmt::Debug for FileContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileContent")
    }
}

/// Writes a file, completely or not at all. Its content is passed separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteFile {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The path.
    pub path: Bytes,
    /// The permission bits of a new file; 0644 when absent.
    #[serde(default)]
    pub mode: Option<u32>,
    /// The file owner; the sandbox's ordinary user when absent.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The group; needs `uid`.
    #[serde(default)]
    pub gid: Option<u32>,
}

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WriteResult {
    /// The file's length in bytes.
    pub size_bytes: u64,
}

/// Creates a directory, and missing parent directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MakeDirectory {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The path.
    pub path: Bytes,
    /// Its permission bits; 0755 when absent.
    #[serde(default)]
    pub mode: Option<u32>,
    /// The user whose rights it takes, and who owns it; the ordinary user when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The group of that user; equal to the user id when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// Renames or moves a file or directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MoveFile {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The old path.
    pub from: Bytes,
    /// The new path.
    pub to: Bytes,
}

/// Copies a directory to a new one on the host, owned by the server's user. Links are copied as
/// they are; pipes, sockets and devices are omitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CollectDirectory {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The path.
    pub path: Bytes,
    /// The absolute destination path on the host. It does not exist before the copy is complete.
    pub to: Bytes,
    /// The largest total size of its files, in bytes.
    pub limit_bytes: u64,
}

/// Removes a file, or a directory with its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveFile {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The path.
    pub path: Bytes,
}

/// Changes the permissions or the owner of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetPermissions {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The path.
    pub path: Bytes,
    /// Its permission bits.
    #[serde(default)]
    pub mode: Option<u32>,
    /// The new file owner.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The new group.
    #[serde(default)]
    pub gid: Option<u32>,
}

/// Creates a tree of files in a directory; the content is a stream of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SendFiles {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The directory, which is created if it is missing.
    pub path: Bytes,
    /// The permission bits of a new directory.
    pub mode: u32,
}

/// Reads the tree of files in a directory; the content is a stream of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReceiveFiles {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The directory.
    pub path: Bytes,
    /// A directory in it that contains this name is skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Bytes>,
}

/// How much of a tree was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SentFiles {
    /// Files.
    pub files: u64,
    /// New directories, without the top one.
    pub directories: u64,
    /// Symbolic links.
    pub links: u64,
    /// Bytes of the files.
    pub size_bytes: u64,
}

/// Searches a directory tree for paths that match a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SearchFiles {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The directory.
    pub path: Bytes,
    /// A glob for the path relative to it: `*` stays within a name, `**` crosses directories.
    pub pattern: String,
}

/// Replaces texts in files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplaceText {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The edits, file by file.
    pub edits: Vec<EditFile>,
}

/// Replaces every occurrence of a text in one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EditFile {
    /// The path.
    pub path: Bytes,
    /// The old text; not empty.
    pub old: Bytes,
    /// The new text.
    pub new: Bytes,
}

/// The number of replacements in each file, in the order of the edits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplaceResult {
    /// The counts.
    pub counts: Vec<u64>,
}

/// Applies a unified diff to files below a directory, all or none: if one part of it does not fit,
/// nothing is changed. Lines may have moved, as for `git apply`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplyPatch {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// The directory to which the paths of the diff are relative.
    pub path: Bytes,
    /// The diff, in the format of git or of `diff -u`, with `a/` and `b/` before the paths.
    pub diff: Bytes,
}

/// The files that a diff has changed, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedPatch {
    /// The files.
    pub files: Vec<PatchedFile>,
}

/// A file that a diff has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PatchedFile {
    /// Its path below the directory; the new one if it was moved.
    pub path: Bytes,
    /// What was done to it.
    pub change: FileChange,
}

/// What a diff does to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FileChange {
    /// It was created.
    Added,
    /// Its content was changed.
    Modified,
    /// It was removed.
    Deleted,
    /// It was moved.
    Renamed,
}
