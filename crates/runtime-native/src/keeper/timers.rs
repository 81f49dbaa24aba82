//! Scheduled work. A timer is never cancelled: its handler checks whether there is still something
//! to do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::Key;
use super::boot_time::BootTime;

/// The work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Renew the leases of all inits.
    RenewLeases,
    /// A sandbox's own lease may have ended.
    Lease(Key),
    /// A jail's launch may have taken too long, or its init may not have answered.
    Launch(Key),
    /// Check whether the processes of a jail have stopped.
    Stop(Key),
    /// The init of a jail may not have sent its egress listeners.
    Listeners(Key),
    /// Stop waiting for the subscribers that a jail's commands had at an earlier keeper.
    Return(Key),
    /// Listen to the refused system calls of a jail again.
    RefusedCalls(Key),
    /// Measure a jail's memory, if no control group enforces its limit.
    Memory(Key),
    /// Measure a sandbox's disk use.
    Disk(Key),
    /// Measure the space on the disk.
    DiskReserve,
    /// Retry to remove control groups that were still in use.
    Groups,
    /// Store new sandboxes on the disk.
    Store,
    /// Empty the trash.
    Sweep,
    /// Retry to remove trash that could not be removed.
    SweepAgain,
    /// Fill the pool.
    Pool,
    /// Check whether clients still request sandboxes of the pool.
    PoolRest,
    /// Accept connections again.
    Accept,
    /// Check whether the keeper is still needed.
    Idle,
}

/// The timers, ordered by time.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(BootTime, Timer)>>);

impl Timers {
    /// Schedules work after a delay.
    pub(super) fn after(&mut self, delay: Duration, timer: Timer) {
        self.at(BootTime::now() + delay, timer);
    }

    /// Schedules work at a time.
    pub(super) fn at(&mut self, time: BootTime, timer: Timer) {
        self.0.push(Reverse((time, timer)));
    }

    /// How long it is until the next timer.
    pub(super) fn next(&self, now: BootTime) -> Option<Duration> {
        self.0.peek().map(|Reverse((moment, _))| moment.since(now))
    }

    /// The next timer that is due.
    pub(super) fn due(&mut self, now: BootTime) -> Option<Timer> {
        self.0.peek().filter(|Reverse((moment, _))| *moment <= now)?;
        self.0.pop().map(|Reverse((_, timer))| timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_the_order_of_its_moments() {
        let mut timers = Timers::default();
        let now = BootTime::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        timers.at(later(20), Timer::Idle);
        timers.at(later(10), Timer::Pool);
        timers.at(later(15), Timer::Lease(Key(1)));
        assert_eq!(timers.next(now), Some(Duration::from_secs(10)));
        assert_eq!(timers.due(now), None);
        assert_eq!(timers.due(later(15)), Some(Timer::Pool));
        assert_eq!(timers.due(later(15)), Some(Timer::Lease(Key(1))));
        assert_eq!(timers.due(later(15)), None);
        assert_eq!(timers.next(later(30)), Some(Duration::ZERO));
        assert_eq!(timers.due(later(30)), Some(Timer::Idle));
        assert_eq!(timers.next(now), None);
    }
}
