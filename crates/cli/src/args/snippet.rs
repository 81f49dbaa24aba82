//! The arguments of `stockade snippet`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct Snippet {
    #[command(subcommand)]
    pub(crate) command: SnippetCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnippetCommand {
    /// Run a snippet in a jailed worker of its own, and print what it did
    Run(RunSnippet),
    /// Tell what a snippet may not say, without running it
    Check(CheckSnippet),
}

#[derive(Debug, Args)]
pub(crate) struct RunSnippet {
    /// One file, several with a `main.ts` among them, or a directory of such
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// How long it may take, in milliseconds [default: 5000]
    #[arg(long, value_name = "MILLISECONDS", value_parser = clap::value_parser!(u32).range(100..=10_000))]
    pub(crate) timeout_ms: Option<u32>,
    /// Print the transcript as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckSnippet {
    /// Files, or a directory of files
    #[arg(required = true, value_name = "PATH")]
    pub(crate) files: Vec<PathBuf>,
    /// Print what is wrong as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Snippet {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.command {
            SnippetCommand::Run(run) => run.json,
            SnippetCommand::Check(check) => check.json,
        }
    }
}
