//! Moving the records of a data directory from its file to a server, and back. Until all rows are
//! copied and compared, the directory uses the old records; afterwards these are kept, but not used.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use stockade_bundle::data::DataDir;
use stockade_core::{Code, Problem};
use stockade_durable::sqlite::Synchronous;
use stockade_durable::transfer::{self, TableContent};
use stockade_durable::{Error, Store};

use super::{
    ELSEWHERE, FILE, connect, new_file, open_file, open_server, place, read_line, read_place,
    record_place, write_line,
};

/// The file that names the server to which the records are being copied, and a mark in its schema: what is
/// there with this mark belongs to this directory, also after a crash.
const UNFINISHED: &str = "database.unfinished";
/// The file that is being written.
const NEW_FILE: &str = "stockade.db.unfinished";

/// Records that were moved.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) tables: Vec<TableContent>,
    /// Where the records are now.
    pub(crate) to: String,
    /// Where the old ones are kept.
    pub(crate) kept: String,
}

/// Moves the records from the file to a server, whose schema must be empty.
///
/// # Errors
/// The schema is in use, or has rows of another directory; a row cannot be copied. Then the directory
/// still uses its file.
pub(crate) async fn to_server(data: &DataDir, url: &str) -> Result<Moved, Problem> {
    let real = data.real_path().map_err(|error| Problem::caused(Code::Io, &error))?;
    if let Some(place) = read_place(&real)? {
        // The command that has moved them may have been killed before it was finished.
        if real.join(UNFINISHED).exists() && real.join(FILE).exists() {
            retire_file(&real)?;
        }
        let message = format!("the records of {} are in {place} already", data.path().display());
        return Err(
            Problem::new(Code::InvalidInput, message).remedied_by("stockade migrate --to sqlite")
        );
    }
    if !real.join(FILE).exists() {
        let message = format!("{} has no records that could be moved", data.path().display());
        return Err(Problem::new(Code::NotFound, message)
            .remedied_by("export STOCKADE_DATABASE_URL=URL && stockade serve"));
    }
    let to = place(url)?;
    let old = open_file(data, &real, Synchronous::Full).await?;
    let new = connect(url, false).await?;
    let copied = copy_to_server(&real, &*old, &*new, &to).await;
    let copied = closed(copied, [old, new]).await?;
    let kept = retire_file(&real)?;
    Ok(Moved { tables: copied, to, kept: kept.display().to_string() })
}

/// Gives the file another name, because the records are on the server now.
fn retire_file(real: &Path) -> Result<PathBuf, Problem> {
    let kept = kept_name(real);
    std::fs::rename(real.join(FILE), &kept).map_err(|error| Problem::caused(Code::Io, &error))?;
    remove(&real.join(format!("{FILE}.lock")))?;
    remove(&real.join(UNFINISHED))?;
    Ok(kept)
}

/// Copies the records, and records that they are on the server.
async fn copy_to_server(
    real: &Path,
    old: &dyn Store,
    new: &dyn Store,
    to: &str,
) -> Result<Vec<TableContent>, Problem> {
    let failed = |error| copy_problem(&error, to);
    let earlier = read_line(real, UNFINISHED)?;
    let earlier = earlier.as_deref().and_then(|line| line.split_once(' '));
    let earlier = earlier.filter(|(_, place)| *place == to).map(|(mark, _)| mark.to_owned());
    let is_own = match &earlier {
        Some(mark) => transfer::is_marked(new, mark).await.map_err(failed)?,
        None => false,
    };
    let mark = match earlier.filter(|_| is_own) {
        // Rows of an earlier attempt of this directory are its own.
        Some(mark) => {
            transfer::clear(new).await.map_err(failed)?;
            mark
        }
        None if transfer::is_empty(new).await.map_err(failed)? => {
            let mark = uuid::Uuid::now_v7().simple().to_string();
            write_line(real, UNFINISHED, &format!("{mark} {to}"))?;
            transfer::mark(new, &mark).await.map_err(failed)?;
            mark
        }
        None => {
            return Err(Problem::new(Code::Conflict, format!("{to} has records already"))
                .because("rows of another data directory would be mixed with those of this one")
                .remedied_by(
                    "use another database, or remove its schema: DROP SCHEMA stockade CASCADE",
                ));
        }
    };
    let copied = transfer::copy(old, new).await.map_err(failed)?;
    record_place(real, to)?;
    // From here on they are used: a mark that stays is no reason to report a failure.
    if let Err(error) = transfer::remove_mark(new, &mark).await {
        tracing::warn!(%error, "a mark stays in the schema");
    }
    Ok(copied)
}

/// Moves the records from the server to a file in the data directory.
///
/// # Errors
/// The directory has a file, or belongs to another server; a row cannot be copied. Then the directory
/// still uses the server.
pub(crate) async fn to_file(data: &DataDir, url: Option<&str>) -> Result<Moved, Problem> {
    let real = data.real_path().map_err(|error| Problem::caused(Code::Io, &error))?;
    let Some(elsewhere) = read_place(&real)? else {
        let message = format!("the records of {} are in a file already", data.path().display());
        return Err(Problem::new(Code::InvalidInput, message)
            .remedied_by("stockade migrate --to postgres://USER@HOST:PORT/DATABASE"));
    };
    let Some(url) = url else {
        let message = format!("the records of {} are in {elsewhere}", data.path().display());
        return Err(Problem::new(Code::InvalidInput, message)
            .remedied_by("export STOCKADE_DATABASE_URL=URL && stockade migrate --to sqlite"));
    };
    let file = real.join(FILE);
    if file.exists() {
        let message = format!("{} exists, and is not replaced", file.display());
        return Err(Problem::new(Code::Conflict, message)
            .remedied_by(format!("mv {0} {0}.old", file.display())));
    }
    let new_path = real.join(NEW_FILE);
    remove_database(&new_path)?;
    let old = open_server(&real, url, Some(&elsewhere), false).await?;
    let new = new_file(&new_path).await?;
    let copied = transfer::copy(&*old, &*new).await;
    let copied = copied.map_err(|error| copy_problem(&error, &file.display().to_string()));
    let copied = closed(copied, [old, new]).await?;
    let switch = || -> std::io::Result<()> {
        std::fs::File::open(&new_path)?.sync_all()?;
        std::fs::rename(&new_path, &file)?;
        std::fs::File::open(&real)?.sync_all()?;
        std::fs::remove_file(real.join(ELSEWHERE))?;
        std::fs::File::open(&real)?.sync_all()
    };
    switch().map_err(|error| Problem::caused(Code::Io, &error))?;
    remove_database(&new_path)?;
    remove(&real.join(UNFINISHED))?;
    Ok(Moved { tables: copied, to: file.display().to_string(), kept: elsewhere })
}

/// Closes both stores, also after an error.
async fn closed<T>(done: Result<T, Problem>, stores: [Arc<dyn Store>; 2]) -> Result<T, Problem> {
    for store in stores {
        let closed = store.close().await.map_err(|error| Problem::caused(Code::Io, &error));
        if done.is_ok() {
            closed?;
        }
    }
    done
}

/// A name for the old file that nothing has.
fn kept_name(real: &Path) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    real.join(format!("{FILE}.until-{}", now.as_millis()))
}

/// Removes a SQLite file, and what is beside it.
fn remove_database(path: &Path) -> Result<(), Problem> {
    for suffix in ["", "-wal", "-shm", ".lock"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        remove(Path::new(&name))?;
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), Problem> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Problem::caused(Code::Io, &error))
        }
        _ => Ok(()),
    }
}

fn copy_problem(error: &Error, to: &str) -> Problem {
    let problem = match error {
        Error::StorageFull => Problem::caused(Code::StorageFull, error),
        Error::Conflict { .. } | Error::Invalid { .. } => {
            Problem::caused(Code::DatabaseInvalid, error)
        }
        _ => Problem::caused(Code::Io, error),
    };
    problem.because(format!("copying the records to {to}; the old records are still in use"))
}
