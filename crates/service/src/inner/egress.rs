//! The network of sandboxes: which of them the egress process serves, according to their rows.

use std::sync::Arc;

use stockade_api::Result;
use stockade_core::State;

use super::Inner;
use crate::egress::{Member, TIMEOUT};
use crate::store::sandboxes::SandboxRow;

impl Inner {
    /// Makes the egress process serve a new sandbox, if it has a network.
    ///
    /// # Errors
    /// Why it is not served; it has no network access then.
    pub(crate) async fn serve_network(&self, row: &SandboxRow) -> Result<()> {
        let Some(network) = &row.request.network else { return Ok(()) };
        let member = Member {
            id: row.id.clone(),
            unique_name: row.unique_name(),
            owner: row.owner.clone(),
            execution: row.execution_id.clone(),
            policy: network.policy()?,
            bindings: row.bindings()?,
            upstream: network.upstream_proxy.clone(),
            runtime: Arc::clone(self.runtime(&row.runtime)?),
        };
        self.egress.serve(member, self.options.deadline).await?;
        self.egress.deliver(&row.id, self.options.deadline).await
    }

    /// The same for a sandbox that may be served already.
    ///
    /// # Errors
    /// Why it is not served; it has no network access then.
    pub(crate) async fn ensure_network(&self, row: &SandboxRow) -> Result<()> {
        if row.request.network.is_none() {
            return Ok(());
        }
        if self.egress.is_served(&row.id) {
            return self.egress.deliver(&row.id, self.options.deadline).await;
        }
        self.serve_network(row).await
    }

    /// Applies a recorded network policy to a sandbox that may be served.
    ///
    /// # Errors
    /// Why the policy is not in force; the sandbox has no network access then.
    pub(crate) async fn apply_network(&self, row: &SandboxRow) -> Result<()> {
        let Some(network) = &row.request.network else { return Ok(()) };
        if !matches!(row.state, State::Running | State::Paused) {
            // It is served according to its record when it is started.
            return Ok(());
        }
        if self.egress.is_served(&row.id)
            && self.egress.change(&row.id, network.policy()?, row.bindings()?).await.is_ok()
        {
            return self.egress.deliver(&row.id, self.options.deadline).await;
        }
        self.serve_network(row).await
    }

    /// Tries to serve the network and the ssh agent of a sandbox that should be served, within the time that its watcher may take.
    pub(crate) async fn try_network(&self, row: &SandboxRow) {
        if matches!(row.state, State::Running | State::Paused) {
            // `get_status` reports why it is not served.
            let _ = tokio::time::timeout(TIMEOUT, self.ensure_network(row)).await;
        }
        if row.state == State::Running {
            self.try_agent(&row.id).await;
        }
    }
}
