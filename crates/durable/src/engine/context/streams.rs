//! Streams and events: values that a workflow publishes while it runs.

use std::time::Duration;

use serde::Serialize;

use super::Context;
use super::steps::replay;
use crate::sync::{lock, now_ms};
use crate::{EventRecord, Failure, Records, Result, StepOutcome, StreamRow};

/// The names that DBOS gives these steps.
const WRITE: &str = "DBOS.writeStream";
const CLOSE: &str = "DBOS.closeStream";
const SET_EVENT: &str = "DBOS.setEvent";

/// How long the rows of a writer are collected before they are committed.
const GATHER: Duration = Duration::from_millis(50);
/// The most bytes that are collected before a commit.
const GATHER_BYTES: usize = 64 << 10;
/// The largest value of one row, in bytes of JSON.
const MAX_ROW_BYTES: usize = 1 << 20;

impl Context {
    /// Appends a value to a stream, exactly once: this is a step.
    pub fn write_stream<T: Serialize + Sync + ?Sized>(
        &self,
        key: &str,
        value: &T,
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        let function_id = self.next_function();
        let row = row(key, value);
        async move {
            let row = StreamRow { function_id: Some(function_id), ..row? };
            if lock(&self.run.journal).closed.contains(&row.key) {
                return Err(closed(&row.key));
            }
            let records = Records { stream: vec![row], ..Records::default() };
            self.record_with(function_id, WRITE, records).await
        }
    }

    /// Ends a stream for its readers: this is a step. A later write to it is a failure.
    pub fn close_stream(&self, key: &str) -> impl Future<Output = Result<(), Failure>> + Send {
        let function_id = self.next_function();
        let key = key.to_owned();
        async move {
            lock(&self.run.journal).closed.insert(key.clone());
            let row = StreamRow { key, value: None, function_id: Some(function_id) };
            let records = Records { stream: vec![row], ..Records::default() };
            self.record_with(function_id, CLOSE, records).await
        }
    }

    /// A writer for output in many pieces, for use inside steps. Its rows are committed in batches,
    /// and again when the step runs again.
    pub fn stream_writer(&self, key: &str) -> StreamWriter {
        StreamWriter { context: self.clone(), key: key.to_owned() }
    }

    /// Sets an event and replaces an earlier one with that key: this is a step.
    pub fn set_event<T: Serialize + Sync + ?Sized>(
        &self,
        key: &str,
        value: &T,
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        let function_id = self.next_function();
        let value = serde_json::to_string(value);
        let key = key.to_owned();
        async move {
            let event = EventRecord { key, value: value? };
            let records = Records { events: vec![event], ..Records::default() };
            self.record_with(function_id, SET_EVENT, records).await
        }
    }

    /// Commits a step without a value, together with its records.
    async fn record_with(
        &self,
        function_id: u32,
        name: &'static str,
        mut records: Records,
    ) -> Result<(), Failure> {
        if let Some(record) = self.recorded(function_id, name)? {
            return replay(record);
        }
        let output = StepOutcome::Output("null".to_owned());
        records.steps.push(self.record(function_id, name, output, now_ms()));
        self.commit(records, Vec::new(), None).await?;
        Ok(())
    }

    /// Adds a row to the next commit, and schedules a flush.
    async fn gather(&self, row: StreamRow) -> Result<(), Failure> {
        self.check()?;
        let is_full = {
            let mut journal = lock(&self.run.journal);
            if journal.closed.contains(&row.key) {
                return Err(closed(&row.key));
            }
            journal.stream_bytes += row.key.len() + row.value.as_ref().map_or(0, String::len);
            if row.value.is_none() {
                journal.closed.insert(row.key.clone());
            }
            journal.pending.stream.push(row);
            let is_full = journal.stream_bytes >= GATHER_BYTES;
            if !is_full && !std::mem::replace(&mut journal.flush_is_due, true) {
                tokio::spawn(self.clone().flush_soon());
            }
            is_full
        };
        // A writer that is faster than the store waits here.
        if is_full { self.flush().await } else { Ok(()) }
    }

    async fn flush_soon(self) {
        tokio::select! {
            () = tokio::time::sleep(GATHER) => {}
            // The last commit of the workflow contains the rest.
            () = self.run.stop.token().cancelled() => return,
        }
        lock(&self.run.journal).flush_is_due = false;
        // A failure stops the workflow, which reports it.
        self.flush().await.ok();
    }
}

/// Writes output to a stream in batches: every 50 ms, or 64 KiB, whichever is first.
#[derive(Debug, Clone)]
pub struct StreamWriter {
    context: Context,
    key: String,
}

impl StreamWriter {
    /// Adds a value of at most 1 MiB. It is committed soon, at the latest with the end of the
    /// workflow. When many bytes are pending, this waits for their commit.
    pub async fn write<T: Serialize + Sync + ?Sized>(&self, value: &T) -> Result<(), Failure> {
        self.context.gather(row(&self.key, value)?).await
    }

    /// Waits until all written values are committed.
    pub async fn flush(&self) -> Result<(), Failure> {
        self.context.flush().await
    }

    /// Ends the stream for its readers.
    pub async fn close(&self) -> Result<(), Failure> {
        let row = StreamRow { key: self.key.clone(), value: None, function_id: None };
        self.context.gather(row).await
    }
}

fn row<T: Serialize + ?Sized>(key: &str, value: &T) -> Result<StreamRow, Failure> {
    let value = serde_json::to_string(value)?;
    if value.len() > MAX_ROW_BYTES {
        let message = format!("a value of {} bytes for stream {key:?}", value.len());
        return Err(Failure::new("too_large", message));
    }
    Ok(StreamRow { key: key.to_owned(), value: Some(value), function_id: None })
}

fn closed(key: &str) -> Failure {
    Failure::new("stream_closed", format!("stream {key:?} was closed"))
}
