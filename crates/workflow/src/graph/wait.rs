//! What tasks wait for: decisions, times and signals.

use std::time::Duration;

/// A question for a user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approval {
    /// The question.
    pub title: Option<String>,
    /// Further text about the question.
    pub summary: Option<String>,
    /// What happens when it is denied.
    pub on_deny: OnDeny,
}

/// What happens when an approval is denied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnDeny {
    /// The task fails.
    #[default]
    Fail,
    /// The run continues, and the answer is the output.
    Continue,
    /// The run continues as if the task did not exist.
    Skip,
}

/// A wait for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// For this long after the task starts.
    After(Duration),
    /// Until this time, in milliseconds since 1970.
    Until(i64),
}

/// A wait for a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// The correlation id, which distinguishes signals with this name.
    pub correlation: Option<String>,
    /// What happens when the signal does not arrive in time.
    pub on_timeout: OnTimeout,
}

/// What happens when a signal does not arrive in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnTimeout {
    /// The task fails.
    #[default]
    Fail,
    /// The run continues without an answer.
    Continue,
    /// The run continues as if the task did not exist.
    Skip,
}
