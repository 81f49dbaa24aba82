//! `stockade snippet gate`: runs the examples of documents, and reports them with their positions.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use stockade_core::{Code, Problem};
use stockade_snippet::Runner;
use stockade_snippet::documents::{Example, Syntax, examples};
use tokio::task::JoinSet;

use super::example_result::ExampleResult;
use super::files::{cannot_read, collect_files};
use super::{escape_controls, junit, print};
use crate::snippets::{no_worker, runner_for, wait_for};
use stockade_cli::args::snippet::Gate;
use stockade_cli::problem::caused;

/// The extensions of documents in a directory.
const ENDINGS: &[&str] = &["md", "mdx", "markdown"];
/// The deepest level of a directory that is searched.
const MAX_DEPTH: usize = 32;
/// The longest document that is read.
const MAX_BYTES: u64 = 8 << 20;

/// Runs every example; the exit code is 0 if all succeeded.
pub(super) fn run(arguments: &Gate) -> Result<u8, Problem> {
    let mut found = Vec::new();
    for path in documents(&arguments.documents)? {
        let text = content(&path)?;
        let name = path.display().to_string();
        let text: Arc<str> = text.into();
        found.extend(examples(&text, Syntax::of(&name)).into_iter().map(|example| {
            DocumentExample { document: name.clone(), text: Arc::clone(&text), example }
        }));
    }
    let timeout_ms = arguments.timeout.milliseconds();
    let to_run = found.iter().filter(|entry| !entry.example.skipped);
    let inputs: Vec<_> = to_run.map(|entry| entry.example.input(timeout_ms)).collect();
    let runner = runner_for(&arguments.libraries, &inputs)?;
    let results = wait_for(execute_all(&runner, found, timeout_ms))??;
    if let Some(path) = &arguments.junit {
        std::fs::write(path, junit::report(&results)).map_err(|error| {
            let problem = caused(Code::Io, &error);
            Problem { message: format!("cannot write {}: {error}", path.display()), ..problem }
        })?;
    }
    let failed = results.iter().filter(|result| result.failed()).count();
    let skipped = results.iter().filter(|result| result.transcript.is_none()).count();
    let passed = results.len() - failed - skipped;
    if arguments.json {
        let examples = results.iter().map(|result| {
            let ExampleResult { document, line, transcript } = result;
            json!({ "document": document, "line": line, "status": result.status(), "transcript": transcript })
        });
        let examples: Vec<_> = examples.collect();
        let report = json!({
            "passed": passed, "failed": failed, "skipped": skipped, "examples": examples
        });
        print(&stockade_cli::json::text(&report))?;
    } else {
        let mut lines: Vec<String> = results.iter().flat_map(readable).collect();
        lines.push(format!("{passed} passed, {failed} failed, {skipped} skipped"));
        print(&lines.join("\n"))?;
    }
    if passed + failed == 0 && !arguments.allow_empty {
        return Err(Problem::new(Code::InvalidInput, "the documents have no example to run")
            .remedied_by("use --allow-empty if this is intended"));
    }
    Ok(u8::from(failed > 0))
}

/// Runs them concurrently, as many as the runner allows.
async fn execute_all(
    runner: &Arc<Runner>,
    found: Vec<DocumentExample>,
    timeout_ms: Option<f64>,
) -> Result<Vec<ExampleResult>, Problem> {
    let progress = progress(found.len());
    let mut running = JoinSet::new();
    for (index, entry) in found.into_iter().enumerate() {
        let runner = Arc::clone(runner);
        running.spawn(async move { (index, entry.execute(&runner, timeout_ms).await) });
    }
    let mut results = Vec::new();
    while let Some(joined) = running.join_next().await {
        let (index, result) = joined.map_err(|error| caused(Code::LaunchFailed, &error))?;
        let result = result?;
        progress.set_message(format!("{}:{}", result.document, result.line));
        progress.inc(1);
        results.push((index, result));
    }
    progress.finish_and_clear();
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// An example with its document.
struct DocumentExample {
    document: String,
    text: Arc<str>,
    example: Example,
}

impl DocumentExample {
    async fn execute(
        self,
        runner: &Runner,
        timeout_ms: Option<f64>,
    ) -> Result<ExampleResult, Problem> {
        let Self { document, text, example } = self;
        let line = example.line;
        if example.skipped {
            return Ok(ExampleResult { document, line, transcript: None });
        }
        let ran = runner.run(example.input(timeout_ms), std::future::pending()).await;
        let mut transcript = ran.map_err(|error| no_worker(&error))?;
        for error in &mut transcript.errors {
            *error = example.relocate(error, &document, &text);
        }
        Ok(ExampleResult { document, line, transcript: Some(transcript) })
    }
}

/// The report of an example for people: its position, and its failures.
fn readable(result: &ExampleResult) -> Vec<String> {
    let mut lines = vec![escape_controls(&format!(
        "{:7} {}:{}",
        result.status(),
        result.document,
        result.line
    ))];
    let transcript = result.transcript.as_ref().filter(|_| result.failed());
    for error in transcript.into_iter().flat_map(|transcript| &transcript.errors) {
        lines.extend(escape_controls(error).lines().map(|line| format!("        {line}")));
    }
    lines
}

/// The given documents, and those in the given directories.
fn documents(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Problem> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            collect_files(path, MAX_DEPTH, &is_document, &mut found)?;
        } else {
            found.push(path.clone());
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn is_document(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ENDINGS.iter().any(|one| one.eq_ignore_ascii_case(ending)))
}

fn content(path: &Path) -> Result<String, Problem> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text))
        .map_err(|error| cannot_read(path, &error))?;
    if text.len() as u64 > MAX_BYTES {
        let message = format!("{} is longer than {MAX_BYTES} bytes", path.display());
        return Err(Problem::new(Code::InvalidInput, message));
    }
    if !text.contains('\n') {
        // A line may also end with a carriage return alone, which the parser does not know.
        text = text.replace('\r', "\n");
    }
    Ok(text)
}

/// Visible on a terminal only.
fn progress(count: usize) -> ProgressBar {
    let progress = ProgressBar::new(count as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len} {wide_msg}") {
        progress.set_style(style);
    }
    progress
}
