//! How the addresses of names are found, on the host.

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::network::Name;

/// The addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// All of its addresses, at least one.
    pub addresses: Vec<IpAddr>,
    /// How long they are valid.
    pub valid: Duration,
}

/// Why a name has no addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// There is no such name.
    #[error("there is no such name")]
    NoSuchName,
    /// The name exists, but has no address.
    #[error("it has no address")]
    NoAddress,
    /// No name server answered in time, or the lookup failed.
    #[error("{0}")]
    Failed(String),
}

/// Finds the addresses of names.
#[async_trait]
pub trait Resolve: std::fmt::Debug + Send + Sync {
    /// The addresses of a name. The caller sets a timeout.
    ///
    /// # Errors
    /// Why there are none.
    async fn resolve(&self, name: &Name) -> Result<Resolution, NotFound>;
}
