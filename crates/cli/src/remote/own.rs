//! The service in this very process, for as long as one command takes.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use stockade_core::{Code, Problem};
use stockade_service::Service;
use stockade_workflow::engine::Workflows;

use super::Remote;
use crate::server::{self, ENDING, Place, Settings};

/// A service of our own, and the lock that keeps servers away from its data.
#[derive(Debug)]
pub(super) struct Own {
    service: Service,
    workflows: Workflows,
    _lock: File,
}

impl Own {
    /// Starts it.
    ///
    /// # Errors
    /// [`Code::Conflict`] while another process has the data directory.
    pub(super) async fn launch(data: &Path) -> Result<Self, Problem> {
        let settings = Settings::from_environment()?;
        let lock = Place::open(data)?.lock()?.ok_or_else(|| {
            Problem::new(Code::Conflict, "another process has the data directory")
                .because(format!("a server, or a command like this one, uses {}", data.display()))
                .remedied_by("leave `--in-process` out: the server does it")
        })?;
        let store = server::store(data).await?;
        let service = server::launch(data, &settings, Arc::clone(&store)).await?;
        let workflows = server::launch_workflows(store, &service).await?;
        Ok(Self { service, workflows, _lock: lock })
    }

    /// Its operations.
    pub(super) fn remote(&self) -> Result<Remote, Problem> {
        Remote::new(Arc::new(self.service.clone()), Arc::new(self.workflows.clone()))
    }

    /// Ends it. What lives on is found by whoever is next.
    pub(super) async fn end(self) {
        tokio::join!(self.service.shutdown(ENDING), self.workflows.shutdown(ENDING));
    }
}
