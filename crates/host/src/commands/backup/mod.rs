//! `stockade backup`: the records and files of the data directory in one file, and back.

mod create;
mod restore;
mod staging;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use stockade_backup::{Manifest, TableRows};
use stockade_cli::args::backup::{Backup, BackupCommand, BackupFile};
use stockade_cli::commands::print::{print, print_text};
use stockade_cli::eprint_line;
use stockade_cli::problem::Failure;
use stockade_core::{Code, Problem};
use stockade_durable::transfer::TableContent;

/// Makes, checks or restores a backup.
pub(crate) fn run(arguments: &Backup) -> Result<u8, Failure> {
    match (&arguments.what, &arguments.to) {
        (Some(BackupCommand::Check(file)), _) => check(file),
        (Some(BackupCommand::Restore(file)), _) => restore::run(file),
        (None, Some(to)) => create::run(to, arguments),
        (None, None) => {
            Err(Problem::new(Code::InvalidInput, "a backup needs the name of its file")
                .remedied_by("stockade backup FILE")
                .into())
        }
    }
}

fn check(arguments: &BackupFile) -> Result<u8, Failure> {
    let manifest =
        stockade_backup::read(open(&arguments.file)?).map_err(|error| named(error, arguments))?;
    report(&arguments.file, &manifest, arguments.json)?;
    Ok(0)
}

fn table(content: TableContent) -> TableRows {
    let TableContent { table, rows, sha256 } = content;
    TableRows { table, rows, sha256 }
}

fn open(file: &Path) -> Result<BufReader<File>, Problem> {
    let opened = File::open(file);
    let opened = opened
        .map_err(|error| Problem::caused(Code::Io, &error).because(file.display().to_string()));
    Ok(BufReader::with_capacity(1 << 20, opened?))
}

/// The problem of a file that was given.
fn named(error: stockade_backup::Error, arguments: &BackupFile) -> Problem {
    let mut problem = Problem::from(error);
    problem.message = format!("{}: {}", arguments.file.display(), problem.message);
    problem
}

/// Prints what a backup has.
fn report(path: &Path, manifest: &Manifest, json: bool) -> Result<(), Failure> {
    if json {
        return print(&json!({ "path": path, "manifest": manifest }));
    }
    let rows: u64 = manifest.tables.iter().map(|table| table.rows).sum();
    print_text(&format!(
        "{}: {rows} rows in {} tables, {} files and directories with {} bytes, all compared with their \
         hashes\n",
        path.display(),
        manifest.tables.len(),
        manifest.entries,
        manifest.bytes
    ))?;
    if manifest.left_out > 0 {
        eprint_line!("stockade: {} sockets and devices are not in it", manifest.left_out);
    }
    Ok(())
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
