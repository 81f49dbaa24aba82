//! The owner check of operations that use a sandbox: the sandbox counts as in use meanwhile, and is
//! resumed if it was paused for being idle.

use stockade_core::event::{Empty, Payload};
use stockade_core::{Operation, OwnerId, Problem, SandboxId, State};
use stockade_durable::{Context, Failure};

use super::Inner;
use crate::events;
use crate::failure::{runtime_problem, store_problem, to_failure};
use crate::handoff::Once;
use crate::owned_sandbox::{ActiveSandbox, OwnedSandbox};

impl Inner {
    /// The first of three phases: the sandbox, if it belongs to the owner and can be used. It is
    /// resumed if it was paused for being idle.
    pub(crate) async fn use_sandbox(
        &self,
        owner: &OwnerId,
        id: &SandboxId,
    ) -> Result<ActiveSandbox, Problem> {
        let used = self.start_use(owner, id).await?;
        used.admit(Operation::Use)
    }

    /// The first phase inside a workflow that uses a sandbox: repeated in each execution of the
    /// workflow, and never answered from its record. A caller that has just made the check passes
    /// its result as `found`. A later execution may find the sandbox paused, with the command in
    /// it. That is no failure: the command continues when the sandbox is resumed.
    pub(crate) async fn use_in_workflow(
        &self,
        context: &Context,
        owner: &OwnerId,
        id: &SandboxId,
        found: Option<ActiveSandbox>,
    ) -> Result<ActiveSandbox, Failure> {
        let again = context.run_number() > 1;
        let found = Once::new(found);
        context
            .volatile("acl", async |_| {
                if let Some(used) = found.take() {
                    return Ok(used);
                }
                let used = self.start_use(owner, id).await.map_err(to_failure)?;
                if again && used.state == State::Paused && !used.damaged {
                    return Ok(used);
                }
                used.admit(Operation::Use).map_err(to_failure)
            })
            .await
    }

    /// The sandbox in any state, if it belongs to the owner; it counts as in use from here on.
    pub(crate) async fn start_use(
        &self,
        owner: &OwnerId,
        id: &SandboxId,
    ) -> Result<ActiveSandbox, Problem> {
        let owned = OwnedSandbox::check(&*self.store, owner, id).await?;
        self.check_here(&owned)?;
        // The watcher decides under the sandbox's lock whether the sandbox is idle. From here on it
        // sees this use; an earlier decision is undone.
        let in_use = self.activity.start(id);
        let owned = if owned.idle_timeout_ms.is_none() || owned.state.is_terminal() {
            owned
        } else {
            self.wake_if_idle(owner, id).await?
        };
        Ok(ActiveSandbox::new(owned, in_use))
    }

    /// The sandbox, resumed if it was paused for being idle.
    async fn wake_if_idle(&self, owner: &OwnerId, id: &SandboxId) -> Result<OwnedSandbox, Problem> {
        let _driver = self.lock_sandbox(id).await?;
        let mut owned = OwnedSandbox::check(&*self.store, owner, id).await?;
        let row = owned.row_mut();
        if row.state == State::Paused && row.idle_paused && !row.damaged {
            let runtime = self.runtime(&row.runtime)?;
            self.ensure_network(row).await?;
            self.ensure_agent(row).await;
            let resumed = self
                .terminations
                .run_unless_terminated(id, self.with_deadline(runtime.resume(id)))
                .await?;
            resumed.map_err(|error| runtime_problem(&error))?;
            // Each wake-up is a separate event: the generation distinguishes them.
            let operation = format!("wake:{}:{}", row.unique_name(), row.generation);
            let change = row.change(State::Running, None);
            let event = events::statement(&operation, row, Payload::SandboxResumed(Empty {}));
            self.store.execute(vec![change, event]).await.map_err(store_problem)?;
        }
        Ok(owned)
    }
}
