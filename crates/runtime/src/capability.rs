//! What a backend can do beyond running a command, so that a caller can ask before it tries.

/// Something that not every backend, or not every host, can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Commands with a terminal.
    Terminal,
    /// Commands of several users.
    Users,
    /// Connections to ports and sockets inside.
    Ports,
    /// Stopping all processes and letting them go on.
    Pause,
    /// Keeping the state of the file system, and starting from it.
    Snapshot,
    /// A directory of the host that is shown copy-on-write.
    Workspace,
    /// Files and directories of the host that are shown as they are.
    HostMounts,
    /// A network by policy: ways out that somebody else serves
    /// ([`Runtime::listeners`](crate::Runtime::listeners)).
    Egress,
    /// A limit on memory that the kernel holds.
    MemoryLimit,
    /// A limit on processor time that the kernel holds.
    CpuLimit,
    /// A limit on the number of processes that the kernel holds.
    ProcessLimit,
    /// A limit on what is written to disk.
    DiskLimit,
}

impl Capability {
    /// Every capability.
    pub const ALL: [Self; 12] = [
        Self::Terminal,
        Self::Users,
        Self::Ports,
        Self::Pause,
        Self::Snapshot,
        Self::Workspace,
        Self::HostMounts,
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

/// Why a backend cannot do something here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// Why, in one sentence.
    pub reason: String,
    /// What would make it possible: a command that can be pasted where there is one.
    pub remedy: Option<String>,
}
