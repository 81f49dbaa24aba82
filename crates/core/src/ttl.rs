//! How long a sandbox may live.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A TTL: at least a millisecond, at most 30 days, in JSON a number of seconds.
///
/// The upper bound is Stockade's own: a sandbox that is not renewed within a month has no user. A
/// sandbox without an end has no TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Ttl(Duration);

/// A number that is not a valid TTL.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{0} seconds is not a valid time to live: use 0.001 seconds to 30 days")]
pub struct InvalidTtl(pub f64);

impl Ttl {
    const MIN: Duration = Duration::from_millis(1);

    /// The longest TTL.
    pub const MAX: Duration = Duration::from_hours(30 * 24);

    /// Converts a number of seconds, to the millisecond.
    ///
    /// # Errors
    /// [`InvalidTtl`] for a number outside the range from a millisecond to [`Ttl::MAX`].
    pub fn from_seconds(seconds: f64) -> Result<Self, InvalidTtl> {
        let duration = Duration::try_from_secs_f64(seconds).map_err(|_| InvalidTtl(seconds))?;
        let length = Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        let fits = length >= Self::MIN && duration <= Self::MAX;
        if fits { Ok(Self(length)) } else { Err(InvalidTtl(seconds)) }
    }

    /// The duration.
    pub const fn as_duration(self) -> Duration {
        self.0
    }
}

impl TryFrom<f64> for Ttl {
    type Error = InvalidTtl;

    fn try_from(seconds: f64) -> Result<Self, InvalidTtl> {
        Self::from_seconds(seconds)
    }
}

impl From<Ttl> for f64 {
    fn from(ttl: Ttl) -> Self {
        ttl.0.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_has_bounds() {
        for (seconds, milliseconds) in
            [(0.001, 1), (0.5, 500), (1.0, 1_000), (90.25, 90_250), (2_592_000.0, 2_592_000_000)]
        {
            let ttl = Ttl::from_seconds(seconds).unwrap();
            assert_eq!(ttl.as_duration(), Duration::from_millis(milliseconds));
            let text = serde_json::to_string(&ttl).unwrap();
            assert_eq!(serde_json::from_str::<Ttl>(&text).unwrap(), ttl);
        }
        for seconds in
            [0.0, -0.0, 0.000_9, -1.0, 2_592_000.5, 1e12, f64::NAN, f64::INFINITY, f64::MIN]
        {
            assert!(Ttl::from_seconds(seconds).is_err(), "{seconds}");
        }
        assert_eq!(serde_json::from_str::<Ttl>("60").unwrap().as_duration().as_secs(), 60);
        for text in ["\"60\"", "null", "0", "-1", "1e12"] {
            assert!(serde_json::from_str::<Ttl>(text).is_err(), "{text}");
        }
    }
}
