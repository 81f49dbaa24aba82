//! The state of each sandbox with a network: its identity, whether it is served, and its reported
//! traffic. It is in memory, and bounded for each sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stockade_api::Reached;
use stockade_core::network::{Policy, Refusals, Refused};
use stockade_core::{ExecutionId, OwnerId, SandboxId};
use stockade_egress_control::{Event, Outcome, Source};
use stockade_runtime::Runtime;

use super::record::First;

/// The reason for a sandbox that was not served yet.
const NOT_YET: &str = "it is not connected to the egress process yet";

/// A sandbox with a network.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) id: SandboxId,
    pub(crate) owner: OwnerId,
    pub(crate) execution: Option<ExecutionId>,
    pub(crate) policy: Policy,
    /// The runtime that has the listeners in its network.
    pub(crate) runtime: Arc<dyn Runtime>,
}

/// Whether a sandbox is served.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Served,
    /// It is not served, for this reason.
    Closed(String),
    /// It has left; late events still count.
    Left,
}

#[derive(Debug)]
struct Entry {
    member: Member,
    standing: Standing,
    refusals: Refusals,
    connections: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

/// The state of all of them.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<BTreeMap<SandboxId, Entry>>);

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<SandboxId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sandbox that is to be served.
    pub(super) fn enter(&self, member: &Member) {
        let mut entries = self.entries();
        let standing = Standing::Closed(NOT_YET.to_owned());
        if let Some(entry) = entries.get_mut(&member.id) {
            (entry.member, entry.standing) = (member.clone(), standing);
            return;
        }
        let entry = Entry {
            member: member.clone(),
            standing,
            refusals: Refusals::default(),
            connections: 0,
            sent_bytes: 0,
            received_bytes: 0,
        };
        entries.insert(member.id.clone(), entry);
    }

    /// Replaces its policy, for the running process and those after it.
    pub(super) fn change(&self, id: &SandboxId, policy: Policy) {
        if let Some(entry) = self.entries().get_mut(id) {
            entry.member.policy = policy;
        }
    }

    /// Marks it as served, unless it has left.
    pub(super) fn open(&self, id: &SandboxId) {
        self.stand(id, Standing::Served);
    }

    /// Marks it as not served, for this reason.
    pub(super) fn close(&self, id: &SandboxId, reason: &str) {
        self.stand(id, Standing::Closed(reason.to_owned()));
    }

    fn stand(&self, id: &SandboxId, standing: Standing) {
        if let Some(entry) = self.entries().get_mut(id)
            && entry.standing != Standing::Left
        {
            entry.standing = standing;
        }
    }

    /// Marks all sandboxes as not served, for this reason.
    pub(super) fn close_all(&self, reason: &str) {
        for entry in self.entries().values_mut() {
            if entry.standing != Standing::Left {
                entry.standing = Standing::Closed(reason.to_owned());
            }
        }
    }

    /// Removes a sandbox. Returns whether it was a member.
    pub(super) fn leave(&self, id: &SandboxId) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(id) else { return false };
        std::mem::replace(&mut entry.standing, Standing::Left) != Standing::Left
    }

    pub(super) fn is_served(&self, id: &SandboxId) -> bool {
        self.entries().get(id).is_some_and(|entry| entry.standing == Standing::Served)
    }

    /// The sandboxes that are to be served.
    pub(super) fn members(&self) -> Vec<Member> {
        let entries = self.entries();
        let present = entries.values().filter(|entry| entry.standing != Standing::Left);
        present.map(|entry| entry.member.clone()).collect()
    }

    /// Whether a sandbox is to be served.
    pub(super) fn is_member(&self, id: &SandboxId) -> bool {
        self.entries().get(id).is_some_and(|entry| entry.standing != Standing::Left)
    }

    /// Removes those that have left and are not in `live`.
    pub(super) fn keep(&self, live: &[SandboxId]) {
        let live: BTreeSet<_> = live.iter().collect();
        self.entries().retain(|id, entry| entry.standing != Standing::Left || live.contains(id));
    }

    /// Counts an event. Returns a denied connection that is reported for the first time.
    pub(super) fn hear(&self, event: &Event) -> Option<First> {
        let mut entries = self.entries();
        let entry = entries.get_mut(&event.sandbox_id)?;
        // The sandboxes of lost events are unknown.
        entry.refusals.lose(event.lost);
        match &event.outcome {
            Outcome::Opened { .. } => entry.connections = entry.connections.saturating_add(1),
            Outcome::Closed { sent_bytes, received_bytes, .. } => {
                entry.sent_bytes = entry.sent_bytes.saturating_add(*sent_bytes);
                entry.received_bytes = entry.received_bytes.saturating_add(*received_bytes);
            }
            Outcome::Refused { .. } => {}
        }
        let refused = event.refused()?;
        let is_first = entry.refusals.add(refused.clone());
        is_first.then(|| First {
            sandbox: event.sandbox_id.clone(),
            owner: entry.member.owner.clone(),
            execution: entry.member.execution.clone(),
            at_ms: event.at.as_millisecond(),
            refused,
        })
    }

    /// The network status of a sandbox, together with what was recorded before.
    pub(super) fn reached(&self, id: &SandboxId, policy: Policy, before: Vec<Refused>) -> Reached {
        let entries = self.entries();
        let entry = entries.get(id);
        let mut all = Refusals::default();
        for refused in before {
            all.add(Refused { times: 0, ..refused });
        }
        let mut reached = Reached::by(policy);
        reached.closed = Some(NOT_YET.to_owned());
        if let Some(entry) = entry {
            for refused in entry.refusals.refused() {
                all.add(refused.clone());
            }
            all.lose(entry.refusals.lost());
            reached.connections = entry.connections;
            reached.sent_bytes = entry.sent_bytes;
            reached.received_bytes = entry.received_bytes;
            reached.closed = match &entry.standing {
                Standing::Closed(reason) => Some(reason.clone()),
                Standing::Served | Standing::Left => None,
            };
        }
        // A connection that was denied before this process started was denied at least once.
        let once = |refused: &Refused| Refused { times: refused.times.max(1), ..refused.clone() };
        reached.refused = all.refused().iter().map(once).collect();
        reached.lost = all.lost();
        reached
    }
}

/// A process that is started again gets the current policies.
impl Source for Ledger {
    fn sandboxes(&self) -> Vec<SandboxId> {
        self.members().into_iter().map(|member| member.id).collect()
    }

    fn policy(&self, sandbox: &SandboxId) -> Option<Policy> {
        let entries = self.entries();
        let entry = entries.get(sandbox).filter(|entry| entry.standing != Standing::Left);
        entry.map(|entry| entry.member.policy.clone())
    }
}
