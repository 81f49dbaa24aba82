//! The providers of sandboxes: objects of the author's, which are asked by way of the realm and may
//! ask for something while they run. Every word of theirs is bounded before it comes here; what it
//! means is looked at here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{GivenUp, Scripted};
use crate::authoring::{ChildRequest, Error, Word};
use crate::engine::author::SOON;
use crate::engine::trouble::Trouble;
use crate::journal::WorkflowRef;

/// How long a provider may take to clean up.
const CLEANING: Duration = Duration::from_secs(60);
/// How many child runs one call may ask for; the library asks for no more.
const MAX_CHILDREN: usize = 16;

/// Whom a provider asks while it runs.
#[async_trait]
pub(crate) trait Host: Send + Sync {
    /// It is alive, and says this of its progress: JSON of at most a megabyte.
    async fn heartbeat(&self, data: Value);

    /// Runs a workflow below the provider's own run: its beginning, or what is left of it. It is
    /// given up when this is dropped.
    ///
    /// # Errors
    /// When it cannot be run. A run that fails is an answer.
    async fn child(
        &self,
        workflow: WorkflowRef,
        request: ChildRequest,
    ) -> Result<ChildAnswer, Trouble>;
}

/// One more, until this is dropped.
pub(crate) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    pub(crate) fn of(number: &'a AtomicUsize) -> Self {
        number.fetch_add(1, Ordering::Relaxed);
        Self(number)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A provider by its id.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Named {
    /// The id.
    pub(crate) id: String,
    /// Whether it is an object of the author's, or registered.
    pub(crate) is_known: bool,
}

/// What `executeChildWorkflow` answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChildAnswer {
    /// The id of the run.
    pub(crate) run_id: String,
    /// How it ended: `finished`, `failed` or `cancelled`.
    pub(crate) status: &'static str,
    /// What it gave.
    pub(crate) output: Value,
    /// What it failed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Value>,
}

impl Scripted {
    /// What the provider of a `<Sandbox>` calls itself, and whether the realm has it now.
    pub(crate) async fn provider(&self, run: &str, sandbox: &str) -> Result<Named, Error> {
        let asked = {
            let mut live = self.live.lock().await;
            let live = self.ready(&mut live, run).await?;
            let changes = self.news(live, run);
            let argument = json!({ "run": run, "changes": changes, "sandbox": sandbox });
            live.realm.call::<Named>(live.realm.id(), "provider", argument)
        };
        let late = |_| Error::Late { what: "tell its provider", limit: SOON };
        tokio::time::timeout(SOON, asked).await.map_err(late)?
    }

    /// Has the provider of a `<Sandbox>` do its work; what it gave, of which nothing is known but
    /// that it is JSON. `request` is the plain part of what the provider is given. The provider is
    /// told when this is dropped.
    pub(crate) async fn provide(
        &self,
        run: &str,
        sandbox: &str,
        request: &Value,
        host: &dyn Host,
    ) -> Result<Value, Error> {
        let _asked = Counted::of(&self.asked);
        let (realm, id, answer, mut words) = {
            let mut live = self.live.lock().await;
            let live = self.ready(&mut live, run).await?;
            let id = live.realm.id();
            let argument = json!({
                "run": run, "call": id, "changes": self.news(live, run), "sandbox": sandbox,
                "request": request.to_string(),
            });
            let (answer, words) = live.realm.call_heard::<Value>(id, "provide", argument);
            (Arc::clone(&live.realm), id, answer, words)
        };
        let _given_up = GivenUp { realm: &realm, id };
        let mut answer = std::pin::pin!(answer);
        let mut children = FuturesUnordered::new();
        let mut handles = HashMap::new();
        loop {
            let word = tokio::select! {
                biased;
                answer = &mut answer => return answer,
                Some((ask, outcome)) = children.next(), if !children.is_empty() => {
                    // What was abandoned needs no answer.
                    if let Ok(outcome) = outcome {
                        realm.notify("answered", answered(id, ask, outcome));
                    }
                    continue;
                }
                Some(word) = words.recv() => word,
            };
            match word {
                Word::Heartbeat(data) => host.heartbeat(data).await,
                Word::Child { ask, request } => {
                    let is_next = usize::try_from(ask).is_ok_and(|ask| ask == handles.len());
                    if !is_next || handles.len() == MAX_CHILDREN {
                        let why = "a provider asked for a child run that it cannot have";
                        return Err(Error::Answer(why.to_owned()));
                    }
                    let (handle, registration) = AbortHandle::new_pair();
                    handles.insert(ask, handle);
                    let workflow = WorkflowRef::Requested { call: id, number: ask };
                    let child = Abortable::new(host.child(workflow, request), registration);
                    children.push(async move { (ask, child.await) });
                }
                Word::Abandon { ask } => {
                    if let Some(handle) = handles.get(&ask) {
                        handle.abort();
                    }
                }
            }
        }
    }

    /// Lets the provider of a `<Sandbox>` clean up after a [request](Self::provide), in whatever way
    /// that ended; also in another realm or process. Does nothing where it has no `cleanup`.
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
                "run": run, "changes": self.news(live, run), "sandbox": sandbox,
                "request": request.to_string(),
            });
            live.realm.call::<Value>(live.realm.id(), "cleanUp", argument)
        };
        match tokio::time::timeout(CLEANING, cleaning).await {
            Ok(cleaned) => cleaned.map(drop),
            Err(_) => {
                self.look_after().await;
                Err(Error::Late { what: "clean up a sandbox", limit: CLEANING })
            }
        }
    }
}

/// The answer to a wish of a call, as the realm takes it.
fn answered(call: u64, ask: u32, outcome: Result<ChildAnswer, Trouble>) -> Value {
    let mut answered = json!({ "call": call, "ask": ask });
    match outcome {
        Ok(answer) => answered["answer"] = json!(answer),
        Err(trouble) => {
            answered["failure"] = json!({ "code": trouble.code, "message": trouble.message });
        }
    }
    answered
}

#[cfg(test)]
mod tests;
