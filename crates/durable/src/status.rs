//! The status of a workflow, with the names of DBOS.

use serde::{Deserialize, Serialize};

/// The status of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Runs, or waits to be taken over from an executor that died.
    Pending,
    /// Waits in a queue.
    Enqueued,
    /// Enters its queue later.
    Delayed,
    /// Returned a value.
    Success,
    /// Failed.
    Error,
    /// Was cancelled, or its timeout expired.
    Cancelled,
    /// Was taken over too often without recording anything.
    MaxRecoveryAttemptsExceeded,
}

impl Status {
    const ALL: [Self; 7] = [
        Self::Pending,
        Self::Enqueued,
        Self::Delayed,
        Self::Success,
        Self::Error,
        Self::Cancelled,
        Self::MaxRecoveryAttemptsExceeded,
    ];

    /// The recorded name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Enqueued => "ENQUEUED",
            Self::Delayed => "DELAYED",
            Self::Success => "SUCCESS",
            Self::Error => "ERROR",
            Self::Cancelled => "CANCELLED",
            Self::MaxRecoveryAttemptsExceeded => "MAX_RECOVERY_ATTEMPTS_EXCEEDED",
        }
    }

    /// The status with that name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether the workflow has ended. One that was cancelled or given up can be resumed.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Pending | Self::Enqueued | Self::Delayed)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_their_status() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.as_str()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        assert_eq!(Status::parse("pending"), None);
        assert_eq!(Status::ALL.iter().filter(|status| status.is_terminal()).count(), 4);
    }
}
