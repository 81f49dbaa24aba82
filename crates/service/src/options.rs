//! What a service is configured with.

use std::time::Duration;

/// What a service is configured with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names this process among those that share a store; the same name again takes over what the
    /// last one left.
    pub executor_id: String,
    /// How long a sandbox lives that does not say.
    pub default_ttl: Option<Duration>,
    /// The longest that a sandbox may ask for.
    pub quotas: Quotas,
    /// How often a sandbox is looked at (seed 002: every 10 s).
    pub watch_interval: Duration,
    /// How many queued operations run at once, over all processes, and in this one
    /// (`DBOS_SANDBOX_QUEUE_CONCURRENCY`, `DBOS_SANDBOX_WORKER_CONCURRENCY`).
    pub queue_concurrency: u32,
    /// See `queue_concurrency`.
    pub worker_concurrency: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            executor_id: "local".to_owned(),
            default_ttl: Some(Duration::from_secs(60 * 60)),
            quotas: Quotas::default(),
            watch_interval: Duration::from_secs(10),
            queue_concurrency: 30,
            worker_concurrency: 3,
        }
    }
}

/// What one owner may have.
#[derive(Debug, Clone, Copy)]
pub struct Quotas {
    /// Sandboxes that are not terminated.
    pub sandboxes: u32,
    /// Snapshots.
    pub snapshots: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { sandboxes: 1000, snapshots: 1000 }
    }
}
