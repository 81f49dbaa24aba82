//! Workspaces: named trees of files of an owner, with staged writes, commits and a history.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::{Bytes, Time, VolumeName};

use crate::files::FileKind;

/// One workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkspaceByName {
    /// Its name.
    pub name: VolumeName,
}

/// A workspace and its branches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceInfo {
    /// Its name.
    pub name: VolumeName,
    /// Its branches.
    pub branches: Vec<WorkspaceBranch>,
}

/// A branch of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceBranch {
    /// Its name.
    pub name: String,
    /// The newest commit, if there is one.
    pub head: Option<String>,
    /// Whether there are writes that are not committed.
    pub is_staged: bool,
}

/// The workspaces of the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceList {
    /// By their names.
    pub workspaces: Vec<WorkspaceInfo>,
    /// The servers that have more of them, and do not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable_servers: Vec<String>,
}

/// A request for the files of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadWorkspace {
    /// The workspace.
    pub name: VolumeName,
    /// A branch with what is staged, or the id of a commit; the main branch if absent.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// A file, whose content is returned, or a directory; the whole tree if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Bytes>,
}

/// A file of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceFile {
    /// Its path.
    pub path: Bytes,
    /// Its kind.
    pub kind: FileKind,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Its permission bits.
    pub mode: u32,
    /// The hash (BLAKE3) of its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The target of a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Bytes>,
}

/// Files of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceTree {
    /// The files, by their paths.
    pub files: Vec<WorkspaceFile>,
    /// The content of the file that was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Bytes>,
}

/// A change of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "change",
    deny_unknown_fields
)]
pub enum WorkspaceChange {
    /// Writes a file.
    WriteFile {
        /// Its path.
        path: Bytes,
        /// Its content.
        content: Bytes,
        /// Its permission bits; 0644 if absent.
        #[serde(default)]
        mode: Option<u32>,
    },
    /// Creates a directory.
    CreateFolder {
        /// Its path.
        path: Bytes,
    },
    /// Deletes a file, or a directory with everything in it.
    DeleteFile {
        /// Its path.
        path: Bytes,
    },
}

/// A request that stages changes, all or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeWorkspace {
    /// The workspace.
    pub name: VolumeName,
    /// The branch; the main one if absent. A new branch starts empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The changes, in this order.
    #[serde(default)]
    pub changes: Vec<WorkspaceChange>,
    /// Whether what was staged before is dropped first.
    #[serde(default)]
    pub discard: bool,
}

/// A request that commits what is staged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommitWorkspace {
    /// The workspace.
    pub name: VolumeName,
    /// The branch; the main one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The message.
    pub message: String,
}

/// The result of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommittedWorkspace {
    /// The commit; absent if nothing had changed.
    pub commit_id: Option<String>,
}

/// A commit of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceCommit {
    /// Its id.
    pub id: String,
    /// The commit before.
    pub parent: Option<String>,
    /// The message.
    pub message: String,
    /// Who made it.
    pub author: String,
    /// When.
    pub at: Time,
}

/// The history of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceHistory {
    /// The commits, the newest first.
    pub commits: Vec<WorkspaceCommit>,
}
