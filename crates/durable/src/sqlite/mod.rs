//! The embedded store: one SQLite file in WAL mode, one writing connection, a few reading ones.
//!
//! `open` creates or checks the file, `migrations` creates its tables, `pool` is the connection pool,
//! `writer` groups writes into shared transactions, `log` maintains the write-ahead log, `readers`
//! does reads; the other files contain the SQL of each operation.

mod commit;
mod executors;
mod log;
mod messages;
mod migrations;
mod open;
mod pool;
mod queues;
mod readers;
mod regular_file;
mod rows;
mod statements;
mod store;
mod streams;
#[cfg(test)]
mod tests;
mod workflows;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;

use crate::{BoxFuture, Channel, Error, Migration, Result, Wakes};
use pool::BusyWorkers;
use readers::Readers;
use writer::Writer;

/// The durability of a commit that has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// It survives a power failure.
    #[default]
    Full,
    /// It survives the end of the process; a power failure may lose the last commits. The database
    /// stays consistent.
    Normal,
    /// It survives the end of the process; a power failure may lose the whole database. For data
    /// that has no use after a power failure, such as the state of a run in a sandbox, which ends
    /// with the power.
    Off,
}

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file; it is created when it does not exist. Its lock is `PATH.lock`.
    pub path: PathBuf,
    /// The durability of a commit.
    pub synchronous: Synchronous,
    /// The application's own schema.
    pub migrations: &'static [Migration],
}

/// A database that only this process uses.
#[derive(Debug)]
pub struct Sqlite {
    readers: Readers,
    /// Last: the connection that closes the file last removes the file beside it (`-wal`).
    writer: Writer,
    wakes: Arc<Wakes>,
}

impl Sqlite {
    /// Opens a database, or creates it. A file that is in use, newer, damaged or not a database of
    /// this engine is refused and not changed.
    pub async fn open(options: Options) -> Result<Self> {
        let path = options.path.clone();
        let opened = tokio::task::spawn_blocking(move || open::open(&options));
        let opened = opened.await.map_err(|_| Error::Closed)??;
        let wakes = Arc::new(Wakes::default());
        let busy = Arc::new(BusyWorkers::default());
        let readers = Readers::start(path, opened.reader, Arc::clone(&busy))?;
        let writer =
            Writer::start(opened.writer, opened.log, opened.lock, Arc::clone(&wakes), busy)?;
        Ok(Self { readers, writer, wakes })
    }

    /// Runs a write in a transaction that it may share with others. It may run more than once, but
    /// its effect is committed once.
    fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection, &mut Vec<Channel>) -> Result<T> + Send + 'static,
    ) -> BoxFuture<T> {
        self.writer.submit(work)
    }

    /// Runs a read on its own snapshot.
    fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> BoxFuture<T> {
        self.readers.submit(work)
    }
}
