//! What tasks wait for: decisions, times and signals.

use std::time::Duration;

/// A question that a person decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approval {
    /// The question.
    pub title: Option<String>,
    /// More text about it.
    pub summary: Option<String>,
    /// What follows when it is denied.
    pub on_deny: OnDeny,
}

/// What follows when an approval is denied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnDeny {
    /// The task fails.
    #[default]
    Fail,
    /// The run continues, with the answer.
    Continue,
    /// The run continues, as if the task were not there.
    Skip,
}

/// A wait for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// This long after the task begins.
    After(Duration),
    /// Until this time, in milliseconds since 1970.
    Until(i64),
}

/// A wait for a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// Which one of that name.
    pub correlation: Option<String>,
    /// What follows when it does not come in time.
    pub on_timeout: OnTimeout,
}

/// What follows when a signal does not come in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnTimeout {
    /// The task fails.
    #[default]
    Fail,
    /// The run continues, with no answer.
    Continue,
    /// The run continues, as if the task were not there.
    Skip,
}
