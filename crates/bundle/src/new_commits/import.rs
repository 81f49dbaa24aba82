//! Writing checked objects and one branch to the repository of a project. No git runs for it, so no
//! hook and no configuration does.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use rustix::io::Errno;

use super::check::Commits;
use crate::beneath::{Dir, Rename};
use crate::commits::{Error, Kind, ObjectId, Objects, with_operation};
use crate::path::RelativePath;
use crate::project::Project;

/// The longest name of a branch.
const MAX_NAME_BYTES: usize = 200;

/// The name of a branch, valid by git's rules (git-check-ref-format(1)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch(String);

impl Branch {
    /// Checks a name.
    ///
    /// # Errors
    /// [`Error::Name`].
    pub fn new(name: &str) -> Result<Self, Error> {
        let is_bad_part = |part: &str| {
            part.is_empty()
                || part.starts_with('.')
                || part.ends_with(".lock")
                || part.ends_with('.')
        };
        let is_bad = name.len() > MAX_NAME_BYTES
            || name.starts_with('-')
            || name == "HEAD"
            || name == "@"
            || name.contains("..")
            || name.contains("@{")
            || name.chars().any(|c| c.is_control() || " ~^:?*[\\".contains(c) || !c.is_ascii())
            || name.split('/').any(is_bad_part);
        if is_bad { Err(Error::Name(name.to_owned())) } else { Ok(Self(name.to_owned())) }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn reference(&self) -> Result<RelativePath, Error> {
        RelativePath::new(format!("refs/heads/{}", self.0)).map_err(|_| Error::Name(self.0.clone()))
    }
}

/// Writes the objects of commits to the project's repository, and creates a branch at the last one.
/// Returns `false` if the branch was there already, at this commit.
///
/// # Errors
/// The branch does not exist then. Objects that were written already are garbage, which git removes
/// in time.
pub fn import(
    project: &Project,
    commits: &Commits,
    objects: &Objects,
    branch: &Branch,
) -> Result<bool, Error> {
    let repository =
        project.common_git_directory().ok_or_else(|| Error::NoRepository(project.root.clone()))?;
    if project.git_extension(b"refstorage").is_some_and(|format| format != b"files") {
        return Err(Error::Unsupported("another storage of references than files"));
    }
    let format = project.git_extension(b"objectformat").unwrap_or_else(|| b"sha1".to_vec());
    if format != commits.tip.format().as_str().as_bytes() {
        return Err(Error::Unsupported("another format of objects"));
    }
    let target = Target { repository: &repository, owner: owner(&repository)? };
    match target.present(branch)? {
        Some(there) if there == commits.tip.to_string() => return Ok(false),
        Some(_) => return Err(Error::Exists(branch.0.clone())),
        None => {}
    }
    for (id, kind) in &commits.objects {
        let content = objects.get(id, *kind);
        let content = content.ok_or_else(|| Error::Object { id: id.clone(), what: "missing" })?;
        target.object(id, *kind, content)?;
    }
    with_operation("sync", repository.sync_file_system())?;
    target.create(branch, &commits.tip)?;
    Ok(true)
}

/// The owner of new files, where this process may choose it.
fn owner(repository: &Dir) -> Result<Option<(u32, u32)>, Error> {
    let stat = with_operation("inspect", repository.stat_self())?;
    Ok(rustix::process::geteuid().is_root().then_some((stat.uid, stat.gid)))
}

struct Target<'r> {
    repository: &'r Dir,
    owner: Option<(u32, u32)>,
}

impl Target<'_> {
    /// What the branch names now.
    fn present(&self, branch: &Branch) -> Result<Option<String>, Error> {
        use std::io::Read as _;
        let reference = branch.reference()?;
        match self.repository.stat(&reference) {
            Ok(None) => {}
            Err(error) if error.errno() == Some(Errno::NOTDIR) => {
                return Err(Error::Exists(branch.0.clone()));
            }
            Err(source) => return Err(Error::Io { operation: "inspect", source }),
            Ok(Some(_)) => {
                let mut text = String::new();
                let file = self.repository.open_file(&reference);
                let file = file.map_err(|_| Error::Exists(branch.0.clone()))?;
                file.take(1000).read_to_string(&mut text).map_err(Error::Read)?;
                return Ok(Some(text.trim_end().to_owned()));
            }
        }
        let packed = RelativePath::literal("packed-refs");
        let Ok(file) = self.repository.open_file(&packed) else { return Ok(None) };
        let mut content = Vec::new();
        file.take(64 << 20).read_to_end(&mut content).map_err(Error::Read)?;
        let below = [reference.as_bytes(), b"/"].concat();
        for line in content.split(|byte| *byte == b'\n') {
            let Some(at) = line.iter().position(|byte| *byte == b' ') else { continue };
            let name = &line[at + 1..];
            if name == reference.as_bytes() {
                return Ok(Some(String::from_utf8_lossy(&line[..at]).into_owned()));
            }
            let is_above = reference.as_bytes().starts_with(&[name, b"/"].concat());
            if name.starts_with(&below) || is_above && !name.is_empty() {
                return Err(Error::Exists(branch.0.clone()));
            }
        }
        Ok(None)
    }

    /// Writes one object, unless it is there.
    fn object(&self, id: &ObjectId, kind: Kind, content: &[u8]) -> Result<(), Error> {
        let hex = id.to_string();
        let (first, rest) = hex.split_at(2);
        let path = |text: String| {
            RelativePath::new(text).map_err(|_| Error::Object { id: id.clone(), what: "invalid" })
        };
        let objects = path(format!("objects/{first}"))?;
        self.directory(&objects, 0o777)?;
        let dir = with_operation("open", self.repository.open_dir(&objects))?;
        let name = path(rest.to_owned())?;
        if with_operation("inspect", dir.stat(&name))?.is_some() {
            return Ok(());
        }
        let process = rustix::process::getpid().as_raw_nonzero();
        let temporary = path(format!("tmp_obj_stockade_{process}_{rest}"))?;
        let written = (|| {
            let file = with_operation("write", dir.create_file(&temporary, 0o600))?;
            let mut encoder = ZlibEncoder::new(file, Compression::fast());
            let all = encoder
                .write_all(&kind.header(content.len()))
                .and_then(|()| encoder.write_all(content))
                .and_then(|()| encoder.finish().map(drop));
            all.map_err(Error::Read)?;
            if let Some((uid, gid)) = self.owner {
                with_operation("give away", dir.chown(&temporary, uid, gid))?;
            }
            with_operation("write", dir.chmod(&temporary, 0o444))?;
            match dir.rename(&temporary, &dir, &name, Rename::NoReplace) {
                Err(error) if error.errno() == Some(Errno::EXIST) => {
                    with_operation("write", dir.remove_file(&temporary))
                }
                renamed => with_operation("write", renamed),
            }
        })();
        if written.is_err() {
            let _ = dir.remove_file(&temporary);
        }
        written
    }

    /// Creates a directory, unless it is there.
    fn directory(&self, path: &RelativePath, mode: u32) -> Result<(), Error> {
        match self.repository.mkdir(path, mode) {
            Err(error) if error.errno() == Some(Errno::EXIST) => Ok(()),
            Err(source) => Err(Error::Io { operation: "create", source }),
            Ok(()) => match self.owner {
                Some((uid, gid)) => {
                    with_operation("give away", self.repository.chown(path, uid, gid))
                }
                None => Ok(()),
            },
        }
    }

    /// Creates the branch, as git does: with a lock beside it.
    fn create(&self, branch: &Branch, tip: &ObjectId) -> Result<(), Error> {
        let reference = branch.reference()?;
        let invalid = || Error::Name(branch.0.clone());
        let mut above = Vec::new();
        let mut next = reference.parent();
        while let Some(directory) = next {
            next = directory.parent();
            above.push(directory);
        }
        for directory in above.iter().rev() {
            self.directory(directory, 0o777)?;
        }
        let lock = RelativePath::new([reference.as_bytes(), b".lock"].concat());
        let lock = lock.map_err(|_| invalid())?;
        let mut file = match self.repository.create_file(&lock, 0o666) {
            Err(error) if matches!(error.errno(), Some(Errno::EXIST | Errno::NOTDIR)) => {
                return Err(Error::Exists(branch.0.clone()));
            }
            created => with_operation("create", created)?,
        };
        let written = (|| {
            file.write_all(format!("{tip}\n").as_bytes()).map_err(Error::Read)?;
            file.sync_all().map_err(Error::Read)?;
            if let Some((uid, gid)) = self.owner {
                with_operation("give away", self.repository.chown(&lock, uid, gid))?;
            }
            match self.repository.rename(&lock, self.repository, &reference, Rename::NoReplace) {
                Err(error) if error.errno() == Some(Errno::EXIST) => {
                    Err(Error::Exists(branch.0.clone()))
                }
                renamed => with_operation("create", renamed),
            }
        })();
        if written.is_err() {
            let _ = self.repository.remove_file(&lock);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_branches_are_those_of_git() {
        for good in ["stockade/abc", "a", "feature/x-1", "a.b"] {
            assert_eq!(Branch::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "/a",
            "a/",
            "a//b",
            "../x",
            "a/..",
            "a..b",
            ".a",
            "a/.b",
            "a.lock",
            "a/b.lock/c",
            "a.",
            "-a",
            "HEAD",
            "@",
            "a@{1}",
            "a b",
            "a~",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[",
            "a\\b",
            "a\n",
            "a\u{7f}",
            "b\u{e9}",
            &"x".repeat(300),
        ] {
            assert!(Branch::new(bad).is_err(), "{bad:?}");
        }
    }
}
