//! What a sandbox has changed in its workspace.

use serde::{Deserialize, Serialize};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, Timestamp};

/// The changes of a sandbox in its workspace, besides the directory with the changed files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceChanges {
    /// When the sandbox first used the workspace: a file that the host has changed later may have
    /// been changed by both.
    pub since: Timestamp,
    /// The paths below the workspace that the sandbox has removed, each with everything below it. A
    /// directory of the changed files at such a path replaces what was there.
    pub removed: Vec<RelativePath>,
}

/// The same of a sandbox that has ended, without a copy.
#[derive(Debug)]
pub struct ChangesInPlace {
    /// The directory in which the runtime keeps the changed files, each at its path below the
    /// workspace. Nothing changes it until the sandbox is removed.
    pub layer: Dir,
    /// The rest.
    pub changes: WorkspaceChanges,
}
