//! The topics that statements wake the subscribers of.

/// Wakes whoever follows runs.
pub(crate) const RUNS_TOPIC: &str = "workflows";

/// Wakes runs that wait for an answer.
pub(crate) const ANSWERS_TOPIC: &str = "workflow answers";
