//! A server that is already running, for commands that work without one and therefore start none, or one
//! at a URL.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use stockade_client::ServerDirectory;
use stockade_core::{Code, Problem};

use super::Remote;
use super::chosen::ChosenServer;
use super::reconnecting::Reconnecting;
use crate::problem::caused;
use crate::programs::BUILD;

/// The connection to the server.
#[derive(Debug)]
pub(crate) struct Connection {
    tokio: tokio::runtime::Runtime,
    remote: Remote,
}

impl Connection {
    /// The server of the data directory, if one listens.
    ///
    /// # Errors
    /// [`Code::Io`] when other users have access to the directory of the server, [`Code::Unsupported`]
    /// when the server is of another build.
    pub(crate) fn find() -> Result<Option<Self>, Problem> {
        let data = crate::data_dir::data_path()?;
        let Some(directory) = crate::data_dir::find_data_dir(&data)? else { return Ok(None) };
        let directory = ServerDirectory::find(directory.as_fd(), &data)?;
        let Some(directory) = directory else { return Ok(None) };
        if UnixStream::connect(directory.socket()).is_err() {
            return Ok(None);
        }
        directory.check_build(BUILD)?;
        Self::to(Reconnecting::of(data, directory)).map(Some)
    }

    /// The server at a URL. Nothing is sent yet.
    ///
    /// # Errors
    /// If the stored keys cannot be read, or the other program is missing.
    pub(crate) fn at_url(server: &ChosenServer) -> Result<Self, Problem> {
        Self::to(Reconnecting::at_url(server)?)
    }

    fn to(server: Reconnecting) -> Result<Self, Problem> {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| caused(Code::Io, &error))?;
        let server = Arc::new(stockade_api::Remote(server));
        let remote = Remote::new(Arc::clone(&server) as _, server);
        Ok(Self { tokio, remote })
    }

    /// Calls `act` with its operations.
    pub(crate) fn call<T>(&self, act: impl AsyncFnOnce(&Remote) -> T) -> T {
        self.tokio.block_on(act(&self.remote))
    }
}
