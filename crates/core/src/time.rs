//! Points in time, in the one form in which every response and every event has them: RFC 3339 in
//! UTC with milliseconds, as in `2026-01-02T03:04:05.006Z`.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time, to the millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Timestamp);

impl Time {
    /// The time that many milliseconds after 1970. A time that no calendar has becomes 1970.
    pub fn from_ms(ms: i64) -> Self {
        Self(Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// How long it is after another time.
    pub fn duration_since(self, earlier: Self) -> SignedDuration {
        self.0.duration_since(earlier.0)
    }

    /// Milliseconds since 1970.
    pub fn as_ms(self) -> i64 {
        self.0.as_millisecond()
    }
}

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        Self::from_ms(at.as_millisecond())
    }
}

/// With a precision of 0, as in `{at:.0}`, without the milliseconds: the form in texts for people.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f.precision() {
            Some(0) => write!(f, "{:.0}", self.0),
            _ => write!(f, "{:.3}", self.0),
        }
    }
}

impl FromStr for Time {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.parse()?))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Form)
    }
}

/// Reads a time. Older records have numbers of milliseconds.
struct Form;

impl serde::de::Visitor<'_> for Form {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time in the form of RFC 3339")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Time, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, ms: i64) -> Result<Time, E> {
        Ok(Time::from_ms(ms))
    }

    fn visit_u64<E: serde::de::Error>(self, ms: u64) -> Result<Time, E> {
        Ok(Time::from_ms(i64::try_from(ms).unwrap_or(i64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_one_form() {
        for (written, form) in [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000Z"),
            ("2026-01-02T03:04:05.006Z", "2026-01-02T03:04:05.006Z"),
            ("2026-01-02T04:04:05.006789+01:00", "2026-01-02T03:04:05.006Z"),
        ] {
            let time: Time = serde_json::from_value(written.into()).unwrap();
            assert_eq!(serde_json::to_value(time).unwrap(), form);
            assert_eq!(time.to_string(), form);
        }
        let time = Time::from_ms(1_767_323_045_006);
        assert_eq!(format!("{time:.0} {time}"), "2026-01-02T03:04:05Z 2026-01-02T03:04:05.006Z");
        assert_eq!(time.as_ms(), 1_767_323_045_006);
        assert_eq!(serde_json::from_str::<Time>("1767323045006").unwrap(), time);
        assert_eq!(Time::from_ms(i64::MAX), Time::from_ms(0));
        assert!("yesterday".parse::<Time>().is_err());
    }
}
