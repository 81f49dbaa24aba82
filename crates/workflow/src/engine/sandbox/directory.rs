//! The directory of a sandbox on the host, `.smithers/sandboxes/RUN/SANDBOX` of the project, as
//! upstream. Every directory of the path is opened relative to its parent, without following links: the
//! project may contain links that an earlier sandbox proposed.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, Error, FileKind, Rename};

use crate::engine::task_error::TaskError;
use crate::schedule::Key;

/// The longest component of a path (`NAME_MAX`, path_resolution(7)).
const NAME_BYTES: usize = 255;

/// The directory of one sandbox.
#[derive(Debug)]
pub(crate) struct SandboxDirectory {
    /// Its path.
    pub(crate) path: PathBuf,
    dir: Dir,
}

fn failed(error: &Error) -> TaskError {
    let message = format!("cannot use the directory of the sandbox: {error}");
    TaskError::new("SANDBOX_EXECUTION_FAILED", message)
}

fn escapes(text: &str) -> TaskError {
    TaskError::new("TOOL_PATH_ESCAPE", format!("{text:?} is not a valid directory name"))
}

fn relative(text: &str) -> Result<RelativePath, TaskError> {
    RelativePath::new(text).map_err(|_| escapes(text))
}

/// Converts the name of a run or of a sandbox to the name of a directory.
fn name(text: &str) -> Result<RelativePath, TaskError> {
    let is_plain = !text.contains(['/', '\\', '\0']) && text.len() <= NAME_BYTES;
    if is_plain && !text.starts_with('.') { relative(text) } else { Err(escapes(text)) }
}

/// The name of a sandbox within its run.
pub(crate) fn sandbox_name(key: &Key) -> String {
    match key.iteration {
        0 => key.node.clone(),
        iteration => format!("{}@{iteration}", key.node),
    }
}

fn enter(dir: &Dir, name: &RelativePath) -> Result<Dir, TaskError> {
    match dir.mkdir(name, 0o700) {
        Err(error) if error.kind() == Some(std::io::ErrorKind::AlreadyExists) => {}
        made => made.map_err(|error| failed(&error))?,
    }
    dir.open_dir(name).map_err(|error| failed(&error))
}

/// Makes git ignore requests and results.
fn exclude_from_git(dir: &Dir) -> Result<(), TaskError> {
    match dir.create_file(&relative(".gitignore")?, 0o600) {
        Err(error) if error.kind() == Some(std::io::ErrorKind::AlreadyExists) => Ok(()),
        made => {
            let written = made.map_err(|error| failed(&error))?.write_all(b"*\n");
            written.map_err(|error| TaskError::new("SANDBOX_EXECUTION_FAILED", error.to_string()))
        }
    }
}

impl SandboxDirectory {
    /// Opens the directory of a sandbox, which is created if it is missing.
    ///
    /// # Errors
    /// `TOOL_PATH_ESCAPE` for an invalid id, `SANDBOX_EXECUTION_FAILED` for a directory that cannot be
    /// used.
    pub(crate) fn open(root: &Path, run: &str, key: &Key) -> Result<Self, TaskError> {
        Self::open_names(root, run, &[&sandbox_name(key)])
    }

    /// Opens the directory of a nested sandbox. Its key has the names of the sandboxes that enclose it,
    /// each followed by `/`.
    ///
    /// # Errors
    /// As [`SandboxDirectory::open`].
    pub(crate) fn open_nested(root: &Path, run: &str, key: &Key) -> Result<Self, TaskError> {
        let name = sandbox_name(key);
        let mut names = Vec::new();
        for name in name.split('/') {
            names.extend(["nested", name]);
        }
        Self::open_names(root, run, &names[1..])
    }

    fn open_names(root: &Path, run: &str, sandbox: &[&str]) -> Result<Self, TaskError> {
        // The ids of child runs contain colons. No other id contains `@`.
        let run = run.replace(':', "@");
        let names = std::iter::once(run.as_str()).chain(sandbox.iter().copied());
        let mut dir = Dir::open(root).map_err(|error| failed(&error))?;
        let mut path = root.to_owned();
        for fixed in [".smithers", "sandboxes"] {
            let fixed = relative(fixed)?;
            path.push(fixed.as_os_str());
            dir = enter(&dir, &fixed)?;
        }
        exclude_from_git(&dir)?;
        for text in names {
            let name = name(text)?;
            path.push(name.as_os_str());
            dir = enter(&dir, &name)?;
        }
        Ok(Self { path, dir })
    }

    /// Whether the directory contains an entry with this name.
    pub(crate) fn has(&self, part: &str) -> Result<bool, TaskError> {
        Ok(self.dir.stat(&name(part)?).map_err(|error| failed(&error))?.is_some())
    }

    /// The names of its entries.
    pub(crate) fn names(&self) -> Result<Vec<String>, TaskError> {
        let entries = self.dir.entries().map_err(|error| failed(&error))?;
        Ok(entries.into_iter().filter_map(|(name, _)| String::from_utf8(name).ok()).collect())
    }

    /// Lets every user read a subdirectory: the processes of a sandbox may have another id than this
    /// one. On the host no other user reaches it, because the directories above are private.
    pub(crate) fn share(&self, part: &str) -> Result<(), TaskError> {
        let part = name(part)?;
        let mut pending = vec![part];
        while let Some(path) = pending.pop() {
            self.dir.chmod(&path, 0o755).map_err(|error| failed(&error))?;
            let entries = self.dir.open_dir(&path).and_then(|dir| dir.entries());
            for (entry, kind) in entries.map_err(|error| failed(&error))? {
                let entry = path.join(&entry).map_err(|_| escapes("a name in the request"))?;
                match kind {
                    FileKind::Directory => pending.push(entry),
                    _ => self.dir.chmod(&entry, 0o644).map_err(|error| failed(&error))?,
                }
            }
        }
        Ok(())
    }

    /// Opens a subdirectory.
    pub(crate) fn open_part(&self, part: &str) -> Result<Dir, TaskError> {
        self.dir.open_dir(&name(part)?).map_err(|error| failed(&error))
    }

    /// Renames an entry.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), TaskError> {
        let (from, to) = (name(from)?, name(to)?);
        let renamed = self.dir.rename(&from, &self.dir, &to, Rename::NoReplace);
        renamed.map_err(|error| failed(&error))
    }

    /// Removes an entry with all its content.
    pub(crate) fn remove(&self, part: &str) -> Result<(), TaskError> {
        match self.dir.remove_tree(&name(part)?) {
            Err(error) if error.kind() == Some(std::io::ErrorKind::NotFound) => Ok(()),
            removed => removed.map_err(|error| failed(&error)),
        }
    }

    /// Creates a subdirectory anew, and opens it.
    pub(crate) fn create_fresh(&self, part: &str) -> Result<Dir, TaskError> {
        self.remove(part)?;
        enter(&self.dir, &name(part)?)
    }

    /// Opens a subdirectory, and removes the files in it. The directories stay the same, because they
    /// may be mounted in a sandbox.
    pub(crate) fn create_empty(&self, part: &str) -> Result<Dir, TaskError> {
        let dir = enter(&self.dir, &name(part)?)?;
        let mut directories = vec![dir.reopen().map_err(|error| failed(&error))?];
        while let Some(directory) = directories.pop() {
            for (name, kind) in directory.entries().map_err(|error| failed(&error))? {
                let path = RelativePath::new(name).map_err(|error| escapes(&error.to_string()))?;
                if kind == FileKind::Directory {
                    directories.push(directory.open_dir(&path).map_err(|error| failed(&error))?);
                } else {
                    directory.remove_file(&path).map_err(|error| failed(&error))?;
                }
            }
        }
        Ok(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_has_its_place_and_nothing_leads_out_of_it() {
        let root = tempfile::tempdir().unwrap();
        let key = |node: &str, iteration| Key { node: node.to_owned(), iteration };
        let sandbox_dir =
            SandboxDirectory::open(root.path(), "one:child:a:0", &key("review", 2)).unwrap();
        let expected = root.path().join(".smithers/sandboxes/one@child@a@0/review@2");
        assert_eq!(sandbox_dir.path, expected);
        let dir = sandbox_dir.create_fresh("result").unwrap();
        drop(dir.create_file(&RelativePath::new("old").unwrap(), 0o600).unwrap());
        let is_empty = |dir: &Dir| dir.entries().unwrap().is_empty();
        assert!(is_empty(&sandbox_dir.create_fresh("result").unwrap()));
        let kept = sandbox_dir.create_fresh("request").unwrap();
        kept.mkdir(&RelativePath::new("deep").unwrap(), 0o700).unwrap();
        let deep = kept.open_dir(&RelativePath::new("deep").unwrap()).unwrap();
        for dir in [&kept, &deep] {
            drop(dir.create_file(&RelativePath::new("old").unwrap(), 0o600).unwrap());
        }
        drop(sandbox_dir.create_empty("request").unwrap());
        assert_eq!((kept.entries().unwrap().len(), is_empty(&deep)), (1, true));
        let nested =
            SandboxDirectory::open_nested(root.path(), "r", &key("outer@1/inner", 2)).unwrap();
        let expected = root.path().join(".smithers/sandboxes/r/outer@1/nested/inner@2");
        assert_eq!(nested.path, expected);
        assert!(SandboxDirectory::open_nested(root.path(), "r", &key("outer/../..", 0)).is_err());
        for node in ["..", "a/b", ".", "", "\0", &"x".repeat(256)] {
            let refused = SandboxDirectory::open(root.path(), "r", &key(node, 0)).unwrap_err();
            assert_eq!(refused.code, "TOOL_PATH_ESCAPE", "{node:?}");
        }
        let elsewhere = tempfile::tempdir().unwrap();
        let hostile = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), hostile.path().join(".smithers")).unwrap();
        let refused = SandboxDirectory::open(hostile.path(), "r", &key("a", 0)).unwrap_err();
        assert_eq!(refused.code, "SANDBOX_EXECUTION_FAILED");
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_shared_can_be_read_by_all_and_is_below_a_private_directory() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let key = Key { node: "box".to_owned(), iteration: 0 };
        let directory = SandboxDirectory::open(place.path(), "run", &key).unwrap();
        let part = directory.create_fresh("part").unwrap();
        part.mkdir(&RelativePath::new("deep").unwrap(), 0o700).unwrap();
        drop(part.create_file(&RelativePath::new("deep/file").unwrap(), 0o600).unwrap());
        directory.share("part").unwrap();
        let mode = |below: &str| {
            let metadata = directory.path.join(below).metadata().unwrap();
            metadata.permissions().mode() & 0o7777
        };
        let modes = ["", "part", "part/deep", "part/deep/file"].map(mode);
        assert_eq!(modes, [0o700, 0o755, 0o755, 0o644]);
    }
}
