//! Determining which entries git ignores, according to the repository that each belongs to: that of
//! the nearest directory above it with a `.git`. So a submodule or a clone in the project has its
//! own rules and its own index.
//!
//! The project decides what a repository is, never the view: no bundle can contain a `.git`.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Read as _;

use crate::beneath::Dir;
use crate::ignore::{self, Ignore};
use crate::index::{self, Index};
use crate::manifest::{Entry, Node};
use crate::path::RelativePath;
use crate::project::{Project, Repository};
use crate::view::View;

/// For each of sorted entries, whether git ignores it.
///
/// The rules of the changed tree decide, as they would after the bundle is applied, but only
/// among what the project's own rules ignore: a command that could add a rule could hide its
/// changes. A tracked file is never ignored.
pub(super) fn ignored(
    entries: &[Entry],
    view: &View,
    project: &Project,
    notes: &mut Vec<String>,
) -> Vec<bool> {
    let mut repositories = Repositories {
        entries,
        view,
        project,
        by_directory: HashMap::new(),
        rules: HashMap::new(),
    };
    let mut verdict = |entry: &Entry| {
        if entry.refused.is_some() {
            return false;
        }
        let root = repositories.root_of(entry.path.parent());
        let Some(path) = path_in_repository(root.as_ref(), &entry.path) else { return false };
        let Some(rules) = repositories.rules(root) else { return false };
        let node = entry.change.new_node().or_else(|| entry.change.old());
        let is_directory = matches!(node, Some(Node::Directory { .. }));
        let Ok(was) = rules.before.ignores(&path, is_directory);
        let Ok(is) = rules.after.ignores(&path, is_directory);
        was && is && !rules.index(project, notes).tracks(&path)
    };
    entries.iter().map(&mut verdict).collect()
}

/// A path relative to the root of its repository.
fn path_in_repository(root: Option<&RelativePath>, path: &RelativePath) -> Option<RelativePath> {
    match root {
        None => Some(path.clone()),
        Some(root) => RelativePath::new(path.as_bytes().get(root.as_bytes().len() + 1..)?).ok(),
    }
}

struct Repositories<'a> {
    entries: &'a [Entry],
    view: &'a View,
    project: &'a Project,
    /// The root of the repository that contains the content of each directory; `None` is the
    /// project.
    by_directory: HashMap<RelativePath, Option<RelativePath>>,
    rules: HashMap<Option<RelativePath>, Rules<'a>>,
}

impl<'a> Repositories<'a> {
    fn root_of(&mut self, mut directory: Option<RelativePath>) -> Option<RelativePath> {
        let mut passed = Vec::new();
        let root = loop {
            let Some(path) = directory else { break None };
            if let Some(known) = self.by_directory.get(&path) {
                break known.clone();
            }
            directory = path.parent();
            let is_root = self.project.repository(Some(&path)).is_some();
            passed.push(path.clone());
            if is_root {
                break Some(path);
            }
        };
        self.by_directory.extend(passed.into_iter().map(|path| (path, root.clone())));
        root
    }

    fn rules(&mut self, root: Option<RelativePath>) -> Option<&mut Rules<'a>> {
        if !self.rules.contains_key(&root) {
            let repository = self.project.repository(root.as_ref())?;
            let rules = Rules::new(repository, self.entries, self.view, self.project);
            self.rules.insert(root.clone(), rules);
        }
        self.rules.get_mut(&root)
    }
}

type Read<'a> = Box<dyn FnMut(&RelativePath) -> Result<Option<Vec<u8>>, Infallible> + 'a>;

/// The rules and the index of one repository.
struct Rules<'a> {
    repository: Repository,
    before: Ignore<Read<'a>>,
    after: Ignore<Read<'a>>,
    index: Option<Index>,
}

impl<'a> Rules<'a> {
    fn new(
        repository: Repository,
        entries: &'a [Entry],
        view: &'a View,
        project: &'a Project,
    ) -> Self {
        let exclude = RelativePath::literal("info/exclude");
        let exclude = repository.common_file(project, &exclude, ignore::MAX_FILE_BYTES);
        let exclude = exclude.unwrap_or_default();
        let case = if repository.ignores_case(project) {
            ignore::Case::Ignored
        } else {
            ignore::Case::Distinct
        };
        let root = repository.root().cloned();
        let of_project = move |file: &RelativePath| match &root {
            None => Some(file.clone()),
            Some(root) => root.join(file.as_bytes()).ok(),
        };
        let directory = of_project.clone();
        let before: Read<'a> =
            Box::new(move |file| Ok(directory(file).and_then(|file| rules(&project.dir, &file))));
        let after: Read<'a> = Box::new(move |file| {
            let Some(file) = of_project(file) else { return Ok(None) };
            Ok(match entries.binary_search_by(|entry| entry.path.cmp(&file)) {
                Err(_) => rules(&project.dir, &file),
                Ok(at) => match entries[at].change.new_node() {
                    Some(Node::File { .. }) => rules(view.changed(), &file),
                    _ => None,
                },
            })
        });
        Self {
            before: Ignore::new(&exclude, case, before),
            after: Ignore::new(&exclude, case, after),
            repository,
            index: None,
        }
    }

    /// The paths that git tracks, read on first use.
    fn index(&mut self, project: &Project, notes: &mut Vec<String>) -> &Index {
        self.index.get_or_insert_with(|| tracked(&self.repository, project, notes))
    }
}

/// The content of an ignore file. Like git, it reads no file that is a link or is unreadable.
fn rules(tree: &Dir, file: &RelativePath) -> Option<Vec<u8>> {
    let file = tree.open_file(file).ok()?;
    let mut content = Vec::new();
    file.take(ignore::MAX_FILE_BYTES + 1).read_to_end(&mut content).ok()?;
    Some(content)
}

/// The paths that git tracks; empty, with a note, if they cannot be determined.
fn tracked(repository: &Repository, project: &Project, notes: &mut Vec<String>) -> Index {
    let path = repository.root().map_or_else(|| "here".to_owned(), |root| format!("in {root}"));
    let read = |name: &str| {
        let name = RelativePath::new(name).ok()?;
        repository.file(project, &name, index::MAX_FILE_BYTES)
    };
    let Some(content) = read("index") else {
        notes.push(format!("git has no index {path}: all files count as untracked"));
        return Index::default();
    };
    let parsed = Index::parse(&content).and_then(|mut index| {
        if let Some(shared) = index.shared().map(str::to_owned) {
            index.join(Index::parse(&read(&shared).unwrap_or_default())?);
        }
        Ok(index)
    });
    parsed.unwrap_or_else(|error| {
        notes.push(format!("{error} {path}: all files count as untracked"));
        Index::default()
    })
}
