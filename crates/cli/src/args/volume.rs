//! The arguments of `stockade volume` and `stockade cache`.

use clap::{Args, Subcommand};

use super::examples;
use super::sandbox_flags::{Pair, pair};

#[derive(Debug, Args)]
pub struct Volume {
    /// What to do
    #[command(subcommand)]
    pub what: VolumeCommand,
}

#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Create a volume and print its name
    #[command(after_help = examples::VOLUME_CREATE)]
    Create(CreateVolume),
    /// List volumes
    #[command(visible_alias = "list")]
    #[command(after_help = examples::VOLUME_LS)]
    Ls(ListVolumes),
    /// Remove volumes and their content
    #[command(visible_alias = "remove")]
    #[command(after_help = examples::VOLUME_RM)]
    Rm(RemoveVolumes),
    /// Print all about volumes as JSON
    #[command(after_help = examples::VOLUME_INSPECT)]
    Inspect(InspectVolumes),
    /// Remove the volumes that no sandbox uses
    #[command(after_help = examples::VOLUME_PRUNE)]
    Prune(PruneVolumes),
}

#[derive(Debug, Args)]
pub struct CreateVolume {
    /// The volume's name [default: generated]
    pub name: Option<String>,
    /// Add a label
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub label: Vec<Pair>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ListVolumes {
    /// Include caches
    #[arg(long, short)]
    pub all: bool,
    /// Only volumes with this label
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub label: Vec<Pair>,
    /// Print only names
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RemoveVolumes {
    /// Names of volumes
    #[arg(required = true)]
    pub name: Vec<String>,
    /// Do not fail for a volume that does not exist
    #[arg(long, short)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct InspectVolumes {
    /// Names of volumes
    #[arg(required = true)]
    pub name: Vec<String>,
    /// Print JSON (the default)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PruneVolumes {
    /// Also remove volumes that were given a name
    #[arg(long, short)]
    pub all: bool,
    /// Do not ask
    #[arg(long, short, alias = "yes")]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Cache {
    /// What to do
    #[command(subcommand)]
    pub what: CacheCommand,
}

#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// List caches
    #[command(visible_alias = "list")]
    #[command(after_help = examples::CACHE_LS)]
    Ls(ListCaches),
    /// Remove caches by the names of their volumes, or of the current project by their own names
    #[command(visible_alias = "remove")]
    #[command(after_help = examples::CACHE_RM)]
    Rm(RemoveVolumes),
    /// Remove the caches that no sandbox uses
    #[command(after_help = examples::CACHE_PRUNE)]
    Prune(PruneCaches),
}

#[derive(Debug, Args)]
pub struct ListCaches {
    /// Include the caches of other projects
    #[arg(long, short)]
    pub all: bool,
    /// Print only the names of the volumes
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PruneCaches {
    /// Also remove the caches of other projects
    #[arg(long, short)]
    pub all: bool,
    /// Do not ask
    #[arg(long, short, alias = "yes")]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Volume {
    /// Whether errors must be printed as JSON, too.
    pub const fn wants_json(&self) -> bool {
        match &self.what {
            VolumeCommand::Create(CreateVolume { json, .. })
            | VolumeCommand::Ls(ListVolumes { json, .. })
            | VolumeCommand::Rm(RemoveVolumes { json, .. })
            | VolumeCommand::Inspect(InspectVolumes { json, .. })
            | VolumeCommand::Prune(PruneVolumes { json, .. }) => *json,
        }
    }
}

impl Cache {
    /// Whether errors must be printed as JSON, too.
    pub const fn wants_json(&self) -> bool {
        match &self.what {
            CacheCommand::Ls(ListCaches { json, .. })
            | CacheCommand::Rm(RemoveVolumes { json, .. })
            | CacheCommand::Prune(PruneCaches { json, .. }) => *json,
        }
    }
}
