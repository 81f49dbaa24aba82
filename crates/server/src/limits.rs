//! The limits of each principal: requests in a minute, and bytes in a minute. What is above them is
//! refused with 429 and the time after which it may be tried again. Beside them, how much of the memory the
//! bodies of its requests take while they arrive.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use stockade_api::Problem;
use stockade_core::Code;

use crate::failure::Failure;

/// The period of the limits.
const PERIOD: Duration = Duration::from_secs(60);
/// Above this number of principals, those that have not sent requests for a while are forgotten.
const MAX_PRINCIPALS: usize = 10_000;
/// How many bytes of one principal's requests may wait in memory for the rest of their bodies.
const ARRIVING_BYTES: usize = 256 << 20;

/// The limits for one principal, in a minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// How many requests.
    pub requests: Option<NonZeroU32>,
    /// How many bytes of requests and responses.
    pub bytes: Option<u64>,
}

/// What principals have used. Its clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Usage(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    requests: Option<DefaultKeyedRateLimiter<String>>,
    bytes: Option<Bytes>,
    /// The bytes of each principal that wait in memory.
    arriving: Mutex<HashMap<String, usize>>,
}

/// The bytes of a body that wait in memory, until this is dropped.
#[derive(Debug)]
pub(crate) struct Arriving {
    usage: Usage,
    principal: String,
    bytes: usize,
}

impl Arriving {
    /// Counts more of them.
    ///
    /// # Errors
    /// If the principal has too many.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), Problem> {
        let mut all = self.usage.0.arriving.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(self.principal.clone()).or_default();
        if count.saturating_add(bytes) > ARRIVING_BYTES {
            let message = "too many bytes of requests wait for the rest of their bodies";
            return Err(Problem::new(Code::RateLimited, message)
                .because(format!("the server keeps at most {ARRIVING_BYTES} of each API key"))
                .remedied_by("complete other requests first, and send this one again"));
        }
        *count += bytes;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        let mut all = self.usage.0.arriving.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.principal) {
            *count -= self.bytes;
            if *count == 0 {
                all.remove(&self.principal);
            }
        }
    }
}

#[derive(Debug)]
struct Bytes {
    per_period: f64,
    principals: Mutex<HashMap<String, Bucket>>,
}

/// How many bytes a principal may use at a time. A request that has started may exceed it.
#[derive(Debug)]
struct Bucket {
    left: f64,
    since: Instant,
}

impl Bucket {
    fn refill(&mut self, per_period: f64, now: Instant) {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.left = (self.left + passed / PERIOD.as_secs_f64() * per_period).min(per_period);
        self.since = now;
    }
}

impl Usage {
    pub(crate) fn new(limits: Limits) -> Self {
        let requests = limits.requests.map(|count| RateLimiter::keyed(Quota::per_minute(count)));
        #[expect(clippy::cast_precision_loss, reason = "a limit need not be exact to the byte")]
        let bytes = limits.bytes.map(|bytes| Bytes {
            per_period: bytes as f64,
            principals: Mutex::new(HashMap::new()),
        });
        Self(Arc::new(Shared { requests, bytes, arriving: Mutex::default() }))
    }

    /// A body of a principal that waits in memory until all of it has arrived.
    pub(crate) fn arriving(&self, principal: &str) -> Arriving {
        Arriving { usage: self.clone(), principal: principal.to_owned(), bytes: 0 }
    }

    /// Admits a request of a principal.
    ///
    /// # Errors
    /// The problem, and after how long a request is admitted again.
    pub(crate) fn admit(&self, principal: &str) -> Result<(), (Problem, Duration)> {
        if let Some(requests) = &self.0.requests {
            if requests.len() > MAX_PRINCIPALS {
                requests.retain_recent();
            }
            if let Err(until) = requests.check_key(&principal.to_owned()) {
                let wait = until.wait_time_from(DefaultClock::default().now());
                return Err((limited("requests"), wait));
            }
        }
        if let Some(bytes) = &self.0.bytes {
            let left = bytes.change(principal, 0.0);
            if left <= 0.0 {
                let wait = -left / bytes.per_period * PERIOD.as_secs_f64();
                let wait = Duration::try_from_secs_f64(wait).unwrap_or(PERIOD);
                return Err((limited("bytes"), wait.max(Duration::from_secs(1))));
            }
        }
        Ok(())
    }

    /// Counts bytes of a principal's request or response.
    pub(crate) fn count(&self, principal: &str, bytes: usize) {
        if let Some(all) = &self.0.bytes {
            #[expect(clippy::cast_precision_loss, reason = "the size of a part of a body is small")]
            let bytes = bytes as f64;
            let _ = all.change(principal, bytes);
        }
    }
}

impl Bytes {
    /// Takes bytes from a principal, and returns how many are left.
    fn change(&self, principal: &str, bytes: f64) -> f64 {
        let now = Instant::now();
        let mut principals = self.principals.lock().unwrap_or_else(PoisonError::into_inner);
        if principals.len() > MAX_PRINCIPALS {
            principals.retain(|_, bucket| now.duration_since(bucket.since) < PERIOD);
        }
        let bucket = match principals.get_mut(principal) {
            Some(bucket) => bucket,
            None => principals
                .entry(principal.to_owned())
                .or_insert(Bucket { left: self.per_period, since: now }),
        };
        bucket.refill(self.per_period, now);
        bucket.left -= bytes;
        bucket.left
    }
}

fn limited(what: &str) -> Problem {
    Problem::new(Code::RateLimited, format!("too many {what} in a minute"))
        .because(format!("the server limits the {what} of each API key"))
}

/// The response to a request above a limit.
pub(crate) fn refusal((problem, wait): (Problem, Duration)) -> Response {
    retry_after(Failure(problem).into_response(), wait)
}

/// The response, which says after what time the request may be sent again.
pub(crate) fn retry_after(mut response: Response, wait: Duration) -> Response {
    // Rounded up, so that a client that waits as long is admitted.
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    if let Ok(value) = HeaderValue::try_from(seconds.to_string()) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_above_the_limit_are_refused_for_one_principal_only() {
        let usage = Usage::new(Limits { requests: NonZeroU32::new(3), bytes: None });
        for _ in 0..3 {
            usage.admit("a").unwrap();
        }
        let (problem, wait) = usage.admit("a").unwrap_err();
        assert_eq!(problem.code, Code::RateLimited);
        assert!(wait > Duration::ZERO && wait <= PERIOD, "{wait:?}");
        usage.admit("b").unwrap();
        let response = refusal((problem, Duration::from_millis(1500)));
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "2");
    }

    #[test]
    fn bytes_above_the_limit_refuse_the_next_request() {
        let usage = Usage::new(Limits { requests: None, bytes: Some(1000) });
        usage.admit("a").unwrap();
        usage.count("a", 5000);
        let (problem, wait) = usage.admit("a").unwrap_err();
        assert_eq!(problem.code, Code::RateLimited);
        assert!(wait > Duration::from_secs(200), "{wait:?}");
        usage.admit("b").unwrap();
    }

    #[test]
    fn bodies_that_arrive_take_a_limited_part_of_the_memory() {
        let usage = Usage::new(Limits::default());
        let mut first = usage.arriving("a");
        first.add(ARRIVING_BYTES - 1).unwrap();
        let mut second = usage.arriving("a");
        second.add(1).unwrap();
        assert_eq!(second.add(1).unwrap_err().code, Code::RateLimited);
        usage.arriving("b").add(1).unwrap();
        drop(first);
        second.add(1).unwrap();
        drop(second);
        assert!(usage.0.arriving.lock().unwrap().is_empty());
    }

    #[test]
    fn without_limits_everything_is_admitted() {
        let usage = Usage::new(Limits::default());
        usage.count("a", usize::MAX);
        usage.admit("a").unwrap();
    }
}
