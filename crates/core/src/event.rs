//! The events that are recorded of each sandbox (FireFlow, "Events"): its eight events and ours,
//! with their content. An event never contains file content, output, or an environment.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{ExecutionId, OwnerId, SandboxId};
use crate::names::names;
use crate::network::secret::BoundSecret;
use crate::network::{DeniedConnection, Misdirection, Policy};
use crate::sandbox::LimitChange;
use crate::time::Time;

names! {
    /// What happened.
    pub enum Kind: "event" {
        /// A sandbox was created and is ready.
        SandboxCreated = "SANDBOX_CREATED",
        /// It ended permanently.
        SandboxKilled = "SANDBOX_KILLED",
        /// It was paused.
        SandboxPaused = "SANDBOX_PAUSED",
        /// It was resumed.
        SandboxResumed = "SANDBOX_RESUMED",
        /// Its expiry time was changed.
        SandboxRenewed = "SANDBOX_RENEWED",
        /// A command ended, in any way.
        CommandCompleted = "COMMAND_COMPLETED",
        /// Files were copied into it.
        SyncFromVfsCompleted = "SYNC_FROM_VFS_COMPLETED",
        /// Files were copied out of it.
        SyncToVfsCompleted = "SYNC_TO_VFS_COMPLETED",
        /// A connection was denied, for the first time.
        NetworkRefused = "NETWORK_REFUSED",
        /// The network policy was changed.
        NetworkChanged = "NETWORK_CHANGED",
        /// Its limits were changed.
        LimitsChanged = "LIMITS_CHANGED",
        /// Its processes ended, and its files remain.
        SandboxStopped = "SANDBOX_STOPPED",
        /// It was started again with its files.
        SandboxStarted = "SANDBOX_STARTED",
        /// The placeholder of a secret was sent, or was to be sent, to a host that the secret is not
        /// bound to, for the first time.
        SecretMisdirected = "SECRET_MISDIRECTED",
        /// Files were copied between the host and a sandbox.
        FilesCopied = "FILES_COPIED",
        /// The ssh agent of a sandbox signed or refused something, for the first time.
        SshAgentUsed = "SSH_AGENT_USED",
    }
}

/// One event, as it is stored and sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its number among all events of the store: later ones have greater numbers.
    pub seq: u64,
    /// Identifies the event permanently; the same when an operation is replayed.
    pub id: EventId,
    /// The sandbox that it happened to.
    pub sandbox_id: SandboxId,
    /// The owner of that sandbox.
    pub owner_id: OwnerId,
    /// The execution that the operation was part of.
    pub execution_id: Option<ExecutionId>,
    /// When it was recorded.
    pub at: Time,
    /// What happened: `type` and `data` in JSON.
    #[serde(flatten)]
    #[schemars(with = "PayloadForm")]
    pub payload: Payload,
}

/// The form of [`Payload`] in JSON.
#[derive(JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its schema is used")]
struct PayloadForm {
    /// What happened.
    #[schemars(rename = "type", schema_with = "Kind::json_schema")]
    kind: Kind,
    /// The content, by its type.
    data: serde_json::Map<String, serde_json::Value>,
}

/// Identifies an event: an operation records at most one of each kind.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct EventId(String);

impl EventId {
    /// The id of the event of this kind that an operation records.
    pub fn derive(operation_id: &str, kind: Kind) -> Self {
        // No kind contains a colon, so no two operations share an id.
        Self(format!("{operation_id}:{kind}"))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The content of an event, by its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Payload {
    /// [`Kind::SandboxCreated`].
    SandboxCreated(Created),
    /// [`Kind::SandboxKilled`].
    SandboxKilled(EndReason),
    /// [`Kind::SandboxPaused`].
    SandboxPaused(EndReason),
    /// [`Kind::SandboxResumed`].
    SandboxResumed(Empty),
    /// [`Kind::SandboxRenewed`].
    SandboxRenewed(Renewed),
    /// [`Kind::CommandCompleted`].
    CommandCompleted(Command),
    /// [`Kind::SyncFromVfsCompleted`].
    SyncFromVfsCompleted(Sync),
    /// [`Kind::SyncToVfsCompleted`].
    SyncToVfsCompleted(Sync),
    /// [`Kind::NetworkRefused`].
    NetworkRefused(DeniedConnection),
    /// [`Kind::NetworkChanged`].
    NetworkChanged(NetworkChange),
    /// [`Kind::LimitsChanged`].
    LimitsChanged(LimitChange),
    /// [`Kind::SandboxStopped`].
    SandboxStopped(EndReason),
    /// [`Kind::SandboxStarted`].
    SandboxStarted(Empty),
    /// [`Kind::SecretMisdirected`].
    SecretMisdirected(Misdirection),
    /// [`Kind::FilesCopied`].
    FilesCopied(FilesCopied),
    /// [`Kind::SshAgentUsed`].
    SshAgentUsed(SshAgentUse),
}

impl Payload {
    /// The kind of event with this content.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::SandboxCreated(_) => Kind::SandboxCreated,
            Self::SandboxKilled(_) => Kind::SandboxKilled,
            Self::SandboxPaused(_) => Kind::SandboxPaused,
            Self::SandboxResumed(_) => Kind::SandboxResumed,
            Self::SandboxRenewed(_) => Kind::SandboxRenewed,
            Self::CommandCompleted(_) => Kind::CommandCompleted,
            Self::SyncFromVfsCompleted(_) => Kind::SyncFromVfsCompleted,
            Self::SyncToVfsCompleted(_) => Kind::SyncToVfsCompleted,
            Self::NetworkRefused(_) => Kind::NetworkRefused,
            Self::NetworkChanged(_) => Kind::NetworkChanged,
            Self::LimitsChanged(_) => Kind::LimitsChanged,
            Self::SandboxStopped(_) => Kind::SandboxStopped,
            Self::SandboxStarted(_) => Kind::SandboxStarted,
            Self::SecretMisdirected(_) => Kind::SecretMisdirected,
            Self::FilesCopied(_) => Kind::FilesCopied,
            Self::SshAgentUsed(_) => Kind::SshAgentUsed,
        }
    }
}

/// The content of the event of a new sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Created {
    /// The initial content of its file system.
    pub image: String,
    /// When it expires, if it does.
    pub expires_at: Option<Time>,
    /// The requested runtime, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_runtime: Option<String>,
    /// The selected runtime; absent in events of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
}

names! {
    /// Why a sandbox was paused, stopped or ended.
    pub enum Reason: "reason" {
        /// Its owner requested it.
        Requested = "requested",
        /// It expired.
        Expired = "expired",
        /// It was idle for its idle timeout.
        Idle = "idle",
        /// Its processes ended without a request: they were killed, or they failed.
        ProcessesLost = "processes_lost",
        /// The host was restarted.
        HostRestarted = "host_restarted",
        /// The server that held it was silent for too long.
        HostLost = "host_lost",
        /// Its runtime does not have it any more, nor its files.
        Gone = "gone",
        /// It could not be created.
        Failed = "failed",
    }
}

/// The content of the event of a paused, stopped or killed sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndReason {
    /// The reason.
    pub reason: Reason,
    /// The id of the bundle with its changes, if one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
}

impl EndReason {
    /// An end without a bundle.
    pub const fn because(reason: Reason) -> Self {
        Self { reason, bundle: None }
    }
}

/// The content of an event without details: an empty object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// The content of the event of a renewed sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Renewed {
    /// When it expires now.
    pub expires_at: Option<Time>,
}

/// The content of the event of a changed network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkChange {
    /// The hosts that the sandbox may reach now.
    pub policy: Policy,
    /// The secrets and the hosts that they are bound to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<BoundSecret>,
}

/// The content of the event of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// Its exit code, as a shell would report it; none if it is unknown.
    pub exit_code: Option<i32>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// Whether it was ended because it timed out.
    pub timed_out: bool,
    /// The number of bytes that it wrote to its standard output.
    pub stdout_bytes: u64,
    /// The number of bytes that it wrote to its standard error.
    pub stderr_bytes: u64,
}

/// The content of the event of a file transfer. The first four count files, and their sum is the
/// number of files that were examined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sync {
    /// Files that were copied.
    pub copied: u64,
    /// Files that were the same on both sides.
    pub unchanged: u64,
    /// Files that a filter or rule excluded.
    pub skipped: u64,
    /// Files that were removed because they do not exist in the source any more.
    pub deleted: u64,
    /// Bytes that were copied.
    pub bytes: u64,
    /// Files that had changed on both sides.
    pub conflicts: u64,
    /// The commit that was made, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_id: Option<String>,
}

/// The content of the event of files that were copied between the host and a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilesCopied {
    /// Where they were copied.
    pub direction: Direction,
    /// The path inside.
    pub path: String,
    /// How many paths were copied: files, directories and links.
    pub paths: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// The content of the event of a request to an ssh agent; nothing of what is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SshAgentUse {
    /// The request.
    pub request: String,
    /// The fingerprint of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `signed`, `refused` or `failed`.
    pub decision: String,
    /// Why it was not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How many different requests to the ssh agent of a sandbox are recorded.
pub const MAX_SSH_AGENT_USES: usize = 256;

/// The direction in which files are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Direction {
    /// Into the sandbox.
    In,
    /// Out of the sandbox.
    Out,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::network::{self, Transport};

    fn at() -> Time {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    fn one_of_each() -> Vec<Payload> {
        vec![
            Payload::SandboxCreated(Created {
                image: "host".into(),
                expires_at: None,
                requested_runtime: None,
                runtime: None,
            }),
            Payload::SandboxKilled(EndReason::because(Reason::Expired)),
            Payload::SandboxPaused(EndReason::because(Reason::Idle)),
            Payload::SandboxResumed(Empty {}),
            Payload::SandboxRenewed(Renewed { expires_at: Some(at()) }),
            Payload::CommandCompleted(Command {
                exit_code: Some(3),
                duration_ms: 12,
                timed_out: false,
                stdout_bytes: 5,
                stderr_bytes: 0,
            }),
            Payload::SyncFromVfsCompleted(Sync::default()),
            Payload::SyncToVfsCompleted(Sync { commit_id: Some("c1".into()), ..Sync::default() }),
            Payload::NetworkRefused(DeniedConnection::new(
                (Some("a.example".parse().unwrap()), Some(443)),
                Transport::Proxy,
                (network::Reason::NotAllowed, Code::EgressDenied, "no".into()),
            )),
            Payload::NetworkChanged(NetworkChange {
                policy: Policy::default(),
                secrets: Vec::new(),
            }),
            Payload::LimitsChanged(LimitChange { memory_bytes: Some(1), ..LimitChange::default() }),
            Payload::SandboxStopped(EndReason {
                reason: Reason::ProcessesLost,
                bundle: Some("b1".into()),
            }),
            Payload::SandboxStarted(Empty {}),
            Payload::SecretMisdirected(Misdirection {
                secret: "API_KEY".into(),
                host: "a.example".parse().unwrap(),
                port: 80,
                blocked: false,
                times: 1,
            }),
            Payload::FilesCopied(FilesCopied {
                direction: Direction::In,
                path: "/tmp".into(),
                paths: 2,
                bytes: 3,
            }),
            Payload::SshAgentUsed(SshAgentUse {
                request: "sign".into(),
                key: None,
                decision: "refused".into(),
                reason: Some("no".into()),
            }),
        ]
    }

    fn event(payload: Payload) -> Event {
        Event {
            seq: 7,
            id: EventId::derive("op-1", payload.kind()),
            sandbox_id: SandboxId::new("sb1").unwrap(),
            owner_id: OwnerId::new("u1").unwrap(),
            execution_id: None,
            at: at(),
            payload,
        }
    }

    #[test]
    fn each_event_has_a_kind_of_its_own() {
        let kinds: Vec<_> = one_of_each().iter().map(Payload::kind).collect();
        assert_eq!(kinds, Kind::ALL);
        for payload in one_of_each() {
            let kind = payload.kind();
            let json = serde_json::to_value(event(payload)).unwrap();
            assert_eq!(json["type"], kind.as_str());
            assert!(json["data"].is_object(), "{json}");
        }
    }

    #[test]
    fn an_event_has_its_eight_fields_and_comes_back() {
        let json = serde_json::to_value(event(one_of_each().remove(5))).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "seq": 7,
                "id": "op-1:COMMAND_COMPLETED",
                "type": "COMMAND_COMPLETED",
                "sandboxId": "sb1",
                "ownerId": "u1",
                "executionId": null,
                "at": "2026-01-02T03:04:05.000Z",
                "data": {
                    "exitCode": 3,
                    "durationMs": 12,
                    "timedOut": false,
                    "stdoutBytes": 5,
                    "stderrBytes": 0
                }
            })
        );
        for payload in one_of_each() {
            let event = event(payload);
            let text = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
        }
    }

    #[test]
    fn ids_differ_by_operation_and_by_kind() {
        let ids: std::collections::BTreeSet<_> = ["a", "a:b", "a:SANDBOX_PAUSED"]
            .iter()
            .flat_map(|operation| Kind::ALL.iter().map(|kind| EventId::derive(operation, *kind)))
            .collect();
        assert_eq!(ids.len(), 3 * Kind::ALL.len());
    }
}
