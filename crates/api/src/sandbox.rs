//! Sandboxes: what they are asked for with, and what is known of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use stockade_core::sandbox::{BestEffort, HostMount, Limits, Workspace};
use stockade_core::{ExecutionId, Isolation, OwnerId, SandboxId, State};

use crate::network::{Network, Reached};

/// A new sandbox. With no field set: one on the host's own programs, with no network.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CreateSandbox {
    /// Its id; one is made when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<SandboxId>,
    /// What its file system begins with: an absolute path of a directory or tar archive that holds
    /// the root of a system, or an image's name where the runtime has images; the host's own programs when
    /// absent.
    pub image: Option<String>,
    /// A directory of the host that is shown copy-on-write.
    pub workspace: Option<Workspace>,
    /// Files and directories of the host that are shown as they are.
    pub mounts: Vec<HostMount>,
    /// What every command finds in its environment. Kept in the sandbox's record: no place for
    /// secrets.
    pub environment: BTreeMap<String, String>,
    /// Users that commands may name.
    pub users: Vec<SandboxUser>,
    /// Whom commands run as when they do not say.
    pub default_uid: Option<u32>,
    /// Where commands start when they do not say.
    pub working_directory: Option<PathBuf>,
    /// What its processes may use together.
    pub limits: Limits,
    /// What the sandbox may do without, where this host cannot give it.
    pub best_effort: BTreeSet<BestEffort>,
    /// How many bytes each command may write to both streams together until it is killed, unless it
    /// says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit_bytes: Option<u64>,
    /// Which paths may be used how; every path in every way when empty.
    /// Each is checked by itself, so that a bad one is told by its index.
    pub access_rules: Vec<serde_json::Value>,
    /// What it reaches; nothing when absent, and then there is no way out at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// What it can be found by.
    pub metadata: BTreeMap<String, String>,
    /// When it ends by itself.
    #[serde(rename = "ttlSeconds", skip_serializing_if = "Expiry::is_default")]
    pub expiry: Expiry,
    /// After how many seconds without an operation `onIdle` happens; never when absent.
    pub idle_timeout_seconds: Option<f64>,
    /// What happens to it when nobody uses it.
    pub on_idle: IdleAction,
    /// The runtime that is asked for, by name; the host's own when absent.
    pub runtime: Option<String>,
    /// Which of its ports a browser may reach.
    pub proxy: Option<Proxy>,
    /// The workspace of files that it belongs to.
    pub workspace_id: Option<String>,
    /// Whether it waits to be started instead.
    pub stopped: bool,
}

/// When a sandbox ends by itself. In JSON: absent, `null` for never, or a number of seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Expiry {
    /// When the service's default time is over.
    #[default]
    Default,
    /// Never.
    Never,
    /// After so many seconds.
    Seconds(f64),
}

impl Expiry {
    /// Whether nothing was asked for.
    pub fn is_default(&self) -> bool {
        *self == Self::Default
    }
}

impl Serialize for Expiry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Seconds(seconds) => serializer.serialize_f64(*seconds),
            Self::Never | Self::Default => serializer.serialize_none(),
        }
    }
}

impl<'de> Deserialize<'de> for Expiry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<f64>::deserialize(deserializer)?.map_or(Self::Never, Self::Seconds))
    }
}

/// What happens to a sandbox that nobody uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IdleAction {
    /// It is paused, and resumed by the next operation that needs it to run.
    #[default]
    Pause,
    /// It is terminated.
    Terminate,
}

/// A user inside, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxUser {
    /// The name.
    pub name: String,
    /// The user id.
    pub uid: u32,
    /// The group id; the user id again when absent.
    pub gid: Option<u32>,
}

/// Which ports a browser may reach through the endpoint proxy (FireFlow's `SandboxProxyConfig`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Proxy {
    /// The port that is meant when none is named.
    pub default_port: Option<u16>,
    /// The ports that may be reached; none when empty.
    pub exposed_ports: BTreeSet<u16>,
}

/// What is known of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    /// Its id.
    pub id: SandboxId,
    /// Whose it is.
    pub owner_id: OwnerId,
    /// What it is doing.
    pub state: State,
    /// Why it is in that state, where that is not plain.
    pub reason: Option<String>,
    /// What its file system began with: a path, an image's name, `snapshot:ID`, or `host`.
    pub image: String,
    /// Who may see it: `private`.
    pub visibility: String,
    /// The runtime that was asked for, where one was.
    pub requested_runtime: Option<String>,
    /// The runtime that holds it.
    pub runtime: String,
    /// The execution that made it.
    pub execution_id: Option<ExecutionId>,
    /// The operation that made it.
    pub workflow_id: Option<String>,
    /// The workspace of files that it belongs to.
    pub workspace_id: Option<String>,
    /// The directory of the host that it shows copy-on-write, where it was made with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// What it can be found by.
    pub metadata: BTreeMap<String, String>,
    /// Its access rules.
    pub access_rules: Vec<serde_json::Value>,
    /// Whom commands run as when they do not say.
    pub default_uid: Option<u32>,
    /// Users that commands may name.
    pub users: Vec<SandboxUser>,
    /// What its processes may use together.
    pub limits: Limits,
    /// Which ports a browser may reach.
    pub proxy: Option<Proxy>,
    /// What it reaches; absent where there is no way out at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Reached>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it ends by itself; never when absent.
    pub expires_at: Option<Timestamp>,
    /// When it was terminated.
    pub terminated_at: Option<Timestamp>,
    /// Which walls and limits are in force; absent where nobody can be asked.
    pub isolation: Option<Isolation>,
    /// What its processes use, where that was asked for and is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
}

/// What a sandbox uses. What nobody can tell is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    /// Commands that run.
    pub commands: u64,
    /// Bytes of memory: with what is kept of files where a control group counts, else what belongs
    /// to its processes.
    pub memory_bytes: Option<u64>,
    /// Processor time so far, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Processes, with those that the runtime itself has in it.
    pub processes: Option<u64>,
    /// Bytes that its own files take on disk.
    pub disk_bytes: Option<u64>,
    /// Why something is absent, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// One sandbox, with or without what it uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetSandbox {
    /// Which.
    pub id: SandboxId,
    /// Whether to ask what it uses.
    #[serde(default)]
    pub metrics: bool,
}

/// The caller's sandboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ListSandboxes {
    /// Only those in one of these states; all but the terminated when empty.
    pub states: Vec<State>,
    /// Only those with all of this metadata.
    pub metadata: BTreeMap<String, String>,
    /// Only those after this one, in the order of the list.
    pub after: Option<SandboxId>,
    /// At most so many; 1000 when absent.
    pub limit: Option<u32>,
}

/// Sandboxes, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxList {
    /// The sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// Whether there are more after the last of them.
    pub more: bool,
}

/// A longer life for a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Renew {
    /// Which.
    pub id: SandboxId,
    /// How long it lives from now on, in seconds. It never lives shorter than before.
    pub ttl_seconds: f64,
    /// Whether it may live shorter than before.
    #[serde(default)]
    pub shorten: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_absent_null_or_a_number() {
        for (json, expiry) in [
            ("{}", Expiry::Default),
            ("{\"ttlSeconds\":null}", Expiry::Never),
            ("{\"ttlSeconds\":1.5}", Expiry::Seconds(1.5)),
        ] {
            let request: CreateSandbox = serde_json::from_str(json).unwrap();
            assert_eq!(request.expiry, expiry);
            let again = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<CreateSandbox>(&again).unwrap(), request);
        }
        assert!(serde_json::from_str::<CreateSandbox>("{\"ttl\":1}").is_err());
    }
}
