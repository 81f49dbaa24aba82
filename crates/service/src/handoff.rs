//! What a workflow needs and must not record: contents and live streams, handed over in memory.
//! After a crash they are gone, and the workflow that needs them fails with a message that says so.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};
use stockade_api::{FileContent, HttpAnswer, HttpRequest, Result, SessionEvent, SessionInput};
use stockade_durable::WorkflowId;
use tokio::sync::{mpsc, oneshot};

use crate::owned::Used;

/// What is handed over, by the workflow that it is for.
#[derive(Default)]
pub(crate) struct Handoffs(Mutex<HashMap<WorkflowId, Handoff>>);

/// What is handed to one workflow.
#[derive(Default)]
pub(crate) struct Handoff {
    /// The content of a file that is written.
    pub(crate) content: Option<FileContent>,
    /// The streams of a session.
    pub(crate) session: Option<SessionStreams>,
    /// Bytes that a command is given to read on its standard input.
    pub(crate) stdin: Option<Vec<u8>>,
    /// The sandbox, as the caller's owner check has just found it.
    pub(crate) used: Option<Used>,
    /// What is added to a command's environment.
    pub(crate) environment: Option<BTreeMap<String, String>>,
    /// A request to a port inside, and where its answer goes.
    pub(crate) request: Option<(Box<HttpRequest>, oneshot::Sender<HttpAnswer>)>,
    /// What a tool is called with, and where its answer goes.
    pub(crate) call: Option<(Map<String, Value>, oneshot::Sender<Value>)>,
}

/// The service's ends of the streams of a session.
pub(crate) struct SessionStreams {
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

impl fmt::Debug for Handoffs {
    /// Only how many: contents are not for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        write!(f, "Handoffs({waiting})")
    }
}

impl Handoffs {
    /// Keeps something for a workflow that is about to start, unless there is something for it
    /// already; whether it is kept.
    pub(crate) fn put(&self, id: &WorkflowId, handoff: Handoff) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.entry(id.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(handoff);
                true
            }
        }
    }

    /// Takes what is kept for a workflow.
    pub(crate) fn take(&self, id: &WorkflowId) -> Option<Handoff> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }
}
