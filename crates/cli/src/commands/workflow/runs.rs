//! `stockade runs`: the latest runs.

use stockade_api::ListRuns;

use super::holder;
use crate::args::workflow::Runs;
use crate::commands::print::{notify, print, print_text};
use crate::problem::Failure;
use crate::remote;
use crate::table::Table;

/// Lists them.
pub(crate) fn run(arguments: Runs) -> Result<u8, Failure> {
    let here = holder::of_chosen(arguments.limit)?;
    let mut runs = remote::with(arguments.server_mode, async |remote| {
        let request = ListRuns { limit: arguments.limit };
        Ok(remote.workflows.runs(remote.caller(), request).await?)
    })?;
    if !here.is_empty() {
        runs.extend(here);
        runs.sort_by_key(|run| std::cmp::Reverse(run.created_at));
        runs.truncate(usize::try_from(arguments.limit).unwrap_or(usize::MAX));
    }
    if arguments.json {
        print(&serde_json::json!({ "runs": runs }))?;
        return Ok(0);
    }
    let mut table = Table::new(["ID", "STATE", "CREATED", "NAME", "FILE"]);
    for run in &runs {
        table.row([
            run.id.clone(),
            run.status.as_str().to_owned(),
            format!("{:.0}", run.created_at),
            run.name.clone(),
            run.file.clone(),
        ]);
    }
    if runs.is_empty() {
        notify("no runs; start one: stockade up FILE");
    } else {
        print_text(&table.text())?;
    }
    Ok(0)
}
