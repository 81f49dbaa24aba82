//! What the tests of a backend must provide for the suite.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use stockade_core::{SandboxId, SandboxSpec};

use crate::runtime::{Runtime, Target};

/// A backend under test, one for each case.
#[async_trait]
pub trait Backend: Debug + Send + Sync {
    /// A new client of the backend. All clients of one value share the same sandboxes; the suite
    /// simulates the loss of a client by dropping it.
    ///
    /// # Errors
    /// Why there is none, as text; it fails the case.
    async fn open(&self) -> Result<Arc<dyn Runtime>, String>;

    /// The spec of a case's sandboxes, if the case does not set more.
    fn spec(&self) -> SandboxSpec {
        SandboxSpec::default()
    }

    /// Whether a POSIX shell and the core utilities are inside.
    ///
    /// # Errors
    /// The reason with which cases are skipped.
    fn shell(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether a command waits while nobody reads its output.
    ///
    /// # Errors
    /// The reason with which cases are skipped.
    fn pipes(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether the end by a signal differs from an exit code.
    ///
    /// # Errors
    /// The reason with which cases are skipped.
    fn processes(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether a path may have any bytes, and a tree can be copied as a stream.
    ///
    /// # Errors
    /// The reason with which cases are skipped.
    fn raw_paths(&self) -> Result<(), String> {
        Ok(())
    }

    /// Whether [`Backend::serve`] works.
    ///
    /// # Errors
    /// The reason with which cases are skipped.
    fn server(&self) -> Result<(), String> {
        Err("these tests bring no server to be started inside".to_owned())
    }

    /// Starts a server inside that accepts any number of connections, returns all bytes on each,
    /// and closes it when the other side has sent its end. It need not listen yet when this
    /// returns.
    async fn serve(&self, _runtime: &dyn Runtime, _id: &SandboxId, _target: &Target) {}

    /// Whether [`Backend::kill_holder`] works.
    ///
    /// # Errors
    /// The reason with which cases are skipped.
    fn holder(&self) -> Result<(), String> {
        Err("nothing that could be killed holds the sandboxes".to_owned())
    }

    /// Kills the process that holds the sandboxes, and waits until it has ended. It is not
    /// restarted before a client needs it.
    async fn kill_holder(&self) {}

    /// What is left on the host of sandboxes that were removed, as text.
    async fn leftovers(&self) -> Vec<String> {
        Vec::new()
    }

    /// Stops what [`Backend::open`] has started. No client is used afterwards.
    async fn close(&self) {}
}
