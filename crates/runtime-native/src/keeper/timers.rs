//! What is to be done later. Nothing is ever taken back: whoever is woken looks whether there is
//! still something to do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::Key;
use super::moment::Moment;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Tell every init to live on.
    RenewLeases,
    /// A sandbox's own lease may have ended.
    Lease(Key),
    /// The walls of a jail may have taken too long, or its init may not have answered.
    Launch(Key),
    /// Look whether the processes of a jail have stopped.
    Stop(Key),
    /// The init of a jail may not have handed out the ways out of its network.
    Listeners(Key),
    /// Wait no longer for those who heard of a jail's commands from another keeper.
    Return(Key),
    /// Look how much memory a jail uses, where no control group holds it.
    Memory(Key),
    /// Look what a sandbox takes on disk.
    Disk(Key),
    /// Try to remove control groups that were still in use.
    Groups,
    /// Remove what was thrown away.
    Sweep,
    /// Try to remove what of the trash could not be removed.
    SweepAgain,
    /// Fill the pool.
    Pool,
    /// Look whether somebody still asks for what waits in the pool.
    PoolRest,
    /// Take connections again.
    Accept,
    /// Look whether the keeper is still needed.
    Idle,
}

/// The timers, by the moment.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Moment, Timer)>>);

impl Timers {
    /// Has something done so long from now.
    pub(super) fn after(&mut self, delay: Duration, timer: Timer) {
        self.at(Moment::now() + delay, timer);
    }

    /// Has something done at a moment.
    pub(super) fn at(&mut self, moment: Moment, timer: Timer) {
        self.0.push(Reverse((moment, timer)));
    }

    /// How long it is until the next.
    pub(super) fn next(&self, now: Moment) -> Option<Duration> {
        self.0.peek().map(|Reverse((moment, _))| moment.since(now))
    }

    /// The next whose moment has come.
    pub(super) fn due(&mut self, now: Moment) -> Option<Timer> {
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
        let now = Moment::now();
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
