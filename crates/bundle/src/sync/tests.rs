//! Plans for every pair of sides, and their execution on a directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::*;
use crate::beneath::Dir;
use crate::manifest::{ContentHash, Node};
use crate::path::RelativePath;

fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

fn file(text: &str) -> Found {
    let node =
        Node::File { hash: ContentHash::of(text.as_bytes()), size: text.len() as u64, mode: 0o644 };
    Found { node, modified: None }
}

fn tree(files: &[(&str, &str)]) -> Scan {
    let mut scan = Scan::default();
    for (name, text) in files {
        let name = path(name);
        let mut above = name.parent();
        while let Some(directory) = above {
            above = directory.parent();
            let node = Node::Directory { mode: 0o755 };
            scan.tree.insert(directory, Found { node, modified: None });
        }
        scan.tree.insert(name, file(text));
    }
    scan
}

fn nodes(scan: &Scan) -> Nodes {
    scan.tree.iter().map(|(path, found)| (path.clone(), found.node.clone())).collect()
}

fn plan(base: Option<&Scan>, source: &Scan, destination: &Scan, comparison: Comparison) -> Plan {
    let base = base.map(nodes);
    let sides = Sides { source, destination, base: base.as_ref() };
    compare(sides, comparison, &mut |_, _| Ok(false)).unwrap()
}

/// What a plan does, in short: `+path`, `-path`, `<path` at the source, `!path` in conflict.
fn short(plan: &Plan) -> Vec<String> {
    let action = |sign: &str, action: &Action| {
        let sign = if action.new.is_some() { sign.to_owned() } else { format!("{sign}-") };
        format!("{sign}{}", action.path.quoted())
    };
    let mut all: Vec<_> = plan.at_destination.iter().map(|it| action("+", it)).collect();
    all.extend(plan.at_source.iter().map(|it| action("<", it)));
    all.extend(plan.conflicts.iter().map(|conflict| format!("!{}", conflict.path.quoted())));
    all
}

#[test]
fn each_pair_of_sides_has_one_outcome() {
    let copy = Comparison::default();
    let mirror = Comparison { mode: Mode::Mirror, ..copy };
    let both = Comparison { mode: Mode::TwoWay, ..copy };
    let (none, v1, v2, v3) =
        (tree(&[]), tree(&[("f", "1")]), tree(&[("f", "2")]), tree(&[("f", "3")]));
    let with_old = tree(&[("f", "1"), ("old", "x")]);
    for (base, source, destination, how, expected) in [
        (None, &v1, &none, copy, "+f"),
        (None, &v1, &v1, copy, ""),
        (None, &v1, &v2, copy, "!f"),
        (None, &v1, &v2, mirror, "+f"),
        (Some(&v1), &v2, &v1, copy, "+f"),
        (Some(&v1), &v1, &v2, copy, ""),
        (Some(&v1), &v1, &v2, mirror, "!f"),
        (Some(&v1), &v1, &v2, both, "<f"),
        (Some(&v1), &v2, &v3, copy, "!f"),
        (Some(&v1), &v2, &v3, mirror, "!f"),
        (Some(&v1), &v2, &v3, both, "!f"),
        (Some(&v1), &v2, &v2, copy, ""),
        (Some(&v1), &none, &v1, copy, ""),
        (Some(&v1), &none, &v1, mirror, "+-f"),
        (Some(&v1), &none, &v2, mirror, "!f"),
        (Some(&v1), &none, &v2, both, "<f"),
        (Some(&v1), &none, &v1, both, "+-f"),
        (Some(&v1), &v2, &none, both, "+f"),
        (Some(&v1), &v1, &none, both, "<-f"),
        (None, &v1, &with_old, mirror, "+-old"),
        (None, &v1, &with_old, copy, ""),
    ] {
        let plan = plan(base, source, destination, how);
        assert_eq!(short(&plan).join(" "), expected, "{base:?} {source:?} {destination:?} {how:?}");
    }
    let source = Comparison { policy: Policy::Source, ..copy };
    assert_eq!(short(&plan(Some(&v1), &v2, &v3, source)).join(" "), "+f !f");
    let destination = Comparison { policy: Policy::Destination, ..copy };
    assert_eq!(short(&plan(Some(&v1), &v2, &v3, destination)).join(" "), "!f");
}

#[test]
fn kinds_change_only_where_nothing_is_lost() {
    let (file, below) = (tree(&[("d", "1")]), tree(&[("d/f", "1")]));
    let changed = tree(&[("d/f", "2")]);
    let copy = Comparison::default();
    assert_eq!(short(&plan(None, &file, &below, copy)).join(" "), "!d");
    assert_eq!(short(&plan(None, &below, &file, copy)).join(" "), "!d");
    assert_eq!(short(&plan(Some(&below), &file, &below, copy)).join(" "), "+-d/f +-d +d");
    assert_eq!(short(&plan(Some(&file), &below, &file, copy)).join(" "), "+-d +d +d/f");
    assert_eq!(short(&plan(Some(&below), &file, &changed, copy)).join(" "), "!d");
    // A link that was planted where a directory belongs.
    let mut planted = Scan::default();
    let node = Node::Symlink { target: b"/etc".to_vec() };
    planted.tree.insert(path("d"), Found { node, modified: None });
    let mirror = Comparison { mode: Mode::Mirror, ..copy };
    for how in [copy, mirror] {
        assert_eq!(short(&plan(None, &below, &planted, how)).join(" "), "!d");
    }
}

#[test]
fn what_is_not_copied_makes_no_directory() {
    let mut source = tree(&[("d/f", "1"), ("secret/key", "2")]);
    source.tree.remove(&path("d/f"));
    let node = Node::Symlink { target: b"/etc".to_vec() };
    source.tree.insert(path("d/out"), Found { node, modified: None });
    let mut destination = Scan::default();
    destination.skipped.insert(path("secret"), SkipReason::AccessDenied);
    let plan = plan(None, &source, &destination, Comparison::default());
    assert_eq!(short(&plan), [""; 0]);
    let denied = |path| (path, SkipReason::AccessDenied);
    let expected = [
        (path("d/out"), SkipReason::UnsafeLink),
        denied(path("secret")),
        denied(path("secret/key")),
    ];
    assert_eq!(plan.skipped, expected);
}

#[test]
fn filters_have_one_order() {
    let patterns = |include: &[&str], exclude: &[&str]| Patterns {
        include: include.iter().map(|it| (*it).to_owned()).collect(),
        exclude: exclude.iter().map(|it| (*it).to_owned()).collect(),
        git_directories: false,
    };
    let ignore: ReadIgnoreFile = Box::new(|path| {
        Ok((path.as_bytes() == b".gitignore")
            .then(|| b"build/\n!build/kept\n*.tmp\n!x.tmp".to_vec()))
    });
    let mut filter = Filter::new(&patterns(&[], &["*.log", "a/b/**"]), Some(ignore));
    for (name, kept) in [
        ("a.txt", true),
        ("b.log", false),
        ("a/b/c", false),
        ("a/c", true),
        (".git/config", false),
        ("sub/.git/config", false),
        (".env", true),
        ("build/kept", false),
        ("x.tmp", true),
        ("y.tmp", false),
        (".stockade-sync-1/n0", false),
        (".stockade-0123456789abcdef", false),
        (".stockade-notes", true),
    ] {
        assert_eq!(filter.keeps(&path(name), false).unwrap(), kept, "{name}");
    }
    let mut filter = Filter::new(&patterns(&["a/**", "*.rs"], &["a/b/**"]), None);
    for (name, kept) in
        [("a/x", true), ("a/b/x", false), ("src/c.rs", true), ("b/x", false), ("x", false)]
    {
        assert_eq!(filter.keeps(&path(name), false).unwrap(), kept, "{name}");
    }
}

fn open(root: &Path) -> Dir {
    Dir::open(root).unwrap()
}

fn read(root: &Path) -> Scan {
    let mut filter = Filter::new(&Patterns::default(), None);
    scan(&open(root), &mut filter, None).unwrap()
}

/// Copies everything of a directory to another one, as an operation does.
fn copy(from: &Path, to: &Path, mode: Mode, base: Option<&Nodes>) -> (Plan, Placed) {
    let store = tempfile::tempdir().unwrap();
    let blobs = Blobs::new(open(store.path()));
    let (source, destination) = (read(from), read(to));
    let comparison = Comparison { mode, empty_directories: true, ..Comparison::default() };
    let sides = Sides { source: &source, destination: &destination, base };
    let plan = compare(sides, comparison, &mut |_, _| Ok(false)).unwrap();
    let directory = open(from);
    for action in &plan.at_destination {
        if let Some(Found { node: Node::File { .. }, .. }) = &action.new {
            blobs.put(&mut directory.open_file(&action.path).unwrap()).unwrap();
        }
    }
    let (target, open) = (Dir::open(to).unwrap(), |hash| blobs.open(hash));
    let placed = Place::new(&target, "1", &plan.at_destination, &open).unwrap().run().unwrap();
    (plan, placed)
}

#[test]
fn a_directory_becomes_equal_and_stays_so() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (from.path(), to.path());
    fs::create_dir_all(from.join("a/b")).unwrap();
    fs::create_dir(from.join("empty")).unwrap();
    fs::write(from.join("a/b/new\nline"), "1").unwrap();
    fs::write(from.join("run.sh"), "2").unwrap();
    fs::set_permissions(from.join("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("run.sh", from.join("link")).unwrap();
    symlink("/etc/passwd", from.join("out")).unwrap();
    fs::write(to.join("old"), "x").unwrap();
    fs::create_dir(to.join("run.sh")).unwrap();
    let (plan, placed) = copy(from, to, Mode::Mirror, None);
    assert_eq!(placed, Placed::default());
    assert_eq!(plan.skipped, [(path("out"), SkipReason::UnsafeLink)]);
    let names = |root: &Path| {
        let tree = read(root).tree;
        tree.into_keys().filter(|name| name.as_bytes() != b"out").collect::<Vec<_>>()
    };
    assert_eq!(names(from), names(to));
    assert_eq!(fs::metadata(to.join("run.sh")).unwrap().permissions().mode() & 0o777, 0o750);
    assert!(fs::symlink_metadata(to.join("out")).is_err());
    let base: Nodes = plan.base.into_iter().collect();
    let (again, _) = copy(from, to, Mode::Mirror, Some(&base));
    assert_eq!((again.at_destination, again.unchanged), (Vec::new(), 3));
}

#[test]
fn what_changes_after_the_plan_is_kept() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (from.path(), to.path());
    fs::write(from.join("f"), "new").unwrap();
    fs::write(from.join("g"), "new").unwrap();
    fs::write(to.join("f"), "old").unwrap();
    fs::write(to.join("gone"), "old").unwrap();
    let store = tempfile::tempdir().unwrap();
    let blobs = Blobs::new(open(store.path()));
    let (source, destination) = (read(from), read(to));
    let comparison = Comparison { mode: Mode::Mirror, ..Comparison::default() };
    let sides = Sides { source: &source, destination: &destination, base: None };
    let plan = compare(sides, comparison, &mut |_, _| Ok(false)).unwrap();
    blobs.put(&mut &b"new"[..]).unwrap();
    for name in ["f", "g", "gone"] {
        fs::write(to.join(name), "later").unwrap();
    }
    let (target, open) = (open(to), |hash| blobs.open(hash));
    let place = || Place::new(&target, "1", &plan.at_destination, &open).unwrap();
    let placed = place().run().unwrap();
    assert_eq!(placed.changed_meanwhile, [path("gone"), path("f"), path("g")]);
    for name in ["f", "g", "gone"] {
        assert_eq!(fs::read_to_string(to.join(name)).unwrap(), "later", "{name}");
    }
    // After a crash the same is done again, and what was done is recognized.
    for (name, text) in [("f", "old"), ("gone", "old")] {
        fs::write(to.join(name), text).unwrap();
    }
    fs::remove_file(to.join("g")).unwrap();
    fs::create_dir(to.join(".stockade-sync-1")).unwrap();
    fs::write(to.join(".stockade-sync-1/n7"), "half").unwrap();
    for _ in 0..2 {
        assert_eq!(place().run().unwrap(), Placed::default());
    }
    assert_eq!(fs::read_to_string(to.join("f")).unwrap(), "new");
    assert_eq!(read(to).tree.len(), 2);
}

#[test]
fn no_repository_is_made_of_parts() {
    let skipped = |source: &Scan, destination: &Scan| {
        let mut source = source.clone();
        skip_repositories(&mut source, destination);
        let names = source.skipped.keys().map(RelativePath::quoted);
        let left: Vec<_> = source.tree.keys().map(RelativePath::quoted).collect();
        (names.collect::<Vec<_>>().join(" "), left.join(" "))
    };
    let none = Scan::default();
    let whole = tree(&[("d/head", ""), ("d/objects/a", ""), ("d/REFS/a", ""), ("d/config", "x")]);
    let all = "d/REFS d/config d/head d/objects";
    assert_eq!(skipped(&whole, &none), (all.to_owned(), "d".to_owned()));
    // The rest of what was copied earlier.
    let head = tree(&[("d/HEAD", ""), ("d/config", "x")]);
    let rest = tree(&[("d/objects/a", ""), ("d/refs/a", ""), ("d/hooks/a", ""), ("d/x", "")]);
    assert_eq!(skipped(&rest, &head), ("d/hooks d/objects d/refs".to_owned(), "d d/x".to_owned()));
    // A pattern of the source hides what the destination has.
    let mut hidden = Scan::default();
    hidden.skipped.insert(path("d/HEAD"), SkipReason::Ignored);
    assert_eq!(skipped(&rest, &hidden).1, "d d/x");
    // The settings of one that is there.
    let settings = tree(&[("d/config", "y"), ("d/hooks/post-commit", ""), ("e/config", "")]);
    let expected = ("d/config d/hooks".to_owned(), "d e e/config".to_owned());
    assert_eq!(skipped(&settings, &whole), expected);
    // Directories that are not included themselves.
    let mut implied = rest.clone();
    implied.tree.retain(|_, found| !matches!(found.node, Node::Directory { .. }));
    assert_eq!(skipped(&implied, &head).1, "d/x");
    assert_eq!(skipped(&rest, &none).0, "");
}
