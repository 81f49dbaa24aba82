//! The store on a PostgreSQL server: one schema, one writing connection, a pool of reading ones, and
//! one that listens for the commits of other processes.
//!
//! `address` reads the URL, `connection` is one connection with its deadlines and prepared
//! statements, `value` converts parameters and columns, `migrations` creates the tables, `writer`
//! groups writes into shared transactions, `readers` is the pool, `notifications` passes on wake-ups
//! between processes, `clock` the time that they have in common; the other files contain the SQL of each operation.
//!
//! Source: PostgreSQL 15 documentation, chapters 13 (concurrency control), 34.1 (connection URLs),
//! NOTIFY, and SELECT (locking clause).

mod address;
mod clock;
mod commit;
mod connection;
mod executors;
mod messages;
mod migrations;
mod notifications;
mod queues;
mod readers;
mod rows;
mod statements;
mod store;
mod streams;
mod value;
mod workflows;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{BoxFuture, Migration, Result, Wakes};
use address::Address;
use connection::Transaction;
use readers::Readers;
use writer::{Task, Writer};

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// `postgres://USER@HOST:PORT/DATABASE`, as in libpq, with the parameters `sslmode` (`disable`
    /// or `require`; without it a server elsewhere needs TLS, and one on this machine does not),
    /// `sslrootcert` (a PEM file instead of the system's authorities) and `connect_timeout`.
    pub url: String,
    /// The schema with all tables; it is created when it does not exist.
    pub schema: String,
    /// PEM files with the authorities that may sign the server's certificate; the first that can be
    /// read is used.
    pub certificate_authorities: Vec<PathBuf>,
    /// The application's own schema.
    pub migrations: &'static [Migration],
    /// Whether no other process may use the schema at the same time.
    pub exclusive: bool,
}

/// A schema of a database server.
#[derive(Debug)]
pub struct Postgres {
    readers: Readers,
    writer: Writer,
    wakes: Arc<Wakes>,
    closed: CancellationToken,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl Postgres {
    /// Connects, and creates or upgrades the tables. A schema that is newer or of another
    /// application is refused and not changed.
    pub async fn open(options: Options) -> Result<Self> {
        let address = Arc::new(Address::parse(&options)?);
        let closed = CancellationToken::new();
        let connection = migrations::connect(&address, options.exclusive).await?;
        migrations::migrate_all(&connection, &address, &options).await?;
        let wakes = Arc::new(Wakes::default());
        let sender = uuid::Uuid::now_v7().simple().to_string();
        notifications::listen(&address, &sender, &wakes, &closed).await?;
        let readers = Readers::new(Arc::clone(&address));
        let writer = Writer::start(Task::new(
            address,
            options.exclusive,
            connection,
            sender,
            Arc::clone(&wakes),
        ));
        Ok(Self { readers, writer, wakes, closed })
    }

    /// Runs a write in a transaction that it may share with others. It may run more than once, but
    /// its effect is committed once.
    fn write<T, F>(&self, work: impl FnMut(Transaction) -> F + Send + 'static) -> BoxFuture<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.writer.submit(work)
    }
}
