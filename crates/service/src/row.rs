//! What the row of a sandbox means: how its state changes, and how it is shown.

use std::collections::BTreeMap;

use stockade_api::{Network, Reached, Sandbox};
use stockade_core::event::Reason;
use stockade_core::{Isolation, State};
use stockade_durable::Statement;

use crate::clock::{now_ms, timestamp};
use crate::store::json;
use crate::store::sandboxes::{self, SandboxRow};

impl SandboxRow {
    /// Gives the row another state, here and by a statement that fails when somebody else changed
    /// it meanwhile.
    pub(crate) fn change(&mut self, state: State, reason: Option<String>) -> Statement {
        let seen = self.generation;
        let now = now_ms();
        self.state = state;
        self.reason = reason;
        self.generation += 1;
        self.idle_paused &= state == State::Paused;
        self.last_used_at = now;
        let mut request = None;
        if state.is_terminal() {
            self.terminated_at = Some(now);
            self.files = None;
            if !self.request.environment.is_empty() {
                // Nothing is started with it any more.
                self.request.environment.clear();
                request = Some(json(&self.request));
            }
        }
        sandboxes::update(self, seen, request)
    }

    /// Gives it another network, as [`Self::change`] gives it another state.
    pub(crate) fn change_network(&mut self, network: Network) -> Statement {
        let seen = self.generation;
        self.generation += 1;
        self.request.network = Some(network);
        sandboxes::update_request(self, seen)
    }

    /// Pauses the row because nobody uses the sandbox.
    pub(crate) fn change_to_idle(&mut self) -> Statement {
        self.idle_paused = true;
        self.change(State::Paused, Some(Reason::Idle.as_str().to_owned()))
    }

    /// Whether it runs, or will when it is used.
    pub(crate) fn is_usable(&self) -> bool {
        self.state == State::Running || self.state == State::Paused && self.idle_paused
    }

    /// How it is shown.
    pub(crate) fn to_sandbox(&self, isolation: Option<Isolation>) -> Sandbox {
        let request = &self.request;
        Sandbox {
            id: self.id.clone(),
            owner_id: self.owner.clone(),
            state: self.state,
            reason: self.reason.clone(),
            image: self.image.clone(),
            visibility: self.visibility.clone(),
            requested_runtime: self.requested_runtime.clone(),
            runtime: self.runtime.clone(),
            execution_id: self.execution_id.clone(),
            workflow_id: self.workflow_id.clone(),
            workspace_id: self.workspace_id.clone(),
            workspace: request.workspace.clone(),
            metadata: request.metadata.clone(),
            access_rules: request.access_rules.clone(),
            default_uid: request.default_uid,
            users: request.users.clone(),
            limits: request.limits,
            proxy: request.proxy.clone(),
            network: request.network.as_ref().and_then(|it| it.policy().ok()).map(Reached::by),
            created_at: timestamp(self.created_at),
            expires_at: self.expires_at.map(timestamp),
            terminated_at: self.terminated_at.map(timestamp),
            isolation,
            metrics: None,
        }
    }

    /// The statement that records that it was used now.
    pub(crate) fn touch(&self) -> Statement {
        sandboxes::touch(&self.id)
    }

    /// The labels that its runtime keeps: its metadata, its owner, and the service that it is of.
    pub(crate) fn labels(&self, service: &str) -> BTreeMap<String, String> {
        let mut labels = self.request.metadata.clone();
        labels.insert(OWNER_LABEL.to_owned(), self.owner.as_str().to_owned());
        labels.insert(SERVICE_LABEL.to_owned(), service.to_owned());
        labels
    }
}

/// The label with the owner of a sandbox.
const OWNER_LABEL: &str = "stockade.dev/owner";

/// The label with the service whose database knows a sandbox: a runtime may hold those of several.
pub(crate) const SERVICE_LABEL: &str = "stockade.dev/service";
