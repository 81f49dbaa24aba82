//! The extensions of a sandbox: strings that a client gives when it creates one. Those of the client's
//! own are stored and returned; a few have a meaning here; all others are refused.

use std::collections::BTreeMap;

use serde_json::Value;
use stockade_api::Sandbox;

use super::pools::POOL_REF;
use super::proxy_config;
use crate::failure::{Failure, invalid, unsupported};
use crate::renewal::{self, RENEW, seconds};

/// The prefix of extensions without a meaning for the server.
const OWN: &str = "opensandbox.extensions.";
/// Isolated sessions, which every sandbox has here unless the value says otherwise.
const ISOLATION: &str = "bootstrap.execd.isolation";
/// Checks the extensions of a request.
pub(super) fn check(extensions: &BTreeMap<String, Value>) -> Result<(), Failure> {
    for (name, value) in extensions {
        // The ports are read, and so checked, apart.
        if proxy_config::NAMES.contains(&name.as_str()) {
            continue;
        }
        let Value::String(value) = value else {
            return Err(invalid(format!("the extension `{name}` must be a text")));
        };
        match name.as_str() {
            // Whether there is such a pool is decided apart.
            POOL_REF => {}
            name if name.starts_with(OWN) => {}
            ISOLATION if matches!(value.as_str(), "enable" | "disable") => {}
            RENEW if seconds(value).is_some() => {}
            ISOLATION | RENEW => {
                return Err(invalid(format!("the extension `{name}` cannot be {value:?}")));
            }
            other => return Err(unsupported(format_args!("the extension `{other}`"))),
        }
    }
    Ok(())
}

/// The values as texts, which clients expect.
pub(super) fn texts(extensions: BTreeMap<String, Value>) -> BTreeMap<String, String> {
    let text = |value| match value {
        Value::String(text) => text,
        Value::Array(all) => all.iter().map(item).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    };
    extensions.into_iter().map(|(name, value)| (name, text(value))).collect()
}

fn item(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether a sandbox was created without isolated sessions.
pub(super) fn refuses_sessions(sandbox: &Sandbox) -> bool {
    let extensions = renewal::extensions(&sandbox.metadata).unwrap_or_default();
    extensions.get(ISOLATION).is_some_and(|value| value == "disable")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str, value: &str) -> Option<String> {
        let extensions = [(name.to_owned(), value.into())].into();
        check(&extensions).err().map(|Failure(problem)| problem.code.to_string())
    }

    #[test]
    fn only_extensions_with_a_meaning_are_accepted() {
        for (name, value) in [
            ("opensandbox.extensions.any", "thing"),
            (ISOLATION, "enable"),
            (RENEW, "300"),
            (RENEW, "86400"),
            ("poolRef", "a"),
        ] {
            assert_eq!(checked(name, value), None, "{name}={value}");
        }
        for (name, value, code) in [
            (ISOLATION, "maybe", "INVALID_INPUT"),
            (RENEW, "299", "INVALID_INPUT"),
            (RENEW, "86401", "INVALID_INPUT"),
            (RENEW, "-1", "INVALID_INPUT"),
            ("opensandbox.extension", "a", "UNSUPPORTED"),
        ] {
            assert_eq!(checked(name, value).as_deref(), Some(code), "{name}={value}");
        }
        let number = [("opensandbox.extensions.any".to_owned(), 1.into())].into();
        assert!(check(&number).is_err());
    }

    #[test]
    fn ports_are_returned_as_texts() {
        let ports = serde_json::json!({
            "stockade.exposedPorts": [80, "8080"],
            "stockade.defaultPort": 80,
            "opensandbox.extensions.a": "b",
        });
        let extensions = serde_json::from_value(ports).unwrap();
        check(&extensions).unwrap();
        let texts: Vec<_> = texts(extensions).into_values().collect();
        assert_eq!(texts, ["b", "80", "80,8080"]);
    }
}
