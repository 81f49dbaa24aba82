//! `stockade runs`: the latest runs.

use stockade_api::ListRuns;

use crate::args::workflow::Runs;
use crate::commands::print::{escaped, print, print_text};
use crate::problem::Failure;
use crate::remote;

/// Lists them.
pub(crate) fn run(arguments: Runs) -> Result<u8, Failure> {
    let runs = remote::with(arguments.server_mode, async |remote| {
        let request = ListRuns { limit: arguments.limit };
        Ok(remote.workflows.runs(remote.caller(), request).await?)
    })?;
    if arguments.json {
        print(&serde_json::json!({ "runs": runs }))?;
        return Ok(0);
    }
    let widest = runs.iter().map(|run| run.id.len()).max().unwrap_or_default();
    let lines = runs.iter().map(|run| {
        format!("{:widest$}  {:9}  {}\n", run.id, run.status.as_str(), escaped(&run.name))
    });
    print_text(&lines.collect::<String>())?;
    Ok(0)
}
