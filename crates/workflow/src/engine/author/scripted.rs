//! The author of a workflow file, who is asked by way of a realm. It is made again when it was lost.

pub(crate) mod provide;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use stockade_script::worker::Raised;
use tokio::sync::Notify;

use super::{About, SOON, View};
use crate::authoring::{
    Console, Error, ModulePlace, Modules, OpenAnswer, OriginAnswer, Processes, Program, Realm,
    RenderAnswer, Sources, WorkflowOrigin, pack,
};
use crate::graph::{self, Fault, Function, Prompt, Tree, Work};
use crate::journal::{SharedJournal, WorkflowRef};
use crate::sync::lock;

/// How long a realm may take to show that it hears.
const HEARING: Duration = Duration::from_secs(2);

/// How much may be told of one rendering and of those after it, before it is told whole again: what a
/// realm tells is kept.
const MAX_TOLD_BYTES: usize = 64 << 20;

/// The author of one program.
pub(crate) struct Scripted {
    realms: Processes,
    sources: Sources,
    environment: BTreeMap<String, String>,
    console: Arc<Lines>,
    runs: Mutex<HashMap<String, SharedJournal>>,
    live: tokio::sync::Mutex<Option<Live>>,
    /// The providers that are asked through the realm now.
    asked: AtomicUsize,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scripted").field("entry", &self.sources.entry).finish_non_exhaustive()
    }
}

/// What was written to a console, and not taken yet.
type Lines = Mutex<Vec<(String, String)>>;

/// How many lines wait at most; what is more is lost.
const MAX_LINES: usize = 10_000;

fn writer(lines: &Arc<Lines>) -> Console {
    let lines = Arc::clone(lines);
    Arc::new(move |level: &str, text: &str| {
        let mut lines = lock(&lines);
        if lines.len() < MAX_LINES {
            lines.push((level.to_owned(), text.to_owned()));
        }
    })
}

/// Which workflow is meant, of those that a run knows.
#[derive(Debug, Clone, Copy)]
enum Of<'a> {
    /// Its own.
    Run,
    /// That of an element.
    Node(&'a str),
    /// That with this number in the rendering.
    Function(Function),
}

/// A realm, and what it knows.
struct Live {
    realm: Arc<Realm>,
    /// How much of the journal of each run it was told.
    told: HashMap<String, usize>,
    /// The tables that the last rendering of each run looked into.
    read: HashMap<String, Vec<String>>,
    schemas: Vec<Value>,
    /// The last rendering of each run, with its number.
    trees: HashMap<String, (u64, Tree)>,
    /// How many renderings were kept.
    last_tree: u64,
}

impl Live {
    fn new(realm: Realm) -> Self {
        Self {
            realm: Arc::new(realm),
            told: HashMap::new(),
            read: HashMap::new(),
            schemas: Vec::new(),
            trees: HashMap::new(),
            last_tree: 0,
        }
    }
}

impl Scripted {
    pub(crate) fn new(
        realms: Processes,
        sources: Sources,
        environment: BTreeMap<String, String>,
    ) -> Self {
        let (runs, live) = (Mutex::default(), tokio::sync::Mutex::default());
        let (console, asked) = (Arc::default(), AtomicUsize::default());
        Self { realms, sources, environment, console, runs, live, asked }
    }

    /// The same whose realm was loaded already, from the files on disk.
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
        let live = Live::new(realm.await?);
        let author = Self::new(realms, disk.into_sources(), environment);
        Ok(Self { live: tokio::sync::Mutex::new(Some(live)), console, ..author })
    }

    /// What the author wrote to the console since this was last asked: levels and texts.
    pub(crate) fn take_lines(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *lock(&self.console))
    }

    /// The program.
    pub(crate) const fn sources(&self) -> &Sources {
        &self.sources
    }

    /// What stands around its realm, while there is one.
    pub(crate) async fn raised(&self) -> Option<Raised> {
        self.live.lock().await.as_ref().map(|live| live.realm.raised())
    }

    /// Begins with a run.
    pub(crate) async fn open(&self, journal: &SharedJournal) -> Result<About, Error> {
        let run = lock(journal).run.clone();
        lock(&self.runs).insert(run.clone(), Arc::clone(journal));
        let mut live = self.live.lock().await;
        let live = self.loaded(&mut live).await?;
        let opened = self.begin(live, &run).await?;
        let input = opened.input.and_then(|at| live.schemas.get(at)).cloned();
        Ok(About { input, output: opened.output })
    }

    /// Renders a run.
    pub(crate) async fn render(&self, run: &str) -> Result<View, Error> {
        let mut live = self.live.lock().await;
        let live = self.loaded(&mut live).await?;
        self.known(live, run).await?;
        let before = live.trees.remove(run);
        let before = before.filter(|(_, tree)| tree.told_bytes() <= MAX_TOLD_BYTES);
        live.last_tree += 1;
        let number = live.last_tree;
        let known = before.as_ref().map(|(number, _)| *number);
        let rendered = self.rendered_as(live, run, known, Some(number)).await?;
        let told =
            rendered.tree.ok_or_else(|| Error::Answer("there is no rendering".to_owned()))?;
        let tree = Tree::after(before.map(|(_, tree)| tree), told, &live.schemas);
        let tree = tree.map_err(|error| match error {
            graph::Error::Faults(faults) => Error::Faults(faults),
            graph::Error::Nonsense(_) => Error::Answer(error.to_string()),
        })?;
        let graph = tree.graph().cloned();
        let graph = graph.ok_or_else(|| Error::Answer("there is no rendering".to_owned()))?;
        live.trees.insert(run.to_owned(), (number, tree));
        Ok(View { graph, read: rendered.read.into_iter().collect() })
    }

    /// Does what a task of a run does. It is given up when the answer is not waited for.
    /// `beats` is told each time that the function tells that it is alive.
    pub(crate) async fn work(
        &self,
        run: &str,
        work: &Work,
        beats: &Notify,
    ) -> Result<Value, Error> {
        let (function, argument) = match work {
            Work::Compute { function, inputs } => {
                ("compute", json!({ "function": function, "inputs": inputs }))
            }
            Work::Agent { agent, prompt: Prompt::Text(text) } => {
                ("ask", json!({ "agent": agent, "prompt": text }))
            }
            Work::Agent { agent, prompt: Prompt::Made { function, inputs } } => {
                ("ask", json!({ "agent": agent, "function": function, "inputs": inputs }))
            }
            other => return Err(Error::Answer(format!("{} is no function", other.kind()))),
        };
        self.ask(run, function, argument, beats).await
    }

    /// Reads what an agent wrote, by a function of a run.
    pub(crate) async fn read(
        &self,
        run: &str,
        function: Function,
        text: &str,
    ) -> Result<Value, Error> {
        let argument = json!({ "function": function, "text": text });
        self.ask(run, "read", argument, &Notify::new()).await
    }

    /// Calls a function of the library for a run.
    async fn ask(
        &self,
        run: &str,
        function: &str,
        mut argument: Value,
        beats: &Notify,
    ) -> Result<Value, Error> {
        let (realm, id, answer, mut words) = {
            let mut live = self.live.lock().await;
            let live = self.ready(&mut live, run).await?;
            let id = live.realm.id();
            argument["run"] = run.into();
            argument["call"] = id.into();
            argument["changes"] = self.news(live, run);
            let (answer, words) = live.realm.call_heard::<Value>(id, function, argument);
            (Arc::clone(&live.realm), id, answer, words)
        };
        let _given_up = GivenUp { realm: &realm, id };
        let mut answer = std::pin::pin!(answer);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                // Whatever it says, it is alive.
                Some(_) = words.recv() => beats.notify_one(),
            }
        }
    }

    /// A program that exports the workflow of an element in the rendering of a run, such as a
    /// `<Sandbox>`: files by their names, which hold no other path. It has the modules that the
    /// workflow needs, as they were when the run began, and nothing of the environment.
    pub(crate) async fn child_program(
        &self,
        run: &str,
        node: &str,
    ) -> Result<BTreeMap<String, Vec<u8>>, Error> {
        let mut live = self.live.lock().await;
        let live = self.loaded(&mut live).await?;
        if self.known(live, run).await? || !live.read.contains_key(run) {
            self.rendered(live, run).await?;
        }
        let origin = self.origin(live, run, Of::Node(node)).await?;
        Ok(pack(&self.sources, &origin))
    }

    /// Where a workflow was made.
    async fn origin(&self, live: &Live, run: &str, of: Of<'_>) -> Result<WorkflowOrigin, Error> {
        let argument = match of {
            Of::Run => json!({ "run": run, "node": null, "workflow": null }),
            Of::Node(node) => json!({ "run": run, "node": node, "workflow": null }),
            Of::Function(number) => json!({ "run": run, "node": null, "workflow": number }),
        };
        let found: OriginAnswer = live.realm.call_within("say", SOON, "origin", argument).await?;
        if let Some(ModulePlace { module, number }) = found.place {
            return Ok(WorkflowOrigin::Made { module, number });
        }
        let journal = self.journal(run)?;
        if let Some(node) = found.node {
            let by = Box::new(Box::pin(self.origin(live, run, Of::Run)).await?);
            let tables = live.read.get(run).map_or(&[][..], Vec::as_slice);
            let is_read = |row: &&Value| tables.iter().any(|table| row["table"] == **table);
            let journal = lock(&journal);
            let rows: Vec<&Value> = journal.rows.iter().filter(is_read).collect();
            let state = json!({
                "runId": run, "input": journal.input, "iterations": journal.iterations,
                "rows": rows, "tables": tables,
            });
            return Ok(WorkflowOrigin::Rendered { by, node, state });
        }
        let within = lock(&journal).within.clone();
        match within {
            None => Ok(WorkflowOrigin::Entry),
            Some((parent, WorkflowRef::Rendered(number))) => {
                Box::pin(self.origin(live, &parent, Of::Function(number))).await
            }
            Some((_, WorkflowRef::Requested { .. })) => {
                let message = "a workflow that was made for a provider while another was \
                               rendered cannot be taken into a sandbox: make it in a module";
                Err(Error::Faults(vec![Fault { place: None, message: message.to_owned() }]))
            }
        }
    }

    /// Ends the realm while nothing is asked of it. It is made again when something is.
    pub(crate) async fn rest(&self) {
        // A provider that waits for a child that waits is in it.
        if self.asked.load(Ordering::Relaxed) > 0 {
            return;
        }
        if let Some(live) = self.live.lock().await.take() {
            live.realm.kill();
        }
    }

    /// Ends a realm that does not hear any more: a function in it goes on for ever.
    pub(crate) async fn look_after(&self) {
        let realm = match &*self.live.lock().await {
            Some(live) => Arc::clone(&live.realm),
            None => return,
        };
        let hears = realm.call_within::<Value>("hear", HEARING, "abort", json!({}));
        if hears.await.is_err() {
            realm.kill();
        }
    }

    /// The realm that there is, else a new one.
    async fn loaded<'a>(&self, live: &'a mut Option<Live>) -> Result<&'a mut Live, Error> {
        if live.as_ref().is_some_and(|live| live.realm.has_ended()) {
            *live = None;
        }
        match live {
            Some(live) => Ok(live),
            None => {
                let mut sources = self.sources.clone();
                let entry = sources.file(&sources.entry);
                let entry = entry.ok_or_else(|| Error::Start("the program is lost".to_owned()))?;
                let environment = self.environment.clone();
                let console = writer(&self.console);
                let realm =
                    Realm::load(&self.realms, entry, environment, &mut sources, console).await?;
                Ok(live.insert(Live::new(realm)))
            }
        }
    }

    /// A realm that has a rendering of a run: what is in it is called by its place there.
    async fn ready<'a>(
        &self,
        live: &'a mut Option<Live>,
        run: &str,
    ) -> Result<&'a mut Live, Error> {
        let live = self.loaded(live).await?;
        if self.known(live, run).await? {
            self.rendered(live, run).await?;
        }
        Ok(live)
    }

    /// Tells a realm of a run that it does not know; whether that was so.
    async fn known(&self, live: &mut Live, run: &str) -> Result<bool, Error> {
        let is_new = !live.told.contains_key(run);
        if is_new {
            self.begin(live, run).await?;
        }
        Ok(is_new)
    }

    async fn begin(&self, live: &mut Live, run: &str) -> Result<OpenAnswer, Error> {
        let journal = self.journal(run)?;
        let (input, within) = {
            let journal = lock(&journal);
            (journal.input.clone(), journal.within.clone())
        };
        let mut argument = json!({ "run": run, "input": input });
        if let Some((parent, definition)) = within {
            if Box::pin(self.known(live, &parent)).await? {
                self.rendered(live, &parent).await?;
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
        let opened: OpenAnswer = live.realm.call_within("open", SOON, "open", argument).await?;
        live.schemas.clone_from(&opened.schemas);
        live.told.insert(run.to_owned(), 0);
        Ok(opened)
    }

    async fn rendered(&self, live: &mut Live, run: &str) -> Result<RenderAnswer, Error> {
        self.rendered_as(live, run, None, None).await
    }

    /// A rendering. It is told where it has a `number`, by its differences from `before`.
    async fn rendered_as(
        &self,
        live: &mut Live,
        run: &str,
        before: Option<u64>,
        number: Option<u64>,
    ) -> Result<RenderAnswer, Error> {
        let changes = self.news(live, run);
        let schemas = live.schemas.len();
        let argument = json!({
            "run": run, "changes": changes, "schemas": schemas, "before": before, "number": number,
        });
        let rendered = live.realm.call_within("render", SOON, "render", argument).await;
        if matches!(rendered, Err(Error::Late { .. })) {
            live.realm.kill();
        }
        let mut rendered: RenderAnswer = rendered?;
        live.schemas.append(&mut rendered.schemas);
        live.read.insert(run.to_owned(), rendered.read.clone());
        Ok(rendered)
    }

    /// What a realm was not told yet of a run. It is told what this answers.
    fn news(&self, live: &mut Live, run: &str) -> Value {
        let Ok(journal) = self.journal(run) else { return json!({}) };
        let journal = lock(&journal);
        let told = live.told.entry(run.to_owned()).or_default();
        let rows = journal.rows.get(*told..).unwrap_or_default();
        *told = journal.rows.len();
        json!({ "rows": rows, "iterations": journal.iterations })
    }

    fn journal(&self, run: &str) -> Result<SharedJournal, Error> {
        let found = lock(&self.runs).get(run).cloned();
        found.ok_or_else(|| Error::Answer(format!("there is no run {run}")))
    }
}

/// Tells a realm, when it is dropped, that nobody waits for a call.
struct GivenUp<'a> {
    realm: &'a Realm,
    id: u64,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        self.realm.abort(self.id);
    }
}
