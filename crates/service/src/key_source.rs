//! Where the key of the vault comes from.

use std::fmt::Debug;

use async_trait::async_trait;
use stockade_api::Result;
use stockade_vault::MasterKey;

/// Where the key of the vault comes from.
#[async_trait]
pub trait KeySource: Debug + Send + Sync {
    /// The key. `create` says whether one may be made if there is none.
    async fn key(&self, create: bool) -> Result<MasterKey>;
}
