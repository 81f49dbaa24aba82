//! How a client gets a connection to its server.

use std::fmt::Debug;
use std::path::PathBuf;

use async_trait::async_trait;
use stockade_api::{Duplex, Result};
use tokio::net::UnixStream;

use crate::unreachable;

/// Makes connections to one server.
#[async_trait]
pub trait Dial: Debug + Send + Sync {
    /// A new connection, on which one request is sent.
    ///
    /// # Errors
    /// [`Code::Unreachable`](stockade_core::Code::Unreachable) when there is none, or another code if
    /// trying again cannot help.
    async fn dial(&self) -> Result<Box<dyn Duplex>>;
}

/// The socket of a data directory.
#[derive(Debug)]
pub(crate) struct LocalSocket(pub(crate) PathBuf);

#[async_trait]
impl Dial for LocalSocket {
    async fn dial(&self) -> Result<Box<dyn Duplex>> {
        Ok(Box::new(UnixStream::connect(&self.0).await.map_err(unreachable)?))
    }
}
