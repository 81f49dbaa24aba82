//! What a sandbox uses.

use std::time::Duration;

/// What a sandbox uses. What nobody can tell here is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of memory: with what is kept of files where a control group counts, else what belongs
    /// to its processes.
    pub memory_bytes: Option<u64>,
    /// How long its processes have run on a processor so far.
    pub cpu_time: Option<Duration>,
    /// How many processes there are, with those that the runtime itself has in it.
    pub processes: Option<u64>,
    /// Bytes that its own files take on disk.
    pub disk_bytes: Option<u64>,
    /// Why something is absent, in words.
    pub reasons: Vec<String>,
}
