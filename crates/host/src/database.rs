//! Where the records of a data directory are: in its own SQLite file, or in a schema of a PostgreSQL
//! server. A directory belongs to one of them; which one is recorded in it, so that a server that is
//! started without its database does not begin with empty records.

mod moving;

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stockade_bundle::data::DataDir;
use stockade_core::network::AUTHORITIES;
use stockade_core::{Code, Problem};
use stockade_durable::postgres::{self, Postgres};
use stockade_durable::sqlite::{self, Sqlite, Synchronous};
use stockade_durable::{Error, Store};
use stockade_service::MIGRATIONS;

pub(crate) use self::moving::{Moved, to_file, to_server};

/// The id of a server that is alone on its database.
const ALONE: &str = "local";
/// The file with the id of the server of a data directory whose records are, or were, elsewhere.
const HOST: &str = "host";
/// The SQLite file.
const FILE: &str = "stockade.db";
/// The file that names the server instead: its address, without user and password.
const ELSEWHERE: &str = "database";
/// The schema on the server.
const SCHEMA: &str = "stockade";
/// How long the previous process may take to close the file.
const PATIENCE: Duration = Duration::from_secs(5);

/// The records of a data directory.
pub(crate) struct Database {
    pub(crate) store: Arc<dyn Store>,
    /// The id of the server of this directory among those on the same database.
    pub(crate) host: String,
}

/// Opens the records of a data directory. Servers that share a database have one directory each.
pub(crate) async fn open(
    data: &DataDir,
    url: Option<&str>,
    is_shared: bool,
    synchronous: Synchronous,
) -> Result<Database, Problem> {
    let real = data.real_path().map_err(|error| Problem::caused(Code::Io, &error))?;
    let elsewhere = read_place(&real)?;
    match (url, elsewhere) {
        (Some(url), elsewhere) => {
            let store = open_server(&real, url, elsewhere.as_deref(), is_shared).await?;
            Ok(Database { store, host: host(&real, elsewhere.is_some())? })
        }
        (None, None) => {
            let store = open_file(data, &real, synchronous).await?;
            // Records that were moved from a server to a file keep the id they have there.
            let host = read_line(&real, HOST)?.unwrap_or_else(|| ALONE.to_owned());
            Ok(Database { store, host })
        }
        (None, Some(place)) => {
            let message = format!("the records of {} are in {place}", data.path().display());
            Err(Problem::new(Code::InvalidInput, message).remedied_by(format!(
                "export STOCKADE_DATABASE_URL=URL && stockade serve --data-dir {}",
                data.path().display()
            )))
        }
    }
}

/// Whether the records of a data directory are on a server.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn is_elsewhere(data: &DataDir) -> Result<bool, Problem> {
    let real = data.real_path().map_err(|error| Problem::caused(Code::Io, &error))?;
    Ok(read_place(&real)?.is_some())
}

/// Opens a new SQLite file for records.
///
/// # Errors
/// It cannot be created.
pub(crate) async fn new_file(path: &Path) -> Result<Arc<dyn Store>, Problem> {
    let synchronous = Synchronous::Full;
    let options = sqlite::Options { path: path.to_owned(), synchronous, migrations: MIGRATIONS };
    let store = Sqlite::open(options).await.map_err(|error| file_problem(path, &error))?;
    Ok(Arc::new(store))
}

/// Refuses a URL with a password as an argument, which every user of the host can read.
///
/// # Errors
/// [`Code::InvalidInput`] if it has one.
pub(crate) fn refuse_password(url: &str, argument: &str) -> Result<(), Problem> {
    if !has_password(url) {
        return Ok(());
    }
    let message = format!("{argument} has a password, which every user of this host can read");
    Err(Problem::new(Code::InvalidInput, message).remedied_by("export STOCKADE_DATABASE_URL=URL"))
}

/// Whether a URL contains a password.
fn has_password(url: &str) -> bool {
    let named = |query: &str| query.split('&').any(|pair| pair.starts_with("password="));
    match url::Url::parse(url) {
        Ok(url) => url.password().is_some() || url.query().is_some_and(named),
        Err(_) => url.contains("password"),
    }
}

/// Opens a schema, which no other server may use at the same time unless it is shared.
async fn open_server(
    data: &Path,
    url: &str,
    elsewhere: Option<&str>,
    is_shared: bool,
) -> Result<Arc<dyn Store>, Problem> {
    let place = place(url)?;
    if elsewhere.is_some_and(|known| known != place) {
        let message = format!(
            "the records of {} are in {}, not in {place}",
            data.display(),
            elsewhere.unwrap_or_default()
        );
        return Err(Problem::new(Code::InvalidInput, message)
            .remedied_by("stockade serve --data-dir OTHER_DIRECTORY"));
    }
    if elsewhere.is_none() && data.join(FILE).exists() {
        let message = format!("{} has records in {FILE}, which would be left", data.display());
        return Err(Problem::new(Code::InvalidInput, message)
            .remedied_by("stockade serve --data-dir NEW_DIRECTORY"));
    }
    let store = connect(url, is_shared).await?;
    if elsewhere.is_none() {
        record_place(data, &place)?;
    }
    Ok(store)
}

/// Opens the schema of a server, which no other process may use at the same time unless it is shared.
async fn connect(url: &str, is_shared: bool) -> Result<Arc<dyn Store>, Problem> {
    let options = postgres::Options {
        url: url.to_owned(),
        schema: SCHEMA.to_owned(),
        certificate_authorities: AUTHORITIES.iter().map(PathBuf::from).collect(),
        migrations: MIGRATIONS,
        exclusive: !is_shared,
    };
    let store = Postgres::open(options).await.map_err(|error| server_problem(&error))?;
    Ok(Arc::new(store))
}

/// The server and database of a URL, without user, password and parameters.
fn place(url: &str) -> Result<String, Problem> {
    let parsed = url::Url::parse(url).ok();
    let parsed = parsed.filter(|url| matches!(url.scheme(), "postgres" | "postgresql"));
    let parsed = parsed.ok_or_else(|| {
        Problem::new(Code::InvalidInput, "the database URL cannot be read")
            .remedied_by("export STOCKADE_DATABASE_URL=postgres://USER@HOST:PORT/DATABASE")
    })?;
    let (host, port) = (parsed.host_str().unwrap_or_default(), parsed.port().unwrap_or(5432));
    Ok(format!("postgres://{host}:{port}{} ({SCHEMA})", parsed.path()))
}

fn read_place(data: &Path) -> Result<Option<String>, Problem> {
    read_line(data, ELSEWHERE)
}

fn read_line(data: &Path, name: &str) -> Result<Option<String>, Problem> {
    match std::fs::read_to_string(data.join(name)) {
        Ok(place) => Ok(Some(place.trim().to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Problem::caused(Code::Io, &error)),
    }
}

fn record_place(data: &Path, place: &str) -> Result<(), Problem> {
    write_line(data, ELSEWHERE, place)
}

/// The id of the server of a data directory. A directory that was used before servers had ids belongs to the
/// server that was alone.
fn host(data: &Path, was_used: bool) -> Result<String, Problem> {
    if let Some(id) = read_line(data, HOST)? {
        return Ok(id);
    }
    let id = match was_used {
        true => ALONE.to_owned(),
        false => uuid::Uuid::new_v4().simple().to_string()[..12].to_owned(),
    };
    write_line(data, HOST, &id)?;
    Ok(id)
}

/// Writes a file of one line, completely or not at all.
fn write_line(data: &Path, name: &str, line: &str) -> Result<(), Problem> {
    use std::io::Write as _;
    let write = || {
        let new = data.join(format!("{name}.new"));
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        writeln!(file, "{line}")?;
        file.sync_all()?;
        std::fs::rename(new, data.join(name))?;
        std::fs::File::open(data)?.sync_all()
    };
    write().map_err(|error: std::io::Error| Problem::caused(Code::Io, &error))
}

fn server_problem(error: &Error) -> Problem {
    match error {
        Error::Locked { .. } => Problem::caused(Code::Conflict, error)
            .because("another server uses this schema alone, or others share it")
            .remedied_by("end the other server, or give all the same --cluster-secret-file"),
        Error::NewerDatabase { .. } | Error::ForeignDatabase { .. } => {
            Problem::caused(Code::DatabaseInvalid, error)
                .remedied_by("use another database, or the version of stockade that wrote it")
        }
        Error::Invalid { .. } | Error::File { .. } => Problem::caused(Code::InvalidInput, error),
        _ => Problem::caused(Code::Io, error),
    }
}

/// Opens the SQLite file. A process that was just killed may still use it. SQLite opens files by
/// path, so this uses a path without links, and checks that it still led to the open directory.
async fn open_file(
    data: &DataDir,
    real: &Path,
    synchronous: Synchronous,
) -> Result<Arc<dyn Store>, Problem> {
    let options = sqlite::Options { path: real.join(FILE), synchronous, migrations: MIGRATIONS };
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Sqlite::open(options.clone()).await {
            Ok(store) if data.is_at(real) => return Ok(Arc::new(store)),
            Ok(_) => {
                let message = format!("{} was moved while it was opened", data.path().display());
                return Err(Problem::new(Code::Io, message).remedied_by("retry"));
            }
            Err(Error::Locked { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(file_problem(&real.join(FILE), &error)),
        }
    }
}

fn file_problem(file: &Path, error: &Error) -> Problem {
    if !matches!(
        error,
        Error::NewerDatabase { .. } | Error::ForeignDatabase { .. } | Error::CorruptDatabase { .. }
    ) {
        // A full disk, or another process that has it open: the database itself is valid.
        return Problem::caused(Code::Io, error);
    }
    Problem::caused(Code::DatabaseInvalid, error).remedied_by(format!(
        "move {} away, or use the version of stockade that wrote it",
        file.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_url_has_neither_user_nor_password() {
        let url = "postgres://user:hidden@db.example:5433/records?sslmode=require";
        assert_eq!(place(url).unwrap(), "postgres://db.example:5433/records (stockade)");
        for wrong in ["http://db.example/records", "records", ""] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn passwords_are_found() {
        for url in ["postgres://a:b@c/d", "postgres://a@c/d?password=b", "host=c password=b"] {
            assert!(has_password(url), "{url}");
        }
        assert!(!has_password("postgres://a@c:5432/d?sslmode=require"));
    }
}
