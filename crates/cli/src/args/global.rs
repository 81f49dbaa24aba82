//! The options that every command has.

use std::path::PathBuf;

use clap::Args;

// Where the operations happen. (clap would use a doc comment here as that of every command.)
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Request the operations from the server at this URL instead of this machine, or with `local`
    /// from this machine [env: STOCKADE_SERVER]
    #[arg(long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// Also trust the authorities in this file, in PEM format, for TLS with the server
    /// [env: STOCKADE_TLS_CA]
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// The data directory [env: STOCKADE_DATA_DIR]
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}
