//! The meaning of a sandbox's row: how its state changes, and its public form.

use std::collections::BTreeMap;

use stockade_api::{Network, NetworkStatus, Publication, Sandbox};
use stockade_core::event::Reason;
use stockade_core::{Isolation, State};
use stockade_durable::Statement;

use crate::clock::{now_ms, timestamp};
use crate::store::json;
use crate::store::sandboxes::{self, SandboxRow};

impl SandboxRow {
    /// Changes the state of the row, here and by a statement that fails if another operation has
    /// changed it meanwhile.
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
            self.remove_at = None;
            if !self.request.environment.is_empty() {
                // No command is started with it any more.
                self.request.environment.clear();
                request = Some(json(&self.request));
            }
        }
        sandboxes::update(self, seen, request)
    }

    /// Changes its network, in the same way as [`Self::change`] changes its state.
    pub(crate) fn change_network(&mut self, network: Network) -> Statement {
        let seen = self.generation;
        self.generation += 1;
        self.request.network = Some(network);
        sandboxes::update_request(self, seen)
    }

    /// Pauses the row of an idle sandbox.
    pub(crate) fn change_to_idle(&mut self) -> Statement {
        self.idle_paused = true;
        self.change(State::Paused, Some(Reason::Idle.as_str().to_owned()))
    }

    /// Whether it is running, or will be when it is used.
    pub(crate) fn is_usable(&self) -> bool {
        self.state == State::Running || self.state == State::Paused && self.idle_paused
    }

    /// Its public form.
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
            network: request
                .network
                .as_ref()
                .and_then(|it| it.policy().ok())
                .map(NetworkStatus::new),
            published: request
                .publish
                .iter()
                .map(|port| Publication { port: *port, problem: None })
                .collect(),
            created_at: timestamp(self.created_at),
            expires_at: self.expires_at.map(timestamp),
            terminated_at: self.terminated_at.map(timestamp),
            on_expiry: self.on_expiry(),
            keep: request.keep,
            remove_at: self.removal().map(timestamp),
            bundle: self.bundle.clone(),
            isolation,
            metrics: None,
        }
    }

    /// The statement that records that it was used now.
    pub(crate) fn touch(&self) -> Statement {
        sandboxes::touch(&self.id)
    }

    /// The labels in its runtime: its metadata, its owner, and its service.
    pub(crate) fn labels(&self, service: &str) -> BTreeMap<String, String> {
        let mut labels = self.request.metadata.clone();
        labels.insert(OWNER_LABEL.to_owned(), self.owner.as_str().to_owned());
        labels.insert(SERVICE_LABEL.to_owned(), service.to_owned());
        labels
    }
}

/// The label with the owner of a sandbox.
const OWNER_LABEL: &str = "stockade.dev/owner";

/// The label with the service whose database has the sandbox: a runtime may hold sandboxes of
/// several services.
pub(crate) const SERVICE_LABEL: &str = "stockade.dev/service";
