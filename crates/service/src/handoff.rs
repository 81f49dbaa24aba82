//! Values that a workflow needs and must not record: contents and live streams, passed in memory.
//! After a crash they are lost, and the workflow that needs them fails with a message that reports
//! it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};
use stockade_api::{
    Bytes, FileContent, HttpRequest, HttpResponse, Result, SessionEvent, SessionInput,
};
use stockade_core::OwnerId;
use stockade_durable::WorkflowId;
use tokio::sync::{mpsc, oneshot};

use crate::owned_sandbox::ActiveSandbox;

/// The values, by workflow.
#[derive(Default)]
pub(crate) struct Handoffs(Mutex<HashMap<WorkflowId, Handoff>>);

/// The values for one workflow.
#[derive(Default)]
pub(crate) struct Handoff {
    /// The content of a file to write.
    pub(crate) content: Option<FileContent>,
    /// The streams of a session.
    pub(crate) session: Option<SessionStreams>,
    /// A command's standard input.
    pub(crate) stdin: Option<Vec<u8>>,
    /// The sandbox, as the caller's owner check has just read it.
    pub(crate) used: Option<ActiveSandbox>,
    /// Additions to a command's environment.
    pub(crate) environment: Option<BTreeMap<String, Bytes>>,
    /// The owner of the flow of a session, whose secrets it may use.
    pub(crate) flow_owner: Option<OwnerId>,
    /// A request to a port inside, and the receiver of its response.
    pub(crate) request: Option<(Box<HttpRequest>, oneshot::Sender<HttpResponse>)>,
    /// The arguments of a tool, and the receiver of its result.
    pub(crate) call: Option<(Map<String, Value>, oneshot::Sender<Value>)>,
}

/// The service's ends of the streams of a session.
pub(crate) struct SessionStreams {
    pub(crate) events: mpsc::Sender<Result<SessionEvent>>,
    pub(crate) input: mpsc::Receiver<SessionInput>,
}

/// A value that is taken once, by the first execution of a step.
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
    /// Only the number: contents must not be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        write!(f, "Handoffs({waiting})")
    }
}

impl Handoffs {
    /// Stores values for a workflow that is about to start, unless it has some already. Returns
    /// whether they were stored.
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

    /// Takes the values of a workflow.
    pub(crate) fn take(&self, id: &WorkflowId) -> Option<Handoff> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }
}
