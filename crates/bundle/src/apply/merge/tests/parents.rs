//! Whole trees with two parents, against the merges of git.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use sha1::{Digest as _, Sha1};

use super::texts::{edited, joined, labels, random_text};
use crate::apply::merge::{Bases, Options};
use crate::apply::{AppliedChanges, Error, Ledger, LedgerError, Request, Selection, apply};
use crate::beneath::Dir;
use crate::manifest::{Change, ContentHash, Entry, Manifest, Node, VERSION, ViewKind};
use crate::path::RelativePath;
use crate::testing::{Random, chmod, git, skipped};

/// A file or link: its mode in git, and its content.
type Item = (&'static str, Vec<u8>);
type Tree = BTreeMap<String, Item>;

/// How many merges are compared.
const MERGES: u64 = 1000;

#[derive(Debug)]
struct NoLedger;

impl Ledger for NoLedger {
    fn mark(&self, _: &AppliedChanges<'_>) -> Result<(), LedgerError> {
        Ok(())
    }
}

#[derive(Debug)]
struct Contents(BTreeMap<ContentHash, Vec<u8>>);

impl Bases for Contents {
    fn base(&self, hash: ContentHash) -> Option<Vec<u8>> {
        self.0.get(&hash).cloned()
    }
}

fn text(random: &mut Random, lines: &[String]) -> Vec<u8> {
    joined(random, lines, "\n").into_bytes()
}

/// A tree of a few files, with the lines of each.
fn base_tree(random: &mut Random) -> (Tree, BTreeMap<String, Vec<String>>) {
    let mut tree = Tree::new();
    let mut texts = BTreeMap::new();
    for number in 0..2 + random.below(4) {
        let name = match random.below(3) {
            0 => format!("d/f{number}"),
            _ => format!("f{number}"),
        };
        // A text of its own, so that renames are not ambiguous.
        let mut lines: Vec<String> = (0..8).map(|it| format!("file {number} line {it}")).collect();
        lines.extend(random_text(random));
        let content = text(random, &lines);
        tree.insert(name.clone(), ("100644", content));
        texts.insert(name, lines);
    }
    tree.insert("link".to_owned(), ("120000", b"f0".to_vec()));
    tree.insert("binary".to_owned(), ("100644", b"\0base".to_vec()));
    (tree, texts)
}

/// What one parent makes of the base. Only the bundle's side renames: which file of the host a rename
/// of the host's was is not known.
fn parent(
    random: &mut Random,
    (base, texts): &(Tree, BTreeMap<String, Vec<String>>),
    renames: bool,
) -> Tree {
    let mut tree = base.clone();
    for (name, lines) in texts {
        match random.below(10) {
            0..5 => {
                let lines = edited(random, lines);
                let content = text(random, &lines);
                tree.insert(name.clone(), ("100644", content));
            }
            5 => drop(tree.remove(name)),
            6 => tree.get_mut(name).unwrap().0 = "100755",
            7 if renames => {
                let item = tree.remove(name).unwrap();
                tree.insert(format!("{name}-moved"), item);
            }
            _ => {}
        }
    }
    match random.below(6) {
        0 => drop(tree.insert("new".to_owned(), ("100644", b"new\n".to_vec()))),
        1 => drop(tree.insert("new".to_owned(), ("100755", b"other\n".to_vec()))),
        2 => drop(tree.insert("link".to_owned(), ("120000", b"new".to_vec()))),
        3 => drop(tree.insert(
            "binary".to_owned(),
            ("100644", vec![0, u8::try_from(random.below(3)).unwrap()]),
        )),
        4 => drop(tree.insert("link".to_owned(), ("100644", b"a file now\n".to_vec()))),
        _ => {}
    }
    tree
}

fn node((mode, content): &Item) -> Node {
    match *mode {
        "120000" => Node::Symlink { target: content.clone() },
        mode => Node::File {
            hash: ContentHash::of(content),
            size: content.len() as u64,
            mode: if mode == "100755" { 0o755 } else { 0o644 },
        },
    }
}

/// The changes from one tree to another, as the scan of a view finds them.
fn entries(base: &Tree, theirs: &Tree) -> Vec<Entry> {
    let names: std::collections::BTreeSet<&String> = base.keys().chain(theirs.keys()).collect();
    let mut entries = Vec::new();
    for name in names {
        let change = match (base.get(name).map(node), theirs.get(name).map(node)) {
            (None, Some(new)) => Change::Add { new },
            (Some(old), None) => Change::Delete { old },
            (Some(old), Some(new)) if old != new => Change::Modify { old, new },
            _ => continue,
        };
        let mut entry = Entry::new(RelativePath::new(name.as_str()).unwrap(), change);
        if let Some(from) = name.strip_suffix("-moved") {
            entry.renamed_from = Some(RelativePath::new(from).unwrap());
        }
        entries.push(entry);
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

fn write_tree(root: &Path, tree: &Tree) {
    std::fs::create_dir_all(root.join("d")).unwrap();
    for (name, (mode, content)) in tree {
        let path = root.join(name);
        if *mode == "120000" {
            let target = std::str::from_utf8(content).unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
        } else {
            std::fs::write(&path, content).unwrap();
            chmod(&path, if *mode == "100755" { 0o755 } else { 0o644 });
        }
    }
}

/// The files of a directory, as `git ls-tree -r` lists them.
fn listed(root: &Path, prefix: &str, lines: &mut Vec<String>) {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    for entry in std::fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        let data = entry.metadata().unwrap();
        if data.is_dir() {
            listed(&entry.path(), &format!("{name}/"), lines);
            continue;
        }
        let (mode, content) = match data.is_symlink() {
            true => {
                let target = std::fs::read_link(entry.path()).unwrap();
                ("120000", target.as_os_str().as_bytes().to_vec())
            }
            false => {
                let is_executable = data.permissions().mode() & 0o100 != 0;
                let mode = if is_executable { "100755" } else { "100644" };
                (mode, std::fs::read(entry.path()).unwrap())
            }
        };
        let mut hasher = Sha1::new();
        hasher.update(format!("blob {}\0", content.len()));
        hasher.update(&content);
        let hash: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        lines.push(format!("{mode} blob {hash}\t{name}"));
    }
}

/// Commits `base`, `ours` and `theirs` of each merge to a new repository.
fn import(root: &Path, merges: &[[Tree; 3]]) {
    let mut child = Command::new("git")
        .args(["fast-import", "--quiet", "--done"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stream = Vec::new();
    for (number, trees) in merges.iter().enumerate() {
        for (side, tree) in ["base", "ours", "theirs"].iter().zip(trees) {
            writeln!(stream, "commit refs/heads/{side}{number}").unwrap();
            if *side == "base" {
                writeln!(stream, "mark :{}", number + 1).unwrap();
            }
            write!(stream, "committer x <x@localhost> 1 +0000\ndata 1\nx\n").unwrap();
            if *side != "base" {
                writeln!(stream, "from :{}", number + 1).unwrap();
            }
            stream.extend(b"deleteall\n");
            for (name, (mode, content)) in tree {
                write!(stream, "M {mode} inline {name}\ndata {}\n", content.len()).unwrap();
                stream.extend(content);
                stream.push(b'\n');
            }
        }
    }
    stream.extend(b"done\n");
    child.stdin.take().unwrap().write_all(&stream).unwrap();
    assert!(child.wait().unwrap().success());
}

/// The result of git, as `git ls-tree -r` lists it; `None` if there are conflicts.
fn by_git(root: &Path, number: usize) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["-c", "merge.conflictStyle=merge", "merge-tree", "--write-tree", "--no-messages"])
        .args([format!("ours{number}"), format!("theirs{number}")])
        .current_dir(root)
        .output()
        .unwrap();
    if !output.status.success() {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        return None;
    }
    let tree = String::from_utf8(output.stdout).unwrap();
    Some(git(root, &["ls-tree", "-r", tree.trim()]).lines().map(str::to_owned).collect())
}

/// The result of an apply operation; `None` if there are conflicts.
fn by_apply(root: &Path, [base, ours, theirs]: &[Tree; 3]) -> Option<Vec<String>> {
    let at = |name: &str| root.join(name);
    for name in ["project", "blobs", "journals"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    write_tree(&at("project"), ours);
    for (_, content) in theirs.values() {
        std::fs::write(at("blobs").join(ContentHash::of(content).to_hex()), content).unwrap();
    }
    let contents =
        base.values().map(|(_, content)| (ContentHash::of(content), content.clone())).collect();
    let contents = Contents(contents);
    let manifest = Manifest {
        version: VERSION,
        project: b"/project".to_vec(),
        created_at_ms: 0,
        command: Vec::new(),
        labels: BTreeMap::new(),
        image: None,
        exit_code: 0,
        base_ref: None,
        view: ViewKind::Overlay,
        entries: entries(base, theirs),
    };
    let options =
        Options { favor: None, marks_conflicts: false, labels: labels(), bases: &contents };
    let request = Request {
        bundle: "bundle",
        manifest: &manifest,
        blobs: &Dir::open(&at("blobs")).unwrap(),
        project: &at("project"),
        journals: &Dir::open(&at("journals")).unwrap(),
        ledger: &NoLedger,
        selection: &Selection::default(),
        merge: Some(&options),
        partial: &[],
        times: &BTreeMap::new(),
    };
    match apply(&request) {
        Ok(_) => {}
        Err(Error::Conflicts(_)) => return None,
        Err(error) => panic!("{error:?}"),
    }
    let mut lines = Vec::new();
    listed(&at("project"), "", &mut lines);
    lines.sort_by(|a, b| a.split('\t').nth(1).cmp(&b.split('\t').nth(1)));
    Some(lines)
}

#[test]
fn two_parents_are_merged_as_git_does() {
    if Command::new("git").arg("--version").output().is_err() {
        skipped("git is not installed");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let repository = directory.path().join("repository");
    std::fs::create_dir(&repository).unwrap();
    git(&repository, &["init", "-q"]);
    let merges: Vec<[Tree; 3]> = (0..MERGES)
        .map(|seed| {
            let mut random = Random::new(seed);
            let base = base_tree(&mut random);
            let ours = parent(&mut random, &base, false);
            let theirs = parent(&mut random, &base, true);
            [base.0, ours, theirs]
        })
        .collect();
    import(&repository, &merges);
    let (mut clean, mut conflicts, mut stricter) = (0, 0, Vec::new());
    for (number, trees) in merges.iter().enumerate() {
        let root = directory.path().join(number.to_string());
        let expected = by_git(&repository, number);
        let found = by_apply(&root, trees);
        std::fs::remove_dir_all(&root).unwrap();
        match (expected, found) {
            (Some(expected), Some(found)) => {
                assert_eq!(found, expected, "merge {number}");
                clean += 1;
            }
            (None, None) => conflicts += 1,
            // A conflict that git does not have is not silent.
            (Some(_), None) => stricter.push(number),
            (None, Some(found)) => panic!("merge {number} is a conflict for git: {found:?}"),
        }
    }
    assert!(clean > 200 && conflicts > 100, "{clean} clean, {conflicts} conflicts");
    assert!(stricter.len() < 10, "{clean} clean, {conflicts} conflicts; stricter: {stricter:?}");
}
