//! Providers of sandboxes that are objects of a workflow file. They are called in the realm, and may
//! request child runs while they work. The length of their messages is limited before they arrive here;
//! their meaning is checked here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};

use super::code::ScriptCode;
use super::loaded_realm::AbortGuard;
use crate::authoring::{Error, Message};
use crate::engine::task_error::TaskError;
use crate::engine::user_code::calls::CALL_LIMIT;
use crate::engine::user_code::provider::{ActiveGuard, ChildResult, ProviderHost, ProviderName};
use crate::journal::WorkflowRef;

/// The time limit for a provider's cleanup.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(60);
/// How many child runs one call may request. The library requests no more.
const MAX_CHILDREN: usize = 16;

impl ScriptCode {
    /// The provider of a `<Sandbox>`, and whether the realm contains it.
    pub(crate) async fn provider(&self, run: &str, sandbox: &str) -> Result<ProviderName, Error> {
        let provider = {
            let mut live = self.live.lock().await;
            let live = self.ready(&mut live, run).await?;
            let changes = self.changes(live, run);
            let argument = json!({ "run": run, "changes": changes, "sandbox": sandbox });
            live.realm.call::<ProviderName>(live.realm.id(), "provider", argument)
        };
        let late = |_| Error::Timeout { what: "notify its provider", limit: CALL_LIMIT };
        tokio::time::timeout(CALL_LIMIT, provider).await.map_err(late)?
    }

    /// Makes the provider of a `<Sandbox>` do its work; returns its output, which may be any JSON.
    /// `request` is the part of the provider's request that is data. Dropping the future aborts the
    /// provider.
    pub(crate) async fn provide(
        &self,
        run: &str,
        sandbox: &str,
        request: &Value,
        host: &dyn ProviderHost,
    ) -> Result<Value, Error> {
        let _active = ActiveGuard::new(&self.provider_requests);
        let (realm, id, answer, mut messages) = {
            let mut live = self.live.lock().await;
            let live = self.ready(&mut live, run).await?;
            let id = live.realm.id();
            let argument = json!({
                "run": run, "call": id, "changes": self.changes(live, run), "sandbox": sandbox,
                "request": request.to_string(),
            });
            let (answer, messages) =
                live.realm.call_with_messages::<Value>(id, "provide", argument);
            (Arc::clone(&live.realm), id, answer, messages)
        };
        let _abort = AbortGuard { realm: &realm, id };
        let mut answer = std::pin::pin!(answer);
        let mut children = FuturesUnordered::new();
        let mut handles = HashMap::new();
        loop {
            let message = tokio::select! {
                biased;
                answer = &mut answer => return answer,
                Some((ask, outcome)) = children.next(), if !children.is_empty() => {
                    // An abandoned request needs no answer.
                    if let Ok(outcome) = outcome {
                        realm.notify("answered", child_answer(id, ask, outcome));
                    }
                    continue;
                }
                Some(word) = messages.recv() => word,
            };
            match message {
                Message::Heartbeat(data) => host.heartbeat(data).await,
                // Only agents are asked for their tokens, and ask models.
                Message::Usage(_) | Message::Model { .. } => {}
                Message::Child { ask, request } => {
                    let is_next = usize::try_from(ask).is_ok_and(|ask| ask == handles.len());
                    if !is_next || handles.len() == MAX_CHILDREN {
                        let why = "a provider requested a child run that is not permitted";
                        return Err(Error::Answer(why.to_owned()));
                    }
                    let (handle, registration) = AbortHandle::new_pair();
                    handles.insert(ask, handle);
                    let workflow = WorkflowRef::Requested { call: id, number: ask };
                    let child = Abortable::new(host.child(workflow, request), registration);
                    children.push(async move { (ask, child.await) });
                }
                Message::Abandon { ask } => {
                    if let Some(handle) = handles.get(&ask) {
                        handle.abort();
                    }
                }
            }
        }
    }

    /// Makes the provider of a `<Sandbox>` clean up after a [request](Self::provide), no matter how the
    /// request ended, also in another realm or process. Does nothing if the provider has no `cleanup`.
    pub(crate) async fn clean_up(
        &self,
        run: &str,
        sandbox: &str,
        request: &Value,
    ) -> Result<(), Error> {
        let cleaning = {
            let mut live = self.live.lock().await;
            let live = self.ready(&mut live, run).await?;
            let argument = json!({
                "run": run, "changes": self.changes(live, run), "sandbox": sandbox,
                "request": request.to_string(),
            });
            live.realm.call::<Value>(live.realm.id(), "cleanUp", argument)
        };
        match tokio::time::timeout(CLEANUP_TIMEOUT, cleaning).await {
            Ok(cleaned) => cleaned.map(drop),
            Err(_) => {
                self.kill_if_stuck().await;
                Err(Error::Timeout { what: "clean up a sandbox", limit: CLEANUP_TIMEOUT })
            }
        }
    }
}

/// The answer to a request of a call, in the form that the realm expects.
fn child_answer(call: u64, ask: u32, outcome: Result<ChildResult, TaskError>) -> Value {
    let mut answer = json!({ "call": call, "ask": ask });
    match outcome {
        Ok(result) => answer["answer"] = json!(result),
        Err(error) => {
            answer["failure"] = json!({ "code": error.code, "message": error.message });
        }
    }
    answer
}

#[cfg(test)]
mod tests;
