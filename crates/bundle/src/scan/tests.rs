//! Detecting changes in real overlays and simulated layers.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode};

use super::*;
use crate::beneath::Timestamp;
use crate::data::DataDir;
use crate::manifest::{Change, ContentHash, ExecutedBy, Node, Refusal, ViewKind};
use crate::testing::{chmod, skipped};

mod origins;
mod renamed;
mod repositories;

struct Fixture {
    _scratch: tempfile::TempDir,
    root: PathBuf,
    /// The upper layer or the copy.
    layer: PathBuf,
    view: View,
}

/// A view of a project that `fill` creates.
fn fixture(kind: ViewKind, fill: impl FnOnce(&Path)) -> Fixture {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().canonicalize().unwrap().join("project");
    std::fs::create_dir_all(root.join(".git")).unwrap();
    fill(&root);
    let data = DataDir::open(&scratch.path().join("data")).unwrap();
    let project = Project::find(&root, None).unwrap();
    let started = Timestamp { seconds: 0, nanoseconds: 0 };
    let view = View::create(&data, &project, kind, None, &[], started).unwrap();
    let layer = if kind == ViewKind::Overlay { "upper" } else { "copy" };
    let layer = data.path().join("views").join(view.id()).join(layer);
    Fixture { _scratch: scratch, root, layer, view }
}

impl Fixture {
    fn scan_with(&self, limits: &BundleLimits) -> Result<Changes, Error> {
        scan(&self.view, &Project::find(&self.root, None).unwrap(), limits)
    }

    fn scan(&self) -> Vec<Entry> {
        self.scan_with(&BundleLimits::RUN).unwrap().entries
    }

    /// The entries in short form: `+file`, `~file`, `-file`, with their marks.
    fn summary(&self) -> Vec<String> {
        self.scan().iter().map(summarize).collect()
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.layer.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Runs a shell script in a real overlay, if this kernel lets this process mount one.
    fn in_overlay(&self, script: &str) -> bool {
        let [work, merged] = ["work", "merged"].map(|name| self.layer.parent().unwrap().join(name));
        std::fs::create_dir_all(&merged).unwrap();
        let script = format!(
            "mount -t overlay overlay -o lowerdir={},upperdir={},workdir={},userxattr {merged} \
             || exit 77; cd {merged}; {script}",
            self.root.display(),
            self.layer.display(),
            work.display(),
            merged = merged.display(),
        );
        let status = Command::new("unshare").args(["-Urm", "sh", "-ec", &script]).status();
        let is_done = status.as_ref().is_ok_and(std::process::ExitStatus::success);
        if !is_done {
            let is_refused =
                status.is_err() || status.is_ok_and(|it| matches!(it.code(), Some(1 | 77)));
            assert!(is_refused, "{script}");
            skipped("no overlay can be mounted here");
        }
        is_done
    }

    fn whiteout(&self, name: &str) {
        let path = self.layer.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Linux lets every user create device 0:0, which is not a real device.
        rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    }

    fn opaque(&self, name: &str) {
        let path = self.layer.join(name);
        std::fs::create_dir_all(&path).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(path, "user.overlay.opaque", b"y", flags).unwrap();
    }
}

fn summarize(entry: &Entry) -> String {
    let sign = match entry.change {
        Change::Add { .. } => "+",
        Change::Modify { .. } => "~",
        Change::Delete { .. } => "-",
    };
    let mut text = format!("{sign}{}", entry.path);
    if let Some(from) = &entry.renamed_from {
        text += &format!(" from {from}");
    }
    if let Some(refusal) = entry.refused {
        text += &format!(" {refusal:?}");
    }
    if let Some(by) = entry.executed_by {
        text += &format!(" {by:?}");
    }
    for (flag, name) in [(entry.ignored, " ignored"), (entry.conflict, " conflict")] {
        text += if flag { name } else { "" };
    }
    text
}

fn file(content: &str, mode: u32) -> Node {
    let hash = ContentHash::of(content.as_bytes());
    Node::File { hash, size: content.len() as u64, mode }
}

fn write(root: &Path, name: &str, content: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, content).unwrap();
    chmod(&path, 0o644);
}

#[test]
fn an_untouched_view_has_no_changes() {
    for kind in [ViewKind::Overlay, ViewKind::Copy] {
        let fixture = fixture(kind, |root| {
            write(root, "a/b", "x");
            write(root, "a/secret", "x");
            chmod(root.join("a/secret"), 0);
            symlink("nowhere", root.join("link")).unwrap();
            let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        });
        assert_eq!(fixture.summary(), Vec::<String>::new());
    }
}

#[test]
fn each_kind_of_change_becomes_an_entry() {
    let fixture = fixture(ViewKind::Overlay, |root| {
        for name in
            ["edited", "deleted", "copied-up", "mode", "becomes-link", "becomes-directory", "kept"]
        {
            write(root, name, name);
        }
        symlink("old", root.join("retargeted")).unwrap();
        write(root, "tree/a/b", "b");
        write(root, "becomes-file/inner", "inner");
        write(root, "reset/gone", "gone");
        write(root, "reset/stays", "stays");
        chmod(root.join("reset"), 0o755);
    });
    fixture.write("edited", "new content");
    chmod(fixture.layer.join("edited"), 0o4755);
    fixture.whiteout("deleted");
    fixture.whiteout("never-was");
    fixture.write("copied-up", "copied-up");
    fixture.write("mode", "mode");
    chmod(fixture.layer.join("copied-up"), 0o644);
    chmod(fixture.layer.join("mode"), 0o755);
    symlink("kept", fixture.layer.join("becomes-link")).unwrap();
    fixture.write("becomes-directory/inner", "x");
    symlink("kept", fixture.layer.join("retargeted")).unwrap();
    fixture.whiteout("tree");
    fixture.write("becomes-file", "file");
    fixture.opaque("reset");
    fixture.write("reset/stays", "stays");
    fixture.write("reset/new", "");
    chmod(fixture.layer.join("reset"), 0o755);
    chmod(fixture.layer.join("reset/stays"), 0o644);
    fixture.write("new/empty", "");
    std::fs::create_dir(fixture.layer.join("new/directory")).unwrap();

    let entries = fixture.scan();
    assert_eq!(
        entries.iter().map(summarize).collect::<Vec<_>>(),
        [
            "~becomes-directory",
            "+becomes-directory/inner",
            "~becomes-file",
            "-becomes-file/inner",
            "~becomes-link",
            "-deleted",
            "~edited",
            "~mode",
            "+new",
            "+new/directory",
            "+new/empty",
            "-reset/gone",
            "+reset/new",
            "~retargeted",
            "-tree",
            "-tree/a",
            "-tree/a/b",
        ]
    );
    let change = |name: &str| {
        &entries.iter().find(|entry| entry.path.as_bytes() == name.as_bytes()).unwrap().change
    };
    assert_eq!(
        *change("edited"),
        Change::Modify { old: file("edited", 0o644), new: file("new content", 0o755) }
    );
    assert_eq!(
        *change("mode"),
        Change::Modify { old: file("mode", 0o644), new: file("mode", 0o755) }
    );
    assert_eq!(
        *change("becomes-link"),
        Change::Modify {
            old: file("becomes-link", 0o644),
            new: Node::Symlink { target: b"kept".to_vec() }
        }
    );
    assert_eq!(*change("tree/a/b"), Change::Delete { old: file("b", 0o644) });
}

#[test]
fn odd_names_and_locked_files_are_read() {
    let fixture = fixture(ViewKind::Overlay, |_| {});
    let odd = std::ffi::OsStr::from_bytes(b"new\nline \xff");
    std::fs::create_dir(fixture.layer.join("locked")).unwrap();
    std::fs::write(fixture.layer.join("locked").join(odd), "x").unwrap();
    chmod(fixture.layer.join("locked").join(odd), 0);
    chmod(fixture.layer.join("locked"), 0);
    chmod(&fixture.layer, 0);
    let entries = fixture.scan();
    assert_eq!(
        entries.iter().map(|e| e.path.as_bytes()).collect::<Vec<_>>(),
        [&b"locked"[..], b"locked/new\nline \xff"]
    );
    assert_eq!(entries[0].change, Change::Add { new: Node::Directory { mode: 0 } });
    assert_eq!(entries[1].change, Change::Add { new: file("x", 0) });
}

#[test]
fn what_may_not_be_applied_is_refused() {
    let fixture = fixture(ViewKind::Overlay, |root| {
        write(root, "bare/objects/x", "x");
        write(root, "bare/refs/x", "x");
    });
    fixture.write(".git/hooks/pre-commit", "evil");
    fixture.write("sub/.GIT/config", "evil");
    fixture.write("bare/HEAD", "ref: refs/heads/main");
    fixture.write("bare/hooks/post-checkout", "evil");
    symlink("/etc/passwd", fixture.layer.join("absolute")).unwrap();
    symlink("../up", fixture.layer.join("leaves")).unwrap();
    let fifo = fixture.layer.join("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::from_bits_truncate(0o644), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.layer.join("socket")).unwrap();
    fixture.write(".envrc", "evil");
    fixture.write("a/.vscode/tasks.json", "{}");
    assert_eq!(
        fixture.summary(),
        [
            "+.envrc Shell",
            "+.git/hooks GitDirectory",
            "+.git/hooks/pre-commit GitDirectory",
            "+a",
            "+a/.vscode Editor",
            "+a/.vscode/tasks.json Editor",
            "+absolute LinkLeaves",
            "+bare/HEAD BareRepository",
            "+bare/hooks BareRepository",
            "+bare/hooks/post-checkout BareRepository",
            "+fifo SpecialFile",
            "+leaves LinkLeaves",
            "+socket SpecialFile",
            "+sub",
            "+sub/.GIT GitDirectory",
            "+sub/.GIT/config GitDirectory",
        ]
    );
    assert_eq!(fixture.scan()[0].executed_by, Some(ExecutedBy::Shell));
}

#[test]
fn a_path_beyond_the_limit_is_refused_and_not_entered() {
    let fixture = fixture(ViewKind::Overlay, |_| {});
    let mut level = crate::beneath::Dir::open(&fixture.layer).unwrap();
    let name = RelativePath::new("d".repeat(200)).unwrap();
    for _ in 0..60 {
        level.mkdir(&name, 0o755).unwrap();
        level = level.open_dir(&name).unwrap();
    }
    let entries = fixture.scan();
    assert_eq!(entries.len(), 21);
    let (last, fine) = entries.split_last().unwrap();
    assert_eq!(last.refused, Some(Refusal::PathTooLong));
    assert!(last.path.as_bytes().len() > 4096);
    assert!(fine.iter().all(|entry| entry.refused.is_none()));
    fixture.view.remove().unwrap();
}

#[test]
fn limits_are_named_when_they_are_exceeded() {
    let fixture = fixture(ViewKind::Overlay, |_| {});
    for number in 0..5 {
        fixture.write(&number.to_string(), "12345");
    }
    let sparse = std::fs::File::create(fixture.layer.join("sparse")).unwrap();
    sparse.set_len(1 << 42).unwrap();
    let small = BundleLimits { entries: 3, ..BundleLimits::SANDBOX };
    let exceeded = |limits: &BundleLimits| match fixture.scan_with(limits) {
        Err(Error::Limit(exceeded)) => (exceeded.limit, exceeded.profile, exceeded.value),
        other => panic!("{other:?}"),
    };
    assert_eq!(exceeded(&BundleLimits::SANDBOX), ("total_bytes", "sandbox", 100 << 20));
    std::fs::remove_file(fixture.layer.join("sparse")).unwrap();
    assert_eq!(exceeded(&small), ("entries", "sandbox", 3));
    let few = BundleLimits { total_bytes: 24, ..BundleLimits::SANDBOX };
    assert_eq!(exceeded(&few), ("total_bytes", "sandbox", 24));
}

#[test]
fn renames_are_found_by_content() {
    let fixture = fixture(ViewKind::Overlay, |root| {
        write(root, "one", "same");
        write(root, "two/name", "same");
        write(root, "empty", "");
        write(root, "hook", "script");
        symlink("one", root.join("link")).unwrap();
    });
    for name in ["one", "two", "empty", "hook", "link"] {
        fixture.whiteout(name);
    }
    fixture.write("moved/name", "same");
    fixture.write("moved/other", "same");
    fixture.write("moved/third", "same");
    fixture.write("moved/empty", "");
    fixture.write(".envrc", "script");
    symlink("one", fixture.layer.join("new-link")).unwrap();
    let renamed: Vec<_> =
        fixture.summary().into_iter().filter(|entry| entry.contains("from")).collect();
    assert_eq!(
        renamed,
        ["+moved/name from two/name", "+moved/other from one", "+new-link from link"]
    );
}

#[test]
fn what_the_host_changed_meanwhile_is_a_conflict() {
    for kind in [ViewKind::Overlay, ViewKind::Copy] {
        let fixture = fixture(kind, |root| {
            write(root, "both", "base");
            write(root, "mine", "base");
            write(root, "dir/x", "base");
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        fixture.write("both", "agent");
        fixture.write("mine", "agent");
        fixture.write("dir/new", "agent");
        std::fs::write(fixture.root.join("both"), "host").unwrap();
        std::fs::write(fixture.root.join("dir/host"), "host").unwrap();
        assert_eq!(fixture.summary(), ["~both conflict", "+dir/new", "~mine"], "{kind:?}");
    }
}

#[test]
fn a_copy_is_compared_with_the_project() {
    let fixture = fixture(ViewKind::Copy, |root| {
        for name in ["edited", "deleted", "same", "tree/a/b", "moved"] {
            write(root, name, name);
        }
        symlink("same", root.join("link")).unwrap();
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    fixture.write("edited", "edites");
    for name in ["deleted", "link"] {
        std::fs::remove_file(fixture.layer.join(name)).unwrap();
    }
    std::fs::remove_dir_all(fixture.layer.join("tree")).unwrap();
    std::fs::rename(fixture.layer.join("moved"), fixture.layer.join("there")).unwrap();
    fixture.write("same", "same");
    std::fs::write(fixture.root.join("made-by-host"), "x").unwrap();
    assert_eq!(
        fixture.summary(),
        [
            "-deleted",
            "~edited",
            "-link",
            "-moved",
            "+there from moved",
            "-tree",
            "-tree/a",
            "-tree/a/b"
        ]
    );
}

/// The content of a directory keeps its timestamps when the directory moves.
#[test]
fn directories_that_moved_in_a_copy_are_found_with_their_content() {
    let fixture = fixture(ViewKind::Copy, |root| {
        for name in ["a/x", "a/deep/y", "b/x", "c/one", "c/two", "kept/file", "src/deep/er/z"] {
            write(root, name, &format!("the content of {name}\n"));
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    let moves = [("a", "old"), ("b", "a"), ("old", "b"), ("src/deep", "d")];
    for (from, to) in moves {
        std::fs::rename(fixture.layer.join(from), fixture.layer.join(to)).unwrap();
    }
    fixture.write("c/new", "new\n");
    // What the host changes in a directory that has not moved is not a change of the copy.
    std::fs::write(fixture.root.join("c/one"), "other").unwrap();
    std::fs::write(fixture.root.join("kept/file"), "other").unwrap();
    let found: Vec<_> =
        fixture.summary().iter().map(|entry| entry.split(' ').next().unwrap().to_owned()).collect();
    let expected = [
        "-a/deep",
        "-a/deep/y",
        "~a/x",
        "+b/deep",
        "+b/deep/y",
        "~b/x",
        "+c/new",
        "+d",
        "+d/er",
        "+d/er/z",
        "-src/deep",
        "-src/deep/er",
        "-src/deep/er/z",
    ];
    assert_eq!(found, expected);
}

#[test]
fn ignored_files_are_marked_but_never_hidden() {
    if Command::new("git").arg("--version").output().is_err() {
        skipped("git is not installed");
        return;
    }
    let git = |root: &Path, arguments: &[&str]| {
        let status = Command::new("git").args(arguments).current_dir(root).status().unwrap();
        assert!(status.success(), "{arguments:?}");
    };
    let fixture = fixture(ViewKind::Overlay, |root| {
        git(root, &["init", "-q"]);
        write(root, ".gitignore", "*.log\nbuild/\nonce-ignored\n");
        write(root, "tracked.log", "x");
        write(root, "build/tracked", "x");
        write(root, ".git/info/exclude", "private\n");
        git(root, &["add", "-f", "tracked.log", "build/tracked"]);
    });
    fixture.write("new.log", "x");
    fixture.write("tracked.log", "changed");
    fixture.write("build/out", "x");
    fixture.write("build/tracked", "changed");
    fixture.write("private", "x");
    fixture.write("once-ignored", "x");
    // Removes one rule and adds one that would hide a change.
    fixture.write(".gitignore", "*.log\nbuild/\nhidden\n");
    fixture.write("hidden", "x");
    fixture.write("fresh/.gitignore", "*\n");
    fixture.write("fresh/file", "x");
    assert_eq!(
        fixture.summary(),
        [
            "~.gitignore",
            "+build/out ignored",
            "~build/tracked",
            "+fresh",
            "+fresh/.gitignore",
            "+fresh/file",
            "+hidden",
            "+new.log ignored",
            "+once-ignored",
            "+private ignored",
            "~tracked.log",
        ]
    );
    std::fs::write(fixture.root.join(".git/index"), "damaged").unwrap();
    let changes = fixture.scan_with(&BundleLimits::RUN).unwrap();
    assert!(changes.notes[0].contains("not a git index"), "{:?}", changes.notes);
    assert!(changes.entries.iter().any(|entry| summarize(entry) == "~tracked.log ignored"));
}

/// Uses a real overlay, if this kernel lets this process mount one.
#[test]
fn a_real_overlay_is_read_as_it_is_written() {
    let fixture = fixture(ViewKind::Overlay, |root| {
        for name in ["edited", "deleted", "tree/a", "tree/b", "moved/x", "lost"] {
            write(root, name, name);
        }
    });
    let script = "echo more >> edited; echo more >> lost; rm deleted; rm -r tree; mkdir tree
        echo new > tree/c; mv moved/x moved/y; touch later; rm later; chmod 700 moved";
    if !fixture.in_overlay(script) {
        return;
    }
    std::fs::remove_file(fixture.root.join("lost")).unwrap();
    assert_eq!(
        fixture.summary(),
        [
            "-deleted",
            "~edited",
            "+lost conflict",
            "~moved",
            "-moved/x",
            "+moved/y from moved/x",
            "-tree/a",
            "-tree/b",
            "+tree/c",
        ]
    );
    fixture.view.remove().unwrap();
}

#[test]
#[ignore = "slow: makes and removes fifty thousand files"]
fn fifty_thousand_files_are_scanned_and_removed() {
    let fixture = fixture(ViewKind::Overlay, |_| {});
    for directory in 0..50 {
        let directory = fixture.layer.join(directory.to_string());
        std::fs::create_dir(&directory).unwrap();
        for file in 0..1000 {
            std::fs::write(directory.join(file.to_string()), "x").unwrap();
        }
    }
    let started = std::time::Instant::now();
    assert_eq!(fixture.scan().len(), 50_050);
    fixture.view.remove().unwrap();
    let took = started.elapsed();
    assert!(took < std::time::Duration::from_secs(60), "{took:?}");
}

#[test]
fn what_is_excluded_is_not_looked_at() {
    let fixture = fixture(ViewKind::Overlay, |root| {
        for name in ["a/b/c", "a/x", "ab", "gone/kept", "gone/left"] {
            write(root, name, name);
        }
    });
    for name in ["a/b/c", "a/b/new", "a/x", "ab", "bundle.tsx"] {
        fixture.write(name, "changed");
    }
    fixture.whiteout("gone");
    let excluded: Vec<_> =
        ["a/b", "bundle.tsx", "gone/left"].map(|path| RelativePath::new(path).unwrap()).into();
    let project = Project::find(&fixture.root, None).unwrap();
    let changes = scan_excluding(
        &fixture.view,
        &project,
        &excluded,
        &mut History::default(),
        &BundleLimits::RUN,
    )
    .unwrap();
    let reported: Vec<_> = changes.entries.iter().map(summarize).collect();
    assert_eq!(reported, ["~a/x", "~ab", "-gone/kept"]);
}

#[test]
fn what_was_gathered_tells_of_removals_in_a_list() {
    use crate::view::{LayerChanges, LayerCollector};
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().canonicalize().unwrap().join("project");
    for name in ["edited", "gone", "tree/a/b", "tree/c", "file/inner", "later"] {
        write(&root, name, name);
    }
    symlink("tree", root.join("link")).unwrap();
    let data = DataDir::open(&scratch.path().join("data")).unwrap();
    let gather = || LayerCollector::start(&data).unwrap();
    let layer = gather().layer().to_owned();
    assert!(!layer.parent().unwrap().exists(), "what is not finished is left");

    let gathering = gather();
    write(gathering.layer(), "edited", "other");
    std::fs::write(gathering.layer().join("file"), "no directory any more").unwrap();
    let project = Project::find(&root, None).unwrap();
    let since = crate::view::boundary_time(&project.dir, 0o755).unwrap();
    while !crate::view::is_tick_over(since) {
        std::thread::yield_now();
    }
    write(&root, "later", "of the host");
    let removed = ["gone", "tree", "file/inner", "link/c", "never/was", "edited/below", "later"]
        .map(|path| RelativePath::new(path).unwrap());
    let gathered = LayerChanges { since, removed: removed.into() };
    let view = gathering.finish(&project, gathered, &["make".to_owned()]).unwrap();
    let changes = scan(&view, &project, &BundleLimits::RUN).unwrap();
    let reported: Vec<_> = changes.entries.iter().map(summarize).collect();
    let expected = [
        "~edited",
        "~file",
        "-file/inner",
        "-gone",
        "-later conflict",
        "-tree",
        "-tree/a",
        "-tree/a/b",
        "-tree/c",
    ];
    assert_eq!(reported, expected);
    assert_eq!(View::sweep(&data).unwrap(), 0, "it is in use");
    let location = data.path().join("views").join(view.id());
    view.remove().unwrap();
    assert!(!location.exists());
}

/// Without the marks that an overlay would have left.
#[test]
fn a_directory_at_a_listed_path_replaces_the_old_one() {
    use crate::view::{LayerChanges, LayerCollector};
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().canonicalize().unwrap().join("project");
    for name in ["tree/a/b", "tree/c", "same/file", "kept/file"] {
        write(&root, name, name);
    }
    let data = DataDir::open(&scratch.path().join("data")).unwrap();
    let collector = LayerCollector::start(&data).unwrap();
    for name in ["tree/new", "tree/a/b", "kept/new"] {
        write(collector.layer(), name, name);
    }
    // A path that the list names, and that is as it was, is no change.
    write(collector.layer(), "same/file", "same/file");
    let project = Project::find(&root, None).unwrap();
    let since = crate::view::boundary_time(&project.dir, 0o755).unwrap();
    let removed = ["tree", "same/file"].map(|path| RelativePath::new(path).unwrap());
    let changes = LayerChanges { since, removed: removed.into() };
    let view = collector.finish(&project, changes, &[]).unwrap();
    let changes = scan(&view, &project, &BundleLimits::RUN).unwrap();
    let changed: Vec<_> = changes.entries.iter().map(summarize).collect();
    assert_eq!(changed, ["+kept/new", "-tree/c", "+tree/new"]);
    view.remove().unwrap();
}
