//! The arguments of `stockade snippet`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use stockade_core::address::hosts::Hosts;
use stockade_core::parse_duration;

#[derive(Debug, Args)]
pub struct Snippet {
    #[command(subcommand)]
    pub command: SnippetCommand,
}

#[derive(Debug, Subcommand)]
pub enum SnippetCommand {
    /// Run a snippet in a jailed worker process and print its transcript
    #[command(after_help = super::examples::SNIPPET_RUN)]
    Run(RunSnippet),
    /// Check a snippet without running it
    #[command(after_help = super::examples::SNIPPET_CHECK)]
    Check(CheckSnippet),
    /// Run every TypeScript and JavaScript code block of Markdown documents
    #[command(after_help = super::examples::SNIPPET_GATE)]
    Gate(Gate),
}

#[derive(Debug, Args)]
pub struct RunSnippet {
    /// One file, several files with a `main.ts`, or a directory; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub timeout: Timeout,
    #[command(flatten)]
    pub libraries: Libraries,
    /// Print the transcript as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CheckSnippet {
    /// Files or directories; `-` is standard input
    #[arg(required = true, value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// Allow snippets to import this package. Can be repeated
    #[arg(long = "package", value_name = "NAME")]
    pub packages: Vec<String>,
    /// Print the errors as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Gate {
    /// Markdown documents, or directories that are searched for `*.md`
    #[arg(required = true, value_name = "DOCS")]
    pub documents: Vec<PathBuf>,
    /// Write a JUnit report
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Succeed if there is nothing to run
    #[arg(long)]
    pub allow_empty: bool,
    #[command(flatten)]
    pub timeout: Timeout,
    #[command(flatten)]
    pub libraries: Libraries,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Timeout {
    /// Time limit of a snippet, from 100ms to 10s [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = snippet_timeout)]
    pub timeout: Option<Duration>,
    /// The same in milliseconds
    #[arg(long, hide = true, conflicts_with = "timeout", value_name = "MILLISECONDS", value_parser = clap::value_parser!(u32).range(100..=10_000))]
    pub timeout_ms: Option<u32>,
}

impl Timeout {
    /// The time limit in milliseconds, if there is one.
    #[must_use]
    pub fn milliseconds(&self) -> Option<f64> {
        let length = self.timeout.map(|length| length.as_secs_f64() * 1000.0);
        length.or_else(|| self.timeout_ms.map(f64::from))
    }
}

fn snippet_timeout(text: &str) -> Result<Duration, String> {
    let length = parse_duration(text).map_err(|error| error.to_string())?;
    if (Duration::from_millis(100)..=Duration::from_secs(10)).contains(&length) {
        return Ok(length);
    }
    Err("it must be between 100ms and 10s".to_owned())
}

// What snippets may import, and fetch with it. (clap would use a doc comment here as that of every
// command.)
#[derive(Debug, Args)]
pub struct Libraries {
    /// Load `@directive-run/*` and other packages from this `node_modules` directory [default:
    /// $STOCKADE_LIBRARIES, otherwise the built-in library]
    #[arg(long = "libraries", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Allow snippets to import this package of the directory, or a part of one, such as
    /// `zod/mini`. Can be repeated [default: $STOCKADE_PACKAGES, separated by commas]
    #[arg(long = "package", value_name = "NAME")]
    pub packages: Vec<String>,
    /// Allow packages to fetch from these hosts only: `public`, `none`, or names separated by commas,
    /// such as example.com,*.example.org [default: $STOCKADE_FETCH, otherwise public]
    #[arg(long, value_name = "HOSTS")]
    pub fetch: Option<Hosts>,
}

impl Snippet {
    pub fn wants_json(&self) -> bool {
        match &self.command {
            SnippetCommand::Run(run) => run.json,
            SnippetCommand::Check(check) => check.json,
            SnippetCommand::Gate(gate) => gate.json,
        }
    }
}
