//! What is known of each sandbox that has a way out: who it is, whether it is served, and what was
//! told of its traffic. It is in memory, and bounded for each sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stockade_api::Reached;
use stockade_core::network::{Policy, Refusals, Refused};
use stockade_core::{ExecutionId, OwnerId, SandboxId};
use stockade_egress_control::{Event, Outcome, Source};
use stockade_runtime::Runtime;

use super::record::First;

/// Why one is closed that nobody has come to yet.
const NOT_YET: &str = "it is not connected to the egress process yet";

/// A sandbox that has a way out.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) id: SandboxId,
    pub(crate) owner: OwnerId,
    pub(crate) execution: Option<ExecutionId>,
    pub(crate) policy: Policy,
    /// Who has the listeners in its network.
    pub(crate) runtime: Arc<dyn Runtime>,
}

/// Whether a sandbox is served.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Served,
    /// It is not, for this reason.
    Closed(String),
    /// It has left: what comes late is counted still.
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

/// What is known of all of them.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<BTreeMap<SandboxId, Entry>>);

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<SandboxId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a sandbox that is to be served.
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

    /// From now on it is served, unless it has left.
    pub(super) fn open(&self, id: &SandboxId) {
        self.stand(id, Standing::Served);
    }

    /// From now on it is not, for this reason.
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

    /// No sandbox is served any more, for this reason.
    pub(super) fn close_all(&self, reason: &str) {
        for entry in self.entries().values_mut() {
            if entry.standing != Standing::Left {
                entry.standing = Standing::Closed(reason.to_owned());
            }
        }
    }

    /// Lets a sandbox go. Whether it was one of them.
    pub(super) fn leave(&self, id: &SandboxId) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(id) else { return false };
        std::mem::replace(&mut entry.standing, Standing::Left) != Standing::Left
    }

    pub(super) fn is_served(&self, id: &SandboxId) -> bool {
        self.entries().get(id).is_some_and(|entry| entry.standing == Standing::Served)
    }

    /// Those that are to be served.
    pub(super) fn members(&self) -> Vec<Member> {
        let entries = self.entries();
        let present = entries.values().filter(|entry| entry.standing != Standing::Left);
        present.map(|entry| entry.member.clone()).collect()
    }

    /// Whether a sandbox is to be served.
    pub(super) fn is_member(&self, id: &SandboxId) -> bool {
        self.entries().get(id).is_some_and(|entry| entry.standing != Standing::Left)
    }

    /// Forgets those that have left and are not among these.
    pub(super) fn keep(&self, live: &[SandboxId]) {
        let live: BTreeSet<_> = live.iter().collect();
        self.entries().retain(|id, entry| entry.standing != Standing::Left || live.contains(id));
    }

    /// Counts what an event tells. What it tells for the first time, where that is a refusal.
    pub(super) fn hear(&self, event: &Event) -> Option<First> {
        let mut entries = self.entries();
        let entry = entries.get_mut(&event.sandbox_id)?;
        // Whose they were that are missing is not known.
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

    /// What is known of one, with what was recorded before.
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
        // What was refused before this process began was refused once at least.
        let once = |refused: &Refused| Refused { times: refused.times.max(1), ..refused.clone() };
        reached.refused = all.refused().iter().map(once).collect();
        reached.lost = all.lost();
        reached
    }
}

/// A process that is started again gets the policies that hold then.
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
