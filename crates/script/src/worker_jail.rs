//! The isolation of every process in which scripts run: a jail without files.

use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::{Identity, JailSpec, Network, Source, Task};

/// The stack on which files are parsed and run: deep nesting needs much of it.
pub(crate) const STACK_BYTES: usize = 64 << 20;

/// The message for files that overflow the stack while they are parsed.
pub const TOO_DEEP: &str = "the files are nested too deeply to be read";

/// Whether a signal that ended a process indicates a stack overflow: `SIGBUS` and `SIGSEGV`. Code
/// in the engine does not cause one, because the engine checks its stack itself.
pub fn is_stack_overflow(signal: i32) -> bool {
    [7, 11].contains(&signal)
}

/// A jail for this task without files, network or anything of the caller.
pub(crate) fn jail(identity: Identity, task: Task, rlimits: ResourceLimits) -> JailSpec {
    JailSpec {
        identity,
        root: Source::Empty,
        root_writable: false,
        root_is_own: true,
        mounts: Vec::new(),
        hostname: "worker".to_owned(),
        network: Network::Off,
        task,
        // No process writes a file here.
        rlimits: ResourceLimits { file_bytes: Some(0), ..rlimits },
        cgroup: None,
        locks: Vec::new(),
        access_mounts: None,
        landlock_optional: false,
        reports_refused_calls: false,
    }
}
