//! Opens the file: takes its lock, refuses a foreign file before anything is written, creates what
//! is missing, and connects.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::log::{Log, with_suffix};
use super::migrations;
use super::regular_file::{file_error, not_regular, open_regular};
use super::rows::{classify_error, storage_error};
use super::{Options, Synchronous};
use crate::schema::{APPLICATION_TABLE, ENGINE, ENGINE_TABLE};
use crate::{Error, Migration, Result};

/// `STKD`, the application id in the file header: marks the database as ours.
const APPLICATION_ID: u32 = 0x5354_4b44;
/// The first bytes of every SQLite file (the database header in its file format).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;

/// The page size of a new database. Most commits change a few rows, each in a page that is written
/// as a whole: small pages make them cheaper.
const PAGE_BYTES: u32 = 2048;

/// Files up to this size are checked completely when they are opened, which takes a few
/// milliseconds.
const FULL_CHECK_BYTES: u64 = 16 << 20;

const CACHED_STATEMENTS: usize = 256;
/// How long a backup or an inspecting program may lock the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// What is needed to use a database.
pub(super) struct OpenDatabase {
    pub(super) writer: Connection,
    pub(super) log: Log,
    pub(super) reader: Connection,
    /// Dropping this releases the lock.
    pub(super) lock: File,
}

pub(super) fn open(options: &Options) -> Result<OpenDatabase> {
    let path = &options.path;
    check_numbers(options.migrations)?;
    let lock = lock_file(path)?;
    let size = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => found.len(),
        Ok(_) => return Err(not_regular("inspect", path)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(file_error("inspect", path, &error)),
    };
    let is_new = size == 0;
    if is_new {
        create(path, options)?;
    } else {
        check_header(path)?;
        check_content(path, size, options.migrations)?;
    }
    let mut writer = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    set_up_writer(&mut writer, options, is_new).map_err(|error| classify_error(&writer, error))?;
    let log = Log::open(&mut writer, path)?;
    Ok(OpenDatabase { writer, log, reader: connect_reader(path)?, lock })
}

/// A connection that cannot write.
pub(super) fn connect_reader(path: &Path) -> Result<Connection> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

fn check_numbers(migrations: &[Migration]) -> Result<()> {
    match (1..).zip(migrations).find(|(place, migration)| migration.number != *place) {
        None => Ok(()),
        Some((place, Migration { number, name, .. })) => Err(Error::invalid(format!(
            "migration {number} {name:?} is in place {place} of its list"
        ))),
    }
}

/// Takes the lock that excludes other processes, and writes the id of this process into it.
fn lock_file(path: &Path) -> Result<File> {
    let lock_path = with_suffix(path, ".lock");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = open_regular(&mut options, &lock_path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The id of the holder is optional: it may not have been written yet.
            file.take(32).read_to_string(&mut holder).ok();
            return Err(Error::Locked {
                path: path.to_owned(),
                holder: holder.trim().parse().ok(),
            });
        }
        Err(TryLockError::Error(error)) => return Err(file_error("lock", &lock_path, &error)),
    }
    let note = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes())
    };
    // A full disk does not prevent the lock.
    note(&mut file).ok();
    Ok(file)
}

/// Creates an empty database under a temporary name and moves it to its path when it is complete.
/// Until then it need not be on disk nor be rolled back, so it is synced once at the end.
fn create(path: &Path, options: &Options) -> Result<()> {
    let new = with_suffix(path, ".new");
    let beside_new = ["-journal", "-wal", "-shm"].map(|suffix| with_suffix(&new, suffix));
    let leftovers = [new.clone(), with_suffix(path, "-wal"), with_suffix(path, "-shm")];
    for leftover in leftovers.into_iter().chain(beside_new) {
        match std::fs::remove_file(&leftover) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(file_error("remove", &leftover, &error));
            }
            _ => {}
        }
    }
    let mut mode = OpenOptions::new();
    mode.write(true).create_new(true).mode(0o600);
    mode.open(&new).map_err(|error| file_error("create", &new, &error))?;
    create_schema(&new, options.migrations)?;
    let is_lasting = options.synchronous != Synchronous::Off;
    if is_lasting {
        let whole = File::open(&new).and_then(|file| file.sync_all());
        whole.map_err(|error| file_error("sync", &new, &error))?;
    }
    std::fs::rename(&new, path).map_err(|error| file_error("create", path, &error))?;
    if is_lasting {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or_else(|| Path::new("."));
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| file_error("sync", directory, &error))?;
    }
    Ok(())
}

/// Creates all tables in an empty file that no other process uses.
fn create_schema(new: &Path, migrations: &[Migration]) -> Result<()> {
    let mut connection = connect(new, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let alone = "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; \
                 PRAGMA locking_mode = EXCLUSIVE;";
    connection.execute_batch(alone).map_err(storage_error)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES).map_err(storage_error)?;
    connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(storage_error)?;
    migrate(&mut connection, migrations)
}

/// Applies missing migrations, all or none.
fn migrate(connection: &mut Connection, migrations: &[Migration]) -> Result<()> {
    let transaction = connection.transaction().map_err(storage_error)?;
    migrations::migrate(&transaction, ENGINE_TABLE, ENGINE)?;
    migrations::migrate(&transaction, APPLICATION_TABLE, migrations)?;
    transaction.commit().map_err(storage_error)
}

/// Refuses a file that is not a database of this engine by its header, which is complete from the
/// moment that the file has its name.
fn check_header(path: &Path) -> Result<()> {
    let foreign = |why: &str| Error::ForeignDatabase { path: path.to_owned(), why: why.to_owned() };
    let mut header = [0; HEADER_BYTES];
    let file = open_regular(OpenOptions::new().read(true), path)?;
    let read = std::io::Read::read_exact(&mut &file, &mut header);
    if read.is_err() || !header.starts_with(MAGIC) {
        return Err(foreign("it is not an SQLite file"));
    }
    if header[68..72] != APPLICATION_ID.to_be_bytes() {
        return Err(foreign("it is the SQLite file of another program"));
    }
    Ok(())
}

/// Refuses a file that is damaged, newer, or of another application, through a read-only
/// connection.
fn check_content(path: &Path, size: u64, migrations: &[Migration]) -> Result<()> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    check_rows(&connection, path, size, migrations)
        .map_err(|error| classify_error(&connection, error))
}

fn check_rows(
    connection: &Connection,
    path: &Path,
    size: u64,
    migrations: &[Migration],
) -> Result<()> {
    if size <= FULL_CHECK_BYTES {
        let check = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
        let detail: String = check.map_err(storage_error)?;
        if detail != "ok" {
            return Err(Error::CorruptDatabase { path: path.to_owned(), detail });
        }
    }
    for (table, known) in [(ENGINE_TABLE, ENGINE), (APPLICATION_TABLE, migrations)] {
        let applied = migrations::applied(connection, table)?;
        for (place, (number, name)) in applied.iter().enumerate() {
            let Some(migration) = known.get(place) else {
                let found = applied.last().map_or(*number, |(last, _)| *last);
                let known = u32::try_from(known.len()).unwrap_or(u32::MAX);
                return Err(Error::NewerDatabase { path: path.to_owned(), found, known });
            };
            if (migration.number, migration.name) != (*number, name.as_str()) {
                let why = format!(
                    "{table} contains {number} {name:?} instead of {} {:?}",
                    migration.number, migration.name
                );
                return Err(Error::ForeignDatabase { path: path.to_owned(), why });
            }
        }
    }
    Ok(())
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection> {
    // Not a URI: the path is used literally.
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| Error::File {
        operation: "open",
        path: path.to_owned(),
        message: error.to_string(),
    })?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(storage_error)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    connection.pragma_update(None, "trusted_schema", false).map_err(storage_error)?;
    Ok(connection)
}

fn set_up_writer(writer: &mut Connection, options: &Options, is_new: bool) -> Result<()> {
    if options.synchronous == Synchronous::Off {
        // Before the change of journal mode, which would be synced.
        writer.pragma_update(None, "synchronous", "OFF").map_err(storage_error)?;
    }
    let wal = "PRAGMA journal_mode = WAL";
    let mode: String = writer.query_row(wal, [], |row| row.get(0)).map_err(storage_error)?;
    if mode != "wal" {
        let message = format!("its journal mode is {mode}: its file system does not support WAL");
        return Err(Error::Storage { message });
    }
    let synchronous = match options.synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
        Synchronous::Off => "OFF",
    };
    writer.pragma_update(None, "synchronous", synchronous).map_err(storage_error)?;
    // A burst does not leave a large file behind.
    writer.pragma_update(None, "journal_size_limit", 64 << 20).map_err(storage_error)?;
    if is_new { Ok(()) } else { migrate(writer, options.migrations) }
}
