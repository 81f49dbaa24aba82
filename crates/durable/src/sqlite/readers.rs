//! The threads that read. Each has a connection that cannot write; every read sees one snapshot.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::rows::{at, storage};
use crate::sync::lock;
use crate::{Error, Pending, Result};

type Read = Box<dyn FnOnce(&Connection) + Send>;

/// The way to the threads.
#[derive(Debug)]
pub(super) struct Readers {
    reads: Mutex<Option<Sender<Read>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    /// Starts a thread for each connection.
    pub(super) fn start(connections: Vec<Connection>) -> Result<Self> {
        let (reads, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let mut threads = Vec::new();
        for (number, connection) in connections.into_iter().enumerate() {
            let receiver = Arc::clone(&receiver);
            let thread = std::thread::Builder::new().name(format!("durable-reader-{number}"));
            let spawned = thread.spawn(move || serve(&connection, &receiver));
            threads.push(spawned.map_err(|error| Error::Storage { message: error.to_string() })?);
        }
        Ok(Self { reads: Mutex::new(Some(reads)), threads: Mutex::new(threads) })
    }

    pub(super) fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (reply, answer) = oneshot::channel();
        let read = move |connection: &Connection| {
            // Whoever asked may be gone.
            reply.send(on_a_snapshot(connection, work)).ok();
        };
        if let Some(reads) = lock(&self.reads).as_ref() {
            reads.send(Box::new(read)).ok();
        }
        Box::pin(async move { answer.await.unwrap_or(Err(Error::Closed)) })
    }

    /// Takes no more reads; what it answers waits until those that wait are done, and the threads
    /// have closed the file.
    pub(super) fn close(&self) -> impl FnOnce() + Send + 'static {
        lock(&self.reads).take();
        let threads = std::mem::take(&mut *lock(&self.threads));
        move || {
            for thread in threads {
                thread.join().ok();
            }
        }
    }
}

fn serve(connection: &Connection, reads: &Mutex<Receiver<Read>>) {
    loop {
        // The lock is let go before the read, so that the next thread waits in turn.
        let next = lock(reads).recv();
        match next {
            Ok(read) => read(connection),
            Err(_) => return,
        }
    }
}

fn on_a_snapshot<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T>,
) -> Result<T> {
    let transaction = connection.unchecked_transaction().map_err(storage)?;
    let result = work(&transaction).map_err(|error| at(connection, error));
    drop(transaction);
    result
}
