//! What the driver reports.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The forms of a result by their media type.
pub(crate) type Forms = BTreeMap<String, Value>;

/// An event of code that runs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Event {
    /// How much code the context has run, with this.
    Count { count: u64 },
    /// Output.
    Stdout { text: String },
    /// Output of the other stream.
    Stderr { text: String },
    /// A value that the code shows.
    Result {
        /// Whether it is the value of the code itself.
        #[serde(rename = "main")]
        is_main: bool,
        forms: Forms,
    },
    /// The code has failed.
    Error { name: String, value: String, traceback: String },
}

/// A line of the driver.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    #[serde(default)]
    pub(super) ready: bool,
    #[serde(default)]
    pub(super) context: Option<String>,
    #[serde(default)]
    pub(super) created: bool,
    #[serde(default)]
    pub(super) failed: Option<String>,
    #[serde(default)]
    pub(super) lost: bool,
    #[serde(default)]
    pub(super) run: Option<String>,
    #[serde(flatten)]
    rest: Value,
}

impl Line {
    /// The event of the line; `None` if it is the end of the code, or none that is known.
    pub(super) fn event(&self) -> Option<Event> {
        serde_json::from_value(self.rest.clone()).ok()
    }

    pub(super) fn is_end(&self) -> bool {
        self.rest["type"] == "end"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_events() {
        let line = |value: Value| serde_json::from_value::<Line>(value).unwrap();
        let output = line(json!({ "context": "c", "run": "r", "type": "stdout", "text": "x" }));
        assert_eq!(output.event(), Some(Event::Stdout { text: "x".to_owned() }));
        let end = line(json!({ "run": "r", "type": "end" }));
        assert!(end.is_end() && end.event().is_none());
        assert!(line(json!({ "ready": true })).ready);
        let failed = line(json!({ "context": "c", "failed": "no node" }));
        assert_eq!(failed.failed.as_deref(), Some("no node"));
    }
}
