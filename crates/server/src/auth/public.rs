//! Ports that the owner of a sandbox has opened to everyone who knows the sandbox's id, which cannot be guessed. A request
//! without a token is then treated as one with the token of the owner, so it ends with the owner's key.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use stockade_core::SandboxId;
use tokio::sync::OnceCell;

/// The metadata of a sandbox whose ports are public.
pub(crate) const PUBLIC: &str = "e2b.dev/public-traffic";
/// How many sandboxes with public ports are kept.
const SANDBOXES: usize = 1 << 16;

/// The tokens of sandboxes whose ports are public.
#[derive(Debug, Default)]
pub(super) struct PublicPorts {
    known: Mutex<BTreeMap<SandboxId, String>>,
    /// Set once those from before the start of the server are known.
    pub(super) loaded: OnceCell<()>,
}

impl PublicPorts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SandboxId, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, id: &SandboxId, token: String) {
        let mut known = self.lock();
        if known.len() >= SANDBOXES && !known.contains_key(id) {
            known.pop_first();
        }
        known.insert(id.clone(), token);
    }

    pub(super) fn token(&self, id: &SandboxId) -> Option<String> {
        self.lock().get(id).cloned()
    }
}
