//! `stockade history`: what was decided about bundles, newest first.

use serde_json::json;
use stockade_api::Bytes;
use stockade_bundle::decisions::{Action, Decision};
use stockade_core::Problem;
use stockade_review::Bundles;

use crate::args::decide::History;
use crate::output;
use crate::problem::short_id;
use crate::review::{current_project, recover, text};
use crate::table::Table;

/// Prints the decisions about the bundles of the current project, or about all.
pub(crate) fn run(arguments: &History) -> Result<u8, Problem> {
    let bundles = Bundles::open(&crate::data_dir::data_path()?)?;
    recover(bundles.data())?;
    let mut decisions = bundles.history()?;
    if let Some(id) = &arguments.id {
        decisions.retain(|decision| decision.bundle.starts_with(id.as_str()));
    } else if !arguments.all {
        let project = current_project()?;
        decisions.retain(|decision| project.has_bytes(&decision.project));
    }
    decisions.reverse();
    if arguments.json {
        output::print_json(&json!({ "decisions": decisions }))?;
        return Ok(0);
    }
    if decisions.is_empty() {
        let is_everything = arguments.all || arguments.id.is_some();
        let place = if is_everything { "" } else { " about bundles of this project" };
        eprint_line!("stockade: no decisions{place}");
        return Ok(0);
    }
    let mut table = Table::new(["BUNDLE", "DECIDED", "ACTION", "PATHS", "PROJECT", "COMMAND"]);
    for decision in &decisions {
        table.row(row(decision, arguments.all || arguments.id.is_some()));
    }
    output::print(&table.text())?;
    Ok(0)
}

fn row(decision: &Decision, all: bool) -> [String; 6] {
    let action = match decision.action {
        Action::Applied => "applied",
        Action::Undone => "undone",
        Action::Rejected => "rejected",
        Action::Expired => "expired",
        Action::Branch => "branch",
        Action::Commits => "commits",
    };
    let project = Bytes(decision.project.clone());
    [
        short_id(&decision.bundle).to_owned(),
        format!("{:.0}", decision.decided_at),
        action.to_owned(),
        text::count_paths(decision.paths),
        if all { text::host_path(&project) } else { String::new() },
        text::command(&decision.command),
    ]
}
