//! Where the addresses of names come from, on the host's side.

use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::network::Name;

/// What is known of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// All of its addresses, at least one.
    pub addresses: Vec<IpAddr>,
    /// For how long that may be believed.
    pub valid: Duration,
}

/// Why a name has no addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// There is no such name.
    #[error("there is no such name")]
    NoSuchName,
    /// The name exists and has no address.
    #[error("it has no address")]
    NoAddress,
    /// Nobody could say in time, or at all.
    #[error("{0}")]
    Failed(String),
}

/// Finds the addresses of names.
#[async_trait]
pub trait Resolve: std::fmt::Debug + Send + Sync {
    /// The addresses of a name. The caller sets the deadline.
    ///
    /// # Errors
    /// Why there are none.
    async fn resolve(&self, name: &Name) -> Result<Found, NotFound>;
}
