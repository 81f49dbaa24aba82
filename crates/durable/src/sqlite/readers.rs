//! The reading connections. None of them can write; every statement sees one snapshot.
//!
//! At first there is one, and another is opened whenever all are busy, up to a few: each has to
//! read the schema and prepare every statement by itself.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::open::connect_reader;
use super::pool::{BusyWorkers, ConnectionPool, Worker};
use super::rows::classify_error;
use crate::{BoxFuture, Result};

/// The most connections.
const READERS: usize = 3;

/// Access to the connections.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    pool: ConnectionPool<Connection>,
}

impl Readers {
    /// Starts with this connection to the file.
    pub(super) fn start(
        path: PathBuf,
        connection: Connection,
        busy: Arc<BusyWorkers>,
    ) -> Result<Self> {
        Ok(Self { path, pool: ConnectionPool::open(connection, "durable-reader", busy)? })
    }

    pub(super) fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> BoxFuture<T> {
        let (reply, answer) = oneshot::channel();
        let read = move |connection: &Connection| {
            // The caller may have stopped waiting.
            reply.send(work(connection).map_err(|error| classify_error(connection, error))).ok();
        };
        let path = self.path.clone();
        self.pool.grow(READERS, move || {
            let warn = |error| tracing::warn!(%error, "a reader connection was closed");
            connect_reader(&path).map_err(warn).ok()
        });
        self.pool.submit(Box::new(read), answer)
    }

    /// Accepts no more reads. The returned function waits until the submitted ones are done, and
    /// the connections have closed the file.
    pub(super) fn close(&self) -> impl FnOnce() + Send + 'static {
        self.pool.close()
    }
}

impl Worker for Connection {
    type Job = Box<dyn FnOnce(&Self) + Send>;

    fn take(waiting: &mut VecDeque<Self::Job>) -> Vec<Self::Job> {
        waiting.pop_front().into_iter().collect()
    }

    fn work(&mut self, reads: Vec<Self::Job>) {
        for read in reads {
            read(self);
        }
    }
}
