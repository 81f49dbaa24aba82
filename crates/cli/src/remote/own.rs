//! The service in this very process, for as long as one command takes.
//!
//! Inside a confinement, where no sandbox can be made, and for the child of a `<Sandbox>`, which has
//! none, there are runs of workflows and nothing else: no runtime, no keeper. That a process is
//! confined is asked of the kernel (`stockade_jail::confined`), and neither a variable nor an
//! argument can say it. That it was us who confined it, a variable says besides: a container that is
//! confined by others may have a network and files that are not to be reached.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stockade_api::{Nowhere, Sandboxes};
use stockade_core::{Code, Problem};
use stockade_durable::Store;
use stockade_durable::sqlite::Synchronous;
use stockade_jail::confined;
use stockade_jail::network::PROXY_PORT;
use stockade_service::Service;
use stockade_workflow::engine::{Inside, Workflows};

use super::Remote;
use crate::problem::caused;
use crate::server::{self, ENDING, Place, Settings};

/// The variable that processes in our sandboxes find in their environment.
const OURS: &str = "STOCKADE";
/// How long a connection to our own loopback may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The child of a `<Sandbox>`, which has no sandboxes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Child<'a> {
    /// The directory with its state.
    pub(crate) state: &'a Path,
    /// Where it asks the host for sandboxes, if it may.
    pub(crate) nested: Option<&'a Path>,
}

/// A service of our own, and the lock that keeps servers away from its data.
#[derive(Debug)]
pub(super) struct Own {
    /// None where there are no sandboxes.
    service: Option<Service>,
    workflows: Workflows,
    store: Arc<dyn Store>,
    _lock: File,
}

impl Own {
    /// Starts it, on the usual data directory or, with no sandboxes, on that of a child.
    ///
    /// # Errors
    /// [`Code::Conflict`] while another process has the data directory.
    pub(super) async fn launch(child: Option<Child<'_>>) -> Result<Self, Problem> {
        // Commands are executed beside this process only where the kernel says that it is confined.
        let is_confined = confined::is_within();
        let is_ours = is_confined && std::env::var_os(OURS).is_some();
        let inside = is_ours.then(|| Inside::default().reaching(reaches()));
        let (data, has_sandboxes, inside) = match child {
            Some(Child { state, nested }) => {
                // The child of a `<Sandbox>` has its file in the request, and its work where it is.
                let here = std::env::current_dir().map_err(|error| caused(Code::Io, &error))?;
                let at = || Inside::at(here, nested.map(Path::to_owned)).reaching(reaches());
                let inside = inside.map(|_| at());
                (state.to_owned(), false, inside)
            }
            None if is_confined => (place_within()?, false, inside),
            None => (crate::run::data_path()?, true, None),
        };
        let lock = Place::open(&data)?.lock()?.ok_or_else(|| {
            Problem::new(Code::Conflict, "another process has the data directory")
                .because(format!("a server, or a command like this one, uses {}", data.display()))
                .remedied_by("leave `--in-process` out: the server does it")
        })?;
        let realms = server::processes::realms();
        if !has_sandboxes {
            // A child's run needs one, and it is there when the store is.
            realms.prepare();
        }
        // A sandbox does not outlive the loss of power, and so no more does what is in it.
        let synchronous = if has_sandboxes { Synchronous::Full } else { Synchronous::Off };
        let store = server::store(&data, synchronous).await?;
        let service = if has_sandboxes {
            let settings = Settings::from_environment()?;
            Some(server::launch(&data, &settings, Arc::clone(&store)).await?)
        } else {
            None
        };
        let workflows =
            server::launch_workflows(&data, realms, Arc::clone(&store), service.as_ref(), inside)
                .await?;
        Ok(Self { service, workflows, store, _lock: lock })
    }

    /// Its operations.
    pub(super) fn remote(&self) -> Result<Remote, Problem> {
        let sandboxes: Arc<dyn Sandboxes> = match &self.service {
            Some(service) => Arc::new(service.clone()),
            None => Arc::new(stockade_api::Remote(Nowhere(no_sandboxes()))),
        };
        Remote::new(sandboxes, Arc::new(self.workflows.clone()))
    }

    /// Ends it. What lives on is found by whoever is next.
    pub(super) async fn end(self) {
        let service = async {
            if let Some(service) = &self.service {
                service.shutdown(ENDING).await;
            }
        };
        tokio::join!(service, self.workflows.shutdown(ENDING));
        // Whoever reads the file next finds it whole.
        let _ = self.store.close().await;
    }
}

/// Whether there is a way out of the network of the sandbox that is around this process: its proxy
/// listens at a port that nobody inside can have.
fn reaches() -> bool {
    let proxy = SocketAddr::from(([127, 0, 0, 1], PROXY_PORT));
    TcpStream::connect_timeout(&proxy, PATIENCE).is_ok()
}

fn no_sandboxes() -> Problem {
    Problem::new(Code::Unsupported, "there are no sandboxes inside a confinement")
        .because("this process is confined by somebody else, and may make no namespaces")
        .remedied_by("use the command outside")
}

/// Where data is kept inside a confinement unless it is said: never in a workspace, whose changes
/// are looked at when the sandbox has ended.
fn place_within() -> Result<PathBuf, Problem> {
    if let Some(named) = crate::run::named_data_path()? {
        return Ok(named);
    }
    let user = rustix::process::geteuid().as_raw();
    let path = PathBuf::from(format!("/tmp/stockade-{user}"));
    let made = fs::DirBuilder::new().mode(0o700).create(&path);
    let found = made.or_else(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    });
    let found = found.and_then(|()| fs::symlink_metadata(&path));
    let found = found.map_err(|error| caused(Code::Io, &error))?;
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        return Ok(path);
    }
    let message = format!("{} belongs to somebody else, or others can enter it", path.display());
    Err(Problem::new(Code::Io, message)
        .remedied_by("export STOCKADE_DATA_DIR=/a/directory/of/your/own"))
}
