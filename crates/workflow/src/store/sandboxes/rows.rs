//! The values in a row of `run_sandboxes`.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use stockade_api::{Answer, Wait};

use crate::schedule::Key;

/// The stage of an attempt. The words are those of the documentation of `<Sandbox>`; Stockade adds those
/// for a child that waits and for a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Pending,
    Shipped,
    Waiting,
    Review,
    Finished,
    Failed,
    Cancelled,
}

impl Stage {
    const ALL: [Self; 7] = [
        Self::Pending,
        Self::Shipped,
        Self::Waiting,
        Self::Review,
        Self::Finished,
        Self::Failed,
        Self::Cancelled,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Shipped => "shipped",
            Self::Waiting => "waiting",
            Self::Review => "review",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the sandbox may still exist, or its changes wait for a decision.
    pub(crate) const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Shipped | Self::Waiting | Self::Review)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str() == text)
    }
}

/// The changes of a sandbox that wait for a decision, and the outputs that follow an approval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Review {
    /// The outputs of the task.
    pub(crate) outputs: Json,
    /// The bundles with the changes, identified by their hashes.
    pub(crate) bundles: Vec<String>,
    /// How many paths they change.
    pub(crate) patch_count: u64,
    /// How many lines are added or removed.
    pub(crate) total_diff_lines: u64,
    /// How many of the files are ones that tools of the host execute automatically. Those are always
    /// reviewed.
    pub(crate) executed: u64,
    /// The child run.
    pub(crate) remote_run_id: Option<String>,
}

/// The wait of a child in a sandbox for an event from outside. The sandbox is retained meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pause {
    /// How often it has waited, including this time. Its command was executed as often.
    pub(crate) rounds: u32,
    /// The id of its run, as it reports it.
    pub(crate) child: String,
    /// What it waits for.
    pub(crate) waits: Vec<Wait>,
    /// The answers with which it continues.
    pub(crate) answers: Vec<Answer>,
    /// The total execution time of its command in all rounds, in milliseconds.
    pub(crate) worked_ms: u64,
}

/// The last attempt of a sandbox.
#[derive(Debug, Clone)]
pub(crate) struct SandboxRow {
    pub(crate) attempt: u32,
    /// The name of the attempt.
    pub(crate) name: String,
    pub(crate) stage: Stage,
    pub(crate) created_at_ms: i64,
    pub(crate) base_ref: Option<String>,
    pub(crate) review: Option<Review>,
    /// A decision about its changes. While a child waits, and when it continues, this is its [`Pause`].
    pub(crate) decision: Option<Json>,
}

impl SandboxRow {
    /// The pause of its child, if the child waits or continues after a wait.
    pub(crate) fn pause(&self) -> Option<Pause> {
        let may_have = matches!(self.stage, Stage::Waiting | Stage::Shipped);
        let stored = self.decision.clone().filter(|_| may_have)?;
        serde_json::from_value(stored).ok()
    }
}

/// A sandbox that may still exist.
#[derive(Debug)]
pub(crate) struct OpenSandbox {
    pub(crate) run: String,
    pub(crate) key: Key,
    /// The name of its last attempt.
    pub(crate) name: String,
}

/// A sandbox that was requested from within the sandbox of another attempt.
#[derive(Debug)]
pub(crate) struct NestedSandbox {
    pub(crate) key: Key,
    /// The name of its last attempt.
    pub(crate) name: String,
    /// Whether it may still exist.
    pub(crate) is_open: bool,
}
