//! The arguments of `login` and `logout`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct Login {
    /// The URL of the server, such as https://box.example:8443
    pub url: String,
    /// Read the API key from this file instead of standard input
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Leave the server of commands that name none as it is
    #[arg(long)]
    pub no_default: bool,
}

#[derive(Debug, Args)]
pub struct Logout {
    /// The URL of the server
    #[arg(required_unless_present = "all")]
    pub url: Option<String>,
    /// Forget the keys of all servers
    #[arg(long, conflicts_with = "url")]
    pub all: bool,
}
