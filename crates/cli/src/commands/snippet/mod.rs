//! `stockade snippet`: small programs are checked, run in a worker, and told of.

mod files;

use std::io::Write as _;

use serde_json::{Value, json};
use stockade_core::{Code, Problem};
use stockade_script::worker::{Error as WorkerError, JailError, NoZygote};
use stockade_snippet::{Error, Input, Options, Runner, Transcript};

use crate::args::snippet::{CheckSnippet, RunSnippet, Snippet, SnippetCommand};
use crate::problem::{Failure, caused};

/// Runs the subcommand. The exit code is 0 when nothing is wrong, 1 when something is.
pub(crate) fn run(arguments: &Snippet) -> Result<u8, Failure> {
    match &arguments.command {
        SnippetCommand::Run(arguments) => Ok(execute(arguments)?),
        SnippetCommand::Check(arguments) => Ok(validate(arguments)?),
    }
}

fn execute(arguments: &RunSnippet) -> Result<u8, Problem> {
    let mut files = files::payload(&arguments.files)?;
    let timeout_ms = arguments.timeout_ms.map(f64::from);
    let input = match files.as_mut_slice() {
        [only] => {
            let source = Some(std::mem::take(&mut only.source));
            Input { source, files: None, timeout_ms }
        }
        _ => Input { source: None, files: Some(files), timeout_ms },
    };
    let transcript = with_runner(async |runner| runner.run(input, std::future::pending()).await)?;
    if arguments.json {
        print(&crate::json::text(&json!(transcript)))?;
    } else {
        print(&readable(&transcript))?;
    }
    Ok(u8::from(!transcript.is_clean()))
}

fn validate(arguments: &CheckSnippet) -> Result<u8, Problem> {
    let files = files::named(&arguments.files)?;
    let faults = with_runner(async |runner| runner.check(files).await)?;
    if arguments.json {
        print(&crate::json::text(&json!({ "errors": faults })))?;
    } else {
        let lines: Vec<String> = faults.iter().map(|fault| harmless(&fault.to_string())).collect();
        print(&lines.join("\n"))?;
    }
    Ok(u8::from(!faults.is_empty()))
}

/// Does something with what runs snippets, to its end.
fn with_runner<T>(work: impl AsyncFnOnce(&Runner) -> Result<T, Error>) -> Result<T, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| caused(Code::Io, &error))?;
    let runner = Runner::new(Options::new(crate::processes::snippets()));
    runtime.block_on(work(&runner)).map_err(|error| no_worker(&error))
}

/// The transcript for people: the console as it was, then what is left.
fn readable(transcript: &Transcript) -> String {
    let mut lines: Vec<String> = transcript.logs.iter().map(|line| harmless(line)).collect();
    for (name, values) in [("facts", &transcript.facts), ("derived", &transcript.derived)] {
        if !values.is_empty() {
            let values = crate::json::safe(Value::Object(values.clone()).to_string());
            lines.push(format!("{name}: {values}"));
        }
    }
    let told = |what: &str, texts: &[String]| -> Vec<String> {
        texts.iter().map(|text| format!("{what}: {}", harmless(text))).collect()
    };
    lines.extend(told("error", &transcript.errors));
    lines.extend(told("warning", &transcript.warnings));
    lines.push(format!("{} ms", transcript.duration_ms));
    lines.join("\n")
}

/// A text of a snippet with nothing in it that steers a terminal.
fn harmless(text: &str) -> String {
    let mut harmless = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && !matches!(character, '\n' | '\t') {
            harmless.extend(character.escape_default());
        } else {
            harmless.push(character);
        }
    }
    harmless
}

fn print(text: &str) -> Result<(), Problem> {
    let mut output = std::io::stdout().lock();
    let end = if text.is_empty() { "" } else { "\n" };
    write!(output, "{text}{end}").and_then(|()| output.flush()).map_err(|e| caused(Code::Io, &e))
}

fn no_worker(error: &Error) -> Problem {
    match error {
        Error::Worker(WorkerError::NotReady(NoZygote::Jail(JailError::Wall {
            wall,
            step,
            source,
        }))) => crate::run::wall_refused(*wall, step, source),
        error => caused(Code::LaunchFailed, error),
    }
}
