//! What a sandbox stands behind: which walls were raised, which limits hold, and why not.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// How a limit is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// The kernel holds it: it cannot be exceeded.
    Enforced,
    /// Stockade looks at it from outside and ends the sandbox once it is exceeded.
    Watched,
    /// It cannot be held here.
    Refused,
}

/// One limit and how it is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitReport {
    /// `memory`, `cpus`, `pids`, `disk`, `timeout` or `output`.
    pub name: Cow<'static, str>,
    /// How it is held.
    pub enforcement: Enforcement,
    /// What holds it (`cgroup v2`, `rlimit`, …) or why nothing does.
    pub by: String,
}

/// One wall that stands, or the reason why it does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WallReport {
    /// The wall's stable name, such as `network` or `seccomp`.
    pub name: Cow<'static, str>,
    /// Whether it was raised.
    pub raised: bool,
    /// What is different from the full wall, in words; empty when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl WallReport {
    /// The wall `access`, in reports on sandboxes with access rules: whether their processes obey
    /// the rules too, or why only the operations from outside do.
    pub fn access(api_only: Option<&str>) -> Self {
        let reason = api_only.map(|why| format!("enforcement: api-only: {why}"));
        Self { name: "access".into(), raised: api_only.is_none(), reason }
    }
}

/// The isolation of one sandbox as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Every wall that Stockade knows stands.
    Full,
    /// The caller named walls that may be missing, and some are.
    Reduced,
}

/// What is in force around one sandbox; part of every answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// Whether all walls stand.
    pub level: Level,
    /// Each wall.
    pub walls: Vec<WallReport>,
    /// Each limit that was asked for or is set by default.
    pub limits: Vec<LimitReport>,
    /// Fallbacks that were taken, in words.
    pub reasons: Vec<String>,
}
