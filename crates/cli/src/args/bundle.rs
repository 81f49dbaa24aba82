//! The arguments of commands about bundles: `bundles`, `diff`, `apply` and `reject`.

use std::ffi::OsString;

use clap::Args;
use stockade_core::{OrNone, parse_bytes_or_none};

use super::decide;
use super::sandbox_flags::{Pair, pair};

#[derive(Debug, Args)]
pub struct Bundles {
    /// Include the bundles of other projects
    #[arg(long, short)]
    pub all: bool,
    /// Only bundles with this label
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub label: Vec<Pair>,
    /// Maximum size of the bundles made from killed runs, or `none` [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes_or_none)]
    pub max_bundle: Option<OrNone<u64>>,
    /// Maximum number of changed paths of the bundle; a directory that git ignores counts as one if
    /// many paths in it changed [default: 200000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub max_paths: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// When output has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorWhen {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Args)]
pub struct Diff {
    /// A bundle's id, a unique prefix of it, or `latest`
    pub id: String,
    /// Only these paths, below the project's root
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Print how many lines changed in each file
    #[arg(long, conflicts_with = "json")]
    pub stat: bool,
    /// Print only the paths of changed files
    #[arg(long, conflicts_with_all = ["json", "stat"])]
    pub name_only: bool,
    /// When to use colours; `auto` means on a terminal
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = ColorWhen::Auto)]
    pub color: ColorWhen,
    /// Show each changed file in this program, which gets the paths of the old and the new content;
    /// without a name, in the difftool of your git
    #[arg(
        long,
        value_name = "PROGRAM",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with_all = ["json", "stat", "name_only", "commits"]
    )]
    pub tool: Option<OsString>,
    /// Show the commits that the command has made
    #[arg(long)]
    pub commits: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Apply {
    /// A bundle's id, a unique prefix of it, or `latest`
    pub id: String,
    /// Only these paths, below the project's root, including paths that git ignores
    #[arg(value_name = "PATH")]
    pub paths: Vec<OsString>,
    /// Also apply files that git ignores
    #[arg(long)]
    pub include_ignored: bool,
    /// Accept files that tools of the host execute by themselves: hooks, editor tasks, CI files
    #[arg(long)]
    pub allow_executed: bool,
    /// Accept new contents that the diff does not show: very large texts, and programs
    #[arg(long)]
    pub allow_unseen: bool,
    /// Leave out what needs --allow-executed or --allow-unseen, and apply the rest
    #[arg(long)]
    pub skip_unaccepted: bool,
    /// Take the commits that the command has made, to a branch of their own: that of `--branch`, or
    /// stockade/ID
    #[arg(
        long,
        conflicts_with_all = ["merge", "ours", "theirs", "markers", "interactive", "project"]
    )]
    pub commits: bool,
    #[command(flatten)]
    pub decision: decide::Decision,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Reject {
    /// Ids of bundles, unique prefixes of them, or `latest`, which must be confirmed
    #[arg(required_unless_present = "all")]
    pub id: Vec<String>,
    /// Delete all bundles of the current project
    #[arg(long, conflicts_with = "id")]
    pub all: bool,
    /// Confirm that the bundle called `latest` is deleted
    #[arg(long, short)]
    pub yes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
