//! Who asks.

use stockade_core::{ExecutionId, OwnerId};

/// Who asks, and under which name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Whose sandboxes these are. A server decides it; a client does not send it.
    pub owner: OwnerId,
    /// A name that the caller made for this one operation: the same name again answers with what
    /// the first one did, and does nothing. The same name with another request is refused; the
    /// content of a file is not compared.
    pub idempotency_key: Option<String>,
    /// The execution that the operation is part of, recorded with what it makes.
    pub execution_id: Option<ExecutionId>,
}

impl Caller {
    /// A caller with nothing but a name.
    pub const fn new(owner: OwnerId) -> Self {
        Self { owner, idempotency_key: None, execution_id: None }
    }

    /// The same caller, with a name for its next operation.
    #[must_use]
    pub fn once(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }
}
