//! The clock of the database server, which all processes have in common: leases, the ages of records, and the delays and
//! rate limits of queues are measured by it, because the clocks of several machines differ.

use super::connection::Transaction;
use crate::Result;
use crate::sync::now_ms;

/// The time of the server, in milliseconds since 1970.
pub(super) const SERVER_NOW: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";

/// The time of the server, beside that of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerTime {
    /// That of the server, in milliseconds since 1970.
    pub(super) now: i64,
    /// How far this process is ahead of it.
    ahead: i64,
}

impl ServerTime {
    pub(super) async fn read(transaction: &Transaction) -> Result<Self> {
        let row = transaction.first(&format!("SELECT {SERVER_NOW}"), &[]).await?;
        let here = now_ms();
        let now = row.map_or(Ok(here), |row| row.integer(0))?;
        Ok(Self { now, ahead: here.saturating_sub(now) })
    }

    /// A time of the server by the clock of this process.
    pub(super) const fn here(self, time: i64) -> i64 {
        time.saturating_add(self.ahead)
    }
}
