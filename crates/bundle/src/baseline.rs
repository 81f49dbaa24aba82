//! What files of the project contained at the start of a view, if the host has changed them since.
//!
//! Nothing copies them at the start. But where git's index describes a file as it was then, the object
//! that the index names is its content. So the index is compared with the files once, after the start: a
//! file that has not changed since the start, and is as the index says, was so at the start as well.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::beneath::{self, Dir, FileKind, Rename, Stat, Timestamp};
use crate::index::{self, Index, IndexedFile};
use crate::manifest::{Change, ContentHash, Entry, Node};
use crate::path::RelativePath;
use crate::project::Project;

/// The largest content that is looked up.
const MAX_BYTES: u64 = 8 << 20;
/// The most contents that are looked up.
const MAX_LOOKUPS: usize = 200;
/// A larger file was not written by this module.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// How long the creation of a sandbox takes at most after the time of its baseline. A view that is
/// older or much younger is another one.
const MAX_CREATION_SECONDS: i64 = 600;

/// The objects that git has of files as they were at the start of a view.
#[derive(Debug, Default)]
pub struct Baseline {
    files: HashMap<RelativePath, Known>,
}

/// The content of one file at the start.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    /// The name of git's object, in hexadecimal.
    object: String,
    size: u64,
    mode: u32,
}

/// A baseline on disk.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk {
    /// The time that it is about.
    at: Timestamp,
    files: Vec<(RelativePath, Known)>,
}

/// The old contents of entries, which the project does not have any more.
pub type OldContents = Vec<(ContentHash, Vec<u8>)>;

impl Baseline {
    /// Compares the index of a project with its files, until `is_over` is set. What cannot be read or
    /// differs is unknown.
    pub fn read(project: &Project, started: Timestamp, is_over: &AtomicBool) -> Self {
        let mut baseline = Self::default();
        let Some(repository) = project.repository(None) else { return baseline };
        let name = RelativePath::literal("index");
        // A file that was changed in the same tick in which the index was written may look unchanged.
        let Some(written) = repository.modified(project, &name) else { return baseline };
        let Some(content) = repository.file(project, &name, index::MAX_FILE_BYTES) else {
            return baseline;
        };
        for file in Index::files(&content).unwrap_or_default() {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let Ok(path) = RelativePath::new(file.path.as_slice()) else { continue };
            let Ok(Some(stat)) = project.dir.stat(&path) else { continue };
            if stat.size <= MAX_BYTES
                && stat.changed <= started
                && stat.modified < written
                && is_as_indexed(&file, &stat)
            {
                let object = file.object.iter().map(|byte| format!("{byte:02x}")).collect();
                let known = Known { object, size: stat.size, mode: stat.mode & 0o777 };
                baseline.files.insert(path, known);
            }
        }
        baseline
    }

    /// Reads the stored baseline `name` of a view that was created at `since`. One that is missing or
    /// unreadable, or about another time, knows nothing.
    pub fn load(dir: &Dir, name: &RelativePath, since: Timestamp) -> Self {
        let read = || {
            let file = dir.open_file(name).ok()?;
            let mut content = Vec::new();
            file.take(MAX_FILE_BYTES).read_to_end(&mut content).ok()?;
            let OnDisk { at, files } = serde_json::from_slice(&content).ok()?;
            let is_of_view = at <= since && since.seconds - at.seconds <= MAX_CREATION_SECONDS;
            is_of_view.then_some(files)
        };
        Self { files: read().unwrap_or_default().into_iter().collect() }
    }

    /// Stores it for [`Baseline::load`], as that of a time.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn store(
        self,
        dir: &Dir,
        name: &RelativePath,
        at: Timestamp,
    ) -> Result<(), beneath::Error> {
        let failed =
            |source| beneath::Error::Io { operation: "write", path: name.quoted(), source };
        let on_disk = OnDisk { at, files: self.files.into_iter().collect() };
        let content = serde_json::to_vec(&on_disk).map_err(|error| failed(error.into()))?;
        let part = [name.as_bytes(), b".new"].concat();
        let part = RelativePath::new(part).map_err(|error| failed(std::io::Error::other(error)))?;
        // A killed process may have left this file.
        Self::remove(dir, &part)?;
        let mut file = dir.create_file(&part, 0o600)?;
        file.write_all(&content).map_err(failed)?;
        dir.rename(&part, dir, name, Rename::Replace)
    }

    /// Removes a stored baseline, if it exists.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(dir: &Dir, name: &RelativePath) -> Result<(), beneath::Error> {
        match dir.remove_file(name) {
            Err(error) if error.errno() == Some(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }

    /// Gives entries in conflict the node from the start, where it is known; an entry that differs from
    /// what the host has now, and not from that, is removed. `look_up` returns the content of an object
    /// of git. Returns the old contents that were used.
    pub fn rebase(
        &self,
        entries: &mut Vec<Entry>,
        look_up: &mut dyn FnMut(&str) -> Option<Vec<u8>>,
    ) -> OldContents {
        let mut contents = OldContents::new();
        let mut lookups = 0;
        entries.retain_mut(|entry| {
            let is_open = entry.conflict && !entry.base_known && entry.renamed_from.is_none();
            let Some(known) = self.files.get(&entry.path).filter(|_| is_open) else { return true };
            if lookups == MAX_LOOKUPS {
                return true;
            }
            lookups += 1;
            // A filter of git may have made another content of the object.
            let content = look_up(&known.object).filter(|it| it.len() as u64 == known.size);
            let Some(content) = content else { return true };
            let hash = ContentHash::of(&content);
            let old = Node::File { hash, size: known.size, mode: known.mode };
            entry.change = match entry.change.new_node() {
                Some(new) if *new == old => return false,
                Some(new) => Change::Modify { old, new: new.clone() },
                None => Change::Delete { old },
            };
            entry.base_known = true;
            contents.push((hash, content));
            true
        });
        contents
    }
}

/// Whether a file has the metadata that the index recorded, when it had the content of its object.
fn is_as_indexed(file: &IndexedFile, stat: &Stat) -> bool {
    let is_at = |(seconds, nanoseconds): (u32, u32), time: Timestamp| {
        // The index has the lower 32 bits.
        i64::from(seconds) == time.seconds & 0xffff_ffff && nanoseconds == time.nanoseconds
    };
    stat.kind == FileKind::File
        && file.is_regular
        && u64::from(file.size) == stat.size
        && stat.inode & 0xffff_ffff == u64::from(file.inode)
        && is_at(file.modified, stat.modified)
        && is_at(file.changed, stat.changed)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::testing::{chmod, skipped};

    const LATER: Timestamp = Timestamp { seconds: i64::MAX, nanoseconds: 0 };

    #[test]
    fn a_stored_baseline_is_only_for_the_view_of_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Dir::open(dir.path()).unwrap();
        let name = RelativePath::literal("box.base");
        let known = || Known { object: "ab".to_owned(), size: 2, mode: 0o644 };
        let path = RelativePath::literal("a/b.txt");
        let baseline = || Baseline { files: [(path.clone(), known())].into() };
        let at = |seconds| Timestamp { seconds, nanoseconds: 5 };
        baseline().store(&dir, &name, at(1000)).unwrap();
        for (since, is_of_view) in
            [(at(1000), true), (at(1600), true), (at(999), false), (at(1601), false)]
        {
            let loaded = Baseline::load(&dir, &name, since);
            assert_eq!(loaded.files.get(&path) == Some(&known()), is_of_view, "{since:?}");
            assert_eq!(loaded.files.len(), usize::from(is_of_view));
        }
        // Another one replaces it; what is damaged or missing knows nothing.
        Baseline::default().store(&dir, &name, at(1000)).unwrap();
        assert!(Baseline::load(&dir, &name, at(1000)).files.is_empty());
        dir.remove_file(&name).unwrap();
        dir.create_file(&name, 0o600).unwrap().write_all(b"{\"at\":").unwrap();
        assert!(Baseline::load(&dir, &name, at(1000)).files.is_empty());
        Baseline::remove(&dir, &name).unwrap();
        Baseline::remove(&dir, &name).unwrap();
    }

    fn git(root: &Path, arguments: &[&str]) -> bool {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@localhost"]).args(arguments);
        git.current_dir(root).status().is_ok_and(|status| status.success())
    }

    fn look_up(root: &Path, object: &str) -> Option<Vec<u8>> {
        let mut git = Command::new("git");
        let output = git.args(["cat-file", "blob", object]).current_dir(root).output();
        output.ok().map(|output| output.stdout)
    }

    fn file(content: &[u8]) -> Node {
        let size = content.len() as u64;
        Node::File { hash: ContentHash::of(content), size, mode: 0o640 }
    }

    #[test]
    fn what_git_has_of_the_start_is_the_base() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        if !git(&root, &["init", "-q"]) {
            skipped("git is not installed");
            return;
        }
        for name in ["kept", "dirty", "removed", "same", "later"] {
            std::fs::write(root.join(name), format!("{name}\n")).unwrap();
            chmod(root.join(name), 0o640);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(git(&root, &["add", "-A"]) && git(&root, &["commit", "-qm", "x"]));
        std::fs::write(root.join("dirty"), "other\n").unwrap();
        std::fs::write(root.join("untracked"), "untracked\n").unwrap();
        let project = Project::find(&root, None).unwrap();
        let baseline = |started| Baseline::read(&project, started, &AtomicBool::new(false));
        // Nothing is known of files that were changed after the start.
        assert!(baseline(Timestamp { seconds: 0, nanoseconds: 0 }).files.is_empty());
        let known = baseline(LATER);
        assert!(Baseline::read(&project, LATER, &AtomicBool::new(true)).files.is_empty());
        let conflict = |name: &str, change| {
            let path = RelativePath::new(name).unwrap();
            Entry { conflict: true, ..Entry::new(path, change) }
        };
        let modify = |new: &[u8]| Change::Modify { old: file(b"host\n"), new: file(new) };
        let mut entries = vec![
            conflict("dirty", modify(b"agent\n")),
            conflict("kept", modify(b"agent\n")),
            Entry { conflict: false, ..conflict("later", modify(b"agent\n")) },
            conflict("removed", Change::Delete { old: file(b"host\n") }),
            conflict("same", modify(b"same\n")),
            conflict("untracked", Change::Add { new: file(b"agent\n") }),
        ];
        let before = entries.clone();
        let contents = known.rebase(&mut entries, &mut |object| look_up(&root, object));
        let names: Vec<_> = entries.iter().map(|entry| entry.path.quoted()).collect();
        assert_eq!(names, ["dirty", "kept", "later", "removed", "untracked"]);
        assert_eq!(entries[1].change.old(), Some(&file(b"kept\n")));
        assert_eq!(entries[3].change, Change::Delete { old: file(b"removed\n") });
        assert!(entries[1].base_known && entries[3].base_known);
        assert_eq!((&entries[0], &entries[2], &entries[4]), (&before[0], &before[2], &before[5]));
        assert_eq!(contents.len(), 2);
        // A filter made another content of the object.
        let mut entries = vec![conflict("kept", modify(b"agent\n"))];
        assert!(known.rebase(&mut entries, &mut |_| Some(b"longer content\n".into())).is_empty());
        assert!(!entries[0].base_known);
    }
}
