//! Reads a stream of a workflow: the existing rows, then new ones, until it ends.

use std::collections::VecDeque;

use tokio::sync::watch;

use super::Engine;
use super::handle::end_error;
use super::poll::Poll;
use crate::{Channel, Error, Json, Result, Status, WorkflowId};

/// How many rows one read returns.
const PAGE: u32 = 256;

/// Reads one stream in order. Readers are independent of each other and may start late.
#[derive(Debug)]
pub struct StreamReader {
    engine: Engine,
    id: WorkflowId,
    key: String,
    next_offset: u64,
    read: VecDeque<(u64, Option<Json>)>,
    changes: watch::Receiver<u64>,
    poll: Poll,
    ended: bool,
}

impl StreamReader {
    pub(super) fn new(engine: Engine, id: WorkflowId, key: String, next_offset: u64) -> Self {
        let changes = engine.store().wakes().subscribe(Channel::Stream(id.clone()));
        let (read, poll) = (VecDeque::new(), Poll::default());
        Self { engine, id, key, next_offset, read, changes, poll, ended: false }
    }

    /// Waits for the next committed value and returns it with its offset; `None` at the end: where
    /// the stream was closed, or the workflow succeeded. If the workflow ended otherwise before it
    /// closed the stream, its error.
    pub async fn next(&mut self) -> Result<Option<(u64, Json)>> {
        loop {
            if let Some((offset, value)) = self.read.pop_front() {
                self.next_offset = offset + 1;
                if let Some(value) = value {
                    return Ok(Some((offset, value)));
                }
                self.ended = true;
            }
            if self.ended {
                return Ok(None);
            }
            self.changes.mark_unchanged();
            let store = self.engine.store();
            let page = store.stream(&self.id, &self.key, self.next_offset, PAGE).await?;
            if !page.rows.is_empty() {
                self.read = page.rows.into();
                self.poll = Poll::default();
            } else if page.status.is_terminal() {
                self.ended = true;
                return self.end().await;
            } else {
                let is_elsewhere = self.engine.is_elsewhere(&self.id, None);
                self.poll.changed(&mut self.changes, is_elsewhere).await?;
            }
        }
    }

    /// The end of an unclosed stream whose workflow has ended.
    async fn end(&self) -> Result<Option<(u64, Json)>> {
        match self.engine.info(&self.id).await? {
            Some(info) if info.status == Status::Success => Ok(None),
            Some(info) if info.status.is_terminal() => Err(end_error(&info)),
            // Resumed or removed in between: a later read returns more.
            _ => Err(Error::Interrupted { id: self.id.clone(), why: "it was resumed".to_owned() }),
        }
    }
}
