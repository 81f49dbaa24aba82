//! Finding projects, their git directories and commits.

use std::process::Command;

use super::*;
use crate::testing::git;

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

#[test]
fn the_nearest_git_directory_is_the_root() {
    let (_scratch, top) = scratch();
    let deep = top.join("project/a/b");
    std::fs::create_dir_all(&deep).unwrap();
    let found = Project::find(&deep, None).unwrap();
    // A directory above the scratch directory may contain a `.git`.
    if found.git == Git::None {
        assert_eq!(found.root, deep);
    }
    std::fs::create_dir(top.join("project/.git")).unwrap();
    let found = Project::find(&deep, None).unwrap();
    assert_eq!((found.root, found.git), (top.join("project"), Git::Directory));
    assert_eq!(found.base_ref, None);
}

#[test]
fn the_root_and_home_are_refused() {
    let (_scratch, top) = scratch();
    let home = top.join("home");
    std::fs::create_dir_all(home.join("work")).unwrap();
    std::fs::create_dir(home.join("work/.git")).unwrap();
    assert!(matches!(Project::find(Path::new("/"), None), Err(Error::Root)));
    assert!(matches!(Project::find(Path::new("a"), None), Err(Error::NotAbsolute(_))));
    assert!(Project::find(&home.join("work"), Some(&home)).is_ok());
    std::os::unix::fs::symlink(&home, top.join("link")).unwrap();
    for (root, home) in [(&home, home.clone()), (&home, top.join("link")), (&top, home.clone())] {
        let refused = Project::open(root, Some(&home)).unwrap_err();
        assert!(matches!(refused, Error::Home(_)), "{refused}");
        assert!(refused.hint().is_some());
    }
}

#[test]
fn the_commit_of_head_is_read_as_git_reads_it() {
    if Command::new("git").arg("--version").output().is_err() {
        crate::testing::skipped("git is not installed");
        return;
    }
    let (_scratch, top) = scratch();
    git(&top, &["init", "-q", "main"]);
    let main = top.join("main");
    git(&main, &["commit", "-q", "--allow-empty", "-m", "one"]);
    let head_of = |root: &Path| Some(git(root, &["rev-parse", "HEAD"]).trim().to_owned());
    let head = head_of(&main);
    let base = |root: &Path| Project::find(root, None).unwrap().base_ref;
    assert_eq!(base(&main), head);
    git(&main, &["pack-refs", "--all"]);
    assert_eq!(base(&main), head);
    git(&main, &["checkout", "-q", "--detach"]);
    assert_eq!(base(&main), head);

    git(&main, &["worktree", "add", "-q", "-b", "side", "../side"]);
    git(&top.join("side"), &["commit", "-q", "--allow-empty", "-m", "two"]);
    let side = Project::find(&top.join("side"), None).unwrap();
    assert_eq!(side.base_ref, head_of(&top.join("side")));
    assert_eq!(
        side.git,
        Git::Worktree { git_dir: main.join(".git/worktrees/side"), common_dir: main.join(".git") }
    );
    assert!(side.git_file(&RelativePath::literal("HEAD"), 100).is_some());
    assert!(side.git_common_file(&RelativePath::literal("config"), 10_000).is_some());

    git(&main, &["submodule", "--quiet", "add", "../side", "module"]);
    let module = Project::find(&main.join("module"), None).unwrap();
    assert_eq!(module.base_ref, side.base_ref);
    assert!(matches!(module.git, Git::Worktree { .. }));
}

#[test]
fn a_pointer_that_nothing_points_back_to_is_not_followed() {
    if Command::new("git").arg("--version").output().is_err() {
        crate::testing::skipped("git is not installed");
        return;
    }
    let (_scratch, top) = scratch();
    git(&top, &["init", "-q", "victim"]);
    let stranger = top.join("stranger");
    std::fs::create_dir(&stranger).unwrap();
    std::fs::write(stranger.join(".git"), "gitdir: ../victim/.git\n").unwrap();
    let project = Project::find(&stranger, None).unwrap();
    assert_eq!((&project.root, &project.git), (&stranger, &Git::Unverified));
    assert_eq!(project.git_file(&RelativePath::literal("HEAD"), 100), None);
    std::fs::remove_file(stranger.join(".git")).unwrap();
    std::os::unix::fs::symlink("../victim/.git", stranger.join(".git")).unwrap();
    assert_eq!(Project::find(&stranger, None).unwrap().git, Git::Unverified);
}
