//! When a failed task is retried.

use std::time::Duration;

/// How often and when a task is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The maximum number of retries; `None` means no limit.
    pub limit: Option<u32>,
    /// How the pauses grow.
    pub growth: Growth,
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

/// How pauses grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// All pauses are equal.
    Fixed,
    /// Each pause is longer than the last one by the first pause.
    Linear,
    /// Each pause is twice as long as the last one.
    Exponential,
}

impl Retry {
    /// No retries.
    pub const NONE: Self = Self { limit: Some(0), ..Self::DEFAULT };
    /// Three retries, after one, two and four seconds.
    pub const DEFAULT: Self = Self {
        limit: Some(3),
        growth: Growth::Exponential,
        first: Duration::from_secs(1),
        longest: Duration::from_secs(5 * 60),
    };

    /// The pause after this many failed attempts; `None` when there are no more retries.
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
