//! Does one run: renders, plans, begins what can begin, keeps what was done, and so on until
//! nothing is left. What is kept decides after a crash what is done again: nothing that is finished.

mod asked;
mod begin;
mod cached;
mod child_workflow;
mod paused;
mod provider_children;
mod waits;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use stockade_api::{RunStatus, TaskStatus};
use stockade_durable::{Context, Failure, Statement};
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::asked::News;
use self::cached::Lookup;
use self::child_workflow::Children;
use self::paused::Paused;
use super::clock::now_ms;
use super::sandbox::{self, EnclosingSandbox, Record, TryOutcome};
use super::state::EngineState;
use super::trouble::Trouble;
use super::user_code::{Interface, Rendering, UserCode};
use crate::graph::{Graph, Task};
use crate::journal::SharedJournal;
use crate::schedule::{Index, Key, LoopState, LoopStep, Phase, Progress, plan};
use crate::store::run_state::{self, RunState};
use crate::store::runs::{self, RunOrigin};
use crate::store::tasks::{self, TaskRow};
use crate::store::{ANSWERS_TOPIC, events, loops};
use crate::sync::lock;

/// How many statements are gathered before they are committed.
const MAX_GATHERED: usize = 512;
/// A wait that is not worth making the realm again after it.
const SHORT_WAIT: Duration = Duration::from_secs(5);
/// The longest that is waited before the rows are looked at again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    /// With this.
    Finished(Value),
    /// With this failure.
    Failed(Value),
}

/// What came of one try of a task.
type Outcome = (Key, Result<TryOutcome, Trouble>);
/// A try that is under way.
type Attempt = BoxFuture<'static, Outcome>;

/// What a run waits for.
enum Heard {
    /// A try has ended.
    Outcome(Outcome),
    /// One that is under way has something to be kept.
    Record(Record),
    /// There may be something to look at.
    Stir,
}

/// One run that is being done.
pub(crate) struct Drive {
    state: Arc<EngineState>,
    context: Context,
    user_code: Arc<UserCode>,
    journal: SharedJournal,
    run: String,
    about: Interface,
    origin: RunOrigin,
    max_concurrency: Option<u32>,
    tasks: HashMap<Key, TaskRow>,
    phases: HashMap<Key, Phase>,
    /// The tasks that have begun and not ended.
    open: HashSet<Key>,
    loops: HashMap<String, LoopState>,
    /// How the run is kept.
    status: RunStatus,
    next_event: i64,
    /// What changed and is not on disk.
    gathered: Vec<Statement>,
    /// Whether something changed that the rendering depends on.
    is_stale: bool,
    /// Whether a wait began for which an answer may be there already.
    has_new_waits: bool,
    /// Whether it has its workflow's name.
    is_named: bool,
    /// The answers that were taken, until that is on disk.
    taken: HashSet<i64>,
    /// The last rendering.
    graph: Arc<Graph>,
    index: Index,
    progress: Progress,
    /// The tables that the rendering depends on.
    read: BTreeSet<String>,
    /// The runs that it has under way below itself.
    children: Arc<Children>,
    /// Those that it is one of.
    siblings: Option<Arc<Children>>,
    /// Tasks that are to be begun once it is on disk that they are.
    to_begin: Vec<(Key, Arc<Task>)>,
    /// How its sandboxes tell what is to be kept, and who hears when it is.
    recorder: (mpsc::Sender<Record>, mpsc::Receiver<Record>),
    to_tell: Vec<oneshot::Sender<()>>,
    /// Its places for sandboxes.
    slots: Arc<Semaphore>,
    /// Tasks that are to be begun once it is known whether their answers are there.
    to_look_up: Vec<(Key, Arc<Task>)>,
    /// Whether those of tasks that begin, or have begun, are.
    lookups: HashMap<Key, Lookup>,
    /// What tries of tasks told and is not kept yet.
    news: News,
    /// Its children in sandboxes that wait.
    paused: Paused,
    /// The sandbox that it is in, where a provider does it.
    enclosing: Option<EnclosingSandbox>,
}

impl Drive {
    /// A run as it was left, or as it begins.
    pub(crate) async fn new(
        state: Arc<EngineState>,
        context: Context,
        user_code: Arc<UserCode>,
        journal: SharedJournal,
        about: Interface,
        max_concurrency: Option<u32>,
    ) -> Result<Self, Failure> {
        let run = lock(&journal).run.clone();
        let RunState { tasks, loops, next_event, status, origin } =
            run_state::load(state.store(), &run).await?;
        let environment = serde_json::from_str(&origin.environment).unwrap_or_default();
        let slots = Arc::new(Semaphore::new(sandbox::slots(&environment)));
        let mut drive = Self {
            state,
            context,
            user_code,
            journal,
            run,
            about,
            origin,
            max_concurrency,
            phases: HashMap::new(),
            open: HashSet::new(),
            tasks,
            loops,
            status,
            next_event,
            gathered: Vec::new(),
            is_stale: true,
            has_new_waits: false,
            is_named: false,
            taken: HashSet::new(),
            graph: Arc::default(),
            index: Index::default(),
            progress: Progress::default(),
            read: BTreeSet::new(),
            children: Arc::default(),
            siblings: None,
            to_begin: Vec::new(),
            recorder: Record::channel(),
            to_tell: Vec::new(),
            slots,
            to_look_up: Vec::new(),
            lookups: HashMap::new(),
            news: News::default(),
            paused: Paused::default(),
            enclosing: None,
        };
        drive.recall();
        drive.recall_paused().await?;
        Ok(drive)
    }

    /// Takes up what an earlier process left: what it had under way begins again.
    fn recall(&mut self) {
        if self.state.options.sandboxes.is_none() {
            // What the host was asked for may be there.
            for row in self.tasks.values_mut().filter(|row| row.waits_for_host()) {
                row.status = TaskStatus::Running;
            }
        }
        let mut known: Vec<(&Key, &TaskRow)> = self.tasks.iter().collect();
        known.sort_by_key(|(_, row)| (row.finished_at, row.place));
        let mut journal = lock(&self.journal);
        for (key, row) in known {
            if row.finished_at.is_none() {
                self.open.insert(key.clone());
            }
            if row.status != TaskStatus::Running {
                self.phases.insert(key.clone(), phase_of(row.status));
            }
            if row.status == TaskStatus::Finished {
                journal.rows.extend(told(key, row));
            }
        }
        for (name, turn) in &self.loops {
            journal.iterations.insert(plain_name(name), turn.iteration);
        }
    }

    /// Does it to its end; an error when it must stop before.
    pub(crate) fn go(self) -> BoxFuture<'static, Result<(End, Vec<Statement>), Failure>> {
        Box::pin(self.turns())
    }

    async fn turns(mut self) -> Result<(End, Vec<Statement>), Failure> {
        let mut under_way: FuturesUnordered<Attempt> = FuturesUnordered::new();
        let mut changes = self.context.engine().subscribe(ANSWERS_TOPIC);
        loop {
            changes.mark_unchanged();
            if std::mem::take(&mut self.is_stale) {
                match self.user_code.render(&self.run).await {
                    Ok(Rendering { graph, read }) => {
                        self.read = read;
                        self.take_name(&graph.name);
                        self.take_graph(graph);
                    }
                    Err(error) => {
                        let end = End::Failed(Trouble::from(error).to_json());
                        return Ok(self.ended(end).await);
                    }
                }
            }
            self.take_answers().await?;
            self.take_times();
            self.keep_paused().await;
            if self.is_stale {
                continue;
            }
            let round = self.round(under_way.is_empty());
            if let Round::CommandOutput(end) = round {
                return Ok(self.ended(end).await);
            }
            if self.look_up().await? {
                continue;
            }
            let is_more = matches!(round, Round::Again) || self.is_stale || self.has_new_waits;
            if is_more && self.to_begin.is_empty() && self.gathered.len() < MAX_GATHERED {
                continue;
            }
            let is_idle = under_way.len() == self.children.waiting();
            if is_idle && self.to_begin.is_empty() && !is_more {
                self.say_whether_it_waits();
            } else {
                self.say_status(RunStatus::Running);
            }
            self.commit().await?;
            if self.status == RunStatus::Waiting && self.siblings.is_none() {
                let is_long = self.next_time() > SHORT_WAIT;
                if is_long {
                    self.user_code.rest().await;
                }
            }
            for (key, task) in std::mem::take(&mut self.to_begin) {
                under_way.push(self.attempt(key, task));
            }
            if is_more {
                continue;
            }
            let next_time = self.next_time();
            let (recorder, children) = (&mut self.recorder.1, &self.children);
            let wait = async {
                tokio::select! {
                    Some(outcome) = under_way.next(), if !under_way.is_empty() => {
                        Heard::Outcome(outcome)
                    }
                    Some(note) = recorder.recv() => Heard::Record(note),
                    _ = changes.changed() => Heard::Stir,
                    () = children.changed.notified() => Heard::Stir,
                    () = tokio::time::sleep(next_time) => Heard::Stir,
                }
            };
            let mut outcome = match self.context.wait(wait).await? {
                Heard::Outcome(outcome) => Some(outcome),
                Heard::Record(note) => {
                    self.take_note(note);
                    None
                }
                Heard::Stir => None,
            };
            while let Some((key, result)) = outcome {
                self.take_outcome(key, result);
                // What else has ended meanwhile is kept with it.
                outcome = under_way.next().now_or_never().flatten();
            }
        }
    }

    /// Names a run below another one, which was begun before its workflow was rendered.
    fn take_name(&mut self, name: &str) {
        if self.siblings.is_some() && !self.is_named {
            self.is_named = true;
            self.gathered.push(runs::set_name(&self.run, name));
        }
    }

    /// Goes on with another rendering. The progress stays where its nodes have the same order.
    fn take_graph(&mut self, graph: Arc<Graph>) {
        if Arc::ptr_eq(&graph, &self.graph) {
            return;
        }
        if !self.index.follow(&self.graph, &graph) {
            (self.index, self.progress) = (Index::new(&graph), Progress::default());
        }
        self.graph = graph;
    }

    /// Keeps what the workflow wrote to its console.
    fn tell_lines(&mut self) {
        for (level, text) in self.user_code.take_lines() {
            self.event(json!({ "type": "Log", "level": level, "message": text }));
        }
    }

    /// Puts on disk what changed.
    async fn commit(&mut self) -> Result<(), Failure> {
        self.tell_lines();
        if self.gathered.is_empty() && self.to_tell.is_empty() {
            return Ok(());
        }
        self.context.write(std::mem::take(&mut self.gathered)).await?;
        self.taken.clear();
        for kept in self.to_tell.drain(..) {
            // Whoever asked may be gone.
            let _ = kept.send(());
        }
        Ok(())
    }

    /// Keeps what a try tells while it is under way.
    fn take_note(&mut self, note: Record) {
        for event in note.events {
            self.event(event);
        }
        self.gathered.extend(note.statements);
        self.to_tell.push(note.committed);
    }

    /// Begins what can begin now; what is known at once is done at once.
    fn round(&mut self, is_idle: bool) -> Round {
        let graph = Arc::clone(&self.graph);
        let (limit, progress) = (self.max_concurrency, &mut self.progress);
        let plan = plan(&graph, &self.index, progress, &self.phases, &self.loops, limit);
        if !plan.failed.is_empty() {
            // What is under way may end; nothing else begins.
            if !is_idle {
                return Round::Wait;
            }
            let first =
                plan.failed.iter().min_by_key(|key| self.tasks.get(*key).map(|row| row.place));
            let error = first.and_then(|key| Some((key, self.tasks.get(key)?.error.clone()?)));
            let error = error.map_or(Value::Null, |(key, mut error)| {
                error["task"] = key.node.as_str().into();
                error
            });
            return Round::CommandOutput(End::Failed(error));
        }
        if plan.is_through {
            return Round::CommandOutput(End::Finished(self.result()));
        }
        for (name, next) in &plan.loops {
            if let Some(trouble) = self.turn(name, *next) {
                return Round::CommandOutput(End::Failed(trouble.to_json()));
            }
        }
        let mut moved = !plan.loops.is_empty();
        for (key, task) in &plan.ready {
            moved |= self.looks_up(key, task) || self.begin(key, task);
        }
        let is_stuck = plan.ready.is_empty() && plan.loops.is_empty() && is_idle;
        if is_stuck && !self.is_in(&[Phase::Running, Phase::Waiting]) {
            let trouble = stuck(&graph, &plan.blocked);
            return Round::CommandOutput(End::Failed(trouble.to_json()));
        }
        if moved && !self.is_stale { Round::Again } else { Round::Wait }
    }

    /// A loop goes on, or ends; the failure of one that must not end so.
    fn turn(&mut self, name: &str, next: LoopStep) -> Option<Trouble> {
        let turn = self.loops.entry(name.to_owned()).or_default();
        match next {
            LoopStep::Again => turn.iteration += 1,
            LoopStep::End | LoopStep::Maximum { fails: false } => turn.has_ended = true,
            LoopStep::Maximum { fails: true } => {
                let message = format!(
                    "loop \"{name}\" was done {} times, and its condition does not hold",
                    turn.iteration + 1
                );
                return Some(Trouble::new("LOOP_MAX_ITERATIONS", message));
            }
        }
        let turn = *turn;
        self.gathered.push(loops::upsert(&self.run, name, turn));
        lock(&self.journal).iterations.insert(plain_name(name), turn.iteration);
        self.is_stale = true;
        None
    }

    /// Whether the run is kept as one that waits: when nothing can be done but by others.
    fn say_whether_it_waits(&mut self) {
        let waits =
            !self.is_retrying() && (self.children.waiting() > 0 || self.is_in(&[Phase::Waiting]));
        let status = if waits { RunStatus::Waiting } else { RunStatus::Running };
        self.say_status(status);
    }

    fn say_status(&mut self, status: RunStatus) {
        if self.status != status {
            self.status = status;
            self.gathered.push(runs::set_status(&self.run, status, now_ms()));
            if let Some(siblings) = &self.siblings {
                siblings.count(status == RunStatus::Waiting);
            }
            let kind = if status == RunStatus::Waiting { "RunWaiting" } else { "RunRunning" };
            self.event(json!({ "type": kind }));
        }
    }

    fn is_retrying(&self) -> bool {
        self.open_rows().any(|(_, row)| row.status == TaskStatus::Retrying)
    }

    /// The tasks that have begun and not ended.
    fn open_rows(&self) -> impl Iterator<Item = (&Key, &TaskRow)> {
        self.open.iter().filter_map(|key| Some((key, self.tasks.get(key)?)))
    }

    /// Whether a task that has not ended is in one of these phases.
    fn is_in(&self, phases: &[Phase]) -> bool {
        self.open.iter().filter_map(|key| self.phases.get(key)).any(|phase| phases.contains(phase))
    }

    /// What the run gives: the rows of its table, one of them for itself.
    fn result(&self) -> Value {
        let rows = &lock(&self.journal).rows;
        let table_of = |row: &Value| row["table"].as_str().map(str::to_owned);
        let has = |table: &str| rows.iter().any(|row| row["table"] == table);
        let named = self.about.output.clone();
        let usual = || Some("output".to_owned()).filter(|table| has(table));
        let table = named.or_else(usual).or_else(|| rows.last().and_then(table_of));
        let mut values: Vec<Value> = rows
            .iter()
            .filter(|row| table_of(row) == table)
            .map(|row| row["value"].clone())
            .collect();
        match values.len() {
            0 => Value::Null,
            1 => values.remove(0),
            _ => Value::Array(values),
        }
    }

    fn event(&mut self, mut event: Value) {
        let at = now_ms();
        event["runId"] = self.run.as_str().into();
        event["timestampMs"] = at.into();
        self.gathered.push(events::insert(&self.run, self.next_event, at, &event));
        self.next_event += 1;
    }

    /// The end, and what is to be kept with it.
    async fn ended(mut self, end: End) -> (End, Vec<Statement>) {
        self.end_paused().await;
        self.tell_lines();
        // Whoever has it hears of its end by other ways.
        self.say_status(RunStatus::Running);
        let at = now_ms();
        let statement = match &end {
            End::Finished(output) => {
                self.event(json!({ "type": "RunFinished" }));
                runs::end(&self.run, RunStatus::Finished, at, Some(output), None)
            }
            End::Failed(error) => {
                self.event(json!({ "type": "RunFailed", "error": error }));
                self.gathered.push(tasks::cancel(&self.run, at));
                runs::end(&self.run, RunStatus::Failed, at, None, Some(error))
            }
        };
        self.gathered.push(statement);
        (end, self.gathered)
    }
}

/// What came of looking for something to begin.
enum Round {
    /// Something was done at once: there may be more.
    Again,
    /// There is nothing more to begin now.
    Wait,
    /// The run has ended.
    CommandOutput(End),
}

/// What the author is told of a task that is done.
fn told(key: &Key, row: &TaskRow) -> Option<Value> {
    let (table, value) = (row.table.as_ref()?, row.output.as_ref()?);
    Some(json!({ "table": table, "node": key.node, "iteration": key.iteration, "value": value }))
}

/// The name of a loop without the iterations of those around.
fn plain_name(name: &str) -> String {
    name.split("@@").next().unwrap_or(name).to_owned()
}

/// Why nothing can be done though not all is done.
fn stuck(graph: &Graph, blocked: &[(&Task, Vec<&str>)]) -> Trouble {
    let known: Vec<&str> = graph.tasks().iter().map(|task| task.id.as_str()).collect();
    let mut told = Vec::new();
    let mut frames = Vec::new();
    for (task, missing) in blocked {
        let missing = missing.iter().map(|id| {
            let others = known.iter().copied().filter(|known| *known != task.id);
            match crate::graph::nearest(id, others) {
                Some(meant) => format!("\"{id}\", which is no task — did you mean \"{meant}\"?"),
                None => format!("\"{id}\", which is no task"),
            }
        });
        let missing = missing.collect::<Vec<_>>().join(" and ");
        told.push(format!("task \"{}\" waits for {missing}", task.id));
        frames.extend(task.place.as_ref().map(|place| format!("at {place}")));
    }
    if told.is_empty() {
        told.push("nothing is left that could be done, and not all is done".to_owned());
    }
    Trouble { frames, ..Trouble::new("WORKFLOW_INVALID", told.join("; ")) }
}

/// What the schedule knows of a task.
const fn phase_of(status: TaskStatus) -> Phase {
    match status {
        TaskStatus::Running | TaskStatus::Retrying => Phase::Running,
        TaskStatus::WaitingApproval | TaskStatus::WaitingEvent | TaskStatus::WaitingTimer => {
            Phase::Waiting
        }
        TaskStatus::Finished | TaskStatus::Skipped => Phase::Done,
        TaskStatus::Failed | TaskStatus::Cancelled => Phase::Failed,
    }
}
