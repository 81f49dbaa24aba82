//! The reserve on the disk of the data directory that sandboxes leave, as one-shot runs do. When there is
//! less space than that, sandboxes that hold much of the disk lose their commands, not their files: the
//! local server must still be able to record that they are removed. Sandboxes that hold little are
//! spared, because something else filled the disk.

use std::time::Duration;

use stockade_core::sandbox::LimitName;

use super::helpers::{Layers, Outcome};
use super::sandbox::Lifecycle;
use super::timers::Timer;
use super::{Keeper, Key};

/// How much of the disk is left free, unless less than twice that is free without sandboxes.
const RESERVED_BYTES: u64 = 512 << 20;
/// What a sandbox may always hold.
const SMALL_BYTES: u64 = 16 << 20;
/// The part of the reserve that a sandbox may always hold.
const SMALL_PART: u64 = 16;
/// How often the disk is measured while commands run, and while none does.
const INTERVALS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(2)];

/// The reserve on one disk.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DiskReserve {
    /// Zero before the first measurement.
    bytes: u64,
}

impl DiskReserve {
    /// Handles a measurement. Returns whether the space is less than the reserve.
    fn measured(&mut self, free_bytes: u64, is_active: bool) -> bool {
        // It is fixed while commands run: these may be what uses the disk.
        if !is_active || self.bytes == 0 {
            self.bytes = RESERVED_BYTES.min(free_bytes / 2);
        }
        is_active && free_bytes < self.bytes
    }

    /// How much a sandbox may hold when the space is less than the reserve.
    fn share_bytes(self) -> u64 {
        SMALL_BYTES.max(self.bytes / SMALL_PART)
    }
}

impl Keeper {
    /// Measures the disk, and then the active sandboxes if there is too little space.
    pub(super) fn watch_disk_reserve(&mut self) {
        let active: Vec<Key> = self
            .sandboxes
            .values()
            .filter(|sandbox| matches!(sandbox.life, Lifecycle::Running(_)) && sandbox.is_active())
            .map(|sandbox| sandbox.key)
            .collect();
        let [busy, idle] = INTERVALS;
        let interval = if active.is_empty() { idle } else { busy };
        if let Some(free) = free_bytes(self.context.directory.path())
            && self.disk_reserve.measured(free, !active.is_empty())
        {
            for key in active {
                self.measure_share(key);
            }
        }
        self.context.timers.after(interval, Timer::DiskReserve);
    }

    fn measure_share(&mut self, key: Key) {
        let Some(sandbox) = self.sandboxes.get(&key) else { return };
        let dir = self.context.directory.path().join("sandboxes").join(&sandbox.name);
        let share = self.disk_reserve.share_bytes();
        // If no helper can be started now, the next measurement starts one.
        let layers = Layers { dir: &dir, subordinate: sandbox.record.subordinate };
        let _ = self.helpers.measure_share(&self.context.reactor, key, layers, share);
    }

    /// Handles the measurement of a sandbox.
    pub(super) fn share_measured(&mut self, key: Key, outcome: Outcome) {
        self.with(key, |sandbox, context| {
            if outcome == Outcome::TooMuch && sandbox.is_active() {
                context.log(&format!("{}: leaves no space on the disk", sandbox.name));
                sandbox.used_too_much(context, LimitName::Disk);
            }
        });
    }
}

/// The space that is free on the disk with a directory; none if it has no room for another file.
fn free_bytes(path: &std::path::Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    if stat.f_files > 0 && stat.f_favail == 0 {
        return Some(0);
    }
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_reserve_is_fixed_while_commands_run() {
        let mut reserve = DiskReserve::default();
        assert!(!reserve.measured(400 * MIB, false));
        assert!(!reserve.measured(201 * MIB, true));
        assert!(reserve.measured(199 * MIB, true));
        // Without commands nothing is to be ended, and what is left is shared anew.
        assert!(!reserve.measured(100 * MIB, false));
        assert!(!reserve.measured(60 * MIB, true) && reserve.measured(40 * MIB, true));
        assert!(!reserve.measured(10_000 * MIB, false));
        assert!(reserve.measured(511 * MIB, true));
        assert_eq!(reserve.share_bytes(), 32 * MIB);
    }

    #[test]
    fn a_small_sandbox_is_spared_on_a_small_disk() {
        let mut reserve = DiskReserve::default();
        assert!(!reserve.measured(24 * MIB, true) && reserve.measured(0, true));
        assert_eq!(reserve.share_bytes(), SMALL_BYTES);
    }
}
