//! The main loop of an execution: the order of its steps, when it commits, and which events it waits
//! for.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use stockade_api::RunStatus;
use stockade_durable::{Failure, Statement};
use tokio::sync::watch;

use super::outcome::{Attempt, End, Outcome};
use super::planning::Step;
use super::state::Execution;
use crate::engine::clock::now_ms;
use crate::engine::sandbox::Record;
use crate::engine::task_error::TaskError;
use crate::schedule::Phase;
use crate::store::{ANSWERS_TOPIC, runs, tasks};
use crate::sync::lock;

/// The realm of a run that waits no longer than this is retained.
const SHORT_WAIT: Duration = Duration::from_secs(5);
/// The rows are polled again after this time at the latest.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The reason why a wait ends.
enum Wakeup {
    /// An attempt has ended.
    Outcome(Outcome),
    /// An attempt of a sandbox has changes to commit.
    Record(Record),
    /// An answer may have arrived, a task may be due, or a child run has changed.
    Poll,
}

impl Execution {
    /// Executes the run to its end; returns how it ends, and the statements to commit with the end.
    ///
    /// # Errors
    /// If the execution has to stop earlier.
    pub(crate) fn run_to_end(self) -> BoxFuture<'static, Result<(End, Vec<Statement>), Failure>> {
        Box::pin(self.main_loop())
    }

    async fn main_loop(mut self) -> Result<(End, Vec<Statement>), Failure> {
        let mut attempts: FuturesUnordered<Attempt> = FuturesUnordered::new();
        let mut answers = self.context.engine().subscribe(ANSWERS_TOPIC);
        loop {
            answers.mark_unchanged();
            if let Some(end) = self.render_if_stale().await {
                return self.end(end).await;
            }
            self.take_answers().await?;
            self.take_due();
            self.renew_sandboxes().await;
            if self.plan.is_stale() {
                continue;
            }
            let step = self.plan_next(attempts.is_empty());
            match step {
                Step::End(end) => return self.end(end).await,
                Step::Continue(state) => {
                    let end = self.continue_as_new(state).await?;
                    return self.end(end).await;
                }
                Step::Repeat | Step::Wait => {}
            }
            if self.look_up_outputs().await? {
                continue;
            }
            let is_more =
                matches!(step, Step::Repeat) || self.plan.is_stale() || self.has_new_waits;
            if is_more && !self.queue.has_starts() && !self.ledger.is_full() {
                continue;
            }
            let is_idle = attempts.len() == self.children.children.waiting();
            if is_idle && !self.queue.has_starts() && !is_more {
                self.set_idle_status();
            } else {
                self.set_status(RunStatus::Running);
            }
            self.keep_files().await;
            self.commit().await?;
            self.discard_replaced_bundles().await;
            self.rest_if_waiting_long().await;
            for (key, task) in self.queue.take_starts() {
                attempts.push(self.attempt(key, task));
            }
            if !is_more {
                self.wait(&mut attempts, &mut answers).await?;
            }
        }
    }

    /// Renders the run if the rendering is stale; returns the end of the run if that fails.
    async fn render_if_stale(&mut self) -> Option<End> {
        if !self.plan.take_stale() {
            return None;
        }
        match self.user_code.render(&self.run.id).await {
            Ok(rendering) => {
                self.name_child_run(&rendering.graph.name);
                self.ledger.redaction.add_graph(&rendering.graph);
                self.plan.update(rendering);
                None
            }
            Err(error) => Some(End::Failed(TaskError::from(error).to_json())),
        }
    }

    /// Sets the name of a child run, which was inserted before its workflow was rendered.
    fn name_child_run(&mut self, name: &str) {
        if self.children.siblings.is_some() && !self.children.is_named {
            self.children.is_named = true;
            self.ledger.push(runs::set_name(&self.run.id, name));
        }
    }

    /// Waits for an event, and handles it.
    async fn wait(
        &mut self,
        attempts: &mut FuturesUnordered<Attempt>,
        answers: &mut watch::Receiver<u64>,
    ) -> Result<(), Failure> {
        let time = self.tasks.time_to_next().map_or(LONGEST_WAIT, |time| time.min(LONGEST_WAIT));
        let (records, children) = (&mut self.sandboxes.records, &self.children.children);
        let wakeup = async {
            tokio::select! {
                Some(outcome) = attempts.next(), if !attempts.is_empty() => {
                    Wakeup::Outcome(outcome)
                }
                Some(record) = records.recv() => Wakeup::Record(record),
                _ = answers.changed() => Wakeup::Poll,
                () = children.changed.notified() => Wakeup::Poll,
                () = tokio::time::sleep(time) => Wakeup::Poll,
            }
        };
        let mut outcome = match self.context.wait(wakeup).await? {
            Wakeup::Outcome(outcome) => Some(outcome),
            Wakeup::Record(record) => {
                self.ledger.record(record);
                None
            }
            Wakeup::Poll => None,
        };
        while let Some((key, result)) = outcome {
            self.take_outcome(key, result);
            // Other outcomes that are already available are committed together with this one.
            outcome = attempts.next().now_or_never().flatten();
        }
        Ok(())
    }

    /// Adds the lines that the workflow wrote to its console as events.
    fn take_lines(&mut self) {
        for (level, text) in self.user_code.take_lines() {
            self.ledger.event(json!({ "type": "Log", "level": level, "message": text }));
        }
    }

    async fn commit(&mut self) -> Result<(), Failure> {
        self.take_lines();
        self.ledger.commit(&self.context).await
    }

    /// Ends the realm of a run that will wait for a while.
    async fn rest_if_waiting_long(&mut self) {
        if self.status == RunStatus::Waiting && self.children.siblings.is_none() {
            let is_short = self.tasks.time_to_next().is_some_and(|time| time <= SHORT_WAIT);
            if !is_short {
                self.user_code.rest().await;
            }
        }
    }

    /// Sets the status of a run without running attempts: whether it waits for answers.
    fn set_idle_status(&mut self) {
        let waits = !self.tasks.has_retrying()
            && (self.children.children.waiting() > 0 || self.tasks.has_open_in(&[Phase::Waiting]));
        self.set_status(if waits { RunStatus::Waiting } else { RunStatus::Running });
    }

    fn set_status(&mut self, status: RunStatus) {
        if self.status != status {
            self.status = status;
            self.ledger.push(runs::set_status(&self.run.id, status, now_ms()));
            if let Some(siblings) = &self.children.siblings {
                siblings.count(status == RunStatus::Waiting);
            }
            let kind = if status == RunStatus::Waiting { "RunWaiting" } else { "RunRunning" };
            self.ledger.event(json!({ "type": kind }));
        }
    }

    /// The output of the run: the rows of its table, or the only one of them.
    pub(super) fn output(&self) -> Value {
        let rows = &lock(&self.run.journal).rows;
        let table_of = |row: &Value| row["table"].as_str().map(str::to_owned);
        let has = |table: &str| rows.iter().any(|row| row["table"] == table);
        let named = self.run.output.clone();
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

    /// Ends the run; returns how it ends, and the statements to commit with the end.
    async fn end(mut self, mut end: End) -> Result<(End, Vec<Statement>), Failure> {
        if let End::Failed(error) = &mut end {
            self.ledger.redaction.error(error);
        }
        if !self.agents.replaced.is_empty() {
            self.commit().await?;
            self.discard_replaced_bundles().await;
        }
        self.keep_last_files().await;
        self.end_agent_workspaces().await;
        self.end_run_sandboxes().await;
        self.take_lines();
        // The parent is notified of the end in another way.
        self.set_status(RunStatus::Running);
        let at = now_ms();
        let statement = match &end {
            End::Finished(output) => {
                self.ledger.event(json!({ "type": "RunFinished" }));
                runs::end(&self.run.id, RunStatus::Finished, at, Some(output), None)
            }
            End::Failed(error) => {
                self.ledger.event(json!({ "type": "RunFailed", "error": error }));
                self.ledger.push(tasks::cancel(&self.run.id, at));
                runs::end(&self.run.id, RunStatus::Failed, at, None, Some(error))
            }
        };
        self.ledger.push(statement);
        Ok((end, self.ledger.into_statements()))
    }
}
