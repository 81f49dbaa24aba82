//! Connects for writes, and applies the numbered migrations of the engine and of the application.

use std::time::Duration;

use super::Options;
use super::address::Address;
use super::connection::Connection;
use crate::schema::{APPLICATION_TABLE, ENGINE, ENGINE_TABLE};
use crate::sync::now_ms;
use crate::{Error, Migration, Result};

/// How long a process waits for the exclusive use of a schema: an earlier one may still be ending.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Connects for writes. An exclusive connection has the schema to itself until it ends; others share it.
pub(super) async fn connect(address: &Address, exclusive: bool) -> Result<Connection> {
    let connection = Connection::open(address, Box::new(|_| {})).await?;
    lock(&connection, address, exclusive).await?;
    Ok(connection)
}

/// Creates or upgrades the tables under a lock, so that processes that start at the same time do it
/// once.
pub(super) async fn migrate_all(
    connection: &Connection,
    address: &Address,
    options: &Options,
) -> Result<()> {
    let schema = &address.schema;
    let begin = format!(
        "BEGIN; SELECT pg_advisory_xact_lock({}); CREATE SCHEMA IF NOT EXISTS {schema}",
        lock_number("migrations", schema)
    );
    connection.batch(&begin).await?;
    let version = "SELECT current_setting('server_version_num')";
    let version = connection.batch(version).await?.and_then(|number| number.parse::<u32>().ok());
    if version.is_none_or(|version| version < 130_000) {
        return Err(Error::invalid("PostgreSQL 13 or later is needed"));
    }
    migrate(connection, address, ENGINE_TABLE, ENGINE).await?;
    migrate(connection, address, APPLICATION_TABLE, options.migrations).await?;
    connection.batch("COMMIT").await.map(drop)
}

/// Takes the lock of all processes that use the schema, alone or shared. It ends with the connection.
async fn lock(connection: &Connection, address: &Address, exclusive: bool) -> Result<()> {
    let number = lock_number("exclusive", &address.schema);
    let function = if exclusive { "pg_try_advisory_lock" } else { "pg_try_advisory_lock_shared" };
    let sql = format!("SELECT {function}({number})");
    let deadline = tokio::time::Instant::now() + LOCK_PATIENCE;
    while connection.batch(&sql).await?.as_deref() != Some("t") {
        if tokio::time::Instant::now() >= deadline {
            return Err(Error::Locked { path: address.place(), holder: None });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// The number of an advisory lock: the first eight bytes of FNV-1a over its name.
fn lock_number(purpose: &str, schema: &str) -> i64 {
    let hash = format!("stockade {purpose} {schema}")
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    i64::from_ne_bytes(hash.to_ne_bytes())
}

/// Applies the missing migrations of a list, and records each.
async fn migrate(
    connection: &Connection,
    address: &Address,
    table: &'static str,
    migrations: &[Migration],
) -> Result<()> {
    let create = format!(
        "CREATE TABLE IF NOT EXISTS {table} \
         (number BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"
    );
    connection.batch(&create).await?;
    let sql = format!("SELECT number, name FROM {table} ORDER BY number");
    let applied = connection.query(&sql, &[]).await?;
    let mut applied = applied.iter();
    let mut known = 0;
    for &Migration { number, name, postgres, .. } in migrations {
        known = number;
        let Some(row) = applied.next() else {
            connection.batch(postgres).await?;
            let note = format!("INSERT INTO {table} VALUES (?1, ?2, ?3)");
            connection.execute(&note, &[number.into(), name.into(), now_ms().into()]).await?;
            continue;
        };
        let (other, other_name) = (row.integer(0)?, row.text(1)?);
        if (other, other_name) != (i64::from(number), name) {
            let why =
                format!("{table} contains {other} {other_name:?} instead of {number} {name:?}");
            return Err(Error::ForeignDatabase { path: address.place(), why });
        }
    }
    if let Some(last) = applied.last() {
        let found = u32::try_from(last.integer(0)?).unwrap_or(u32::MAX);
        return Err(Error::NewerDatabase { path: address.place(), found, known });
    }
    Ok(())
}
