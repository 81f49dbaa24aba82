//! Decides which hosts a program may reach: the host policy, then the rules on URLs and addresses
//! in `core`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use stockade_core::address::hosts::Hosts;
use stockade_core::address::url::{check, check_resolved};
use url::{Host, Url};

use super::Error;

/// Resolves names.
#[async_trait]
pub trait Resolve: std::fmt::Debug + Send + Sync {
    /// All addresses of a name.
    ///
    /// # Errors
    /// Why there are none.
    async fn resolve(&self, name: &str) -> std::io::Result<Vec<IpAddr>>;
}

/// Resolves names with the configuration of the system (`getaddrinfo(3)`).
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, name: &str) -> std::io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((name, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// The checks before a connection is opened.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    pub(super) hosts: Hosts,
    pub(super) resolve: Arc<dyn Resolve>,
}

impl Guard {
    /// Parses a URL, and does all checks that need no name resolution.
    pub(super) fn check(&self, url: &str) -> Result<Url, Error> {
        let url = check(url).map_err(|refused| Error::Blocked(refused.to_string()))?;
        let host = url.host_str().unwrap_or_default();
        if !self.hosts.allow(host) {
            return Err(Error::Blocked(format!("hostname \"{host}\" is not allowed here")));
        }
        Ok(url)
    }

    /// The addresses of a URL's host, all of which are public.
    pub(super) async fn resolve(&self, url: &Url) -> Result<Vec<SocketAddr>, Error> {
        let addresses = match url.host() {
            Some(Host::Ipv4(address)) => vec![IpAddr::V4(address)],
            Some(Host::Ipv6(address)) => vec![IpAddr::V6(address)],
            Some(Host::Domain(name)) => {
                let found = self.resolve.resolve(name).await;
                let found = found
                    .map_err(|error| Error::Network(format!("cannot resolve {name}: {error}")))?;
                check_resolved(name, &found)
                    .map_err(|refused| Error::Blocked(refused.to_string()))?;
                found
            }
            None => Vec::new(),
        };
        let port = url.port_or_known_default().unwrap_or_default();
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }
}
