//! The arguments of decisions about bundles that need more than the bundle. A comment of a type here would
//! replace what its command says about itself.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Default, Args)]
pub struct Decision {
    /// Merge files that the host has changed too. If both changed the same lines, nothing is applied
    #[arg(long)]
    pub merge: bool,
    /// The same as --merge, but keep the host's side where both changed the same
    #[arg(long, conflicts_with = "theirs")]
    pub ours: bool,
    /// The same as --merge, but take the bundle's side where both changed the same
    #[arg(long)]
    pub theirs: bool,
    /// With --merge, write conflicts into the files, between markers
    #[arg(long, conflicts_with_all = ["ours", "theirs"])]
    pub markers: bool,
    /// Ask for each hunk whether to apply it
    #[arg(long, short, conflicts_with_all = ["json", "branch"])]
    pub interactive: bool,
    /// Commit the changes to this new branch, or take the commits to it with --commits, and leave the
    /// work tree as it is
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["merge", "ours", "theirs", "markers"]
    )]
    pub branch: Option<String>,
    /// The project's directory, if it was moved
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Undo {
    /// The project's directory, if it is not the current one
    #[arg(long, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct History {
    /// Only this bundle: its id, or the beginning of it
    pub id: Option<String>,
    /// The decisions about all projects
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
