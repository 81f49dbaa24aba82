//! What stands around every process in which scripts run: a jail with nothing in it.

use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::{Identity, JailSpec, Network, Source, Task};

/// The stack on which files are read and run: deep nesting takes its share of it.
pub(crate) const STACK_BYTES: usize = 64 << 20;

/// What is said of files whose reading went beyond the end of it.
pub const TOO_DEEP: &str = "the files are nested too deeply to be read";

/// Whether a signal that has ended a process tells that it went beyond the end of its stack: `SIGBUS` and
/// `SIGSEGV`. What the engine runs does not, for the engine looks for the end itself.
pub fn is_beyond_stack(signal: i32) -> bool {
    [7, 11].contains(&signal)
}

/// A jail without a file, a network or anything of the caller's, for this task.
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
        // Nobody writes a file here.
        rlimits: ResourceLimits { file_bytes: Some(0), ..rlimits },
        cgroup: None,
        kept: Vec::new(),
        areas: None,
        landlock_optional: false,
    }
}
