//! What a record says about a request: only members that are listed here, so that no new member of a
//! request is recorded by mistake. Of variables, secrets and labels, only the names are recorded.

use serde_json::{Map, Value};
use stockade_audit::redact;

/// Members with a name, an id, a path or a number.
const PLAIN: [&str; 46] = [
    "id",
    "sandboxid",
    "path",
    "from",
    "to",
    "image",
    "platform",
    "runtime",
    "workflowid",
    "tool",
    "snapshotid",
    "name",
    "ownerid",
    "file",
    "runid",
    "task",
    "method",
    "project",
    "user",
    "workingdirectory",
    "port",
    "mode",
    "uid",
    "gid",
    "admin",
    "approved",
    "discard",
    "ttlseconds",
    "shorten",
    "expiresinseconds",
    "queued",
    "stopped",
    "privatebase",
    "allowexecuted",
    "allowunseen",
    "includeignored",
    "pattern",
    "acceptchanges",
    "terminalsize",
    "directory",
    "branch",
    "mirror",
    "twoway",
    "commit",
    "conflict",
    "node",
];
/// Members with a list of names.
const LISTS: [&str; 6] = ["paths", "only", "allow", "refuse", "allowinternal", "exclude"];
/// Members of which only the names are recorded.
const NAMES: [&str; 5] = ["environment", "values", "metadata", "labels", "secrets"];
/// The most items of a list.
const MAX_ITEMS: usize = 64;

/// What a record says about a request.
pub(super) fn of_request(request: &Value) -> Map<String, Value> {
    let mut details = Map::new();
    if let Some(id) = request.as_str() {
        details.insert("id".to_owned(), redact::text(id).into());
    }
    for (name, value) in request.as_object().into_iter().flatten() {
        let plain = name.replace('_', "").to_lowercase();
        let plain = plain.as_str();
        let detail = if PLAIN.contains(&plain) {
            scalar(value)
        } else if LISTS.contains(&plain) {
            list(value.as_array().into_iter().flatten().filter_map(scalar))
        } else if NAMES.contains(&plain) {
            list(names(value))
        } else {
            match plain {
                "command" => command(value),
                "network" => Some(of_request(value).into()),
                "workspace" => value.get("host").and_then(scalar).or_else(|| scalar(value)),
                "inputs" => Some(of_request(value).into()),
                "vfs" => Some(of_request(value).into()),
                "changes" => list(members(value, "path")),
                "mounts" => list(members(value, "host")),
                "volumes" | "caches" => list(members(value, "name")),
                "edits" => list(members(value, "path")),
                "publish" => list(members(value, "inside")),
                _ => None,
            }
        };
        if let Some(detail) = detail.filter(|detail| !detail.is_null()) {
            details.insert(name.clone(), detail);
        }
    }
    details
}

/// What a record says about the answer to an operation.
pub(super) fn of_answer(answer: &Value) -> Map<String, Value> {
    let mut details = Map::new();
    for (name, pointer) in [
        ("resultId", "/id"),
        ("exitCode", "/exitCode"),
        ("ending", "/ending"),
        ("bundle", "/bundle/id"),
        ("resultOwner", "/ownerId"),
    ] {
        if let Some(value) = answer.pointer(pointer).and_then(scalar) {
            details.insert(name.to_owned(), value);
        }
    }
    details
}

fn scalar(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => Some(redact::text(text).into()),
        Value::Number(_) | Value::Bool(_) => Some(value.clone()),
        // Bytes that are no text.
        Value::Object(bytes) => bytes.get("base64").cloned(),
        Value::Null | Value::Array(_) => None,
    }
}

fn list(items: impl Iterator<Item = Value>) -> Option<Value> {
    let items: Vec<_> = items.take(MAX_ITEMS).collect();
    (!items.is_empty()).then(|| items.into())
}

/// The names of an object's members; of a list of bindings `NAME@HOST`, these; of a list of variables
/// with stored secrets, the variables.
fn names(value: &Value) -> Box<dyn Iterator<Item = Value> + '_> {
    match value {
        Value::Object(members) => Box::new(members.keys().map(|name| redact::text(name).into())),
        Value::Array(items) => {
            let name = |item: &Value| scalar(item.get("env").unwrap_or(item));
            Box::new(items.iter().filter_map(name))
        }
        _ => Box::new(std::iter::empty()),
    }
}

fn members<'a>(value: &'a Value, name: &'a str) -> impl Iterator<Item = Value> + 'a {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(move |item| item.get(name).and_then(scalar))
}

fn command(value: &Value) -> Option<Value> {
    match value {
        Value::String(line) => Some(redact::text(line).into()),
        Value::Array(words) => {
            let words: Vec<_> = words.iter().map(|word| word.as_str().unwrap_or("?")).collect();
            Some(redact::command(words).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_value_of_a_secret_and_no_content_is_recorded() {
        let request = json!({
            "sandboxId": "box",
            "command": ["tool", "--token", "s3cr3t"],
            "environment": { "KEY": "s3cr3t" },
            "values": { "GITHUB": "s3cr3t" },
            "metadata": { "label": "s3cr3t" },
            "labels": { "of-volume": "s3cr3t" },
            "stdin": "s3cr3t",
            "content": "s3cr3t",
            "edits": [{ "path": "/a", "old": "s3cr3t", "new": "s3cr3t" }],
            "arguments": { "text": "s3cr3t" },
            "unknown": "s3cr3t",
            "headers": { "authorization": "s3cr3t" },
        });
        let details = Value::from(of_request(&request));
        assert!(!details.to_string().contains("s3cr3t"), "{details}");
        let expected = json!({
            "sandboxId": "box",
            "command": ["tool", "--token", "***"],
            "environment": ["KEY"],
            "values": ["GITHUB"],
            "metadata": ["label"],
            "labels": ["of-volume"],
            "edits": ["/a"],
        });
        assert_eq!(details, expected);
    }

    #[test]
    fn the_network_is_recorded_by_its_hosts() {
        let request =
            json!({ "network": { "allow": ["a.example"], "secrets": ["KEY@a.example"] } });
        let expected =
            json!({ "network": { "allow": ["a.example"], "secrets": ["KEY@a.example"] } });
        assert_eq!(Value::from(of_request(&request)), expected);
    }
}
