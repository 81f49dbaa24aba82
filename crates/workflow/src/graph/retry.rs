//! When a task that failed is tried again.

use std::time::Duration;

/// How often something is tried again, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// How often; `None` is without end.
    pub limit: Option<u32>,
    /// How the pauses grow.
    pub growth: Growth,
    /// The first pause.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
}

/// How pauses grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// They do not.
    Fixed,
    /// Each is longer by the first.
    Linear,
    /// Each is twice as long.
    Exponential,
}

impl Retry {
    /// Never again.
    pub const NONE: Self = Self { limit: Some(0), ..Self::USUAL };
    /// Three times, after one, two and four seconds.
    pub const USUAL: Self = Self {
        limit: Some(3),
        growth: Growth::Exponential,
        first: Duration::from_secs(1),
        longest: Duration::from_secs(5 * 60),
    };

    /// How long to pause after so many failed tries; `None` when it is given up.
    pub fn pause(&self, failed: u32) -> Option<Duration> {
        if self.limit.is_some_and(|limit| failed > limit) {
            return None;
        }
        let factor = match self.growth {
            Growth::Fixed => 1,
            Growth::Linear => failed.max(1),
            Growth::Exponential => 1_u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX),
        };
        Some(self.first.saturating_mul(factor).min(self.longest))
    }
}
