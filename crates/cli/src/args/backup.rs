//! The arguments of `backup` and `migrate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::examples;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Backup {
    #[command(subcommand)]
    pub what: Option<BackupCommand>,
    /// The new file, or a directory in which a file with the time in its name is created. An existing file
    /// is not replaced
    #[arg(value_name = "FILE|DIR")]
    pub to: Option<PathBuf>,
    /// Leave out the files of sandboxes that are not stopped: they are terminated in the restored
    /// directory
    #[arg(long)]
    pub without_running: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Compare everything in a backup with the hashes that were stored with it
    #[command(after_help = examples::BACKUP_CHECK)]
    Check(BackupFile),
    /// Extract a backup to the data directory, which must be empty or missing
    #[command(after_help = examples::BACKUP_RESTORE)]
    Restore(BackupFile),
}

#[derive(Debug, Args)]
pub struct BackupFile {
    /// The backup
    pub file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Migrate {
    /// Where the records get to: `sqlite`, a file in the data directory; `postgres`, the database of
    /// STOCKADE_DATABASE_URL; or a URL without a password, as postgres://USER@HOST:PORT/DATABASE
    #[arg(long, value_name = "DATABASE")]
    pub to: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Backup {
    /// Whether errors must be printed as JSON, too.
    pub(crate) const fn wants_json(&self) -> bool {
        match &self.what {
            Some(BackupCommand::Check(file) | BackupCommand::Restore(file)) => file.json,
            None => self.json,
        }
    }
}
