//! The state that the runs of an engine share.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use stockade_durable::Store;

use super::commands::{Executor, LocalExecutor, SandboxExecutor};
use super::metrics::CleanupTimes;
use super::options::Options;
use super::provider_cleanups::ProviderCleanups;
use super::run_secrets::RunSecrets;
use super::run_servers::RunServers;
use super::schemas::Schemas;
use super::user_code::UserCode;
use crate::sync::lock;

/// The state that the runs of an engine share.
#[derive(Debug)]
pub(crate) struct EngineState {
    store: Arc<dyn Store>,
    pub(super) options: Options,
    pub(super) schemas: Schemas,
    /// Executes commands; `None` if there are no sandboxes and this process is not in one.
    pub(super) executor: Option<Arc<dyn Executor>>,
    /// The times that it took to end sandboxes. No event contains them.
    pub(super) cleanup_times: CleanupTimes,
    /// How many requests to providers are running.
    pub(super) provider_requests: AtomicUsize,
    pub(super) provider_cleanups: ProviderCleanups,
    /// The values of the secrets of runs.
    pub(super) secrets: RunSecrets,
    /// The servers elsewhere that hold the sandboxes of runs.
    pub(super) servers: RunServers,
    /// User code whose realm is already loaded, by the runs that it was loaded for.
    prepared: Mutex<HashMap<String, UserCode>>,
}

impl EngineState {
    pub(super) fn new(store: Arc<dyn Store>, options: Options) -> Self {
        Self {
            store,
            executor: executor(&options),
            servers: RunServers::new(options.servers.clone()),
            options,
            schemas: Schemas::default(),
            cleanup_times: CleanupTimes::default(),
            provider_requests: AtomicUsize::default(),
            provider_cleanups: ProviderCleanups::default(),
            secrets: RunSecrets::default(),
            prepared: Mutex::default(),
        }
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Keeps the user code of a run until the run starts.
    pub(super) fn store_prepared(&self, run: &str, user_code: UserCode) {
        lock(&self.prepared).insert(run.to_owned(), user_code);
    }

    pub(super) fn take_prepared(&self, run: &str) -> Option<UserCode> {
        lock(&self.prepared).remove(run)
    }
}

/// The executor of commands for these options.
fn executor(options: &Options) -> Option<Arc<dyn Executor>> {
    if let Some(sandboxes) = options.sandboxes.clone() {
        return Some(Arc::new(SandboxExecutor::new(sandboxes)));
    }
    options.outer_sandbox.as_ref()?;
    Some(Arc::new(LocalExecutor::new(options.helper.clone())))
}
