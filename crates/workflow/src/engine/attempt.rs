//! One try of a task that is done by its author.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::author::{Author, Errand};
use super::trouble::Trouble;
use crate::graph::{Task, Work};

/// Does what a task does, once.
pub(crate) async fn attempt(author: &Author, errand: Errand<'_>) -> Result<Value, Trouble> {
    let task = errand.task;
    let is_agent = matches!(task.work, Work::Agent { .. });
    tried(author, errand).await.map_err(|mut trouble| {
        // An agent may answer better when it is asked again.
        trouble.is_retryable |= is_agent && trouble.code == "INVALID_OUTPUT";
        trouble
    })
}

async fn tried(author: &Author, errand: Errand<'_>) -> Result<Value, Trouble> {
    let (task, beats) = (errand.task, Arc::new(Notify::new()));
    let mut work = std::pin::pin!(author.work(errand, &task.work, &beats));
    let end = task.timeout.map(|limit| (Instant::now() + limit, limit, "TASK_TIMEOUT"));
    let mut silent = silence(task);
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
            () = beats.notified() => silent = silence(task),
            (limit, code) = late => {
                author.look_after().await;
                let what = if code == "TASK_TIMEOUT" { "took longer than" } else { "was silent for" };
                let message = format!("task \"{}\" {what} {} ms", task.id, limit.as_millis());
                return Err(Trouble::new(code, message).retryable());
            }
        }
    }
}

/// Until when a task may be silent from now on.
fn silence(task: &Task) -> Option<(Instant, Duration, &'static str)> {
    task.heartbeat_timeout.map(|limit| (Instant::now() + limit, limit, "TASK_HEARTBEAT_TIMEOUT"))
}
