//! What tasks wait for: decisions, times and signals.

use std::time::Duration;

/// What somebody is asked to decide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approval {
    /// The question.
    pub title: Option<String>,
    /// What is said with it.
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
    /// The run goes on, with the answer.
    Continue,
    /// The run goes on, as if the task were not there.
    Skip,
}

/// A time that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// So long from when it is come to.
    After(Duration),
    /// Until this time, in milliseconds since 1970.
    Until(i64),
}

/// A signal that is waited for.
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
    /// The run goes on, with no answer.
    Continue,
    /// The run goes on, as if the task were not there.
    Skip,
}
