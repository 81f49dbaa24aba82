//! The recorded form of times: milliseconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

use stockade_core::Time;

/// Now.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Converts a recorded time to the form of responses.
pub(crate) fn timestamp(ms: i64) -> Time {
    Time::from_ms(ms)
}
