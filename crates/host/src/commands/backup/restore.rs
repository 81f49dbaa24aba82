//! Restores a backup: it is extracted beside the data directory, compared, and then gets its name.

use std::fs::{DirBuilder, File};
use std::io::BufReader;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use stockade_backup::{Manifest, RECORDS, TableRows};
use stockade_bundle::beneath::Dir;
use stockade_cli::args::backup::BackupFile;
use stockade_cli::audit::audit_problem;
use stockade_cli::data_dir::{data_path, find_data_dir};
use stockade_cli::problem::Failure;
use stockade_cli::remote::block_on;
use stockade_core::{Code, Problem};
use stockade_durable::transfer;

use super::staging::Staging;
use super::{named, open, report, table};
use crate::database;

/// Restores a backup.
pub(super) fn run(arguments: &BackupFile) -> Result<u8, Failure> {
    let data = data_path()?;
    refuse_filled(&data)?;
    let file = open(&arguments.file)?;
    let io = |error: std::io::Error| {
        Problem::caused(Code::Io, &error).because(data.display().to_string())
    };
    let parent = data.parent().unwrap_or_else(|| Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(io)?;
    require_space(&file, parent)?;
    let staged = Staging::new(parent, ".stockade-restore-").map_err(io)?;
    let directory = Dir::open(staged.path()).map_err(|error| Problem::caused(Code::Io, &error))?;
    let manifest =
        stockade_backup::extract(file, &directory).map_err(|error| named(error, arguments))?;
    let records = staged.path().join(RECORDS);
    block_on(async { Ok(compare_records(&records, &manifest).await?) })?;
    let suffix = format!("until-{}", manifest.header.created_at_ms);
    let set_aside = stockade_audit::set_aside(directory.as_fd(), &suffix);
    set_aside.map_err(|error| audit_problem(&error))?;
    directory.sync_file_system().map_err(|error| Problem::caused(Code::Io, &error))?;
    // A directory that is not empty is not replaced by `rename(2)`.
    refuse_filled(&data)?;
    std::fs::rename(staged.path(), &data).map_err(io)?;
    staged.was_moved();
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(io)?;
    report(&data, &manifest, arguments.json)?;
    Ok(0)
}

/// Refuses a backup that does not fit: an archive has all contents as they are, so that what it fills is
/// about what it takes.
fn require_space(backup: &BufReader<File>, parent: &Path) -> Result<(), Problem> {
    let io = |error: std::io::Error| {
        Problem::caused(Code::Io, &error).because(parent.display().to_string())
    };
    let needed = backup.get_ref().metadata().map_err(io)?.len();
    let disk = rustix::fs::statvfs(parent).map_err(|errno| io(errno.into()))?;
    let left = disk.f_bavail.saturating_mul(disk.f_frsize);
    if needed <= left {
        return Ok(());
    }
    let message = format!("the backup has {needed} bytes, and {} has {left}", parent.display());
    Err(Problem::new(Code::StorageFull, message)
        .remedied_by("STOCKADE_DATA_DIR=DIRECTORY_ON_ANOTHER_DISK stockade backup restore FILE"))
}

/// Refuses a data directory that has anything in it.
fn refuse_filled(data: &Path) -> Result<(), Problem> {
    let Some(found) = find_data_dir(data)? else { return Ok(()) };
    let path = found.real_path().map_err(|error| Problem::caused(Code::Io, &error))?;
    let mut entries = std::fs::read_dir(path).map_err(|error| Problem::caused(Code::Io, &error))?;
    if entries.next().is_none() {
        return Ok(());
    }
    let message = format!("the data directory {} is not empty", data.display());
    Err(Problem::new(Code::Conflict, message)
        .because("a backup is restored completely, and replaces nothing")
        .remedied_by("STOCKADE_DATA_DIR=NEW_DIRECTORY stockade backup restore FILE"))
}

/// Opens the records of a backup, and compares all tables with its manifest. A version with more tables
/// adds them: they are empty.
async fn compare_records(file: &Path, manifest: &Manifest) -> Result<(), Problem> {
    let store = database::new_file(file).await?;
    let contents = transfer::contents(&*store).await;
    let closed = store.close().await.map_err(|error| Problem::caused(Code::Io, &error));
    let contents = contents.map_err(|error| Problem::caused(Code::DatabaseInvalid, &error))?;
    closed?;
    let lock = file.with_extension("db.lock");
    let _ = std::fs::remove_file(lock);
    let found: Vec<TableRows> = contents.into_iter().map(table).collect();
    for expected in &manifest.tables {
        let found = found.iter().find(|table| table.table == expected.table);
        let is_same = found.is_some_and(|found| found.rows == expected.rows);
        // An older version may have had fewer columns, so that its hashes are others.
        let is_same_version = manifest.header.version == env!("CARGO_PKG_VERSION");
        let is_equal = !is_same_version || found.is_some_and(|found| found == expected);
        if !is_same || !is_equal {
            let message = format!("the table `{}` is not what was stored", expected.table);
            return Err(
                Problem::new(Code::DatabaseInvalid, message).remedied_by("restore another backup")
            );
        }
    }
    Ok(())
}
