//! The owner check of operations that use a sandbox: the sandbox counts as in use meanwhile, and is
//! resumed if it was paused for being idle.

use stockade_core::event::{Nothing, Payload};
use stockade_core::{Operation, OwnerId, Problem, SandboxId, State};
use stockade_durable::{Context, Failure};

use super::Inner;
use crate::events;
use crate::failure::{of_runtime, of_store, to_failure};
use crate::handoff::Once;
use crate::owned::{Owned, Used};

impl Inner {
    /// The first of three phases: the sandbox, if it belongs to the owner and can be used. It is
    /// resumed if it was paused for being idle.
    pub(crate) async fn used(&self, owner: &OwnerId, id: &SandboxId) -> Result<Used, Problem> {
        let used = self.begin_use(owner, id).await?;
        used.admitting(Operation::Use)
    }

    /// The first phase inside a workflow that uses a sandbox: repeated in each execution of the
    /// workflow, and never answered from its record. A caller that has just made the check passes
    /// its result as `found`. A later execution may find the sandbox paused, with the command in
    /// it. That is no failure: the command continues when the sandbox is resumed.
    pub(crate) async fn using(
        &self,
        context: &Context,
        owner: &OwnerId,
        id: &SandboxId,
        found: Option<Used>,
    ) -> Result<Used, Failure> {
        let again = context.run_number() > 1;
        let found = Once::new(found);
        context
            .volatile("acl", async |_| {
                if let Some(used) = found.take() {
                    return Ok(used);
                }
                let used = self.begin_use(owner, id).await.map_err(to_failure)?;
                if again && used.state == State::Paused && !used.damaged {
                    return Ok(used);
                }
                used.admitting(Operation::Use).map_err(to_failure)
            })
            .await
    }

    /// The sandbox in any state, if it belongs to the owner; it counts as in use from here on.
    pub(crate) async fn begin_use(&self, owner: &OwnerId, id: &SandboxId) -> Result<Used, Problem> {
        let owned = Owned::check(&*self.store, owner, id).await?;
        // The watcher decides under the sandbox's lock whether the sandbox is idle. From here on it
        // sees this use; an earlier decision is undone.
        let in_use = self.activity.begin(id);
        let owned = if owned.idle_timeout_ms.is_none() || owned.state.is_terminal() {
            owned
        } else {
            self.awake(owner, id).await?
        };
        Ok(Used::new(owned, in_use))
    }

    /// The sandbox, resumed if it was paused for being idle.
    async fn awake(&self, owner: &OwnerId, id: &SandboxId) -> Result<Owned, Problem> {
        let _driver = self.drive(id).await?;
        let mut owned = Owned::check(&*self.store, owner, id).await?;
        let row = owned.row_mut();
        if row.state == State::Paused && row.idle_paused && !row.damaged {
            let runtime = self.runtime(&row.runtime)?;
            self.ensure_network(row).await?;
            let resumed = self.terminations.unless(id, self.within(runtime.resume(id))).await?;
            resumed.map_err(|error| of_runtime(&error))?;
            // Each wake-up is a separate event: the generation distinguishes them.
            let operation = format!("wake:{id}:{}", row.generation);
            let change = row.change(State::Running, None);
            let event = events::of(&operation, row, Payload::SandboxResumed(Nothing {}));
            self.store.execute(vec![change, event]).await.map_err(of_store)?;
        }
        Ok(owned)
    }
}
