//! The owner check of operations that use a sandbox: it counts as used meanwhile, and one that was
//! paused because nobody used it is resumed.

use stockade_core::event::{Nothing, Payload};
use stockade_core::{Operation, OwnerId, Problem, SandboxId, State};
use stockade_durable::{Context, Failure};

use super::Inner;
use crate::events;
use crate::failure::{of_runtime, of_store, to_failure};
use crate::handoff::Once;
use crate::owned::{Owned, Used};

impl Inner {
    /// The first of three phases: the sandbox, if it is the owner's and can be used. One that was
    /// paused because nobody used it is resumed.
    pub(crate) async fn used(&self, owner: &OwnerId, id: &SandboxId) -> Result<Used, Problem> {
        let used = self.begin_use(owner, id).await?;
        used.admitting(Operation::Use)
    }

    /// The first phase inside a workflow that uses a sandbox: made again each time the workflow
    /// runs, and never answered from its record. A caller that made the check a moment ago gives its
    /// result as `found`. A later run may find the sandbox paused, with its command in it: that is no
    /// failure, for the command goes on when the sandbox does.
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

    /// The sandbox, if it is the owner's, whatever its state; it counts as used from here on.
    pub(crate) async fn begin_use(&self, owner: &OwnerId, id: &SandboxId) -> Result<Used, Problem> {
        let owned = Owned::check(&*self.store, owner, id).await?;
        // The watcher decides under the sandbox's lock whether nobody uses it. From here on it
        // sees that somebody does; what it decided before is undone.
        let in_use = self.activity.begin(id);
        let owned = if owned.idle_timeout_ms.is_none() || owned.state.is_terminal() {
            owned
        } else {
            self.awake(owner, id).await?
        };
        Ok(Used::new(owned, in_use))
    }

    /// The sandbox, resumed if it was paused because nobody used it.
    async fn awake(&self, owner: &OwnerId, id: &SandboxId) -> Result<Owned, Problem> {
        let _driver = self.drive(id).await?;
        let mut owned = Owned::check(&*self.store, owner, id).await?;
        let row = owned.row_mut();
        if row.state == State::Paused && row.idle_paused && !row.damaged {
            let runtime = self.runtime(&row.runtime)?;
            self.ensure_network(row).await?;
            let resumed = self.terminations.unless(id, self.within(runtime.resume(id))).await?;
            resumed.map_err(|error| of_runtime(&error))?;
            // Each time is an event of its own: the generation tells them apart.
            let operation = format!("wake:{id}:{}", row.generation);
            let change = row.change(State::Running, None);
            let event = events::of(&operation, row, Payload::SandboxResumed(Nothing {}));
            self.store.execute(vec![change, event]).await.map_err(of_store)?;
        }
        Ok(owned)
    }
}
