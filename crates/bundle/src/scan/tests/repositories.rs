//! What git ignores in submodules and clones within a project, compared with git itself.

use super::*;
use crate::testing::git;

fn has_git() -> bool {
    let has_git = Command::new("git").arg("--version").output().is_ok();
    if !has_git {
        skipped("git is not installed");
    }
    has_git
}

/// A repository with rules, files that the rules do not match, and files that are tracked although
/// they match.
fn repository(root: &Path, rules: &str, tracked: &[&str]) {
    std::fs::create_dir_all(root).unwrap();
    git(root, &["init", "-q"]);
    write(root, ".gitignore", rules);
    git(root, &["add", ".gitignore"]);
    for name in tracked {
        write(root, name, "tracked\n");
        git(root, &["add", "-f", name]);
    }
    git(root, &["commit", "-q", "-m", "first"]);
}

/// The result of git itself for the files below some directory of the changed tree.
fn ignored_by_git(tree: &Path, repository: &str) -> Vec<String> {
    let status = git(&tree.join(repository), &["status", "-z", "--ignored", "-uall"]);
    let ignored = status.split('\0').filter_map(|line| line.strip_prefix("!! "));
    ignored.map(|name| format!("{repository}/{name}")).collect()
}

#[test]
fn each_repository_has_its_own_rules_and_index() {
    if !has_git() {
        return;
    }
    let fixture = fixture(ViewKind::Copy, |root| {
        let source = root.with_file_name("source");
        repository(&source, "*.tmp\n/inner\n", &["keep.log", "kept.tmp"]);
        repository(root, "*.log\n/vendor\n/broken\n", &["tracked.log"]);
        git(root, &["submodule", "--quiet", "add", source.to_str().unwrap(), "sub"]);
        git(root, &["clone", "-q", source.to_str().unwrap(), "vendor/clone"]);
        git(root, &["worktree", "add", "-q", "tree"]);
        repository(&root.join("vendor/clone/inner"), "*.o\n", &["x.tmp"]);
        std::fs::write(root.join("vendor/clone/.git/info/exclude"), "private\n").unwrap();
        // Git accepts neither as a repository.
        write(root, "empty/.git/config", "");
        write(root, "broken/name", "x");
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    let repositories = ["sub", "vendor/clone", "vendor/clone/inner", "tree"];
    let names =
        ["keep.log", "q.log", "kept.tmp", "q.tmp", "x.tmp", "private", "q.o", "tracked.log"];
    for repository in repositories {
        for name in names {
            fixture.write(&format!("{repository}/{name}"), "changed\n");
        }
    }
    for name in ["q.log", "tracked.log", "empty/q.log", "broken/q", "vendor/q"] {
        fixture.write(name, "changed\n");
    }
    // A repository that the command creates has no effect.
    fixture.write("broken/.git/HEAD", "ref: refs/heads/main\n");
    std::fs::create_dir_all(fixture.layer.join("broken/.git/objects")).unwrap();
    std::fs::create_dir_all(fixture.layer.join("broken/.git/refs")).unwrap();

    let changes = fixture.scan_with(&BundleLimits::RUN).unwrap();
    assert_eq!(changes.notes, Vec::<String>::new());
    let reported: std::collections::BTreeMap<String, bool> =
        changes.entries.iter().map(|entry| (entry.path.quoted(), entry.ignored)).collect();
    for (name, ignored) in [
        ("q.log", true),
        ("tracked.log", false),
        ("empty/q.log", true),
        ("broken/q", true),
        ("vendor/q", true),
        ("sub/keep.log", false),
        ("sub/q.log", false),
        ("sub/q.tmp", true),
        ("sub/kept.tmp", false),
        ("tree/q.log", true),
        ("vendor/clone/q.log", false),
        ("vendor/clone/private", true),
        ("vendor/clone/inner/q.tmp", false),
        ("vendor/clone/inner/q.o", true),
    ] {
        assert_eq!(reported.get(name), Some(&ignored), "{name}");
    }
    // The same files in the project, as after the bundle was applied.
    for repository in repositories {
        for name in names {
            std::fs::write(fixture.root.join(repository).join(name), "changed\n").unwrap();
        }
        let by_git = ignored_by_git(&fixture.root, repository);
        for name in names {
            let name = format!("{repository}/{name}");
            assert_eq!(reported[&name], by_git.contains(&name), "{name}: {by_git:?}");
        }
    }
}

#[test]
fn an_index_that_cannot_be_read_is_named_with_its_repository() {
    if !has_git() {
        return;
    }
    let fixture = fixture(ViewKind::Overlay, |root| {
        repository(&root.join("sub"), "*.log\n", &["keep.log"]);
        std::fs::write(root.join("sub/.git/index"), "damaged").unwrap();
        // A pointer whose target does not point back is not followed.
        repository(&root.with_file_name("elsewhere"), "*.log\n", &["keep.log"]);
        write(root, "stranger/.git", "gitdir: ../../elsewhere/.git\n");
        write(root, "stranger/.gitignore", "*.log\n");
    });
    for name in ["sub/keep.log", "stranger/keep.log"] {
        fixture.write(name, "changed\n");
    }
    let changes = fixture.scan_with(&BundleLimits::RUN).unwrap();
    let reported: Vec<_> = changes.entries.iter().map(summarize).collect();
    let expected = ["+stranger/keep.log ignored", "~sub/keep.log ignored"];
    assert!(expected.iter().all(|entry| reported.contains(&(*entry).to_owned())), "{reported:?}");
    assert_eq!(
        changes.notes,
        [
            "git has no index in stranger: all files count as untracked",
            "the file is not a git index in sub: all files count as untracked"
        ]
    );
}

#[test]
fn case_counts_as_the_repository_says() {
    if !has_git() {
        return;
    }
    let fixture = fixture(ViewKind::Overlay, |root| {
        repository(root, "*.LOG\n/Build/\n", &[]);
        git(root, &["config", "core.ignorecase", "true"]);
        repository(&root.join("sub"), "*.LOG\n", &[]);
    });
    let names = ["x.log", "x.LOG", "sub/x.log", "sub/x.LOG", "build/x", "builds/x"];
    for name in names {
        fixture.write(name, "changed\n");
    }
    let entries = fixture.scan();
    let is_ignored = |name: &str| {
        entries.iter().find(|entry| entry.path.as_bytes() == name.as_bytes()).unwrap().ignored
    };
    for name in names {
        write(&fixture.root, name, "changed\n");
    }
    for name in names {
        let (root, name_there) = match name.strip_prefix("sub/") {
            Some(there) => (fixture.root.join("sub"), there),
            None => (fixture.root.clone(), name),
        };
        let mut check = Command::new("git");
        check.args(["check-ignore", "-q", name_there]).current_dir(root);
        let by_git = check.status().unwrap().success();
        assert_eq!(is_ignored(name), by_git, "{name}");
    }
}
