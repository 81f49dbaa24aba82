//! The clock of the keeper: that which counts from the start of the host, also while that sleeps,
//! and which nobody can set.

use std::fs;
use std::io;
use std::ops::Add;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment since the host was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(Duration);

impl Moment {
    /// Now.
    pub(super) fn now() -> Self {
        Self(Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default())
    }

    /// The moment so long after the start of the host.
    pub(super) const fn of_host(duration: Duration) -> Self {
        Self(duration)
    }

    /// How long after the start of the host it is.
    pub(super) const fn after_host_start(self) -> Duration {
        self.0
    }

    /// How long it is from `earlier` to this; nothing when that is later.
    pub(super) const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// What tells this run of the host from every other (`random(4)`, "boot_id").
pub(super) fn host_start() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Milliseconds since 1970, by the clock that people set.
pub(super) fn wall_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
