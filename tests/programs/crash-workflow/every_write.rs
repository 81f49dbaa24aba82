//! Kills a process right before and right after each write of a run, and so before and after each
//! of its events, and lets another process continue: the run must end as if nothing had happened.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stockade_api::{Follow, RunById, RunStatus, TaskStatus, Workflows as _};
use stockade_workflow::engine::Workflows;

use crate::flows::Kind;
use crate::mortal::Death;
use crate::{Failure, sandbox_audit, worker};

/// How long a process may take for its work.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The expected output of the run.
const EXPECTED: (u64, u64) = (6, 5);
/// A number of writes that no run reaches.
const MAX_WRITES: u64 = 1_000;

/// A directory that is removed when dropped.
struct TestDir(PathBuf);

impl Drop for TestDir {
    fn drop(&mut self) {
        // A leftover in the temporary directory does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Kills at each write; returns the number of kills.
pub(crate) fn run(kind: Kind, stockade: &Path) -> Result<u64, Failure> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut kills = 0;
    for (death, word) in [(Death::Before, "before"), (Death::After, "after")] {
        for write in 0..MAX_WRITES {
            let path = format!("stockade-every-{}-{word}-{write}", std::process::id());
            let dir = TestDir(std::env::temp_dir().join(path));
            fs::create_dir(&dir.0)?;
            sandbox_audit::prepare(&dir.0)?;
            let first = wait(start(kind, &dir.0, stockade, Some((word, write)))?)?;
            let is_killed = !first.success();
            if is_killed && std::os::unix::process::ExitStatusExt::signal(&first) != Some(9) {
                return Err(format!("{word} write {write}: the process failed: {first}").into());
            }
            if is_killed && !wait(start(kind, &dir.0, stockade, None)?)?.success() {
                return Err(format!("{word} write {write}: the next process failed").into());
            }
            let reported = tokio.block_on(audit(kind, &dir.0, stockade));
            reported.map_err(|error| format!("{word} write {write} ({death:?}): {error}"))?;
            if !is_killed {
                break;
            }
            kills += 1;
        }
    }
    Ok(kills)
}

fn start(
    kind: Kind,
    dir: &Path,
    stockade: &Path,
    death: Option<(&str, u64)>,
) -> Result<Child, Failure> {
    let (word, write) = death.unwrap_or(("never", 0));
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("worker")
        .arg(kind.argument())
        .arg(dir)
        .arg(stockade)
        .arg(word)
        .arg(write.to_string());
    Ok(command.spawn()?)
}

fn wait(mut worker: Child) -> Result<ExitStatus, Failure> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(status) = worker.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            worker.kill()?;
            return Err("a process does not end".into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Checks what the processes have left.
async fn audit(kind: Kind, dir: &Path, stockade: &Path) -> Result<(), Failure> {
    let engines = worker::launch(kind, dir, stockade, None).await?;
    let workflows = &engines.workflows;
    let (ids, output) = match kind {
        Kind::Plain => (
            vec![worker::RUN.to_owned(), format!("{}:child:sub:0", worker::RUN)],
            json!({ "parts": EXPECTED.0, "others": EXPECTED.1 }),
        ),
        Kind::Sandbox => (vec![worker::RUN.to_owned()], json!({ "parts": 2 })),
    };
    for id in ids {
        check_finished(workflows, id, &output).await?;
    }
    let by_id = RunById { id: worker::CANCELLED.to_owned() };
    let caller = worker::caller()?;
    let found = workflows.inspect(&caller, by_id).await.map_err(|problem| problem.message)?;
    let is_open = found.tasks.iter().any(|task| task.finished_at.is_none())
        || found.sandboxes.iter().any(|sandbox| sandbox.status != "cancelled");
    if found.run.status != RunStatus::Cancelled || is_open {
        return Err(format!("what was cancelled is not: {found:?}").into());
    }
    if let Some(service) = &engines.service {
        sandbox_audit::audit(service, dir, stockade).await?;
    }
    engines.shutdown().await;
    Ok(())
}

/// Checks a run that has succeeded.
async fn check_finished(workflows: &Workflows, id: String, output: &Value) -> Result<(), Failure> {
    let caller = worker::caller()?;
    let by_id = RunById { id: id.clone() };
    let found = workflows.inspect(&caller, by_id).await.map_err(|problem| problem.message)?;
    if id == worker::RUN && found.run.output.as_ref() != Some(output) {
        return Err(format!("the run gave {:?}", found.run.output).into());
    }
    for task in &found.tasks {
        if task.status != TaskStatus::Finished || task.attempts != 1 || task.executions > 2 {
            return Err(format!("the run has left a task: {task:?}").into());
        }
    }
    for sandbox in &found.sandboxes {
        if sandbox.status != "finished" || sandbox.attempt != 1 {
            return Err(format!("the run has left a sandbox: {sandbox:?}").into());
        }
    }
    let follow = Follow { id, from: 0, wait_ms: 0, known_status: None };
    let describe = workflows.follow(&caller, follow).await.map_err(|problem| problem.message)?;
    check_order(&describe.events)
}

/// Each task finishes once, and is not started again afterwards.
pub(crate) fn check_order(events: &[Value]) -> Result<(), Failure> {
    let mut finished: Vec<(&Value, &Value)> = Vec::new();
    for event in events {
        let key = (&event["nodeId"], &event["iteration"]);
        match event["type"].as_str().unwrap_or_default() {
            "NodeFinished" | "NodeStarted" | "NodeWaiting" if finished.contains(&key) => {
                return Err(format!("{key:?} was finished, and then: {event}").into());
            }
            "NodeFinished" => finished.push(key),
            _ => {}
        }
    }
    Ok(())
}
