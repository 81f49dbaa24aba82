//! The files of a project as the steps of workflow runs found them. Contents and trees are named by their
//! hashes, so what does not change from step to step is stored once. Each record of a run names the tree
//! that was there; records, and what only they need, are removed by age.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::beneath::{self, Dir, FileKind};
use crate::data::{self, DataDir};
use crate::manifest::{ContentHash, Node};
use crate::path::RelativePath;
use crate::sync::{
    self, Blobs, Comparison, Filter, Found, Mode, Patterns, Policy, ReadIgnoreFile, Scan, Sides,
    Verdict,
};
use crate::view;

/// How many files of a project are kept at most.
pub const MAX_FILES: u64 = 20_000;
/// How many bytes of a project are kept at most.
pub const MAX_BYTES: u64 = 256 << 20;
/// How long the records of a run are kept after the last one, in seconds.
const LONGEST_SECONDS: i64 = 14 * 24 * 60 * 60;
/// The longest ignore file that is read.
const MAX_IGNORE_BYTES: u64 = 4 << 20;
/// What belongs to the tools that run workflows, and is not a part of a tree.
const EXCLUDED: [&str; 2] = ["/.smithers/", "/.stockade/"];

/// Why files were not kept, or could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The project is too large.
    #[error("the project has more than {MAX_FILES} files or {} MiB that git does not ignore", MAX_BYTES >> 20)]
    TooLarge,
    /// A file could not be read.
    #[error("{0} cannot be read")]
    Unreadable(RelativePath),
    /// A file that was to be replaced changed meanwhile.
    #[error("{0} was changed meanwhile")]
    ChangedMeanwhile(RelativePath),
    /// The destination already has files.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A record is damaged.
    #[error("a record of the files of a run cannot be read")]
    Damaged(#[source] serde_json::Error),
    /// The project could not be copied.
    #[error("the project cannot be copied")]
    Copy(#[source] view::Error),
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// A file system operation failed.
    #[error("cannot use the kept files")]
    Io(#[from] io::Error),
}

impl From<beneath::Error> for Error {
    fn from(error: beneath::Error) -> Self {
        Self::Io(error.into())
    }
}

type Result<T> = std::result::Result<T, Error>;

/// The state of a project at one moment of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// The number of the next event of the run at that moment, which orders the records.
    pub event: i64,
    /// The steps that started then: tasks and their iterations.
    pub steps: Vec<(String, u32)>,
    /// The tree; absent if it could not be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<ContentHash>,
    /// Why it could not be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The kept trees of one project.
#[derive(Debug)]
pub struct KeptTrees {
    dir: Dir,
    contents: Blobs,
    trees: Blobs,
}

impl KeptTrees {
    /// Opens the trees of the project with this absolute path.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(data: &DataDir, project: &Path) -> Result<Self> {
        let all = data.run_files()?;
        let name = name(&ContentHash::of(project.as_os_str().as_bytes()).to_hex()[..32])?;
        let dir = subdirectory(&all, &name)?;
        let below = |part| subdirectory(&dir, &RelativePath::literal(part));
        let (contents, trees) = (Blobs::new(below("contents")?), Blobs::new(below("trees")?));
        below("runs")?;
        Ok(Self { dir, contents, trees })
    }

    /// Stores the files of a project as they are, except those that git ignores; returns their tree.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Unreadable`], and those of the file system.
    pub fn keep(&self, project: &Dir) -> Result<ContentHash> {
        let _lock = self.lock(FlockOperation::LockShared)?;
        measure(project)?;
        let mut scan = sync::scan(project, &mut filter(project)?, None)?;
        if let Some(path) = scan.unreadable() {
            return Err(Error::Unreadable(path.clone()));
        }
        for (path, found) in &mut scan.tree {
            let Node::File { hash, size, .. } = &mut found.node else { continue };
            if !self.contents.has(*hash)? {
                // What is stored counts, if the file has changed since it was read.
                (*hash, *size) = self.contents.put(&mut project.open_file(path)?)?;
            }
        }
        let listed: Vec<(&RelativePath, &Found)> = scan.tree.iter().collect();
        let text = serde_json::to_vec(&listed).map_err(Error::Damaged)?;
        Ok(self.trees.put(&mut text.as_slice())?.0)
    }

    /// Adds a record of a run.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn record(&self, run: &str, record: &Record) -> Result<()> {
        let _lock = self.lock(FlockOperation::LockShared)?;
        let dir = self.dir.open_dir(&RelativePath::literal("runs"))?;
        let dir = subdirectory(&dir, &name(run)?)?;
        let mut number = 0_u32;
        let mut file = loop {
            match dir.create_file(&name(&format!("{:012}-{number}", record.event))?, 0o600) {
                Err(error) if error.errno() == Some(Errno::EXIST) => number += 1,
                created => break created?,
            }
        };
        file.write_all(&serde_json::to_vec(record).map_err(Error::Damaged)?)?;
        Ok(())
    }

    /// The records of a run, in their order.
    ///
    /// # Errors
    /// [`Error::Damaged`], and those of the file system.
    pub fn records(&self, run: &str) -> Result<Vec<Record>> {
        let runs = self.dir.open_dir(&RelativePath::literal("runs"))?;
        let Some(dir) = existing(&runs, &name(run)?)? else { return Ok(Vec::new()) };
        let mut names = dir.entries()?;
        names.sort_by(|one, other| one.0.cmp(&other.0));
        let mut records = Vec::with_capacity(names.len());
        for (name, _) in names {
            let path = RelativePath::new(name).map_err(io::Error::other)?;
            let mut text = Vec::new();
            dir.open_file(&path)?.read_to_end(&mut text)?;
            records.push(serde_json::from_slice(&text).map_err(Error::Damaged)?);
        }
        Ok(records)
    }

    /// Copies a project to an empty directory, and makes its files those of a tree. What git ignores, and
    /// the git directory, are as they are in the project now.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::Copy`], and those of the file system.
    pub fn restore(&self, tree: ContentHash, project: &Dir, to: &Dir) -> Result<()> {
        if !to.entries()?.is_empty() {
            return Err(Error::NotEmpty);
        }
        let _lock = self.lock(FlockOperation::LockShared)?;
        let source = Scan { tree: self.tree(tree)?, ..Scan::default() };
        view::copy_whole(project, to, None).map_err(Error::Copy)?;
        let destination = sync::scan(to, &mut filter(to)?, None)?;
        let sides = Sides { source: &source, destination: &destination, base: None };
        let comparison =
            Comparison { mode: Mode::Mirror, policy: Policy::Source, empty_directories: true };
        let plan = sync::compare(sides, comparison, &mut |_, _| Ok(false))?;
        let open = |hash| self.contents.open(hash);
        let place = sync::Place::new(to, "restore", &plan.at_destination, &open)?;
        match place.run()?.changed_meanwhile.into_iter().next() {
            Some(path) => Err(Error::ChangedMeanwhile(path)),
            None => Ok(()),
        }
    }

    /// Removes the records of ended runs that are old, and what only they needed.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn tidy(&self, unfinished: &[String], now_seconds: i64) -> Result<usize> {
        let _lock = self.lock(FlockOperation::LockExclusive)?;
        let runs = self.dir.open_dir(&RelativePath::literal("runs"))?;
        let (mut removed, mut needed) = (0, BTreeSet::new());
        for (run, _) in runs.entries()? {
            let Ok(run) = String::from_utf8(run) else { continue };
            let path = name(&run)?;
            let age = now_seconds - runs.open_dir(&path)?.stat_self()?.modified.seconds;
            if age > LONGEST_SECONDS && !unfinished.contains(&run) {
                runs.remove_tree(&path)?;
                removed += 1;
            } else {
                needed.extend(self.records(&run)?.into_iter().filter_map(|record| record.tree));
            }
        }
        if removed == 0 {
            return Ok(0);
        }
        let mut contents = BTreeSet::new();
        for tree in &needed {
            contents.extend(self.tree(*tree)?.into_values().filter_map(|found| match found.node {
                Node::File { hash, .. } => Some(hash),
                _ => None,
            }));
        }
        self.sweep("trees", &needed)?;
        self.sweep("contents", &contents)?;
        Ok(removed)
    }

    /// Removes what no record needs.
    fn sweep(&self, part: &'static str, needed: &BTreeSet<ContentHash>) -> Result<()> {
        let dir = self.dir.open_dir(&RelativePath::literal(part))?;
        for (entry, _) in dir.entries()? {
            let hash = std::str::from_utf8(&entry).ok().and_then(ContentHash::from_hex);
            if hash.is_none_or(|hash| !needed.contains(&hash)) {
                dir.remove_file(&RelativePath::new(entry).map_err(io::Error::other)?)?;
            }
        }
        Ok(())
    }

    fn tree(&self, tree: ContentHash) -> Result<BTreeMap<RelativePath, Found>> {
        let mut text = Vec::new();
        self.trees.open(tree)?.read_to_end(&mut text)?;
        let listed: Vec<(RelativePath, Found)> =
            serde_json::from_slice(&text).map_err(Error::Damaged)?;
        Ok(listed.into_iter().collect())
    }

    /// Locks the trees: shared to use them, or exclusively to remove some.
    fn lock(&self, operation: FlockOperation) -> Result<File> {
        let path = RelativePath::literal("lock");
        let file = match self.dir.create_file(&path, 0o600) {
            Err(error) if error.errno() == Some(Errno::EXIST) => self.dir.open_file(&path)?,
            created => created?,
        };
        rustix::fs::flock(&file, operation).map_err(io::Error::from)?;
        Ok(file)
    }
}

fn name(text: &str) -> Result<RelativePath> {
    Ok(RelativePath::new(text).map_err(io::Error::other)?)
}

fn existing(dir: &Dir, path: &RelativePath) -> Result<Option<Dir>> {
    match dir.open_dir(path) {
        Err(error) if error.errno() == Some(Errno::NOENT) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

fn subdirectory(dir: &Dir, path: &RelativePath) -> Result<Dir> {
    if let Some(found) = existing(dir, path)? {
        return Ok(found);
    }
    match dir.mkdir(path, 0o700) {
        Err(error) if error.errno() != Some(Errno::EXIST) => Err(error.into()),
        _ => Ok(dir.open_dir(path)?),
    }
}

/// What belongs to the tree of a project.
fn filter(project: &Dir) -> Result<Filter> {
    let root = project.reopen()?;
    let read: ReadIgnoreFile = Box::new(move |path| {
        let Ok(file) = root.open_file(path) else { return Ok(None) };
        let mut text = Vec::new();
        file.take(MAX_IGNORE_BYTES).read_to_end(&mut text)?;
        Ok(Some(text))
    });
    let exclude = EXCLUDED.map(str::to_owned).to_vec();
    Ok(Filter::new(&Patterns { exclude, ..Patterns::default() }, Some(read)))
}

/// Refuses a project that is too large, before anything of it is read.
fn measure(project: &Dir) -> Result<()> {
    let mut filter = filter(project)?;
    let (mut files, mut bytes) = (0_u64, 0_u64);
    let mut pending: Vec<Option<RelativePath>> = vec![None];
    while let Some(directory) = pending.pop() {
        let listed = match &directory {
            None => project.entries()?,
            Some(path) => match project.open_dir(path).and_then(|dir| dir.entries()) {
                Ok(listed) => listed,
                Err(_) => return Err(Error::Unreadable(path.clone())),
            },
        };
        for (entry, kind) in listed {
            let path = match &directory {
                None => RelativePath::new(entry),
                Some(directory) => directory.join(&entry),
            };
            let path = path.map_err(io::Error::other)?;
            let is_directory = kind == FileKind::Directory;
            if filter.judge(&path, is_directory)? != Verdict::Keep {
                continue;
            }
            if is_directory {
                pending.push(Some(path));
                continue;
            }
            files += 1;
            if kind == FileKind::File {
                bytes += project.stat(&path)?.map_or(0, |stat| stat.size);
            }
            if files > MAX_FILES || bytes > MAX_BYTES {
                return Err(Error::TooLarge);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Place {
        directory: tempfile::TempDir,
        kept: KeptTrees,
    }

    impl Place {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            for part in ["project/sub", "copy"] {
                fs::create_dir_all(directory.path().join(part)).unwrap();
            }
            let data = DataDir::open(&directory.path().join("data")).unwrap();
            let kept = KeptTrees::open(&data, &directory.path().join("project")).unwrap();
            Self { directory, kept }
        }

        fn dir(&self, name: &str) -> Dir {
            Dir::open(&self.directory.path().join(name)).unwrap()
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.directory.path().join(name), text).unwrap();
        }

        fn read(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.directory.path().join(name)).ok()
        }
    }

    #[test]
    fn a_restored_copy_has_the_files_of_then_and_the_project_those_of_now() {
        let place = Place::new();
        for (name, text) in
            [("a", "one"), ("sub/b", "old"), (".gitignore", "built\n"), ("built", "1")]
        {
            place.write(&format!("project/{name}"), text);
        }
        let tree = place.kept.keep(&place.dir("project")).unwrap();
        place.write("project/a", "two");
        place.write("project/new", "new");
        place.write("project/built", "2");
        fs::remove_file(place.directory.path().join("project/sub/b")).unwrap();
        let later = place.kept.keep(&place.dir("project")).unwrap();
        assert_ne!(tree, later);
        place.kept.restore(tree, &place.dir("project"), &place.dir("copy")).unwrap();
        let found = ["a", "sub/b", "new", "built"].map(|name| place.read(&format!("copy/{name}")));
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(found, [text("one"), text("old"), None, text("2")]);
        assert_eq!(place.read("project/a"), text("two"));
        assert_eq!(place.read("project/new"), text("new"));
        let again = place.kept.restore(tree, &place.dir("project"), &place.dir("copy"));
        assert!(matches!(again, Err(Error::NotEmpty)), "{again:?}");
    }

    #[test]
    fn a_project_that_is_too_large_is_refused_before_it_is_read() {
        let place = Place::new();
        let file = fs::File::create(place.directory.path().join("project/large")).unwrap();
        file.set_len(MAX_BYTES + 1).unwrap();
        let kept = place.kept.keep(&place.dir("project"));
        assert!(matches!(kept, Err(Error::TooLarge)), "{kept:?}");
    }

    #[test]
    fn only_what_no_record_needs_is_removed() {
        let place = Place::new();
        let mut kept = Vec::new();
        for (run, text) in [("old", "one"), ("open", "two"), ("new", "three")] {
            place.write("project/a", text);
            let tree = Some(place.kept.keep(&place.dir("project")).unwrap());
            let record = Record { event: 3, steps: vec![("s".to_owned(), 0)], tree, reason: None };
            place.kept.record(run, &record).unwrap();
            assert_eq!(place.kept.records(run).unwrap(), [record]);
            kept.extend(tree);
        }
        let now = std::time::SystemTime::now();
        let seconds = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let later = i64::try_from(seconds).unwrap() + LONGEST_SECONDS + 5;
        let unfinished = ["open".to_owned(), "new".to_owned()];
        assert_eq!(place.kept.tidy(&unfinished, later - 10).unwrap(), 0);
        assert_eq!(place.kept.tidy(&unfinished, later).unwrap(), 1);
        assert!(place.kept.tree(kept[0]).is_err() && place.kept.records("old").unwrap().is_empty());
        place.kept.restore(kept[1], &place.dir("project"), &place.dir("copy")).unwrap();
        assert_eq!(place.read("copy/a"), Some("two".to_owned()));
    }
}
