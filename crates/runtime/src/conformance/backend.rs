//! What the tests of a backend give to the suite.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use stockade_core::{SandboxId, SandboxSpec};

use crate::runtime::{Runtime, Target};

/// A backend under test, one for each case.
#[async_trait]
pub trait Backend: Debug + Send + Sync {
    /// A new client of the backend. All clients of one value hold the same sandboxes; the suite
    /// drops a client to lose it.
    ///
    /// # Errors
    /// Why there is none, in words; it fails the case.
    async fn open(&self) -> Result<Arc<dyn Runtime>, String>;

    /// What a case's sandboxes are made from, where it does not say more.
    fn spec(&self) -> SandboxSpec {
        SandboxSpec::default()
    }

    /// Whether a POSIX shell and the core utilities are inside, and why not.
    ///
    /// # Errors
    /// The reason with which cases are skipped.
    fn shell(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether [`Backend::serve`] works, and why not.
    ///
    /// # Errors
    /// The reason with which cases are skipped.
    fn server(&self) -> Result<(), String> {
        Err("these tests bring no server to be started inside".to_owned())
    }

    /// Starts a server inside that takes any number of connections, sends back on each whatever
    /// comes, and closes it when the other side has ended. It need not listen yet when this
    /// returns.
    async fn serve(&self, _runtime: &dyn Runtime, _id: &SandboxId, _target: &Target) {}

    /// Whether [`Backend::kill_holder`] works, and why not.
    ///
    /// # Errors
    /// The reason with which cases are skipped.
    fn holder(&self) -> Result<(), String> {
        Err("nothing that could be killed holds the sandboxes".to_owned())
    }

    /// Kills the process that holds the sandboxes, and waits until it is gone. It is not replaced
    /// before a client wants something.
    async fn kill_holder(&self) {}

    /// What is left on the host of sandboxes that were removed, in words.
    async fn leftovers(&self) -> Vec<String> {
        Vec::new()
    }

    /// Ends what [`Backend::open`] has started. No client is used any more.
    async fn close(&self) {}
}
