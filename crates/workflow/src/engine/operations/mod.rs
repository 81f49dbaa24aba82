//! The operations on runs. Each operation first checks that the run belongs to the caller.

mod cancellation;
mod decisions;
mod fork;
mod signals;
mod times;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use stockade_api::variables::SERVER;
use stockade_api::{
    Ack, Caller, Decide, FindRun, Follow, Fork, Inspection, LATEST, ListRuns, ListSandboxes,
    Measure, Measurements, Result, ResumeRun, Run, RunById, RunStatus, RunUpdate, SecretValue,
    SendSignal, SetSecrets, TaskInfo, Up,
};
use stockade_core::{Code, Problem};
use stockade_durable::{Statement, WorkflowId};

use self::signals::find_receiver;
use super::clock::now_ms;
use super::commands::RUN_LABEL;
use super::open_waits::{self, OpenWait};
use super::prepare::{check_executable, load};
use super::problem::{from_store, run_stopped, workflow_changed};
use super::start::{RunId, RunRequest, stored_program};
use super::workflows::Workflows;
use super::{metrics, run, run_secrets, run_servers};
use crate::schedule::Key;
use crate::store::answers::Question;
use crate::store::runs::{self, RunRow};
use crate::store::{answers, events, run_state, sandboxes, tasks};

/// The maximum number of runs that an error about an ambiguous prefix lists.
const MAX_LISTED: u32 = 8;
/// The maximum number of events in one answer.
const MAX_EVENTS: u32 = 1_000;
/// How long a cancellation waits until the run is not executed any more.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// The longest time that an answer waits for events.
const LONGEST_FOLLOW: Duration = Duration::from_secs(30);

#[async_trait]
impl stockade_api::Workflows for Workflows {
    async fn up(&self, caller: &Caller, request: Up) -> Result<Run> {
        if caller.remote {
            let message = "a request over the network must not name a workflow file";
            return Err(Problem::new(Code::Forbidden, message)
                .because("the file would be one of the server's machine")
                .remedied_by("on the server's machine: stockade up FILE"));
        }
        run_secrets::bound(&request.environment).map_err(|error| {
            let message = format!("the secret {error}");
            Problem::new(Code::InvalidInput, message).remedied_by("--secret NAME@HOST")
        })?;
        run_servers::check_environment(&request.environment)?;
        let (reserved, server) = (self.reserve_id(caller, request.run_id).await?, request.server);
        let id = match &reserved {
            RunId::Existing(run) => run.id.clone(),
            RunId::New(id) => id.clone(),
        };
        let mut environment = request.environment;
        if let Some(access) = server {
            environment.insert(SERVER.to_owned(), access.url.clone());
            self.state.servers.add(&id, access).await?;
        }
        if let RunId::Existing(run) = reserved {
            self.state.secrets.add(&run.id, request.secrets);
            return Ok(*run);
        }
        let realms = self.state.options.realms.clone();
        let (user_code, rendering) =
            load(realms, &request.file, &id, &request.input, &environment, &self.state.schemas)
                .await?;
        let file = request.file.canonicalize().unwrap_or_else(|_| request.file.clone());
        let Up { input, max_concurrency, secrets, .. } = request;
        // Its first task may need them at once.
        self.state.secrets.add(&id, secrets);
        let new = RunRequest { id, file, input, environment, max_concurrency, fork: None };
        self.submit(caller, new, user_code, &rendering).await
    }

    async fn fork(&self, caller: &Caller, request: Fork) -> Result<Run> {
        Box::pin(self.fork_run(caller, request)).await
    }

    async fn run(&self, caller: &Caller, request: RunById) -> Result<Run> {
        Ok(self.find_own(caller, &request.id).await?.run)
    }

    async fn find(&self, caller: &Caller, request: FindRun) -> Result<Run> {
        let (store, owner) = (self.state.store(), caller.owner.as_str());
        let name = request.name.as_str();
        let missing =
            |message: String| Problem::new(Code::NotFound, message).remedied_by("stockade runs");
        if name == LATEST {
            let latest = runs::latest(store, owner).await.map_err(from_store)?;
            return latest.ok_or_else(|| missing("there are no runs".to_owned()));
        }
        if let Some(exact) = runs::find_owned(store, owner, name).await.map_err(from_store)? {
            return Ok(exact.run);
        }
        let mut found =
            runs::list_with_prefix(store, owner, name, MAX_LISTED).await.map_err(from_store)?;
        match found.len() {
            0 => Err(missing(format!("there is no run {name}"))),
            1 => Ok(found.remove(0)),
            _ => {
                let ids: Vec<_> = found.iter().map(|run| run.id.as_str()).collect();
                let message = format!("{name} is the prefix of several ids: {}", ids.join(", "));
                Err(Problem::new(Code::InvalidInput, message).remedied_by("stockade runs"))
            }
        }
    }

    async fn runs(&self, caller: &Caller, request: ListRuns) -> Result<Vec<Run>> {
        let owner = caller.owner.as_str();
        runs::list(self.state.store(), owner, request.limit).await.map_err(from_store)
    }

    async fn inspect(&self, caller: &Caller, request: RunById) -> Result<Inspection> {
        let row = self.find_own(caller, &request.id).await?;
        let tasks = self.tasks(&request.id).await?;
        let sandboxes = sandboxes::list_info(self.state.store(), &request.id, now_ms()).await;
        let mut waits = self.waits(&row.run, tasks.clone()).await?;
        waits.retain(|open| open.is_now);
        let waits = waits.into_iter().map(|open| open.wait).collect();
        let sandboxes = sandboxes.map_err(from_store)?;
        let problem = self.stop_of(&row)?;
        let forked_from = self.origin_of_fork(&row.run.id).await?;
        Ok(Inspection { run: row.run, tasks, sandboxes, waits, problem, forked_from })
    }

    async fn follow(&self, caller: &Caller, request: Follow) -> Result<RunUpdate> {
        let longest = Duration::from_millis(request.wait_ms.into()).min(LONGEST_FOLLOW);
        let deadline = tokio::time::Instant::now() + longest;
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            let read_run = self.find_own(caller, &request.id);
            let read_events = async {
                let (store, from) = (self.state.store(), request.from);
                events::list(store, &request.id, from, MAX_EVENTS).await.map_err(from_store)
            };
            let (row, events) = state_before_events(read_run, read_events).await?;
            let status = row.run.status;
            let is_other = request.known_status.is_some_and(|known| known != status);
            let is_news = !events.is_empty() || is_other || status.is_terminal();
            let mut stops = self.engine.subscribe_to(&workflow_of(&row)?);
            // A caller that waits must know that it may wait in vain. Others get what there is.
            if !is_news
                && request.wait_ms > 0
                && let Some(problem) = self.stop_of(&row)?
            {
                return Err(problem);
            }
            let changed = async {
                tokio::select! {
                    _ = changes.changed() => {}
                    _ = stops.changed() => {}
                }
            };
            if is_news || tokio::time::timeout_at(deadline, changed).await.is_err() {
                let run = row.run;
                let next = events.last().map_or(request.from, |(seq, _)| seq + 1);
                let events = events.into_iter().map(|(_, event)| times::to_text(event)).collect();
                return Ok(RunUpdate { run, events, next });
            }
        }
    }

    async fn resume_run(&self, caller: &Caller, request: ResumeRun) -> Result<Run> {
        let row = self.find_own(caller, &request.id).await?;
        let (run, id) = (row.run.clone(), request.id.as_str());
        run_secrets::check_named(id, &row.environment, request.secrets.keys())?;
        self.state.servers.renew(id, &row.environment, request.server).await?;
        self.give_secrets(caller, id, &request.secrets).await;
        self.state.secrets.add(id, request.secrets);
        if !matches!(run.status, RunStatus::Failed | RunStatus::Cancelled) {
            return Ok(run);
        }
        // A decision holds until another attempt is requested.
        let is_denied = run.error.as_ref().is_some_and(|error| error["denied"] == true);
        if is_denied && !request.retry {
            return Ok(run);
        }
        let (user_code, rendering) = self.reload(&row).await?;
        let (hash, program) = stored_program(&user_code)?;
        if hash != run.program && !request.accept_changes {
            return Err(workflow_changed(&run));
        }
        check_executable(&rendering.graph, &self.state.options, Path::new(&run.file))?;
        let (now, next) = (now_ms(), row.generation + 1);
        let mut with = vec![program, runs::resume(id, next, &hash, now)];
        with.extend(run_state::reset_unfinished(id));
        self.start(&caller.owner, id, next, with).await?;
        Ok(self.find_own(caller, id).await?.run)
    }

    async fn cancel_run(&self, caller: &Caller, request: RunById) -> Result<Run> {
        let RunRow { run, generation, .. } = self.find_own(caller, &request.id).await?;
        if run.status.is_terminal() {
            return Ok(run);
        }
        let id = run.id.as_str();
        let workflow = run::workflow_id(id, generation).map_err(from_store)?;
        let _cancelling = self.claim_cleanups(id).await?;
        self.engine.cancel(&workflow).await.map_err(from_store)?;
        // What it still starts would not be found below.
        let stopped = self.engine.wait_until_stopped(&workflow);
        let _ = tokio::time::timeout(STOP_PATIENCE, stopped).await;
        let info = self.engine.info(&workflow).await.map_err(from_store)?;
        let has_ended = info.is_some_and(|info| info.status.is_terminal());
        let run = self.find_own(caller, id).await?.run;
        // A run that ended in another way has stored its end itself, unless no process executes it.
        if !has_ended || run.status.is_terminal() {
            return Ok(run);
        }
        self.end_cancelled(&caller.owner, id).await?;
        Ok(self.find_own(caller, id).await?.run)
    }

    async fn decide(&self, caller: &Caller, request: Decide) -> Result<Ack> {
        let run = self.find_own(caller, &request.id).await?.run;
        let OpenWait { run, name, question, wait, .. } =
            self.wait_for_decision(&run, &request.task).await?;
        let name = name.unwrap_or_else(|| request.task.clone());
        if request.approved && matches!(question, Some(Question::Task(_))) {
            let key = Key { node: name.clone(), iteration: wait.iteration() };
            self.check_choice(caller, (&run, &key), &request).await?;
        }
        let decided_at = jiff::Timestamp::from_millisecond(now_ms()).map(|at| at.to_string()).ok();
        let decision = json!({
            "approved": request.approved, "note": request.note,
            "decidedBy": caller.owner.as_str(), "decidedAt": decided_at,
        });
        let decision = self.with_choice(&run, &name, &request, decision).await?;
        let idempotency_key = caller.idempotency_key.as_deref();
        let about = (run.as_str(), name.as_str());
        let statements = answers::insert_decision(
            about,
            question.as_ref(),
            &decision,
            idempotency_key,
            now_ms(),
        );
        if self.store_answer(caller, &run, statements).await? {
            return Ok(Ack {});
        }
        let message =
            format!("\"{}\" of run {} has already been decided", request.task, request.id);
        Err(Problem::new(Code::InvalidState, message)
            .because("another decision was first")
            .remedied_by(format!("stockade inspect {}", request.id)))
    }

    async fn signal(&self, caller: &Caller, request: SendSignal) -> Result<Ack> {
        let run = self.find_own(caller, &request.id).await?.run;
        if run.status.is_terminal() {
            let message = format!("run {} has ended: it is {}", run.id, run.status.as_str());
            return Err(Problem::new(Code::InvalidState, message));
        }
        let SendSignal { name, correlation, payload, .. } = request;
        let tasks = self.tasks(&run.id).await?;
        let open = self.waits(&run, tasks).await?;
        let receiver = find_receiver(&open, &run.id, &name, correlation.as_deref());
        if let Some(schema) = receiver.and_then(|open| open.schema.as_ref())
            && let Err(why) = self.state.schemas.check(schema, &payload)
        {
            let message = format!("the payload of the signal {name} is not what the run waits for");
            let fix = "pass a payload that matches the schema of the signal";
            return Err(Problem::new(Code::InvalidInput, message).because(why).remedied_by(fix));
        }
        let (run, name) = match receiver {
            Some(OpenWait { run, name: known, .. }) => (run.clone(), known.clone().unwrap_or(name)),
            None => (run.id, name),
        };
        let (idempotency_key, about) =
            (caller.idempotency_key.as_deref(), (run.as_str(), name.as_str()));
        let statements =
            answers::insert_signal(about, correlation, &payload, idempotency_key, now_ms());
        self.store_answer(caller, &run, statements).await.map(|_| Ack {})
    }

    async fn measure(&self, caller: &Caller, Measure {}: Measure) -> Result<Measurements> {
        let owner = caller.owner.as_str();
        let (store, cleanup_times) = (self.state.store(), &self.state.cleanup_times);
        metrics::collect(store, cleanup_times, owner).await.map_err(from_store)
    }
}

impl Workflows {
    /// The executor to which a run of the caller belongs; none for an unknown one, and for one that no
    /// executor has started yet.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn place_of(&self, caller: &Caller, id: &str) -> Result<Option<String>> {
        let found = runs::find_owned(self.state.store(), caller.owner.as_str(), id).await;
        let Some(row) = found.map_err(from_store)? else { return Ok(None) };
        let info = self.engine.info(&workflow_of(&row)?).await.map_err(from_store)?;
        Ok(info.and_then(|info| info.place))
    }

    /// A run that belongs to the caller.
    pub(super) async fn find_own(&self, caller: &Caller, id: &str) -> Result<RunRow> {
        let found = runs::find_owned(self.state.store(), caller.owner.as_str(), id).await;
        let found = found.map_err(from_store)?;
        found.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no run {id}")))
    }

    /// Gives the sandboxes of a run that exist values of secrets. Those that do not have the secret, or
    /// that no egress process serves, get them when their command continues, if they need them.
    async fn give_secrets(
        &self,
        caller: &Caller,
        run: &str,
        values: &BTreeMap<String, SecretValue>,
    ) {
        let Some(sandboxes) =
            self.state.options.sandboxes.as_deref().filter(|_| !values.is_empty())
        else {
            return;
        };
        let metadata = BTreeMap::from([(RUN_LABEL.to_owned(), run.to_owned())]);
        let request = ListSandboxes { metadata, ..ListSandboxes::default() };
        let Ok(list) = sandboxes.list(caller, request).await else { return };
        for sandbox in list.sandboxes {
            for (name, value) in values {
                let values = BTreeMap::from([(name.clone(), value.clone())]);
                let request = SetSecrets { id: sandbox.id.clone(), values, stored: Vec::new() };
                let _ = sandboxes.set_secrets(caller, request).await;
            }
        }
    }

    /// Why a run has stopped without an end; `None` if it has not.
    fn stop_of(&self, row: &RunRow) -> Result<Option<Problem>> {
        let stopped = self.engine.stopped(&workflow_of(row)?).filter(|error| {
            !row.run.status.is_terminal() && !matches!(error, stockade_durable::Error::ShuttingDown)
        });
        let stopped = stopped.map(|error| run_stopped(&row.run.id, error));
        let missing = || self.state.servers.missing(&row.run.id, &row.environment);
        Ok(stopped.or_else(|| missing().filter(|_| !row.run.status.is_terminal())))
    }

    async fn tasks(&self, id: &str) -> Result<Vec<TaskInfo>> {
        tasks::list(self.state.store(), id).await.map_err(from_store)
    }

    /// All waits of a run.
    async fn waits(&self, run: &Run, tasks: Vec<TaskInfo>) -> Result<Vec<OpenWait>> {
        if run.status.is_terminal() {
            return Ok(Vec::new());
        }
        open_waits::list(self.state.store(), &run.id, tasks).await.map_err(from_store)
    }

    /// Stores an answer to a run; returns false on a conflict. Answers with the same idempotency key
    /// are stored once.
    async fn store_answer(
        &self,
        caller: &Caller,
        id: &str,
        statements: Vec<Statement>,
    ) -> Result<bool> {
        match (self.state.store().execute(statements).await, caller.idempotency_key.as_deref()) {
            (Err(stockade_durable::Error::Conflict { .. }), None) => Ok(false),
            (Err(stockade_durable::Error::Conflict { .. }), Some(key)) => {
                answers::was_sent(self.state.store(), id, key).await.map_err(from_store)
            }
            (stored, _) => stored.map(|_| true).map_err(from_store),
        }
    }
}

/// The durable workflow that executes a run: a child run is executed by that of its root.
fn workflow_of(row: &RunRow) -> Result<WorkflowId> {
    let root = row.run.id.split(":child:").next().unwrap_or(&row.run.id);
    run::workflow_id(root, row.generation).map_err(from_store)
}

/// The state of a run, and then its events. In this order the events of a run that has ended contain
/// its end: both were committed before the state was read.
async fn state_before_events<R, E>(
    run: impl Future<Output = Result<R>>,
    events: impl Future<Output = Result<E>>,
) -> Result<(R, E)> {
    let run = run.await?;
    Ok((run, events.await?))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The run ends between the two reads, whichever is the first.
    #[tokio::test]
    async fn a_run_that_has_ended_has_its_last_event() {
        let (reads, has_ended) = (Cell::new(0), Cell::new(false));
        let read = || {
            let found = has_ended.get();
            reads.set(reads.get() + 1);
            has_ended.set(true);
            found
        };
        let run = async { Ok(if read() { "finished" } else { "running" }) };
        let events = async { Ok(if read() { vec!["RunFinished"] } else { Vec::new() }) };
        let (run, events) = state_before_events(run, events).await.unwrap();
        assert_eq!(reads.get(), 2);
        assert!(run != "finished" || events == ["RunFinished"], "{run} {events:?}");
    }
}
