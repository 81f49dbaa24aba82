//! Waits for a time and for messages. The recorded value is the time or message that ended the
//! wait, not its duration.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Context;
use super::steps::replay;
use crate::engine::stop::Interrupt;
use crate::sync::{millis, now_ms, sleep_until_ms};
use crate::{
    Channel, Error, Failure, Message, ReceivedMessage, Records, Result, StepOutcome, WorkflowId,
};

/// The names that DBOS gives these steps.
const SLEEP: &str = "DBOS.sleep";
const RECEIVE: &str = "DBOS.recv";
const SEND: &str = "DBOS.send";

impl Context {
    /// Sleeps for a duration that crashes do not extend: the wake-up time is recorded.
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = Result<(), Failure>> + Send {
        let function_id = self.next_function();
        async move {
            let wake_at = self.recorded_time(function_id, duration).await?;
            self.interruptible(sleep_until_ms(wake_at)).await?;
            Ok(())
        }
    }

    /// The end of a wait, as the first run computed it.
    async fn recorded_time(&self, function_id: u32, duration: Duration) -> Result<i64, Failure> {
        if let Some(record) = self.recorded(function_id, SLEEP)? {
            return replay(record);
        }
        let now = now_ms();
        let wake_at = now.saturating_add(millis(duration));
        let output = StepOutcome::Output(wake_at.to_string());
        let steps = vec![self.record(function_id, SLEEP, output, now)];
        self.commit(Records { steps, ..Records::default() }, Vec::new(), None).await?;
        Ok(wake_at)
    }

    /// Takes the oldest message on a topic, or waits for one; `None` after the timeout. Each
    /// message is received once.
    pub fn recv<T: DeserializeOwned + Send>(
        &self,
        topic: impl Into<Cow<'static, str>>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Option<T>, Failure>> + Send {
        let (function_id, timer_id) = (self.next_function(), self.next_function());
        let topic = topic.into();
        async move {
            if let Some(record) = self.recorded(function_id, RECEIVE)? {
                return replay(record);
            }
            let started_at = now_ms();
            let received = self.wait_for_message(&topic, timer_id, timeout).await?;
            let body = received.as_ref().map_or_else(|| "null".to_owned(), |got| got.body.clone());
            let output = StepOutcome::Output(body.clone());
            let records = Records {
                steps: vec![self.record(function_id, RECEIVE, output, started_at)],
                consumed: received.into_iter().map(|received| received.id).collect(),
                ..Records::default()
            };
            self.commit(records, Vec::new(), None).await?;
            Ok(serde_json::from_str(&body)?)
        }
    }

    async fn wait_for_message(
        &self,
        topic: &str,
        timer_id: u32,
        timeout: Duration,
    ) -> Result<Option<ReceivedMessage>, Failure> {
        let store = self.run.engine.store();
        let mut messages = store.wakes().subscribe(Channel::Messages(self.id().clone()));
        if let Some(message) = self.decode_stored(store.message(self.id(), topic).await)? {
            return Ok(Some(message));
        }
        let end = self.recorded_time(timer_id, timeout).await?;
        loop {
            messages.mark_unchanged();
            if let Some(message) = self.decode_stored(store.message(self.id(), topic).await)? {
                return Ok(Some(message));
            }
            let change = async {
                tokio::select! {
                    biased;
                    changed = messages.changed() => Some(changed),
                    () = sleep_until_ms(end) => None,
                }
            };
            match self.interruptible(change).await? {
                Some(Ok(())) => {}
                Some(Err(_)) => return Err(Error::Closed.into()),
                None => return Ok(None),
            }
        }
    }

    /// The result of a read from the store; a failed read stops the workflow in this process.
    fn decode_stored<T>(&self, answer: Result<T>) -> Result<T, Failure> {
        answer.map_err(|error| {
            self.run.stop.because(Interrupt::Storage(error.clone()));
            error.into()
        })
    }

    /// Sends a message to another workflow, once.
    pub fn send<T: Serialize + Sync + ?Sized>(
        &self,
        destination: &WorkflowId,
        topic: &str,
        message: &T,
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        let function_id = self.next_function();
        let message = serde_json::to_string(message).map(|body| Message {
            id: format!("{}:{function_id}", self.id()),
            destination: destination.clone(),
            topic: topic.to_owned(),
            body,
        });
        async move {
            if let Some(record) = self.recorded(function_id, SEND)? {
                return replay(record);
            }
            let output = StepOutcome::Output("null".to_owned());
            let records = Records {
                steps: vec![self.record(function_id, SEND, output, now_ms())],
                messages: vec![message?],
                ..Records::default()
            };
            match self.commit(records, Vec::new(), None).await {
                Err(error) if error.is_refusal() => {
                    self.child_error(function_id, SEND, error).await
                }
                result => Ok(result.map(drop)?),
            }
        }
    }
}
