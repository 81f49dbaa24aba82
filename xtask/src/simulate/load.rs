//! The model of the load: how often each server asks the database for something, times what that costs.

use super::costs::Costs;

/// How often a server renews its lease, in seconds (`HEARTBEAT` in `crates/host/src/cluster.rs`).
const HEARTBEAT_S: f64 = 5.0;
/// How often it looks for silent servers, which is one read (`crates/service/src/hosts.rs`).
const GIVE_UP_S: f64 = 5.0;
/// How often it looks into the queue without being woken (`LONGEST_WAIT` in `crates/durable/src/engine/supervisor.rs`).
const POLL_S: f64 = 60.0;
/// How often the watcher of a sandbox reads its row (`watch_interval` in `crates/service/src/options.rs`).
const WATCH_S: f64 = 10.0;
/// How often the reaper reads the row of each sandbox (`INTERVAL` in `crates/service/src/reaper.rs`).
const REAP_S: f64 = 60.0;
/// How many rows an operation reads besides its workflow: its caller's key, its sandbox twice, its host.
const READS_OF_OPERATION: f64 = 4.0;
/// A workflow belongs to its server, so its start and its end notify no other one. Only the free place that a queued one
/// leaves does, as long as a workflow of another server waits: here it always does (`crates/durable/src/postgres/commit.rs`).
const NOTIFICATIONS_OF_QUEUED: f64 = 1.0;
/// How often its own server looks into the queue for it: when it enters the queue, and when it ends.
const LOOKS_OF_QUEUED: f64 = 2.0;
/// The connections of a server: readers, the one that writes, the one that listens (`crates/durable/src/postgres`).
const CONNECTIONS: u32 = 8 + 2;
/// Above this part of its processors, a database answers late.
const USABLE: f64 = 0.7;
/// The most servers that are tried.
const MOST: u32 = 100_000;

/// What the servers do.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The processors of the database.
    pub(crate) processors: u32,
    /// How many sandboxes each server holds.
    pub(crate) sandboxes: u32,
    /// How many operations each of them has in a minute.
    pub(crate) operations_per_minute: u32,
    /// The share of operations that go through the queue, up to one.
    pub(crate) queued_share: f64,
}

/// What all servers together ask of the database in a second.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Load {
    pub(crate) leases: f64,
    pub(crate) polls: f64,
    pub(crate) reads: f64,
    pub(crate) operations: f64,
    /// Commits that notify.
    pub(crate) notifications: f64,
    /// Notifications that are delivered: each of them to each server.
    pub(crate) deliveries: f64,
    pub(crate) connections: u32,
    /// How many processors of the database all that uses.
    pub(crate) processors: f64,
}

impl Load {
    /// The load of so many servers.
    pub(crate) fn of(servers: u32, plan: &Plan, costs: &Costs) -> Self {
        let count = f64::from(servers);
        let sandboxes = count * f64::from(plan.sandboxes);
        let operations = sandboxes * f64::from(plan.operations_per_minute) / 60.0;
        let leases = count / HEARTBEAT_S;
        let queued = operations * plan.queued_share;
        let notifications = queued * NOTIFICATIONS_OF_QUEUED;
        let deliveries = notifications * count;
        // Each server that is notified looks into the queue.
        let polls = count / POLL_S + queued * LOOKS_OF_QUEUED + deliveries;
        let reads = count / GIVE_UP_S
            + sandboxes / WATCH_S
            + sandboxes / REAP_S
            + operations * READS_OF_OPERATION;
        let processors = leases * costs.lease
            + polls * costs.queue
            + reads * costs.read
            + operations * costs.workflow
            + deliveries * costs.notification;
        Self {
            leases,
            polls,
            reads,
            operations,
            notifications,
            deliveries,
            connections: servers.saturating_mul(CONNECTIONS),
            processors,
        }
    }

    /// The used part of the database, by whatever limits it first: one if it is full.
    pub(crate) fn part(&self, plan: &Plan, costs: &Costs) -> f64 {
        self.processor_part(plan).max(self.commit_part(costs))
    }

    fn processor_part(&self, plan: &Plan) -> f64 {
        self.processors / (f64::from(plan.processors) * USABLE)
    }

    /// PostgreSQL makes commits that notify one after the other, each with its way to the disk.
    fn commit_part(&self, costs: &Costs) -> f64 {
        self.notifications / costs.commits_in_turn
    }
}

/// The fewest servers that fill the database, and what it has not enough of.
pub(crate) fn full_at(plan: &Plan, costs: &Costs) -> Option<(u32, &'static str)> {
    let is_full = |servers| Load::of(servers, plan, costs).part(plan, costs) >= 1.0;
    if !is_full(MOST) {
        return None;
    }
    // The load grows with each server.
    let (mut not_full, mut full) = (0, MOST);
    while full - not_full > 1 {
        let middle = not_full.midpoint(full);
        if is_full(middle) {
            full = middle;
        } else {
            not_full = middle;
        }
    }
    let load = Load::of(full, plan, costs);
    let limit = match load.processor_part(plan) >= load.commit_part(costs) {
        true => "its processors are busy",
        false => "commits that notify are made one after the other",
    };
    Some((full, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        lease: 1e-3,
        queue: 1e-3,
        read: 1e-4,
        workflow: 2e-3,
        notification: 1e-5,
        commits_in_turn: 1000.0,
    };

    fn plan(sandboxes: u32, operations_per_minute: u32, queued_share: f64) -> Plan {
        Plan { processors: 4, sandboxes, operations_per_minute, queued_share }
    }

    fn assert_near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9 * expected.max(1.0), "{value}, not {expected}");
    }

    #[test]
    fn an_idle_server_renews_its_lease_and_looks_into_the_queue() {
        let load = Load::of(10, &plan(0, 6, 1.0), &COSTS);
        assert_near(load.leases, 2.0);
        assert_near(load.polls, 10.0 / 60.0);
        assert_near(load.reads, 2.0);
        assert_near(load.deliveries, 0.0);
        assert_near(load.processors, 2.0 * 1e-3 + 1e-3 / 6.0 + 2.0 * 1e-4);
        assert_eq!(load.connections, 100);
    }

    #[test]
    fn the_load_grows_with_the_servers_and_that_of_a_full_queue_with_their_square() {
        let of = |servers| Load::of(servers, &plan(10, 6, 0.0), &COSTS);
        assert_near(of(100).leases, 10.0 * of(10).leases);
        assert_near(of(100).reads, 10.0 * of(10).reads);
        assert_near(of(100).polls, 10.0 * of(10).polls);
        // Nothing is queued, so nobody is notified.
        assert_near(of(100).deliveries, 0.0);
        let queued = |servers| Load::of(servers, &plan(10, 6, 0.5), &COSTS);
        assert_near(queued(100).deliveries, 100.0 * queued(10).deliveries);
        assert_near(queued(100).polls - of(100).polls, 50.0 * (2.0 + 100.0));
    }

    #[test]
    fn the_database_is_full_where_the_load_reaches_it() {
        for plan in [plan(50, 6, 0.0), plan(1, 1, 0.0), plan(20, 6, 0.5)] {
            let (servers, _) = full_at(&plan, &COSTS).unwrap();
            let part = |servers| Load::of(servers, &plan, &COSTS).part(&plan, &COSTS);
            assert!(part(servers) >= 1.0 && part(servers - 1) < 1.0, "{servers}");
        }
    }

    #[test]
    fn what_fills_it_is_named() {
        // Cheap work, so that commits in turn are the limit; then expensive looks into the queue.
        let cheap = Costs { workflow: 1e-5, notification: 1e-9, read: 1e-6, queue: 1e-9, ..COSTS };
        let (servers, limit) = full_at(&plan(60, 10, 1.0), &cheap).unwrap();
        assert_eq!((servers, limit), (100, "commits that notify are made one after the other"));
        let (_, limit) = full_at(&plan(60, 10, 1.0), &Costs { queue: 1e-3, ..cheap }).unwrap();
        assert_eq!(limit, "its processors are busy");
        let free = Costs {
            lease: 0.0,
            queue: 0.0,
            read: 0.0,
            workflow: 0.0,
            notification: 0.0,
            commits_in_turn: f64::INFINITY,
        };
        assert_eq!(full_at(&plan(1, 1, 1.0), &free), None);
    }
}
