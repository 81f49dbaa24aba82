//! The topics with which statements wake subscribers.

/// Wakes the followers of runs.
pub(crate) const RUNS_TOPIC: &str = "workflows";

/// Wakes runs that wait for an answer.
pub(crate) const ANSWERS_TOPIC: &str = "workflow answers";
