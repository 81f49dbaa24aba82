//! `stockade snippet`: checks small programs, runs them in a worker, and reports the results.

mod example_result;
mod files;
mod gate;
mod junit;

use serde_json::{Value, json};
use stockade_core::Problem;
use stockade_snippet::{Input, Options, Runner, SourceFile, Transcript};

use crate::snippets::{libraries, no_worker, runner_for, wait_for};
use stockade_cli::args::snippet::{CheckSnippet, RunSnippet, Snippet, SnippetCommand};
use stockade_cli::output;
use stockade_cli::problem::Failure;

/// How many bytes of files one worker checks.
const CHECKED_BYTES: usize = 1 << 20;

/// Runs the subcommand. The exit code is 0 if there are no problems, else 1.
pub(crate) fn run(arguments: &Snippet) -> Result<u8, Failure> {
    match &arguments.command {
        SnippetCommand::Run(arguments) => Ok(execute(arguments)?),
        SnippetCommand::Check(arguments) => Ok(validate(arguments)?),
        SnippetCommand::Gate(arguments) => Ok(gate::run(arguments)?),
    }
}

fn execute(arguments: &RunSnippet) -> Result<u8, Problem> {
    let mut files = files::payload(&arguments.files)?;
    let timeout_ms = arguments.timeout.milliseconds();
    let name = match arguments.files.as_slice() {
        [file] if file.is_file() => file.to_str().map(ToOwned::to_owned),
        _ => None,
    };
    let mut inner = None;
    let input = match files.as_mut_slice() {
        [only] => {
            let path = files::entry_name(&only.path);
            inner = Some(path);
            let source = std::mem::take(&mut only.source);
            match path {
                files::ENTRY => Input { source: Some(source), files: None, timeout_ms },
                path => {
                    let files = files::with_entry(path, source);
                    Input { source: None, files: Some(files), timeout_ms }
                }
            }
        }
        _ => Input { source: None, files: Some(files), timeout_ms },
    };
    let runner = runner_for(&arguments.libraries, std::slice::from_ref(&input))?;
    let ran = wait_for(runner.run(input, std::future::pending()))?;
    let mut transcript = ran.map_err(|error| no_worker(&error))?;
    if let (Some(inner), Some(name)) = (inner, &name) {
        // Editors open the file that the user named.
        let texts = transcript.errors.iter_mut().chain(&mut transcript.logs);
        texts.for_each(|text| *text = text.replace(inner, name));
    }
    if arguments.json {
        print(&stockade_cli::json::text(&json!(transcript)))?;
    } else {
        print(&readable(&transcript))?;
    }
    Ok(u8::from(!transcript.is_clean()))
}

fn validate(arguments: &CheckSnippet) -> Result<u8, Problem> {
    let files = files::named_files(&arguments.files)?;
    let imports = libraries::imports(&arguments.packages)?;
    let options = Options::new(crate::programs::snippets());
    let runner = Runner::new(Options { imports, ..options });
    let faults = wait_for(async {
        let mut faults = Vec::new();
        for files in batches(files) {
            faults.extend(runner.check(files).await?);
        }
        Ok(faults)
    })?;
    let faults = faults.map_err(|error| no_worker(&error))?;
    if arguments.json {
        print(&stockade_cli::json::text(&json!({ "errors": faults })))?;
    } else {
        let lines: Vec<String> =
            faults.iter().map(|fault| escape_controls(&fault.to_string())).collect();
        print(&lines.join("\n"))?;
    }
    Ok(u8::from(!faults.is_empty()))
}

/// The files in their order, in batches of the size that one worker checks.
fn batches(files: Vec<SourceFile>) -> Vec<Vec<SourceFile>> {
    let mut batches: Vec<Vec<SourceFile>> = Vec::new();
    let mut bytes = CHECKED_BYTES;
    for file in files {
        bytes += file.source.len();
        match batches.last_mut().filter(|_| bytes <= CHECKED_BYTES) {
            Some(batch) => batch.push(file),
            None => {
                bytes = file.source.len();
                batches.push(vec![file]);
            }
        }
    }
    batches
}

/// The transcript for people: the unchanged console, then the other fields.
fn readable(transcript: &Transcript) -> String {
    let mut lines: Vec<String> = transcript.logs.iter().map(|line| indented(line)).collect();
    for (name, values) in [("facts", &transcript.facts), ("derived", &transcript.derived)] {
        if !values.is_empty() {
            let values =
                stockade_cli::json::escape_controls(Value::Object(values.clone()).to_string());
            lines.push(format!("{name}: {values}"));
        }
    }
    let told = |what: &str, texts: &[String]| -> Vec<String> {
        texts.iter().map(|text| format!("{what}: {}", indented(text))).collect()
    };
    lines.extend(told("error", &transcript.errors));
    lines.extend(told("warning", &transcript.warnings));
    for library in &transcript.libraries {
        // The built-in library is reported as a warning already.
        if let Some(version) = &library.version {
            lines.push(escape_controls(&format!("library: {} {version}", library.name)));
        }
    }
    lines.push(format!("{} ms", transcript.duration_ms));
    lines.join("\n")
}

/// A text of a snippet, whose lines after the first are indented: none of them can look like a line of
/// Stockade's own.
fn indented(text: &str) -> String {
    escape_controls(text).replace('\n', "\n    ")
}

/// A text of a snippet without terminal control characters.
fn escape_controls(text: &str) -> String {
    stockade_core::printable::escaped_lines(text).into_owned()
}

fn print(text: &str) -> Result<(), Problem> {
    output::print(text)
}
