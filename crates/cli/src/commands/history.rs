//! `stockade history`: what was decided about bundles, newest first.

use std::os::unix::ffi::OsStrExt as _;

use serde_json::json;
use stockade_bundle::decisions::{Action, Decision};
use stockade_core::Problem;
use stockade_review::Bundles;

use crate::args::decide::History;
use crate::output;
use crate::problem::short_id;
use crate::review::{current_project, recover, text};

/// Prints the decisions about the bundles of the current project, or about all.
pub(crate) fn run(arguments: &History) -> Result<u8, Problem> {
    let bundles = Bundles::open(&crate::data_dir::data_path()?)?;
    recover(bundles.data())?;
    let mut decisions = bundles.history()?;
    if let Some(id) = &arguments.id {
        decisions.retain(|decision| decision.bundle.starts_with(id.as_str()));
    } else if !arguments.all {
        let project = current_project(None)?;
        decisions.retain(|decision| decision.project == project.root.as_os_str().as_bytes());
    }
    decisions.reverse();
    if arguments.json {
        output::print_json(&json!({ "decisions": decisions }))?;
        return Ok(0);
    }
    if decisions.is_empty() {
        eprint_line!("stockade: no decisions");
    }
    output::print(&decisions.iter().map(line).collect::<String>())?;
    Ok(0)
}

fn line(decision: &Decision) -> String {
    let action = match decision.action {
        Action::Applied => "applied",
        Action::Undone => "undone",
        Action::Rejected => "rejected",
        Action::Expired => "expired",
        Action::Branch => "branch",
    };
    format!(
        "{}  {action:<8}  {:<14}  {:<12}  {}  {}\n",
        short_id(&decision.bundle),
        text::age(decision.decided_at_ms),
        text::count_paths(decision.paths),
        String::from_utf8_lossy(&decision.project),
        text::command(&decision.command),
    )
}
