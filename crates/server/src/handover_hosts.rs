//! [`Hosts`]: what is asked about the other servers of a cluster, to which requests are handed over.

use std::fmt::Debug;

use async_trait::async_trait;
use stockade_api::{Duplex, Problem};
use stockade_core::SandboxId;

/// The servers of the cluster.
#[async_trait]
pub trait Hosts: Debug + Send + Sync {
    /// The id of the server that holds a sandbox, if it is another one that answers.
    ///
    /// # Errors
    /// If the database cannot be read.
    async fn of_sandbox(&self, id: &SandboxId) -> Result<Option<String>, Problem>;

    /// A connection to another server.
    ///
    /// # Errors
    /// [`Code::Unreachable`] if it does not answer.
    async fn connect(&self, host: &str) -> Result<Box<dyn Duplex>, Problem>;
}
