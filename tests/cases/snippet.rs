//! The cases of snippets: what is accepted, and what a run answers.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod support;

use std::time::{Duration, Instant};

use regex::Regex;
use serde_json::{Value, json};
use stockade_script::worker::Program;
use stockade_script::{Fault, SourceFile};
use stockade_snippet::library::built_in;
use stockade_snippet::{
    Error, Imports, Input, Options, Runner, Transcript, check, derivation_keys, execute,
    sanitize_stack,
};
use support::{Case, drive, no_driver, same};

#[test]
fn validator() {
    drive("tests/cases/snippet.rs::validator", "snippet_validator.json", |case| {
        let faults = check(&files(case), &Imports::default()).err().unwrap_or_default();
        // The exact places and texts, all of them, in their order.
        same(&case.rest["reference_errors"], &json!(faults))?;
        let rendered: Vec<String> = faults.iter().map(Fault::to_string).collect();
        errors(&case.expect, &rendered)
    });
}

#[test]
fn derivations() {
    let file = "snippet_derivation_keys.json";
    drive("tests/cases/snippet.rs::derivations", file, |case| {
        same(&case.expect, &json!(derivation_keys(&files(case))))
    });
}

#[test]
fn stacks() {
    drive("tests/cases/snippet.rs::stacks", "snippet_sanitize_stack.json", |case| {
        let clean = sanitize_stack(case.rest["input"].as_str());
        same(case.rest["reference"].as_str(), Some(clean.as_str()))?;
        match &case.expect {
            Value::Object(expect) if expect.contains_key("equals") => {
                same(expect["equals"].as_str(), Some(clean.as_str()))
            }
            Value::Object(expect) => {
                let holds = |text: &Value| clean.contains(text.as_str().unwrap());
                let list = |key: &str| expect[key].as_array().unwrap().iter();
                same(true, list("has").all(holds) && !list("not").any(holds))
            }
            _ => no_driver(),
        }
    });
}

#[test]
fn runs() {
    drive("tests/cases/snippet.rs::runs", "snippet_run.json", |case| {
        let transcript = run(&case.rest["input"]);
        let reference = &case.rest["reference"];
        same(&reference["logs"], &json!(transcript.logs))?;
        same(&reference["facts"], &json!(transcript.facts))?;
        same(&reference["derived"], &json!(transcript.derived))?;
        expected(&case.expect, &transcript)
    });
    let beyond = "snippet_behaviour_beyond_reference.json";
    drive("tests/cases/snippet.rs::runs", beyond, |case| {
        let mut input = json!({ "files": case.rest["files"] });
        if let Some(timeout) = case.rest.get("timeoutMs") {
            input["timeoutMs"] = timeout.clone();
        }
        expected(&case.expect, &run(&input))
    });
}

#[test]
fn escapes() {
    let file = "snippet_escapes_beyond_reference.json";
    drive("tests/cases/snippet.rs::escapes", file, |case| {
        let transcript = run(&json!({ "files": case.rest["files"] }));
        let traces = case.expect["no_log_contains"].as_array().unwrap();
        let found = traces.iter().find(|trace| {
            transcript.logs.iter().any(|line| line.contains(trace.as_str().unwrap()))
        });
        match found {
            Some(trace) => Err(format!("{trace} in {:?}", transcript.logs)),
            None => Ok(()),
        }
    });
}

#[test]
fn concurrency() {
    let file = "snippet_concurrency.json";
    drive("tests/cases/snippet.rs::concurrency", file, |case| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(concurrent(case))
    });
}

async fn concurrent(case: &Case) -> Result<(), String> {
    let mut options = Options::new(program());
    if let Some(cap) = case.rest.get("setup").and_then(|setup| setup["max_concurrent"].as_u64()) {
        options.max_concurrent = usize::try_from(cap).unwrap();
    }
    let runner = Runner::new(options);
    let input = |timeout: Value| {
        let input = json!({ "source": case.rest["source"], "timeoutMs": timeout });
        serde_json::from_value::<Input>(input).unwrap()
    };
    let run = |input: Input| runner.run(input, std::future::pending());
    let clean = |transcript: &Transcript| same(&Vec::new(), &transcript.errors);
    match case.name.as_str() {
        "serializes calls when cap is 1" => {
            let inputs: Vec<Input> = serde_json::from_value(case.rest["parallel"].clone()).unwrap();
            let [a, b, c] = <[Input; 3]>::try_from(inputs).unwrap();
            for transcript in <[_; 3]>::from(tokio::join!(run(a), run(b), run(c))) {
                let transcript = transcript.unwrap();
                clean(&transcript)?;
                same(false, transcript.timed_out)?;
            }
            Ok(())
        }
        "set cap returns the previous cap" => {
            runner.set_max_concurrent(2);
            same(2, runner.set_max_concurrent(8))
        }
        "aborted queued callers do not leak a slot" => {
            // The second is polled after the first, and waits until it is taken back.
            let (a, b) = tokio::join!(
                run(input(Value::Null)),
                runner.run(input(Value::Null), tokio::task::yield_now()),
            );
            same(true, matches!(b, Err(Error::Aborted)))?;
            clean(&a.unwrap())?;
            clean(&run(input(Value::Null)).await.unwrap())
        }
        "abort after acquisition terminates the running worker and frees the slot" => {
            runner.warm().await.unwrap();
            let number = |value: &Value| value.as_u64().unwrap();
            let after = Duration::from_millis(number(&case.rest["abort_after_ms"]));
            let abort = tokio::time::sleep(after);
            let started = Instant::now();
            let input = input(case.rest["timeoutMs"].clone());
            let transcript = runner.run(input, abort).await.unwrap();
            let limit = Duration::from_millis(number(&case.expect["elapsed_ms_less_than"]));
            same(true, started.elapsed() < limit)?;
            let pattern = Regex::new(case.expect["any_error_matches"].as_str().unwrap()).unwrap();
            same(true, transcript.errors.iter().any(|error| pattern.is_match(error)))?;
            let fresh = Input { source: Some("export {};".to_owned()), ..Input::default() };
            clean(&run(fresh).await.unwrap())
        }
        _ => no_driver(),
    }
}

/// The example that workers are forked from.
fn program() -> Program {
    Program { path: stockade_test_support::program("snippets"), arguments: Vec::new() }
}

fn run(input: &Value) -> Transcript {
    let mut input = input.clone();
    for file in input["files"].as_array_mut().into_iter().flatten() {
        let Some(repeat) = file.as_object_mut().unwrap().remove("repeat") else { continue };
        let times = usize::try_from(repeat["times"].as_u64().unwrap()).unwrap();
        file["source"] = json!(repeat["text"].as_str().unwrap().repeat(times));
    }
    let input: Input = serde_json::from_value(input).unwrap();
    execute(input, &Imports::default(), &built_in())
}

fn expected(expect: &Value, transcript: &Transcript) -> Result<(), String> {
    let fields = serde_json::to_value(transcript).unwrap();
    let mut of_errors = serde_json::Map::new();
    for (key, expected) in expect.as_object().unwrap() {
        match key.as_str() {
            "facts" | "derived" | "logs" | "timedOut" | "durationMs" => {
                same(expected, &fields[key])?;
            }
            "any_log_contains" => {
                let wanted = expected.as_str().unwrap();
                same(true, transcript.logs.iter().any(|line| line.contains(wanted)))?;
            }
            _ => drop(of_errors.insert(key.clone(), expected.clone())),
        }
    }
    errors(&Value::Object(of_errors), &transcript.errors)
}

/// Checks what is expected of errors as they are rendered.
fn errors(expect: &Value, errors: &[String]) -> Result<(), String> {
    for (key, expected) in expect.as_object().unwrap() {
        let holds = match key.as_str() {
            "errors" => *expected == json!(errors),
            "min_errors" => errors.len() >= usize::try_from(expected.as_u64().unwrap()).unwrap(),
            "first_error_matches" => {
                let pattern = Regex::new(expected.as_str().unwrap()).unwrap();
                errors.first().is_some_and(|first| pattern.is_match(first))
            }
            "any_error_contains" => {
                errors.iter().any(|error| error.contains(expected.as_str().unwrap()))
            }
            _ => return no_driver(),
        };
        if !holds {
            return Err(format!("{key}: got {errors:#?}"));
        }
    }
    Ok(())
}

fn files(case: &Case) -> Vec<SourceFile> {
    serde_json::from_value(case.rest["files"].clone()).unwrap()
}
