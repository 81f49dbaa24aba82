//! Makes a backup: a copy of the records, and then the archive, both in a directory beside the file.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use stockade_backup::{Header, Manifest, RECORDS, Source, TableRows};
use stockade_bundle::beneath::Dir;
use stockade_cli::args::backup::Backup;
use stockade_cli::data_dir::data_path;
use stockade_cli::eprint_line;
use stockade_cli::problem::Failure;
use stockade_cli::remote::block_on;
use stockade_core::{Code, Problem};
use stockade_durable::Store;
use stockade_durable::sqlite::Synchronous;
use stockade_durable::transfer;
use stockade_service::{sandboxes_in_use, stopped_sandboxes};

use super::staging::Staging;
use super::{now_ms, report, table};
use crate::database;
use crate::offline::{Offline, database_url};

/// How many sandboxes a message names.
const NAMED: usize = 5;
/// The name of a backup that is being written.
const UNFINISHED: &str = "unfinished";

/// Makes a backup.
pub(super) fn run(to: &Path, arguments: &Backup) -> Result<u8, Failure> {
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
    let parent = to.parent().unwrap_or_else(|| Path::new("/"));
    // Beside the backup, which has the space for it.
    let staging = Staging::new(parent, ".stockade-backup-").map_err(io)?;
    let records = staging.path().join(RECORDS);
    let store =
        database::open(&offline.data, url.as_deref(), false, Synchronous::Full).await?.store;
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
    let unfinished = staging.path().join(UNFINISHED);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished);
    let file = BufWriter::with_capacity(1 << 20, file.map_err(io)?);
    let real = offline.data.real_path().map_err(io)?;
    let directory = Dir::open(&real).map_err(|error| Problem::caused(Code::Io, &error))?;
    let records = File::open(records).map_err(io)?;
    let written = stockade_backup::write(file, header, records, tables, &directory, stopped);
    let (mut file, manifest) = written?;
    file.flush().map_err(io)?;
    file.get_ref().sync_all().map_err(io)?;
    // What is reported was read back.
    let read = stockade_backup::read(BufReader::new(File::open(&unfinished).map_err(io)?))?;
    if read != manifest {
        return Err(Problem::new(Code::Io, "the backup is not what was written"));
    }
    // Not `rename`, which would replace a file that was created meanwhile.
    std::fs::hard_link(&unfinished, to).map_err(io)?;
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(io)?;
    Ok(manifest)
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
            .because(
                "their files can change at any time, so that a backup does not have them; \
                 `--without-running` leaves them out",
            )
            .remedied_by(format!("stockade stop {named}")));
    }
    let new = database::new_file(to).await?;
    let copied = transfer::copy(store, &*new).await;
    let closed = new.close().await;
    let copied = copied.and_then(|copied| closed.map(|()| copied));
    let copied = copied.map_err(|error| Problem::caused(Code::DatabaseInvalid, &error))?;
    let stopped = stopped_sandboxes(store).await?.into_iter().collect();
    Ok((copied.into_iter().map(table).collect(), stopped))
}
