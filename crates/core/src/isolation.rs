//! The isolation of a sandbox: which walls are enabled, which limits are enforced, and why others
//! are not.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a limit is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// By the kernel: it cannot be exceeded.
    Enforced,
    /// By measurement from outside: Stockade ends the sandbox once it is exceeded.
    Watched,
    /// Not at all: it is unavailable here.
    Refused,
}

/// One limit and how it is enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitReport {
    /// `memory`, `cpus`, `pids`, `disk`, `timeout` or `output`.
    pub name: Cow<'static, str>,
    /// How it is enforced.
    pub enforcement: Enforcement,
    /// The mechanism (`cgroup v2`, `rlimit`, …) or why there is none.
    pub by: String,
}

/// One wall that is enabled, or the reason why it is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WallReport {
    /// The wall's stable name, such as `network` or `seccomp`.
    pub name: Cow<'static, str>,
    /// Whether it is enabled.
    pub raised: bool,
    /// How it differs from the full wall, in words; empty if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl WallReport {
    /// The wall `access`, in reports on sandboxes with access rules: whether the rules also
    /// restrict their processes, or why they restrict only operations from outside.
    pub fn access(api_only: Option<&str>) -> Self {
        let reason = api_only.map(|why| format!("enforcement: api-only: {why}"));
        Self { name: "access".into(), raised: api_only.is_none(), reason }
    }
}

/// The isolation of one sandbox as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "IsolationLevel")]
pub enum Level {
    /// Every wall that Stockade knows is enabled.
    Full,
    /// The caller named walls that may be missing, and some are.
    Reduced,
}

/// The isolation of one sandbox; part of every response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Isolation {
    /// Whether all walls are enabled.
    pub level: Level,
    /// Each wall.
    pub walls: Vec<WallReport>,
    /// Each limit that was requested or is set by default.
    pub limits: Vec<LimitReport>,
    /// The fallbacks in use, in words.
    pub reasons: Vec<String>,
}
