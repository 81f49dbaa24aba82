//! The budgets of `<Aspects>`: how many tokens and how much time a run may have used when a task in the scope
//! starts.

use serde_json::{Map, Value};

/// The budgets of the scope of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budgets {
    /// Of the tokens of all agents of the run.
    pub tokens: Option<Budget>,
    /// Of the time since the start of the run, in milliseconds.
    pub time: Option<Budget>,
}

/// One budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// From this number on, no task starts without a consequence.
    pub most: u64,
    /// How much one task may use.
    pub per_task: Option<u64>,
    /// The consequence.
    pub exceeded: Exceeded,
}

/// What happens when a budget is exceeded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Exceeded {
    /// The task fails.
    #[default]
    Fail,
    /// A warning is written.
    Warn,
    /// The task is skipped.
    Skip,
}

impl Budgets {
    /// Reads what the library has checked.
    pub(in crate::graph) fn read(found: &Map<String, Value>) -> Self {
        let budget = |name: &str| {
            let found = found.get(name)?;
            let number = |name: &str| found.get(name).and_then(whole);
            let exceeded = match found.get("onExceeded").and_then(Value::as_str) {
                Some("warn") => Exceeded::Warn,
                Some("skip-remaining") => Exceeded::Skip,
                _ => Exceeded::Fail,
            };
            Some(Budget { most: number("max")?, per_task: number("perTask"), exceeded })
        };
        Self { tokens: budget("tokens"), time: budget("time") }
    }
}

/// A whole number, which the JavaScript engine may write as 1.0.
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| format!("{:.0}", value.as_f64()?).parse().ok())
}
