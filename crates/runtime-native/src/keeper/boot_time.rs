//! The clock of the keeper: the time since the boot of the host, including suspension, which no
//! process can set (`CLOCK_BOOTTIME`).

use std::fs;
use std::io;
use std::ops::Add;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A time since the boot of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BootTime(Duration);

impl BootTime {
    /// Now.
    pub(super) fn now() -> Self {
        Self(Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default())
    }

    /// The time this long after the boot of the host.
    pub(super) const fn from_host_start(duration: Duration) -> Self {
        Self(duration)
    }

    /// How long after the boot of the host it is.
    pub(super) const fn after_host_start(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this; zero if `earlier` is later.
    pub(super) const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// The id of this boot of the host (`random(4)`, "boot_id").
pub(super) fn host_start() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Milliseconds since 1970, by the wall clock, which can be set.
pub(super) fn wall_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
