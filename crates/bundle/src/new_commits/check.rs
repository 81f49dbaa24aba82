//! The new commits between the recorded base and the command's last commit, and what each changes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::commits::{
    Commit, Error, Format, Kind, MAX_COMMITS, Mode, ObjectId, Objects, TreeEntry, reason, tree,
};
use crate::manifest::{Change, ContentHash, Entry, ExecutedBy, Node};
use crate::patch::{Content, Rendered, Sides, render};
use crate::path::RelativePath;
use crate::policy::{self, content};
use crate::project::Project;

/// The most changed paths of all commits together.
const MAX_CHANGES: usize = 200_000;
/// The deepest directory.
const MAX_DEPTH: usize = 200;
/// The most bytes of all changed contents, each name counted: one content may have many names.
const MAX_CONTENT_BYTES: u64 = 2 << 30;
/// The most ancestors of the base that are looked through.
const MAX_ANCESTORS: usize = 1_000_000;

/// One changed path of a commit.
#[derive(Debug, Clone)]
pub struct FileChange {
    /// The change, with its marks.
    pub entry: Entry,
    sides: Sides,
}

impl FileChange {
    /// The difference, as of a bundle.
    pub fn render(&self) -> Rendered {
        render(&self.entry, &self.sides, None)
    }
}

/// One new commit.
#[derive(Debug, Clone)]
pub struct NewCommit {
    /// Its name.
    pub id: ObjectId,
    /// What it says about itself. None of it is verified.
    pub commit: Commit,
    /// What it changes, compared with its first parent.
    pub changes: Vec<FileChange>,
}

/// All new commits.
#[derive(Debug)]
pub struct Commits {
    /// The last one.
    pub tip: ObjectId,
    /// All of them, parents first.
    pub list: Vec<NewCommit>,
    /// The names of the objects that the repository needs, each after those that it needs itself.
    pub(super) objects: Vec<(ObjectId, Kind)>,
}

impl Commits {
    /// The paths that tools of the host execute, with the commit that changes them.
    pub fn executed(&self) -> impl Iterator<Item = (&NewCommit, &FileChange, ExecutedBy)> {
        self.list.iter().flat_map(|commit| {
            let marked = |change: &'_ FileChange| change.entry.executed_by;
            commit.changes.iter().filter_map(move |change| Some((commit, change, marked(change)?)))
        })
    }

    /// The contents before the changes of the new commits, as far as they were not printed with the
    /// new objects. Large ones need not be there for [`Commits::check`].
    ///
    /// # Errors
    /// As [`Commits::check`].
    pub fn old_contents(
        project: &Project,
        objects: &Objects,
        tip: &ObjectId,
        base: Option<&ObjectId>,
    ) -> Result<Vec<ObjectId>, Error> {
        let check = Check::new(project, objects, tip);
        let ancestors = check.ancestors(base)?;
        let mut wanted = BTreeSet::new();
        for (_, commit) in check.order(tip, base, &ancestors)? {
            let Some(parent) = commit.parents.first() else { continue };
            let mut found = BTreeMap::new();
            check.compare(Some(&check.parent_tree(parent)?), Some(&commit.tree), &mut found)?;
            let old = found.into_values().filter_map(|(old, _)| old);
            let old = old.filter(|entry| entry.mode != Mode::Submodule).map(|entry| entry.id);
            wanted.extend(old.filter(|id| objects.get(id, Kind::Blob).is_none()));
            if wanted.len() > MAX_CHANGES {
                return Err(Error::TooLarge);
            }
        }
        Ok(wanted.into_iter().collect())
    }

    /// Checks what leads from `base`, the commit that the command started with, to `tip`.
    ///
    /// # Errors
    /// Whatever no commit that is taken may have.
    pub fn check(
        project: &Project,
        objects: &Objects,
        tip: &ObjectId,
        base: Option<&ObjectId>,
    ) -> Result<Self, Error> {
        let check = Check::new(project, objects, tip);
        let ancestors = check.ancestors(base)?;
        let order = check.order(tip, base, &ancestors)?;
        if order.is_empty() {
            return Err(Error::None);
        }
        let mut list = Vec::new();
        let mut changed = 0;
        for (id, commit) in order {
            let changes = check.changes(&id, &commit)?;
            changed += changes.len();
            if changed > MAX_CHANGES {
                return Err(Error::TooLarge);
            }
            list.push(NewCommit { id, commit, changes });
        }
        let objects = check.needed(&list, base)?;
        Ok(Self { tip: tip.clone(), list, objects })
    }
}

struct Check<'o> {
    project: &'o Project,
    objects: &'o Objects,
    format: Format,
    /// Contents that were read: many names may have the same one.
    contents: RefCell<HashMap<ObjectId, (Content, ContentHash)>>,
    /// How many bytes all changed contents have together, each name counted.
    bytes: Cell<u64>,
}

impl<'o> Check<'o> {
    fn new(project: &'o Project, objects: &'o Objects, tip: &ObjectId) -> Self {
        Self {
            project,
            objects,
            format: tip.format(),
            contents: RefCell::default(),
            bytes: Cell::new(0),
        }
    }

    fn commit(&self, id: &ObjectId) -> Result<Commit, Error> {
        let content = self.objects.get(id, Kind::Commit).ok_or_else(|| missing(id))?;
        Commit::parse(content, self.format).ok_or_else(|| invalid(id))
    }

    fn tree(&self, id: &ObjectId) -> Result<Vec<TreeEntry>, Error> {
        let content = self.objects.get(id, Kind::Tree).ok_or_else(|| missing(id))?;
        tree(content, self.format).ok_or_else(|| invalid(id))
    }

    /// The base and those of its ancestors that git has printed, which the new commits may follow.
    fn ancestors(&self, base: Option<&ObjectId>) -> Result<HashSet<ObjectId>, Error> {
        let mut found = HashSet::new();
        let mut pending: Vec<ObjectId> = base.cloned().into_iter().collect();
        while let Some(id) = pending.pop() {
            let Some(content) = self.objects.get(&id, Kind::Commit) else { continue };
            if found.len() > MAX_ANCESTORS {
                return Err(Error::TooLarge);
            }
            if found.insert(id) {
                // Old commits of the project need not be of the strict form.
                if let Some(commit) = Commit::parse(content, self.format) {
                    pending.extend(commit.parents);
                }
            }
        }
        if base.is_some_and(|base| !found.contains(base)) {
            return Err(Error::Stream("the commit that the command started with is missing"));
        }
        Ok(found)
    }

    /// The new commits, parents first. All of them lead back to the base, or to nothing where there
    /// was no commit.
    fn order(
        &self,
        tip: &ObjectId,
        base: Option<&ObjectId>,
        ancestors: &HashSet<ObjectId>,
    ) -> Result<Vec<(ObjectId, Commit)>, Error> {
        let mut order = Vec::new();
        let mut seen = HashSet::new();
        // A name is the hash of its content, so there are no rings.
        let mut stack = vec![(tip.clone(), false)];
        let mut read: HashMap<ObjectId, Commit> = HashMap::new();
        while let Some((id, has_parents)) = stack.pop() {
            if has_parents {
                if let Some(commit) = read.remove(&id) {
                    order.push((id, commit));
                }
                continue;
            }
            if ancestors.contains(&id) || !seen.insert(id.clone()) {
                continue;
            }
            if seen.len() > MAX_COMMITS {
                return Err(Error::TooLarge);
            }
            let commit = self.commit(&id).map_err(|error| match error {
                // Git prints neither the base's ancestors nor what is missing.
                Error::Object { id, what: MISSING } => Error::Unrelated(id),
                other => other,
            })?;
            if commit.parents.is_empty() && base.is_some() {
                return Err(Error::Unrelated(id));
            }
            stack.push((id.clone(), true));
            stack.extend(commit.parents.iter().map(|parent| (parent.clone(), false)));
            read.insert(id, commit);
        }
        Ok(order)
    }

    /// What a commit changes, with all marks; refuses what can never be applied.
    fn changes(&self, id: &ObjectId, commit: &Commit) -> Result<Vec<FileChange>, Error> {
        let before = match commit.parents.first() {
            Some(parent) => Some(self.parent_tree(parent)?),
            None => None,
        };
        let mut found = BTreeMap::new();
        self.compare(before.as_ref(), Some(&commit.tree), &mut found)?;
        let mut changes = Vec::new();
        for (path, (old, new)) in found {
            changes.push(self.change(id, path, old, new)?);
        }
        let mut entries: Vec<Entry> = changes.iter().map(|change| change.entry.clone()).collect();
        crate::project::mark_programs(&self.project.root, &mut entries);
        policy::refuse_bare_repositories(&mut entries, |path| match &before {
            Some(before) => self.exists(before, path),
            None => Ok(false),
        })?;
        for (change, entry) in changes.iter_mut().zip(entries) {
            change.entry = entry;
            let refused = change.entry.refused.filter(|_| change.entry.change.new_node().is_some());
            if let Some(refusal) = refused {
                return Err(refused_change(id, &change.entry.path, reason(refusal)));
            }
        }
        Ok(changes)
    }

    fn parent_tree(&self, parent: &ObjectId) -> Result<ObjectId, Error> {
        let content = self.objects.get(parent, Kind::Commit).ok_or_else(|| missing(parent))?;
        Ok(Commit::parse(content, self.format).ok_or_else(|| invalid(parent))?.tree)
    }

    /// Collects the paths that differ between two trees.
    fn compare(
        &self,
        old: Option<&ObjectId>,
        new: Option<&ObjectId>,
        found: &mut BTreeMap<RelativePath, (Option<TreeEntry>, Option<TreeEntry>)>,
    ) -> Result<(), Error> {
        let mut pending = vec![(None::<RelativePath>, old.cloned(), new.cloned(), 0)];
        let mut trees = 0_usize;
        while let Some((directory, old, new, depth)) = pending.pop() {
            if old == new {
                continue;
            }
            trees += 1;
            if depth > MAX_DEPTH || trees > MAX_CHANGES || pending.len() > MAX_CHANGES {
                return Err(Error::TooLarge);
            }
            let read = |id: &Option<ObjectId>| match id {
                // A directory of the project's own history need not be of the strict form.
                Some(id) => self.tree(id),
                None => Ok(Vec::new()),
            };
            let by_name = |entries: Vec<TreeEntry>| -> BTreeMap<Vec<u8>, TreeEntry> {
                entries.into_iter().map(|entry| (entry.name.clone(), entry)).collect()
            };
            let (mut before, after) = (by_name(read(&old)?), by_name(read(&new)?));
            let mut pairs: Vec<(Vec<u8>, Option<TreeEntry>, Option<TreeEntry>)> = Vec::new();
            for (name, entry) in after {
                pairs.push((name.clone(), before.remove(&name), Some(entry)));
            }
            pairs.extend(before.into_iter().map(|(name, entry)| (name, Some(entry), None)));
            for (name, old, new) in pairs {
                if old == new {
                    continue;
                }
                let path = match &directory {
                    Some(directory) => directory.join(&name),
                    None => RelativePath::new(name),
                };
                let path = path.map_err(|_| Error::TooLarge)?;
                let is_tree = |entry: &&TreeEntry| entry.mode == Mode::Tree;
                let below = |entry: &Option<TreeEntry>| {
                    entry.as_ref().filter(is_tree).map(|entry| entry.id.clone())
                };
                let itself =
                    |entry: Option<TreeEntry>| entry.filter(|entry| entry.mode != Mode::Tree);
                pending.push((Some(path.clone()), below(&old), below(&new), depth + 1));
                let (old, new) = (itself(old), itself(new));
                if old.is_some() || new.is_some() {
                    found.insert(path, (old, new));
                    if found.len() > MAX_CHANGES {
                        return Err(Error::TooLarge);
                    }
                }
            }
        }
        Ok(())
    }

    /// One changed path.
    fn change(
        &self,
        commit: &ObjectId,
        path: RelativePath,
        old: Option<TreeEntry>,
        new: Option<TreeEntry>,
    ) -> Result<FileChange, Error> {
        let is_submodule = |entry: &Option<TreeEntry>| {
            entry.as_ref().is_some_and(|entry| entry.mode == Mode::Submodule)
        };
        if is_submodule(&old) || is_submodule(&new) {
            return Err(refused_change(commit, &path, "it is a submodule"));
        }
        if path.file_name().eq_ignore_ascii_case(b".gitmodules") {
            return Err(refused_change(commit, &path, "it names repositories to fetch"));
        }
        // Only old contents may be missing: git prints no large ones.
        let old_content = old.as_ref().map(|entry| self.objects.get(&entry.id, Kind::Blob));
        let new_content = match &new {
            Some(entry) => {
                let content = self.objects.get(&entry.id, Kind::Blob);
                Some(content.ok_or_else(|| missing(&entry.id))?)
            }
            None => None,
        };
        let read = |entry: &Option<TreeEntry>, content: Option<&[u8]>| -> Result<_, Error> {
            entry.as_ref().map(|entry| self.read(entry, content)).transpose()
        };
        let (old_node, old_side) = read(&old, old_content.flatten())?.unzip();
        let (new_node, new_side) = read(&new, new_content)?.unzip();
        let change = match (old_node, new_node) {
            (Some(old), Some(new)) => Change::Modify { old, new },
            (None, Some(new)) => Change::Add { new },
            (Some(old), None) => Change::Delete { old },
            (None, None) => return Err(Error::Stream("a change has no side")),
        };
        let mut entry = Entry {
            path,
            change,
            renamed_from: None,
            ignored: false,
            refused: None,
            executed_by: None,
            conflict: false,
            base_known: false,
            tree: None,
        };
        policy::classify(&mut entry, self.project.root.as_os_str().as_encoded_bytes());
        if entry.executed_by.is_none() && entry.refused.is_none() && content::is_judged(&entry.path)
        {
            let is_executed = match (&new, new_content) {
                (Some(TreeEntry { mode: Mode::Link, .. }), _) => true,
                (Some(_), Some(new)) => {
                    content::changes_execution(&entry.path, old_content.flatten(), new)
                }
                _ => false,
            };
            entry.executed_by = is_executed.then_some(ExecutedBy::Build);
        }
        let sides = Sides { old: old_side, new: new_side, renamed: None };
        Ok(FileChange { entry, sides })
    }

    /// One side of a change.
    fn read(&self, entry: &TreeEntry, content: Option<&[u8]>) -> Result<(Node, Content), Error> {
        let bytes = content.map_or(0, |content| content.len() as u64);
        let all = self.bytes.get().saturating_add(bytes);
        if all > MAX_CONTENT_BYTES {
            return Err(Error::TooLarge);
        }
        self.bytes.set(all);
        let mut contents = self.contents.borrow_mut();
        let (side, hash) = contents.entry(entry.id.clone()).or_insert_with(|| match content {
            Some(content) => (Content::of(content.to_vec()), ContentHash::of(content)),
            None => (Content::Unknown(0), ContentHash::of(entry.id.to_string().as_bytes())),
        });
        let mode = if entry.mode == Mode::Executable { 0o755 } else { 0o644 };
        let node = match entry.mode {
            Mode::Link => Node::Symlink { target: content.unwrap_or_default().to_vec() },
            _ => Node::File { hash: *hash, size: bytes, mode },
        };
        Ok((node, side.clone()))
    }

    fn exists(&self, top: &ObjectId, path: &RelativePath) -> Result<bool, Error> {
        let mut at = top.clone();
        let mut names = path.components().peekable();
        while let Some(name) = names.next() {
            let Some(found) = self.tree(&at)?.into_iter().find(|entry| entry.name == name) else {
                return Ok(false);
            };
            if names.peek().is_some() && found.mode != Mode::Tree {
                return Ok(false);
            }
            at = found.id;
        }
        Ok(true)
    }

    /// The objects that the new commits have, and their parents and the base have not.
    fn needed(
        &self,
        list: &[NewCommit],
        base: Option<&ObjectId>,
    ) -> Result<Vec<(ObjectId, Kind)>, Error> {
        let new: HashSet<&ObjectId> = list.iter().map(|commit| &commit.id).collect();
        let parents = list.iter().flat_map(|commit| &commit.commit.parents);
        let mut known = HashSet::new();
        for old in parents.filter(|parent| !new.contains(parent)).chain(base) {
            if known.insert(old.clone()) {
                self.walk(&self.parent_tree(old)?, &mut known, &mut Vec::new())?;
            }
        }
        let mut needed = Vec::new();
        for commit in list {
            self.walk(&commit.commit.tree, &mut known, &mut needed)?;
            needed.push((commit.id.clone(), Kind::Commit));
        }
        Ok(needed)
    }

    /// Adds what a tree consists of and is not known yet, contents first.
    fn walk(
        &self,
        top: &ObjectId,
        known: &mut HashSet<ObjectId>,
        found: &mut Vec<(ObjectId, Kind)>,
    ) -> Result<(), Error> {
        let mut pending = vec![(top.clone(), false, 0)];
        while let Some((id, is_complete, depth)) = pending.pop() {
            if is_complete {
                found.push((id, Kind::Tree));
                continue;
            }
            if depth > MAX_DEPTH {
                return Err(Error::TooLarge);
            }
            if !known.insert(id.clone()) {
                continue;
            }
            pending.push((id.clone(), true, depth));
            for entry in self.tree(&id)? {
                match entry.mode {
                    Mode::Tree => pending.push((entry.id, false, depth + 1)),
                    // A submodule's commit is in another repository.
                    Mode::Submodule => {}
                    Mode::File | Mode::Executable | Mode::Link => {
                        if known.insert(entry.id.clone()) {
                            found.push((entry.id, Kind::Blob));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

const MISSING: &str = "missing";

fn missing(id: &ObjectId) -> Error {
    Error::Object { id: id.clone(), what: MISSING }
}

fn invalid(id: &ObjectId) -> Error {
    Error::Object { id: id.clone(), what: "none that git writes" }
}

fn refused_change(commit: &ObjectId, path: &RelativePath, reason: &'static str) -> Error {
    Error::Refused { commit: commit.clone(), path: path.quoted(), reason }
}
