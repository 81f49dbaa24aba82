//! The resource use of a sandbox.

use std::time::Duration;

/// The resource use of a sandbox. Values that cannot be determined here are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of memory: including the page cache if a control group counts, else the memory of its
    /// processes.
    pub memory_bytes: Option<u64>,
    /// The CPU time of its processes so far.
    pub cpu_time: Option<Duration>,
    /// The number of processes, including those of the runtime itself in it.
    pub processes: Option<u64>,
    /// The disk use of its own files, in bytes.
    pub disk_bytes: Option<u64>,
    /// Why values are absent, as text.
    pub reasons: Vec<String>,
}
