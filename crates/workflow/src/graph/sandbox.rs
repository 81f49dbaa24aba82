//! What `<Sandbox>` says (Smithers' tables of props). Its types are checked when a
//! rendering is read; whether what it asks for can be had is decided when it is executed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::function::Function;
use super::limits::ToolLimits;

/// A workflow that is run in a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Sandbox {
    /// Which workflow; `None` where a command or a provider needs none.
    pub workflow: Option<Function>,
    /// What it is given; nothing is null.
    pub input: Value,
    /// What the provider that executes it calls itself; `None` is a runtime of this host. Which one
    /// it is, if any, is for the author's realm to say when it is asked.
    pub provider: Option<String>,
    /// The runtime that is asked for, as it was written.
    pub runtime: Option<String>,
    /// Whether it may reach a network.
    pub allow_network: bool,
    /// Whether its changes to the project wait for somebody's decision.
    pub review_diffs: bool,
    /// Whether that decision is yes, whoever made the changes.
    pub auto_accept_diffs: bool,
    /// Whether it may be executed where a sandbox is around it already.
    pub allow_nested: bool,
    /// What its file system begins with.
    pub image: Option<String>,
    /// What its commands find in their environment.
    pub env: BTreeMap<String, String>,
    /// How it reaches the network, as it was written.
    pub egress: Option<Value>,
    /// Which of its ports the host shows.
    pub ports: Vec<Value>,
    /// Directories of the host that it sees.
    pub volumes: Vec<Volume>,
    /// How much memory it may use, such as `512m`.
    pub memory_limit: Option<String>,
    /// How many processors it may use, such as `0.5`.
    pub cpu_limit: Option<String>,
    /// What is executed instead of the workflow.
    pub command: Option<String>,
    /// Its workspace at a provider of such.
    pub workspace: Option<Map<String, Value>>,
    /// What its tools may take.
    pub tools: ToolLimits,
    /// What follows when too many are under way.
    pub on_limit: OnLimit,
    /// All of it as it was written, for providers.
    pub config: Map<String, Value>,
}

/// A directory or file of the host that a sandbox sees (Smithers' `SandboxVolumeMount`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its absolute path.
    pub host: String,
    /// Where it is inside.
    pub container: String,
    /// Whether it cannot be changed; so unless it is said otherwise.
    pub is_read_only: bool,
}

/// What follows when as many sandboxes are under way as there may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLimit {
    /// The task fails at once, as in Smithers.
    #[default]
    Fail,
    /// It waits for its turn.
    Wait,
}
