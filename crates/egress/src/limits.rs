//! How much of what one sandbox may have, and how long anything may take.

use std::time::Duration;

/// The limits of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time, by all ways together.
    pub connections: usize,
    /// Questions for names that are looked up at a time.
    pub lookups: usize,
    /// Names that get an address in the sandbox's life.
    pub names: usize,
    /// How long looking up a name may take.
    pub lookup: Duration,
    /// How long a connection to one address may take to be made.
    pub connect: Duration,
    /// How long what is sent first may take to say which host it is for, from its first byte on.
    pub opening: Duration,
    /// How long nothing may be sent in either direction.
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
            opening: Duration::from_secs(15),
            idle: Duration::from_secs(15 * 60),
        }
    }
}
