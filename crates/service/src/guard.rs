//! The owner check: the first thing that every operation does, and the only way to a sandbox.

use stockade_core::access::Level;
use stockade_core::event::{Nothing, Payload};
use stockade_core::{Code, Operation, OwnerId, Problem, SandboxId, State};
use stockade_durable::{Context, Failure, Store};

use crate::activity::InUse;
use crate::events;
use crate::failure::{no_sandbox, of_access, of_runtime, of_state, of_store, to_failure};
use crate::pending::Once;
use crate::row::SandboxRow;
use crate::service::Inner;

/// A sandbox of the one who asks, as it was a moment ago. Only [`Owned::check`] makes one.
#[derive(Debug, Clone)]
pub(crate) struct Owned(SandboxRow);

impl std::ops::Deref for Owned {
    type Target = SandboxRow;

    fn deref(&self) -> &SandboxRow {
        &self.0
    }
}

impl Owned {
    /// The sandbox, if it is the owner's. One that does not exist and one of somebody else get
    /// the same answer.
    pub(crate) async fn check(
        store: &dyn Store,
        owner: &OwnerId,
        id: &SandboxId,
    ) -> Result<Self, Problem> {
        match SandboxRow::find(store, id).await? {
            Some(row) if row.owner == *owner => Ok(Self(row)),
            _ => Err(no_sandbox(id)),
        }
    }

    /// The sandbox, if its state admits an operation.
    pub(crate) fn admitting(self, operation: Operation) -> Result<Self, Problem> {
        if self.damaged && operation != Operation::Kill {
            let message = format!("the record of the sandbox {} cannot be read", self.id);
            return Err(Problem::new(Code::DatabaseInvalid, message)
                .remedied_by(format!("stockade kill {}", self.id)));
        }
        match self.state.after(operation) {
            Ok(_) => Ok(self),
            Err(refused) => Err(of_state(&self.id, &refused)),
        }
    }

    /// Whether the rules let a path be used like that.
    pub(crate) fn allows(&self, level: Level, path: &[u8]) -> Result<(), Problem> {
        self.rules.allows(level, path).map_err(|error| of_access(&error))
    }

    /// Whether the rules let a program be run. What the runtime brings with it may be, unless a
    /// rule names it.
    pub(crate) fn may_run(&self, program: &[u8]) -> Result<(), Problem> {
        let may = self.rules.allows_processes(Level::Execute, program);
        may.map_err(|error| of_access(&error))
    }
}

/// A sandbox that runs and is its owner's, for one use of it: as long as this lives, it is not
/// idle.
#[derive(Debug)]
pub(crate) struct Used {
    owned: Owned,
    _in_use: InUse,
}

impl std::ops::Deref for Used {
    type Target = Owned;

    fn deref(&self) -> &Owned {
        &self.owned
    }
}

impl Inner {
    /// The first of three phases: the sandbox, if it is the owner's and can be used. One that was
    /// paused because nobody used it is resumed.
    pub(crate) async fn used(&self, owner: &OwnerId, id: &SandboxId) -> Result<Used, Problem> {
        let used = self.begin_use(owner, id).await?;
        Ok(Used { owned: used.owned.admitting(Operation::Use)?, ..used })
    }

    /// The first phase inside a workflow that uses a sandbox: made again each time the workflow
    /// runs, and never answered from its record. Whoever has just made it may hand over what they
    /// found. A command that an earlier run started stands
    /// still in a sandbox that was paused meanwhile, and is not lost by that.
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
                let owned = used.owned.admitting(Operation::Use).map_err(to_failure)?;
                Ok(Used { owned, ..used })
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
        Ok(Used { owned, _in_use: in_use })
    }

    /// The sandbox, resumed if it was paused because nobody used it.
    async fn awake(&self, owner: &OwnerId, id: &SandboxId) -> Result<Owned, Problem> {
        let _driver = self.drive(id).await?;
        let Owned(mut row) = Owned::check(&*self.store, owner, id).await?;
        if row.state == State::Paused && row.idle_paused && !row.damaged {
            let runtime = self.runtime(&row.runtime)?;
            self.ensure_out(&row).await?;
            let resumed = self.dooms.unless(id, self.within(runtime.resume(id))).await?;
            resumed.map_err(|error| of_runtime(&error))?;
            // Each time is an event of its own: the generation tells them apart.
            let operation = format!("wake:{id}:{}", row.generation);
            let change = row.change(State::Running, None);
            let event = events::of(&operation, &row, Payload::SandboxResumed(Nothing {}));
            self.store.execute(vec![change, event]).await.map_err(of_store)?;
        }
        Ok(Owned(row))
    }
}
