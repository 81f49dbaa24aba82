//! The changes that a result bundle proposes, as entries of a bundle for review: each patch is
//! applied to the project's content in memory, and the new content is written to a view's layer, as
//! if a command had written it there.
//!
//! A patch must match exactly, or is refused: the same line numbers, the same operation and path as
//! announced, and each path at most once. Nothing here changes the project.

mod hunks;

pub use hunks::apply as apply_hunks;

use std::collections::{BTreeMap, HashSet};
use std::io::{Read as _, Write as _};

use stockade_core::BundleLimits;

use crate::beneath::{self, Dir, FileKind};
use crate::manifest::{Change, ContentHash, Entry, Node};
use crate::patch::{self, FilePatch};
use crate::path::RelativePath;
use crate::policy;
use crate::project::Project;
use crate::sandbox::{DiffBundle, DiffPatch, Operation};
use crate::scan::{self, Changes};
use crate::view::View;

/// The file type bits of a symbolic link in a mode.
const LINK: u32 = 0o120_000;
/// The permission bits of new files and directories for which the patch has none.
const NEW_FILE: u32 = 0o644;
const NEW_DIRECTORY: u32 = 0o755;

/// Why proposed changes are refused; then none of them is proposed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// They are based on another commit than the one that the sandbox started with.
    #[error("the changes were made against {found}, but the sandbox started with {expected}")]
    BaseRef {
        /// The commit that they name.
        found: String,
        /// The commit that was recorded.
        expected: String,
    },
    /// A diff is invalid.
    #[error("the diff of {path} cannot be read")]
    Diff {
        /// The path that was announced for it, printable.
        path: String,
        /// Why.
        #[source]
        source: patch::Error,
    },
    /// A diff does something other than announced.
    #[error("the diff of {path} {found}")]
    Differs {
        /// The path that was announced for it, printable.
        path: String,
        /// What it does instead.
        found: &'static str,
    },
    /// A path is changed twice.
    #[error("{path} is changed twice")]
    Duplicate {
        /// The path, printable.
        path: String,
    },
    /// A patch does not match the project's content.
    #[error("the diff of {path} does not apply: {reason}")]
    DoesNotFit {
        /// The path, printable.
        path: String,
        /// What does not match.
        reason: &'static str,
    },
    /// A path leads through a symbolic link of the project.
    #[error("{path} leads through a symbolic link")]
    ThroughLink {
        /// The path, printable.
        path: String,
    },
    /// It is a part of a repository of git.
    #[error("{path} belongs to a repository of git, which no patch may change or copy")]
    Repository {
        /// The path, printable.
        path: String,
    },
    /// There is more than a bundle may hold.
    #[error(transparent)]
    Limit(#[from] crate::validate::LimitExceeded),
    /// The project could not be read.
    #[error("cannot read {path} in the project")]
    Read {
        /// The path, printable.
        path: String,
        /// Why.
        #[source]
        source: beneath::Error,
    },
    /// The new content could not be written to the view.
    #[error("cannot write {path} to the view")]
    Write {
        /// The path, printable.
        path: String,
        /// Why.
        #[source]
        source: beneath::Error,
    },
    /// The entries could not be completed.
    #[error(transparent)]
    Scan(#[from] scan::Error),
}

impl Error {
    /// The error code that Smithers uses for this refusal.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::BaseRef { .. }
            | Self::Diff { .. }
            | Self::Differs { .. }
            | Self::Duplicate { .. }
            | Self::Limit(_) => "INVALID_INPUT",
            Self::ThroughLink { .. } | Self::Repository { .. } => "TOOL_PATH_ESCAPE",
            Self::DoesNotFit { .. } => "TOOL_PATCH_FAILED",
            Self::Read { .. } | Self::Write { .. } | Self::Scan(_) => "SANDBOX_EXECUTION_FAILED",
        }
    }
}

/// Turns proposed changes into entries, and writes their contents to `view`, which was created
/// from `project` when the sandbox started and has not been written to. [`Store::create`] creates
/// a bundle of both.
///
/// # Errors
/// [`Error`] when any of the patches is refused.
///
/// [`Store::create`]: crate::store::Store::create
pub fn propose(
    view: &View,
    project: &Project,
    diff: &DiffBundle,
    limits: &BundleLimits,
) -> Result<Changes, Error> {
    check_base(&diff.base_ref, view.record().base_ref.as_deref())?;
    let mut proposal = Proposal {
        view,
        project: &project.dir,
        limits,
        entries: BTreeMap::new(),
        seen: HashSet::new(),
        bytes: 0,
    };
    for patch in &diff.patches {
        proposal.add_patch(patch)?;
    }
    let entries = proposal.entries.into_values().collect();
    Ok(scan::finish(entries, view, project)?)
}

/// `HEAD` means the commit that the sandbox started with; anything else must be a prefix of that
/// commit's id.
fn check_base(found: &str, recorded: Option<&str>) -> Result<(), Error> {
    let is_beginning = |commit: &str| found.len() >= 7 && commit.starts_with(found);
    if found == "HEAD" || recorded.is_some_and(is_beginning) {
        return Ok(());
    }
    let expected = recorded.unwrap_or("no commit").to_owned();
    Err(Error::BaseRef { found: stockade_core::printable::escaped(found).into_owned(), expected })
}

struct Proposal<'a> {
    view: &'a View,
    project: &'a Dir,
    limits: &'a BundleLimits,
    entries: BTreeMap<RelativePath, Entry>,
    /// The paths that were changed.
    seen: HashSet<RelativePath>,
    bytes: u64,
}

/// The node of the project at a path.
struct Base {
    node: Node,
    /// A file's content, or a link's target.
    content: Vec<u8>,
    /// Whether the host changed it since the view was created.
    conflict: bool,
}

impl Proposal<'_> {
    fn add_patch(&mut self, proposed: &DiffPatch) -> Result<(), Error> {
        let path = &proposed.path;
        if self.seen.contains(path) {
            return Err(Error::Duplicate { path: path.quoted() });
        }
        let files = patch::parse(proposed.diff.as_bytes(), self.limits)
            .map_err(|source| Error::Diff { path: path.quoted(), source })?;
        let differs = |found| Error::Differs { path: path.quoted(), found };
        let file = match files.as_slice() {
            [file] => Some(file),
            // A binary content needs only a path.
            [] if proposed.binary_content.is_some() || proposed.operation == Operation::Delete => {
                None
            }
            [] => return Err(differs("changes nothing")),
            _ => return Err(differs("changes other files too")),
        };
        if let Some(file) = file {
            check_declared(file, proposed).map_err(differs)?;
        }
        let moved_from = file.filter(|file| file.operation == patch::Operation::Rename);
        let source = match file.map(|file| file.operation) {
            Some(patch::Operation::Rename | patch::Operation::Copy) => {
                file.and_then(|file| file.old_path.as_ref()).unwrap_or(path)
            }
            _ => path,
        };
        if source != path && policy::refusal(source, None, &[]).is_some() {
            // Nothing of a repository is copied into a file of the project.
            return Err(Error::Repository { path: source.quoted() });
        }
        let here = self.base(path)?;
        let base = if source == path { None } else { self.base(source)? };
        let from = if source == path { here.as_ref() } else { base.as_ref() };
        let lacks = |reason| Error::DoesNotFit { path: path.quoted(), reason };
        let is_new = proposed.operation == Operation::Add || source != path;
        match (&here, from) {
            (Some(_), _) if is_new => return Err(lacks("the path already exists")),
            (_, None) if !is_new || source != path => return Err(lacks("there is no such file")),
            _ => {}
        }
        if let (Some(told), Some(from)) = (file.and_then(|file| file.old_mode), from)
            && (told & LINK == LINK) != (mode_of(from) & LINK == LINK)
        {
            return Err(lacks(
                "it changes a link where there is a file, or a file where there is a link",
            ));
        }
        let change = if proposed.operation == Operation::Delete {
            let old = here.as_ref().map(|base| base.node.clone()).ok_or_else(|| lacks("gone"))?;
            if let Some(file) = file
                && !file.binary
                && !self.content(file, proposed, from)?.is_empty()
            {
                return Err(lacks("the file would not be empty after its deletion"));
            }
            Change::Delete { old }
        } else {
            let content = match file {
                Some(file) => self.content(file, proposed, from)?,
                None => proposed.binary_content.clone().unwrap_or_default(),
            };
            let new = self.write_content(path, content, mode(file, from))?;
            match here.as_ref().map(|base| base.node.clone()) {
                None => Change::Add { new },
                Some(old) => Change::Modify { old, new },
            }
        };
        if let (Some(_), Some(base)) = (moved_from, &base) {
            let change = Change::Delete { old: base.node.clone() };
            self.add(source.clone(), change, base.conflict)?;
        }
        let conflict = here.is_some_and(|base| base.conflict);
        self.add(path.clone(), change, conflict)
    }

    /// The content after a patch.
    fn content(
        &self,
        file: &FilePatch<'_>,
        proposed: &DiffPatch,
        base: Option<&Base>,
    ) -> Result<Vec<u8>, Error> {
        let fits_not = |reason| Error::DoesNotFit { path: proposed.path.quoted(), reason };
        match &proposed.binary_content {
            Some(content) => Ok(content.clone()),
            None => {
                let base = base.map(|base| base.content.as_slice()).unwrap_or_default();
                match &file.data {
                    Some(data) => data.content(base, self.limits.total_bytes).map_err(fits_not),
                    None if file.binary => Err(fits_not(
                        "it is binary, and has neither its data, as `git diff --binary` writes it, nor `binaryContent`",
                    )),
                    None => hunks::apply(base, &file.hunks).map_err(fits_not),
                }
            }
        }
    }

    /// The project's node; `None` if the path does not exist.
    fn base(&mut self, path: &RelativePath) -> Result<Option<Base>, Error> {
        let failing = |source| match source {
            beneath::Error::ThroughLink { .. } => Error::ThroughLink { path: path.quoted() },
            source => Error::Read { path: path.quoted(), source },
        };
        let Some(stat) = self.project.stat(path).map_err(failing)? else { return Ok(None) };
        let mode = stat.mode & 0o777;
        let (node, content) = match stat.kind {
            FileKind::File => {
                self.count(stat.size)?;
                let file = self.project.open_file(path).map_err(failing)?;
                let mut content = Vec::new();
                let read = file.take(self.limits.total_bytes + 1).read_to_end(&mut content);
                read.map_err(|source| failing(io_error("read", path, source)))?;
                let (hash, size) = (ContentHash::of(&content), content.len() as u64);
                (Node::File { hash, size, mode }, content)
            }
            FileKind::Symlink => {
                let target = self.project.read_link(path).map_err(failing)?;
                (Node::Symlink { target: target.clone() }, target)
            }
            FileKind::Directory | FileKind::CharacterDevice | FileKind::Other => {
                let reason = "there is something else than a file";
                return Err(Error::DoesNotFit { path: path.quoted(), reason });
            }
        };
        Ok(Some(Base { node, content, conflict: stat.changed > self.view.record().started }))
    }

    /// Writes new content to the view.
    fn write_content(
        &mut self,
        path: &RelativePath,
        content: Vec<u8>,
        mode: u32,
    ) -> Result<Node, Error> {
        if mode & LINK == LINK {
            return Ok(Node::Symlink { target: content });
        }
        self.count(content.len() as u64)?;
        self.make_parents(path)?;
        let failing = |source| Error::Write { path: path.quoted(), source };
        let mut file = self.view.changed().create_file(path, 0o600).map_err(failing)?;
        file.write_all(&content).map_err(|source| failing(io_error("write", path, source)))?;
        let (hash, size) = (ContentHash::of(&content), content.len() as u64);
        Ok(Node::File { hash, size, mode: mode & 0o777 })
    }

    /// Creates the parent directories of a path in the view; those that the project lacks are
    /// changes.
    fn make_parents(&mut self, path: &RelativePath) -> Result<(), Error> {
        let parents: Vec<_> = std::iter::successors(path.parent(), RelativePath::parent).collect();
        for parent in parents.into_iter().rev() {
            let made = self.view.changed().mkdir(&parent, 0o700);
            if made.as_ref().is_err_and(|e| e.kind() == Some(std::io::ErrorKind::AlreadyExists)) {
                continue;
            }
            made.map_err(|source| Error::Write { path: parent.quoted(), source })?;
            let there = self.project.stat(&parent);
            match there.map_err(|source| Error::Read { path: parent.quoted(), source })? {
                Some(stat) if stat.kind == FileKind::Directory => {}
                Some(_) => {
                    let reason = "what should be a directory is none";
                    return Err(Error::DoesNotFit { path: path.quoted(), reason });
                }
                None => {
                    let new = Node::Directory { mode: NEW_DIRECTORY };
                    self.add(parent, Change::Add { new }, false)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, path: RelativePath, change: Change, conflict: bool) -> Result<(), Error> {
        if !self.seen.insert(path.clone()) {
            return Err(Error::Duplicate { path: path.quoted() });
        }
        let entry = Entry { conflict, ..Entry::new(path.clone(), change) };
        self.entries.insert(path, entry);
        Ok(())
    }

    fn count(&mut self, size: u64) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(size);
        let total = crate::validate::check_limit;
        Ok(total(self.bytes, "total_bytes", self.limits.total_bytes, self.limits)?)
    }
}

/// Checks that a diff does what was announced; the error says what it does instead.
fn check_declared(file: &FilePatch<'_>, proposed: &DiffPatch) -> Result<(), &'static str> {
    let own = file.new_path.as_ref().or(file.old_path.as_ref());
    if own != Some(&proposed.path) {
        return Err("changes another path");
    }
    let fits = match file.operation {
        patch::Operation::Add | patch::Operation::Copy => proposed.operation == Operation::Add,
        patch::Operation::Delete => proposed.operation == Operation::Delete,
        patch::Operation::Modify => proposed.operation == Operation::Modify,
        // `git diff` describes a move as one diff, which both adds and modifies.
        patch::Operation::Rename => proposed.operation != Operation::Delete,
    };
    if fits { Ok(()) } else { Err("describes another operation") }
}

/// The mode of the project's node; [`LINK`] for a link.
const fn mode_of(base: &Base) -> u32 {
    match base.node {
        Node::File { mode, .. } => mode,
        Node::Symlink { .. } | Node::Directory { .. } => LINK,
    }
}

/// The new mode: the old one, unless the patch changes it.
fn mode(file: Option<&FilePatch<'_>>, base: Option<&Base>) -> u32 {
    let before = base.map(mode_of);
    // A patch that changes only content contains the mode that git has recorded, which may differ
    // from the file's.
    let changed = file.filter(|file| before.is_none() || file.old_mode != file.new_mode);
    match (changed.and_then(|file| file.new_mode), before) {
        (Some(new), _) if new & LINK == LINK => LINK,
        // Git only records whether a file is executable; the other bits are unchanged.
        (Some(new), Some(before)) if before & LINK != LINK && new & 0o111 != 0 => {
            before | (before & 0o444) >> 2
        }
        (Some(_), Some(before)) if before & LINK != LINK => before & !0o111,
        (Some(new), _) => new & 0o777,
        (None, Some(before)) => before,
        (None, None) => NEW_FILE,
    }
}

fn io_error(
    operation: &'static str,
    path: &RelativePath,
    source: std::io::Error,
) -> beneath::Error {
    beneath::Error::Io { operation, path: path.quoted(), source }
}

#[cfg(test)]
mod tests;
