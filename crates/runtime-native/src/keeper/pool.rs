//! Unused jails that wait for a client that requests one like them. A used jail never returns to
//! the pool.

use std::collections::VecDeque;
use std::time::Duration;

use stockade_core::SandboxSpec;

use super::boot_time::BootTime;
use super::launch::CreateRequest;
use super::sandbox::Sandbox;
use super::timers::Timer;
use super::{Keeper, Key};

/// How many descriptors must be available for each waiting jail: it holds about a tenth of them.
const DESCRIPTORS_EACH: u64 = 64;
/// How many jails wait if no client has requested one yet, or not for a while.
const IDLE_SIZE: usize = 4;
/// The length of that while.
const IDLE_AFTER: Duration = Duration::from_secs(300);
/// This many are made as fast as possible.
const IMMEDIATE: usize = 2;
/// How long until a taken jail is replaced, while a few are left: the client that took it is about
/// to use the processor.
const FILL_DELAY: Duration = Duration::from_millis(10);
/// The delay of the retry after the first failure, and the longest delay.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The waiting jails.
#[derive(Debug)]
pub(super) struct Pool {
    size: usize,
    /// When a client last requested a sandbox, if that is recent. Otherwise a few are enough.
    requested_at: Option<BootTime>,
    ready: VecDeque<Key>,
    /// The jail that is being made.
    filling: Option<Key>,
    /// The number of failures since the last success.
    failures: u32,
}

impl Pool {
    /// A pool of this size, or less if the descriptor limit is low: requested sandboxes come first.
    pub(super) fn new(size: usize, descriptors: u64) -> Self {
        let most = usize::try_from(descriptors / DESCRIPTORS_EACH).unwrap_or(usize::MAX);
        let size = size.min(most);
        Self { size, requested_at: None, ready: VecDeque::new(), filling: None, failures: 0 }
    }

    /// How many jails wait.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether one is being made.
    pub(super) const fn is_filling(&self) -> bool {
        self.filling.is_some()
    }

    /// Takes the jail that has waited longest.
    fn take(&mut self, now: BootTime) -> Option<Key> {
        self.requested_at = Some(now);
        self.ready.pop_front()
    }

    /// When a few are enough again, unless a client requests a sandbox before.
    fn shrinks_at(&self) -> Option<BootTime> {
        self.requested_at.map(|asked_at| asked_at + IDLE_AFTER)
    }

    /// From now on a few are enough. Returns the surplus jails.
    fn shrink(&mut self) -> Vec<Key> {
        self.requested_at = None;
        let surplus = self.ready.len().saturating_sub(self.target_size());
        self.ready.drain(..surplus).collect()
    }

    fn target_size(&self) -> usize {
        if self.requested_at.is_some() { self.size } else { self.size.min(IDLE_SIZE) }
    }

    fn is_full(&self) -> bool {
        self.ready.len() >= self.target_size()
    }

    /// How long until the next is made; `None` if none is needed.
    fn next(&self) -> Option<Duration> {
        if self.filling.is_some() || self.is_full() {
            return None;
        }
        Some(match self.failures {
            0 if self.ready.len() < IMMEDIATE => Duration::ZERO,
            0 => FILL_DELAY,
            failures => RETRY_DELAY.saturating_mul(1 << failures.min(10)).min(MAX_RETRY_DELAY),
        })
    }

    /// Records that a jail is ready; false when it does not belong to the pool.
    fn joined(&mut self, key: Key) -> bool {
        let ours = self.filling == Some(key);
        if ours {
            self.filling = None;
            self.failures = 0;
            self.ready.push_back(key);
        }
        ours
    }

    /// Removes a jail that has ended.
    pub(super) fn forget(&mut self, key: Key) {
        self.ready.retain(|ready| *ready != key);
        if self.filling == Some(key) {
            self.filling = None;
            self.failures += 1;
        }
    }
}

impl Keeper {
    /// Schedules the filling of the pool.
    pub(super) fn refill_later(&mut self) {
        if let Some(delay) = self.pool.next().filter(|_| !self.draining && !self.ending) {
            self.context.timers.after(delay, Timer::Pool);
        }
    }

    /// Takes a waiting jail for a client's request.
    pub(super) fn take_from_pool(&mut self) -> Option<Key> {
        let now = BootTime::now();
        if self.pool.requested_at.is_none() {
            self.context.timers.at(now + IDLE_AFTER, Timer::PoolRest);
        }
        self.pool.take(now)
    }

    /// Ends most of the waiting jails if no client has requested one for long.
    pub(super) fn shrink_pool(&mut self) {
        match self.pool.shrinks_at() {
            Some(later) if later > BootTime::now() => {
                self.context.timers.at(later, Timer::PoolRest);
            }
            Some(_) => {
                for key in self.pool.shrink() {
                    self.with(key, |sandbox, context| sandbox.destroy(context, None));
                }
            }
            None => {}
        }
    }

    /// Makes a jail for the pool if one is missing. Requested sandboxes come first.
    pub(super) fn fill_pool(&mut self) {
        if self.pool.next().is_none() || self.draining || self.ending {
            return;
        }
        if self.sandboxes.values().any(Sandbox::is_awaited) {
            self.context.timers.after(FILL_DELAY, Timer::Pool);
            return;
        }
        let key = self.next_key();
        let request = CreateRequest {
            id: None,
            spec: SandboxSpec::default(),
            layers: None,
            subordinate: false,
            lock: None,
            container: None,
        };
        match Sandbox::create(&mut self.context, key, request) {
            Ok(sandbox) => {
                self.sandboxes.insert(key, sandbox);
                self.pool.filling = Some(key);
            }
            Err(failure) => {
                self.context.log(&format!("the pool cannot be filled: {failure:?}"));
                self.pool.failures += 1;
                self.refill_later();
            }
        }
    }

    /// Adds the jails that have become ready.
    pub(super) fn add_joined(&mut self) {
        for key in std::mem::take(&mut self.context.joined) {
            if self.pool.joined(key) {
                self.refill_later();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_made_after_the_other_until_there_are_enough() {
        let mut pool = Pool::new(2, u64::MAX);
        assert_eq!(pool.next(), Some(Duration::ZERO));
        pool.filling = Some(Key(1));
        assert_eq!(pool.next(), None);
        assert!(!pool.joined(Key(7)));
        assert!(pool.joined(Key(1)));
        assert_eq!((pool.ready(), pool.next()), (1, Some(Duration::ZERO)));
        pool.filling = Some(Key(2));
        assert!(pool.joined(Key(2)));
        assert_eq!(pool.next(), None);
        assert_eq!(pool.take(BootTime::now()), Some(Key(1)));
        pool.forget(Key(2));
        assert_eq!(pool.take(BootTime::now()), None);
    }

    #[test]
    fn there_are_many_once_somebody_has_asked_for_one() {
        let mut pool = Pool::new(IDLE_SIZE + 2, u64::MAX);
        let fill = |pool: &mut Pool| {
            while pool.next().is_some() {
                let key = Key(pool.ready() as u64);
                pool.filling = Some(key);
                assert!(pool.joined(key));
            }
            pool.ready()
        };
        assert_eq!(fill(&mut pool), IDLE_SIZE);
        assert!(pool.take(BootTime::now()).is_some());
        assert_eq!(fill(&mut pool), IDLE_SIZE + 2);
    }

    #[test]
    fn most_go_when_nobody_asks_for_long() {
        let mut pool = Pool::new(IDLE_SIZE + 3, u64::MAX);
        let requested_at = BootTime::now();
        assert_eq!(pool.shrinks_at(), None);
        pool.ready = (1..=7).map(Key).collect();
        assert_eq!(pool.take(requested_at), Some(Key(1)));
        assert_eq!(pool.shrinks_at(), Some(requested_at + IDLE_AFTER));
        let later = requested_at + Duration::from_secs(1);
        assert_eq!(pool.take(later), Some(Key(2)));
        assert_eq!(pool.shrinks_at(), Some(later + IDLE_AFTER));
        assert_eq!(pool.shrink(), vec![Key(3)]);
        assert_eq!((pool.ready(), pool.next()), (IDLE_SIZE, None));
        assert_eq!(pool.shrinks_at(), None);
    }

    #[test]
    fn few_descriptors_are_left_to_those_that_are_asked_for() {
        assert_eq!(Pool::new(64, 1024).size, 16);
        assert_eq!(Pool::new(64, 20_000).size, 64);
    }

    #[test]
    fn what_fails_is_tried_again_later_and_later() {
        let mut pool = Pool::new(1, u64::MAX);
        let mut last = Duration::ZERO;
        for _ in 0..10 {
            pool.filling = Some(Key(1));
            pool.forget(Key(1));
            let next = pool.next().unwrap();
            assert!(next >= RETRY_DELAY && next >= last && next <= MAX_RETRY_DELAY);
            last = next;
        }
        assert_eq!(last, MAX_RETRY_DELAY);
        pool.filling = Some(Key(1));
        pool.joined(Key(1));
        pool.take(BootTime::now());
        assert_eq!(pool.next(), Some(Duration::ZERO));
    }
}
