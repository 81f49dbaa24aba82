//! Bundles of changes to a project on the host, and the decisions about them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stockade_core::{Problem, SandboxId, Time};

use stockade_core::Bytes;

/// Lists the bundles that wait for a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ListBundles {
    /// The largest size of the changes of a killed run that are turned into a bundle, in bytes; 4
    /// GiB when absent.
    pub limit_bytes: Option<u64>,
    /// The most paths of such a bundle; 200 000 when absent. An ignored directory with many changes
    /// counts as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_paths: Option<u64>,
    /// Whether only bundles are listed that exist already, and no changes of killed runs become one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stored_only: bool,
}

/// Bundles, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleList {
    /// The bundles; unreadable ones come last.
    pub bundles: Vec<ListedBundle>,
    /// Views of killed runs that could not be turned into a bundle.
    pub views: Vec<StoredView>,
    /// The bundles that were removed just now, because they were too old.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expired: Vec<Bundle>,
    /// The servers that have more of them, and do not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable_servers: Vec<String>,
}

/// A bundle, or why it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ListedBundle {
    /// The bundle.
    Bundle(Bundle),
    /// It cannot be read.
    #[schemars(title = "UnreadableBundle")]
    Unreadable {
        /// Its id.
        id: String,
        /// Why.
        error: Problem,
    },
}

/// The properties of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bundle {
    /// Its id: the hash of its content.
    pub id: String,
    /// The path of its project on the host.
    pub project: Bytes,
    /// When it was made.
    // The other name is that of older records.
    #[serde(alias = "createdAtMs")]
    pub created_at: Time,
    /// The command that made the changes.
    pub command: Vec<String>,
    /// Labels by which it can be found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The exit code of that command.
    pub exit_code: u8,
    /// The commit that the project's `HEAD` named.
    pub base_ref: Option<String>,
    /// How much of it was applied.
    pub state: BundleState,
    /// How many changes it has.
    pub changes: BundleChanges,
}

/// How much of a bundle was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BundleState {
    /// Nothing.
    Open,
    /// Something, and something is left.
    Partial,
    /// All changes are applied, except those that must be named explicitly.
    Applied,
}

/// The numbers of changes of a bundle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleChanges {
    /// Those that can be applied: all but the ignored and the refused ones.
    pub total: usize,
    /// Those that were applied.
    pub applied: usize,
    /// Those that are never applied.
    pub refused: usize,
    /// Those that git ignores, with every path in an ignored directory.
    pub ignored: u64,
    /// Those in `total` of files that host tools execute automatically.
    pub executed: usize,
    /// Those in `total` that conflict with later changes on the host.
    pub conflicting: usize,
}

/// A view of a killed run that could not be turned into a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredView {
    /// The id with which it can be rejected.
    pub id: String,
    /// Its path on the host.
    pub path: Bytes,
    /// Why it is not a bundle.
    pub error: Problem,
}

/// Stores the changes of a sandbox in its workspace as a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CollectChanges {
    /// The sandbox: running, paused or stopped.
    pub sandbox_id: SandboxId,
    /// Paths to exclude, with everything below them: relative to the workspace, or absolute host
    /// paths in it.
    #[serde(default)]
    pub exclude: Vec<Bytes>,
    /// The largest size of the changes, in bytes; 4 GiB when absent.
    #[serde(default)]
    pub limit_bytes: Option<u64>,
    /// The most changed paths; 200 000 when absent. An ignored directory with many changes counts as
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_paths: Option<u64>,
}

/// The changes of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CollectedChanges {
    /// The bundle; none if nothing has changed.
    pub bundle: Option<Bundle>,
    /// What could not be considered, in words.
    pub notes: Vec<String>,
}

/// Shows one bundle, or some paths of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowBundle {
    /// The bundle: an id, a unique prefix of one, or `latest`.
    pub id: String,
    /// Only changes at or below these paths, relative to the project's root or absolute in it; all
    /// when empty.
    #[serde(default)]
    pub paths: Vec<Bytes>,
}

/// A bundle with its changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleDetail {
    /// The properties of the bundle.
    #[serde(flatten)]
    pub bundle: Bundle,
    /// The changes, sorted by path.
    pub entries: Vec<BundleEntry>,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BundleEntry {
    /// Whether it was applied.
    pub applied: bool,
    /// The change, as in the manifest of the bundle.
    #[serde(flatten)]
    pub change: Map<String, Value>,
}

/// Shows the changed lines of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiffBundle {
    /// The bundle: an id, a unique prefix of one, or `latest`.
    pub id: String,
    /// The entries, in this order; all when empty.
    #[serde(default)]
    pub paths: Vec<Bytes>,
}

/// The changed lines of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathDiff {
    /// The path, below the project's root.
    pub path: Bytes,
    /// The number of added lines.
    pub added: u64,
    /// The number of removed lines.
    pub removed: u64,
    /// Whether it is binary.
    pub binary: bool,
    /// The difference, in the format of git.
    pub diff: Bytes,
    /// The same for a reader, where a reader does not see all of `diff`: decoded, with hidden bytes
    /// made visible, and with long lines in parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readable: Option<Bytes>,
    /// How many bytes of the new content are in neither of the two.
    #[serde(default)]
    pub unseen: u64,
    /// For a path in conflict: what the host has changed there since the command started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Bytes>,
}

/// What happens where both the bundle and the host have changed a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Conflicts {
    /// Nothing is applied.
    #[default]
    Refuse,
    /// The changes of both sides are merged. If both changed the same lines, nothing is applied.
    Merge,
    /// The same, but where both changed the same, the host's side is kept.
    Ours,
    /// The same, but where both changed the same, the bundle's side is taken.
    Theirs,
}

/// The chosen part of the changes of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChosenHunks {
    /// The path, below the project's root.
    pub path: Bytes,
    /// The hunks, as a patch of this path in the format of git.
    pub diff: Bytes,
}

/// Applies the selected changes of a bundle to its project, all or none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplyBundle {
    /// The bundle: an id, a unique prefix of one, or `latest`.
    pub id: String,
    /// Only changes at or below these paths, including files that git ignores; all when empty.
    #[serde(default)]
    pub paths: Vec<Bytes>,
    /// Whether files that git ignores are applied as well.
    #[serde(default)]
    pub include_ignored: bool,
    /// Whether changes to files that host tools execute automatically are accepted.
    #[serde(default)]
    pub allow_executed: bool,
    /// Whether new contents that no diff shows are accepted.
    #[serde(default)]
    pub allow_unseen: bool,
    /// Whether changes are left out that need `allowExecuted` or `allowUnseen`, and do not have it;
    /// otherwise nothing is applied if there is one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_unaccepted: bool,
    /// What happens where both the bundle and the host have changed a path.
    #[serde(default)]
    pub conflicts: Conflicts,
    /// Whether conflicts that remain in texts are written to them, between markers.
    #[serde(default)]
    pub markers: bool,
    /// The paths of which only some hunks are applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hunks: Vec<ChosenHunks>,
    /// The project's present path, if it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Bytes>,
}

/// The result of applying a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedBundle {
    /// The bundle's id.
    pub id: String,
    /// The path of the project on the host.
    #[serde(default)]
    pub project: Bytes,
    /// The paths that were changed.
    pub applied: Vec<Bytes>,
    /// The paths that already had the content of the bundle.
    pub already: Vec<Bytes>,
    /// The paths that were skipped, with one entry for several of one directory.
    pub skipped: Vec<SkippedPath>,
    /// The changed paths that have the changes of both the host and the bundle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<Bytes>,
    /// The paths of texts that contain conflicts between markers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marked: Vec<Bytes>,
    /// The paths in conflict at which the host's side was kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Bytes>,
    /// Whether no change of the bundle is left to decide; the bundle is then deleted.
    pub done: bool,
}

/// A skipped path, or several of one directory that were skipped for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkippedPath {
    /// The path, or the directory of the paths; the project's root is `.`.
    pub path: Bytes,
    /// Why.
    pub reason: String,
    /// The number of paths.
    #[serde(default = "one")]
    pub paths: usize,
}

const fn one() -> usize {
    1
}

/// Stores the changes of a result bundle as a bundle (Smithers, "Result bundles").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProposeChanges {
    /// The path of the project on the host.
    pub project: Bytes,
    /// The commit of the project when the work began. Changes with another base are refused.
    #[serde(default)]
    pub base_ref: Option<String>,
    /// The `diffBundle`.
    pub diff: Value,
    /// The origin of the changes, for people.
    pub origin: String,
}

/// Rejects and deletes a bundle, which may be unreadable, or a view of a killed run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RejectBundle {
    /// The bundle or view: an id, a unique prefix of one, or `latest`.
    pub id: String,
}

/// The rejected bundle or view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedBundle {
    /// The id of the bundle or the view.
    pub id: String,
    /// The path of the project on the host, if it is known.
    #[serde(default)]
    pub project: Option<Bytes>,
    /// Always true.
    pub rejected: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_listed_is_a_bundle_or_why_it_is_none() {
        let bundle = json!({
            "id": "ab", "project": "/p", "createdAt": "2026-01-02T03:04:05.006Z", "command": ["ls"], "exitCode": 0,
            "baseRef": null, "state": "open",
            "changes": {"total": 1, "applied": 0, "refused": 0, "ignored": 0, "executed": 0,
                        "conflicting": 0},
        });
        let problem = Problem::new(stockade_core::Code::BundleInvalid, "damaged");
        let list = json!({"bundles": [bundle, {"id": "cd", "error": problem}], "views": []});
        let read: BundleList = serde_json::from_value(list.clone()).unwrap();
        assert!(matches!(read.bundles[1], ListedBundle::Unreadable { .. }));
        assert_eq!(serde_json::to_value(&read).unwrap(), list);

        let entry = json!({"path": "a", "operation": "delete", "applied": false});
        let mut detail = bundle;
        detail["entries"] = json!([entry]);
        let read: BundleDetail = serde_json::from_value(detail.clone()).unwrap();
        assert!(!read.entries[0].change.contains_key("applied"));
        assert_eq!(serde_json::to_value(&read).unwrap(), detail);
    }
}
