//! The limits of a run's tools. They are stored as variables of its environment, like the maximum
//! number of its sandboxes.

use std::collections::BTreeMap;
use std::time::Duration;

use stockade_api::variables::{MAX_OUTPUT_BYTES, TOOL_TIMEOUT_MS};

use crate::graph::ToolLimits;

/// The limits in the environment of a run. Values that are not positive numbers are ignored.
pub(crate) fn limits(environment: &BTreeMap<String, String>) -> ToolLimits {
    let number = |name: &str| {
        let value = environment.get(name)?.trim().parse::<u64>().ok();
        value.filter(|number| *number > 0)
    };
    ToolLimits {
        output_bytes: number(MAX_OUTPUT_BYTES),
        timeout: number(TOOL_TIMEOUT_MS).map(Duration::from_millis),
    }
}

/// The environment of a child run, with these additional limits for its tools.
pub(crate) fn narrow(environment: &str, narrower: ToolLimits) -> String {
    let mut all: BTreeMap<String, String> = serde_json::from_str(environment).unwrap_or_default();
    let ToolLimits { output_bytes, timeout } = limits(&all).narrowed(narrower);
    let timeout = timeout.map(|timeout| timeout.as_millis().max(1).to_string());
    let output_bytes = output_bytes.map(|bytes| bytes.to_string());
    for (name, value) in [(MAX_OUTPUT_BYTES, output_bytes), (TOOL_TIMEOUT_MS, timeout)] {
        all.extend(value.map(|value| (name.to_owned(), value)));
    }
    serde_json::json!(all).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (Option<u64>, Option<u128>) {
        let ToolLimits { output_bytes, timeout } = limits(&serde_json::from_str(text).unwrap());
        (output_bytes, timeout.map(|timeout| timeout.as_millis()))
    }

    #[test]
    fn nobody_below_widens_what_a_run_has() {
        let narrower = |bytes, ms| ToolLimits {
            output_bytes: Some(bytes),
            timeout: Some(Duration::from_millis(ms)),
        };
        let run =
            format!(r#"{{"A": "b", "{MAX_OUTPUT_BYTES}": " 10 ", "{TOOL_TIMEOUT_MS}": "5000"}}"#);
        assert_eq!(of(&run), (Some(10), Some(5000)));
        assert_eq!(of(&narrow(&run, narrower(20, 300))), (Some(10), Some(300)));
        assert_eq!(of(&narrow("{}", narrower(20, 300))), (Some(20), Some(300)));
        assert_eq!(narrow("{}", ToolLimits::default()), "{}");
        assert!(narrow(&run, ToolLimits::default()).contains(r#""A":"b""#));
        for odd in ["", "-1", "0", "1e9", "many"] {
            assert_eq!(of(&format!(r#"{{"{MAX_OUTPUT_BYTES}": "{odd}"}}"#)), (None, None), "{odd}");
        }
    }
}
