//! The times in events as callers see them: text, like every other time in a response. The records
//! have milliseconds.

use serde_json::Value;
use stockade_core::Time;

/// An event in which each time is text. `timestampMs` becomes `at`, and `dueMs` becomes `dueAt`.
pub(super) fn to_text(mut event: Value) -> Value {
    let Some(fields) = event.as_object_mut() else { return event };
    let names: Vec<String> =
        fields.keys().filter(|name| text_name(name).is_some()).cloned().collect();
    for name in names {
        let Some(ms) = fields.get(&name).and_then(Value::as_i64) else { continue };
        fields.remove(&name);
        if let Some(text) = text_name(&name) {
            fields.insert(text, Value::from(Time::from_ms(ms).to_string()));
        }
    }
    event
}

/// The name of a time as text, for a name of one in milliseconds. The name of a duration is none.
fn text_name(name: &str) -> Option<String> {
    match name {
        "timestampMs" => Some("at".to_owned()),
        "dueMs" => Some("dueAt".to_owned()),
        name => name.strip_suffix("AtMs").map(|stem| format!("{stem}At")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_text_and_durations_are_numbers() {
        let event = json!({
            "type": "NodeFinished", "timestampMs": 6, "cachedAtMs": 1000, "durationMs": 5,
            "dueMs": null, "output": { "timestampMs": 6 },
        });
        assert_eq!(
            to_text(event),
            json!({
                "type": "NodeFinished", "at": "1970-01-01T00:00:00.006Z",
                "cachedAt": "1970-01-01T00:00:01.000Z", "durationMs": 5, "dueMs": null,
                "output": { "timestampMs": 6 },
            })
        );
        assert_eq!(to_text(json!("text")), json!("text"));
    }
}
