//! Projects, bundles and journals for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::apply::{
    AppliedChanges, ApplyOutcome, Error, Ledger, LedgerError, Request, Selection, Step,
    apply_observed, undo,
};
use crate::beneath::{Dir, FileKind};
use crate::manifest::{Change, ContentHash, Entry, Manifest, Node, VERSION, ViewKind};
use crate::path::RelativePath;

/// A directory tree as data: every path below the root with its node.
pub(super) type Tree = BTreeMap<RelativePath, Item>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    File(Vec<u8>, u32),
    Link(Vec<u8>),
    Directory(u32),
}

/// A project on disk, a bundle for it, and a directory for journals.
pub(super) struct Fixture {
    root: tempfile::TempDir,
    pub(super) project: Dir,
    pub(super) blobs: Dir,
    pub(super) journals: Dir,
    pub(super) manifest: Manifest,
}

/// A file that lists what was applied, one line each.
#[derive(Debug)]
pub(super) struct FileLedger(pub(super) PathBuf);

/// The bundle's id.
pub(super) const BUNDLE: &str = "bundle";

impl Ledger for FileLedger {
    fn mark(&self, applied: &AppliedChanges<'_>) -> Result<(), LedgerError> {
        let AppliedChanges { bundle, paths, .. } = *applied;
        if bundle.starts_with(undo::PREFIX) {
            return Ok(());
        }
        assert_eq!(bundle, BUNDLE);
        let mut notes = std::fs::OpenOptions::new().create(true).append(true).open(&self.0)?;
        let lines: String = paths.iter().map(|path| format!("{}\n", path.quoted())).collect();
        Ok(notes.write_all(lines.as_bytes())?)
    }

    fn undo_store(&self) -> Result<Option<Dir>, LedgerError> {
        let store = self.0.with_file_name("undo");
        std::fs::create_dir_all(&store)?;
        Ok(Some(Dir::open(&store)?))
    }
}

pub(super) fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

/// A tree from `path => content`: `"dir/"` is a directory, `"-> target"` a link.
pub(super) fn tree(items: &[(&str, &str)]) -> Tree {
    let mut tree = Tree::new();
    for (name, content) in items {
        let item = if name.ends_with('/') {
            Item::Directory(0o755)
        } else if let Some(target) = content.strip_prefix("-> ") {
            Item::Link(target.into())
        } else {
            Item::File(content.as_bytes().to_vec(), 0o644)
        };
        tree.insert(path(name.trim_end_matches('/')), item);
    }
    tree
}

impl Fixture {
    /// A project that contains `old`, and the bundle that changes it to `new`.
    pub(super) fn new(old: &Tree, new: &Tree) -> Self {
        // Projects are identified by their real path.
        let dir = std::fs::canonicalize(std::env::temp_dir()).unwrap();
        let root = tempfile::tempdir_in(dir).unwrap();
        let mut dirs = ["project", "blobs", "journals"].into_iter().map(|name| {
            std::fs::create_dir(root.path().join(name)).unwrap();
            Dir::open(&root.path().join(name)).unwrap()
        });
        let (project, blobs, journals) =
            (dirs.next().unwrap(), dirs.next().unwrap(), dirs.next().unwrap());
        write(&project, old);
        let manifest = manifest(old, new, &root.path().join("project"));
        for item in new.values() {
            if let Item::File(content, _) = item {
                let name = path(&ContentHash::of(content).to_hex());
                if let Ok(mut file) = blobs.create_file(&name, 0o600) {
                    file.write_all(content).unwrap();
                }
            }
        }
        Self { root, project, blobs, journals, manifest }
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(super) fn in_project(&self, name: &str) -> PathBuf {
        self.root.path().join("project").join(name)
    }

    pub(super) fn entry(&mut self, name: &str) -> &mut Entry {
        let name = path(name);
        self.manifest.entries.iter_mut().find(|entry| entry.path == name).unwrap()
    }

    pub(super) fn apply(&self) -> Result<ApplyOutcome, Error> {
        self.apply_with(&Selection::default(), &mut |_| {})
    }

    pub(super) fn select(&self, paths: &[&str]) -> Result<ApplyOutcome, Error> {
        let paths = paths.iter().map(|name| path(name)).collect();
        self.apply_with(&Selection { paths, ..Selection::default() }, &mut |_| {})
    }

    pub(super) fn apply_with(
        &self,
        selection: &Selection,
        observe: &mut dyn FnMut(Step),
    ) -> Result<ApplyOutcome, Error> {
        let request = Request {
            bundle: BUNDLE,
            manifest: &self.manifest,
            blobs: &self.blobs,
            project: &self.at("project"),
            journals: &self.journals,
            ledger: &self.ledger(),
            selection,
            merge: None,
            partial: &[],
            times: &std::collections::BTreeMap::new(),
        };
        apply_observed(&request, observe)
    }

    /// Takes the last apply operation back.
    pub(super) fn undo(&self) -> Result<ApplyOutcome, Error> {
        let store = self.ledger().undo_store().unwrap().unwrap();
        let last = undo::list(&store)?.pop().unwrap();
        let entries = last.record.entries.clone();
        let request = Request {
            bundle: &format!("{}{}", undo::PREFIX, last.id),
            manifest: &Manifest { entries, ..self.manifest.clone() },
            blobs: &last.blobs,
            project: &self.at("project"),
            journals: &self.journals,
            ledger: &self.ledger(),
            selection: &Selection::default(),
            merge: None,
            partial: &[],
            times: &BTreeMap::new(),
        };
        let undone = apply_observed(&request, &mut |_| {})?;
        undo::discard(&store, &last.id)?;
        Ok(undone)
    }

    pub(super) fn ledger(&self) -> FileLedger {
        FileLedger(self.at("notes"))
    }

    /// The paths recorded as applied.
    pub(super) fn marked(&self) -> BTreeSet<String> {
        let notes = std::fs::read_to_string(self.at("notes")).unwrap_or_default();
        notes.lines().map(str::to_owned).collect()
    }

    pub(super) fn tree(&self) -> Tree {
        read(&self.project)
    }

    /// Fails if an apply operation left anything behind.
    pub(super) fn assert_clean(&self) {
        assert_eq!(self.journals.entries().unwrap(), [], "journals");
        let left: Vec<_> = self
            .project
            .entries()
            .unwrap()
            .into_iter()
            .filter(|(name, _)| name.starts_with(b".stockade-"))
            .collect();
        assert_eq!(left, [], "private directories");
        let records = std::fs::read_dir(self.at("undo")).into_iter().flatten();
        let unfinished = records.filter(|it| {
            it.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "new")
        });
        assert_eq!(unfinished.count(), 0, "records of operations that have ended");
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // Works regardless of the permission bits, which TempDir cannot overcome for an ordinary
        // user.
        let removed = Dir::open(self.root.path()).and_then(|dir| dir.remove_tree(&path("project")));
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

fn node(item: &Item) -> Node {
    match item {
        Item::File(content, mode) => {
            Node::File { hash: ContentHash::of(content), size: content.len() as u64, mode: *mode }
        }
        Item::Link(target) => Node::Symlink { target: target.clone() },
        Item::Directory(mode) => Node::Directory { mode: *mode },
    }
}

fn manifest(old: &Tree, new: &Tree, project: &Path) -> Manifest {
    let mut entries = BTreeMap::new();
    for path in old.keys().chain(new.keys()) {
        let change = match (old.get(path).map(node), new.get(path).map(node)) {
            (Some(old), Some(new)) if old == new => continue,
            (Some(old), Some(new)) => Change::Modify { old, new },
            (Some(old), None) => Change::Delete { old },
            (None, Some(new)) => Change::Add { new },
            (None, None) => continue,
        };
        entries.insert(
            path.clone(),
            Entry {
                path: path.clone(),
                change,
                renamed_from: None,
                tree: None,
                ignored: false,
                refused: None,
                executed_by: None,
                conflict: false,
                base_known: false,
            },
        );
    }
    Manifest {
        version: VERSION,
        project: project.as_os_str().as_encoded_bytes().to_vec(),
        created_at_ms: 0,
        command: vec!["true".to_owned()],
        labels: std::collections::BTreeMap::new(),
        image: None,
        exit_code: 0,
        base_ref: None,
        view: ViewKind::Overlay,
        entries: entries.into_values().collect(),
    }
}

fn write(dir: &Dir, tree: &Tree) {
    for (path, item) in tree {
        match item {
            Item::File(content, mode) => {
                dir.create_file(path, 0o600).unwrap().write_all(content).unwrap();
                dir.chmod(path, *mode).unwrap();
            }
            Item::Link(target) => dir.symlink(target, path).unwrap(),
            Item::Directory(_) => dir.mkdir(path, 0o700).unwrap(),
        }
    }
    for (path, item) in tree.iter().rev() {
        if let Item::Directory(mode) = item {
            dir.chmod(path, *mode).unwrap();
        }
    }
}

pub(super) fn read(dir: &Dir) -> Tree {
    let mut tree = Tree::new();
    let mut todo: Vec<RelativePath> = names(dir, None);
    while let Some(path) = todo.pop() {
        let stat = dir.stat(&path).unwrap().unwrap();
        let item = match stat.kind {
            FileKind::File => {
                let mut content = Vec::new();
                dir.open_file(&path).unwrap().read_to_end(&mut content).unwrap();
                Item::File(content, stat.mode)
            }
            FileKind::Symlink => Item::Link(dir.read_link(&path).unwrap()),
            FileKind::Directory => {
                todo.extend(names(&dir.open_dir(&path).unwrap(), Some(&path)));
                Item::Directory(stat.mode)
            }
            kind => panic!("{path} is {kind:?}"),
        };
        tree.insert(path, item);
    }
    tree
}

fn names(dir: &Dir, below: Option<&RelativePath>) -> Vec<RelativePath> {
    let entries = dir.entries().unwrap().into_iter();
    entries
        .map(|(name, _)| match below {
            Some(path) => path.join(&name).unwrap(),
            None => RelativePath::new(name).unwrap(),
        })
        .collect()
}

/// A small pseudorandom generator that returns the same numbers for the same seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    /// A tree of few names, so that two trees conflict in every way.
    pub(super) fn tree(&mut self) -> Tree {
        let mut tree = Tree::new();
        self.fill(&mut tree, None, 0);
        tree
    }

    fn fill(&mut self, tree: &mut Tree, parent: Option<&RelativePath>, depth: usize) {
        const NAMES: [&[u8]; 6] = [b"a", b"a-b", b"b\nc", b"\xff\xfe", b"d e", b"-"];
        for name in NAMES {
            let path = match parent {
                Some(parent) => parent.join(name).unwrap(),
                None => RelativePath::new(name).unwrap(),
            };
            match self.below(if depth < 3 { 6 } else { 4 }) {
                0 => {
                    let content = vec![b'x'; self.below(3) * 40_000 + self.below(3)];
                    tree.insert(path, Item::File(content, [0o644, 0o755, 0o400][self.below(3)]));
                }
                1 => {
                    let target: &[u8] = [&b"a"[..], b"../b", b"\xff"][self.below(3)];
                    tree.insert(path, Item::Link(target.to_vec()));
                }
                4 | 5 => {
                    tree.insert(path.clone(), Item::Directory([0o755, 0o700][self.below(2)]));
                    self.fill(tree, Some(&path), depth + 1);
                }
                _ => {}
            }
        }
    }
}
