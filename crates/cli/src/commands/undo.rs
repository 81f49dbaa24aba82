//! `stockade undo`: takes back the last `apply` to a project.

use stockade_core::Problem;
use stockade_review::Bundles;

use crate::args::decide::Undo;
use crate::output;
use crate::problem::short_id;
use crate::review::{project_at, recover, text};

/// Undoes the last apply operation. It works on the files of this user, like `run`: a server has no
/// part in it.
pub(crate) fn run(arguments: &Undo) -> Result<u8, Problem> {
    let project = project_at(arguments.project.as_deref())?;
    let bundles = Bundles::open(&crate::data_dir::data_path()?)?;
    recover(bundles.data())?;
    let undone = bundles.undo(&project.root)?;
    if arguments.json {
        output::print_answer(&undone)?;
        return Ok(0);
    }
    let lines: String = undone.restored.iter().map(|path| format!("{}\n", path.lossy())).collect();
    output::print(&lines)?;
    let (id, count) = (short_id(&undone.bundle), text::count_paths(undone.restored.len()));
    eprint_line!("stockade: {count} of {} as before bundle {id}", undone.project.lossy());
    for path in &undone.kept {
        eprint_line!("  kept: {} contains other files", path.lossy());
    }
    if undone.waiting {
        eprint_line!("  the bundle waits again: show with `stockade diff {id}`");
    }
    Ok(0)
}
