//! What a workflow needs and must not record: contents and live streams, handed over in memory.
//! After a crash they are gone, and the workflow that needs them says so.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use stockade_api::{FileContent, HttpAnswer, HttpRequest, Result, SessionEvent, SessionInput};
use stockade_durable::WorkflowId;
use tokio::sync::{mpsc, oneshot};

/// What waits to be taken, by the workflow that it is for.
#[derive(Default)]
pub(crate) struct Pending(Mutex<HashMap<WorkflowId, Handed>>);

/// What is handed to a workflow.
#[derive(Default)]
pub(crate) struct Handed {
    /// What a command reads, or a file gets.
    pub(crate) content: Option<FileContent>,
    /// Where a command's streams go.
    pub(crate) session: Option<Live>,
    /// Bytes that a command reads on its standard input.
    pub(crate) stdin: Option<Vec<u8>>,
    /// A request to a port inside, and where its answer goes.
    pub(crate) request: Option<(Box<HttpRequest>, oneshot::Sender<HttpAnswer>)>,
}

/// The far ends of a session.
pub(crate) struct Live {
    pub(crate) events: mpsc::Sender<Result<SessionEvent>>,
    pub(crate) input: mpsc::Receiver<SessionInput>,
}

/// Something that is taken once, by whichever run of a step comes first.
pub(crate) struct Once<T>(Mutex<Option<T>>);

impl<T> Once<T> {
    pub(crate) const fn new(value: Option<T>) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

impl Pending {
    /// Leaves something for a workflow that is about to start.
    pub(crate) fn leave(&self, id: &WorkflowId, handed: Handed) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), handed);
    }

    /// Takes what was left for a workflow, if anything was.
    pub(crate) fn take(&self, id: &WorkflowId) -> Option<Handed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }
}
