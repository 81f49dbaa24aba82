//! One attempt of a task that the user's code executes, within its time limits.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::calls::TaskCall;
use super::code::UserCode;
use crate::engine::task_error::TaskError;
use crate::graph::{Task, Work};

/// Executes a task once.
pub(crate) async fn attempt(user_code: &UserCode, call: TaskCall<'_>) -> Result<Value, TaskError> {
    let task = call.task;
    let is_agent = matches!(task.work, Work::Agent { .. });
    execute(user_code, call).await.map_err(|mut error| {
        // An agent may give a better answer in the next attempt.
        error.is_retryable |= is_agent && error.code == "INVALID_OUTPUT";
        error
    })
}

async fn execute(user_code: &UserCode, call: TaskCall<'_>) -> Result<Value, TaskError> {
    let (task, heartbeats) = (call.task, Arc::new(Notify::new()));
    let mut work = std::pin::pin!(user_code.work(call, &task.work, &heartbeats));
    let end = task.timeout.map(|limit| (Instant::now() + limit, limit, "TASK_TIMEOUT"));
    let mut silent = silence_deadline(task);
    loop {
        let first = [end, silent].into_iter().flatten().min();
        let late = async {
            match first {
                Some((at, limit, code)) => {
                    tokio::time::sleep_until(at).await;
                    (limit, code)
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = &mut work => return Ok(answer?),
            () = heartbeats.notified() => silent = silence_deadline(task),
            (limit, code) = late => {
                user_code.kill_if_stuck().await;
                let what = if code == "TASK_TIMEOUT" { "took longer than" } else { "sent no heartbeat for" };
                let message = format!("task \"{}\" {what} {} ms", task.id, limit.as_millis());
                return Err(TaskError::new(code, message).retryable());
            }
        }
    }
}

/// The deadline for the next heartbeat of a task.
fn silence_deadline(task: &Task) -> Option<(Instant, Duration, &'static str)> {
    task.heartbeat_timeout.map(|limit| (Instant::now() + limit, limit, "TASK_HEARTBEAT_TIMEOUT"))
}
