//! [`Service`]: the engine and the shared state of operations.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use stockade_api::{Caller, Result};
use stockade_core::{Code, Operation, SandboxId};
use stockade_durable::{Engine, Handle, StartOptions};

use crate::handoff::Handoff;
use crate::inner::Inner;
use crate::operation::{self, workflow_id};
use crate::owned_sandbox::{ActiveSandbox, OwnedSandbox};
use crate::store::hosts;
use crate::tools::Handler;

/// Executes every operation. Its clones are the same service.
#[derive(Debug, Clone)]
pub struct Service {
    pub(crate) engine: Engine,
    pub(crate) inner: Arc<Inner>,
}

impl Service {
    /// The engine, for watching its workflows.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Adds a tool for `run_tool`. One of the same name is replaced, also a built-in one.
    pub fn register_tool(&self, name: &str, description: &str, handler: Arc<dyn Handler>) {
        self.inner.tools.register(name, description, handler);
    }

    /// Removes a tool that was added.
    ///
    /// # Errors
    /// [`Code::ToolUnknown`] when no tool has that name.
    pub fn unregister_tool(&self, name: &str) -> Result<()> {
        self.inner.tools.unregister(name)
    }

    /// Accepts no new work, waits until the deadline for running work, and leaves the rest to the
    /// next service.
    pub async fn shutdown(&self, deadline: Duration) {
        self.inner.stop.send_replace(true);
        if self.inner.options.cluster.is_some() {
            // Without it the others pass new sandboxes on in vain until the lease has ended.
            let _ = self.inner.store.execute(vec![hosts::withdraw(self.inner.host())]).await;
        }
        // The next one takes over the work that does not end in time.
        let _ = self.engine.shutdown(deadline).await;
    }

    /// The first of three phases, before anything is started: the sandbox, if it belongs to the
    /// caller and allows the operation.
    pub(crate) async fn owned_sandbox(
        &self,
        caller: &Caller,
        id: &SandboxId,
        operation: Operation,
    ) -> Result<OwnedSandbox> {
        let owned = OwnedSandbox::check(&*self.inner.store, &caller.owner, id).await?;
        // The record of a sandbox whose server was given up can be ended by each server.
        if operation != Operation::Kill || !self.inner.is_given_up(&owned.host).await? {
            self.inner.check_here(&owned)?;
        }
        match owned.clone().admit(operation) {
            // Idempotent replay: a known idempotency key is answered from its record, also if the
            // state of the sandbox does not allow the operation any more.
            Err(_) if operation::is_known(&self.engine, caller).await? => Ok(owned),
            admitted => admitted,
        }
    }

    /// The same for an operation that uses the sandbox, which counts as in use meanwhile.
    pub(crate) async fn use_sandbox(
        &self,
        caller: &Caller,
        id: &SandboxId,
    ) -> Result<ActiveSandbox> {
        match self.inner.use_sandbox(&caller.owner, id).await {
            Err(problem)
                if matches!(problem.code, Code::InvalidState | Code::SandboxTerminated)
                    && operation::is_known(&self.engine, caller).await? =>
            {
                self.inner.start_use(&caller.owner, id).await
            }
            used => used,
        }
    }

    /// Starts an operation that needs values in memory. An existing operation with the same key
    /// keeps its own values.
    pub(crate) async fn start_with<T: Serialize + Sync>(
        &self,
        name: &'static str,
        caller: &Caller,
        request: &T,
        handoff: Handoff,
        options: StartOptions,
    ) -> Result<Handle> {
        let id = match &options.id {
            Some(id) => id.clone(),
            None => workflow_id(caller)?,
        };
        let options = StartOptions { id: Some(id.clone()), ..options };
        // One start at a time for each key, so that no workflow takes the values of another one.
        let _turn = self.inner.key_locks.lock(&id).await;
        let is_kept = self.inner.handoffs.put(&id, handoff);
        let started = operation::start(&self.engine, name, caller, request, options).await;
        if is_kept && !started.as_ref().is_ok_and(Handle::was_created) {
            drop(self.inner.handoffs.take(&id));
        }
        started
    }
}
