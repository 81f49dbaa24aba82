//! The certificates that programs in a sandbox with secrets must trust. Each egress process has its
//! own authority, whose key never leaves it; so the file with the certificates is written again for
//! the next process.

use std::sync::Arc;
use std::time::Duration;

use stockade_api::Result;
use stockade_core::SandboxId;
use stockade_runtime::{Error, Runtime};
use tokio::sync::Mutex;

use crate::failure::runtime_problem;

/// The certificates for one sandbox.
#[derive(Debug, Clone, Default)]
pub(super) struct Trusted {
    /// Counts how often they were changed; 0 if there are no others than the system's.
    number: u64,
    /// All of them, as PEM.
    text: Arc<str>,
    /// The number of those that are in the sandbox. Locked while they are written.
    delivered: Arc<Mutex<u64>>,
}

impl Trusted {
    /// Replaces them.
    pub(super) fn set(&mut self, text: String) {
        if *self.text != *text {
            self.number += 1;
            self.text = text.into();
        }
    }

    /// Whether there are others than the system's.
    pub(super) const fn is_set(&self) -> bool {
        self.number > 0
    }

    /// Forgets that they are in the sandbox.
    pub(super) fn forget_delivery(&mut self) {
        self.delivered = Arc::default();
    }

    /// Writes them into a sandbox, unless they are there.
    pub(super) async fn deliver(
        &self,
        runtime: &dyn Runtime,
        id: &SandboxId,
        deadline: Duration,
    ) -> Result<()> {
        let writing = async {
            let mut delivered = self.delivered.lock().await;
            if *delivered < self.number {
                runtime.trust(id, &self.text).await?;
                *delivered = self.number;
            }
            Ok(())
        };
        let written = tokio::time::timeout(deadline, writing).await;
        let written = written.unwrap_or(Err(Error::Deadline("change a sandbox")));
        written.map_err(|error| runtime_problem(&error))
    }
}
