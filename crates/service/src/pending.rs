//! What a workflow needs and must not record: contents and live streams, handed over in memory.
//! After a crash they are gone, and the workflow that needs them says so.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};
use stockade_api::{FileContent, HttpAnswer, HttpRequest, Result, SessionEvent, SessionInput};
use stockade_durable::WorkflowId;
use tokio::sync::{mpsc, oneshot};

use crate::guard::Used;

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
    /// Bytes that a command is given to read on its standard input.
    pub(crate) stdin: Option<Vec<u8>>,
    /// The sandbox, as whoever asks has just found it.
    pub(crate) used: Option<Used>,
    /// What is added to a command's environment.
    pub(crate) environment: Option<BTreeMap<String, String>>,
    /// A request to a port inside, and where its answer goes.
    pub(crate) request: Option<(Box<HttpRequest>, oneshot::Sender<HttpAnswer>)>,
    /// What a tool is called with, and where its answer goes.
    pub(crate) call: Option<(Map<String, Value>, oneshot::Sender<Value>)>,
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
    /// Only how many: what waits is not for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        write!(f, "Pending({waiting})")
    }
}

impl Pending {
    /// Leaves something for a workflow that is about to start, unless something waits for it
    /// already; whether it was left.
    pub(crate) fn leave(&self, id: &WorkflowId, handed: Handed) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.entry(id.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(handed);
                true
            }
        }
    }

    /// Takes what was left for a workflow, if anything was.
    pub(crate) fn take(&self, id: &WorkflowId) -> Option<Handed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }
}
