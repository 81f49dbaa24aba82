//! Access to the operations for commands: through the local server of the data directory, which is
//! started if it does not run; with `--in-process` through the service in this process; or through a
//! server at a URL. `chosen` says which, `credentials` has the key for it, `connector` connects.

pub(crate) mod chosen;
pub(crate) mod connect;
mod connection;
pub mod connector;
pub(crate) mod credentials;
mod reconnecting;
mod start;

use std::fmt::Debug;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use stockade_api::{Caller, Origin, Problem, Sandboxes, Workflows};
use stockade_core::{Code, Door, OwnerId};

use crate::args::sandbox::ServerMode;
use crate::data_dir::data_path;
use crate::problem::{Failure, caused};

pub(crate) use self::connection::Connection;
use self::reconnecting::Reconnecting;

/// An asynchronous task.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Launches the operations in this process.
pub type Launch = fn() -> LocalFuture<Result<LocalServices, Failure>>;

/// The operations in this process.
#[expect(missing_debug_implementations, reason = "it holds a future, which has none")]
pub struct LocalServices {
    /// The operations on sandboxes.
    pub sandboxes: Arc<dyn Sandboxes>,
    /// The operations on workflow runs.
    pub workflows: Arc<dyn Workflows>,
    /// Ends both.
    pub end: LocalFuture<()>,
}

/// The function that launches the operations in this process; only the program with the engines has
/// it.
static LAUNCH: OnceLock<Launch> = OnceLock::new();

/// Sets the function that launches the operations in this process.
pub(crate) fn set_launch(launch: Option<Launch>) {
    if let Some(launch) = launch {
        // It is set once, before any command runs.
        let _ = LAUNCH.set(launch);
    }
}

/// The operations, and the caller of each request.
#[derive(Debug)]
pub struct Remote {
    /// The operations on sandboxes.
    pub sandboxes: Arc<dyn Sandboxes>,
    /// The operations on workflow runs.
    pub workflows: Arc<dyn Workflows>,
    caller: Caller,
}

impl Remote {
    /// The operations with this user as the caller.
    #[must_use]
    pub fn new(sandboxes: Arc<dyn Sandboxes>, workflows: Arc<dyn Workflows>) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let origin = Origin { door: Door::Command, uid: Some(uid), ..Origin::default() };
        let caller = Caller::new(OwnerId::from_uid(uid)).with_admin().with_origin(origin);
        Self { sandboxes, workflows, caller }
    }

    /// The caller, for an operation that only reads.
    pub const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The caller with a new idempotency key, for an operation that changes something: however
    /// often it is sent, it is executed once.
    pub fn idempotent(&self) -> Caller {
        self.caller.clone().with_key(uuid::Uuid::now_v7().simple().to_string())
    }

    /// The caller with a given idempotency key, for an operation that an earlier attempt may already
    /// have requested under that key.
    pub fn idempotent_as(&self, name: &str) -> Caller {
        self.caller.clone().with_key(name.to_owned())
    }
}

/// Calls `act` with the operations on the sandboxes of the data directory.
pub fn with<T, F, Fut>(mode: ServerMode, act: F) -> Result<T, Failure>
where
    F: FnOnce(Remote) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    if let Some(server) = chosen::chosen() {
        if mode.in_process {
            let message =
                format!("`--in-process` works on this machine, and {} was chosen", server.url);
            return Err(Problem::new(Code::InvalidInput, message)
                .remedied_by("--in-process --server local")
                .into());
        }
        return block_on(async {
            let server = Arc::new(stockade_api::Remote(Reconnecting::at_url(server)?));
            act(Remote::new(Arc::clone(&server) as _, server)).await
        });
    }
    here(mode, act)
}

/// The same with the data directory, whatever server was chosen.
pub(crate) fn here<T, F, Fut>(mode: ServerMode, act: F) -> Result<T, Failure>
where
    F: FnOnce(Remote) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    if mode.in_process {
        return block_on(in_process(act));
    }
    block_on(async {
        let data = data_path()?;
        let server = stockade_api::Remote(Reconnecting::find_or_start(data).await?);
        let server = Arc::new(server);
        act(Remote::new(Arc::clone(&server) as _, server)).await
    })
}

/// Reports that a list of a cluster is not complete.
pub(crate) fn report_unreachable(what: &str, servers: &[String]) {
    for server in servers {
        eprint_line!("stockade: the server {server} has more {what}, and does not answer");
    }
}

/// The URL of the server that was chosen, if it is not that of the data directory.
#[must_use]
pub fn chosen_url() -> Option<String> {
    chosen::chosen().map(|server| server.url.to_string())
}

/// The operations on the sandboxes of the server that was chosen, or of the data directory. The server of
/// that is found or started with the first of them.
///
/// # Errors
/// If there is no data directory, or no connection to the server is possible.
pub fn on_demand() -> Result<Remote, Failure> {
    if let Some(server) = chosen::chosen() {
        let server = Arc::new(stockade_api::Remote(Reconnecting::at_url(server)?));
        return Ok(Remote::new(Arc::clone(&server) as _, server));
    }
    let data = data_path()?;
    let directory = crate::data_dir::open_data_dir(&data)?;
    let directory = stockade_client::ServerDirectory::open(directory.as_fd(), &data)?;
    let server = Arc::new(stockade_api::Remote(Reconnecting::of(data, directory)));
    Ok(Remote::new(Arc::clone(&server) as _, server))
}

async fn in_process<T, F, Fut>(act: F) -> Result<T, Failure>
where
    F: FnOnce(Remote) -> Fut,
    Fut: Future<Output = Result<T, Failure>>,
{
    let launch = LAUNCH.get().ok_or_else(|| {
        Problem::new(Code::Unsupported, "this program has no operations in its own process")
    })?;
    let LocalServices { sandboxes, workflows, end } = launch().await?;
    let answer = act(Remote::new(sandboxes, workflows)).await;
    end.await;
    answer
}

/// Waits for a task that runs in this thread.
///
/// # Errors
/// Those of the task.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| caused(Code::Io, &error))?;
    let answer = tokio.block_on(work);
    // A thread may wait for standard input forever.
    tokio.shutdown_background();
    answer
}
