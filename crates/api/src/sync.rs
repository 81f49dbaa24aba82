//! Synchronization of a directory of a sandbox with one outside (FireFlow's VFS): a directory of the
//! server's machine or a workspace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::{Bytes, SandboxId, VolumeName};

/// The directory outside of the sandbox: either `directory`, or `workspace` with an optional `path`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Vfs {
    /// An absolute path of the server's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<Bytes>,
    /// The name of a workspace of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<VolumeName>,
    /// A directory of the workspace; all of it if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Bytes>,
    /// The branch of the workspace, or of the git repository that a commit is for; the current one
    /// if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

/// What is done with a file that both sides have changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConflictPolicy {
    /// Nothing at all is copied or deleted.
    #[default]
    Fail,
    /// It stays as it is at both sides.
    Skip,
    /// The side outside of the sandbox wins.
    VfsWins,
    /// The sandbox wins.
    ContainerWins,
}

/// What is done with a file that is larger than allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LargeFiles {
    /// It is not copied, and the report names it.
    #[default]
    Skip,
    /// Nothing at all is copied.
    Fail,
}

/// A request for a synchronization. `sync_from_vfs` copies into the sandbox, `sync_to_vfs` out of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SyncFiles {
    /// The sandbox.
    pub sandbox_id: SandboxId,
    /// A directory in it, by its absolute path.
    pub path: Bytes,
    /// The other side.
    pub vfs: Vfs,
    /// Patterns of what is copied, as in gitignore(5); everything if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Patterns of what is not copied; they win.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Whether what `.gitignore` files of the source name is not copied.
    #[serde(default = "yes")]
    pub gitignore: bool,
    /// Whether directories without files are copied.
    #[serde(default)]
    pub keep_empty_dirs: bool,
    /// Whether the destination loses what the source does not have. What a pattern excludes or a
    /// `.gitignore` of either side names stays.
    #[serde(default)]
    pub mirror: bool,
    /// Whether changes of both sides are copied.
    #[serde(default)]
    pub two_way: bool,
    /// Whether a mirror of an empty source is allowed.
    #[serde(default)]
    pub allow_empty: bool,
    /// What is done with a file that both sides have changed.
    #[serde(default)]
    pub conflict: ConflictPolicy,
    /// Whether what changes outside is committed: in the workspace, or in the git repository of the
    /// directory.
    #[serde(default)]
    pub commit: bool,
    /// The message of the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether `.git` directories are copied into the sandbox. They are never copied out of it.
    #[serde(default)]
    pub git_directories: bool,
    /// The largest file that is copied, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_file_bytes: Option<u64>,
    /// What is done with a larger one.
    #[serde(default)]
    pub large_files: LargeFiles,
    /// The most bytes of all files that are copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// The most files that are copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_files: Option<u64>,
    /// Whether the report says what would be done, and nothing is done.
    #[serde(default)]
    pub dry_run: bool,
}

const fn yes() -> bool {
    true
}

impl SyncFiles {
    /// A request with the default of everything else.
    pub fn new(sandbox_id: SandboxId, path: impl Into<Bytes>, vfs: Vfs) -> Self {
        Self {
            sandbox_id,
            path: path.into(),
            vfs,
            include: Vec::new(),
            exclude: Vec::new(),
            gitignore: true,
            keep_empty_dirs: false,
            mirror: false,
            two_way: false,
            allow_empty: false,
            conflict: ConflictPolicy::Fail,
            commit: false,
            message: None,
            git_directories: false,
            max_file_bytes: None,
            large_files: LargeFiles::Skip,
            max_bytes: None,
            max_files: None,
            dry_run: false,
        }
    }
}

/// A path that was not copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkippedFile {
    /// The path, from the top of the directory.
    pub path: Bytes,
    /// Why: `excluded`, `ignored`, `git_directory`, `access_denied`, `unsafe_link`, `special_file`,
    /// `unreadable`, `too_large`, `changed_meanwhile`, `conflict`, `newer_at_destination` or
    /// `protected`.
    pub reason: String,
}

/// A path that both sides have changed. The hashes are BLAKE3 of a file's content, absent where
/// there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncConflict {
    /// The path, from the top of the directory.
    pub path: Bytes,
    /// The hash that both sides last had.
    pub base: Option<String>,
    /// The hash outside of the sandbox.
    pub vfs: Option<String>,
    /// The hash in the sandbox.
    pub container: Option<String>,
    /// Whether the policy has settled it.
    pub settled: bool,
}

/// The result of a synchronization. The first four numbers count files and links; their sum is the
/// number of those that were examined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncReport {
    /// Whether it was done. It was not if there are conflicts and the policy is `fail`.
    pub completed: bool,
    /// Files that were copied.
    pub copied: u64,
    /// Files that were the same.
    pub unchanged: u64,
    /// Files, and directories with all that is in them, that were not copied.
    pub skipped: u64,
    /// Files that were deleted.
    pub deleted: u64,
    /// Bytes that were copied.
    pub bytes: u64,
    /// Files that both sides had changed.
    pub conflicts: u64,
    /// The commit, if one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_id: Option<String>,
    /// Paths that were copied.
    pub copied_paths: Vec<Bytes>,
    /// Paths that were deleted.
    pub deleted_paths: Vec<Bytes>,
    /// Paths that a first mirror has replaced although they differed.
    pub replaced_paths: Vec<Bytes>,
    /// Paths that were not copied.
    pub skipped_paths: Vec<SkippedFile>,
    /// Paths that both sides had changed.
    pub conflict_paths: Vec<SyncConflict>,
    /// Whether the lists are not complete: each has at most 1000 paths.
    pub truncated: bool,
}
