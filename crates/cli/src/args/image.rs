//! The arguments of `stockade image`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use stockade_core::parse_bytes;

use super::examples;

#[derive(Debug, Args)]
pub struct Image {
    #[command(subcommand)]
    pub command: ImageCommand,
}

#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Download an image from a registry
    #[command(after_help = examples::IMAGE_PULL)]
    Pull(ImagePull),
    /// List images
    #[command(alias = "list", after_help = examples::IMAGE_LS)]
    Ls(ImageList),
    /// Remove images that no sandbox uses
    #[command(alias = "remove", after_help = examples::IMAGE_RM)]
    Rm(ImageRemove),
    /// Show the configuration of images as JSON
    #[command(after_help = examples::IMAGE_INSPECT)]
    Inspect(ImageInspect),
    /// Add an image from a file or directory
    #[command(alias = "load", after_help = examples::IMAGE_IMPORT)]
    Import(ImageImport),
    /// Write an image to an archive
    #[command(alias = "save", after_help = examples::IMAGE_EXPORT)]
    Export(ImageExport),
    /// Remove what no image and no sandbox uses
    #[command(after_help = examples::IMAGE_PRUNE)]
    Prune(ImagePrune),
}

impl ImageCommand {
    /// Whether the answer is JSON.
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Pull(ImagePull { json, .. })
            | Self::Ls(ImageList { json, .. })
            | Self::Rm(ImageRemove { json, .. })
            | Self::Import(ImageImport { json, .. })
            | Self::Export(ImageExport { json, .. })
            | Self::Prune(ImagePrune { json, .. }) => *json,
            Self::Inspect(_) => true,
        }
    }
}

/// When an image is downloaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum PullPolicy {
    /// Always: what the tag names now, if that is another image
    Always,
    /// If it is not there (the default)
    #[default]
    Missing,
    /// Never: only an image that is there is used
    Never,
}

#[derive(Debug, Args)]
pub struct ImagePull {
    /// The image, such as `debian:12`, `ghcr.io/owner/name:tag` or `name@sha256:DIGEST`
    pub name: String,
    /// The platform, such as linux/arm64 [default: that of this host]
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    pub platform: Option<String>,
    /// The largest size of all parts together, such as 100G [default: 64G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub max_size: Option<u64>,
    /// Print only the name, and no progress
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write the progress as lines of JSON, for a server
    #[arg(long, hide = true)]
    pub events: bool,
}

#[derive(Debug, Args)]
pub struct ImageList {
    /// Only images of this repository, or with this name
    pub name: Option<String>,
    /// Include what has no name any more and is still used
    #[arg(long, short)]
    pub all: bool,
    /// Show the digests of manifests
    #[arg(long)]
    pub digests: bool,
    /// Print ids and digests in full
    #[arg(long)]
    pub no_trunc: bool,
    /// Print only ids
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ImageRemove {
    /// The images: names, or ids as `stockade image ls` prints them
    #[arg(value_name = "NAME|ID", required = true)]
    pub names: Vec<String>,
    /// Ignore images that do not exist; one that is used is not removed either way
    #[arg(long, short)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ImageInspect {
    /// The images: names, or ids as `stockade image ls` prints them
    #[arg(value_name = "NAME|ID", required = true)]
    pub names: Vec<String>,
    /// The platform, such as linux/arm64 [default: that of this host]
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    pub platform: Option<String>,
    /// Print JSON (the default)
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ImageImport {
    /// oci:DIR, oci-archive:FILE, docker-archive:FILE, tar:FILE or dir:DIR; or a path, whose kind is
    /// then found out
    pub source: OsString,
    /// The name of the image; needed if the source has none
    pub name: Option<String>,
    /// The platform, such as linux/arm64 [default: that of this host]
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    pub platform: Option<String>,
    /// Print only the name
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ImageExport {
    /// The image: a name, or an id as `stockade image ls` prints it
    #[arg(value_name = "NAME|ID")]
    pub name: String,
    /// oci-archive:FILE or docker-archive:FILE
    #[arg(required_unless_present = "output", conflicts_with = "output")]
    pub target: Option<OsString>,
    /// Write a docker-archive to this file
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The platform, such as linux/arm64 [default: that of this host]
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    pub platform: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ImagePrune {
    /// Also remove images with a name that no sandbox uses
    #[arg(long, short)]
    pub all: bool,
    /// Do not ask; nothing is asked without it either
    #[arg(long, short)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
