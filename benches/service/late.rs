//! Tools that take longer than they may: how long after their time they and all that they have begun
//! are ended and told of.

use std::time::{Duration, Instant};

use serde_json::{Map, json};
use stockade_api::{RunTool, Sandboxes as _};
use stockade_core::Code;
use stockade_measure::Series;

use crate::Failure;
use crate::scene::Scene;

/// How often.
const TIMES: usize = 20;
/// How long each may take.
const ALLOWED: Duration = Duration::from_millis(100);
/// Processes below processes, of which one has left its parent.
const TREE: &str = "(sleep 60 &); sleep 60 | sleep 60";

/// Adds by how much each was late.
pub(crate) async fn measure(scene: &Scene, series: &mut Series) -> Result<(), Failure> {
    for _ in 0..TIMES {
        let request = RunTool {
            sandbox_id: scene.own.clone(),
            tool: "shell".to_owned(),
            arguments: Map::from_iter([("command".to_owned(), json!(TREE))]),
            timeout_seconds: Some(ALLOWED.as_secs_f64()),
        };
        let begun = Instant::now();
        match scene.service.run_tool(&scene.caller, request).await {
            Err(problem) if problem.code == Code::TimedOut => {
                series.push_time(begun.elapsed().saturating_sub(ALLOWED));
            }
            other => return Err(format!("a tool ended as {other:?}").into()),
        }
    }
    Ok(())
}
