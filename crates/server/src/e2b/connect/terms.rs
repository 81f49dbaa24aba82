//! What a client says in headers about how long a call may take.

use std::time::Duration;

use axum::http::HeaderMap;

use crate::e2b::failure::{RpcCode, RpcError};

/// How often a silent stream shows that it is alive, unless the client says something else.
const KEEPALIVE: Duration = Duration::from_secs(90);
/// The header with how long a call may take, in milliseconds.
const TIMEOUT: &str = "connect-timeout-ms";
/// The header with how long it may be silent, in seconds.
const INTERVAL: &str = "keepalive-ping-interval";

/// What a client wants of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::e2b) struct Terms {
    /// How long the call may take.
    pub(in crate::e2b) timeout: Option<Duration>,
    /// How long it may be silent.
    pub(in crate::e2b) keepalive: Duration,
}

impl Terms {
    /// The terms of a request. Zero is no limit, as for the clients.
    ///
    /// # Errors
    /// [`RpcCode::InvalidArgument`] for a header that is no number: without it a call could last longer
    /// than its client wants.
    pub(in crate::e2b) fn of(headers: &HeaderMap) -> Result<Self, RpcError> {
        Ok(Self {
            timeout: number(headers, TIMEOUT)?.map(Duration::from_millis),
            keepalive: number(headers, INTERVAL)?.map_or(KEEPALIVE, Duration::from_secs),
        })
    }
}

/// A number in a header, of at most ten digits as the protocol says.
fn number(headers: &HeaderMap, name: &str) -> Result<Option<u64>, RpcError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let is_number = (1..=10).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(number) if is_number && values.next().is_none() => {
            Ok(Some(number).filter(|number| *number > 0))
        }
        _ => {
            let message = format!("the header {name} must be one number of at most ten digits");
            Err(RpcError::new(RpcCode::InvalidArgument, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_limit_is_refused() {
        for text in ["x", "-1", "1.5", "", " ", "99999999999", "0x10", "+5"] {
            let mut headers = HeaderMap::new();
            headers.insert(TIMEOUT, text.parse().unwrap());
            assert!(Terms::of(&headers).is_err(), "{text:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(TIMEOUT, "0".parse().unwrap());
        assert_eq!(Terms::of(&headers).unwrap().timeout, None);
        headers.append(TIMEOUT, "5".parse().unwrap());
        assert!(Terms::of(&headers).is_err());
    }
}
