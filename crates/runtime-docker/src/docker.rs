//! The operations of the runtime: what the engine must do around those of the keeper.

mod create;
mod delegate;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use stockade_core::{SandboxId, SnapshotId};
use stockade_runtime::{Error, Result, Runtime as _};
use stockade_runtime_native::{self as native, Native};
use tokio::sync::OnceCell;

use crate::address::{Address, AddressError};
use crate::engine::Engine;
use crate::labels::Owner;
use crate::leftovers;

/// The directory of the runtime, below the data directory. It has a keeper of its own.
const DIRECTORY: &str = "runtime-docker";

/// How the sandboxes of a data directory are run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data directory.
    pub data: PathBuf,
    /// The keeper's program with its arguments.
    pub keeper: Vec<OsString>,
    /// Stockade's own programs. A container in which one is mounted gets a copy that runs in any
    /// image.
    pub programs: Vec<PathBuf>,
    /// The id of this build.
    pub build: String,
    /// How long the engine may take for one request.
    pub deadline: std::time::Duration,
    /// Where the engine listens, or why no engine can be used.
    pub address: std::result::Result<Address, AddressError>,
}

/// Sandboxes that are containers of an engine on this machine.
#[derive(Debug, Clone)]
pub struct Docker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: Options,
    engine: std::result::Result<Engine, AddressError>,
    opened: OnceCell<Opened>,
}

/// What exists once the runtime was used.
#[derive(Debug)]
struct Opened {
    native: Native,
    owner: Owner,
    /// The directory of the runtime.
    directory: PathBuf,
}

impl Docker {
    /// The sandboxes of a data directory. Nothing is connected or started before it is needed.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let engine = options.address.clone();
        let engine = engine.map(|address| Engine::new(address, options.deadline));
        Self(Arc::new(Shared { options, engine, opened: OnceCell::new() }))
    }

    fn engine(&self) -> Result<&Engine> {
        self.0.engine.as_ref().map_err(|AddressError { reason, remedy }| Error::Unavailable {
            what: "the Docker engine".to_owned(),
            reason: reason.clone(),
            remedy: remedy.clone(),
        })
    }

    fn directory(&self) -> PathBuf {
        self.0.options.data.join(DIRECTORY)
    }

    async fn opened(&self) -> Result<&Opened> {
        self.0
            .opened
            .get_or_try_init(|| async {
                let Options { keeper, build, .. } = &self.0.options;
                let directory = self.directory();
                let failed = |source| Error::Host { path: directory.display().to_string(), source };
                let options =
                    native::Options { data: directory.clone(), keeper: keeper.clone(), pool: 0 };
                let native = Native::open(options)?;
                let owner = Owner::open(&directory, build.clone()).map_err(failed)?;
                Ok(Opened { native, owner, directory: directory.clone() })
            })
            .await
    }

    async fn native(&self) -> Result<&Native> {
        Ok(&self.opened().await?.native)
    }

    /// Whether no sandbox was ever created here. Then nothing has to be asked or started.
    fn is_unused(&self) -> bool {
        self.0.opened.get().is_none() && !self.directory().exists()
    }

    /// Removes what a killed process or engine has left in the engine.
    async fn sweep(&self) -> Result<()> {
        let (engine, Opened { native, owner, directory }) = (self.engine()?, self.opened().await?);
        let containers = leftovers::containers(engine, owner).await?;
        let mut unknown = Vec::new();
        for id in containers {
            // Another process may be creating it at this moment.
            let Some(_lock) = create::Lock::attempt(directory, id.as_str())? else { continue };
            match native.inspect(&id).await {
                Err(Error::NoSandbox(_)) => unknown.push(id),
                other => drop(other?),
            }
        }
        leftovers::remove_containers(engine, owner, unknown).await?;
        leftovers::remove_volumes(engine, owner).await?;
        self.sweep_images().await
    }

    /// Removes the images of snapshots that do not exist and that no container uses.
    async fn sweep_images(&self) -> Result<()> {
        let (engine, Opened { native, owner, directory }) = (self.engine()?, self.opened().await?);
        for (image, snapshot) in leftovers::images(engine, owner).await? {
            // One that is being taken has its image already, and is not listed yet.
            let Some(_lock) = create::Lock::attempt(directory, &lock_of_snapshot(&snapshot))?
            else {
                continue;
            };
            let known = native.snapshots().await?.into_iter().any(|info| info.id == snapshot);
            if !known {
                crate::image::remove(engine, &image).await?;
            }
        }
        Ok(())
    }

    /// Removes the container of a sandbox that the keeper does not have any more.
    async fn remove_container(&self, id: &SandboxId) -> Result<()> {
        let name = self.opened().await?.owner.container(id);
        crate::container::remove(self.engine()?, &name).await
    }
}

/// The name of the lock of a snapshot. No id of a sandbox starts with a dot.
fn lock_of_snapshot(id: &SnapshotId) -> String {
    format!(".snapshot-{id}")
}
