//! A task whose agent is a command: the executor of commands gets the prompt, and the user's code reads
//! the answer.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use stockade_api::{CommandLine, Ending};
use stockade_core::{OwnerId, Problem};
use tokio::sync::Notify;

use super::budgets::report;
use super::state::{AgentEvents, Execution};
use super::token_count::USAGE;
use crate::engine::commands::{self, CommandResult, DEFAULT_TIMEOUT, Job, OUTPUT_LIMIT_BYTES};
use crate::engine::redaction::Redaction;
use crate::engine::state::EngineState;
use crate::engine::task_error::TaskError;
use crate::engine::tool_limits;
use crate::engine::user_code::{TaskCall, UserCode};
use crate::graph::{Command, Prompt, Task, Work};
use crate::schedule::Key;
use crate::store::runs::RunOrigin;
use crate::sync::lock;

/// How much of a failed command's standard error is included in the message, in bytes.
const ERROR_BYTES: usize = 2 << 10;

/// The data that an attempt of such a task needs.
pub(super) struct AgentTask {
    state: Arc<EngineState>,
    user_code: Arc<UserCode>,
    run: String,
    origin: RunOrigin,
    attempt: u32,
    events: AgentEvents,
    redaction: Redaction,
    /// What the answer must be.
    demand: String,
}

impl Execution {
    /// Collects the data for an attempt of a task whose agent is a command.
    pub(super) fn agent_task(&self, key: &Key, task: &Task) -> AgentTask {
        AgentTask {
            demand: self.demand(key, task),
            state: Arc::clone(&self.state),
            user_code: Arc::clone(&self.user_code),
            run: self.run.id.clone(),
            origin: self.run.origin.clone(),
            attempt: self.tasks.current_attempt(key),
            events: Arc::clone(&self.agent_events),
            redaction: self.ledger.redaction.clone(),
        }
    }

    /// Adds the events of agent attempts.
    pub(super) fn take_agent_events(&mut self) {
        let events = std::mem::take(&mut *lock(&self.agent_events));
        for (key, mut event) in events {
            let workspace = event.as_object_mut().and_then(|event| event.remove("workspace"));
            if let Some(bundle) = event["bundle"].as_str() {
                let workspace = workspace.as_ref().and_then(Value::as_str).unwrap_or_default();
                if let Some(before) = self.agents.take_bundle(workspace, bundle) {
                    self.forget_bundle(&before);
                }
                if let Some(row) = self.tasks.get_mut(&key) {
                    row.bundle = Some(bundle.to_owned());
                }
            }
            if event["type"] == USAGE {
                self.tokens.add(&event);
            }
            self.ledger.event(event);
        }
    }
}

impl Execution {
    /// Removes a bundle that a later one has replaced from the rows of its tasks.
    fn forget_bundle(&mut self, bundle: &str) {
        for key in self.tasks.with_bundle(bundle) {
            if let Some(row) = self.tasks.get_mut(&key) {
                row.bundle = None;
            }
            self.store_task(&key);
        }
    }
}

impl AgentTask {
    /// Executes the agent; returns its answer.
    pub(super) async fn execute(self, key: &Key, task: &Arc<Task>) -> Result<Value, TaskError> {
        let call = TaskCall { run: &self.run, key, task, demand: &self.demand, models: None };
        let Work::Command { agent, prompt } = &task.work else {
            return Err(TaskError::new("INTERNAL", "the task has no command"));
        };
        let command = commands::resolve(agent, self.state.options.agents.as_deref());
        let command = command.map_err(task_error)?;
        let executor = self.state.executor.as_ref();
        let executor = executor.ok_or_else(|| task_error(commands::no_executor()))?;
        let prompt = self.prompt(call, prompt).await?;
        let system = agent.system_prompt.as_ref().map(|text| format!("{text}\n\n"));
        let prompt = format!("{}{prompt}{}", system.unwrap_or_default(), self.demand);
        let (command_line, input, variable) = command.with_prompt(&prompt);
        let mut environment = agent.environment.0.clone();
        environment.extend(variable);
        let job = self.job(call, agent, (command_line, input), environment)?;
        let mut result = executor.execute(&job).await.map_err(task_error)?;
        // Before it is shortened, which may leave a part of a value.
        self.redaction.bytes(&mut result.errors);
        if let Some(bundle) = &result.bundle {
            let mut event = json!({
                "type": "NodeBundle", "nodeId": key.node, "iteration": key.iteration,
                "attempt": self.attempt, "bundle": bundle, "workspace": job.workspace,
            });
            if let Some(branch) = task.worktree.as_ref().and_then(|it| it.branch.as_ref()) {
                event["branch"] = branch.as_str().into();
            }
            lock(&self.events).push((key.clone(), event));
        }
        self.record_output(key, &result);
        let written = output(task, result)?;
        report(&self.events, (key, task, self.attempt), command.usage(&written));
        let text = command.answer(&written);
        let text = text.map_err(|why| TaskError::new("INVALID_OUTPUT", why).retryable())?;
        let value = self.user_code.read(call, agent.read, &text).await;
        value.map_err(|error| TaskError { is_retryable: true, ..error.into() })
    }

    /// Adds what the command wrote to the events.
    fn record_output(&self, key: &Key, result: &CommandResult) {
        let streams = [("stdout", &result.output), ("stderr", &result.errors)];
        let events = streams.into_iter().filter_map(|(name, bytes)| {
            let event = commands::output_event((key, self.attempt), name, bytes)?;
            Some((key.clone(), event))
        });
        lock(&self.events).extend(events);
    }

    async fn prompt(&self, call: TaskCall<'_>, prompt: &Prompt) -> Result<String, TaskError> {
        match prompt {
            Prompt::Text(text) => Ok(text.clone()),
            Prompt::Computed { function, inputs } => {
                let work = Work::Compute { function: *function, inputs: inputs.clone() };
                match self.user_code.work(call, &work, &Arc::new(Notify::new())).await? {
                    Value::String(text) => Ok(text),
                    other => Ok(other.to_string()),
                }
            }
        }
    }

    /// The name of the workspace that the agents of a run share: those of a worktree have their own, and
    /// so have those with another file system.
    fn workspace(&self, task: &Task, agent: &Command) -> String {
        let worktree = task.worktree.as_ref().map(|worktree| worktree.path.as_str());
        let generation = self.origin.generation;
        json!([root(&self.run), generation, worktree, agent.image]).to_string()
    }

    fn job(
        &self,
        call: TaskCall<'_>,
        agent: &Command,
        (command, input): (CommandLine, Vec<u8>),
        environment: BTreeMap<String, String>,
    ) -> Result<Job, TaskError> {
        let variables = serde_json::from_str(&self.origin.environment).unwrap_or_default();
        let tools = tool_limits::limits(&variables);
        let mut environment = environment;
        if self.state.options.outer_sandbox.is_some() {
            // The variables of the sandbox around it.
            for (name, value) in variables {
                environment.entry(name).or_insert(value);
            }
        }
        let owner = OwnerId::new(self.origin.owner.as_str());
        let limits = [agent.timeout, call.task.timeout, tools.timeout];
        let output_limits = [tools.output_bytes, agent.output_bytes, Some(OUTPUT_LIMIT_BYTES)];
        Ok(Job {
            name: self.origin.attempt_name(&self.run, call.key, self.attempt),
            owner: owner.map_err(|error| TaskError::new("INTERNAL", error.to_string()))?,
            run: root(&self.run).to_owned(),
            workspace: self.workspace(call.task, agent),
            project: self.state.options.project_of(Path::new(&self.origin.file)),
            command,
            input,
            environment,
            image: agent.image.clone(),
            limit: limits.into_iter().flatten().min().unwrap_or(DEFAULT_TIMEOUT),
            output_limit_bytes: output_limits.into_iter().flatten().min().unwrap_or_default(),
        })
    }
}

/// The standard output of a command, if it succeeded.
fn output(task: &Task, result: CommandResult) -> Result<String, TaskError> {
    let id = &task.id;
    let (code, why) = match result.ending {
        Ending::Exited if result.exit_code == Some(0) => {
            let text = String::from_utf8(result.output);
            return match text {
                Ok(text) if !result.is_truncated => Ok(text),
                Ok(_) => Err(TaskError::new(
                    "INVALID_OUTPUT",
                    format!("the answer of the agent of task \"{id}\" is too long"),
                )
                .retryable()),
                Err(_) => Err(TaskError::new(
                    "INVALID_OUTPUT",
                    format!("the answer of the agent of task \"{id}\" is not text"),
                )
                .retryable()),
            };
        }
        Ending::NotRun => ("AGENT_CONFIG_INVALID", "cannot be run".to_owned()),
        // The exit codes of a shell for a program that does not exist, or cannot be executed.
        Ending::Exited if matches!(result.exit_code, Some(126 | 127)) => {
            ("AGENT_CONFIG_INVALID", "cannot be run".to_owned())
        }
        Ending::Exited => {
            let code = result.exit_code.unwrap_or_default();
            ("AGENT_FAILED", format!("ended with exit code {code}"))
        }
        Ending::TimedOut => ("TASK_TIMEOUT", "timed out".to_owned()),
        Ending::OutputExceeded => ("AGENT_FAILED", "exceeded its output limit".to_owned()),
        other => ("AGENT_FAILED", format!("was ended: {other:?}")),
    };
    let mut message = format!("the agent of task \"{id}\" {why}");
    let errors = error_tail(&result.errors);
    if !errors.is_empty() {
        message.push_str(&format!(": {errors}"));
    }
    let error = TaskError::new(code, message);
    Err(if code == "AGENT_CONFIG_INVALID" { error } else { error.retryable() })
}

/// The end of a command's standard error.
fn error_tail(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors).into_owned();
    let text = text.trim();
    let mut from = text.len().saturating_sub(ERROR_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_owned()
}

/// The root of a run's ancestors, which is the run of the durable workflow.
pub(super) fn root(run: &str) -> &str {
    run.split(":child:").next().unwrap_or(run)
}

fn task_error(problem: Problem) -> TaskError {
    let message = match &problem.cause {
        Some(cause) => format!("{}: {cause}", problem.message),
        None => problem.message.clone(),
    };
    let error = TaskError::new(problem.code.as_str(), message);
    if problem.retryable { error.retryable() } else { error }
}
