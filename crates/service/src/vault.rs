//! The vault: its key, which is not in the data directory and is read once, and the problems of its
//! secrets. `delivery` gives secrets to operations.

use std::sync::Arc;
use std::time::Duration;

use stockade_api::Result;
use stockade_core::{Code, Problem};
use stockade_vault::{Error, MasterKey};
use tokio::sync::Mutex;

use crate::key_source::KeySource;

/// How long the source of the key may take.
const KEY_TIMEOUT: Duration = Duration::from_secs(10);

/// The vault's key, once it was read.
#[derive(Debug)]
pub(crate) struct Vault {
    source: Option<Arc<dyn KeySource>>,
    timeout: Duration,
    key: Mutex<Option<MasterKey>>,
}

impl Vault {
    /// A vault whose key comes from there; it answers within the deadline.
    pub(crate) fn new(source: Option<Arc<dyn KeySource>>, deadline: Duration) -> Self {
        Self { source, timeout: KEY_TIMEOUT.min(deadline), key: Mutex::new(None) }
    }

    /// The key.
    ///
    /// # Errors
    /// [`Code::SecretBackendUnavailable`], within a bounded time.
    pub(crate) async fn key(&self, create: bool) -> Result<MasterKey> {
        let source = self.source.as_ref().ok_or_else(|| {
            unavailable("this server has no vault")
                .because("no file or command for its key is configured")
        })?;
        let reading = async {
            let mut known = self.key.lock().await;
            if let Some(key) = &*known {
                return Ok(key.clone());
            }
            let key = source.key(create).await?;
            *known = Some(key.clone());
            Ok(key)
        };
        let late = |_| Err(unavailable("the source of the vault's key does not answer"));
        tokio::time::timeout(self.timeout, reading).await.unwrap_or_else(late)
    }
}

/// The vault cannot be used now.
pub(crate) fn unavailable(message: &str) -> Problem {
    Problem::new(Code::SecretBackendUnavailable, message)
}

/// The problem of a secret.
pub(crate) fn vault_problem(error: Error) -> Problem {
    error.into()
}
