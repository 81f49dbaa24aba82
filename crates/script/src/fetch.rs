//! The guarded fetch: the host makes HTTP requests for a program. Each URL is checked, also that of
//! every redirect; its host is resolved here; and the connection is made to the checked address, so
//! that a second DNS response has no effect.

mod connect;
mod exchange;
mod guard;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use stockade_core::address::hosts::Hosts;
use url::Url;

pub use connect::{Connect, Direct, Stream};
pub use guard::{Resolve, SystemResolver};

use crate::realm_host::{Redirect, Request, Response};
use guard::Guard;

/// The most redirects that are followed, as in browsers (Fetch Standard, 4.4).
const MAX_REDIRECTS: usize = 20;

/// The limits of one fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The size of a request body, in bytes.
    pub request_bytes: usize,
    /// The size of a response body, in bytes.
    pub response_bytes: usize,
    /// The time from the first lookup to the last byte.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request_bytes: 1 << 20, response_bytes: 4 << 20, timeout: Duration::from_secs(10) }
    }
}

/// Why there is no response. The texts are for the requesting program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The URL is not allowed, for this reason.
    #[error("sandbox: outbound fetch blocked — {0}")]
    Blocked(String),
    /// The request itself is invalid.
    #[error("fetch failed: {0}")]
    Invalid(String),
    /// The host cannot be resolved or reached, or its response is invalid.
    #[error("fetch failed: {0}")]
    Network(String),
    /// The request or response is larger than the limit.
    #[error("fetch failed: the {what} is larger than {limit_bytes} bytes")]
    TooLarge {
        /// `request` or `response`.
        what: &'static str,
        /// The limit.
        limit_bytes: usize,
    },
    /// It timed out.
    #[error("fetch failed: no response after {} ms", .0.as_millis())]
    Timeout(Duration),
    /// It was redirected although redirects are not allowed, or too often.
    #[error("fetch failed: {0}")]
    Redirected(&'static str),
}

/// Sends one request of the host itself, to a server that its user has named. Its address is not checked, and a
/// redirect is the response: what is sent may be for this server only.
///
/// # Errors
/// Why there is no response.
pub async fn send(
    connect: &dyn Connect,
    mut request: Request,
    limits: Limits,
) -> Result<Response, Error> {
    exchange::check(&mut request)?;
    if request.body.as_ref().is_some_and(|body| body.len() > limits.request_bytes) {
        return Err(Error::TooLarge { what: "request", limit_bytes: limits.request_bytes });
    }
    let url = Url::parse(&request.url).map_err(|error| Error::Invalid(error.to_string()))?;
    let exchanged = async {
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let network = |error: std::io::Error| Error::Network(format!("{host}: {error}"));
        let addresses: Vec<_> =
            tokio::net::lookup_host((bare, port)).await.map_err(network)?.collect();
        let stream = connect.connect(&url, &addresses).await.map_err(network)?;
        exchange::exchange(stream, &url, &request, limits.response_bytes).await
    };
    let exchanged = tokio::time::timeout(limits.timeout, exchanged).await;
    exchanged.unwrap_or(Err(Error::Timeout(limits.timeout)))
}

/// Makes requests for programs, under one policy.
#[derive(Debug, Clone)]
pub struct Fetcher {
    guard: Guard,
    connect: Arc<dyn Connect>,
    limits: Limits,
}

impl Fetcher {
    /// A fetcher for these hosts, with the system's resolver and certificates.
    pub fn new(hosts: Hosts) -> Self {
        Self::with(hosts, Arc::new(SystemResolver), Arc::new(Direct::default()), Limits::default())
    }

    /// A fetcher for these hosts, with this resolver and connector.
    pub fn with(
        hosts: Hosts,
        resolve: Arc<dyn Resolve>,
        connect: Arc<dyn Connect>,
        limits: Limits,
    ) -> Self {
        Self { guard: Guard { hosts, resolve }, connect, limits }
    }

    /// Sends a request, and reads the whole response.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn fetch(&self, request: Request) -> Result<Response, Error> {
        let timeout = self.limits.timeout;
        let fetched = tokio::time::timeout(timeout, Box::pin(self.follow(request))).await;
        fetched.unwrap_or(Err(Error::Timeout(timeout)))
    }

    async fn follow(&self, mut request: Request) -> Result<Response, Error> {
        exchange::check(&mut request)?;
        if request.body.as_ref().is_some_and(|body| body.len() > self.limits.request_bytes) {
            let limit_bytes = self.limits.request_bytes;
            return Err(Error::TooLarge { what: "request", limit_bytes });
        }
        let mut url = self.guard.check(&request.url)?;
        let mut redirected = false;
        for _ in 0..=MAX_REDIRECTS {
            let addresses = self.guard.resolve(&url).await?;
            let stream = self.connect.connect(&url, &addresses).await;
            let stream = stream.map_err(|error| Error::Network(error.to_string()))?;
            let limit = self.limits.response_bytes;
            let mut response = exchange::exchange(stream, &url, &request, limit).await?;
            response.url = url.clone().into();
            response.redirected = redirected;
            let Some(place) = exchange::redirect(&response) else { return Ok(response) };
            match request.redirect {
                Redirect::Manual => return Ok(response),
                Redirect::Error => {
                    return Err(Error::Redirected("it is redirected to another URL"));
                }
                Redirect::Follow => {}
            }
            // Relative to the redirecting URL; checked like the first URL.
            let next = url.join(place).map_err(|error| Error::Network(error.to_string()))?;
            let next = self.guard.check(next.as_str())?;
            exchange::apply_redirect(&mut request, response.status, url.origin() == next.origin());
            url = next;
            redirected = true;
        }
        Err(Error::Redirected("it is redirected too many times"))
    }
}
