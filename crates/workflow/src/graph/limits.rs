//! Limits of the tools of a run (Smithers: `maxOutputBytes`, `toolTimeoutMs`). The tools are the
//! commands of its agents and of its sandboxes; a workflow is not a tool.

use std::time::Duration;

/// The limits of each tool; `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolLimits {
    /// How much it may write, in bytes.
    pub output_bytes: Option<u64>,
    /// The time limit.
    pub timeout: Option<Duration>,
}

impl ToolLimits {
    /// The narrower of both limits: a child run cannot widen the limits of its parent.
    #[must_use]
    pub fn narrowed(self, other: Self) -> Self {
        fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            [one, other].into_iter().flatten().min()
        }
        Self {
            output_bytes: least(self.output_bytes, other.output_bytes),
            timeout: least(self.timeout, other.timeout),
        }
    }
}
