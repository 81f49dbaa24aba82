//! The one sandbox of a workspace: created with its first use, and found again by its id after a restart of
//! the program that uses it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stockade_api::{
    ById, Caller, CollectChanges, CollectedChanges, CreateSandbox, GetSandbox, KillSandbox,
    Problem, Renew, Sandbox, Sandboxes,
};
use stockade_core::{Code, SandboxId, State};
use tokio::sync::Mutex;

use crate::mcp::Call;

/// The sandbox of a workspace.
#[derive(Debug)]
pub struct WorkspaceSandbox {
    sandboxes: Arc<dyn Sandboxes>,
    id: SandboxId,
    request: CreateSandbox,
    /// How long it lives from its last use by a new session on, in seconds.
    ttl_seconds: f64,
    /// Whether this session has used it.
    is_used: Mutex<bool>,
}

impl WorkspaceSandbox {
    /// The sandbox with this id, which is created as requested if it does not exist.
    pub fn new(
        sandboxes: Arc<dyn Sandboxes>,
        id: SandboxId,
        request: CreateSandbox,
        ttl_seconds: f64,
    ) -> Self {
        let request = CreateSandbox {
            id: Some(id.clone()),
            expiry: stockade_api::Expiry::Seconds(ttl_seconds),
            ..request
        };
        Self { sandboxes, id, request, ttl_seconds, is_used: Mutex::new(false) }
    }

    pub(super) fn sandboxes(&self) -> Arc<dyn Sandboxes> {
        Arc::clone(&self.sandboxes)
    }

    /// Whether this is the path of the project.
    pub(super) fn is_project(&self, path: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        self.host().is_some_and(|host| host.as_os_str().as_bytes() == path)
    }

    fn host(&self) -> Option<&Path> {
        self.request.workspace.as_ref().map(|workspace| workspace.host.as_path())
    }

    /// The project, and the id of the sandbox.
    pub fn names(&self) -> (PathBuf, SandboxId) {
        (self.host().map(Path::to_owned).unwrap_or_default(), self.id.clone())
    }

    /// The sandbox, ready for use.
    pub(super) async fn find_or_create(&self, call: &Call) -> Result<Sandbox, Problem> {
        let mut is_used = self.is_used.lock().await;
        let writer = || call.writer();
        let by_id = || ById { id: self.id.clone() };
        let Some(found) = self.find(call.reader()).await? else {
            let created = self.sandboxes.create(&writer(), self.request.clone()).await?;
            *is_used = true;
            return Ok(created);
        };
        if !*is_used {
            let ttl_seconds = Some(self.ttl_seconds);
            let renew = Renew { id: self.id.clone(), ttl_seconds, shorten: false };
            // One that was stopped is started first.
            let _ = self.sandboxes.renew(&writer(), renew).await;
        }
        let ready = match found.state {
            State::Stopped | State::Error | State::New => {
                self.sandboxes.start(&writer(), by_id()).await?
            }
            State::Paused => self.sandboxes.resume(&writer(), by_id()).await?,
            _ => found,
        };
        *is_used = true;
        Ok(ready)
    }

    /// The sandbox, if it exists.
    async fn find(&self, caller: &Caller) -> Result<Option<Sandbox>, Problem> {
        let request = GetSandbox { id: self.id.clone(), metrics: false };
        let found = match self.sandboxes.get_status(caller, request).await {
            Ok(found) if found.state == State::Terminated => return Ok(None),
            Ok(found) => found,
            Err(problem) if problem.code == Code::NotFound => return Ok(None),
            Err(problem) => return Err(problem),
        };
        if found.workspace != self.request.workspace {
            let message = format!("the sandbox {} has another workspace", self.id);
            return Err(Problem::new(Code::Conflict, message)
                .remedied_by(format!("stockade kill {}", self.id)));
        }
        Ok(Some(found))
    }

    /// Makes a bundle of the changes, and with `ends` terminates the sandbox. Without a use there is
    /// nothing to do.
    ///
    /// # Errors
    /// Those of the operations.
    pub async fn finish(&self, caller: &Caller, ends: bool) -> Result<CollectedChanges, Problem> {
        let nothing = CollectedChanges { bundle: None, notes: Vec::new() };
        if !*self.is_used.lock().await || self.find(caller).await?.is_none() {
            return Ok(nothing);
        }
        let writer = || caller.clone().with_key(uuid::Uuid::now_v7().simple().to_string());
        let request = CollectChanges {
            sandbox_id: self.id.clone(),
            exclude: Vec::new(),
            limit_bytes: None,
            limit_paths: None,
        };
        let collected = self.sandboxes.collect_changes(&writer(), request).await?;
        if ends {
            self.sandboxes.kill(&writer(), KillSandbox::new(self.id.clone())).await?;
        }
        Ok(collected)
    }
}
