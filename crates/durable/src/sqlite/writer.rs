//! The one writing connection. It takes all commands that wait, runs each in a savepoint of one
//! transaction, commits once, and only then returns the results: many workflows share one sync of
//! the disk.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::log::Log;
use super::pool::{BusyWorkers, ConnectionPool, Worker};
use super::rows::{classify_error, storage_error};
use crate::{BoxFuture, Channel, Error, Result, Wakes};

/// The most commands in one transaction.
const MAX_BATCH: usize = 1024;

/// Access to the connection. Dropping it closes the file and releases its lock.
#[derive(Debug)]
pub(super) struct Writer(ConnectionPool<WriterConnection>);

/// Fields are dropped in this order: the next holder of the file lock finds the connection closed.
#[derive(Debug)]
struct WriterConnection {
    connection: Connection,
    log: Log,
    wakes: Arc<Wakes>,
    _file: File,
}

impl Writer {
    /// Takes over the connection; it keeps the lock on the file until the last command is done.
    pub(super) fn start(
        connection: Connection,
        log: Log,
        file: File,
        wakes: Arc<Wakes>,
        busy: Arc<BusyWorkers>,
    ) -> Result<Self> {
        let worker = WriterConnection { connection, log, wakes, _file: file };
        ConnectionPool::open(worker, "durable-writer", busy).map(Self)
    }

    pub(super) fn submit<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection, &mut Vec<Channel>) -> Result<T> + Send + 'static,
    ) -> BoxFuture<T> {
        let (reply, answer) = oneshot::channel();
        let write = Write { work, result: Err(Error::Closed), wakes: Vec::new(), reply };
        self.0.submit(Box::new(write), answer)
    }

    /// Accepts no more commands. The returned function waits until the submitted ones are done.
    pub(super) fn close(&self) -> impl FnOnce() + Send + 'static {
        self.0.close()
    }
}

impl Worker for WriterConnection {
    type Job = Box<dyn Command>;

    fn take(waiting: &mut VecDeque<Self::Job>) -> Vec<Self::Job> {
        waiting.drain(..waiting.len().min(MAX_BATCH)).collect()
    }

    fn work(&mut self, mut batch: Vec<Self::Job>) {
        let outcome = transact(&self.connection, &mut batch);
        if outcome.is_ok() || batch.len() == 1 {
            answer(batch, &outcome, &self.wakes);
        } else {
            // One by one, so that only the command that cannot be written fails.
            for command in batch {
                let mut alone = vec![command];
                let outcome = transact(&self.connection, &mut alone);
                answer(alone, &outcome, &self.wakes);
            }
        }
    }

    fn is_due(&self) -> bool {
        self.log.is_due()
    }

    fn maintain(&mut self) {
        self.log.maintain(&self.connection);
    }
}

/// One write that waits for the connection.
trait Command: Send {
    /// Does the work in a savepoint and stores its result; failed work leaves no change.
    fn run(&mut self, connection: &Connection) -> Result<()>;
    /// Sends the result, after the transaction was committed or failed.
    fn answer(self: Box<Self>, committed: Result<()>, wakes: &Wakes);
}

struct Write<T, F> {
    work: F,
    result: Result<T>,
    wakes: Vec<Channel>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, F> Command for Write<T, F>
where
    T: Send,
    F: FnMut(&Connection, &mut Vec<Channel>) -> Result<T> + Send,
{
    fn run(&mut self, connection: &Connection) -> Result<()> {
        self.wakes.clear();
        execute(connection, "SAVEPOINT command")?;
        self.result = (self.work)(connection, &mut self.wakes)
            .map_err(|error| classify_error(connection, error));
        if connection.is_autocommit() {
            // Errors such as a full disk may end the whole transaction.
            return Err(self.result.as_ref().err().cloned().unwrap_or(Error::StorageFull));
        }
        if self.result.is_err() {
            execute(connection, "ROLLBACK TO command")?;
        }
        execute(connection, "RELEASE command")
    }

    fn answer(self: Box<Self>, committed: Result<()>, wakes: &Wakes) {
        let result = committed.and(self.result);
        if result.is_ok() {
            for channel in &self.wakes {
                wakes.wake(channel);
            }
        }
        // The caller may have stopped waiting; the write is still committed.
        self.reply.send(result).ok();
    }
}

fn answer(batch: Vec<Box<dyn Command>>, committed: &Result<()>, wakes: &Wakes) {
    for command in batch {
        command.answer(committed.clone(), wakes);
    }
}

fn transact(connection: &Connection, batch: &mut [Box<dyn Command>]) -> Result<()> {
    let run = || {
        execute(connection, "BEGIN IMMEDIATE")?;
        for command in batch {
            command.run(connection)?;
        }
        execute(connection, "COMMIT")
    };
    let result = run();
    if !connection.is_autocommit() {
        execute(connection, "ROLLBACK").ok();
    }
    result
}

fn execute(connection: &Connection, sql: &str) -> Result<()> {
    connection.prepare_cached(sql).and_then(|mut sql| sql.execute([])).map_err(storage_error)?;
    Ok(())
}
