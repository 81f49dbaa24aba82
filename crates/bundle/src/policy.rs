//! What a changed path means for the host: whether it may ever be applied, and whether a host
//! tool would run it automatically.
//!
//! Only names and link targets are judged; files are accessed only through callbacks of the
//! caller.

pub mod content;
mod executed;
mod families;
mod names;

use std::collections::HashMap;

use crate::manifest::{Entry, Node, Refusal};
use crate::path::RelativePath;

pub use executed::executed_by;
pub use names::is_git_directory;

use names::folded;

/// Why an entry at `path` can never be applied, regardless of other entries; `new` is the node
/// after the change (`None` for a deletion).
///
/// A link into a `.git` is refused like the `.git` itself: a later write through it by a host
/// tool would change the `.git`.
///
/// `project` is the path of the project. A link to a program of the system, or by an absolute path
/// into the project, is not refused: a sandbox shows both.
pub fn refusal(path: &RelativePath, new: Option<&Node>, project: &[u8]) -> Option<Refusal> {
    if path.components().any(is_git_directory) {
        return Some(Refusal::GitDirectory);
    }
    let Some(Node::Symlink { target }) = new else { return None };
    if link_leaves(path, target) && !leads_to_shown(path, target, project) {
        return Some(Refusal::LinkLeaves);
    }
    target.split(|b| *b == b'/').any(is_git_directory).then_some(Refusal::GitDirectory)
}

/// Sets the marks that follow from an entry's own path and node, [`refusal`] and [`executed_by`].
/// Never removes a mark.
pub fn classify(entry: &mut Entry, project: &[u8]) {
    let new = entry.change.new_node();
    let is_link = matches!(new, Some(Node::Symlink { .. }));
    entry.refused = entry.refused.or_else(|| refusal(&entry.path, new, project));
    if entry.refused.is_none() {
        entry.executed_by = entry.executed_by.or_else(|| executed_by(&entry.path, is_link));
    }
}

/// Whether a link at `path` may lead out of the project: its target is empty or absolute, climbs
/// above the root from the link's own directory, or has a `..` after a name.
///
/// The last form is refused although it may stay inside: the name before the `..` may itself be
/// a link, so that only the file system knows where the `..` leads. All other targets stay
/// inside as long as every link on their path does.
pub fn link_leaves(path: &RelativePath, target: &[u8]) -> bool {
    if target.is_empty() || target[0] == b'/' || target.contains(&0) {
        return true;
    }
    let mut depth = path.components().count() - 1;
    let mut named = false;
    for part in target.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." if named || depth == 0 => return true,
            b".." => depth -= 1,
            _ => named = true,
        }
    }
    false
}

/// Directories of programs and libraries, which every user of the host may read and only root may
/// change.
const SYSTEM_PROGRAMS: [&[u8]; 8] =
    [b"/bin", b"/lib", b"/lib32", b"/lib64", b"/libx32", b"/nix/store", b"/sbin", b"/usr"];

/// Whether a link leads below a directory of the system's programs, or into the project by the
/// project's own path. A `..` is resolved by its text only before the first name.
fn leads_to_shown(path: &RelativePath, target: &[u8], project: &[u8]) -> bool {
    if target.contains(&0) {
        return false;
    }
    let parts = |text: &[u8]| -> Vec<Vec<u8>> {
        text.split(|b| *b == b'/')
            .filter(|p| !matches!(*p, b"" | b"."))
            .map(<[u8]>::to_vec)
            .collect()
    };
    let mut whole = Vec::new();
    if target.first() != Some(&b'/') {
        whole = parts(project);
        whole.extend(parts(path.parent().as_ref().map_or(&b""[..], RelativePath::as_bytes)));
    }
    let mut is_named = false;
    for part in parts(target) {
        if part == b".." {
            if is_named || whole.pop().is_none() {
                return false;
            }
        } else {
            is_named = true;
            whole.push(part);
        }
    }
    let is_below = |top: &[u8]| {
        let top = parts(top);
        !top.is_empty() && whole.len() > top.len() && whole.starts_with(&top)
    };
    is_below(project) || SYSTEM_PROGRAMS.iter().any(|top| is_below(top))
}

/// Refuses every entry that lies in a directory which git takes for a repository without a
/// `.git`, or would take for one after the change: a `HEAD` beside `objects` and `refs`, or
/// beside a `commondir` (git's `is_git_directory`).
///
/// `base_holds(path)` returns whether anything exists at `path` in the project. Deletions are
/// not counted: a user may apply only some of the entries, so existing and added paths count
/// together.
pub fn refuse_bare_repositories<E>(
    entries: &mut [Entry],
    mut base_holds: impl FnMut(&RelativePath) -> Result<bool, E>,
) -> Result<(), E> {
    let mut added: HashMap<Option<RelativePath>, RepositoryMarks> = HashMap::new();
    for entry in entries.iter() {
        if entry.change.new_node().is_some() {
            for (directory, name) in ancestors(&entry.path) {
                let marks = RepositoryMarks::of(&name);
                if marks != RepositoryMarks::default() {
                    added.entry(directory).or_default().join(marks);
                }
            }
        }
    }
    let mut verdicts: HashMap<Option<RelativePath>, bool> = HashMap::new();
    for entry in entries.iter_mut().filter(|entry| entry.refused.is_none()) {
        for (directory, _) in ancestors(&entry.path) {
            let bare = match verdicts.get(&directory) {
                Some(known) => *known,
                None => {
                    let marks = added.get(&directory).copied().unwrap_or_default();
                    let bare = marks.complete(directory.as_ref(), &mut base_holds)?;
                    verdicts.insert(directory, bare);
                    bare
                }
            };
            if bare {
                entry.refused = Some(Refusal::BareRepository);
                break;
            }
        }
    }
    Ok(())
}

/// Each directory that contains `path` (`None` is the root), with the name in it that leads to
/// `path`.
fn ancestors(path: &RelativePath) -> impl Iterator<Item = (Option<RelativePath>, Vec<u8>)> {
    let mut next = Some(path.clone());
    std::iter::from_fn(move || {
        let here = next.take()?;
        let name = here.file_name().to_vec();
        next = here.parent();
        Some((here.parent(), name))
    })
}

/// Which parts of a repository's layout a directory holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RepositoryMarks {
    head: bool,
    objects: bool,
    refs: bool,
    common: bool,
}

impl RepositoryMarks {
    fn of(name: &[u8]) -> Self {
        let mut marks = Self::default();
        match folded(name).as_slice() {
            b"head" => marks.head = true,
            b"objects" => marks.objects = true,
            b"refs" => marks.refs = true,
            b"commondir" => marks.common = true,
            _ => {}
        }
        marks
    }

    fn join(&mut self, other: Self) {
        self.head |= other.head;
        self.objects |= other.objects;
        self.refs |= other.refs;
        self.common |= other.common;
    }

    /// Whether these marks and the content of `directory` in the base together make a repository.
    fn complete<E>(
        self,
        directory: Option<&RelativePath>,
        base_holds: &mut impl FnMut(&RelativePath) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut holds = |added: bool, name: &[u8]| {
            if added {
                return Ok(true);
            }
            let path = match directory {
                Some(directory) => directory.join(name),
                None => RelativePath::new(name),
            };
            path.map_or(Ok(false), |path| base_holds(&path))
        };
        if !holds(self.head, b"HEAD")? {
            return Ok(false);
        }
        Ok(holds(self.common, b"commondir")?
            || (holds(self.objects, b"objects")? && holds(self.refs, b"refs")?))
    }
}

#[cfg(test)]
mod tests;
