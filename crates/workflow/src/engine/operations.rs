//! What can be asked for, each operation once: whose run it is, then what is to be done.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use stockade_api::{
    Caller, Decide, Done, Follow, Followed, Inspection, ListRuns, Result, ResumeRun, Run, RunById,
    RunStatus, SendSignal, TaskInfo, TaskStatus, Up,
};
use stockade_core::{Code, OwnerId, Problem};
use stockade_durable::{StartOptions, Statement, Status};
use stockade_script::worker::Raised;

use super::author::{Author, lock};
use super::drive::now_ms;
use super::prepare::{executable, prepared};
use super::problem::{changed, of_store, taken};
use super::rows::{self, RunRow};
use super::sandbox::held::Held;
use super::sandbox::row::Stage;
use super::{Workflows, run, sandbox, tables};

/// The longest id of a run, in bytes.
const MAX_ID_BYTES: usize = 128;
/// How many events are told at once.
const EVENTS_AT_ONCE: u32 = 1_000;
/// The longest that somebody who follows a run is kept waiting.
const LONGEST_FOLLOWED: Duration = Duration::from_secs(30);

#[async_trait]
impl stockade_api::Workflows for Workflows {
    async fn up(&self, caller: &Caller, request: Up) -> Result<Run> {
        let id = match request.run_id {
            Some(id) => checked_id(id)?,
            None => uuid::Uuid::now_v7().simple().to_string(),
        };
        if let Some(known) = rows::run(self.inner.store(), &id).await.map_err(of_store)? {
            // Asked for again by whoever did not hear the answer.
            let is_same =
                known.idempotency_key.is_some() && known.idempotency_key == caller.idempotency_key;
            return if is_same {
                self.own(caller, &id).await.map(|row| row.run)
            } else {
                Err(taken(&id))
            };
        }
        let program = self.inner.options.program.clone();
        let environment = &request.environment;
        let (author, view) =
            prepared(program, &request.file, &id, &request.input, environment, &self.inner.schemas)
                .await?;
        executable(&view.graph, &self.inner.options)?;
        let file = request.file.canonicalize().unwrap_or_else(|_| request.file.clone());
        let (hash, program) = kept_program(&author)?;
        let now = now_ms();
        let name = view.graph.name.as_str();
        let mut started =
            json!({ "type": "RunStarted", "runId": id, "timestampMs": now, "name": name });
        if let Some(Raised { namespaces, landlock }) = author.raised().await {
            started["isolation"] = json!({ "namespaces": namespaces, "landlock": landlock });
        }
        let with = vec![
            program,
            Statement::new(
                "INSERT INTO runs (id, owner_id, generation, name, file, program, status, \
                 input, environment, max_concurrency, idempotency_key, created_at, updated_at) \
                 VALUES (?1, ?2, 1, ?3, ?4, ?5, 'running', ?6, ?7, ?8, ?9, ?10, ?10)",
                vec![
                    id.as_str().into(),
                    caller.owner.as_str().into(),
                    name.into(),
                    file.display().to_string().into(),
                    hash.into(),
                    request.input.to_string().into(),
                    json!(environment).to_string().into(),
                    request.max_concurrency.into(),
                    caller.idempotency_key.clone().into(),
                    now.into(),
                ],
            ),
            tables::add_event(&id, 0, now, &started),
        ];
        lock(&self.inner.prepared).insert(id.clone(), author);
        let started = self.start(&caller.owner, &id, 1, with).await;
        if started.is_err() {
            drop(self.inner.take_prepared(&id));
        }
        started?;
        Ok(self.own(caller, &id).await?.run)
    }

    async fn run(&self, caller: &Caller, request: RunById) -> Result<Run> {
        Ok(self.own(caller, &request.id).await?.run)
    }

    async fn runs(&self, caller: &Caller, request: ListRuns) -> Result<Vec<Run>> {
        let owner = caller.owner.as_str();
        rows::list(self.inner.store(), owner, request.limit).await.map_err(of_store)
    }

    async fn inspect(&self, caller: &Caller, request: RunById) -> Result<Inspection> {
        let run = self.own(caller, &request.id).await?.run;
        let tasks = self.tasks(&request.id).await?;
        let sandboxes = sandbox::row::told(self.inner.store(), &request.id, now_ms()).await;
        Ok(Inspection { run, tasks, sandboxes: sandboxes.map_err(of_store)? })
    }

    async fn follow(&self, caller: &Caller, request: Follow) -> Result<Followed> {
        let longest = Duration::from_millis(request.wait_ms.into()).min(LONGEST_FOLLOWED);
        let deadline = tokio::time::Instant::now() + longest;
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            // In this order: the run is not older than its events.
            let events =
                rows::events(self.inner.store(), &request.id, request.from, EVENTS_AT_ONCE).await;
            let events = events.map_err(of_store)?;
            let run = self.own(caller, &request.id).await?.run;
            let is_news = !events.is_empty() || run.status.is_terminal();
            if is_news || tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                let next = events.last().map_or(request.from, |(seq, _)| seq + 1);
                let events = events.into_iter().map(|(_, event)| event).collect();
                return Ok(Followed { run, events, next });
            }
        }
    }

    async fn resume_run(&self, caller: &Caller, request: ResumeRun) -> Result<Run> {
        let row = self.own(caller, &request.id).await?;
        let (run, id) = (row.run, request.id.as_str());
        if !matches!(run.status, RunStatus::Failed | RunStatus::Cancelled) {
            return Ok(run);
        }
        let program = self.inner.options.program.clone();
        let (file, schemas) = (PathBuf::from(&run.file), &self.inner.schemas);
        let (author, view) =
            prepared(program, &file, id, &run.input, &row.environment, schemas).await?;
        let (hash, program) = kept_program(&author)?;
        if hash != run.program && !request.accept_changes {
            return Err(changed(&run));
        }
        executable(&view.graph, &self.inner.options)?;
        let (now, next) = (now_ms(), row.generation + 1);
        let with = vec![
            program,
            Statement::new(
                "UPDATE runs SET status = 'running', generation = ?2, program = ?3, \
                 error = NULL, finished_at = NULL, updated_at = ?4 \
                 WHERE id = ?1 AND generation = ?2 - 1 AND finished_at IS NOT NULL",
                vec![id.into(), next.into(), hash.into(), now.into()],
            )
            .expecting(1)
            .touching(tables::TOPIC),
            tables::reset_tasks(id),
        ];
        self.start(&caller.owner, id, next, with).await?;
        Ok(self.own(caller, id).await?.run)
    }

    async fn cancel_run(&self, caller: &Caller, request: RunById) -> Result<Run> {
        let RunRow { run, generation, .. } = self.own(caller, &request.id).await?;
        if run.status.is_terminal() {
            return Ok(run);
        }
        let id = run.id.as_str();
        let workflow = run::workflow_id(id, generation).map_err(of_store)?;
        self.engine.cancel(&workflow).await.map_err(of_store)?;
        let ended = self.engine.info(&workflow).await.map_err(of_store)?;
        if ended.is_some_and(|info| info.status == Status::Cancelled) {
            self.end_cancelled(&caller.owner, id).await?;
        }
        Ok(self.own(caller, id).await?.run)
    }

    async fn decide(&self, caller: &Caller, request: Decide) -> Result<Done> {
        let id = self.own(caller, &request.id).await?.run.id;
        let id = self.waiting(&id, &request.task).await?;
        let now = now_ms();
        let decided_at = jiff::Timestamp::from_millisecond(now).map(|at| at.to_string()).ok();
        let decision = json!({
            "approved": request.approved, "note": request.note,
            "decidedBy": caller.owner.as_str(), "decidedAt": decided_at,
        });
        let decision = self.with_choice(&id, &request, decision).await?;
        self.answer(&id, "approval", &request.task, None, &decision).await
    }

    async fn signal(&self, caller: &Caller, request: SendSignal) -> Result<Done> {
        let run = self.own(caller, &request.id).await?.run;
        if run.status.is_terminal() {
            let message = format!("run {} has ended: it is {}", run.id, run.status.as_str());
            return Err(Problem::new(Code::InvalidState, message));
        }
        let SendSignal { name, correlation, payload, .. } = request;
        self.answer(&run.id, "signal", &name, correlation, &payload).await
    }
}

impl Workflows {
    /// A run of the caller's.
    async fn own(&self, caller: &Caller, id: &str) -> Result<RunRow> {
        let found = rows::own(self.inner.store(), caller.owner.as_str(), id).await;
        let found = found.map_err(of_store)?;
        found.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no run {id}")))
    }

    async fn tasks(&self, id: &str) -> Result<Vec<TaskInfo>> {
        rows::tasks(self.inner.store(), id).await.map_err(of_store)
    }

    /// The run that waits for a decision on a task: a run, or one of those below it.
    async fn waiting(&self, id: &str, task: &str) -> Result<String> {
        let found = waits_for_decision(id, task, &self.tasks(id).await?);
        if found.is_err() {
            let below = rows::waiting_below(self.inner.store(), id, task).await;
            if let [run] = below.map_err(of_store)?.as_slice() {
                return Ok(run.clone());
            }
        }
        found.map(|()| id.to_owned())
    }

    /// Ends what is kept of a run that was cancelled.
    async fn end_cancelled(&self, owner: &OwnerId, id: &str) -> Result<()> {
        let now = now_ms();
        let error = json!({ "code": "CANCELLED", "message": "the run was cancelled" });
        let [tasks, runs] = tables::cancel_below(id, now);
        let statements = vec![
            tasks,
            runs,
            tables::cancel_tasks(id, now),
            tables::end_run(id, RunStatus::Cancelled, now, None, Some(&error)),
        ];
        self.inner.store.execute(statements).await.map_err(of_store)?;
        if let Some(place) = &self.inner.place {
            place.end(owner, id).await;
        }
        self.end_sandboxes(owner, id).await
    }

    /// Ends what was cancelled by a process that was killed before it could say so.
    pub(super) async fn repair(&self) -> Result<()> {
        for (id, owner, generation) in rows::open(self.inner.store()).await.map_err(of_store)? {
            let workflow = run::workflow_id(&id, generation).map_err(of_store)?;
            let known = self.engine.info(&workflow).await.map_err(of_store)?;
            let owner = OwnerId::new(owner);
            if let (Some(info), Ok(owner)) = (known, owner)
                && info.status == Status::Cancelled
            {
                self.end_cancelled(&owner, &id).await?;
            }
        }
        Ok(())
    }

    /// Ends the sandboxes of a run that was cancelled, and of those below it.
    async fn end_sandboxes(&self, owner: &OwnerId, run: &str) -> Result<()> {
        let Some(sandboxes) = &self.inner.options.sandboxes else { return Ok(()) };
        let open = sandbox::row::open(self.inner.store(), run).await.map_err(of_store)?;
        for (run, key, name) in open {
            let held = Held::of(Arc::clone(sandboxes), owner.as_str(), &name);
            if let Ok(held) = held {
                held.end().await;
            }
            let end = sandbox::row::end(&run, &key, Stage::Cancelled, now_ms());
            self.inner.store.execute(vec![end]).await.map_err(of_store)?;
        }
        Ok(())
    }

    /// A decision with what it chooses, which only changes of a sandbox leave a choice for.
    async fn with_choice(&self, id: &str, request: &Decide, mut decision: Value) -> Result<Value> {
        if request.only.is_empty() && !request.allow_executed {
            return Ok(decision);
        }
        let tasks = self.tasks(id).await?;
        let task = tasks.iter().rev().find(|task| task.id == request.task);
        if task.is_none_or(|task| task.kind != "sandbox") {
            let message = format!("\"{}\" has no changes to choose from", request.task);
            return Err(Problem::new(Code::InvalidInput, message)
                .because("only the changes of a <Sandbox> can be accepted in part"));
        }
        decision["only"] = serde_json::to_value(&request.only)
            .map_err(|error| Problem::new(Code::Io, error.to_string()))?;
        decision["allowExecuted"] = request.allow_executed.into();
        Ok(decision)
    }

    async fn start(
        &self,
        owner: &OwnerId,
        id: &str,
        generation: i64,
        with: Vec<Statement>,
    ) -> Result<()> {
        let options = StartOptions {
            id: Some(run::workflow_id(id, generation).map_err(of_store)?),
            owner: Some(owner.as_str().to_owned()),
            with,
            ..StartOptions::default()
        };
        let input = run::Input { run: id.to_owned() };
        self.engine.start(run::NAME, &input, options).await.map_err(of_store)?;
        Ok(())
    }

    async fn answer(
        &self,
        id: &str,
        kind: &str,
        name: &str,
        correlation: Option<String>,
        payload: &Value,
    ) -> Result<Done> {
        let sql = "INSERT INTO run_answers (run_id, kind, name, correlation, payload, at) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let parameters = vec![
            id.into(),
            kind.into(),
            name.into(),
            correlation.into(),
            payload.to_string().into(),
            now_ms().into(),
        ];
        let statement = Statement::new(sql, parameters).touching(tables::ANSWERS);
        self.inner.store.execute(vec![statement]).await.map_err(of_store)?;
        Ok(Done {})
    }
}

/// The hash of an author's program, and what keeps it.
fn kept_program(author: &Author) -> Result<(String, Statement)> {
    let sources = author.sources();
    let hash = sources.hash();
    let text = serde_json::to_string(sources)
        .map_err(|error| Problem::new(Code::Io, error.to_string()))?;
    let sql = "INSERT INTO run_programs VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    let statement = Statement::new(sql, vec![hash.as_str().into(), text.into()]);
    Ok((hash, statement))
}

fn waits_for_decision(run: &str, task: &str, tasks: &[TaskInfo]) -> Result<()> {
    let waits = |task: &&TaskInfo| task.status == TaskStatus::WaitingApproval;
    let Some(found) = tasks.iter().rev().find(|known| known.id == task) else {
        let waiting: Vec<_> = tasks.iter().filter(waits).map(|task| task.id.as_str()).collect();
        let problem =
            Problem::new(Code::NotFound, format!("run {run} has come to no approval \"{task}\""));
        return Err(match waiting.as_slice() {
            [] => problem.because("nothing of it waits for a decision"),
            some => problem.because(format!("these wait for a decision: {}", some.join(", "))),
        });
    };
    if waits(&found) {
        return Ok(());
    }
    let message = format!("\"{task}\" of run {run} does not wait for a decision");
    let problem = Problem::new(Code::InvalidState, message);
    Err(problem.because(format!("it is {}", found.status.as_str())))
}

fn checked_id(id: String) -> Result<String> {
    let is_good = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    if !id.is_empty() && id.len() <= MAX_ID_BYTES && id.chars().all(is_good) {
        return Ok(id);
    }
    let message = format!("{id:?} cannot be the id of a run");
    let why = format!("it has 1 to {MAX_ID_BYTES} letters, digits, `-`, `_` and `.`");
    Err(Problem::new(Code::InvalidInput, message).because(why))
}
