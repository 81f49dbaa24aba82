//! The engine for its users: launch and shutdown. Its operations are in `operations` and `start`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stockade_core::{Problem, SandboxId};
use stockade_durable::{Engine, Store};

use super::options::Options;
use super::state::EngineState;
use super::{problem, run, sandbox};
use crate::store::{RUNS_TOPIC, runs, sandboxes};

/// The version of the durable workflows, not of the program. It is raised only with a change that makes
/// it impossible to continue an older run.
const VERSION: &str = "1";

/// Executes runs: [`stockade_api::Workflows`]. Its clones are the same engine.
#[derive(Debug, Clone)]
pub struct Workflows {
    pub(super) engine: Engine,
    pub(super) state: Arc<EngineState>,
}

impl Workflows {
    /// Starts an engine on a store that has [`MIGRATIONS`](super::MIGRATIONS). It continues the runs
    /// that another process left.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn launch(store: Arc<dyn Store>, options: Options) -> Result<Self, Problem> {
        let executor = options.executor_id.clone();
        let state = Arc::new(EngineState::new(Arc::clone(&store), options));
        let builder = Engine::builder(store)
            // The files of a run's project are on one host.
            .place(executor.clone())
            .executor_id(executor)
            .application_version(VERSION.to_owned())
            // A run records its progress in its own rows.
            .max_recovery_attempts(u32::MAX);
        let engine = run::register(builder, &state).launch().await.map_err(problem::from_store)?;
        let workflows = Self { engine, state };
        workflows.repair().await?;
        Ok(workflows)
    }

    /// Changes with each event of any run.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.engine.subscribe(RUNS_TOPIC)
    }

    /// Whether the running runs need this process. A run that only waits for a decision or a signal
    /// does not: the process that delivers it continues the run. A run that waits for a time does,
    /// because no other process would wake it, and so does one with a request to a provider, which
    /// would have to be sent again.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn is_needed(&self) -> Result<bool, Problem> {
        // A run that waits for the key of its server continues where that is given.
        if self.engine.running() <= self.state.servers.waiting() {
            return Ok(false);
        }
        if self.state.provider_requests.load(Ordering::Relaxed) > 0 {
            return Ok(true);
        }
        runs::has_active(self.state.store()).await.map_err(problem::from_store)
    }

    /// The sandboxes that are retained for waiting children. Nothing runs in them, so this process is
    /// not needed for them.
    ///
    /// # Errors
    /// If the store cannot be used.
    pub async fn waiting_sandboxes(&self) -> Result<BTreeSet<SandboxId>, Problem> {
        let names =
            sandboxes::waiting_names(self.state.store()).await.map_err(problem::from_store)?;
        Ok(names.iter().filter_map(|name| sandbox::sandbox_id(name).ok()).collect())
    }

    /// Starts nothing new, and leaves unfinished runs to the next process.
    pub async fn shutdown(&self, deadline: Duration) {
        // Work that does not end in time is taken over by the next process.
        let _ = self.engine.shutdown(deadline).await;
    }
}
