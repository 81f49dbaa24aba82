//! A task that is done by an agent that is a command: it is given the prompt in the place where
//! commands are executed, and its answer is read by the author's realm.

use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use stockade_api::Ending;
use stockade_core::{OwnerId, Problem};
use tokio::sync::Notify;

use super::Drive;
use crate::engine::commands::{self, CommandResult, Job, OUTPUT_LIMIT_BYTES, USUAL_LIMIT};
use crate::engine::state::EngineState;
use crate::engine::tool_limits;
use crate::engine::trouble::Trouble;
use crate::engine::user_code::{TaskCall, UserCode};
use crate::graph::{Command, Prompt, Task, Work};
use crate::schedule::Key;
use crate::store::runs::RunOrigin;
use crate::sync::lock;

/// What tries of tasks have to tell before they end: to which task, and the event.
pub(super) type News = Arc<Mutex<Vec<(Key, Value)>>>;

/// How much of what a failing command wrote to its standard error is told, in bytes.
const TOLD_BYTES: usize = 2 << 10;

/// All that an agent that is a command needs.
pub(super) struct Asked {
    state: Arc<EngineState>,
    user_code: Arc<UserCode>,
    run: String,
    origin: RunOrigin,
    attempt: u32,
    news: News,
}

impl Drive {
    /// A try of a task whose agent is a command.
    pub(super) fn asked_command(&self, key: &Key) -> Asked {
        Asked {
            state: Arc::clone(&self.state),
            user_code: Arc::clone(&self.user_code),
            run: self.run.clone(),
            origin: self.origin.clone(),
            attempt: self.tasks.get(key).map_or(1, |row| row.attempts),
            news: Arc::clone(&self.news),
        }
    }

    /// Keeps what tries of tasks told.
    pub(super) fn take_news(&mut self) {
        let news = std::mem::take(&mut *lock(&self.news));
        for (key, event) in news {
            if let (Some(row), Some(bundle)) = (self.tasks.get_mut(&key), event["bundle"].as_str())
            {
                row.bundle = Some(bundle.to_owned());
            }
            self.event(event);
        }
    }
}

impl Asked {
    /// Asks the agent; what it answers.
    pub(super) async fn go(self, key: &Key, task: &Arc<Task>) -> Result<Value, Trouble> {
        let call = TaskCall { run: &self.run, key, task };
        let Work::Command { agent, prompt } = &task.work else {
            return Err(Trouble::new("INTERNAL", "the task has no command"));
        };
        let ready = commands::resolve(agent, self.state.options.agents.as_deref());
        let ready = ready.map_err(trouble)?;
        let place = self.state.executor.as_ref().ok_or_else(|| trouble(commands::no_executor()))?;
        let prompt = match prompt {
            Prompt::Text(text) => text.clone(),
            Prompt::Made { function, inputs } => {
                let work = Work::Compute { function: *function, inputs: inputs.clone() };
                match self.user_code.work(call, &work, &Arc::new(Notify::new())).await? {
                    Value::String(text) => text,
                    other => other.to_string(),
                }
            }
        };
        let tools = tool_limits::limits(
            &serde_json::from_str(&self.origin.environment).unwrap_or_default(),
        );
        let (command, input, variable) = ready.with_prompt(&prompt);
        let mut environment = agent.environment.0.clone();
        environment.extend(variable);
        let name = self.origin.name_of_try(&self.run, key, self.attempt);
        let owner = OwnerId::new(self.origin.owner.as_str());
        let job = Job {
            name: name.clone(),
            owner: owner.map_err(|error| Trouble::new("INTERNAL", error.to_string()))?,
            run: root(&self.run).to_owned(),
            node: key.to_string(),
            project: self.state.options.project_of(Path::new(&self.origin.file)),
            command,
            input,
            environment,
            image: agent.image.clone(),
            limit: [agent.timeout, task.timeout, tools.timeout]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(USUAL_LIMIT),
            output_limit_bytes: tools
                .output_bytes
                .unwrap_or(OUTPUT_LIMIT_BYTES)
                .min(OUTPUT_LIMIT_BYTES),
        };
        let finished = place.execute(&job).await.map_err(trouble)?;
        if let Some(bundle) = &finished.bundle {
            let event = json!({
                "type": "NodeBundle", "nodeId": key.node, "iteration": key.iteration,
                "attempt": self.attempt, "bundle": bundle,
            });
            lock(&self.news).push((key.clone(), event));
        }
        let written = answer(task, agent, finished)?;
        let text = ready.answer(&written);
        let text = text.map_err(|why| Trouble::new("INVALID_OUTPUT", why).retryable())?;
        let value = self.user_code.read(call, agent.read, &text).await;
        value.map_err(|error| Trouble { is_retryable: true, ..error.into() })
    }
}

/// What a command wrote, if it ended well.
fn answer(task: &Task, agent: &Command, finished: CommandResult) -> Result<String, Trouble> {
    let id = &task.id;
    let (code, why) = match finished.ending {
        Ending::Exited if finished.exit_code == Some(0) => {
            let text = String::from_utf8(finished.output);
            return match text {
                Ok(text) if !finished.is_cut => Ok(text),
                Ok(_) => Err(Trouble::new(
                    "INVALID_OUTPUT",
                    format!("the agent of task \"{id}\" wrote more than an answer may be"),
                )
                .retryable()),
                Err(_) => Err(Trouble::new(
                    "INVALID_OUTPUT",
                    format!("the agent of task \"{id}\" wrote something else than text"),
                )
                .retryable()),
            };
        }
        // As a shell says that there is no such program, or that it is none.
        Ending::NotRun => ("AGENT_CONFIG_INVALID", "cannot be run".to_owned()),
        Ending::Exited if matches!(finished.exit_code, Some(126 | 127)) => {
            ("AGENT_CONFIG_INVALID", "cannot be run".to_owned())
        }
        Ending::Exited => {
            let code = finished.exit_code.unwrap_or_default();
            ("AGENT_FAILED", format!("ended with exit code {code}"))
        }
        Ending::TimedOut => ("TASK_TIMEOUT", "took longer than it may".to_owned()),
        Ending::OutputExceeded => ("AGENT_FAILED", "wrote more than it may".to_owned()),
        other => ("AGENT_FAILED", format!("did not end by itself: {other:?}")),
    };
    let mut message = format!("the agent of task \"{id}\" {why}");
    let errors = told(&finished.errors, agent);
    if !errors.is_empty() {
        message.push_str(&format!(": {errors}"));
    }
    let trouble = Trouble::new(code, message);
    Err(if code == "AGENT_CONFIG_INVALID" { trouble } else { trouble.retryable() })
}

/// The last of what a command wrote, without what it was given to keep to itself.
fn told(errors: &[u8], agent: &Command) -> String {
    let mut text = String::from_utf8_lossy(errors).into_owned();
    for (name, value) in agent.environment.0.iter().filter(|(_, value)| value.len() > 3) {
        text = text.replace(value.as_str(), &format!("[{name}]"));
    }
    let text = text.trim();
    let mut from = text.len().saturating_sub(TOLD_BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_owned()
}

/// The run of the durable workflow that does a run, which may be far below it.
fn root(run: &str) -> &str {
    run.split(":child:").next().unwrap_or(run)
}

fn trouble(problem: Problem) -> Trouble {
    let message = match &problem.cause {
        Some(cause) => format!("{}: {cause}", problem.message),
        None => problem.message.clone(),
    };
    let trouble = Trouble::new(problem.code.as_str(), message);
    if problem.retryable { trouble.retryable() } else { trouble }
}
