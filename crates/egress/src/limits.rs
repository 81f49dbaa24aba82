//! How many resources one sandbox may use, and how long operations may take.

use std::time::Duration;

/// The limits of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent connections, direct and through the proxy together.
    pub connections: usize,
    /// Concurrent DNS queries.
    pub lookups: usize,
    /// Names that get an address during the life of the sandbox.
    pub names: usize,
    /// How long looking up a name may take.
    pub lookup: Duration,
    /// How long connecting to one address may take.
    pub connect: Duration,
    /// How long the first bytes of a connection may take to name their host, from the first byte
    /// on.
    pub first_bytes: Duration,
    /// How long a connection may be idle in both directions.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            lookups: 64,
            names: 16_384,
            lookup: Duration::from_secs(6),
            connect: Duration::from_secs(10),
            first_bytes: Duration::from_secs(15),
            idle: Duration::from_secs(15 * 60),
        }
    }
}
