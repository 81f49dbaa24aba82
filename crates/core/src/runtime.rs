//! The runtimes that a sandbox can request by name, and what each of them can do.
//!
//! The table is static, so that a request can be refused before anything of it is made, also where
//! no runtime can be reached. Whether a runtime is usable on a host, only the runtime itself knows.

/// A runtime with a name of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuntimeName {
    /// Jails of Stockade itself.
    Native,
    /// The program `bwrap` of bubblewrap.
    Bwrap,
    /// Containers of a Docker engine.
    Docker,
    /// Sandboxes that a server of OpenSandbox holds.
    OpenSandbox,
    /// Workspaces that Codeplane holds.
    Codeplane,
    /// Pods of a Kubernetes cluster.
    Kubernetes,
}

/// A feature that not every runtime, or not every host, supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// The host's own programs as the root file system.
    HostRoot,
    /// An image as the root file system.
    Images,
    /// System directories of which no file is shared with the host.
    PrivateBase,
    /// Commands with a terminal.
    Terminal,
    /// Commands of several users.
    Users,
    /// Connections to ports and sockets inside, and published ports.
    Ports,
    /// Stopping and resuming all processes.
    Pause,
    /// Storing the state of the file system, and starting from it.
    Snapshot,
    /// Storing the memory of the processes.
    Checkpoint,
    /// A copy-on-write view of a directory of the host.
    Workspace,
    /// Bind mounts of files and directories of the host.
    HostMounts,
    /// Volumes and caches of an owner.
    Volumes,
    /// An ssh agent outside, which programs inside reach.
    SshAgent,
    /// Access rules that bind the processes.
    AccessRules,
    /// A network with a policy, through listeners that another process serves.
    Egress,
    /// A memory limit that the kernel enforces.
    MemoryLimit,
    /// A limit on processor time that the kernel enforces.
    CpuLimit,
    /// A limit on the number of processes that the kernel enforces.
    ProcessLimit,
    /// A limit on disk use.
    DiskLimit,
}

/// What a runtime declares about a capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It has it wherever it is usable.
    Yes,
    /// It has it under this condition.
    Conditional(&'static str),
    /// It never has it, for this reason.
    No(&'static str),
}

/// Why a name selects no runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unselectable {
    /// There is no runtime with that name.
    Unknown,
    /// There is one, but Stockade has no support for it: the reason.
    NotSupported(&'static str),
}

impl RuntimeName {
    /// Every runtime.
    pub const ALL: [Self; 6] = [
        Self::Native,
        Self::Bwrap,
        Self::Docker,
        Self::OpenSandbox,
        Self::Codeplane,
        Self::Kubernetes,
    ];

    /// Every name that a request may use for a runtime, also for those that Stockade does not
    /// support.
    pub const KNOWN: [&'static str; 8] = [
        "bubblewrap",
        "native",
        "bwrap",
        "docker",
        "opensandbox",
        "kubernetes",
        "codeplane",
        "cloudflare",
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Bwrap => "bwrap",
            Self::Docker => "docker",
            Self::OpenSandbox => "opensandbox",
            Self::Codeplane => "codeplane",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// The runtime that a name selects. In the documentation of Smithers `bubblewrap` means
    /// unprivileged namespaces without a daemon, which is the native runtime; the program has the
    /// name `bwrap`.
    ///
    /// # Errors
    /// For every other name. No other runtime replaces it.
    pub fn select(name: &str) -> Result<Self, Unselectable> {
        match name {
            "native" | "bubblewrap" => Ok(Self::Native),
            "bwrap" => Ok(Self::Bwrap),
            "docker" => Ok(Self::Docker),
            "opensandbox" => Ok(Self::OpenSandbox),
            "codeplane" => Ok(Self::Codeplane),
            "kubernetes" => Ok(Self::Kubernetes),
            "cloudflare" => Err(Unselectable::NotSupported(
                "it needs a provider: @smithers-orchestrator/cloudflare",
            )),
            _ => Err(Unselectable::Unknown),
        }
    }

    /// Whether its images are those of an engine or of nodes, and not of the store of a data directory.
    #[must_use]
    pub const fn has_own_images(self) -> bool {
        matches!(self, Self::Docker | Self::Kubernetes)
    }

    /// What the runtime declares about a capability.
    pub const fn declares(self, capability: Capability) -> Support {
        match self {
            Self::Native => native(capability),
            Self::Bwrap => bwrap(capability),
            Self::Docker => docker(capability),
            Self::OpenSandbox => opensandbox(capability),
            Self::Codeplane => codeplane(capability),
            Self::Kubernetes => kubernetes(capability),
        }
    }

    /// Whether its sandboxes are workspaces of a service, which can be named and kept.
    pub const fn has_remote_workspaces(self) -> bool {
        matches!(self, Self::Codeplane)
    }

    /// Whether it copies what its sandboxes see of this host, which another machine cannot show.
    pub const fn copies_files(self) -> bool {
        matches!(self, Self::Codeplane | Self::OpenSandbox | Self::Kubernetes)
    }

    /// Whether its sandboxes may reach the network of a service elsewhere, and nothing here can prevent that.
    pub const fn has_open_network(self) -> bool {
        matches!(self, Self::OpenSandbox | Self::Codeplane)
    }
}

impl std::fmt::Display for RuntimeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

const CONTROL_GROUP: Support =
    Support::Conditional("where a control group for it can be created, see `stockade doctor`");
const NO_MEMORY_IMAGE: Support = Support::No("it does not store the memory of processes");

const fn native(capability: Capability) -> Support {
    match capability {
        Capability::Users => Support::Conditional("if root runs it"),
        Capability::MemoryLimit | Capability::CpuLimit => CONTROL_GROUP,
        Capability::Checkpoint => NO_MEMORY_IMAGE,
        _ => Support::Yes,
    }
}

const fn bwrap(capability: Capability) -> Support {
    match capability {
        Capability::Users => Support::No("bubblewrap maps one user and one group only"),
        Capability::Images => Support::Conditional(
            "if Stockade's own programs run in it: with glibc, not musl or static",
        ),
        Capability::MemoryLimit | Capability::CpuLimit => CONTROL_GROUP,
        Capability::Checkpoint => NO_MEMORY_IMAGE,
        _ => Support::Yes,
    }
}

const fn docker(capability: Capability) -> Support {
    match capability {
        Capability::HostRoot => Support::No("a container starts from an image"),
        Capability::Users => Support::No("all commands of a container run as one user"),
        Capability::Egress => Support::Conditional("if root runs it"),
        Capability::MemoryLimit | Capability::CpuLimit | Capability::ProcessLimit => {
            Support::Conditional("where the engine supports it, see `docker info`")
        }
        Capability::AccessRules => {
            Support::No("the engine cannot restrict single paths of a container")
        }
        Capability::PrivateBase => Support::No(
            "the files of an image of the engine are shared by all containers that are made of it",
        ),
        Capability::Volumes => Support::No(
            "an engine cannot show one volume to sandboxes with different owners of files",
        ),
        Capability::SshAgent => Support::No("a container has no directory for the socket of one"),
        Capability::Checkpoint => NO_MEMORY_IMAGE,
        _ => Support::Yes,
    }
}

const fn opensandbox(capability: Capability) -> Support {
    Support::No(match capability {
        Capability::HostRoot => {
            return Support::Conditional(
                "if the server is another Stockade: the programs of its machine",
            );
        }
        Capability::Images => return Support::Conditional("if the server has or pulls the image"),
        Capability::Workspace => {
            return Support::Conditional("as a copy, which is compared at the end");
        }
        Capability::HostMounts => {
            return Support::Conditional("read-only, as copies that are made at the start");
        }
        Capability::Pause => "the files and commands of a paused sandbox cannot be reached there",
        Capability::PrivateBase => "the system directories are those of the server or of an image",
        Capability::Terminal => "a terminal of the server does not outlive its connection",
        Capability::Users => "the server decides which user runs commands",
        Capability::Ports => "the server passes on HTTP requests, and no connections",
        Capability::Snapshot => "a snapshot of the server says nothing about changed files",
        Capability::Checkpoint => return NO_MEMORY_IMAGE,
        Capability::Volumes => "volumes are on this host",
        Capability::SshAgent => {
            "the socket of an agent of this host cannot be reached on another one"
        }
        Capability::AccessRules => "the server has no rules about paths",
        Capability::Egress => {
            "its network is on another host, where no process of ours can check it"
        }
        Capability::MemoryLimit
        | Capability::CpuLimit
        | Capability::ProcessLimit
        | Capability::DiskLimit => "the server does not say whether it enforces a limit",
    })
}

const fn codeplane(capability: Capability) -> Support {
    Support::No(match capability {
        Capability::HostRoot => return Support::Conditional("the programs of the workspace"),
        Capability::Workspace => {
            return Support::Conditional("as a copy, which is compared at the end");
        }
        Capability::Pause => {
            return Support::Conditional("its files and commands cannot be reached meanwhile");
        }
        Capability::Ports => return Support::Conditional("if its ssh server forwards connections"),
        Capability::Images => "a workspace starts from a snapshot of Codeplane, and from no image",
        Capability::PrivateBase => "the system directories are those of the workspace",
        Capability::Terminal => "a terminal over ssh does not outlive its connection",
        Capability::Users => "all commands of a workspace run as one user",
        Capability::Snapshot => "a snapshot of Codeplane says nothing about changed files",
        Capability::Checkpoint => return NO_MEMORY_IMAGE,
        Capability::HostMounts => {
            return Support::Conditional("read-only, as copies that are made at the start");
        }
        Capability::Volumes => "volumes are on this host",
        Capability::SshAgent => "an ssh agent of this host would be lent to another one",
        Capability::AccessRules => "Codeplane has no rules about paths",
        Capability::Egress => "its network is on another host, where nothing of ours can check it",
        Capability::MemoryLimit
        | Capability::CpuLimit
        | Capability::ProcessLimit
        | Capability::DiskLimit => "Codeplane decides how large a workspace is",
    })
}

const fn kubernetes(capability: Capability) -> Support {
    match capability {
        Capability::HostRoot => Support::No("a pod starts from an image"),
        Capability::Users => Support::No("all commands of a pod run as one user"),
        Capability::Workspace => Support::Conditional("as a copy, which is compared at the end"),
        Capability::HostMounts => {
            Support::Conditional("read-only, as copies that are made at the start")
        }
        Capability::Volumes => Support::No("the volumes of an owner are on this host"),
        Capability::Snapshot => Support::No("the file system of a pod cannot be stored"),
        Capability::PrivateBase => Support::No(
            "the files of an image are shared by all pods of a node that are made of it",
        ),
        Capability::AccessRules => Support::No("a cluster cannot restrict single paths of a pod"),
        Capability::Egress => Support::No(
            "the network of a pod is closed, and no egress process of this host is in it",
        ),
        Capability::Pause => {
            Support::No("signals that stop all processes of a pod would stop its keeper, too")
        }
        Capability::SshAgent => Support::No("a pod has no directory for the socket of one"),
        Capability::ProcessLimit => Support::No("a pod has no limit of its own, only its node has"),
        Capability::DiskLimit => Support::No(
            "a cluster ends a pod that uses too much disk, and does not refuse the write",
        ),
        Capability::Checkpoint => NO_MEMORY_IMAGE,
        _ => Support::Yes,
    }
}

/// The table of all runtimes and what each declares, in Markdown.
pub fn comparison() -> String {
    let mut text = String::from("| capability |");
    for runtime in RuntimeName::ALL {
        text.push_str(&format!(" `{runtime}` |"));
    }
    text.push_str("\n| --- |");
    text.push_str(&" --- |".repeat(RuntimeName::ALL.len()));
    text.push('\n');
    for capability in Capability::ALL {
        text.push_str(&format!("| `{capability}`: {} |", capability.summary()));
        for runtime in RuntimeName::ALL {
            match runtime.declares(capability) {
                Support::Yes => text.push_str(" yes |"),
                Support::Conditional(condition) => text.push_str(&format!(" {condition} |")),
                Support::No(reason) => text.push_str(&format!(" no: {reason} |")),
            }
        }
        text.push('\n');
    }
    text
}

impl Capability {
    /// Every capability.
    pub const ALL: [Self; 19] = [
        Self::HostRoot,
        Self::Images,
        Self::PrivateBase,
        Self::Workspace,
        Self::HostMounts,
        Self::Volumes,
        Self::SshAgent,
        Self::Snapshot,
        Self::Checkpoint,
        Self::Terminal,
        Self::Users,
        Self::Ports,
        Self::Pause,
        Self::AccessRules,
        Self::Egress,
        Self::MemoryLimit,
        Self::CpuLimit,
        Self::ProcessLimit,
        Self::DiskLimit,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HostRoot => "host-root",
            Self::Images => "images",
            Self::PrivateBase => "private-base",
            Self::Terminal => "terminal",
            Self::Users => "users",
            Self::Ports => "ports",
            Self::Pause => "pause",
            Self::Snapshot => "snapshot",
            Self::Checkpoint => "checkpoint",
            Self::Workspace => "workspace",
            Self::HostMounts => "host-mounts",
            Self::Volumes => "volumes",
            Self::SshAgent => "ssh-agent",
            Self::AccessRules => "access-rules",
            Self::Egress => "egress",
            Self::MemoryLimit => "memory-limit",
            Self::CpuLimit => "cpu-limit",
            Self::ProcessLimit => "process-limit",
            Self::DiskLimit => "disk-limit",
        }
    }

    /// What it means, for the table of runtimes.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::HostRoot => "the host's own programs as root file system, without an image",
            Self::PrivateBase => {
                "system directories that share no file with the host (`--private-base`)"
            }
            Self::Images => "an image as root file system (`--image`)",
            Self::Terminal => "commands with a terminal (`exec -t`)",
            Self::Users => "commands of several users (`exec --user`)",
            Self::Ports => "ports that lead inside (`forward`, `--publish`)",
            Self::Pause => "`pause` and `resume`",
            Self::Snapshot => "`snapshot` and `restore` of the files",
            Self::Checkpoint => "storing the memory of processes",
            Self::Workspace => "a copy-on-write view of a directory (`--workspace`)",
            Self::HostMounts => "bind mounts (`--mount`)",
            Self::Volumes => "named volumes and caches (`--volume`, `--cache`)",
            Self::SshAgent => "an ssh agent outside (`--ssh-agent`)",
            Self::AccessRules => "access rules that bind processes (`--access`)",
            Self::Egress => "a network with a policy (`--allow`)",
            Self::MemoryLimit => "a memory limit (`--memory`)",
            Self::CpuLimit => "a processor limit (`--cpus`)",
            Self::ProcessLimit => "a limit on processes (`--pids`)",
            Self::DiskLimit => "a limit on disk use (`--disk`)",
        }
    }
}

impl std::fmt::Display for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_runtime_is_selected_by_its_own_name_and_no_other() {
        for runtime in RuntimeName::ALL {
            assert_eq!(RuntimeName::select(runtime.as_str()), Ok(runtime));
            assert!(RuntimeName::KNOWN.contains(&runtime.as_str()));
        }
        assert_eq!(RuntimeName::select("bubblewrap"), Ok(RuntimeName::Native));
        for unknown in ["", "Docker", "bublewrap", "native ", "podman"] {
            assert_eq!(RuntimeName::select(unknown), Err(Unselectable::Unknown), "{unknown}");
        }
        let refused = RuntimeName::KNOWN.iter().filter(|name| RuntimeName::select(name).is_err());
        assert_eq!(refused.copied().collect::<Vec<_>>(), ["cloudflare"]);
    }

    #[test]
    fn the_document_has_the_table() {
        let document = include_str!("../../../docs/runtimes.md");
        let table = comparison();
        assert!(document.contains(&table), "docs/runtimes.md must contain this table:\n{table}");
    }

    #[test]
    fn every_capability_is_listed_once_under_its_own_name() {
        let names: std::collections::BTreeSet<_> =
            Capability::ALL.iter().map(|capability| capability.as_str()).collect();
        assert_eq!(names.len(), Capability::ALL.len());
    }
}
