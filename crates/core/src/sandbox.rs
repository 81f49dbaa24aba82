//! The specification of a sandbox: the request that every runtime supports.
//!
//! Only data. Each runtime defines which parts it supports, and refuses the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::Rules;
use crate::bytes::{Bytes, optional_path, path};
use crate::id::{OwnerId, SnapshotId, VolumeName};
use crate::network::Policy;

/// Where the files with secrets are: a file system in memory, which no snapshot contains and no
/// transfer of files copies.
pub const SECRETS_DIRECTORY: &str = "/run/secrets";
/// The socket of the ssh agent inside, if there is one. The variable [`SSH_AGENT_VARIABLE`] names it.
pub const SSH_AGENT: &str = "/run/stockade/ssh-agent";
/// The directory with that socket in a persistent sandbox: an agent that starts again makes a new socket.
pub const SSH_AGENT_DIRECTORY: &str = "/run/stockade/ssh";
/// The name of the socket in that directory.
pub const SSH_AGENT_SOCKET: &str = "agent";
/// The variable by which programs find an ssh agent.
pub const SSH_AGENT_VARIABLE: &str = "SSH_AUTH_SOCK";

/// Its permission bits: every user may create a file in it, and only by its name is one found.
pub const SECRETS_MODE: u32 = 0o1733;

/// All properties of a sandbox that are decided before it exists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxSpec {
    /// The initial content of its file system.
    pub root: Root,
    /// Whether the system directories with [`Root::Host`] come from a copy, so that the sandbox and
    /// the host share no file.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub private_base: bool,
    /// A host directory that the sandbox sees copy-on-write.
    pub workspace: Option<Workspace>,
    /// The workspace of a service elsewhere that it is, for runtimes that have such ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_workspace: Option<RemoteWorkspace>,
    /// The server elsewhere that holds it, for the runtime of such servers; the configured one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerElsewhere>,
    /// Host directories and files that are bind-mounted.
    pub mounts: Vec<HostMount>,
    /// Whether the paths of the workspace and the mounts must not lead through links when they are
    /// opened, and nothing else of the host is shown because of them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exact_paths: bool,
    /// Volumes of an owner that are mounted. Missing ones are created.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
    /// Caches of an owner that are mounted. Missing ones are created.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<CacheMount>,
    /// The environment of every command, before the command's own additions.
    pub environment: BTreeMap<String, Bytes>,
    /// The default user of commands; the runtime's ordinary user when absent.
    pub user: Option<User>,
    /// The supplementary groups of the default user; those of an image's user are the image's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u32>,
    /// Whether every command may start others as any user inside, where there are several: init listens for that
    /// inside (`sudo`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sudo: bool,
    /// The default working directory of commands; the user's home directory when absent.
    #[serde(with = "optional_path")]
    pub working_directory: Option<PathBuf>,
    /// The resources that all processes may use together.
    pub limits: Limits,
    /// Walls and limits that may be missing if this host does not support them.
    pub best_effort: BTreeSet<BestEffort>,
    /// Which paths inside its processes may use, and how. The system directories can also be read
    /// and executed, unless a rule names them.
    #[serde(skip_serializing_if = "Rules::is_empty")]
    pub access: Rules,
    /// The hosts that it may connect to; without a policy there is no network access at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Policy>,
    /// Whether it has a directory for the socket of an ssh agent ([`SSH_AGENT_DIRECTORY`]).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ssh_agent: bool,
    /// Labels by which it can be found.
    pub labels: BTreeMap<String, String>,
    /// How long it lives unless the lease is renewed; if absent, until it is destroyed.
    pub lease: Option<Duration>,
}

/// The initial content of a sandbox's file system. It is writable, except for the system
/// directories with [`Root::Host`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Root {
    /// The host's programs, read-only, and nothing else of the host.
    #[default]
    Host,
    /// A host directory that contains the root of a system, copy-on-write.
    Directory(#[serde(with = "path")] PathBuf),
    /// An image by its name, for runtimes with an image store.
    Image(String),
    /// A snapshot of another sandbox's file system.
    Snapshot(SnapshotId),
}

/// A host directory that the sandbox sees copy-on-write: changes are stored separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workspace {
    /// The directory.
    #[serde(with = "path")]
    #[schemars(with = "Bytes")]
    pub host: PathBuf,
    /// Its path inside.
    #[serde(with = "path")]
    #[schemars(with = "Bytes")]
    pub inside: PathBuf,
}

/// A server elsewhere that a workflow run has named for its sandboxes.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerElsewhere {
    /// Its URL: `https://HOST[:PORT]` or `http://HOST[:PORT]`.
    pub url: String,
    /// The run whose API key is used. The key itself is in the memory of one process, and in no record.
    pub run: String,
}

/// A named workspace of a service elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoteWorkspace {
    /// Its name. A workspace that is not kept gets a longer one, which begins with it.
    pub name: String,
    /// The id of the snapshot of the service from which it is made, if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Whether it is kept when the sandbox has ended, and used again by the next one that names it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

impl RemoteWorkspace {
    /// The longest name and id, in bytes.
    const NAME_BYTES: usize = 100;

    /// Refuses names that services do not have.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        let names = [("name", Some(&self.name)), ("snapshot", self.snapshot.as_ref())];
        for (what, name) in names.into_iter().filter_map(|(what, name)| Some((what, name?))) {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            let is_long = name.is_empty() || name.len() > Self::NAME_BYTES;
            if is_long || !name.bytes().all(is_part) {
                let most = Self::NAME_BYTES;
                return Err(format!(
                    "the {what} {name:?} of a remote workspace must have 1 to {most} letters, \
                     digits, `-`, `_` and `.`"
                ));
            }
        }
        Ok(())
    }
}

/// A host directory or file that is bind-mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostMount {
    /// Its path on the host.
    #[serde(with = "path")]
    #[schemars(with = "Bytes")]
    pub host: PathBuf,
    /// Its path inside.
    #[serde(with = "path")]
    #[schemars(with = "Bytes")]
    pub inside: PathBuf,
    /// Whether the sandbox may change it, on the host itself.
    pub writable: bool,
}

/// A volume that is mounted: a directory of Stockade's own, which outlives every sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeMount {
    /// Who owns it.
    pub owner: OwnerId,
    /// Its name among those of the owner.
    pub name: VolumeName,
    /// The mount point inside.
    #[serde(with = "path")]
    pub inside: PathBuf,
    /// Whether the sandbox may change it.
    pub writable: bool,
    /// The directory or file in it that is mounted instead of the whole. It must exist, and no
    /// link may lead to it.
    #[serde(default, with = "optional_path", skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<PathBuf>,
}

/// A cache that is mounted: a volume in which a tool keeps what it has downloaded or built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheMount {
    /// Who owns it.
    pub owner: OwnerId,
    /// The tool ([`crate::cache::TOOLS`]), or any name with a path inside.
    pub name: VolumeName,
    /// The project whose cache it is.
    #[serde(default, with = "optional_path", skip_serializing_if = "Option::is_none")]
    pub project: Option<PathBuf>,
    /// The mount point, for a name that is no tool.
    #[serde(default, with = "optional_path", skip_serializing_if = "Option::is_none")]
    pub inside: Option<PathBuf>,
}

/// A user and a group inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// The user id.
    pub user: u32,
    /// The group id.
    pub group: u32,
}

/// The resources that the processes of a sandbox may use together; `None` is the runtime's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of memory, swap included.
    // The other names are those of older records.
    #[serde(alias = "memory_bytes")]
    pub memory_bytes: Option<u64>,
    /// Thousandths of a processor's time: 1000 is one processor.
    #[serde(alias = "cpu_millis")]
    pub cpu_millis: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Bytes on disk of the sandbox's own files.
    #[serde(alias = "disk_bytes")]
    pub disk_bytes: Option<u64>,
    /// The size of `/dev/shm` in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm_bytes: Option<u64>,
}

impl Limits {
    /// The limits after a change.
    #[must_use]
    pub fn with(self, change: &LimitChange) -> Self {
        Self {
            memory_bytes: change.memory_bytes.or(self.memory_bytes),
            cpu_millis: change.cpu_millis.or(self.cpu_millis),
            processes: change.processes.or(self.processes),
            ..self
        }
    }
}

/// New values for the limits that can change while a sandbox exists; an absent one stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LimitChange {
    /// See [`Limits::memory_bytes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// See [`Limits::cpu_millis`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u64>,
    /// See [`Limits::processes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
}

impl LimitChange {
    /// All of these limits.
    pub const fn of(limits: &Limits) -> Self {
        let Limits { memory_bytes, cpu_millis, processes, .. } = *limits;
        Self { memory_bytes, cpu_millis, processes }
    }

    /// Whether no limit changes.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The limits that change, with their new values.
    pub fn each(&self) -> impl Iterator<Item = (LimitName, u64)> + use<> {
        [
            (LimitName::Memory, self.memory_bytes),
            (LimitName::Cpus, self.cpu_millis),
            (LimitName::Processes, self.processes),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}

/// One of the limits, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitName {
    /// [`Limits::memory_bytes`].
    Memory,
    /// [`Limits::cpu_millis`].
    Cpus,
    /// [`Limits::processes`].
    Processes,
    /// [`Limits::disk_bytes`].
    Disk,
}

impl LimitName {
    /// The name in arguments.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpus => "cpus",
            Self::Processes => "pids",
            Self::Disk => "disk",
        }
    }
}

/// The walls and limits that a sandbox may run without. Every other wall is always required.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum BestEffort {
    /// The wall `landlock`, on kernels without it.
    Landlock,
    /// [`Limits::memory_bytes`].
    Memory,
    /// [`Limits::cpu_millis`].
    Cpus,
    /// [`Limits::processes`], stored under this name.
    #[serde(rename = "processes", alias = "pids")]
    Pids,
    /// [`Limits::disk_bytes`].
    Disk,
}

impl From<LimitName> for BestEffort {
    fn from(limit: LimitName) -> Self {
        match limit {
            LimitName::Memory => Self::Memory,
            LimitName::Cpus => Self::Cpus,
            LimitName::Processes => Self::Pids,
            LimitName::Disk => Self::Disk,
        }
    }
}

impl std::fmt::Display for LimitName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_request_is_whole_and_a_misspelt_one_is_refused() {
        assert_eq!(serde_json::from_str::<SandboxSpec>("{}").unwrap(), SandboxSpec::default());
        assert!(serde_json::from_str::<SandboxSpec>(r#"{"label":{}}"#).is_err());
        assert!(serde_json::from_str::<SandboxSpec>(r#"{"limits":{"memory":1}}"#).is_err());
        assert!(serde_json::from_str::<SandboxSpec>(r#"{"access":[{"path":"/"}]}"#).is_err());
        assert!(serde_json::from_str::<SandboxSpec>(r#"{"network":{}}"#).is_err());
        let text = serde_json::to_string(&SandboxSpec::default()).unwrap();
        assert!(!text.contains("network"), "{text}");
    }

    #[test]
    fn what_a_change_does_not_name_stays() {
        let limits = Limits { cpu_millis: Some(500), disk_bytes: Some(9), ..Limits::default() };
        let change: LimitChange = serde_json::from_str(r#"{"memoryBytes":7}"#).unwrap();
        assert_eq!(limits.with(&change), Limits { memory_bytes: Some(7), ..limits });
        assert_eq!(change.each().collect::<Vec<_>>(), [(LimitName::Memory, 7)]);
        assert!(LimitChange::default().is_empty() && !change.is_empty());
        // These limits are those of a file system, which cannot change.
        assert!(serde_json::from_str::<LimitChange>(r#"{"shmBytes":7}"#).is_err());
    }

    #[test]
    fn the_limit_on_processes_has_two_names_for_best_effort() {
        let read = |json: &str| serde_json::from_str::<BestEffort>(json).unwrap();
        assert_eq!([read("\"pids\""), read("\"processes\"")], [BestEffort::Pids; 2]);
        assert_eq!(serde_json::to_string(&BestEffort::Pids).unwrap(), "\"processes\"");
    }

    #[test]
    fn a_request_survives_the_way() {
        let spec = SandboxSpec {
            root: Root::Directory("/images/base".into()),
            workspace: Some(Workspace { host: "/home/me/project".into(), inside: "/work".into() }),
            limits: Limits { memory_bytes: Some(1 << 30), ..Limits::default() },
            best_effort: [BestEffort::Memory].into(),
            access: Rules::from_stored(r#"[{"effect":"allow","level":"read","path":"/work"}]"#),
            network: Some(Policy::default()),
            labels: [("owner".to_owned(), "me".to_owned())].into(),
            lease: Some(Duration::from_secs(60)),
            ..SandboxSpec::default()
        };
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<SandboxSpec>(&text).unwrap(), spec);
    }
}
