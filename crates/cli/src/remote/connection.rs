//! A server that is already running, for commands that work without one and therefore start none.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use stockade_client::ServerDirectory;
use stockade_core::{Code, Problem};

use super::Remote;
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
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| caused(Code::Io, &error))?;
        let server = Arc::new(stockade_api::Remote(Reconnecting::of(data, directory)));
        let remote = Remote::new(Arc::clone(&server) as _, server);
        Ok(Some(Self { tokio, remote }))
    }

    /// Calls `act` with its operations.
    pub(crate) fn call<T>(&self, act: impl AsyncFnOnce(&Remote) -> T) -> T {
        self.tokio.block_on(act(&self.remote))
    }
}
