//! One nested sandbox on the host: its request is read and narrowed, it is created and executed like
//! any other sandbox, on a copy of the enclosing workspace, and its result is handed back to the child
//! that waits. Progress from before a crash is found in its directory on the host.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use stockade_api::{Answer, Wait};

use super::request::{self, NestedId, NestedRequest};
use super::workspace_copy::copy_workspace;
use crate::engine::clock::now_ms;
use crate::engine::sandbox::attempt::{AttemptOutcome, NestedSource, SandboxAttempt};
use crate::engine::sandbox::directory::{SandboxDirectory, sandbox_name};
use crate::engine::sandbox::enclosing::{EnclosingSandbox, Lineage};
use crate::engine::sandbox::grant::Grant;
use crate::engine::sandbox::handle::SandboxHandle;
use crate::engine::sandbox::recorder::Recorder;
use crate::engine::sandbox::request::RESULT as RESULTS;
use crate::engine::sandbox::result;
use crate::engine::task_error::TaskError;
use crate::engine::timings::Timings;
use crate::graph::{Retry, Task, Work};
use crate::schedule::Key;
use crate::store::sandboxes::{self, Stage};

/// How many nested sandboxes one attempt of a sandbox may request in total.
const MAX_INNER: usize = 64;

/// The outcome of a nested sandbox.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    /// It has ended, and its result is in the enclosing sandbox.
    Returned,
    /// It needs answers from outside.
    Waits(Vec<Wait>),
}

/// A nested sandbox that a child has requested.
pub(super) struct InnerSandbox<'t> {
    outer: &'t SandboxAttempt,
    pub(super) handle: &'t SandboxHandle,
    grant: &'t Grant,
    pub(super) id: NestedId,
    /// The key of the sandbox in the run of the host.
    key: Key,
    /// Identifies its attempt.
    pub(super) name: String,
    pub(super) directory: SandboxDirectory,
}

pub(super) fn failed(error: impl std::fmt::Display) -> TaskError {
    let message = format!("the nested <Sandbox> cannot be executed: {error}");
    TaskError::new("SANDBOX_EXECUTION_FAILED", message).retryable()
}

/// The directories on the host of a nested sandbox that has not ended.
const WORKING: [&str; 7] =
    ["asking", "asked", "workspace-new", "workspace", "noting", "noted", "giving"];
/// The directory of its result, until the result is handed back.
pub(super) const RESULT_DIRECTORY: &str = "given";

/// The name of one of these directories, from the name of the attempt.
pub(super) fn part(what: &str, name: &str) -> String {
    format!("{what}-{}", &name[..name.len().min(12)])
}

/// Removes the directories on the host of a nested sandbox.
pub(super) fn remove_files(root: &Path, run: &str, key: &Key, name: &str) -> Result<(), TaskError> {
    // Only sandboxes that a child has requested have such directories.
    if key.node.contains('/') {
        let directory = SandboxDirectory::open_nested(root, run, key)?;
        for what in WORKING.into_iter().chain([RESULT_DIRECTORY]) {
            directory.remove(&part(what, name))?;
        }
    }
    Ok(())
}

impl<'t> InnerSandbox<'t> {
    /// The nested sandbox that was requested in the sandbox of an attempt.
    ///
    /// # Errors
    /// If the id is invalid.
    pub(super) fn new(
        outer: &'t SandboxAttempt,
        handle: &'t SandboxHandle,
        grant: &'t Grant,
        id: &NestedId,
    ) -> Result<Self, TaskError> {
        let id = id.clone().check()?;
        let node = format!("{}/{}", sandbox_name(&outer.key), id.node);
        let key = Key { node, iteration: id.iteration };
        let text = format!("{}\0{}", outer.name, id.name);
        let name = blake3::hash(text.as_bytes()).to_hex()[..40].to_owned();
        let directory = SandboxDirectory::open_nested(&outer.root, &outer.run, &key)?;
        Ok(Self { outer, handle, grant, id, key, name, directory })
    }

    /// The answer for the child after the result was handed back.
    pub(super) fn answer(&self) -> Answer {
        let NestedId { name: request, node, iteration, .. } = self.id.clone();
        Answer::Sandbox { node, iteration, request }
    }

    /// The wait for a decision about the changes.
    fn review(&self) -> Wait {
        let NestedId { node, iteration, .. } = self.id.clone();
        let title = Some("its changes to the outer workspace".to_owned());
        Wait::Approval { node, iteration, label: None, title, summary: None, due_ms: None }
    }

    /// Delivers answers from outside, and the news that a time has come.
    pub(super) async fn deliver(&self, answers: &[Answer]) -> Result<(), TaskError> {
        let (run, key, id) = (&self.outer.run, &self.key, &self.id);
        let row = sandboxes::find(self.outer.state.store(), run, key).await.map_err(failed)?;
        let Some(row) = row.filter(|row| row.name == self.name) else { return Ok(()) };
        let statement = match row.stage {
            Stage::Review => answers.iter().find_map(|answer| match answer {
                Answer::Approval { node, iteration, decision: Some(decision), .. }
                    if (node, iteration) == (&id.node, &id.iteration) =>
                {
                    Some(sandboxes::decide(run, key, decision))
                }
                _ => None,
            }),
            Stage::Waiting => {
                let mut pause = row.pause().unwrap_or_default();
                pause.answers = answers
                    .iter()
                    .filter_map(|answer| answer.clone().strip_outer(&id.node))
                    .collect();
                let is_due = |wait: &Wait| wait.due_ms().is_some_and(|due| due <= now_ms());
                let goes_on = !pause.answers.is_empty() || pause.waits.iter().any(is_due);
                goes_on.then(|| sandboxes::resume(run, key, &pause, now_ms()))
            }
            _ => None,
        };
        match statement {
            Some(statement) => self.outer.recorder.record(Vec::new(), vec![statement]).await,
            None => Ok(()),
        }
    }

    /// The name of one of its directories on the host. Other attempts have other directories.
    pub(super) fn part(&self, what: &str) -> String {
        part(what, &self.name)
    }

    /// Executes it, or the rest of it after a crash.
    ///
    /// # Errors
    /// Failures of the enclosing sandbox. A failure of the nested one is handed back.
    pub(super) async fn execute(&self) -> Result<Outcome, TaskError> {
        if !self.directory.has(&self.part(RESULT_DIRECTORY))? {
            self.end_other_attempts().await?;
            let outcome = match self.prepare().await {
                Ok(inner) => Box::pin(inner.execute()).await,
                Err(error) => Err(error),
            };
            match outcome {
                Err(error) if error.is_interruption() => return Err(error),
                Ok(AttemptOutcome::Review(_)) => return Ok(Outcome::Waits(vec![self.review()])),
                Ok(AttemptOutcome::Waits(pause)) => {
                    let waits = pause.waits.into_iter().filter(|wait| !wait.is_for_host());
                    let waits = waits.map(|wait| wait.with_outer(&self.id.node));
                    return Ok(Outcome::Waits(waits.collect()));
                }
                Ok(AttemptOutcome::HostRequest(_)) => {
                    return Err(failed("it waits for its own host"));
                }
                Ok(AttemptOutcome::Value(outputs) | AttemptOutcome::Changed(outputs)) => {
                    if let Err(error) = self.store_result(Ok(outputs)) {
                        self.store_result(Err(&error))?;
                    }
                }
                Err(error) => self.store_result(Err(&error))?,
            }
        }
        self.return_result().await?;
        for what in WORKING {
            self.directory.remove(&self.part(what))?;
        }
        Ok(Outcome::Returned)
    }

    /// Ends other attempts of the same sandbox, and removes their directories. The child may never have
    /// waited for them.
    async fn end_other_attempts(&self) -> Result<(), TaskError> {
        let (outer, key) = (self.outer, &self.key);
        let row = sandboxes::find(outer.state.store(), &outer.run, key).await.map_err(failed)?;
        if let Some(row) = row.filter(|row| row.name != self.name && row.stage.is_open()) {
            outer.nested_cleanup().end_one(&outer.run, key, &row.name).await?;
        }
        let own = self.part("");
        for name in self.directory.names()? {
            let is_part = WORKING
                .iter()
                .chain([&RESULT_DIRECTORY])
                .any(|what| name.strip_prefix(what).is_some_and(|rest| rest.starts_with('-')));
            if is_part && !name.ends_with(&own) {
                self.directory.remove(&name)?;
            }
        }
        Ok(())
    }

    /// The attempt that executes it. Only a copy of the workspace is created here.
    async fn prepare(&self) -> Result<SandboxAttempt, TaskError> {
        let outer = self.outer;
        let known = sandboxes::list_nested(outer.state.store(), &outer.run, &outer.name).await;
        let known = known.map_err(failed)?;
        if known.len() >= MAX_INNER && !known.iter().any(|nested| nested.key == self.key) {
            let message = format!("a <Sandbox> can have at most {MAX_INNER} nested ones in total");
            return Err(TaskError::new("INVALID_INPUT", message));
        }
        let NestedRequest { sandbox, timeout, program, .. } = self.read_request().await?;
        let (sandbox, timeout) = self.grant.narrowed(sandbox, timeout)?;
        let parts = [&*self.part("workspace-new"), &*self.part("workspace")];
        let workspace = copy_workspace(self.handle, &self.directory, parts).await?;
        let depth = self.grant.depth() + 1;
        let lineage = Lineage {
            root_run_id: outer.root_run().to_owned(),
            parent_sandbox_id: self.handle.id().to_owned(),
            depth,
            task: Some(outer.recorder.task().clone()),
        };
        let task = Task {
            timeout,
            // The child decides about further attempts.
            retry: Retry::NONE,
            ..Task::sandbox(&self.key.node, sandbox)
        };
        let recorder = Recorder {
            key: self.key.clone(),
            attempt: self.id.attempt,
            lineage: Some(lineage.clone()),
            timings: Timings::default(),
            ..outer.recorder.clone()
        };
        Ok(SandboxAttempt {
            state: Arc::clone(&outer.state),
            user_code: Arc::clone(&outer.user_code),
            run: outer.run.clone(),
            name: self.name.clone(),
            owner: outer.owner.clone(),
            root: outer.root.clone(),
            // A child's request receives nothing of the run's own environment.
            environment: BTreeMap::new(),
            key: self.key.clone(),
            task: Arc::new(task),
            recorder,
            slots: Arc::clone(&outer.slots),
            child_runs: Arc::clone(&outer.child_runs),
            enclosing: Some(EnclosingSandbox { grant: self.grant.clone(), lineage }),
            nested_source: Some(NestedSource { program, workspace, name: self.name.clone() }),
        })
    }

    /// Reads the request. It is copied to the host first, so that the sandbox cannot change it any
    /// more.
    async fn read_request(&self) -> Result<NestedRequest, TaskError> {
        let part = self.part("asked");
        if !self.directory.has(&part)? {
            let copying = self.part("asking");
            let into = self.directory.create_fresh(&copying)?;
            let from = format!("{RESULTS}/{}/{}", self.id.directory(), request::REQUEST);
            let files = result::copy_out(self.handle, &from, &into, |_| true).await?;
            result::sync(&into, &files).await?;
            self.directory.rename(&copying, &part)?;
        }
        NestedRequest::read(&self.directory.open_part(&part)?, &self.id)
    }
}

impl SandboxAttempt {
    /// Narrows a sandbox that an enclosing one executes, such as the sandbox of a provider's child run.
    pub(in super::super) fn narrow(&mut self) -> Result<(), TaskError> {
        let (Some(enclosing), None) = (&self.enclosing, &self.nested_source) else {
            return Ok(());
        };
        let Work::Sandbox(sandbox) = &self.task.work else { return Ok(()) };
        let (sandbox, timeout) =
            enclosing.grant.narrowed((**sandbox).clone(), self.task.timeout)?;
        let work = Work::Sandbox(Box::new(sandbox));
        self.task = Arc::new(Task { work, timeout, ..(*self.task).clone() });
        Ok(())
    }
}
