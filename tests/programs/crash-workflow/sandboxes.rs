//! Runs whose child waits for answers inside a sandbox: it gets them while servers are killed, and
//! must execute each of its tasks once.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::{Failure, TestDir};

/// The workflow. The changes of the sandbox are applied without a review.
pub(crate) const FLOW: &str = r#"
import { createSmithers } from "stockade";
const { Workflow, Sequence, Task, Approval, Signal, Sandbox, smithers, outputs } =
  createSmithers({ part: {}, other: {}, output: {} });
const later = (ms) => new Promise((done) => setTimeout(done, ms));
export default smithers((ctx) => (
  <Workflow name="boxes">
    <Sandbox id="box" output={outputs.output} onLimit="wait">
      {(inner) => (
        <Sequence>
          <Task id="before" output={outputs.part}>{async () => { await later(50); return { n: 1 }; }}</Task>
          <Approval id="ok" output={outputs.other} />
          <Task id="between" output={outputs.part}>{async () => { await later(50); return { n: 2 }; }}</Task>
          <Signal id="word" schema={outputs.other} />
          <Task id="after" output={outputs.output}>
            {() => ({ parts: inner.outputs(outputs.part).length, others: inner.outputs(outputs.other).length })}
          </Task>
        </Sequence>
      )}
    </Sandbox>
  </Workflow>
));
"#;

/// The tasks of the child that have an effect.
const TASKS: [&str; 3] = ["before", "between", "after"];

/// Answers what a run waits for.
pub(crate) fn answer(
    dir: &TestDir,
    program: &Path,
    id: &str,
    found: &Value,
) -> Result<(), Failure> {
    for wait in found["waits"].as_array().into_iter().flatten() {
        let words: &[&str] = match wait["kind"].as_str() {
            Some("approval") => &["approve", id, "box/ok"],
            Some("signal") => &["signal", id, "box/word", "--payload", "{\"n\": 1}"],
            _ => continue,
        };
        // Whether the answer was received is visible in whether the run continues.
        dir.call(program, words)?;
    }
    Ok(())
}

/// Checks a run that has ended; returns how many tasks its child executed.
pub(crate) fn audit(dir: &TestDir, program: &Path, id: &str) -> Result<u64, Failure> {
    let found = dir.json(program, &["inspect", id, "--json"])?;
    let found = found.first().ok_or("nothing is told")?;
    let wanted = json!({ "parts": 2, "others": 2 });
    if found["run"]["status"] != "finished" || found["run"]["output"] != wanted {
        return Err(format!("run {id} is not finished as it should be: {found}").into());
    }
    if found["tasks"][0]["attempts"] != 1 {
        return Err(format!("run {id} needed several tries: {found}").into());
    }
    let path = format!(".smithers/sandboxes/{id}/box/result/logs/stream.ndjson");
    let log = fs::read_to_string(dir.project().join(path))?;
    let events: Vec<Value> = log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for task in TASKS {
        let started = |event: &&Value| event["type"] == "NodeStarted" && event["nodeId"] == task;
        let times = events.iter().filter(started).count();
        if times != 1 {
            return Err(format!("the child of run {id} began {task} {times} times").into());
        }
    }
    Ok(TASKS.len() as u64)
}
