//! Receiving the changed project: the copy in the view becomes what the sandbox has. Every record of the
//! stream is hostile. It is complete on this machine before anything in the copy changes, so that a lost
//! connection leaves no half of the changes.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use stockade_api::{FileContent, ReceiveFiles};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir, FileKind, Rename, Timestamp};
use stockade_core::{BundleLimits, Code, Problem, SandboxId};
use stockade_runtime::{Record, TreeReader};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::problem::{Failure, caused};
use crate::remote::Remote;

/// What the stream may have besides the contents that were sent and the largest bundle: names and
/// numbers.
const OVERHEAD_BYTES: u64 = 256 << 20;
/// The most paths of a received project.
const MAX_PATHS: u64 = 4_000_000;
/// The rights that the owner of a directory needs to fill it.
const FILL: u32 = 0o700;

/// Receives the project at `root` of the sandbox into `copy`; `spool` is a directory of this user. `sent`
/// is the size of what was sent. Returns notes for the user.
///
/// # Errors
/// [`Code::BundleTooLarge`]; if the stream or the copy cannot be read or written.
pub(super) async fn receive(
    remote: &Remote,
    id: &SandboxId,
    (root, spool): (&Path, &Path),
    copy: &Dir,
    (sent, limits): (u64, &BundleLimits),
) -> Result<Vec<String>, Failure> {
    let path = root.as_os_str().as_bytes().to_vec().into();
    let request = ReceiveFiles { sandbox_id: id.clone(), path, mark: None };
    let FileContent(content) = remote.sandboxes.receive_files(remote.caller(), request).await?;
    let limit = sent.saturating_add(limits.total_bytes).saturating_add(OVERHEAD_BYTES);
    let mut stored = tokio::fs::File::from_std(unnamed_file(spool)?);
    let mut content = content.take(limit.saturating_add(1));
    let received = tokio::io::copy(&mut content, &mut stored).await;
    let received = received.map_err(|error| interrupted(&error))?;
    if received > limit {
        let message = format!("the changed project has more than {limit} bytes");
        return Err(Problem::new(Code::BundleTooLarge, message)
            .because("a sandbox may write more than this machine should store")
            .remedied_by("allow larger changes with --max-bundle")
            .into());
    }
    stored.flush().await.map_err(|error| interrupted(&error))?;
    let mut stored = stored.into_std().await;
    stored.seek(SeekFrom::Start(0)).map_err(|error| interrupted(&error))?;
    let copy = copy.reopen().map_err(|error| caused(Code::Io, &error))?;
    let unpacked = tokio::task::spawn_blocking(move || Received::unpack(copy, stored)).await;
    Ok(unpacked.map_err(|error| interrupted(&error.into()))??)
}

/// A file without a name in a directory.
fn unnamed_file(directory: &Path) -> Result<File, Problem> {
    let path = directory.join(format!("received-{}", uuid::Uuid::now_v7().simple()));
    let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = opened.map_err(|error| caused(Code::Io, &error))?;
    std::fs::remove_file(&path).map_err(|error| caused(Code::Io, &error))?;
    Ok(file)
}

/// The problem of a stream that ended early.
fn interrupted(error: &io::Error) -> Problem {
    Problem::new(Code::Io, "the changed project could not be received").because(error.to_string())
}

/// A tree of a sandbox that becomes the content of the copy.
struct Received {
    copy: Dir,
    /// The directories from the top to the current one; `None` is the top.
    directories: Vec<Option<RelativePath>>,
    /// The paths that the sandbox has.
    present: BTreeSet<RelativePath>,
    /// Those of them whose content is not known.
    unknown: BTreeSet<RelativePath>,
    /// Directories with the mode that they get in the end.
    modes: Vec<(RelativePath, u32)>,
    paths: u64,
}

impl Received {
    fn unpack(copy: Dir, stored: File) -> Result<Vec<String>, Problem> {
        let mut received = Self {
            copy,
            directories: vec![None],
            present: BTreeSet::new(),
            unknown: BTreeSet::new(),
            modes: Vec::new(),
            paths: 0,
        };
        let mut tree = TreeReader::new(io::BufReader::with_capacity(64 << 10, stored));
        while let Some(record) = tree.record().map_err(|error| interrupted(&error))? {
            received.record(record, &mut tree)?;
        }
        received.delete_others()?;
        received.set_modes()?;
        let unknown = received.unknown.len();
        let first = received.unknown.first().map(RelativePath::quoted).unwrap_or_default();
        Ok((unknown > 0)
            .then(|| {
                format!(
                    "{unknown} special or unreadable files of the sandbox were not received, such as \
                     {first}; the project keeps what it has there"
                )
            })
            .into_iter()
            .collect())
    }

    fn record(&mut self, record: Record, tree: &mut TreeReader<impl Read>) -> Result<(), Problem> {
        match record {
            Record::Leave => {
                self.directories.pop();
                Ok(())
            }
            Record::Enter { name, mode } => {
                let path = self.path(&name)?;
                self.enter(&path, mode & 0o777)?;
                self.directories.push(Some(path));
                Ok(())
            }
            Record::File { name, mode, modified } => {
                let path = self.path(&name)?;
                self.file(path, mode & 0o777, modified, tree)
            }
            Record::Link { name, target } => {
                let path = self.path(&name)?;
                self.link(&path, &target)
            }
            Record::Skipped { name, .. } => {
                let path = self.path(&name)?;
                self.unknown.insert(path);
                Ok(())
            }
        }
    }

    /// The path of a name in the current directory, which the sandbox has.
    fn path(&mut self, name: &RelativePath) -> Result<RelativePath, Problem> {
        self.paths += 1;
        if self.paths > MAX_PATHS {
            let message = format!("the changed project has more than {MAX_PATHS} paths");
            return Err(Problem::new(Code::BundleTooLarge, message));
        }
        let path = match self.directories.last().and_then(Option::as_ref) {
            None => Ok(name.clone()),
            Some(directory) => directory.join(name.as_bytes()),
        };
        let path = path.map_err(|error| caused(Code::PathInvalid, &error))?;
        if !self.present.insert(path.clone()) {
            let message = format!("the sandbox sent the path {} twice", path.quoted());
            return Err(Problem::new(Code::PathInvalid, message));
        }
        Ok(path)
    }

    fn enter(&mut self, path: &RelativePath, mode: u32) -> Result<(), Problem> {
        let enter = || -> Result<_, beneath::Error> {
            let found = self.copy.stat(path)?;
            let own = match found {
                Some(stat) if stat.kind == FileKind::Directory => Some(stat.mode & 0o777),
                Some(_) => {
                    self.copy.remove_tree(path)?;
                    None
                }
                None => None,
            };
            match own {
                None => self.copy.mkdir(path, FILL)?,
                Some(own) if own & FILL != FILL => self.copy.chmod(path, own | FILL)?,
                Some(_) => {}
            }
            Ok(own)
        };
        let own = enter().map_err(|error| failed(path, error))?;
        if own != Some(mode) || mode & FILL != FILL {
            self.modes.push((path.clone(), mode));
        }
        Ok(())
    }

    fn file(
        &mut self,
        path: RelativePath,
        mode: u32,
        (seconds, nanoseconds): (i64, u32),
        tree: &mut TreeReader<impl Read>,
    ) -> Result<(), Problem> {
        let failed = |error: io::Error| failed_io(&path, &error);
        let own = self.copy.stat(&path).map_err(|error| failed(error.into()))?;
        let old = match own {
            Some(stat) if stat.kind == FileKind::File => {
                if stat.mode & 0o400 == 0 {
                    self.copy.chmod(&path, 0o600).map_err(|error| failed(error.into()))?;
                }
                Some(self.copy.open_file(&path).map_err(|error| failed(error.into()))?)
            }
            _ => None,
        };
        let temporary = self.temporary(&path)?;
        let mut writer =
            Changed { copy: &self.copy, temporary: &temporary, old, same: 0, new: None };
        let read = tree.content(&mut writer).map_err(|error| interrupted(&error))?;
        let new = read.and_then(|length| match length {
            Some(_) => writer.finish().map(Some),
            None => Ok(None),
        });
        let discard = || {
            // It is in a directory of this program alone, and goes with it.
            let _ = self.copy.remove_file(&temporary);
        };
        match new {
            Err(error) => {
                discard();
                Err(failed(error))
            }
            // It could not be read to its end there.
            Ok(None) => {
                discard();
                self.unknown.insert(path);
                Ok(())
            }
            Ok(Some(false)) => {
                let is_same = own.is_some_and(|stat| stat.mode & 0o777 == mode);
                let set = if is_same { Ok(()) } else { self.copy.chmod(&path, mode) };
                set.map_err(|error| failed(error.into()))
            }
            Ok(Some(true)) => {
                let replace = || -> Result<(), beneath::Error> {
                    if own.is_some_and(|stat| stat.kind == FileKind::Directory) {
                        self.copy.remove_tree(&path)?;
                    }
                    self.copy.chmod(&temporary, mode)?;
                    let modified = Timestamp { seconds, nanoseconds };
                    self.copy.set_times(&temporary, None, modified)?;
                    self.copy.rename(&temporary, &self.copy, &path, Rename::Replace)
                };
                replace().map_err(|error| failed(error.into()))
            }
        }
    }

    /// A name beside a path that the project and the sandbox do not have.
    fn temporary(&self, path: &RelativePath) -> Result<RelativePath, Problem> {
        let name = format!(".stockade-{}", uuid::Uuid::now_v7().simple());
        let temporary = match path.parent() {
            None => RelativePath::new(name),
            Some(directory) => directory.join(name.as_bytes()),
        };
        temporary.map_err(|error| caused(Code::PathInvalid, &error))
    }

    fn link(&self, path: &RelativePath, target: &[u8]) -> Result<(), Problem> {
        let link = || -> Result<(), beneath::Error> {
            match self.copy.stat(path)? {
                Some(stat) if stat.kind == FileKind::Symlink => {
                    if self.copy.read_link(path)? == target {
                        return Ok(());
                    }
                    self.copy.remove_file(path)?;
                }
                Some(_) => self.copy.remove_tree(path)?,
                None => {}
            }
            self.copy.symlink(target, path)
        };
        link().map_err(|error| failed(path, error))
    }

    /// Deletes what the sandbox does not have any more.
    fn delete_others(&self) -> Result<(), Problem> {
        let mut waiting: Vec<Option<RelativePath>> = vec![None];
        while let Some(directory) = waiting.pop() {
            let opened = match &directory {
                None => self.copy.reopen(),
                Some(path) => self.copy.open_dir(path),
            };
            let entries = opened.and_then(|dir| dir.entries());
            let entries = entries.map_err(|error| caused(Code::Io, &error))?;
            for (name, kind) in entries {
                let path = match &directory {
                    None => RelativePath::new(name),
                    Some(directory) => directory.join(&name),
                };
                let path = path.map_err(|error| caused(Code::PathInvalid, &error))?;
                if !self.present.contains(&path) {
                    self.copy.remove_tree(&path).map_err(|error| failed(&path, error))?;
                } else if kind == FileKind::Directory && !self.unknown.contains(&path) {
                    waiting.push(Some(path));
                }
            }
        }
        Ok(())
    }

    /// Gives directories the modes that they have there, the deepest first.
    fn set_modes(&self) -> Result<(), Problem> {
        for (path, mode) in self.modes.iter().rev() {
            self.copy.chmod(path, *mode).map_err(|error| failed(path, error))?;
        }
        Ok(())
    }
}

fn failed(path: &RelativePath, error: impl Into<io::Error>) -> Problem {
    failed_io(path, &error.into())
}

fn failed_io(path: &RelativePath, error: &io::Error) -> Problem {
    let message = format!("cannot receive {}", path.quoted());
    Problem::new(Code::Io, message).because(error.to_string())
}

/// Writes the new content of a file beside the old one, from the first byte that differs.
struct Changed<'a> {
    copy: &'a Dir,
    temporary: &'a RelativePath,
    /// The old content.
    old: Option<File>,
    /// How many bytes from the start are the same.
    same: u64,
    /// The new content.
    new: Option<File>,
}

impl Changed<'_> {
    /// Starts the new file with the bytes that are the same.
    fn start(&mut self) -> io::Result<File> {
        let mut new = self.copy.create_file(self.temporary, 0o600)?;
        if let Some(old) = &mut self.old {
            old.seek(SeekFrom::Start(0))?;
            io::copy(&mut old.take(self.same), &mut new)?;
        }
        Ok(new)
    }

    /// Whether the content differs.
    fn finish(mut self) -> io::Result<bool> {
        if self.new.is_some() {
            return Ok(true);
        }
        if let Some(old) = &self.old
            && old.metadata()?.len() == self.same
        {
            return Ok(false);
        }
        self.start()?;
        Ok(true)
    }

    /// Whether the old content continues with these bytes.
    fn continues_with(&mut self, bytes: &[u8]) -> io::Result<bool> {
        let Some(old) = &mut self.old else { return Ok(false) };
        let mut piece = vec![0; bytes.len()];
        match old.read_exact(&mut piece) {
            Ok(()) => Ok(piece == bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Write for Changed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.new.is_none() {
            if self.continues_with(bytes)? {
                self.same += bytes.len() as u64;
                return Ok(bytes.len());
            }
            self.new = Some(self.start()?);
        }
        if let Some(new) = &mut self.new {
            new.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use stockade_runtime::{SkipReason, TreeWriter};

    use super::*;

    fn name(text: &str) -> RelativePath {
        RelativePath::new(text).unwrap()
    }

    fn file(tree: &mut TreeWriter<&mut File>, path: &str, content: &str) {
        let record = Record::File { name: name(path), mode: 0o644, modified: (1, 2) };
        tree.record(&record).unwrap();
        tree.content(&mut content.as_bytes()).unwrap().unwrap();
    }

    fn received(
        copy: &Path,
        write: impl Fn(&mut TreeWriter<&mut File>),
    ) -> Result<Vec<String>, Problem> {
        let mut stored = tempfile::tempfile().unwrap();
        let mut tree = TreeWriter::new(&mut stored);
        write(&mut tree);
        tree.finish().unwrap();
        stored.seek(SeekFrom::Start(0)).unwrap();
        Received::unpack(Dir::open(copy).unwrap(), stored)
    }

    #[test]
    fn the_copy_becomes_what_the_sandbox_has_and_the_same_files_are_not_touched() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        std::fs::create_dir_all(at("dir/below")).unwrap();
        for (path, text) in [("same", "same"), ("longer", "abc"), ("gone", "x"), ("dir/kept", "k")]
        {
            std::fs::write(at(path), text).unwrap();
        }
        std::fs::write(at("shorter"), "abcdef").unwrap();
        std::fs::set_permissions(at("same"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let before = std::fs::metadata(at("same")).unwrap();
        let notes = received(scratch.path(), |tree| {
            file(tree, "same", "same");
            file(tree, "longer", "abcd");
            file(tree, "shorter", "abc");
            tree.record(&Record::Link { name: name("link"), target: b"/usr/bin/env".to_vec() })
                .unwrap();
            tree.record(&Record::Enter { name: name("dir"), mode: 0o500 }).unwrap();
            let skipped = Record::Skipped { name: name("kept"), reason: SkipReason::Special };
            tree.record(&skipped).unwrap();
            file(tree, "new", "n");
            tree.record(&Record::Leave).unwrap();
        });
        assert_eq!(notes.unwrap().len(), 1);
        let read = |path: &str| std::fs::read_to_string(at(path)).unwrap();
        assert_eq!(
            [read("same"), read("longer"), read("shorter"), read("dir/new"), read("dir/kept")],
            ["same", "abcd", "abc", "n", "k"]
        );
        let after = std::fs::metadata(at("same")).unwrap();
        assert_eq!((before.ino(), before.ctime_nsec()), (after.ino(), after.ctime_nsec()));
        assert_eq!(std::fs::read_link(at("link")).unwrap(), Path::new("/usr/bin/env"));
        assert!(!at("gone").exists() && !at("dir/below").exists());
        assert_eq!(std::fs::metadata(at("dir")).unwrap().permissions().mode() & 0o777, 0o500);
        let names: Vec<_> = std::fs::read_dir(at(".")).unwrap().collect();
        assert_eq!(names.len(), 5, "{names:?}");
    }

    #[test]
    fn a_link_is_never_followed_and_no_path_comes_twice() {
        let (scratch, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = outside.path().as_os_str().as_bytes().to_vec();
        let refused = received(scratch.path(), |tree| {
            tree.record(&Record::Link { name: name("d"), target: target.clone() }).unwrap();
            tree.record(&Record::Enter { name: name("d"), mode: 0o755 }).unwrap();
            file(tree, "stolen", "x");
            tree.record(&Record::Leave).unwrap();
        });
        assert_eq!(refused.unwrap_err().code, Code::PathInvalid);
        // A link of the copy is replaced by what the sandbox has at its path.
        std::fs::remove_file(scratch.path().join("d")).unwrap();
        std::os::unix::fs::symlink(outside.path(), scratch.path().join("d")).unwrap();
        received(scratch.path(), |tree| {
            tree.record(&Record::Enter { name: name("d"), mode: 0o755 }).unwrap();
            file(tree, "inside", "x");
            tree.record(&Record::Leave).unwrap();
        })
        .unwrap();
        assert!(scratch.path().join("d/inside").exists());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
        // A stream that ends early changes nothing else.
        let mut cut = tempfile::tempfile().unwrap();
        cut.write_all(b"F").unwrap();
        cut.seek(SeekFrom::Start(0)).unwrap();
        let copy = Dir::open(scratch.path()).unwrap();
        assert_eq!(Received::unpack(copy, cut).unwrap_err().code, Code::Io);
        assert!(scratch.path().join("d/inside").exists());
    }
}
