//! The layers of a git directory that lies outside of the project: that of a linked worktree or of
//! a submodule. Git writes to it, so it has a view of its own beside that of the project.

use crate::beneath::Dir;
use crate::path::RelativePath;
use crate::project::Git;

use super::{Error, Ownership, copy, open_or_create, set_mode, with_operation};
use crate::manifest::ViewKind;

/// The directory of these layers, in that of the view.
pub const DIRECTORY: &str = "git";

/// The layer that receives what git writes, if the project has a git directory outside of it.
pub(super) fn create(
    git: &Git,
    kind: ViewKind,
    ownership: Option<Ownership>,
    dir: &Dir,
) -> Result<Option<Dir>, Error> {
    let Git::Worktree { common_dir, .. } = git else { return Ok(None) };
    let lower = with_operation("open", Dir::open(common_dir))?;
    let stat = with_operation("inspect", lower.stat_self())?;
    let layers = open_or_create(dir, &RelativePath::literal(DIRECTORY))?;
    set_mode(&layers, 0o711)?;
    let (layer, work) = match kind {
        ViewKind::Overlay => (
            open_or_create(&layers, &RelativePath::literal("upper"))?,
            Some(open_or_create(&layers, &RelativePath::literal("work"))?),
        ),
        ViewKind::Copy => {
            let layer = open_or_create(&layers, &RelativePath::literal("copy"))?;
            copy::copy_tree(&lower, &layer, ownership)?;
            (layer, None)
        }
    };
    if let Some(ownership) = ownership {
        let (uid, gid) = (ownership.host_id(stat.uid)?, ownership.host_id(stat.gid)?);
        for layer in [Some(&layer), work.as_ref()].into_iter().flatten() {
            with_operation("give away", layer.chown_self(uid, gid))?;
        }
    }
    set_mode(&layer, stat.mode)?;
    Ok(Some(layer))
}

/// The layer of a view that exists.
pub(super) fn find(dir: &Dir, kind: ViewKind) -> Option<Dir> {
    let layer = match kind {
        ViewKind::Overlay => "upper",
        ViewKind::Copy => "copy",
    };
    dir.open_dir(&RelativePath::literal(DIRECTORY).join(layer.as_bytes()).ok()?).ok()
}
