//! What git executes or obeys inside of a project because its configuration names it: hooks,
//! programs, included files.
//!
//! The configuration is that of the host, which no command in a sandbox can change. It is read with
//! all its files, as git reads it, and nothing is started. A condition of an `includeIf` is taken
//! for true: to know too many files is safe.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::keys::{Meaning, meaning};
use super::{Git, Project, commands, config};
use crate::beneath::Dir;
use crate::path::RelativePath;

/// A longer configuration is not read, and git is slow with it.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// As in git, to end a ring of files that include each other.
const MAX_INCLUDES: usize = 10;

/// The most repositories in a project whose configuration is read.
const MAX_REPOSITORIES: usize = 1000;

/// Where git looks for configuration outside of a repository.
#[derive(Debug, Clone, Default)]
pub(crate) struct Surroundings {
    home: Option<PathBuf>,
    files: Vec<PathBuf>,
}

impl Surroundings {
    /// Those of the user of this process.
    pub(crate) fn of_process() -> Self {
        let named =
            |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = named("HOME");
        let mut files =
            vec![PathBuf::from("/etc/gitconfig"), PathBuf::from("/usr/local/etc/gitconfig")];
        files.extend(named("GIT_CONFIG_SYSTEM"));
        files.extend(named("GIT_CONFIG_GLOBAL"));
        let own =
            named("XDG_CONFIG_HOME").or_else(|| home.as_ref().map(|home| home.join(".config")));
        files.extend(own.map(|own| own.join("git/config")));
        files.extend(home.as_ref().map(|home| home.join(".gitconfig")));
        Self { home, files }
    }

    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// The files, from the weakest to the strongest.
    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    #[cfg(test)]
    pub(crate) fn new(home: &Path, files: Vec<PathBuf>) -> Self {
        Self { home: Some(home.to_owned()), files }
    }
}

/// The paths in a project that git executes or obeys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Programs {
    /// Files, and directories whose whole content counts.
    paths: BTreeSet<RelativePath>,
    /// Whether hooks lie in the project's root.
    hooks_in_root: bool,
}

impl Programs {
    /// Those of a project, of the repositories in it, and of those at `nested`.
    pub(crate) fn of(
        project: &Project,
        surroundings: &Surroundings,
        nested: impl Iterator<Item = RelativePath>,
    ) -> Self {
        let real = project.root.canonicalize().unwrap_or_else(|_| project.root.clone());
        let mut search = Search {
            root: &project.root,
            real,
            home: surroundings.home.as_deref(),
            seen: HashSet::new(),
            found: Self::default(),
        };
        let mut repositories = vec![Place::of(&project.root, &project.git)];
        repositories.extend(nested.map(|root| Place::at(&project.root.join(root.as_os_str()))));
        let mut next = 0;
        while let Some(place) = repositories.get(next).cloned() {
            next += 1;
            search.repository(&place, &surroundings.files);
            if repositories.len() < MAX_REPOSITORIES {
                repositories.extend(place.modules());
            }
        }
        search.found
    }

    /// Whether git executes or obeys what a change puts at a path. With `is_link`, also whether
    /// the path is a directory on the way to such a file.
    pub(crate) fn hold(&self, path: &RelativePath, is_link: bool) -> bool {
        if self.hooks_in_root && path.parent().is_none() && is_hook(path.file_name()) {
            return true;
        }
        self.paths.iter().any(|named| {
            path.is_within(named) || is_link && named.is_within(path) || is_with_ending(path, named)
        })
    }
}

/// Whether a path is a named one with an ending, which interpreters add: `tools/x.js` for `tools/x`.
fn is_with_ending(path: &RelativePath, named: &RelativePath) -> bool {
    named.parent().is_some()
        && path.parent() == named.parent()
        && path.as_bytes().strip_prefix(named.as_bytes()).is_some_and(|rest| rest.starts_with(b"."))
}

/// githooks(5): their names are lower-case words with hyphens, or begin so.
fn is_hook(name: &[u8]) -> bool {
    const STARTS: &[&[u8]] = &[
        b"applypatch-",
        b"pre-",
        b"post-",
        b"prepare-",
        b"commit-msg",
        b"update",
        b"proc-receive",
        b"push-to-checkout",
        b"reference-transaction",
        b"sendemail-validate",
        b"fsmonitor-watchman",
        b"p4-",
    ];
    let name = name.to_ascii_lowercase();
    STARTS.iter().any(|start| name.starts_with(start))
}

/// A repository: the directory in which git starts commands, and its git directories.
#[derive(Debug, Clone)]
struct Place {
    root: PathBuf,
    git_dirs: Vec<PathBuf>,
}

impl Place {
    fn of(root: &Path, git: &Git) -> Self {
        match git {
            Git::Worktree { git_dir, common_dir } => {
                Self { root: root.to_owned(), git_dirs: vec![git_dir.clone(), common_dir.clone()] }
            }
            Git::None | Git::Directory | Git::Unverified => Self::at(root),
        }
    }

    /// Follows a `.git` as git does. What a file of configuration says is only compared with paths.
    fn at(root: &Path) -> Self {
        let marker = root.join(".git");
        let git_dir = match read(&marker) {
            Some(pointer) => {
                let pointer = pointer.strip_prefix(b"gitdir:").unwrap_or_default().trim_ascii();
                root.join(OsStr::from_bytes(pointer))
            }
            None => marker,
        };
        let common = read(&git_dir.join("commondir"));
        let common = common.map(|common| git_dir.join(OsStr::from_bytes(common.trim_ascii())));
        let git_dirs = std::iter::once(git_dir).chain(common).collect();
        Self { root: root.to_owned(), git_dirs }
    }

    /// The repositories of submodules, and of other worktrees, that lie in the git directories.
    fn modules(&self) -> Vec<Self> {
        let mut modules = Vec::new();
        for git_dir in &self.git_dirs {
            let mut pending = vec![git_dir.join("modules")];
            while let Some(directory) = pending.pop() {
                for git_dir in names(&directory).into_iter().map(|name| directory.join(name)) {
                    if modules.len() >= MAX_REPOSITORIES {
                        return modules;
                    }
                    if !git_dir.join("HEAD").is_file() {
                        // The name of a submodule may contain slashes.
                        pending.push(git_dir);
                        continue;
                    }
                    let content = read(&git_dir.join("config")).unwrap_or_default();
                    let variables = config::parse(&content);
                    let worktree = variables.iter().rfind(|variable| {
                        variable.section == b"core" && variable.name == b"worktree"
                    });
                    let worktree = worktree.and_then(|variable| variable.value.as_deref());
                    let root = worktree.map(|path| git_dir.join(OsStr::from_bytes(path)));
                    let root = root.unwrap_or_else(|| self.root.clone());
                    modules.push(Self { root, git_dirs: vec![git_dir] });
                }
            }
        }
        modules
    }
}

struct Search<'a> {
    root: &'a Path,
    /// The root without links.
    real: PathBuf,
    home: Option<&'a Path>,
    /// The files that were read, each with the directory in which its commands start.
    seen: HashSet<(PathBuf, PathBuf)>,
    found: Programs,
}

impl Search<'_> {
    fn repository(&mut self, place: &Place, outside: &[PathBuf]) {
        for git_dir in &place.git_dirs {
            for name in ["config", "config.worktree", "info/attributes", "info/exclude"] {
                self.linked(&git_dir.join(name));
            }
            let hooks = git_dir.join("hooks");
            self.linked(&hooks);
            for name in names(&hooks) {
                self.linked(&hooks.join(name));
            }
        }
        for file in outside {
            self.linked(file);
            self.file(file, place, MAX_INCLUDES);
        }
        for git_dir in &place.git_dirs {
            for name in ["config", "config.worktree"] {
                self.file(&git_dir.join(name), place, MAX_INCLUDES);
            }
        }
    }

    /// Adds what a link outside of the tree leads to in it, whether it exists yet or not.
    fn linked(&mut self, path: &Path) {
        let real = path.parent().and_then(|parent| parent.canonicalize().ok());
        let target = real.zip(std::fs::read_link(path).ok());
        let target = target.map(|(parent, target)| normal(&parent.join(target)));
        for below in target.map(|target| self.below(&target)).unwrap_or_default() {
            self.add(&below);
        }
    }

    fn file(&mut self, path: &Path, place: &Place, left: usize) {
        let key = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if !self.seen.insert((key, place.root.clone())) {
            return;
        }
        let Some(content) = read(path) else { return };
        let directory = path.parent().unwrap_or(path);
        for variable in config::parse(&content) {
            let Some(meaning) = meaning(&variable) else { continue };
            let Some(value) = variable.value.as_deref() else { continue };
            let bases = [place.root.as_path(), directory];
            match meaning {
                Meaning::Hooks => self.path(value, &bases, true),
                Meaning::Path => self.path(value, &bases, false),
                Meaning::Include => {
                    self.path(value, &[directory], false);
                    if left > 0 {
                        let included = self.expanded(value);
                        self.file(&directory.join(included), place, left - 1);
                    }
                }
                Meaning::Command => self.command(value, &bases),
                Meaning::CommandAfterMark => {
                    if let Some(command) = value.trim_ascii_start().strip_prefix(b"!") {
                        self.command(command, &bases);
                    }
                }
                Meaning::Url => {
                    if let Some(command) = value.strip_prefix(b"ext::") {
                        self.command(command, &bases);
                    } else {
                        let path = value.strip_prefix(b"file://").unwrap_or(value);
                        self.path(path, &bases, false);
                    }
                }
            }
        }
    }

    /// Adds what a command for a shell can mean by its words.
    fn command(&mut self, command: &[u8], bases: &[&Path]) {
        // The value is a path with blanks, or a command with words.
        self.path(command, bases, false);
        for candidate in commands::paths(command) {
            self.path(&candidate, bases, false);
            if let Some(below) = candidate.strip_prefix(b"/") {
                // The value of a variable or of another command may precede it.
                self.path(below, &[self.root], false);
            }
        }
    }

    fn path(&mut self, value: &[u8], bases: &[&Path], are_hooks: bool) {
        if value.is_empty() || value.contains(&0) {
            return;
        }
        let value = self.expanded(value);
        for base in bases {
            let path = normal(&base.join(&value));
            for below in self.below(&path) {
                if below.as_os_str().is_empty() {
                    self.found.hooks_in_root |= are_hooks;
                } else {
                    self.add(&below);
                }
            }
        }
    }

    /// A path relative to the root: as written, and as links lead.
    fn below(&self, path: &Path) -> Vec<PathBuf> {
        let mut below = Vec::new();
        below.extend(
            [self.root, &self.real]
                .iter()
                .find_map(|root| path.strip_prefix(root).ok())
                .map(Path::to_owned),
        );
        // The last names may not exist yet.
        let mut rest = PathBuf::new();
        let mut existing = path;
        loop {
            if let Ok(real) = existing.canonicalize() {
                let real = if rest.as_os_str().is_empty() { real } else { real.join(&rest) };
                below.extend(real.strip_prefix(&self.real).ok().map(Path::to_owned));
                break;
            }
            let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else {
                break;
            };
            rest =
                if rest.as_os_str().is_empty() { name.into() } else { Path::new(name).join(rest) };
            existing = parent;
        }
        below
    }

    fn add(&mut self, below: &Path) {
        self.found.paths.extend(RelativePath::new(below.as_os_str().as_bytes()).ok());
    }

    /// The path with `~/` expanded.
    fn expanded(&self, value: &[u8]) -> PathBuf {
        let text = value.strip_prefix(b":(optional)").unwrap_or(value);
        match (text.strip_prefix(b"~/"), self.home) {
            (Some(rest), Some(home)) => home.join(OsStr::from_bytes(rest)),
            _ => PathBuf::from(OsStr::from_bytes(text)),
        }
    }
}

/// An absolute path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// The content of a regular file of the host, links followed.
pub(super) fn read(path: &Path) -> Option<Vec<u8>> {
    let real = path.canonicalize().ok()?;
    let name = RelativePath::new(real.file_name()?.as_bytes()).ok()?;
    let file = Dir::open(real.parent()?).ok()?.open_file(&name).ok()?;
    let mut content = Vec::new();
    file.take(MAX_CONFIG_BYTES).read_to_end(&mut content).ok()?;
    Some(content)
}

/// The names in a directory of the host; none if it cannot be listed.
fn names(path: &Path) -> Vec<PathBuf> {
    let directory = path.canonicalize().ok().and_then(|real| Dir::open(&real).ok());
    let names = directory.and_then(|directory| directory.entries().ok()).unwrap_or_default();
    names.into_iter().map(|(name, _)| PathBuf::from(OsStr::from_bytes(&name))).collect()
}

#[cfg(test)]
mod tests;
