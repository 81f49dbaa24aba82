//! The guarded fetch: what a program may have from the network, fetched by the host for it. Each URL
//! is checked, that of every redirect too; its host is resolved here; and the address that was
//! checked is the one that is connected to, so that no second answer of a name server counts.

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

pub use connect::{Connect, Direct, Stream};
pub use guard::{Resolve, SystemResolver};

use crate::outside::{Redirect, Request, Response};
use guard::Guard;

/// Redirects that are followed, as browsers do (Fetch Standard, 4.4).
const MAX_REDIRECTS: usize = 20;

/// What one fetch may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that are sent as a body.
    pub request_bytes: usize,
    /// Bytes of a response's body.
    pub response_bytes: usize,
    /// From the first lookup to the last byte.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request_bytes: 1 << 20, response_bytes: 4 << 20, timeout: Duration::from_secs(10) }
    }
}

/// Why there is no response. The texts are for the program that asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It may not be fetched, for this reason.
    #[error("sandbox: outbound fetch blocked — {0}")]
    Blocked(String),
    /// The request itself is wrong.
    #[error("fetch failed: {0}")]
    Invalid(String),
    /// The host cannot be resolved, reached or understood.
    #[error("fetch failed: {0}")]
    Network(String),
    /// More was sent or answered than the limit.
    #[error("fetch failed: the {what} is larger than {limit_bytes} bytes")]
    TooLarge {
        /// `request` or `response`.
        what: &'static str,
        /// The limit.
        limit_bytes: usize,
    },
    /// It took too long.
    #[error("fetch failed: no response after {} ms", .0.as_millis())]
    Timeout(Duration),
    /// It was redirected, and was not to be, or too often.
    #[error("fetch failed: {0}")]
    Redirected(&'static str),
}

/// Fetches for programs, by one policy.
#[derive(Debug, Clone)]
pub struct Fetcher {
    guard: Guard,
    connect: Arc<dyn Connect>,
    limits: Limits,
}

impl Fetcher {
    /// What fetches from these hosts, with the system's resolver and certificates.
    pub fn new(hosts: Hosts) -> Self {
        Self::with(hosts, Arc::new(SystemResolver), Arc::new(Direct::default()), Limits::default())
    }

    /// What fetches from these hosts by these ways to resolve and to connect.
    pub fn with(
        hosts: Hosts,
        resolve: Arc<dyn Resolve>,
        connect: Arc<dyn Connect>,
        limits: Limits,
    ) -> Self {
        Self { guard: Guard { hosts, resolve }, connect, limits }
    }

    /// Fetches, and reads the response whole.
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
            // Relative to where it came from; judged as if it had been asked for.
            let next = url.join(place).map_err(|error| Error::Network(error.to_string()))?;
            let next = self.guard.check(next.as_str())?;
            exchange::turn(&mut request, response.status, url.origin() == next.origin());
            url = next;
            redirected = true;
        }
        Err(Error::Redirected("it is redirected too many times"))
    }
}
