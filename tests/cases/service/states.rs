//! Orbiter's states and parameters.

use serde_json::{Value, json};
use stockade_service::orbiter::{Call, Settings, Status};

use crate::support::{Case, no_driver, same};

pub(crate) fn case(case: &Case) -> Result<(), String> {
    let settings: Settings = serde_json::from_value(case.given.clone()).unwrap_or_default();
    match case.name.as_str() {
        name if name.starts_with("transition ") => transition(case),
        "status strings" => same(case.expect.clone(), json!(Status::ALL)),
        "defaults" => {
            let expected = case.expect.as_object().unwrap();
            let mut made = serde_json::to_value(&settings).unwrap();
            made["status"] = json!(Status::Init);
            made["sandbox_id"] = expected["sandbox_id"].clone();
            same(&case.expect, &made)?;
            generated_id(&settings)
        }
        "empty sandbox_id is auto-generated" => generated_id(&settings),
        "describe keys" => {
            let id = settings.id([0; 6]).unwrap();
            let output = serde_json::to_value(settings.describe(id, Status::Init)).unwrap();
            same(&case.expect, &output)
        }
        "start"
        | "start then stop"
        | "cleanup from running"
        | "start twice"
        | "stop from init"
        | "start from error retries" => calls(case),
        _ => no_driver(),
    }
}

/// An id of twelve lower-case hexadecimal digits, from whatever chance.
fn generated_id(settings: &Settings) -> Result<(), String> {
    for chance in [[0; 6], [0xff; 6], [1, 0x2b, 3, 0xd4, 5, 6]] {
        let id = settings.id(chance).unwrap().to_string();
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        same((12, true), (id.len(), id.bytes().all(hex)))?;
    }
    Ok(())
}

fn transition(case: &Case) -> Result<(), String> {
    let from: Status = text(&case.given["status"]).parse().unwrap();
    let to: Status = text(&case.when).strip_prefix("transition to ").unwrap().parse().unwrap();
    match from.transition_to(to) {
        Ok(reached) => same(&case.expect, &json!({"status": reached})),
        Err(error) => {
            same(text(&case.expect["status_unchanged"]), error.from.as_str())?;
            same(format!("Cannot transition from {from} to {to}"), error.to_string())
        }
    }
}

/// Calls in order, by the statuses that they lead to; `->STATUS` is a step by itself.
fn calls(case: &Case) -> Result<(), String> {
    let mut status = Ok(Status::Init);
    for step in text(&case.when).split(',') {
        let target = match step.strip_prefix("->") {
            // Whatever brought it there: a sandbox that was not started cannot fail.
            Some("error") => {
                status = Ok(Status::Error);
                continue;
            }
            Some(other) => return Err(format!("no step {other}")),
            None => step.parse::<Call>().unwrap().target(),
        };
        status = status.and_then(|status| status.transition_to(target));
    }
    match status {
        Ok(status) => same(text(&case.expect), status.as_str()),
        Err(error) => {
            same("SandboxError Cannot transition", text(&case.expect))?;
            same(true, error.to_string().starts_with("Cannot transition"))
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}
