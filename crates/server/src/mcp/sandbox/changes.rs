//! `diff` and `collect`: the changes of a sandbox in its workspace, as a bundle for review.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stockade_api::{Bundle, BundleChanges, BundleEntry, DiffBundle, Problem, ShowBundle};

use super::collected::{collect, find_bundle};
use super::operation::{Facts, On, Operation, Reply, Scope, Stop};
use crate::mcp::Effects;
use crate::mcp::resources::diff_uri;
use crate::mcp::untrusted::{Ends, fenced, line, lines};

/// How many bytes of a diff are returned.
const DIFF_BYTES: usize = 128 << 10;
/// How many changed paths are listed.
const PATHS: usize = 500;

/// Makes a bundle.
#[derive(Debug)]
pub(super) struct Collect;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CollectArguments {
    /// Paths to leave out, with everything below them, relative to the workspace.
    #[serde(default)]
    exclude: Vec<String>,
}

/// A changed path.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChangedPath {
    path: String,
    /// `add`, `modify` or `delete`.
    operation: String,
}

/// A bundle.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct BundleValue {
    /// The id of the bundle; absent if nothing has changed.
    bundle: Option<String>,
    /// How many changes can be applied.
    changes: u64,
    /// How many of them are of files that programs of the host execute by themselves, such as hooks. A user
    /// must allow these explicitly.
    executed: u64,
    /// How many conflict with later changes on the host.
    conflicting: u64,
    /// How many changes are never applied, such as those below `.git`.
    refused: u64,
    /// How many changed paths git ignores. They are not applied.
    ignored: u64,
    /// The changed paths, at most 500.
    paths: Vec<ChangedPath>,
    /// What could not be considered.
    notes: Vec<String>,
}

impl BundleValue {
    fn new(bundle: Option<&Bundle>, entries: &[BundleEntry], notes: &[String]) -> Self {
        let counts = bundle.map_or_else(BundleChanges::default, |bundle| bundle.changes);
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let text = |value: Option<&Value>| match value {
            Some(Value::String(text)) => line(text.as_bytes()),
            Some(other) => line(other.to_string().as_bytes()),
            None => String::new(),
        };
        let path = |entry: &BundleEntry| ChangedPath {
            path: text(entry.change.get("path")),
            operation: text(entry.change.get("operation")),
        };
        Self {
            bundle: bundle.map(|bundle| bundle.id.clone()),
            changes: count(counts.total),
            executed: count(counts.executed),
            conflicting: count(counts.conflicting),
            refused: count(counts.refused),
            ignored: counts.ignored,
            paths: entries.iter().take(PATHS).map(path).collect(),
            notes: notes.iter().map(|note| lines(note.as_bytes())).collect(),
        }
    }
}

/// The changed paths of a bundle.
async fn entries(on: &On<'_>, bundle: Option<&Bundle>) -> Result<Vec<BundleEntry>, Problem> {
    let Some(bundle) = bundle else {
        return Ok(Vec::new());
    };
    let request = ShowBundle { id: bundle.id.clone(), paths: Vec::new() };
    Ok(on.context.sandboxes.show_bundle(on.call.reader(), request).await?.entries)
}

#[async_trait]
impl Operation for Collect {
    type Arguments = CollectArguments;
    type Value = BundleValue;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "collect",
            title: "Collect the changes as a bundle",
            text: "Stores the changes of the sandbox in its workspace as a bundle that waits for a decision. The project does not change. The same changes give the same bundle.",
            effects: Effects::ADDS.idempotent(),
            on_sandbox: true,
            is_long: false,
        }
    }

    async fn call(
        &self,
        on: On<'_>,
        arguments: CollectArguments,
    ) -> Result<Reply<BundleValue>, Stop> {
        let (bundle, notes) = collect(&on, arguments.exclude).await?;
        let entries = entries(&on, bundle.as_ref()).await?;
        let reply = Reply::new(BundleValue::new(bundle.as_ref(), &entries, &notes));
        Ok(match bundle {
            Some(bundle) => reply.with_link(diff_uri(&bundle.id), "diff of the bundle"),
            None => reply,
        })
    }
}

/// Shows the changed lines.
#[derive(Debug)]
pub(super) struct Diff;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DiffArguments {
    /// Only changes at or below these paths, relative to the workspace.
    #[serde(default)]
    paths: Vec<String>,
    /// The bundle to show; the present changes of the sandbox when absent.
    #[serde(default)]
    bundle: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DiffValue {
    /// The id of the bundle with the changes; absent if nothing has changed.
    bundle: Option<String>,
    /// The changed lines, as a unified diff.
    diff: String,
    added_lines: u64,
    removed_lines: u64,
    /// How many bytes in the middle of the diff are left out here.
    omitted_bytes: u64,
    /// What could not be considered.
    notes: Vec<String>,
}

#[async_trait]
impl Operation for Diff {
    type Arguments = DiffArguments;
    type Value = DiffValue;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "diff",
            title: "Show the changes in the workspace",
            text: "Shows the lines that the sandbox has changed in its workspace, compared with the project. The changes are stored as a bundle, whose id is part of the result; the project does not change.",
            effects: Effects::ADDS.idempotent(),
            on_sandbox: true,
            is_long: false,
        }
    }

    async fn call(&self, on: On<'_>, arguments: DiffArguments) -> Result<Reply<DiffValue>, Stop> {
        let (id, notes) = match arguments.bundle {
            Some(id) => (Some(find_bundle(&on, &id).await?.bundle.id), Vec::new()),
            None => {
                let (bundle, notes) = collect(&on, Vec::new()).await?;
                (bundle.map(|bundle| bundle.id), notes)
            }
        };
        let mut value = DiffValue {
            bundle: id.clone(),
            diff: String::new(),
            added_lines: 0,
            removed_lines: 0,
            omitted_bytes: 0,
            notes: notes.iter().map(|note| lines(note.as_bytes())).collect(),
        };
        let Some(id) = id else {
            return Ok(Reply::new(value).with_text("nothing has changed".to_owned()));
        };
        let mut text = Ends::new(DIFF_BYTES);
        let paths = arguments.paths.into_iter().map(|path| path.into_bytes().into()).collect();
        let request = ShowBundle { id: id.clone(), paths };
        let shown = on.context.sandboxes.show_bundle(on.call.reader(), request).await?;
        let paths = shown.entries.iter().filter_map(|entry| entry.change.get("path"));
        let paths = paths.filter_map(|path| serde_json::from_value(path.clone()).ok()).collect();
        let request = DiffBundle { id: id.clone(), paths };
        let mut items = match shown.entries.is_empty() {
            true => None,
            false => Some(on.context.sandboxes.diff_bundle(on.call.reader(), request).await?),
        };
        while let Some(items) = &mut items
            && let Some(item) = items.next().await
        {
            let item = item?;
            value.added_lines += item.added;
            value.removed_lines += item.removed;
            text.push(&item.readable.unwrap_or(item.diff).0);
        }
        value.omitted_bytes = text.omitted();
        value.diff = text.text();
        let text = format!(
            "bundle {id}: {} lines added, {} removed\n{}",
            value.added_lines,
            value.removed_lines,
            fenced(&value.diff)
        );
        Ok(Reply::new(value).with_text(text).with_link(diff_uri(&id), "diff of the bundle"))
    }
}
