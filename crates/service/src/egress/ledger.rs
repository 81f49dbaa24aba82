//! The state of each sandbox with a network: its identity, whether it is served, and its reported
//! traffic. It is in memory, and bounded for each sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use stockade_api::{NetworkStatus, Result, SecretStatus};
use stockade_core::event::Payload;
use stockade_core::network::binding::{Binding, CredentialSlot};
use stockade_core::network::{DeniedConnection, DeniedConnections, Policy, Upstream};
use stockade_core::{ExecutionId, OwnerId, SandboxId};
use stockade_egress_control::{Credential, Event, Installed, Outcome, Source, Values};
use stockade_runtime::Runtime;

use super::trust::Trusted;
use crate::first_events::FirstEvent;

/// The reason for a sandbox that was not served yet.
const NOT_CONNECTED: &str = "it is not connected to the egress process yet";

/// Has the values of stored secrets of sandboxes.
#[async_trait]
pub(crate) trait StoredValues: Send + Sync + std::fmt::Debug {
    /// Those of one sandbox.
    ///
    /// # Errors
    /// Why one of them cannot be used; there are none then.
    async fn fetch(&self, owner: &OwnerId, sandbox: &SandboxId) -> Result<Values>;
}

/// A sandbox with a network.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) id: SandboxId,
    /// Distinguishes it from earlier sandboxes with its id.
    pub(crate) unique_name: String,
    pub(crate) owner: OwnerId,
    pub(crate) execution: Option<ExecutionId>,
    pub(crate) policy: Policy,
    /// The bindings of its secrets; never a value.
    pub(crate) bindings: Vec<Binding>,
    /// The proxy through which its hosts are reached.
    pub(crate) upstream: Option<Upstream>,
    /// The runtime that has the listeners in its network.
    pub(crate) runtime: Arc<dyn Runtime>,
}

/// Whether a sandbox is served.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ServeState {
    Served,
    /// It is not served, for this reason.
    Closed(String),
    /// It has left; late events still count.
    Left,
}

#[derive(Debug)]
struct Entry {
    member: Member,
    state: ServeState,
    /// The names of the secrets without a value, while it is served.
    missing: Vec<String>,
    trusted: Trusted,
    denied: DeniedConnections,
    connections: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

/// The state of all of them.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: Mutex<BTreeMap<SandboxId, Entry>>,
    /// Where the values of stored secrets come from.
    source: OnceLock<Weak<dyn StoredValues>>,
}

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<SandboxId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes values of stored secrets from here.
    pub(super) fn fetch_from(&self, source: Weak<dyn StoredValues>) {
        // It is set once, when the service is made.
        let _ = self.source.set(source);
    }

    /// The values of a sandbox's stored secrets. Without the vault there are none: requests that need
    /// one are refused, and the status of the sandbox says so.
    pub(super) async fn stored_values(&self, member: &Member) -> Values {
        let source = self.source.get().and_then(Weak::upgrade);
        match source {
            Some(source) => source.fetch(&member.owner, &member.id).await.unwrap_or_default(),
            None => Values::default(),
        }
    }

    /// Adds a sandbox that is to be served.
    pub(super) fn enter(&self, member: &Member) {
        let mut entries = self.entries();
        let state = ServeState::Closed(NOT_CONNECTED.to_owned());
        if let Some(entry) = entries.get_mut(&member.id) {
            (entry.member, entry.state) = (member.clone(), state);
            // Its runtime may have created it anew.
            entry.trusted.forget_delivery();
            return;
        }
        let entry = Entry {
            member: member.clone(),
            state,
            missing: Vec::new(),
            trusted: Trusted::default(),
            denied: DeniedConnections::default(),
            connections: 0,
            sent_bytes: 0,
            received_bytes: 0,
        };
        entries.insert(member.id.clone(), entry);
    }

    /// Replaces its policy and its bindings, for the running process and those after it. Returns
    /// whether the process must hear of bindings.
    pub(super) fn change(&self, id: &SandboxId, policy: Policy, bindings: Vec<Binding>) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(id) else { return false };
        let has_bindings = !(entry.member.bindings.is_empty() && bindings.is_empty())
            || policy.has_request_rules()
            || entry.member.policy.has_request_rules();
        (entry.member.policy, entry.member.bindings) = (policy, bindings);
        has_bindings
    }

    /// Marks it as served, unless it has left. `installed` is the state of its secrets, if the
    /// process was told of them.
    pub(super) fn open(&self, id: &SandboxId, installed: Option<Installed>) {
        if let Some(entry) = self.entries().get_mut(id)
            && let Some(Installed { authorities, missing }) = installed
        {
            entry.missing = missing;
            entry.trusted.set(authorities);
        }
        self.set_state(id, ServeState::Served);
    }

    /// Writes the certificates that its programs must trust into a sandbox, unless they are there, or
    /// are the system's.
    pub(super) async fn deliver(&self, id: &SandboxId, deadline: Duration) -> Result<()> {
        let found = {
            let entries = self.entries();
            let entry = entries.get(id).filter(|entry| entry.state != ServeState::Left);
            let entry = entry.filter(|entry| entry.trusted.is_set());
            entry.map(|entry| (entry.trusted.clone(), Arc::clone(&entry.member.runtime)))
        };
        match found {
            Some((trusted, runtime)) => trusted.deliver(&*runtime, id, deadline).await,
            None => Ok(()),
        }
    }

    /// Marks it as not served, for this reason.
    pub(super) fn close(&self, id: &SandboxId, reason: &str) {
        self.set_state(id, ServeState::Closed(reason.to_owned()));
    }

    fn set_state(&self, id: &SandboxId, state: ServeState) {
        if let Some(entry) = self.entries().get_mut(id)
            && entry.state != ServeState::Left
        {
            entry.state = state;
        }
    }

    /// Marks all sandboxes as not served, for this reason.
    pub(super) fn close_all(&self, reason: &str) {
        for entry in self.entries().values_mut() {
            if entry.state != ServeState::Left {
                entry.state = ServeState::Closed(reason.to_owned());
            }
        }
    }

    /// Removes a sandbox. Returns whether it was a member.
    pub(super) fn leave(&self, id: &SandboxId) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(id) else { return false };
        std::mem::replace(&mut entry.state, ServeState::Left) != ServeState::Left
    }

    pub(super) fn is_served(&self, id: &SandboxId) -> bool {
        self.entries().get(id).is_some_and(|entry| entry.state == ServeState::Served)
    }

    /// The sandboxes that are to be served.
    pub(super) fn members(&self) -> Vec<Member> {
        let entries = self.entries();
        let present = entries.values().filter(|entry| entry.state != ServeState::Left);
        present.map(|entry| entry.member.clone()).collect()
    }

    /// Whether a sandbox is to be served.
    pub(super) fn is_member(&self, id: &SandboxId) -> bool {
        self.entries().get(id).is_some_and(|entry| entry.state != ServeState::Left)
    }

    /// Removes those that have left and are not in `live`.
    pub(super) fn retain(&self, live: &[SandboxId]) {
        let live: BTreeSet<_> = live.iter().collect();
        self.entries().retain(|id, entry| entry.state != ServeState::Left || live.contains(id));
    }

    /// Counts an event. Returns it if it is to be recorded, and happened for the first time.
    pub(super) fn record_event(&self, event: &Event) -> Option<FirstEvent> {
        let mut entries = self.entries();
        let entry = entries.get_mut(&event.sandbox_id)?;
        // The sandboxes of lost events are unknown.
        entry.denied.add_lost(event.lost);
        match &event.outcome {
            Outcome::Opened { .. } => entry.connections = entry.connections.saturating_add(1),
            Outcome::Closed { sent_bytes, received_bytes, .. } => {
                entry.sent_bytes = entry.sent_bytes.saturating_add(*sent_bytes);
                entry.received_bytes = entry.received_bytes.saturating_add(*received_bytes);
            }
            Outcome::Refused { .. } | Outcome::Misdirected { .. } => {}
            // Only runs learn a policy.
            Outcome::Requested { .. } | Outcome::Unread => {}
        }
        let (payload, is_first) = if let Some(denied) = event.denied_connection() {
            (Payload::NetworkRefused(denied.clone()), entry.denied.add(denied))
        } else {
            let own = event.misdirection()?;
            (Payload::SecretMisdirected(own.clone()), entry.denied.add_misdirection(own))
        };
        is_first.then(|| FirstEvent {
            sandbox: event.sandbox_id.clone(),
            unique_name: entry.member.unique_name.clone(),
            owner: entry.member.owner.clone(),
            execution: entry.member.execution.clone(),
            at_ms: event.at.as_millisecond(),
            payload,
        })
    }

    /// The network status of a sandbox, together with what was recorded before.
    pub(super) fn status(
        &self,
        id: &SandboxId,
        policy: Policy,
        bindings: &[Binding],
        before: Vec<DeniedConnection>,
    ) -> NetworkStatus {
        let entries = self.entries();
        let entry = entries.get(id);
        let mut all = DeniedConnections::default();
        for refused in before {
            all.add(DeniedConnection { times: 0, ..refused });
        }
        let mut status = NetworkStatus::new(policy);
        status.closed = Some(NOT_CONNECTED.to_owned());
        if let Some(entry) = entry {
            for refused in entry.denied.connections() {
                all.add(refused.clone());
            }
            all.add_lost(entry.denied.lost());
            status.connections = entry.connections;
            status.sent_bytes = entry.sent_bytes;
            status.received_bytes = entry.received_bytes;
            status.closed = match &entry.state {
                ServeState::Closed(reason) => Some(reason.clone()),
                ServeState::Served | ServeState::Left => None,
            };
        }
        // A connection that was denied before this process started was denied at least once.
        let once = |refused: &DeniedConnection| DeniedConnection {
            times: refused.times.max(1),
            ..refused.clone()
        };
        status.refused = all.connections().iter().map(once).collect();
        status.lost = all.lost();
        // Injected credentials have no placeholder, and a list of their own.
        let is_secret = |own: &&Binding| matches!(own.place, CredentialSlot::Placeholder(_));
        let secrets = bindings.iter().filter(is_secret);
        status.secrets = secrets.map(|binding| secret_status(entry, binding)).collect();
        let misdirected = entry.map(|entry| entry.denied.misdirections().to_vec());
        status.misdirected = misdirected.unwrap_or_default();
        status
    }
}

/// The state of a secret. Without a process that serves the sandbox, nobody has its value.
fn secret_status(entry: Option<&Entry>, binding: &Binding) -> SecretStatus {
    let served = entry.filter(|entry| entry.state == ServeState::Served);
    let has_value = served.is_some_and(|entry| {
        entry.member.bindings.contains(binding) && !entry.missing.contains(&binding.credential)
    });
    let hosts = binding.hosts.iter().flat_map(|host| {
        binding.ports.iter().map(move |port| match port {
            443 => host.to_string(),
            port => format!("{host}:{port}"),
        })
    });
    SecretStatus {
        name: binding.credential.clone(),
        hosts: hosts.collect(),
        placeholder: match &binding.place {
            CredentialSlot::Placeholder(text) => text.clone(),
            CredentialSlot::Header { .. } | CredentialSlot::Query { .. } => String::new(),
        },
        missing: !has_value,
    }
}

/// A process that is started again gets the current policies and bindings, and has no values.
impl Source for Ledger {
    fn sandboxes(&self) -> Vec<SandboxId> {
        self.members().into_iter().map(|member| member.id).collect()
    }

    fn policy(&self, sandbox: &SandboxId) -> Option<Policy> {
        let entries = self.entries();
        let entry = entries.get(sandbox).filter(|entry| entry.state != ServeState::Left);
        entry.map(|entry| entry.member.policy.clone())
    }

    fn upstream(&self, sandbox: &SandboxId) -> Option<Upstream> {
        self.entries().get(sandbox).and_then(|entry| entry.member.upstream.clone())
    }

    fn credentials(&self, sandbox: &SandboxId) -> Result<Vec<Credential>> {
        let entries = self.entries();
        let bindings = entries.get(sandbox).map(|entry| entry.member.bindings.iter().cloned());
        Ok(bindings.into_iter().flatten().map(Credential::without_value).collect())
    }
}
