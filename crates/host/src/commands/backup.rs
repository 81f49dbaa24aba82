//! `stockade backup`: the records and files of the data directory in one file, and back.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufReader, BufWriter, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use stockade_backup::{Header, Manifest, RECORDS, Source, TableRows};
use stockade_bundle::beneath::Dir;
use stockade_cli::args::backup::{Backup, BackupCommand, BackupFile};
use stockade_cli::commands::print::{print, print_text};
use stockade_cli::data_dir::{data_path, find_data_dir};
use stockade_cli::eprint_line;
use stockade_cli::problem::Failure;
use stockade_cli::remote::block_on;
use stockade_core::{Code, Problem};
use stockade_durable::Store;
use stockade_durable::sqlite::Synchronous;
use stockade_durable::transfer::{self, TableContent};
use stockade_service::{sandboxes_in_use, stopped_sandboxes};

use crate::database;
use crate::offline::{Offline, database_url};

/// How many sandboxes a message names.
const NAMED: usize = 5;
/// The end of the name of a backup that is being written.
const UNFINISHED: &str = ".unfinished";

/// Makes, checks or restores a backup.
pub(crate) fn run(arguments: &Backup) -> Result<u8, Failure> {
    match (&arguments.what, &arguments.to) {
        (Some(BackupCommand::Check(file)), _) => check(file),
        (Some(BackupCommand::Restore(file)), _) => restore(file),
        (None, Some(to)) => create(to, arguments),
        (None, None) => {
            Err(Problem::new(Code::InvalidInput, "a backup needs the name of its file")
                .remedied_by("stockade backup FILE")
                .into())
        }
    }
}

fn create(to: &Path, arguments: &Backup) -> Result<u8, Failure> {
    let data = data_path()?;
    let to = target(to)?;
    refuse_inside(&to, &data)?;
    let manifest = block_on(async { Ok(write(&data, &to, arguments.without_running).await?) })?;
    report(&to, &manifest, arguments.json)?;
    if !arguments.json {
        eprint_line!(
            "stockade: secrets in it are sealed; the keys of the vault and of the audit records are in \
             your configuration directory, and not in it"
        );
    }
    Ok(0)
}

/// The file of a new backup: in a directory it has the time in its name.
fn target(to: &Path) -> Result<PathBuf, Problem> {
    let to = std::path::absolute(to).map_err(|error| Problem::caused(Code::Io, &error))?;
    let to = if to.is_dir() { to.join(format!("stockade-{}.backup", now_ms())) } else { to };
    if std::fs::symlink_metadata(&to).is_ok() {
        let message = format!("{} exists, and is not replaced", to.display());
        return Err(Problem::new(Code::Conflict, message).remedied_by("name another file"));
    }
    Ok(to)
}

/// A backup of a directory cannot be in it.
fn refuse_inside(to: &Path, data: &Path) -> Result<(), Problem> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if !to.parent().is_some_and(|parent| real(parent).starts_with(real(data))) {
        return Ok(());
    }
    let message = format!("{} is in the data directory, which it is a backup of", to.display());
    Err(Problem::new(Code::InvalidInput, message).remedied_by("name a file outside of it"))
}

async fn write(data: &Path, to: &Path, without_running: bool) -> Result<Manifest, Problem> {
    let io =
        |error: std::io::Error| Problem::caused(Code::Io, &error).because(to.display().to_string());
    let url = database_url()?;
    let offline = Offline::open(data).await?;
    let source = match database::is_elsewhere(&offline.data)? {
        true => Source::Postgres,
        false => Source::Sqlite,
    };
    let url = url.filter(|_| source == Source::Postgres);
    let parent = to.parent().unwrap_or(Path::new("/"));
    // Beside the backup, which has the space for it.
    let copy =
        tempfile::Builder::new().prefix(".stockade-backup-").tempdir_in(parent).map_err(io)?;
    let records = copy.path().join(RECORDS);
    let store = database::open(&offline.data, url.as_deref(), Synchronous::Full).await?;
    let copied = copy_records(&*store, &records, without_running).await;
    let closed = store.close().await.map_err(|error| Problem::caused(Code::Io, &error));
    let (tables, stopped) = copied?;
    closed?;
    let header = Header {
        form: 1,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_at_ms: now_ms(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        source,
    };
    let mut unfinished = to.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let unfinished = PathBuf::from(unfinished);
    // One that a killed command has left.
    let _ = std::fs::remove_file(&unfinished);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished);
    let file = BufWriter::with_capacity(1 << 20, file.map_err(io)?);
    let real = offline.data.real_path().map_err(io)?;
    let directory = Dir::open(&real).map_err(|error| Problem::caused(Code::Io, &error))?;
    let records = File::open(records).map_err(io)?;
    let written = stockade_backup::write(file, header, records, tables, &directory, stopped);
    let finished = written.map_err(Problem::from).and_then(|(mut file, manifest)| {
        file.flush().map_err(io)?;
        file.get_ref().sync_all().map_err(io)?;
        // What is reported was read back.
        let read = stockade_backup::read(BufReader::new(File::open(&unfinished).map_err(io)?))?;
        if read != manifest {
            return Err(Problem::new(Code::Io, "the backup is not what was written"));
        }
        // Not `rename`, which would replace a file that was created meanwhile.
        std::fs::hard_link(&unfinished, to).map_err(io)?;
        Ok(manifest)
    });
    let _ = std::fs::remove_file(&unfinished);
    finished
}

/// Copies the records to a new file. Returns its tables, and the stopped sandboxes.
async fn copy_records(
    store: &dyn Store,
    to: &Path,
    without_running: bool,
) -> Result<(Vec<TableRows>, BTreeSet<String>), Problem> {
    let running = sandboxes_in_use(store).await?;
    if !running.is_empty() && !without_running {
        let named = running.iter().take(NAMED).cloned().collect::<Vec<_>>().join(" ");
        let message = format!("{} sandboxes are not stopped: {named}", running.len());
        return Err(Problem::new(Code::InvalidState, message)
            .because("their files can change at any time, so that a backup does not have them")
            .remedied_by(format!(
                "stockade stop {named}; or without their files: stockade backup --without-running FILE"
            )));
    }
    let new = database::new_file(to).await?;
    let copied = transfer::copy(store, &*new).await;
    let closed = new.close().await;
    let copied = copied.and_then(|copied| closed.map(|()| copied));
    let copied = copied.map_err(|error| Problem::caused(Code::DatabaseInvalid, &error))?;
    let stopped = stopped_sandboxes(store).await?.into_iter().collect();
    Ok((copied.into_iter().map(table).collect(), stopped))
}

fn table(content: TableContent) -> TableRows {
    let TableContent { table, rows, sha256 } = content;
    TableRows { table, rows, sha256 }
}

fn check(arguments: &BackupFile) -> Result<u8, Failure> {
    let manifest =
        stockade_backup::read(open(&arguments.file)?).map_err(|error| named(error, arguments))?;
    report(&arguments.file, &manifest, arguments.json)?;
    Ok(0)
}

fn restore(arguments: &BackupFile) -> Result<u8, Failure> {
    let data = data_path()?;
    refuse_filled(&data)?;
    let file = open(&arguments.file)?;
    let io = |error: std::io::Error| {
        Problem::caused(Code::Io, &error).because(data.display().to_string())
    };
    let parent = data.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(io)?;
    let staged =
        tempfile::Builder::new().prefix(".stockade-restore-").tempdir_in(parent).map_err(io)?;
    let directory = Dir::open(staged.path()).map_err(|error| Problem::caused(Code::Io, &error))?;
    let manifest =
        stockade_backup::extract(file, &directory).map_err(|error| named(error, arguments))?;
    let records = staged.path().join(RECORDS);
    block_on(async { Ok(compare_records(&records, &manifest).await?) })?;
    directory.sync_file_system().map_err(|error| Problem::caused(Code::Io, &error))?;
    // A directory that is not empty is not replaced by `rename(2)`.
    refuse_filled(&data)?;
    std::fs::rename(staged.path(), &data).map_err(io)?;
    // It has another name now.
    let _ = staged.keep();
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(io)?;
    report(&data, &manifest, arguments.json)?;
    Ok(0)
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
