//! How much traffic a sandbox may have. The limits are a part of its policy, so that they travel and
//! change with it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most connections that a limit may allow.
pub const MAX_CONNECTIONS: u16 = 16_384;
/// The lowest bandwidth, in bytes for each second: with less, an honest connection looks idle.
pub const MIN_BANDWIDTH: u64 = 1024;

/// The limits of one sandbox. What is absent has no limit, or the usual one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TrafficLimits {
    /// Connections at a time; 256 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u16>,
    /// Bytes in both directions together, for as long as the same egress process serves the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes for each second, of all connections and both directions together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
}

impl TrafficLimits {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// What is wrong with them.
    pub fn fault(&self) -> Option<String> {
        if self.connections.is_some_and(|limit| !(1..=MAX_CONNECTIONS).contains(&limit)) {
            return Some(format!("a limit on connections is from 1 to {MAX_CONNECTIONS}"));
        }
        if self.bytes == Some(0) {
            return Some("a limit on bytes is at least 1".to_owned());
        }
        if self.bandwidth.is_some_and(|limit| limit < MIN_BANDWIDTH) {
            return Some(format!("a bandwidth is at least {MIN_BANDWIDTH} bytes for each second"));
        }
        None
    }

    /// The lower ones of both.
    #[must_use]
    pub fn lower(self, other: Self) -> Self {
        fn lower<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            }
        }
        Self {
            connections: lower(self.connections, other.connections),
            bytes: lower(self.bytes, other.bytes),
            bandwidth: lower(self.bandwidth, other.bandwidth),
        }
    }

    /// These limits with the new values of a change; what that does not name stays.
    #[must_use]
    pub fn with(self, change: Self) -> Self {
        Self {
            connections: change.connections.or(self.connections),
            bytes: change.bytes.or(self.bytes),
            bandwidth: change.bandwidth.or(self.bandwidth),
        }
    }

    /// Whether other limits allow no more than these.
    pub fn covers(&self, other: &Self) -> bool {
        other.lower(*self) == *other
    }
}

impl fmt::Display for TrafficLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.connections.map(|limit| format!("{limit} connections")),
            self.bytes.map(|limit| format!("{limit} bytes")),
            self.bandwidth.map(|limit| format!("{limit} bytes for each second")),
        ];
        let words: Vec<_> = words.into_iter().flatten().collect();
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections: Option<u16>, bytes: Option<u64>) -> TrafficLimits {
        TrafficLimits { connections, bytes, bandwidth: None }
    }

    #[test]
    fn limits_are_compared() {
        let none = TrafficLimits::default();
        let (small, large) = (limits(Some(2), Some(10)), limits(Some(3), Some(10)));
        assert!(none.covers(&small) && none.covers(&none) && large.covers(&small));
        assert!(!small.covers(&none) && !small.covers(&large));
        assert!(!small.covers(&limits(Some(1), None)), "one of them exceeds it");
        assert_eq!(large.lower(limits(Some(9), Some(4))), limits(Some(3), Some(4)));
    }

    #[test]
    fn what_cannot_be_kept_is_a_fault() {
        assert_eq!(limits(Some(1), Some(1)).fault(), None);
        let slow = TrafficLimits { bandwidth: Some(1023), ..TrafficLimits::default() };
        for bad in [limits(Some(0), None), limits(Some(16_385), None), limits(None, Some(0)), slow]
        {
            assert!(bad.fault().is_some(), "{bad}");
        }
        assert!(serde_json::from_str::<TrafficLimits>(r#"{"bandwith": 1}"#).is_err());
    }
}
