//! Reads the attribute `cache`.

use std::time::Duration;

use serde_json::{Map, Value};

use super::props::{Props, tagged};
use crate::graph::cache::{Cache, Depends, Scope};

const KEYS: [&str; 5] = ["by", "key", "scope", "ttlMs", "version"];

/// Reads the attribute `cache`; `usual` is its default.
pub(super) fn cache(props: &mut Props<'_>, default: bool) -> Option<Cache> {
    let found = match props.take("cache") {
        None => return default.then(Cache::default),
        Some(Value::Bool(is_kept)) => return is_kept.then(Cache::default),
        Some(Value::Object(found)) => found,
        Some(_) => {
            props.fault("`cache` must be true, false or an object");
            return None;
        }
    };
    props.check_fields("cache", &found, &KEYS);
    let value_of = |name: &str| found.get(name).cloned().unwrap_or_default();
    Some(Cache {
        scope: scope(&found, props),
        name: Value::Array(vec![value_of("key"), value_of("version")]),
        depends: match found.get("by") {
            None => Depends::Everything,
            Some(by) => match tagged(by, "unknown") {
                Some(why) => Depends::Unknown(
                    why.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
                ),
                None => Depends::Only(by.clone()),
            },
        },
        lifetime: lifetime(&found, props),
    })
}

fn scope(found: &Map<String, Value>, props: &mut Props<'_>) -> Scope {
    match found.get("scope").filter(|scope| !scope.is_null()) {
        None => Scope::default(),
        Some(Value::String(word)) if word == "run" => Scope::Run,
        Some(Value::String(word)) if word == "workflow" => Scope::Workflow,
        Some(Value::String(word)) if word == "global" => Scope::Global,
        Some(other) => {
            let message = "`cache.scope` must be \"run\", \"workflow\" or \"global\", not";
            props.fault(format!("{message} {other}"));
            Scope::default()
        }
    }
}

fn lifetime(found: &Map<String, Value>, props: &mut Props<'_>) -> Option<Duration> {
    let ttl = found.get("ttlMs").filter(|written| !written.is_null())?;
    if tagged(ttl, "number").and_then(|number| number.get("value")) == Some(&"Infinity".into()) {
        return None;
    }
    let length = ttl.as_f64().filter(|number| *number > 0.0);
    let length = length.and_then(|number| Duration::try_from_secs_f64(number / 1_000.0).ok());
    if length.is_none() {
        props.fault(format!("`cache.ttlMs` must be a number of milliseconds above 0, not {ttl}"));
    }
    length
}
