//! The model of placement: sandboxes come and end at random, and a server without sandboxes puts each new one on the
//! server with the fewest, as it has counted them a moment before.

use std::collections::VecDeque;

/// How many sandboxes are placed and not seen by the one that counts: those of the time that a creation takes.
const UNSEEN_SECONDS: f64 = 0.05;
/// How long a sandbox lives, in seconds.
const LIFE_SECONDS: f64 = 600.0;
/// How many lives long the simulation runs, until each server has what it keeps having.
const LIVES: u32 = 3;
/// The most placements, which are enough for a thousand servers.
const MOST_PLACEMENTS: usize = 60_000;
/// Where the sequence of choices starts: the result is always the same.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// How many sandboxes the fullest server has, as a multiple of the mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Placed {
    /// If the server with the fewest gets each new one.
    pub(crate) counted: f64,
    /// If any server gets it.
    pub(crate) random: f64,
}

impl Placed {
    /// Places sandboxes on so many servers, each of which holds so many on average.
    pub(crate) fn simulate(servers: u32, sandboxes: u32) -> Self {
        Self {
            counted: fullest(servers, sandboxes, true),
            random: fullest(servers, sandboxes, false),
        }
    }
}

fn fullest(servers: u32, sandboxes: u32, counts: bool) -> f64 {
    let servers = usize::try_from(servers).unwrap_or(1).max(1);
    let held = servers.saturating_mul(usize::try_from(sandboxes).unwrap_or(0));
    if held == 0 {
        return 1.0;
    }
    let mut random = Random(SEED);
    // All are there at the start, evenly; each placement ends another one.
    let mut alive: Vec<usize> = (0..held).map(|number| number % servers).collect();
    let mut loads = Loads::new(servers);
    for server in &alive {
        loads.change(*server, true);
    }
    let unseen = whole(as_float(held) / LIFE_SECONDS * UNSEEN_SECONDS);
    let mut waiting: VecDeque<usize> = VecDeque::new();
    let placements = held.saturating_mul(LIVES as usize).min(MOST_PLACEMENTS);
    for _ in 0..placements {
        let place = random.below(held);
        loads.change(alive[place], false);
        let server = match counts {
            true => loads.emptiest(),
            false => random.below(servers),
        };
        alive[place] = server;
        if counts {
            // It counts for the next ones only when it is recorded.
            waiting.push_back(server);
            while waiting.len() > unseen {
                if let Some(seen) = waiting.pop_front() {
                    loads.change(seen, true);
                }
            }
        }
    }
    let mut held_by = vec![0_usize; servers];
    for server in alive {
        held_by[server] += 1;
    }
    let most = held_by.into_iter().max().unwrap_or_default();
    as_float(most) / as_float(held) * as_float(servers)
}

/// The recorded number of sandboxes of each server, sorted.
struct Loads {
    of: Vec<i64>,
    sorted: std::collections::BTreeSet<(i64, usize)>,
}

impl Loads {
    fn new(servers: usize) -> Self {
        Self { of: vec![0; servers], sorted: (0..servers).map(|server| (0, server)).collect() }
    }

    fn change(&mut self, server: usize, comes: bool) {
        let load = self.of[server];
        self.sorted.remove(&(load, server));
        self.of[server] = if comes { load + 1 } else { load - 1 };
        self.sorted.insert((self.of[server], server));
    }

    fn emptiest(&self) -> usize {
        self.sorted.first().map_or(0, |(_, server)| *server)
    }
}

/// A sequence of numbers that look random (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap_or(0) % limit
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
fn as_float(count: usize) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a small count, never negative"
)]
fn whole(count: f64) -> usize {
    count.round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_gets_all() {
        assert_eq!(Placed::simulate(1, 20), Placed { counted: 1.0, random: 1.0 });
        assert_eq!(Placed::simulate(5, 0), Placed { counted: 1.0, random: 1.0 });
    }

    #[test]
    fn counting_is_more_even_than_chance() {
        for servers in [10, 100] {
            let placed = Placed::simulate(servers, 20);
            assert!(placed.counted < 1.2, "{placed:?}");
            assert!(placed.random > placed.counted + 0.2, "{placed:?}");
        }
    }
}
