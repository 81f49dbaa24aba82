//! The pool of connections for reads: opened when needed, kept for later, at most a few.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::address::Address;
use super::connection::{Connection, OUTAGE, PAUSE};
use crate::sync::lock;
use crate::{Error, Result, Row, Value};

/// The most connections for reads.
const CONNECTIONS: usize = 8;

/// The longest time that a read waits for a connection.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Readers {
    address: Arc<Address>,
    idle: Mutex<Vec<Connection>>,
    free: Semaphore,
}

impl Readers {
    pub(super) fn new(address: Arc<Address>) -> Self {
        Self { address, idle: Mutex::default(), free: Semaphore::new(CONNECTIONS) }
    }

    /// Runs a query on its own snapshot, and again when its connection was lost: while the server
    /// restarts, reads wait for it as writes do.
    pub(super) async fn query(&self, sql: &str, parameters: &[Value]) -> Result<Vec<Row>> {
        let deadline = Instant::now() + OUTAGE;
        loop {
            let lost = match self.take().await {
                Ok(reader) => match reader.connection.query(sql, parameters).await {
                    Err(error) if reader.connection.is_closed() => error,
                    rows => {
                        self.put_back(reader);
                        return rows;
                    }
                },
                Err(error @ Error::Storage { .. }) => error,
                Err(error) => return Err(error),
            };
            if Instant::now() >= deadline {
                return Err(lost);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The first row of a query.
    pub(super) async fn first(&self, sql: &str, parameters: &[Value]) -> Result<Option<Row>> {
        Ok(self.query(sql, parameters).await?.into_iter().next())
    }

    /// Accepts no more reads, and ends the idle connections.
    pub(super) fn close(&self) {
        self.free.close();
        lock(&self.idle).clear();
    }

    async fn take(&self) -> Result<Reader<'_>> {
        let permit = self.permit().await?;
        let idle = {
            let mut idle = lock(&self.idle);
            idle.retain(|connection| !connection.is_closed());
            idle.pop()
        };
        match idle {
            Some(connection) => Ok(Reader { connection, _permit: permit }),
            None => self.connect(permit).await,
        }
    }

    async fn permit(&self) -> Result<SemaphorePermit<'_>> {
        let waited = tokio::time::timeout(PATIENCE, self.free.acquire()).await;
        let busy =
            |_| Error::Storage { message: "all connections to the database are busy".into() };
        waited.map_err(busy)?.map_err(|_| Error::Closed)
    }

    async fn connect<'a>(&self, permit: SemaphorePermit<'a>) -> Result<Reader<'a>> {
        let connection = Connection::open(&self.address, Box::new(|_| {})).await?;
        Ok(Reader { connection, _permit: permit })
    }

    fn put_back(&self, reader: Reader<'_>) {
        if !reader.connection.is_closed() && !self.free.is_closed() {
            lock(&self.idle).push(reader.connection);
        }
    }
}

/// A connection that this read has to itself.
struct Reader<'a> {
    connection: Connection,
    _permit: SemaphorePermit<'a>,
}
