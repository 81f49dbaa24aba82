//! The failure of a task.

use serde_json::{Value, json};

use crate::authoring::Error;

/// The failure of a task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TaskError {
    /// A stable code for programs.
    pub(crate) code: String,
    /// A message for users.
    pub(crate) message: String,
    /// The stack frames in the workflow's files, the innermost first.
    pub(crate) frames: Vec<String>,
    /// Whether another attempt may succeed.
    pub(crate) is_retryable: bool,
    /// Whether a user has decided it.
    pub(crate) is_denied: bool,
}

/// The code of a failure that is caused by the stop of the run.
pub(crate) const INTERRUPTED: &str = "INTERRUPTED";
/// Error codes that would occur in another attempt too.
const FINAL: [&str; 3] = ["INVALID_OUTPUT", "AGENT_CONFIG_INVALID", "MISSING_OUTPUT"];

impl TaskError {
    /// A failure that would occur in another attempt too.
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Self {
        let (code, message) = (code.to_owned(), message.into());
        Self { code, message, frames: Vec::new(), is_retryable: false, is_denied: false }
    }

    /// Marks the failure as the decision of a user, which holds until the user asks for another attempt.
    pub(crate) fn denied(mut self) -> Self {
        self.is_denied = true;
        self
    }

    /// Marks the failure as retryable: another attempt may succeed.
    pub(crate) fn retryable(mut self) -> Self {
        self.is_retryable = true;
        self
    }

    /// Whether it is not a failure of the task: the run has stopped, and continues the task later.
    pub(crate) fn is_interruption(&self) -> bool {
        self.code == INTERRUPTED
    }

    /// The JSON form that is stored.
    pub(crate) fn to_json(&self) -> Value {
        let mut error =
            json!({ "code": self.code, "message": self.message, "frames": self.frames });
        if self.is_denied {
            error["denied"] = true.into();
        }
        error
    }
}

impl From<Error> for TaskError {
    fn from(error: Error) -> Self {
        match error {
            Error::Threw(failure) => {
                let name = failure.name.as_deref().unwrap_or("Error");
                let message = if matches!(name, "Error" | "SmithersError") {
                    failure.message.clone()
                } else {
                    format!("{name}: {}", failure.message)
                };
                let code = failure.code.clone().unwrap_or_else(|| "TASK_FAILED".to_owned());
                let is_retryable = !FINAL.contains(&code.as_str());
                Self { frames: failure.frames, is_retryable, ..Self::new(&code, message) }
            }
            Error::Faults(faults) => {
                let first = faults.first().and_then(|fault| fault.place.as_ref());
                let frames = first.map(|location| format!("at {location}")).into_iter().collect();
                let message = Error::Faults(faults).to_string();
                Self { frames, ..Self::new("WORKFLOW_INVALID", message) }
            }
            error @ Error::Timeout { .. } => Self::new("TASK_TIMEOUT", error.to_string()),
            error => Self::new("WORKFLOW_PROCESS_LOST", error.to_string()).retryable(),
        }
    }
}
