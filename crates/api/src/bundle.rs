//! Bundles of changes to a project on the host, and the decisions about them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stockade_core::{Problem, SandboxId};

use crate::bytes::Bytes;

/// The bundles that wait for a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ListBundles {
    /// How large the changes that killed runs left may be to become bundles, in bytes; 4 GiB when
    /// absent.
    pub limit_bytes: Option<u64>,
}

/// Bundles, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleList {
    /// The bundles; those that cannot be read come last.
    pub bundles: Vec<ListedBundle>,
    /// What killed runs left that could not become a bundle.
    pub views: Vec<KeptView>,
}

/// A bundle, or why there is nothing to say of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ListedBundle {
    /// What is known of it.
    Bundle(Bundle),
    /// It cannot be read.
    Unreadable {
        /// Its id.
        id: String,
        /// Why.
        error: Problem,
    },
}

/// What is known of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bundle {
    /// Its id: the hash of what it says.
    pub id: String,
    /// The path of its project on the host.
    pub project: Bytes,
    /// When it was made, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// The command that made the changes.
    pub command: Vec<String>,
    /// What it can be found by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How that ended.
    pub exit_code: u8,
    /// The commit that the project's `HEAD` named.
    pub base_ref: Option<String>,
    /// How much of it was applied.
    pub state: BundleState,
    /// How many changes it has.
    pub changes: BundleChanges,
}

/// How much of a bundle was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BundleState {
    /// Nothing.
    Open,
    /// Something, and something is left.
    Partial,
    /// All that is applied without being asked for by name.
    Applied,
}

/// How many changes a bundle has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleChanges {
    /// All.
    pub total: usize,
    /// Those that were applied.
    pub applied: usize,
    /// Those that are never applied.
    pub refused: usize,
    /// Those that git ignores.
    pub ignored: usize,
    /// Those that tools of the host would run by themselves.
    pub executed: usize,
    /// Those that the host changed meanwhile.
    pub conflicting: usize,
}

/// What a killed run left that could not become a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptView {
    /// What it can be rejected by.
    pub id: String,
    /// Where it is on the host.
    pub path: Bytes,
    /// Why it is no bundle.
    pub error: Problem,
}

/// What a sandbox has changed in its workspace, to be kept as a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CollectChanges {
    /// Which sandbox: one that runs, is paused or is stopped.
    pub sandbox_id: SandboxId,
    /// What is left out: what is at and below these paths, below the workspace or absolute ones of
    /// the host in it.
    #[serde(default)]
    pub exclude: Vec<Bytes>,
    /// How large the changes may be, in bytes; 4 GiB when absent.
    #[serde(default)]
    pub limit_bytes: Option<u64>,
}

/// What a sandbox has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CollectedChanges {
    /// The bundle; none when nothing has changed.
    pub bundle: Option<Bundle>,
    /// What could not be taken into account, in words.
    pub notes: Vec<String>,
}

/// One bundle, or some paths of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShowBundle {
    /// Which: an id, the beginning of just one, or `latest`.
    pub id: String,
    /// Only what is at or below these paths, below the project's root or absolute ones in it; all
    /// when empty.
    #[serde(default)]
    pub paths: Vec<Bytes>,
}

/// A bundle with its changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleDetail {
    /// What is known of it.
    #[serde(flatten)]
    pub bundle: Bundle,
    /// The changes, sorted by path.
    pub entries: Vec<BundleEntry>,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleEntry {
    /// Whether it was applied already.
    pub applied: bool,
    /// The change, as the bundle's own manifest has it.
    #[serde(flatten)]
    pub change: Map<String, Value>,
}

/// The lines that differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiffBundle {
    /// Of which bundle: an id, the beginning of just one, or `latest`.
    pub id: String,
    /// Of just these entries, in this order; of all when empty.
    #[serde(default)]
    pub paths: Vec<Bytes>,
}

/// The lines that differ in one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathDiff {
    /// The path, below the project's root.
    pub path: Bytes,
    /// How many lines come.
    pub added: u64,
    /// How many lines go.
    pub removed: u64,
    /// Whether it is no text.
    pub binary: bool,
    /// The difference, in git's form.
    pub diff: Bytes,
}

/// A bundle that is applied to its project: all that is chosen, or nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplyBundle {
    /// Which: an id, the beginning of just one, or `latest`.
    pub id: String,
    /// Only what is at or below these paths, also where git ignores it; all when empty.
    #[serde(default)]
    pub paths: Vec<Bytes>,
    /// Whether what git ignores is applied too.
    #[serde(default)]
    pub include_ignored: bool,
    /// Whether what tools of the host run by themselves is accepted.
    #[serde(default)]
    pub allow_executed: bool,
}

/// What an application did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedBundle {
    /// The bundle's id.
    pub id: String,
    /// The paths that were changed.
    pub applied: Vec<Bytes>,
    /// The paths that were as the bundle has them already.
    pub already: Vec<Bytes>,
    /// What was left out.
    pub skipped: Vec<SkippedPath>,
    /// Whether nothing of the bundle is left to decide; then it is gone.
    pub done: bool,
}

/// A path that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkippedPath {
    /// The path.
    pub path: Bytes,
    /// Why.
    pub reason: String,
}

/// Changes as a result bundle has them, to be kept as a bundle (Smithers, "Result bundles").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProposeChanges {
    /// The path of the project on the host.
    pub project: Bytes,
    /// The commit that the project was at when the work began. Changes that name another are
    /// refused.
    #[serde(default)]
    pub base_ref: Option<String>,
    /// The `diffBundle`.
    pub diff: Value,
    /// Whose changes these are, for people.
    pub origin: String,
}

/// A bundle that is thrown away, also one that cannot be read, or what a killed run left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RejectBundle {
    /// Which: an id, the beginning of just one, or `latest`.
    pub id: String,
}

/// What was thrown away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectedBundle {
    /// The id of the bundle or the view.
    pub id: String,
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
            "id": "ab", "project": "/p", "createdAtMs": 1, "command": ["ls"], "exitCode": 0,
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
