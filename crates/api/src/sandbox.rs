//! Sandboxes: the request for a new one, and their properties.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use stockade_core::bytes::{Bytes, optional_path, path};
use stockade_core::network::{Policy, TrafficLimits};
use stockade_core::sandbox::{
    self, BestEffort, HostMount, LimitChange, Limits, RemoteWorkspace, ServerElsewhere, Workspace,
};
use stockade_core::{
    Code, ExecutionId, Isolation, OwnerId, Problem, SandboxId, State, Time, VolumeName,
};

use crate::ById;
use crate::network::{Network, NetworkStatus};
use crate::published::{Publication, PublishedPort};
use crate::ssh_agent::{SshAgent, SshAgentStatus};

/// Creates a sandbox. The default has the host's own programs and no network.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CreateSandbox {
    /// Its id; generated when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<SandboxId>,
    /// The initial content of its file system: an absolute path of a directory or tar archive with
    /// the root of a system, or the name of an image if the runtime has images; the host's own
    /// programs when absent.
    pub image: Option<String>,
    /// When the image is downloaded, if it is one of a registry.
    #[serde(skip_serializing_if = "PullPolicy::is_default")]
    pub pull: PullPolicy,
    /// Whether the system directories come from a copy, so that the sandbox and the host share no
    /// file; the setting of the server when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_base: Option<bool>,
    /// A host directory that the sandbox sees copy-on-write.
    pub workspace: Option<Workspace>,
    /// The workspace of a service elsewhere that it is, for runtimes that have such ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_workspace: Option<RemoteWorkspace>,
    /// The server elsewhere that a run has named for it, for the runtime of such servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerElsewhere>,
    /// Host files and directories that are bind-mounted.
    pub mounts: Vec<HostMount>,
    /// Whether the paths of `workspace` and `mounts` must not lead through links when they are
    /// opened.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exact_paths: bool,
    /// Volumes of the owner that are mounted. Missing ones are created.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
    /// Caches of the owner that are mounted. Missing ones are created.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<CacheMount>,
    /// The environment of every command. Stored in the sandbox's record, so it must not contain
    /// secrets.
    pub environment: BTreeMap<String, Bytes>,
    /// Users that commands may refer to by name.
    pub users: Vec<SandboxUser>,
    /// The default user id of commands.
    pub default_uid: Option<u32>,
    /// Whether every command may start others as any user inside, as with `sudo`. Where all commands have one user,
    /// such a request is refused inside.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sudo: bool,
    /// The default working directory of commands.
    #[serde(with = "optional_path")]
    #[schemars(with = "Option<Bytes>")]
    pub working_directory: Option<PathBuf>,
    /// The resources that its processes may use together.
    pub limits: Limits,
    /// Walls and limits that may be missing if this host does not support them.
    pub best_effort: BTreeSet<BestEffort>,
    /// How many bytes each command may write to both streams together before it is killed, unless
    /// the command sets its own limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit_bytes: Option<u64>,
    /// After how many seconds each command is ended, unless the command sets its own limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_timeout_seconds: Option<f64>,
    /// The access rules; everything is allowed when empty. Each is parsed separately, so that an
    /// error contains the index of the rule.
    pub access_rules: Vec<serde_json::Value>,
    /// The hosts that it may connect to; when absent, it has no network access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The ssh agent that its programs reach; none when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_agent: Option<SshAgent>,
    /// The ports of the host that lead into it as long as it lives.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<PublishedPort>,
    /// Labels by which it can be found.
    pub metadata: BTreeMap<String, String>,
    /// When it expires.
    #[serde(rename = "ttlSeconds", skip_serializing_if = "Expiry::is_default")]
    #[schemars(with = "Option<f64>", extend("x-null" = "differs from an absent member"))]
    pub expiry: Expiry,
    /// The action when it expires, and when its processes are lost or the host is restarted;
    /// it is stopped when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_expiry: Option<ExpiryAction>,
    /// Whether its files are kept until it is killed, once it has stopped by itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// After how many seconds without an operation `onIdle` takes effect; never when absent.
    pub idle_timeout_seconds: Option<f64>,
    /// The action when it is idle.
    pub on_idle: IdleAction,
    /// The name of the requested runtime; the host's own when absent.
    pub runtime: Option<String>,
    /// The name of the runtime that is selected if the requested one is not usable here, or lacks
    /// what is requested. When absent, such a request is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_runtime: Option<String>,
    /// The ports that a browser may reach.
    pub proxy: Option<Proxy>,
    /// The workspace of files that it belongs to.
    pub workspace_id: Option<String>,
    /// Whether it is created without being started.
    pub stopped: bool,
    /// The project for which it is created, as an absolute path: a relative reference such as
    /// `latest` means a sandbox of the current project. That of the workspace when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<PathBuf>,
}

/// When an image is downloaded from its registry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PullPolicy {
    /// If the store does not have it.
    #[default]
    Missing,
    /// Always: what the tag names now, if that is another image.
    Always,
    /// Never: one that the store does not have is an error.
    Never,
}

impl PullPolicy {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The runtime that a sandbox would get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelectedRuntime {
    /// The requested runtime, if there was one.
    pub requested_runtime: Option<String>,
    /// The runtime that would hold the sandbox.
    pub runtime: String,
    /// The image that the request names, with the digest of what the name means now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// A volume of the owner that is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VolumeMount {
    /// Its name.
    pub name: VolumeName,
    /// The mount point inside.
    #[serde(with = "path")]
    #[schemars(with = "Bytes")]
    pub inside: PathBuf,
    /// Whether the sandbox cannot change it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The directory or file in it that is mounted instead of the whole. It must exist, and no link
    /// may lead to it.
    #[serde(default, with = "optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Bytes>")]
    pub sub_path: Option<PathBuf>,
}

impl VolumeMount {
    /// The mount for the runtime, of a volume of this owner.
    pub fn of(&self, owner: &OwnerId) -> sandbox::VolumeMount {
        let Self { name, inside, read_only, sub_path } = self.clone();
        sandbox::VolumeMount { owner: owner.clone(), name, inside, writable: !read_only, sub_path }
    }
}

/// A cache of the owner that is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CacheMount {
    /// The tool whose cache it is, such as `npm`, or any name with a path inside.
    pub name: VolumeName,
    /// The project whose cache it is. Without one, all sandboxes of the owner that name none share it.
    #[serde(default, with = "optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Bytes>")]
    pub project: Option<PathBuf>,
    /// The mount point, for a name that is no tool.
    #[serde(default, with = "optional_path", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Bytes>")]
    pub inside: Option<PathBuf>,
}

impl CacheMount {
    /// The mount for the runtime, of a cache of this owner.
    pub fn of(&self, owner: &OwnerId) -> sandbox::CacheMount {
        let Self { name, project, inside } = self.clone();
        sandbox::CacheMount { owner: owner.clone(), name, project, inside }
    }
}

/// When a sandbox expires. In JSON: absent, `null` for never, or a number of seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Expiry {
    /// After the service's default time.
    #[default]
    Default,
    /// Never.
    Never,
    /// After so many seconds.
    Seconds(f64),
}

impl Expiry {
    /// Whether it is the default.
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

/// The action when a sandbox is idle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum IdleAction {
    /// It is paused, and resumed by the next operation that needs it running.
    #[default]
    Pause,
    /// Its processes end, and its files remain for a day, as when it expires.
    Stop,
    /// It is terminated.
    Terminate,
}

/// The action when a sandbox expires, when its processes are lost, and when the host is restarted. In
/// each case its changes in the workspace become a bundle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExpiryAction {
    /// It is stopped. Its files remain for a day, or until it is killed if it was created with
    /// `keep`.
    #[default]
    Stop,
    /// It is terminated, and its files are removed.
    Terminate,
    /// It is paused if it expires while it runs, and does not expire again until it is renewed. In the
    /// other cases it is stopped.
    Pause,
}

/// A user inside, with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxUser {
    /// The name.
    pub name: String,
    /// The user id.
    pub uid: u32,
    /// The group id; equal to the user id when absent.
    pub gid: Option<u32>,
}

/// The ports that a browser may reach through the endpoint proxy (FireFlow's `SandboxProxyConfig`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Proxy {
    /// The port for requests that name none.
    pub default_port: Option<u16>,
    /// The reachable ports; none when empty.
    pub exposed_ports: BTreeSet<u16>,
}

/// The properties of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    /// Its id.
    pub id: SandboxId,
    /// Its owner.
    pub owner_id: OwnerId,
    /// Its state.
    pub state: State,
    /// Why it is in that state, if that is not obvious.
    pub reason: Option<String>,
    /// The initial content of its file system: a path, an image's name, `snapshot:ID`, or `host`.
    pub image: String,
    /// Its visibility: `private`.
    pub visibility: String,
    /// The requested runtime, if there was one.
    pub requested_runtime: Option<String>,
    /// The runtime that holds it.
    pub runtime: String,
    /// The execution that created it.
    pub execution_id: Option<ExecutionId>,
    /// The operation that created it.
    pub workflow_id: Option<String>,
    /// The workspace of files that it belongs to.
    pub workspace_id: Option<String>,
    /// The host directory that it sees copy-on-write, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// The volumes that it mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
    /// The caches that it mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<CacheMount>,
    /// The project for which it was created, if one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<PathBuf>,
    /// Where its commands start; in the home of their user when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<PathBuf>,
    /// Labels by which it can be found.
    pub metadata: BTreeMap<String, String>,
    /// Its access rules.
    pub access_rules: Vec<serde_json::Value>,
    /// The default user id of commands.
    pub default_uid: Option<u32>,
    /// Users that commands may refer to by name.
    pub users: Vec<SandboxUser>,
    /// The resources that its processes may use together.
    pub limits: Limits,
    /// The ports that a browser may reach.
    pub proxy: Option<Proxy>,
    /// Its network status; absent if it has no network access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStatus>,
    /// Its ssh agent, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_agent: Option<SshAgentStatus>,
    /// The ports of the host that lead into it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Publication>,
    /// When it was requested.
    pub created_at: Time,
    /// When it expires; never when absent.
    pub expires_at: Option<Time>,
    /// When it was terminated.
    pub terminated_at: Option<Time>,
    /// The action when it expires, and when its processes are lost.
    #[serde(default)]
    pub on_expiry: ExpiryAction,
    /// Whether its files are kept until it is killed.
    #[serde(default)]
    pub keep: bool,
    /// When its files are removed, while it is stopped; absent if they are kept until it is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove_at: Option<Time>,
    /// The bundle with its changes, if one was made when it stopped or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// Its walls and limits; absent if they cannot be determined.
    pub isolation: Option<Isolation>,
    /// Its resource usage, if requested and known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
}

/// The resource usage of a sandbox. Unknown values are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    /// The number of running commands.
    pub commands: u64,
    /// Bytes of memory: including the page cache if a control group measures it, else only the
    /// memory of its processes.
    pub memory_bytes: Option<u64>,
    /// Processor time so far, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// The number of processes, including those of the runtime.
    pub processes: Option<u64>,
    /// Bytes on disk of its own files.
    pub disk_bytes: Option<u64>,
    /// Why values are absent, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// Gets one sandbox, with or without its resource usage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetSandbox {
    /// The sandbox.
    pub id: SandboxId,
    /// Whether to include its resource usage.
    #[serde(default)]
    pub metrics: bool,
}

/// Lists the caller's sandboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ListSandboxes {
    /// Only those in one of these states; all except terminated ones when empty.
    pub states: Vec<State>,
    /// Only those with all of this metadata.
    pub metadata: BTreeMap<String, String>,
    /// Only those after this one, in list order.
    pub after: Option<SandboxId>,
    /// The most sandboxes to return; 1000 when absent.
    pub limit: Option<u32>,
}

/// Sandboxes, newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxList {
    /// The sandboxes.
    pub sandboxes: Vec<Sandbox>,
    /// Whether there are more after the last one.
    pub more: bool,
}

/// Terminates a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KillSandbox {
    /// The sandbox.
    pub id: SandboxId,
    /// Whether its changes in the workspace are deleted; otherwise they become a bundle first, and
    /// nothing is removed if that fails.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discard: bool,
}

impl KillSandbox {
    /// Terminates a sandbox, and makes a bundle of its changes.
    pub const fn new(id: SandboxId) -> Self {
        Self { id, discard: false }
    }

    /// Terminates a sandbox, and deletes its changes.
    pub const fn discarding(id: SandboxId) -> Self {
        Self { id, discard: true }
    }
}

impl From<ById> for KillSandbox {
    fn from(ById { id }: ById) -> Self {
        Self::new(id)
    }
}

/// Changes the labels of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeMetadata {
    /// The sandbox.
    pub id: SandboxId,
    /// The new value of each label; with `null` the label is removed. Others stay as they are.
    pub metadata: BTreeMap<String, Option<String>>,
}

/// Changes limits of a sandbox. What is absent stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeLimits {
    /// The sandbox.
    pub id: SandboxId,
    /// The resources that its processes may use together.
    #[serde(default, skip_serializing_if = "LimitChange::is_empty")]
    pub limits: LimitChange,
    /// How much traffic there may be, for a sandbox with a network policy.
    #[serde(default, skip_serializing_if = "TrafficLimits::is_none")]
    pub network_limits: TrafficLimits,
}

impl ChangeLimits {
    /// Checks the request by itself.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] if nothing changes or a limit is 0; [`Code::RuleInvalid`] for an invalid
    /// limit on traffic.
    pub fn check(&self) -> crate::Result<()> {
        if self.limits.is_empty() && self.network_limits.is_none() {
            let message = "the request names no limit that changes";
            return Err(Problem::new(Code::InvalidInput, message)
                .remedied_by(format!("stockade update {} --memory 2G", self.id)));
        }
        if let Some((name, _)) = self.limits.each().find(|(_, value)| *value == 0) {
            let message = format!("the limit `{name}` must not be 0");
            return Err(Problem::new(Code::InvalidInput, message));
        }
        Ok(Policy::default().with_limits(self.network_limits).map(drop)?)
    }
}

/// Extends the life of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Renew {
    /// The sandbox.
    pub id: SandboxId,
    /// Its TTL from now on, in seconds; with `null` it never expires. Unless `shorten` is set, it
    /// never expires earlier than before.
    // An absent member is an error, not a sandbox that never expires.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schemars(extend("x-null" = "differs from an absent member"))]
    pub ttl_seconds: Option<f64>,
    /// Whether it may expire earlier than before.
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
