//! The one thread that writes. It takes all commands that wait, runs each in a savepoint of one
//! transaction, commits once, and only then answers: many workflows share one sync of the disk.

use std::fs::File;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::log::Log;
use super::rows::{at, storage};
use crate::sync::lock;
use crate::{Channel, Error, Pending, Result, Wakes};

/// The most commands in one transaction.
const MAX_BATCH: usize = 1024;

/// How long it looks for the next command before it sleeps, where whoever was just answered has one
/// soon: waking a thread takes as long.
const LINGER: Duration = Duration::from_micros(50);
/// How soon a command comes that it should have looked for.
const SOON: Duration = Duration::from_micros(200);

/// The way to the thread.
#[derive(Debug)]
pub(super) struct Writer {
    /// `None` once the store is closed. The lock keeps the order of submissions.
    commands: Mutex<Option<Sender<Box<dyn Command>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts the thread; it holds the lock on the file until the last command is done.
    pub(super) fn start(
        connection: Connection,
        log: Log,
        file: File,
        wakes: Arc<Wakes>,
    ) -> Result<Self> {
        let (commands, receiver) = channel();
        let work = move || {
            write(&connection, log, &receiver, &wakes);
            // In this order: whoever gets the lock finds the file in peace.
            drop(connection);
            drop(file);
        };
        let thread = std::thread::Builder::new().name("durable-writer".to_owned()).spawn(work);
        let thread = thread.map_err(|error| Error::Storage { message: error.to_string() })?;
        Ok(Self { commands: Mutex::new(Some(commands)), thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn submit<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection, &mut Vec<Channel>) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (reply, answer) = oneshot::channel();
        let write = Write { work, result: Err(Error::Closed), wakes: Vec::new(), reply };
        // Where nobody receives any more, the reply is dropped and the answer is "closed".
        if let Some(commands) = lock(&self.commands).as_ref() {
            commands.send(Box::new(write)).ok();
        }
        Box::pin(async move { answer.await.unwrap_or(Err(Error::Closed)) })
    }

    /// Takes no more commands; what it answers waits until those submitted are done.
    pub(super) fn close(&self) -> impl FnOnce() + Send + 'static {
        let commands = lock(&self.commands).take();
        let thread = lock(&self.thread).take();
        move || {
            // The thread lives on until here, with its connection.
            drop(commands);
            if let Some(thread) = thread {
                thread.join().ok();
            }
        }
    }
}

impl Drop for Writer {
    /// Whoever opens the file next finds it free.
    fn drop(&mut self) {
        self.close()();
    }
}

/// One write that waits for its turn.
trait Command: Send {
    /// Does the work in a savepoint and keeps its result; a failed one leaves no change.
    fn run(&mut self, connection: &Connection) -> Result<()>;
    /// Answers, after the transaction was committed or was not.
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
        self.result =
            (self.work)(connection, &mut self.wakes).map_err(|error| at(connection, error));
        if connection.is_autocommit() {
            // A full disk and the like may end the whole transaction.
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
        // Whoever asked may be gone; what was done stays done.
        self.reply.send(result).ok();
    }
}

fn write(
    connection: &Connection,
    mut log: Log,
    commands: &Receiver<Box<dyn Command>>,
    wakes: &Wakes,
) {
    let mut lingers = true;
    while let Some(first) = next(commands, &mut lingers) {
        let mut batch = vec![first];
        batch.extend(commands.try_iter().take(MAX_BATCH - 1));
        let outcome = transact(connection, &mut batch);
        if outcome.is_ok() || batch.len() == 1 {
            answer(batch, &outcome, wakes);
        } else {
            // One by one, so that only what cannot be written fails.
            for command in batch {
                let mut alone = vec![command];
                let outcome = transact(connection, &mut alone);
                answer(alone, &outcome, wakes);
            }
        }
        log.tend(connection);
    }
}

/// The next command; `None` once there can be none. It looks for one before it sleeps where that would
/// have helped the last time: else it keeps the processor from those who were answered.
fn next(commands: &Receiver<Box<dyn Command>>, lingers: &mut bool) -> Option<Box<dyn Command>> {
    let begun = Instant::now();
    while *lingers {
        match commands.try_recv() {
            Ok(command) => return Some(command),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {
                *lingers = begun.elapsed() < LINGER;
                std::thread::yield_now();
            }
        }
    }
    let command = commands.recv().ok();
    *lingers = begun.elapsed() < SOON;
    command
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
    connection.prepare_cached(sql).and_then(|mut sql| sql.execute([])).map_err(storage)?;
    Ok(())
}
