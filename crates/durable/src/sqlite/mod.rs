//! The embedded store: one SQLite file in WAL mode, one connection that writes, a few that read.
//!
//! `open` makes or checks the file, `schema` lays it out, `desk` tells who works with a connection,
//! `writer` gathers writes into shared transactions, `log` tends the write-ahead log, `readers` answers
//! reads; the other files hold the SQL of each operation.

mod commit;
mod desk;
mod executors;
mod log;
mod messages;
mod open;
mod queues;
mod readers;
mod rows;
mod schema;
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

use crate::{Channel, Error, Migration, Pending, Result, Wakes};
use desk::Kept;
use readers::Readers;
use writer::Writer;

/// How sure a commit is when it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// It survives the loss of power.
    #[default]
    Full,
    /// It survives the end of the process; the last ones may be lost with the power. The
    /// database stays whole.
    Normal,
    /// It survives the end of the process; the power may take all of it. For what is of no use
    /// then, as the state of a run in a sandbox, which goes with the power.
    Off,
}

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file; it is made when there is none. Its lock is `PATH.lock`.
    pub path: PathBuf,
    /// How sure a commit is.
    pub synchronous: Synchronous,
    /// The application's own schema.
    pub migrations: &'static [Migration],
}

/// A database that this process has to itself.
#[derive(Debug)]
pub struct Sqlite {
    readers: Readers,
    /// Last: whoever closes the file last leaves nothing beside it (`-wal`).
    writer: Writer,
    wakes: Arc<Wakes>,
}

impl Sqlite {
    /// Opens a database, or makes it. A file that is in use, newer, damaged or no database of
    /// ours is refused and not changed.
    pub async fn open(options: Options) -> Result<Self> {
        let path = options.path.clone();
        let opened = tokio::task::spawn_blocking(move || open::open(&options));
        let opened = opened.await.map_err(|_| Error::Closed)??;
        let wakes = Arc::new(Wakes::default());
        let kept = Arc::new(Kept::default());
        let readers = Readers::start(path, opened.reader, Arc::clone(&kept))?;
        let writer =
            Writer::start(opened.writer, opened.log, opened.lock, Arc::clone(&wakes), kept)?;
        Ok(Self { readers, writer, wakes })
    }

    /// Runs a write in a transaction that it may share with others; it may run more than once,
    /// and is kept once.
    fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection, &mut Vec<Channel>) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        self.writer.submit(work)
    }

    /// Runs a read on a snapshot of its own.
    fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        self.readers.submit(work)
    }
}
