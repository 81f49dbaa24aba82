//! What can be asked for, each operation once: whose run it is, then what is to be done.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use stockade_api::{
    Caller, Decide, DiffBundle, Done, FindRun, Follow, Followed, Inspection, LATEST, ListRuns,
    Measure, Measurements, Result, ResumeRun, Run, RunById, RunStatus, SendSignal, TaskInfo, Up,
    Wait,
};
use stockade_core::{Code, OwnerId, Problem};
use stockade_durable::{Statement, Status};

use super::open_waits::{self, OpenWait};
use super::prepare::{executable, prepared};
use super::problem::{changed, of_store};
use super::provider_cleanups::CancelGuard;
use super::start::{Named, New, kept_program};
use super::workflows::Workflows;
use super::{metrics, run, sandbox};
use crate::engine::clock::now_ms;
use crate::schedule::Key;
use crate::store::answers::Question;
use crate::store::runs::{self, RunRow, UnfinishedRun};
use crate::store::{answers, cancel, events, run_state, sandboxes, tasks};

/// How many runs are named that have the same beginning.
const NAMED: u32 = 8;
/// How many events are told at once.
const EVENTS_AT_ONCE: u32 = 1_000;
/// The longest that somebody who cancels a run is kept waiting for what is cleaned up behind it.
const LONGEST_CLEANED: Duration = Duration::from_secs(30);
/// The longest that somebody who follows a run is kept waiting.
const LONGEST_FOLLOWED: Duration = Duration::from_secs(30);

#[async_trait]
impl stockade_api::Workflows for Workflows {
    async fn up(&self, caller: &Caller, request: Up) -> Result<Run> {
        let id = match self.named(caller, request.run_id).await? {
            Named::Known(run) => return Ok(*run),
            Named::New(id) => id,
        };
        let realms = self.state.options.realms.clone();
        let environment = &request.environment;
        let (user_code, view) =
            prepared(realms, &request.file, &id, &request.input, environment, &self.state.schemas)
                .await?;
        let file = request.file.canonicalize().unwrap_or_else(|_| request.file.clone());
        let Up { input, environment, max_concurrency, .. } = request;
        let new = New { id, file, input, environment, max_concurrency };
        self.submit(caller, new, user_code, &view).await
    }

    async fn run(&self, caller: &Caller, request: RunById) -> Result<Run> {
        Ok(self.own(caller, &request.id).await?.run)
    }

    async fn find(&self, caller: &Caller, request: FindRun) -> Result<Run> {
        let (store, owner) = (self.state.store(), caller.owner.as_str());
        let name = request.name.as_str();
        let missing =
            |told: String| Problem::new(Code::NotFound, told).remedied_by("stockade runs");
        if name == LATEST {
            let latest = runs::latest(store, owner).await.map_err(of_store)?;
            return latest.ok_or_else(|| missing("there is no run".to_owned()));
        }
        if let Some(exact) = runs::find_owned(store, owner, name).await.map_err(of_store)? {
            return Ok(exact.run);
        }
        let mut found =
            runs::list_with_prefix(store, owner, name, NAMED).await.map_err(of_store)?;
        match found.len() {
            0 => Err(missing(format!("there is no run {name}"))),
            1 => Ok(found.remove(0)),
            _ => {
                let ids: Vec<_> = found.iter().map(|run| run.id.as_str()).collect();
                let message = format!("{name} is the beginning of several: {}", ids.join(", "));
                Err(Problem::new(Code::InvalidInput, message).remedied_by("stockade runs"))
            }
        }
    }

    async fn runs(&self, caller: &Caller, request: ListRuns) -> Result<Vec<Run>> {
        let owner = caller.owner.as_str();
        runs::list(self.state.store(), owner, request.limit).await.map_err(of_store)
    }

    async fn inspect(&self, caller: &Caller, request: RunById) -> Result<Inspection> {
        let run = self.own(caller, &request.id).await?.run;
        let tasks = self.tasks(&request.id).await?;
        let sandboxes = sandboxes::list_info(self.state.store(), &request.id, now_ms()).await;
        let mut waits = self.waits(&run, tasks.clone()).await?;
        waits.retain(|open| open.is_now);
        let waits = waits.into_iter().map(|open| open.wait).collect();
        Ok(Inspection { run, tasks, sandboxes: sandboxes.map_err(of_store)?, waits })
    }

    async fn follow(&self, caller: &Caller, request: Follow) -> Result<Followed> {
        let longest = Duration::from_millis(request.wait_ms.into()).min(LONGEST_FOLLOWED);
        let deadline = tokio::time::Instant::now() + longest;
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            // In this order: the run is not older than its events.
            let events =
                events::list(self.state.store(), &request.id, request.from, EVENTS_AT_ONCE).await;
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
        let (run, id) = (row.run.clone(), request.id.as_str());
        if !matches!(run.status, RunStatus::Failed | RunStatus::Cancelled) {
            return Ok(run);
        }
        let (user_code, view) = self.again(&row).await?;
        let (hash, program) = kept_program(&user_code)?;
        if hash != run.program && !request.accept_changes {
            return Err(changed(&run));
        }
        executable(&view.graph, &self.state.options)?;
        let (now, next) = (now_ms(), row.generation + 1);
        let mut with = vec![program, runs::resume(id, next, &hash, now)];
        with.extend(run_state::reset_unfinished(id));
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
        let _cancelling = self.attended(id).await?;
        self.engine.cancel(&workflow).await.map_err(of_store)?;
        let info = self.engine.info(&workflow).await.map_err(of_store)?;
        let has_ended = info.is_some_and(|info| info.status.is_terminal());
        let run = self.own(caller, id).await?.run;
        // One that ended otherwise has said so itself, unless nothing is done of it any more.
        if !has_ended || run.status.is_terminal() {
            return Ok(run);
        }
        self.end_cancelled(&caller.owner, id).await?;
        Ok(self.own(caller, id).await?.run)
    }

    async fn decide(&self, caller: &Caller, request: Decide) -> Result<Done> {
        let run = self.own(caller, &request.id).await?.run;
        let OpenWait { run, name, question, wait, .. } = self.asked(&run, &request.task).await?;
        let name = name.unwrap_or_else(|| request.task.clone());
        if request.approved && matches!(question, Some(Question::OfTask(_))) {
            let key = Key { node: name.clone(), iteration: wait.iteration() };
            self.can_be_chosen(caller, (&run, &key), &request).await?;
        }
        let decided_at = jiff::Timestamp::from_millisecond(now_ms()).map(|at| at.to_string()).ok();
        let decision = json!({
            "approved": request.approved, "note": request.note,
            "decidedBy": caller.owner.as_str(), "decidedAt": decided_at,
        });
        let decision = self.with_choice(&run, &name, &request, decision).await?;
        let sent_as = caller.idempotency_key.as_deref();
        let about = (run.as_str(), name.as_str());
        let keep = answers::insert_decision(about, question.as_ref(), &decision, sent_as, now_ms());
        if self.kept(caller, &run, keep).await? {
            return Ok(Done {});
        }
        let message = format!("\"{}\" of run {} is decided already", request.task, request.id);
        Err(Problem::new(Code::InvalidState, message)
            .because("another decision was first")
            .remedied_by(format!("stockade inspect {}", request.id)))
    }

    async fn signal(&self, caller: &Caller, request: SendSignal) -> Result<Done> {
        let run = self.own(caller, &request.id).await?.run;
        if run.status.is_terminal() {
            let message = format!("run {} has ended: it is {}", run.id, run.status.as_str());
            return Err(Problem::new(Code::InvalidState, message));
        }
        let SendSignal { name, correlation, payload, .. } = request;
        let tasks = self.tasks(&run.id).await?;
        let open = self.waits(&run, tasks).await?;
        let taker = taker(&open, &run.id, &name, correlation.as_deref());
        if let Some(schema) = taker.and_then(|open| open.schema.as_ref())
            && let Err(told) = self.state.schemas.check(schema, &payload)
        {
            let message = format!("the signal {name} is not what is waited for");
            return Err(Problem::new(Code::InvalidInput, message).because(told));
        }
        let (run, name) = match taker {
            Some(OpenWait { run, name: known, .. }) => (run.clone(), known.clone().unwrap_or(name)),
            None => (run.id, name),
        };
        let (sent_as, about) = (caller.idempotency_key.as_deref(), (run.as_str(), name.as_str()));
        let keep = answers::insert_signal(about, correlation, &payload, sent_as, now_ms());
        self.kept(caller, &run, keep).await.map(|_| Done {})
    }

    async fn measure(&self, caller: &Caller, Measure {}: Measure) -> Result<Measurements> {
        let owner = caller.owner.as_str();
        let (store, cleanup_times) = (self.state.store(), &self.state.cleanup_times);
        metrics::collect(store, cleanup_times, owner).await.map_err(of_store)
    }
}

impl Workflows {
    /// A run of the caller's.
    pub(super) async fn own(&self, caller: &Caller, id: &str) -> Result<RunRow> {
        let found = runs::find_owned(self.state.store(), caller.owner.as_str(), id).await;
        let found = found.map_err(of_store)?;
        found.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no run {id}")))
    }

    async fn tasks(&self, id: &str) -> Result<Vec<TaskInfo>> {
        tasks::list(self.state.store(), id).await.map_err(of_store)
    }

    /// All that a run waits for.
    async fn waits(&self, run: &Run, tasks: Vec<TaskInfo>) -> Result<Vec<OpenWait>> {
        if run.status.is_terminal() {
            return Ok(Vec::new());
        }
        open_waits::list(self.state.store(), &run.id, tasks).await.map_err(of_store)
    }

    /// What waits for a decision, by its address: the ids of what it is in, and its own. Its own is
    /// enough where no other of them has it.
    async fn asked(&self, run: &Run, address: &str) -> Result<OpenWait> {
        let tasks = self.tasks(&run.id).await?;
        let mut open = self.waits(run, tasks.clone()).await?;
        open.retain(|open| matches!(open.wait, Wait::Approval { .. }));
        if let Some(found) = open.iter().rposition(|open| open.wait.node() == address) {
            return Ok(open.swap_remove(found));
        }
        let is_last = |node: &str| node.rsplit_once('/').is_some_and(|(_, last)| last == address);
        let named: Vec<&OpenWait> = open.iter().filter(|open| is_last(open.wait.node())).collect();
        match named.as_slice() {
            [only] => Ok((*only).clone()),
            _ => Err(no_decision(&run.id, address, &tasks, &open)),
        }
    }

    /// Waits until what providers had begun for a process that was killed is cleaned up, as the run
    /// does that goes on. It begins nothing again until this is dropped.
    async fn attended(&self, id: &str) -> Result<CancelGuard<'_>> {
        let (store, cleanups) = (self.state.store(), &self.state.provider_cleanups);
        let cancelling = cleanups.begin_cancel(id);
        let deadline = tokio::time::Instant::now() + LONGEST_CLEANED;
        let mut changes = cleanups.changes();
        loop {
            let tries =
                sandboxes::names_of_open_provider_tries(store, id).await.map_err(of_store)?;
            let are_all = tries.iter().all(|name| cleanups.has_claimed(name));
            if are_all || tokio::time::timeout_at(deadline, changes.next()).await.is_err() {
                return Ok(cancelling);
            }
        }
    }

    /// Ends what is kept of a run that was cancelled.
    async fn end_cancelled(&self, owner: &OwnerId, id: &str) -> Result<()> {
        // In this order: what is told to be cancelled has left nothing.
        if let Some(place) = &self.state.executor {
            let tries =
                tasks::names_of_agent_tries(self.state.store(), id).await.map_err(of_store)?;
            place.end(owner, id, &tries).await;
        }
        sandbox::end_all(&self.state, owner.as_str(), id).await.map_err(of_store)?;
        let now = now_ms();
        let error = json!({ "code": "CANCELLED", "message": "the run was cancelled" });
        let [tasks, runs] = cancel::cancel_descendants(id, now);
        let statements = vec![
            tasks,
            runs,
            tasks::cancel(id, now),
            runs::end(id, RunStatus::Cancelled, now, None, Some(&error)),
        ];
        self.state.store().execute(statements).await.map_err(of_store)
    }

    /// Ends what was cancelled by a process that was killed before it could say so.
    pub(super) async fn repair(&self) -> Result<()> {
        let unfinished = runs::list_unfinished(self.state.store()).await.map_err(of_store)?;
        for UnfinishedRun { id, owner, generation } in unfinished {
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

    /// Refuses a choice among the changes of a sandbox that could not be carried out as it is: the run
    /// would only wait again.
    async fn can_be_chosen(
        &self,
        caller: &Caller,
        (run, key): (&str, &Key),
        request: &Decide,
    ) -> Result<()> {
        let kept = sandboxes::find(self.state.store(), run, key).await.map_err(of_store)?;
        let Some(review) = kept.and_then(|kept| kept.review) else { return Ok(()) };
        let approve = format!("stockade approve {} {}", request.id, request.task);
        if review.executed > 0 && !request.allow_executed && request.only.is_empty() {
            let told = "tools of the host run some of these files by themselves";
            return Err(Problem::new(Code::PathRefused, told)
                .because(format!("of the changes, {} are such files", review.executed))
                .remedied_by(format!("{approve} --allow-executed")));
        }
        let Some(sandboxes) = &self.state.options.sandboxes else { return Ok(()) };
        let mut left = request.only.clone();
        for id in &review.bundles {
            let diff = DiffBundle { id: id.clone(), paths: Vec::new() };
            let mut paths = match sandboxes.diff_bundle(caller, diff).await {
                Err(problem) if problem.code == Code::BundleNotFound => continue,
                read => read?,
            };
            while let Some(path) = paths.next().await {
                let path = path?.path;
                left.retain(|chosen| !is_at_or_below(&path.0, &chosen.0));
            }
        }
        let Some(missing) = left.first() else { return Ok(()) };
        let message = format!("\"{}\" did not change {:?}", request.task, missing.lossy());
        Err(Problem::new(Code::InvalidInput, message).remedied_by(
            review
                .bundles
                .iter()
                .map(|id| format!("stockade diff {id} --stat"))
                .collect::<Vec<_>>()
                .join("; "),
        ))
    }

    /// A decision with what it chooses, which only changes of a sandbox leave a choice for.
    async fn with_choice(
        &self,
        id: &str,
        name: &str,
        request: &Decide,
        mut decision: Value,
    ) -> Result<Value> {
        if request.only.is_empty() && !request.allow_executed {
            return Ok(decision);
        }
        let tasks = self.tasks(id).await?;
        let task = tasks.iter().rev().find(|task| task.id == name);
        let is_inner = sandboxes::has_nested_review(self.state.store(), id, name).await;
        if task.is_none_or(|task| task.kind != "sandbox") && !is_inner.map_err(of_store)? {
            let message = format!("\"{}\" has no changes to choose from", request.task);
            return Err(Problem::new(Code::InvalidInput, message)
                .because("only the changes of a <Sandbox> can be accepted in part"));
        }
        decision["only"] = serde_json::to_value(&request.only)
            .map_err(|error| Problem::new(Code::Io, error.to_string()))?;
        decision["allowExecuted"] = request.allow_executed.into();
        Ok(decision)
    }

    /// Keeps what a run is told; false where that met a conflict. The same is told it once, under one
    /// name of the caller's.
    async fn kept(&self, caller: &Caller, id: &str, statements: Vec<Statement>) -> Result<bool> {
        match (self.state.store().execute(statements).await, caller.idempotency_key.as_deref()) {
            (Err(stockade_durable::Error::Conflict { .. }), None) => Ok(false),
            (Err(stockade_durable::Error::Conflict { .. }), Some(key)) => {
                answers::was_sent(self.state.store(), id, key).await.map_err(of_store)
            }
            (kept, _) => kept.map(|_| true).map_err(of_store),
        }
    }
}

/// Whether a path is another, or lies below it.
fn is_at_or_below(path: &[u8], other: &[u8]) -> bool {
    let other = other.strip_suffix(b"/").unwrap_or(other);
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// What takes a signal: what waits for it by its address, else by its name, the run's own first. Where
/// nothing does, the run keeps it for a task of its own that comes to wait for it. What a child in a
/// sandbox comes to say that it waits for later, it does not get by a mere name.
fn taker<'a>(
    open: &'a [OpenWait],
    run: &str,
    name: &str,
    correlation: Option<&str>,
) -> Option<&'a OpenWait> {
    let find = |is_its: &dyn Fn(&OpenWait, &str) -> bool| {
        open.iter().find(|open| match &open.wait {
            Wait::Signal { name: plain, correlation: wanted, .. } => {
                (wanted.is_none() || wanted.as_deref() == correlation) && is_its(open, plain)
            }
            _ => false,
        })
    };
    let by_address = |open: &OpenWait, _: &str| open.wait.answer_name().as_deref() == Some(name);
    let own = |open: &OpenWait, _: &str| open.run == run && open.name.as_deref() == Some(name);
    let by_name = |_: &OpenWait, plain: &str| plain == name;
    find(&by_address).or_else(|| find(&own)).or_else(|| find(&by_name))
}

/// Why nobody can decide on what has this address.
fn no_decision(run: &str, address: &str, tasks: &[TaskInfo], open: &[OpenWait]) -> Problem {
    let waiting = open.iter().filter(|open| open.is_now).map(|open| open.wait.node());
    let waiting: Vec<&str> = waiting.collect();
    let some = || format!("these wait for a decision: {}", waiting.join(", "));
    let known = tasks.iter().rev().find(|task| task.id == address);
    match known.filter(|task| !task.status.is_waiting()) {
        Some(task) => {
            let message = format!("\"{address}\" of run {run} does not wait for a decision");
            let problem = Problem::new(Code::InvalidState, message);
            problem.because(format!("it is {}", task.status.as_str()))
        }
        None => {
            let message = format!("run {run} has come to no approval \"{address}\"");
            let problem = Problem::new(Code::NotFound, message);
            match waiting.is_empty() {
                true => problem.because("nothing of it waits for a decision"),
                false => problem.because(some()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(run: &str, node: &str, name: &str, taken_as: &str) -> OpenWait {
        let (node, name) = (node.to_owned(), name.to_owned());
        let (iteration, label, correlation, due_ms) = (0, None, None, None);
        let wait = Wait::Signal { node, iteration, label, name, correlation, due_ms };
        let name = Some(taken_as.to_owned());
        OpenWait { run: run.to_owned(), name, question: None, schema: None, wait, is_now: true }
    }

    #[test]
    fn a_signal_goes_to_whom_it_is_meant_for() {
        let taken = |open: &[OpenWait], name: &str| {
            let open = taker(open, "r", name, None)?;
            Some((open.run.clone(), open.name.clone().unwrap()))
        };
        let to = |run: &str, name: &str| Some((run.to_owned(), name.to_owned()));
        let child = open("r", "box/word", "go", "box/go");
        let below = open("r:child:sub:0", "sub/word", "go", "go");
        let own = open("r", "word", "go", "go");
        let all = [child.clone(), below.clone(), own];
        assert_eq!(taken(&all, "go"), to("r", "go"));
        assert_eq!(taken(&all, "box/go"), to("r", "box/go"));
        assert_eq!(taken(&all, "sub/go"), to("r:child:sub:0", "go"));
        // Its name is enough for what waits, and for nothing that comes to wait in a sandbox later.
        assert_eq!(taken(&[child], "go"), to("r", "box/go"));
        assert_eq!(taken(&[below], "go"), to("r:child:sub:0", "go"));
        assert_eq!(taken(&[], "go"), None);
    }
}
