//! The names of the walls, in the order in which they are enabled.

/// One wall of a jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Wall {
    /// A user namespace in which no inside id is host 0.
    User = 0,
    /// A process tree of its own, in which pid 1 is our init.
    Pid,
    /// A network namespace with nothing but its own loopback.
    Network,
    /// System V and POSIX message queues of its own.
    Ipc,
    /// A host name of its own.
    HostName,
    /// A control group namespace.
    Cgroup,
    /// A mount tree of its own in which the host's root does not exist.
    Root,
    /// The project is copy-on-write.
    View,
    /// A minimal `/dev`.
    Devices,
    /// A `/proc` of its own, read-only and masked.
    Proc,
    /// Limits of each process.
    ResourceLimits,
    /// No capability, and no way to gain one.
    Capabilities,
    /// `no_new_privs`: set-id programs give no privilege.
    NoNewPrivileges,
    /// The kernel's rules for files and signals, in addition to the mounts.
    Landlock,
    /// The system call filter.
    Seccomp,
    /// Nothing is inherited: file descriptors, environment, signals, session.
    Inheritance,
}

impl Wall {
    /// Every wall, in the order in which they are enabled.
    pub const ALL: &'static [Self] = &[
        Self::User,
        Self::Pid,
        Self::Network,
        Self::Ipc,
        Self::HostName,
        Self::Cgroup,
        Self::Root,
        Self::View,
        Self::Devices,
        Self::Proc,
        Self::ResourceLimits,
        Self::Capabilities,
        Self::NoNewPrivileges,
        Self::Landlock,
        Self::Seccomp,
        Self::Inheritance,
    ];

    /// The wall's stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Pid => "pid",
            Self::Network => "network",
            Self::Ipc => "ipc",
            Self::HostName => "hostname",
            Self::Cgroup => "cgroup",
            Self::Root => "root",
            Self::View => "view",
            Self::Devices => "devices",
            Self::Proc => "proc",
            Self::ResourceLimits => "rlimits",
            Self::Capabilities => "capabilities",
            Self::NoNewPrivileges => "no_new_privs",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Inheritance => "inheritance",
        }
    }

    pub(crate) fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }
}

impl std::fmt::Display for Wall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wall_is_found_by_its_index() {
        for (index, wall) in Wall::ALL.iter().enumerate() {
            assert_eq!(*wall as usize, index);
            assert_eq!(Wall::from_index(index.try_into().unwrap()), Some(*wall));
        }
        assert_eq!(Wall::from_index(200), None);
    }
}
