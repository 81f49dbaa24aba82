//! The owner check: the first action of every operation, and the only access to a sandbox.

use stockade_core::access::Level;
use stockade_core::{Code, Operation, OwnerId, Problem, SandboxId};
use stockade_durable::Store;
use stockade_review::problem::short_id;

use crate::activity::UseGuard;
use crate::failure::{access_problem, no_sandbox, state_problem};
use crate::store::sandboxes::{self, SandboxRow};

/// A sandbox of the caller, as it was when it was checked. Only [`OwnedSandbox::check`] creates this
/// value.
#[derive(Debug, Clone)]
pub(crate) struct OwnedSandbox(SandboxRow);

impl std::ops::Deref for OwnedSandbox {
    type Target = SandboxRow;

    fn deref(&self) -> &SandboxRow {
        &self.0
    }
}

impl OwnedSandbox {
    /// The row, to be changed together with its record.
    pub(crate) const fn row_mut(&mut self) -> &mut SandboxRow {
        &mut self.0
    }

    /// The sandbox, if it belongs to the owner. A sandbox that does not exist and one of another
    /// owner give the same error.
    pub(crate) async fn check(
        store: &dyn Store,
        owner: &OwnerId,
        id: &SandboxId,
    ) -> Result<Self, Problem> {
        match sandboxes::find(store, id).await? {
            Some(row) if row.owner == *owner => Ok(Self(row)),
            _ => Err(no_sandbox(id)),
        }
    }

    /// The sandbox, if its state allows an operation.
    pub(crate) fn admit(self, operation: Operation) -> Result<Self, Problem> {
        if self.damaged && operation != Operation::Kill {
            let message = format!("the record of the sandbox {} cannot be read", self.id);
            return Err(Problem::new(Code::DatabaseInvalid, message)
                .remedied_by(format!("stockade kill --discard {}", self.id)));
        }
        match self.state.apply(operation) {
            Ok(_) => Ok(self),
            Err(refused) => {
                let problem = state_problem(&self.id, &refused);
                Err(match &self.bundle {
                    Some(bundle) if self.state.is_terminal() => {
                        problem.remedied_by(format!("stockade diff {}", short_id(bundle)))
                    }
                    _ => problem,
                })
            }
        }
    }

    /// Whether the rules allow this use of a path.
    pub(crate) fn allows(&self, level: Level, path: &[u8]) -> Result<(), Problem> {
        self.rules.allows(level, path).map_err(|error| access_problem(&error))
    }

    /// Whether the rules allow running a program. Programs of the runtime are allowed, unless a
    /// rule names them.
    pub(crate) fn may_run(&self, program: &[u8]) -> Result<(), Problem> {
        let may = self.rules.allows_processes(Level::Execute, program);
        may.map_err(|error| access_problem(&error))
    }
}

/// A running sandbox of its owner, for one use of it: as long as this value exists, the sandbox is
/// not idle.
#[derive(Debug)]
pub(crate) struct ActiveSandbox {
    owned: OwnedSandbox,
    _guard: UseGuard,
}

impl std::ops::Deref for ActiveSandbox {
    type Target = OwnedSandbox;

    fn deref(&self) -> &OwnedSandbox {
        &self.owned
    }
}

impl ActiveSandbox {
    /// A use of a sandbox, which lasts as long as this value.
    pub(crate) const fn new(owned: OwnedSandbox, in_use: UseGuard) -> Self {
        Self { owned, _guard: in_use }
    }

    /// The same use, if the sandbox's state allows an operation.
    pub(crate) fn admit(self, operation: Operation) -> Result<Self, Problem> {
        Ok(Self { owned: self.owned.admit(operation)?, ..self })
    }
}
