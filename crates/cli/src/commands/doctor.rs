//! `stockade doctor`: which isolation mechanisms and limits this host supports.

use stockade_core::Enforcement;

use crate::args::Doctor;
use crate::doctor::{self, Diagnosis};
use crate::output;
use crate::problem::Failure;

/// Prints the diagnosis; the exit code is 0 when all isolation mechanisms work, else 1.
pub(crate) fn run(arguments: &Doctor) -> Result<u8, Failure> {
    let diagnosis = doctor::diagnose()?;
    if arguments.json {
        output::print_json(&diagnosis.to_json())?;
    } else {
        output::print(&text(&diagnosis))?;
    }
    Ok(u8::from(!diagnosis.all_walls_work()))
}

fn text(diagnosis: &Diagnosis) -> String {
    let mut lines = vec![
        format!("kernel    {}", diagnosis.kernel),
        format!("user      {}, inside ids: {}", diagnosis.user, diagnosis.identity),
        format!("view      {}", diagnosis.view.unwrap_or("none: no jail is possible")),
        format!("data      {} (STOCKADE_DATA_DIR)", diagnosis.data.display()),
        String::new(),
        "walls, each tested by an attempt from inside:".to_owned(),
    ];
    for proof in &diagnosis.walls {
        let mark = if proof.works { "ok     " } else { "MISSING" };
        lines.push(format!("  {mark} {:<13} {}", proof.wall.as_str(), proof.detail));
        lines.extend(proof.remedy.iter().map(|remedy| format!("          fix: {remedy}")));
    }
    if let Some(proof) = &diagnosis.policy {
        lines.push(String::new());
        lines.push("network:".to_owned());
        let mark = if proof.available { "ok     " } else { "MISSING" };
        lines.push(format!("  {mark} {:<13} {}", "by policy", proof.detail));
        lines.extend(proof.remedy.iter().map(|remedy| format!("          fix: {remedy}")));
    }
    lines.push(String::new());
    lines.push("limits:".to_owned());
    for proof in &diagnosis.limits {
        let mark = match proof.enforcement {
            Enforcement::Enforced => "enforced",
            Enforcement::Watched => "watched ",
            Enforcement::Refused => "refused ",
        };
        lines.push(format!("  {mark} {:<8} {}", proof.name, proof.enforced_by));
        lines.extend(proof.remedy.iter().map(|remedy| format!("          fix: {remedy}")));
    }
    lines.push(String::new());
    lines.push("runtimes of persistent sandboxes (`create --runtime`):".to_owned());
    for proof in &diagnosis.runtimes {
        let mark = if proof.available { "ok     " } else { "MISSING" };
        lines.push(format!("  {mark} {:<13} {}", proof.name, proof.detail));
        lines.extend(proof.remedy.iter().map(|remedy| format!("          fix: {remedy}")));
    }
    lines.push(String::new());
    lines.push("files that sandboxes share, as inodes and in memory:".to_owned());
    for part in &diagnosis.shared {
        lines.push(format!("  with {:<6} {:<12} {}", part.with, part.what, part.detail));
    }
    lines.extend(diagnosis.notes.iter().map(|note| format!("note: {note}")));
    lines.push(String::new());
    lines.push(if diagnosis.all_walls_work() {
        "all walls work: `stockade run` works here".to_owned()
    } else {
        "`stockade run` refuses to run here until all walls work".to_owned()
    });
    lines.join("\n") + "\n"
}
