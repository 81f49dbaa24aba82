//! The caller of an operation.

use std::sync::Arc;

use stockade_core::{Door, ExecutionId, OwnerId};

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
    /// The owner of the flow that the operation is part of, if it is another one: its secrets may be
    /// used where a request has that scope. A server determines it; a client does not send it.
    pub flow_owner: Option<OwnerId>,
    /// Whether the caller may manage the server: its API keys. A server determines it.
    pub admin: bool,
    /// Whether the caller may be on another machine: it must not name files, ports and addresses of
    /// the machine of the server. A server determines it.
    pub remote: bool,
    /// Where the request came from, for the audit records. A server determines it.
    pub origin: Origin,
    /// The audit record that is stored together with the start of the operation, if there is one.
    pub start_record: Option<Arc<StartRecord>>,
}

/// Where a request came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Through what it came.
    pub door: Door,
    /// The user of the process at the other end.
    pub uid: Option<u32>,
    /// The id of the API key.
    pub key_id: Option<String>,
    /// The address of a client on the network.
    pub address: Option<String>,
    /// The name of the request.
    pub request_id: Option<String>,
}

/// An audit record of an operation's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartRecord {
    /// Its id.
    pub id: String,
    /// Its JSON.
    pub text: String,
}

impl Caller {
    /// A caller with an owner only.
    pub const fn new(owner: OwnerId) -> Self {
        let origin =
            Origin { door: Door::Server, uid: None, key_id: None, address: None, request_id: None };
        Self {
            owner,
            idempotency_key: None,
            execution_id: None,
            flow_owner: None,
            admin: false,
            remote: false,
            origin,
            start_record: None,
        }
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

    /// The same caller, whose request came from there.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }
}
