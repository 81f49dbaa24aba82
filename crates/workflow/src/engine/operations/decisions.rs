//! Decisions: the wait that a decision is about, and its selection among the changes of a sandbox.

use serde_json::Value;
use stockade_api::{Caller, Decide, DiffBundle, Result, Run, TaskInfo, Wait};
use stockade_core::{Code, Problem};

use crate::engine::open_waits::OpenWait;
use crate::engine::problem::from_store;
use crate::engine::workflows::Workflows;
use crate::schedule::Key;
use crate::store::sandboxes;

impl Workflows {
    /// The wait for a decision that has this address: its id, preceded by the ids of the runs and
    /// sandboxes that contain it. The id alone is enough if no other wait has it.
    pub(super) async fn wait_for_decision(&self, run: &Run, address: &str) -> Result<OpenWait> {
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

    /// Rejects a selection among the changes of a sandbox that cannot be applied: the run would only
    /// wait again.
    pub(super) async fn check_choice(
        &self,
        caller: &Caller,
        (run, key): (&str, &Key),
        request: &Decide,
    ) -> Result<()> {
        let row = sandboxes::find(self.state.store(), run, key).await.map_err(from_store)?;
        let Some(review) = row.and_then(|row| row.review) else { return Ok(()) };
        let approve = format!("stockade approve {} {}", request.id, request.task);
        if review.executed > 0 && !request.allow_executed && request.only.is_empty() {
            let message = "tools on the host execute some of these files by themselves";
            return Err(Problem::new(Code::PathRefused, message)
                .because(format!("these changed files are executed: {}", review.executed))
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

    /// A decision with its selection among changes, which only the decision about a sandbox has.
    pub(super) async fn with_choice(
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
        if task.is_none_or(|task| task.kind != "sandbox") && !is_inner.map_err(from_store)? {
            let message = format!("\"{}\" has no changes", request.task);
            return Err(Problem::new(Code::InvalidInput, message)
                .because("only the changes of a <Sandbox> can be accepted in part"));
        }
        decision["only"] = serde_json::to_value(&request.only)
            .map_err(|error| Problem::new(Code::Io, error.to_string()))?;
        decision["allowExecuted"] = request.allow_executed.into();
        Ok(decision)
    }
}

/// Whether a path equals another path or is below it.
fn is_at_or_below(path: &[u8], other: &[u8]) -> bool {
    let other = other.strip_suffix(b"/").unwrap_or(other);
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The error for a decision about an address that does not wait for one.
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
            let message = format!("run {run} has no approval \"{address}\"");
            let problem = Problem::new(Code::NotFound, message);
            match waiting.is_empty() {
                true => problem.because("no task of it waits for a decision"),
                false => problem.because(some()),
            }
        }
    }
}
