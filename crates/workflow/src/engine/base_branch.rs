//! The base of a `<Worktree>`. Its agents start with the files of the project as they are, so a base that is
//! named must be the branch that is checked out.

use std::fs;
use std::path::{Path, PathBuf};

/// Why the agents of a worktree cannot start from a branch; `None` if the project has it checked out, or is
/// no git repository, so that there is only one state of its files.
pub(super) fn mismatch(project: &Path, base: &str) -> Option<String> {
    let head = fs::read_to_string(git_directory(project)?.join("HEAD")).ok()?;
    let head = head.trim();
    let current = head.strip_prefix("ref: refs/heads/");
    if current == Some(base) {
        return None;
    }
    let current = current.map_or_else(|| head.to_owned(), |name| format!("branch \"{name}\""));
    Some(format!(
        "`baseBranch` is \"{base}\", but the project has {current} checked out, and agents start with the files \
         of the project as they are: check out \"{base}\", or name the branch that is"
    ))
}

/// The directory of git of the repository that contains a directory.
fn git_directory(inside: &Path) -> Option<PathBuf> {
    inside.ancestors().find_map(|directory| {
        let git = directory.join(".git");
        if git.is_dir() {
            return Some(git);
        }
        // That of a linked worktree is elsewhere.
        let link = fs::read_to_string(&git).ok()?;
        Some(directory.join(link.strip_prefix("gitdir: ")?.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_what_is_checked_out() {
        let place = tempfile::tempdir().unwrap();
        let project = place.path().join("a/b");
        fs::create_dir_all(&project).unwrap();
        assert_eq!(mismatch(&project, "main"), None);
        fs::create_dir(place.path().join(".git")).unwrap();
        fs::write(place.path().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(mismatch(&project, "main"), None);
        assert!(mismatch(&project, "next").unwrap().contains("branch \"main\" checked out"));
        fs::write(project.join(".git"), "gitdir: ../linked\n").unwrap();
        fs::create_dir(place.path().join("a/linked")).unwrap();
        fs::write(place.path().join("a/linked/HEAD"), "0123abc\n").unwrap();
        assert!(mismatch(&project, "main").unwrap().contains("0123abc"));
    }
}
