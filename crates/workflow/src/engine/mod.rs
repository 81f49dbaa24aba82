//! The engine: starts runs, finds them again, tells of them, and passes decisions and signals on.
//!
//! Reading order: `operations` (what can be asked for), `start` (how a run begins), `run` (a run as a
//! durable workflow), `drive` (what it does), `author` (whom it asks). What is stored of runs is in
//! [`store`](crate::store).

mod attempt;
mod author;
mod cache;
mod commands;
mod drive;
mod measured;
mod operations;
mod output;
mod prepare;
mod problem;
mod program;
mod run;
mod sandbox;
mod start;
mod tools;
mod waits;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stockade_api::Sandboxes;
use stockade_core::{Problem, SandboxId};
use stockade_durable::{Engine, Store};

use crate::authoring::Processes;
use crate::built::Built;
use crate::store::{RUNS_TOPIC, runs, sandboxes};
use crate::sync::lock;
use author::Author;
use commands::{Held, Here, Place};
use measured::Cleanups;

pub use commands::Inside;
pub use commands::helper::process as command_process;
use output::Schemas;
use sandbox::attended::Attended;

pub use crate::store::MIGRATIONS;
pub use prepare::{child_program, preview, preview_built};
pub use start::Begin;
pub use tools::{MAX_OUTPUT_BYTES, TOOL_TIMEOUT_MS};

/// The version of the durable workflows, not of the program. It is raised only with a change that
/// an older run cannot go on with.
const VERSION: &str = "1";

/// What an engine is configured with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names this process among those that share a store; the same name again takes over what the
    /// last one left. It is not that of another engine on the same store.
    pub executor_id: String,
    /// Starts the processes that workflow files run in.
    pub realms: Processes,
    /// A command and its first arguments that run [`command_process`].
    pub helper: Vec<OsString>,
    /// Where commands, agents and the children of a `<Sandbox>` are executed, in the name of their
    /// run's owner. Without it they are refused.
    pub sandboxes: Option<Arc<dyn Sandboxes>>,
    /// Where commands and agents are executed if there are no sandboxes: beside this process, which
    /// is in one itself. Only who knows that from the kernel says so.
    pub inside: Option<Inside>,
    /// A file with the user's own adapters of agents, which need not be there: an object from their
    /// names to what `commands/adapters.json` says of ours.
    pub agents: Option<PathBuf>,
    /// A file with the user's own programs that are providers of a `<Sandbox>`, which need not be
    /// there: an object from their ids to `{ module, program?, environment?, owners? }` or
    /// `{ command, environment?, owners? }`. No other program of this host is ever a provider.
    pub providers: Option<PathBuf>,
    /// The workflows in Rust that this engine does. Runs of them that another process left go on
    /// here only if they are among these.
    pub built: Vec<Built>,
}

impl Options {
    /// Those of an engine that does workflows in Rust, and executes no command.
    pub fn new(executor_id: &str) -> Self {
        Self {
            executor_id: executor_id.to_owned(),
            realms: Processes::new(Vec::new()),
            helper: Vec::new(),
            sandboxes: None,
            inside: None,
            agents: None,
            providers: None,
            built: Vec::new(),
        }
    }

    /// Whether commands may reach a network: in the sandbox that is around this process.
    fn reaches(&self) -> bool {
        self.sandboxes.is_none() && self.inside.as_ref().is_some_and(Inside::reaches)
    }

    /// The directory that what a workflow file starts works on.
    fn project_of(&self, file: &Path) -> PathBuf {
        let inside = self.inside.as_ref().and_then(Inside::project);
        inside.map_or_else(|| commands::project_of(file), Path::to_owned)
    }
}

/// Does runs: [`stockade_api::Workflows`]. Its clones are the same engine.
#[derive(Debug, Clone)]
pub struct Workflows {
    engine: Engine,
    inner: Arc<Inner>,
}

/// What runs share.
#[derive(Debug)]
pub(crate) struct Inner {
    store: Arc<dyn Store>,
    options: Options,
    schemas: Schemas,
    /// Where commands are executed.
    place: Option<Arc<dyn Place>>,
    /// What is measured and no event tells.
    cleanups: Cleanups,
    /// How many providers are asked for something now.
    providers: AtomicUsize,
    attended: Attended,
    /// Authors whose realm is loaded, for runs that begin at once.
    prepared: Mutex<HashMap<String, Author>>,
}

/// Where commands are executed.
fn place(options: &Options) -> Option<Arc<dyn Place>> {
    if let Some(sandboxes) = options.sandboxes.clone() {
        return Some(Arc::new(Held::new(sandboxes)));
    }
    options.inside.as_ref()?;
    Some(Arc::new(Here::new(options.helper.clone())))
}

impl Inner {
    fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn take_prepared(&self, run: &str) -> Option<Author> {
        lock(&self.prepared).remove(run)
    }
}

impl Workflows {
    /// An engine on a store that has [`MIGRATIONS`]. Goes on with what another one left.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn launch(store: Arc<dyn Store>, options: Options) -> Result<Self, Problem> {
        let executor = options.executor_id.clone();
        let (schemas, prepared) = (Schemas::default(), Mutex::default());
        let providers = AtomicUsize::default();
        let place = place(&options);
        let inner = Arc::new(Inner {
            store: Arc::clone(&store),
            options,
            schemas,
            place,
            cleanups: Cleanups::default(),
            providers,
            attended: Attended::default(),
            prepared,
        });
        let builder = Engine::builder(store)
            .executor_id(executor)
            .application_version(VERSION.to_owned())
            // A run keeps what it did in rows of its own.
            .max_recovery_attempts(u32::MAX);
        let engine = run::register(builder, &inner).launch().await.map_err(problem::of_store)?;
        let workflows = Self { engine, inner };
        workflows.repair().await?;
        Ok(workflows)
    }

    /// Changes when something happens in a run, whichever.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.engine.subscribe(RUNS_TOPIC)
    }

    /// Whether runs that are under way need this process. One that only waits for a decision or a
    /// signal does not: whoever brings it starts another process, which goes on with the run. One
    /// that waits for a time does, for nobody else would wake it, and so does one whose provider is
    /// asked for something: it would be asked anew.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn is_needed(&self) -> Result<bool, Problem> {
        if self.engine.running() == 0 {
            return Ok(false);
        }
        if self.inner.providers.load(Ordering::Relaxed) > 0 {
            return Ok(true);
        }
        runs::has_active(self.inner.store()).await.map_err(problem::of_store)
    }

    /// The sandboxes that are kept for children that wait: nothing is under way in them, and nobody
    /// need be awake for them.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn resting(&self) -> Result<BTreeSet<SandboxId>, Problem> {
        let names =
            sandboxes::names_of_waiting(self.inner.store()).await.map_err(problem::of_store)?;
        Ok(names.iter().filter_map(|name| sandbox::held::id(name).ok()).collect())
    }

    /// Takes nothing new, and leaves what is under way to the next one.
    pub async fn shutdown(&self, deadline: Duration) {
        // What does not end in time is taken over.
        let _ = self.engine.shutdown(deadline).await;
    }
}
