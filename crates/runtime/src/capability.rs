//! The optional features of a backend, so that a caller can query them beforehand.

/// A feature that not every backend, or not every host, supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Commands with a terminal.
    Terminal,
    /// Commands of several users.
    Users,
    /// Connections to ports and sockets inside.
    Ports,
    /// Stopping and resuming all processes.
    Pause,
    /// Storing the state of the file system, and starting from it.
    Snapshot,
    /// A copy-on-write view of a directory of the host.
    Workspace,
    /// Bind mounts of files and directories of the host.
    HostMounts,
    /// Volumes and caches of an owner.
    Volumes,
    /// A network with a policy, through listeners that another process serves
    /// ([`Runtime::listeners`](crate::Runtime::listeners)).
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

impl Capability {
    /// Every capability.
    pub const ALL: [Self; 13] = [
        Self::Terminal,
        Self::Users,
        Self::Ports,
        Self::Pause,
        Self::Snapshot,
        Self::Workspace,
        Self::HostMounts,
        Self::Volumes,
        Self::Egress,
        Self::MemoryLimit,
        Self::CpuLimit,
        Self::ProcessLimit,
        Self::DiskLimit,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Users => "users",
            Self::Ports => "ports",
            Self::Pause => "pause",
            Self::Snapshot => "snapshot",
            Self::Workspace => "workspace",
            Self::HostMounts => "host-mounts",
            Self::Volumes => "volumes",
            Self::Egress => "egress",
            Self::MemoryLimit => "memory-limit",
            Self::CpuLimit => "cpu-limit",
            Self::ProcessLimit => "process-limit",
            Self::DiskLimit => "disk-limit",
        }
    }
}

impl std::fmt::Display for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a backend does not support a feature here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// The reason, in one sentence.
    pub reason: String,
    /// How to make it possible: a command that can be pasted where there is one.
    pub remedy: Option<String>,
}
