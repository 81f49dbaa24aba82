//! The threads that read. Each has a connection that cannot write; every statement sees one snapshot.
//!
//! There is one at first, and another whenever all are at work, up to a few: each has to learn the
//! schema and every statement by itself.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::open::connect_reader;
use super::rows::at;
use crate::sync::lock;
use crate::{Error, Pending, Result};

/// The most threads.
const READERS: usize = 3;

type Read = Box<dyn FnOnce(&Connection) + Send>;

/// The way to the threads.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    waiting: Arc<Waiting>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What waits for a thread, and the threads that wait for it.
#[derive(Default)]
struct Waiting {
    queue: Mutex<Queue>,
    is_changed: Condvar,
}

#[derive(Default)]
struct Queue {
    reads: VecDeque<Read>,
    idle: usize,
    is_closed: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

impl Readers {
    /// Starts the first thread, with this connection to the file.
    pub(super) fn start(path: PathBuf, connection: Connection) -> Result<Self> {
        let readers = Self { path, waiting: Arc::default(), threads: Mutex::default() };
        let waiting = Arc::clone(&readers.waiting);
        let first = readers.spawn(0, move || waiting.serve(&connection));
        lock(&readers.threads)
            .push(first.map_err(|error| Error::Storage { message: error.to_string() })?);
        Ok(readers)
    }

    fn spawn(
        &self,
        number: usize,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(format!("durable-reader-{number}")).spawn(work)
    }

    pub(super) fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (reply, answer) = oneshot::channel();
        let read = move |connection: &Connection| {
            // Whoever asked may be gone.
            reply.send(work(connection).map_err(|error| at(connection, error))).ok();
        };
        let mut queue = lock(&self.waiting.queue);
        // Where nobody reads any more, the reply is dropped and the answer is "closed".
        if !queue.is_closed {
            queue.reads.push_back(Box::new(read));
            let are_all_at_work = queue.reads.len() > queue.idle;
            drop(queue);
            self.waiting.is_changed.notify_one();
            if are_all_at_work {
                self.one_more();
            }
        }
        Box::pin(async move { answer.await.unwrap_or(Err(Error::Closed)) })
    }

    /// Starts another thread, where there may be one. Without it the others do its work.
    fn one_more(&self) {
        let mut threads = lock(&self.threads);
        if threads.is_empty() || threads.len() == READERS {
            return;
        }
        let (path, waiting) = (self.path.clone(), Arc::clone(&self.waiting));
        let more = self.spawn(threads.len(), move || match connect_reader(&path) {
            Ok(connection) => waiting.serve(&connection),
            Err(error) => tracing::warn!(%error, "one thread less reads the database"),
        });
        threads.extend(more);
    }

    /// Takes no more reads; what it answers waits until those that wait are done, and the threads
    /// have closed the file.
    pub(super) fn close(&self) -> impl FnOnce() + Send + 'static {
        self.waiting.close();
        let threads = std::mem::take(&mut *lock(&self.threads));
        move || {
            for thread in threads {
                thread.join().ok();
            }
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.waiting.close();
    }
}

impl Waiting {
    /// Reads until there is nothing to read and never will be.
    fn serve(&self, connection: &Connection) {
        while let Some(read) = self.next() {
            read(connection);
        }
    }

    fn next(&self) -> Option<Read> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(read) = queue.reads.pop_front() {
                return Some(read);
            }
            if queue.is_closed {
                return None;
            }
            queue.idle += 1;
            queue = self.changed(queue);
            queue.idle -= 1;
        }
    }

    fn changed<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        self.is_changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.is_changed.notify_all();
    }
}
