//! A task that is an operation with named ports. It is one durable operation for each attempt, and
//! found again after a crash.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use stockade_api::{Caller, RunNode, Sandboxes};
use stockade_core::{OwnerId, Problem};
use stockade_service::nodes::{PASSTHROUGH, STREAM, find};

use super::state::Execution;
use crate::engine::commands::no_executor;
use crate::engine::run_servers;
use crate::engine::task_error::TaskError;
use crate::graph::PortNode;
use crate::schedule::Key;

/// An attempt of such a task.
pub(super) struct NodeCall {
    sandboxes: Option<Arc<dyn Sandboxes>>,
    owner: String,
    key: String,
    request: RunNode,
    timeout: Option<Duration>,
}

impl Execution {
    /// Collects the data for an attempt: its inputs, with those that other tasks pass through.
    pub(super) fn node_call(
        &self,
        key: &Key,
        node: &PortNode,
        timeout: Option<Duration>,
    ) -> NodeCall {
        let mut inputs = node.inputs.clone();
        let accepts = |port: &str| {
            PASSTHROUGH.contains(&port)
                || find(&node.name).is_some_and(|node| node.inputs.contains(&port))
        };
        for id in node.from.iter().rev() {
            let finished = self.tasks.finished().filter(|(key, _)| key.node == *id);
            let last = finished.max_by_key(|(key, _)| key.iteration);
            let Some(output) = last.and_then(|(_, row)| row.output.as_ref()) else { continue };
            for port in PASSTHROUGH.iter().chain([&STREAM]).filter(|port| accepts(port)) {
                let value = output.get(port).filter(|value| !value.is_null());
                if let (false, Some(value)) = (inputs.contains_key(*port), value) {
                    inputs.insert((*port).to_owned(), value.clone());
                }
            }
        }
        let environment = self.run.environment();
        let server = run_servers::of(&environment);
        let server = server.map(|url| run_servers::named(&self.run.id, url));
        let attempt = self.tasks.current_attempt(key);
        NodeCall {
            sandboxes: self.state.options.sandboxes.clone(),
            owner: self.run.origin.owner.clone(),
            key: self.run.attempt_name(key, attempt),
            request: RunNode { node: node.name.clone(), inputs, server },
            timeout,
        }
    }
}

impl NodeCall {
    /// Runs the operation; returns the values of its output ports.
    pub(super) async fn execute(self) -> Result<Value, TaskError> {
        let sandboxes = self.sandboxes.ok_or_else(|| task_error(no_executor()))?;
        let owner = OwnerId::new(self.owner.as_str());
        let owner = owner.map_err(|error| TaskError::new("INTERNAL", error.to_string()))?;
        let caller = Caller::new(owner).with_key(self.key);
        let work = sandboxes.run_node(&caller, self.request);
        let done = match self.timeout {
            None => work.await,
            Some(limit) => match tokio::time::timeout(limit, work).await {
                Ok(done) => done,
                Err(_) => {
                    let message = format!("it took longer than {} ms", limit.as_millis());
                    return Err(TaskError::new("TASK_TIMEOUT", message).retryable());
                }
            },
        };
        done.map(|made| Value::Object(made.outputs)).map_err(task_error)
    }
}

fn task_error(problem: Problem) -> TaskError {
    let message = match &problem.cause {
        Some(cause) => format!("{}: {cause}", problem.message),
        None => problem.message.clone(),
    };
    let error = TaskError::new(problem.code.as_str(), message);
    if problem.retryable { error.retryable() } else { error }
}
