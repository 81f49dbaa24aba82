//! The caller of an operation.

use stockade_core::{ExecutionId, OwnerId};

/// The caller of an operation, with its idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The owner of the sandboxes. A server determines it; a client does not send it.
    pub owner: OwnerId,
    /// The caller's key for this one operation: a repeated call with the same key returns the
    /// recorded response and does nothing. The same key with another request is refused; file
    /// content is not compared.
    pub idempotency_key: Option<String>,
    /// The execution that the operation is part of, recorded with the sandboxes that it creates.
    pub execution_id: Option<ExecutionId>,
    /// Whether the caller may manage the server: its API keys. A server determines it.
    pub admin: bool,
    /// Whether the caller may be on another machine: it must not name files, ports and addresses of
    /// the machine of the server. A server determines it.
    pub remote: bool,
}

impl Caller {
    /// A caller with an owner only.
    pub const fn new(owner: OwnerId) -> Self {
        Self { owner, idempotency_key: None, execution_id: None, admin: false, remote: false }
    }

    /// The same caller, with the admin scope.
    #[must_use]
    pub const fn with_admin(mut self) -> Self {
        self.admin = true;
        self
    }

    /// The same caller, which may be on another machine.
    #[must_use]
    pub const fn over_network(mut self) -> Self {
        self.remote = true;
        self
    }

    /// The same caller, with a key for its next operation.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }
}
