//! The code of a workflow file. It is called in a realm, which is started again if it was lost.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use stockade_script::worker::Confinement;
use tokio::sync::Notify;

use super::console::{Lines, writer};
use super::loaded_realm::{AbortGuard, LoadedRealm};
use crate::authoring::{
    Error, Message, ModelAnswer, Modules, OpenAnswer, Processes, Program, Realm, RenderAnswer,
    Sources, TokenUsage,
};
use crate::engine::task_error::TaskError;
use crate::engine::user_code::calls::{CALL_LIMIT, Interface, Rendering, TaskCall};
use crate::engine::user_code::models::ModelHost;
use crate::graph::{self, Fault, Function, Prompt, Tree, Work};
use crate::journal::{SharedJournal, WorkflowRef};
use crate::schedule::Key;
use crate::sync::lock;

/// The time limit for a realm to respond to a call that does nothing.
const RESPONSE_LIMIT: Duration = Duration::from_secs(2);

/// How often a call may ask models. The library asks no more often.
const MAX_MODEL_REQUESTS: usize = 200;
/// How often a call that waits for a model is alive.
const MODEL_HEARTBEAT: Duration = Duration::from_secs(1);

/// How many bytes one rendering and its updates may have before a rendering is sent whole again. All
/// bytes that were sent are retained.
const MAX_TREE_BYTES: usize = 64 << 20;

/// The code of one program.
pub(crate) struct ScriptCode {
    realms: Processes,
    pub(super) sources: Sources,
    environment: BTreeMap<String, String>,
    console: Arc<Lines>,
    runs: Mutex<HashMap<String, SharedJournal>>,
    /// The tokens that agents said they used, by run and task, until the end of the attempt.
    usage: Mutex<HashMap<(String, Key), TokenUsage>>,
    pub(super) live: tokio::sync::Mutex<Option<LoadedRealm>>,
    /// How many requests to providers are running in the realm.
    pub(super) provider_requests: AtomicUsize,
}

impl std::fmt::Debug for ScriptCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptCode").field("entry", &self.sources.entry).finish_non_exhaustive()
    }
}

impl ScriptCode {
    pub(crate) fn new(
        realms: Processes,
        sources: Sources,
        environment: BTreeMap<String, String>,
    ) -> Self {
        let (runs, usage) = (Mutex::default(), Mutex::default());
        let live = tokio::sync::Mutex::default();
        let (console, provider_requests) = (Arc::default(), AtomicUsize::default());
        Self { realms, sources, environment, console, runs, usage, live, provider_requests }
    }

    /// Loads the code into a realm, from the files on disk.
    pub(crate) async fn load(
        realms: Processes,
        file: &std::path::Path,
        environment: BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let console = Arc::<Lines>::default();
        let fault = |message| Error::Faults(vec![Fault { place: None, message }]);
        let (mut disk, entry) = Program::of(file).map_err(fault)?;
        let realm = Realm::load(
            &realms,
            entry,
            environment.clone(),
            &mut disk as &mut dyn Modules,
            writer(&console),
        );
        let live = LoadedRealm::new(realm.await?);
        let user_code = Self::new(realms, disk.into_sources(), environment);
        Ok(Self { live: tokio::sync::Mutex::new(Some(live)), console, ..user_code })
    }

    /// The lines written to the console since the last call: levels and texts.
    pub(crate) fn take_lines(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *lock(&self.console))
    }

    /// The tokens that the agent of a call said it used; `None` if it did not say.
    pub(crate) fn take_usage(&self, call: TaskCall<'_>) -> Option<TokenUsage> {
        lock(&self.usage).remove(&(call.run.to_owned(), call.key.clone()))
    }

    /// The program.
    pub(crate) const fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The isolation of its realm, while there is one.
    pub(crate) async fn confinement(&self) -> Option<Confinement> {
        self.live.lock().await.as_ref().map(|live| live.realm.confinement())
    }

    /// Opens a run.
    pub(crate) async fn open(&self, journal: &SharedJournal) -> Result<Interface, Error> {
        let run = lock(journal).run.clone();
        lock(&self.runs).insert(run.clone(), Arc::clone(journal));
        let mut live = self.live.lock().await;
        let live = self.load_if_needed(&mut live).await?;
        let opened = self.open_in(live, &run).await?;
        let input = opened.input.and_then(|at| live.schemas.get(at)).cloned();
        Ok(Interface { input, output: opened.output })
    }

    /// Renders a run.
    pub(crate) async fn render(&self, run: &str) -> Result<Rendering, Error> {
        let mut live = self.live.lock().await;
        let live = self.load_if_needed(&mut live).await?;
        self.ensure_open(live, run).await?;
        let before = live.trees.remove(run);
        let before = before.filter(|(_, tree)| tree.sent_bytes() <= MAX_TREE_BYTES);
        live.last_tree += 1;
        let number = live.last_tree;
        let known = before.as_ref().map(|(number, _)| *number);
        let rendered = self.render_as(live, run, known, Some(number)).await?;
        let update =
            rendered.tree.ok_or_else(|| Error::Answer("there is no rendering".to_owned()))?;
        let tree = Tree::after(before.map(|(_, tree)| tree), update, &live.schemas);
        let tree = tree.map_err(|error| match error {
            graph::Error::Faults(faults) => Error::Faults(faults),
            graph::Error::InvalidUpdate(_) => Error::Answer(error.to_string()),
        })?;
        let graph = tree.graph().cloned();
        let graph = graph.ok_or_else(|| Error::Answer("there is no rendering".to_owned()))?;
        live.trees.insert(run.to_owned(), (number, tree));
        Ok(Rendering { graph, read: rendered.read.into_iter().collect() })
    }

    /// Calls the function of a task. Dropping the future aborts the call. `heartbeats` is notified with each
    /// heartbeat of the function.
    pub(crate) async fn work(
        &self,
        TaskCall { run, key, demand, models, .. }: TaskCall<'_>,
        work: &Work,
        heartbeats: &Notify,
    ) -> Result<Value, Error> {
        let (function, argument) = match work {
            Work::Compute { function, inputs } => {
                ("compute", json!({ "function": function, "inputs": inputs }))
            }
            Work::Agent { agent, prompt: Prompt::Text(text) } => {
                ("ask", json!({ "agent": agent, "demand": demand, "prompt": text }))
            }
            Work::Agent { agent, prompt: Prompt::Computed { function, inputs } } => {
                let function = json!(function);
                let (agent, demand) = (json!(agent), json!(demand));
                (
                    "ask",
                    json!({ "agent": agent, "demand": demand, "function": function, "inputs": inputs }),
                )
            }
            other => return Err(Error::Answer(format!("{} is not a function", other.kind()))),
        };
        let mut used = None;
        let result = self.call_with((run, models), function, argument, |message| {
            // Any message of the call is a heartbeat.
            heartbeats.notify_one();
            if let Message::Usage(usage) = message {
                used = Some(usage);
            }
        });
        let result = result.await;
        if let Some(used) = used {
            lock(&self.usage).insert((run.to_owned(), key.clone()), used);
        }
        result
    }

    /// Reads the output of an agent, or a raw answer, by calling a function of the run.
    pub(crate) async fn read(
        &self,
        run: &str,
        function: Function,
        value: Value,
    ) -> Result<Value, Error> {
        let argument = json!({ "function": function, "value": value });
        self.call_with((run, None), "read", argument, |_| {}).await
    }

    /// Calls a function of `library/start.js` for a run. `hear` gets the messages of the call, except requests
    /// to models, which are sent here.
    async fn call_with(
        &self,
        (run, models): (&str, Option<&dyn ModelHost>),
        function: &str,
        mut argument: Value,
        mut hear: impl FnMut(Message),
    ) -> Result<Value, Error> {
        let (realm, id, answer, mut messages) = {
            let mut live = self.live.lock().await;
            let live = self.ready(&mut live, run).await?;
            let id = live.realm.id();
            argument["run"] = run.into();
            argument["call"] = id.into();
            argument["changes"] = self.changes(live, run);
            let (answer, messages) = live.realm.call_with_messages::<Value>(id, function, argument);
            (Arc::clone(&live.realm), id, answer, messages)
        };
        let _abort = AbortGuard { realm: &realm, id };
        let mut answer = std::pin::pin!(answer);
        let (mut requests, mut asked) = (FuturesUnordered::new(), 0);
        loop {
            let message = tokio::select! {
                biased;
                answer = &mut answer => {
                    while let Ok(message) = messages.try_recv() {
                        hear(message);
                    }
                    return answer;
                }
                Some((ask, outcome)) = requests.next(), if !requests.is_empty() => {
                    realm.notify("modelAnswered", model_answer(ask, outcome));
                    continue;
                }
                () = tokio::time::sleep(MODEL_HEARTBEAT), if !requests.is_empty() => {
                    Message::Heartbeat(Value::Null)
                }
                Some(message) = messages.recv() => message,
            };
            match (message, models) {
                (Message::Model { ask, request }, Some(models)) if asked < MAX_MODEL_REQUESTS => {
                    asked += 1;
                    requests.push(async move { (ask, models.ask(request).await) });
                }
                (Message::Model { .. }, _) => {
                    let why = "a call asked a model more often than it may";
                    return Err(Error::Answer(why.to_owned()));
                }
                (message, _) => hear(message),
            }
        }
    }

    /// Ends the realm while it is idle. The next call starts it again.
    pub(crate) async fn rest(&self) {
        // A provider in it may wait for a child run that is waiting itself.
        if self.provider_requests.load(Ordering::Relaxed) > 0 {
            return;
        }
        if let Some(live) = self.live.lock().await.take() {
            live.realm.kill();
        }
    }

    /// Ends a realm that does not respond, because one of its functions never returns.
    pub(crate) async fn kill_if_stuck(&self) {
        let realm = match &*self.live.lock().await {
            Some(live) => Arc::clone(&live.realm),
            None => return,
        };
        let hears = realm.call_with_timeout::<Value>("hear", RESPONSE_LIMIT, "abort", json!({}));
        if hears.await.is_err() {
            realm.kill();
        }
    }

    /// The realm; starts a new one if there is none.
    pub(super) async fn load_if_needed<'a>(
        &self,
        live: &'a mut Option<LoadedRealm>,
    ) -> Result<&'a mut LoadedRealm, Error> {
        if live.as_ref().is_some_and(|live| live.realm.has_ended()) {
            *live = None;
        }
        match live {
            Some(live) => Ok(live),
            None => {
                let mut sources = self.sources.clone();
                let entry = sources.file(&sources.entry);
                let entry = entry
                    .ok_or_else(|| Error::Start("the stored program is missing".to_owned()))?;
                let environment = self.environment.clone();
                let console = writer(&self.console);
                let realm =
                    Realm::load(&self.realms, entry, environment, &mut sources, console).await?;
                Ok(live.insert(LoadedRealm::new(realm)))
            }
        }
    }

    /// The realm, with a rendering of a run. Functions are called by their locations in the rendering.
    pub(super) async fn ready<'a>(
        &self,
        live: &'a mut Option<LoadedRealm>,
        run: &str,
    ) -> Result<&'a mut LoadedRealm, Error> {
        let live = self.load_if_needed(live).await?;
        if self.ensure_open(live, run).await? {
            self.render_again(live, run).await?;
        }
        Ok(live)
    }

    /// Opens a run in a realm that does not know it yet; returns whether it was opened.
    pub(super) async fn ensure_open(
        &self,
        live: &mut LoadedRealm,
        run: &str,
    ) -> Result<bool, Error> {
        let is_new = !live.sent_rows.contains_key(run);
        if is_new {
            self.open_in(live, run).await?;
        }
        Ok(is_new)
    }

    async fn open_in(&self, live: &mut LoadedRealm, run: &str) -> Result<OpenAnswer, Error> {
        let journal = self.journal(run)?;
        let (input, parent_run) = {
            let journal = lock(&journal);
            (journal.input.clone(), journal.parent.clone())
        };
        let mut argument = json!({ "run": run, "input": input });
        if let Some((parent, definition)) = parent_run {
            if Box::pin(self.ensure_open(live, &parent)).await? {
                self.render_again(live, &parent).await?;
            }
            argument["within"] = parent.into();
            match definition {
                WorkflowRef::Rendered(function) => argument["workflow"] = json!(function),
                WorkflowRef::Requested { call, number } => {
                    argument["call"] = call.into();
                    argument["workflow"] = number.into();
                }
            }
        }
        let opened: OpenAnswer =
            live.realm.call_with_timeout("open", CALL_LIMIT, "open", argument).await?;
        live.schemas.clone_from(&opened.schemas);
        live.sent_rows.insert(run.to_owned(), 0);
        Ok(opened)
    }

    pub(super) async fn render_again(
        &self,
        live: &mut LoadedRealm,
        run: &str,
    ) -> Result<RenderAnswer, Error> {
        self.render_as(live, run, None, None).await
    }

    /// A rendering. With a `number`, the realm records it and sends it as an update of the rendering
    /// `before`.
    async fn render_as(
        &self,
        live: &mut LoadedRealm,
        run: &str,
        before: Option<u64>,
        number: Option<u64>,
    ) -> Result<RenderAnswer, Error> {
        let changes = self.changes(live, run);
        let schemas = live.schemas.len();
        let argument = json!({
            "run": run, "changes": changes, "schemas": schemas, "before": before, "number": number,
        });
        let rendered = live.realm.call_with_timeout("render", CALL_LIMIT, "render", argument).await;
        if matches!(rendered, Err(Error::Timeout { .. })) {
            live.realm.kill();
        }
        let mut rendered: RenderAnswer = rendered?;
        live.schemas.append(&mut rendered.schemas);
        live.read.insert(run.to_owned(), rendered.read.clone());
        Ok(rendered)
    }

    /// The changes in the journal of a run since the last call. They have to be sent to the realm.
    pub(super) fn changes(&self, live: &mut LoadedRealm, run: &str) -> Value {
        let Ok(journal) = self.journal(run) else { return json!({}) };
        let journal = lock(&journal);
        let sent = live.sent_rows.entry(run.to_owned()).or_default();
        let rows = journal.rows.get(*sent..).unwrap_or_default();
        *sent = journal.rows.len();
        json!({ "rows": rows, "iterations": journal.iterations, "failures": journal.failures })
    }

    pub(super) fn journal(&self, run: &str) -> Result<SharedJournal, Error> {
        let found = lock(&self.runs).get(run).cloned();
        found.ok_or_else(|| Error::Answer(format!("there is no run {run}")))
    }
}

/// The answer to a request to a model, in the form that the realm expects.
fn model_answer(ask: u32, outcome: Result<ModelAnswer, TaskError>) -> Value {
    match outcome {
        Ok(answer) => json!({ "ask": ask, "answer": answer }),
        Err(error) => {
            json!({ "ask": ask, "failure": { "code": error.code, "message": error.message } })
        }
    }
}
