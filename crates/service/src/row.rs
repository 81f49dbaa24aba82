//! The meaning of a sandbox's row: how its state changes, and its public form.

use std::collections::BTreeMap;

use stockade_api::{Network, NetworkStatus, Publication, Result, Sandbox, SshAgentStatus};
use stockade_core::event::Reason;
use stockade_core::network::binding::{Binding, CredentialSlot};
use stockade_core::network::trust_variables;
use stockade_core::sandbox::Limits;
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

    /// Changes its limits and those of its network, in the same way.
    pub(crate) fn change_limits(&mut self, limits: Limits, network: Option<Network>) -> Statement {
        let seen = self.generation;
        self.generation += 1;
        self.request.limits = limits;
        self.request.network = network;
        sandboxes::update_limits(self, seen)
    }

    /// Changes its network, in the same way as [`Self::change`] changes its state.
    pub(crate) fn change_network(&mut self, network: Network) -> Statement {
        let seen = self.generation;
        self.generation += 1;
        self.request.network = Some(network);
        sandboxes::update_request(self, seen)
    }

    /// Changes its labels, in the same way.
    pub(crate) fn change_metadata(&mut self, metadata: BTreeMap<String, String>) -> Statement {
        let seen = self.generation;
        self.generation += 1;
        self.request.metadata = metadata;
        sandboxes::update_metadata(self, seen)
    }

    /// The bindings of its secrets, with the placeholders that its programs have instead of values.
    pub(crate) fn bindings(&self) -> Result<Vec<Binding>> {
        let network = self.request.network.as_ref();
        Ok(network
            .map(|it| it.bindings(|name| self.placeholder(name)))
            .transpose()?
            .unwrap_or_default())
    }

    /// The placeholder of a secret: always the same, so that programs that outlive a server or an
    /// egress process keep theirs.
    fn placeholder(&self, secret: &str) -> String {
        let text = format!("{}\0{}\0{secret}", self.id, self.created_at);
        format!("stockade-{}", &blake3::hash(text.as_bytes()).to_hex()[..32])
    }

    /// The variables of every command by which it uses the sandbox's secrets: the placeholders, and
    /// where the certificates to trust are. Variables of the sandbox's own environment win.
    pub(crate) fn secret_variables(&self) -> Result<BTreeMap<String, String>> {
        let bindings = self.bindings()?;
        let network = self.request.network.as_ref().map(Network::policy).transpose()?;
        let reads = network.is_some_and(|policy| policy.has_request_rules());
        if bindings.is_empty() && !reads {
            return Ok(BTreeMap::new());
        }
        let mut variables: BTreeMap<String, String> =
            trust_variables().map(|(name, path)| (name.to_owned(), path)).collect();
        for Binding { credential, place, .. } in bindings {
            if let CredentialSlot::Placeholder(text) = place {
                variables.insert(credential, text);
            }
        }
        variables.retain(|name, _| !self.request.environment.contains_key(name));
        Ok(variables)
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
            volumes: request.volumes.clone(),
            caches: request.caches.clone(),
            project: request.project.clone(),
            working_directory: request.working_directory.clone(),
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
            ssh_agent: request
                .ssh_agent
                .as_ref()
                .map(|agent| SshAgentStatus { keys: agent.keys(), problem: None }),
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
