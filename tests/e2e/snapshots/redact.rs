//! Replaces what differs between runs, hosts and users by a word for its kind.

use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::call::Outcome;
use crate::harness::World;

/// A command line with its exit code and its two outputs.
pub(super) fn outcome(world: &World, words: &[&str], outcome: &Outcome) -> String {
    let mut text = format!("$ stockade {}\n", words.join(" "));
    let _ = writeln!(text, "exit {}", outcome.code());
    for (name, output) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
        if !output.is_empty() {
            let _ = write!(text, "--- {name}\n{}", json(world, output));
        }
    }
    self::text(world, &text)
}

/// One or more JSON values, redacted and indented; any other text as it is.
fn json(world: &World, output: &str) -> String {
    let values = serde_json::Deserializer::from_str(output).into_iter::<Value>();
    let Ok(values) = values.collect::<Result<Vec<_>, _>>() else { return text(world, output) };
    values.into_iter().map(|value| format!("{:#}\n", redacted("", value))).collect()
}

/// The fields with values of the host or the user: only the names in them are compared.
const OF_THE_HOST: [&str; 6] =
    ["identity", "isolation", "kernel", "memoryPeakBytes", "metrics", "outOfMemoryKills"];

/// The fields with numbers and texts that differ between runs, besides `at`, `time` and
/// those that end with `At`.
const VARYING: [&str; 6] = ["chain", "cpuMs", "durationMs", "publicKey", "sizeBytes", "uid"];

fn redacted(name: &str, value: Value) -> Value {
    if OF_THE_HOST.contains(&name) {
        return names(&value);
    }
    let is_varying =
        VARYING.contains(&name) || name == "at" || name == "time" || name.ends_with("At");
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| {
                let value = redacted(&name, value);
                (name, value)
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => items.into_iter().map(|item| redacted(name, item)).collect(),
        Value::Number(_) | Value::String(_) if is_varying => format!("<{name}>").into(),
        other => other,
    }
}

/// Written instead of a value that is not compared.
const VALUE: &str = "…";

/// The names of a value. The items of a list are merged into one that has all their names.
pub(super) fn names(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), names(value))).collect()
        }
        Value::Array(items) => vec![items.iter().map(names).fold(VALUE.into(), merged)].into(),
        _ => VALUE.into(),
    }
}

/// The names of both.
fn merged(one: Value, other: Value) -> Value {
    match (one, other) {
        (Value::Object(mut fields), Value::Object(others)) => {
            for (name, value) in others {
                let known = fields.remove(&name).unwrap_or_else(|| VALUE.into());
                fields.insert(name, merged(known, value));
            }
            Value::Object(fields)
        }
        (Value::Array(one), Value::Array(other)) => {
            vec![one.into_iter().chain(other).fold(VALUE.into(), merged)].into()
        }
        (fields @ (Value::Object(_) | Value::Array(_)), _) | (_, fields) => fields,
    }
}

/// Patterns of generated texts, with what is written instead.
static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let patterns = [
        (r"[0-9a-f]{18}(-[0-9]+){1,2}\b", "<view>"),
        (r"\be2b_[0-9a-f]{40}\b", "e2b_<key>"),
        (r"\b[0-9a-f]{64}\b", "<hash>"),
        (r"\b[0-9a-f]{40}\b", "<hash>"),
        (r"\bstockade-[0-9a-f]{32}\b", "stockade-<hash>"),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
        (r#"\bbox\.localhost:[0-9]+/[^ "]*"#, "box.localhost:<port>/<path>"),
        (r"\b[0-9a-f]{24}\b", "<id>"),
        (r"\b[0-9a-f]{12}\b", "<id>"),
        (r#"("id": "|box/)[0-9a-f]{8}\b"#, "${1}<command>"),
        (r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z", "<time>"),
        (r"\buid:[0-9]+\b", "uid:<uid>"),
    ];
    patterns.map(|(pattern, word)| (Regex::new(pattern).unwrap(), word)).into()
});

/// A text without the paths of the world and without generated texts.
pub(super) fn text(world: &World, text: &str) -> String {
    let root = world.path("");
    let root = root.to_str().unwrap().trim_end_matches('/');
    let mut text = text.replace(root, "/world");
    for (pattern, word) in PATTERNS.iter() {
        text = pattern.replace_all(&text, *word).into_owned();
    }
    text
}

#[test]
fn names_are_those_of_all_items() {
    let value = serde_json::json!({
        "level": "full",
        "limits": [{"name": "memory", "by": null}, {"name": "disk", "more": {"a": 1}}],
        "reasons": [],
    });
    let expected = serde_json::json!({
        "level": "…",
        "limits": [{"name": "…", "by": "…", "more": {"a": "…"}}],
        "reasons": ["…"],
    });
    assert_eq!(names(&value), expected);
}
