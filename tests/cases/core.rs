//! The cases that need nothing but the rules of `core`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod support;

use std::net::IpAddr;

use regex::Regex;
use serde_json::{Value, json};
use stockade_core::access::{Error, Level, Rules};
use stockade_core::address::url::{check, check_resolved};
use stockade_core::{Code, Problem};
use support::{Case, drive, no_driver, same};

#[test]
fn access_rules() {
    drive("tests/cases/core.rs::access_rules", "access_rules.json", |case| {
        let Some(rules) = case.given.get("rules") else { return unreadable(case) };
        let rules: Rules = serde_json::from_value(rules.clone()).map_err(|e| e.to_string())?;
        let level: Level = text(&case.when["level"]).parse().unwrap();
        let answer = match rules.allows(level, text(&case.when["path"]).as_bytes()) {
            Ok(()) => json!("allow"),
            Err(Error::Denied { .. }) => json!("deny"),
            Err(error) => json!({"error": code(error), "side_effects": "none"}),
        };
        let expected = match &case.expect {
            Value::String(word) => json!(word.split(' ').next()),
            other => other.clone(),
        };
        same(expected, answer)
    });
}

/// Every path operation asks the rules first, so their answer is that of the operation.
fn unreadable(case: &Case) -> Result<(), String> {
    if case.name != "unreadable stored rules fail closed" {
        return no_driver();
    }
    for stored in ["not valid JSON", r#"{"version": 9, "rules": []}"#] {
        for level in Level::ALL {
            let denied = Rules::from_stored(stored).allows(*level, b"/w");
            let Err(error) = denied else { return Err(format!("{stored:?} allows {level}")) };
            same(text(&case.expect["error"]).to_owned(), code(error))?;
        }
    }
    Ok(())
}

#[test]
fn fetch_urls() {
    for file in ["snippet_fetch_url.json", "snippet_fetch_url_beyond_reference.json"] {
        drive("tests/cases/core.rs::fetch_urls", file, |case| {
            let answer = check(text(&case.rest["url"]));
            same(case.expect["allow"].as_bool(), Some(answer.is_ok()))?;
            let Err(refused) = answer else { return Ok(()) };
            let refused = refused.to_string();
            // The exact text, where the reference refuses too.
            if let Some(reason) = case.rest["reference"]["reason"].as_str() {
                same(reason, refused.as_str())?;
            }
            matches(&case.expect["reason_matches"], &refused)
        });
    }
}

#[test]
fn resolved_addresses() {
    let file = "snippet_dns_check.json";
    drive("tests/cases/core.rs::resolved_addresses", file, |case| {
        let host = text(&case.rest["host"]);
        let addresses: &[&str] = match host {
            "localhost" => &["127.0.0.1", "::1"],
            "dns.google" => &["8.8.8.8", "2001:4860:4860::8888"],
            _ => &[],
        };
        let addresses: Vec<IpAddr> = addresses.iter().map(|a| a.parse().unwrap()).collect();
        let answer = check_resolved(host, &addresses).err().map(|refused| refused.to_string());
        let reference = case.rest.get("reference").and_then(Value::as_str);
        same(reference.map(ToOwned::to_owned), answer.clone())?;
        matches(&case.expect["reason_matches"], &answer.unwrap_or_default())
    });
}

fn matches(pattern: &Value, text: &str) -> Result<(), String> {
    let Some(pattern) = pattern.as_str() else { return Ok(()) };
    let found = Regex::new(pattern).unwrap().is_match(text);
    if found { Ok(()) } else { Err(format!("{text:?} does not match {pattern}")) }
}

/// What nothing drives yet is said where skipped tests are listed.
#[test]
fn cases_that_wait_are_told() {
    for (file, list) in support::drivers() {
        for (name, driver) in list {
            let Some(reason) = driver.strip_prefix("later: ") else { continue };
            stockade_test_support::skip(&file, &format!("{name}: {reason}"));
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

/// A code as the cases write it.
fn code(error: impl Into<Problem>) -> String {
    let code: Code = error.into().code;
    code.as_str().to_lowercase()
}
