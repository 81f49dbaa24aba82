//! The reading connections. None of them can write; every statement sees one snapshot.
//!
//! At first there is one, and another is opened whenever all are busy, up to a few: each has to
//! read the schema and prepare every statement by itself.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::desk::{Clerk, Desk, Kept};
use super::open::connect_reader;
use super::rows::at;
use crate::{Pending, Result};

/// The most connections.
const READERS: usize = 3;

/// Access to the connections.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    desk: Desk<Connection>,
}

impl Readers {
    /// Starts with this connection to the file.
    pub(super) fn start(path: PathBuf, connection: Connection, kept: Arc<Kept>) -> Result<Self> {
        Ok(Self { path, desk: Desk::open(connection, "durable-reader", kept)? })
    }

    pub(super) fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (reply, answer) = oneshot::channel();
        let read = move |connection: &Connection| {
            // The caller may have stopped waiting.
            reply.send(work(connection).map_err(|error| at(connection, error))).ok();
        };
        let path = self.path.clone();
        self.desk.grow(READERS, move || {
            let warn = |error| tracing::warn!(%error, "a reader connection was closed");
            connect_reader(&path).map_err(warn).ok()
        });
        self.desk.submit(Box::new(read), answer)
    }

    /// Accepts no more reads. The returned function waits until the submitted ones are done, and
    /// the connections have closed the file.
    pub(super) fn close(&self) -> impl FnOnce() + Send + 'static {
        self.desk.close()
    }
}

impl Clerk for Connection {
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
