//! What a session has changed: its files, compared with those at its beginning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stockade_api::{Bytes, FileContent, FileEntry, FileKind, ListDirectory, ReadFile, WriteFile};
use stockade_core::{Code, Problem, Time};
use tokio::io::AsyncReadExt as _;

use super::super::super::target::{PortState, Target};
use super::request::{Create, Root};
use crate::failure::{Failure, invalid};

/// The directory of the outer sandbox with what was there when each session began: no command of a
/// session reaches it.
const DIRECTORY: &str = "/tmp/.opensandbox/isolated";
/// The most bytes of that record.
const RECORD_BYTES: u64 = 256 << 20;

/// The properties of a file by which a change is noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) kind: FileKind,
    pub(super) size_bytes: u64,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) modified_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) link: Option<Bytes>,
}

impl Entry {
    fn new(entry: &FileEntry) -> Self {
        Self {
            kind: entry.kind,
            size_bytes: entry.size_bytes,
            mode: entry.mode & 0o7777,
            uid: entry.uid,
            gid: entry.gid,
            modified_at: entry.modified_at,
            link: entry.link.clone(),
        }
    }

    /// Whether it is still the same file with the same content.
    pub(super) fn is_same(&self, now: &Self) -> bool {
        let has_same_owner = (self.uid, self.gid) == (now.uid, now.gid);
        self.kind == now.kind
            && has_same_owner
            && match self.kind {
                FileKind::File => {
                    (self.size_bytes, self.mode, self.modified_at)
                        == (now.size_bytes, now.mode, now.modified_at)
                }
                FileKind::Directory => self.mode == now.mode,
                FileKind::Link => self.link == now.link,
                FileKind::Other => true,
            }
    }
}

/// Files by their paths: a directory is before its content.
pub(super) type Files = BTreeMap<Vec<u8>, Entry>;

/// The files at the beginning of a session.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Baseline {
    /// Those of the session.
    inner: Vec<(Bytes, Entry)>,
    /// Those of the outer sandbox.
    outer: Vec<(Bytes, Entry)>,
}

impl Baseline {
    /// The record of a session.
    pub(super) fn path(id: &str) -> String {
        format!("{DIRECTORY}/{id}")
    }

    /// Begins with the files of the outer sandbox, before its snapshot is taken: what changes after that
    /// is noticed.
    pub(super) async fn outer(
        state: &PortState,
        outer: &Target,
        request: &Create,
    ) -> Result<Self, Failure> {
        let outer = pairs(list(state, outer, request).await?);
        Ok(Self { inner: Vec::new(), outer })
    }

    /// Adds the files of the session.
    pub(super) async fn complete(
        self,
        state: &PortState,
        inner: &Target,
        request: &Create,
    ) -> Result<Self, Failure> {
        Ok(Self { inner: pairs(list(state, inner, request).await?), ..self })
    }

    /// Writes the record in the outer sandbox.
    pub(super) async fn write(
        &self,
        state: &PortState,
        outer: &Target,
        id: &str,
    ) -> Result<(), Failure> {
        let text = serde_json::to_vec(self).map_err(|error| invalid(error.to_string()))?;
        let write = WriteFile {
            sandbox_id: outer.sandbox.id.clone(),
            path: Self::path(id).into(),
            mode: Some(0o600),
            uid: None,
            gid: None,
        };
        let content = FileContent(Box::pin(std::io::Cursor::new(text)));
        state.sandboxes.write_file(&outer.caller, write, content).await?;
        Ok(())
    }

    /// Reads the record.
    pub(super) async fn read(state: &PortState, outer: &Target, id: &str) -> Result<Self, Failure> {
        let damaged = |cause: String| {
            let message = "the record of the session's beginning cannot be read";
            Failure(
                Problem::new(Code::InvalidState, message)
                    .because(cause)
                    .remedied_by("create another session"),
            )
        };
        let sandbox_id = outer.sandbox.id.clone();
        let (path, length) = (Self::path(id).into(), Some(RECORD_BYTES));
        let request = ReadFile { sandbox_id, path, offset: 0, length };
        let content = state.sandboxes.read_file(&outer.caller, request).await;
        let mut content = content.map_err(|problem| damaged(problem.message))?;
        let mut text = Vec::new();
        content.0.read_to_end(&mut text).await.map_err(|error| damaged(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))
    }

    pub(super) fn inner_files(&self) -> Files {
        files(&self.inner)
    }

    pub(super) fn outer_files(&self) -> Files {
        files(&self.outer)
    }
}

fn pairs(files: Files) -> Vec<(Bytes, Entry)> {
    files.into_iter().map(|(path, entry)| (Bytes(path), entry)).collect()
}

fn files(pairs: &[(Bytes, Entry)]) -> Files {
    pairs.iter().map(|(path, entry)| (path.0.clone(), entry.clone())).collect()
}

/// The files below the directories of a session whose changes are shown.
pub(super) async fn list(
    state: &PortState,
    target: &Target,
    request: &Create,
) -> Result<Files, Failure> {
    let roots = request.roots();
    let mut files = Files::new();
    for root in roots.iter().filter(|root| root.is_shown) {
        let request = ListDirectory {
            sandbox_id: target.sandbox.id.clone(),
            path: root.path.as_str().into(),
            depth: Some(u32::MAX),
        };
        let listing = state.sandboxes.list_directory(&target.caller, request).await?;
        let own = listing.entries.iter().filter(|entry| is_shown(&roots, &entry.path.0));
        files.extend(own.map(|entry| (entry.path.0.clone(), Entry::new(entry))));
    }
    Ok(files)
}

/// Whether the nearest directory of the session above a path is one whose changes are shown.
fn is_shown(roots: &[Root], path: &[u8]) -> bool {
    let is_own_record = |path: &[u8]| path.starts_with(DIRECTORY.as_bytes());
    let nearest = roots
        .iter()
        .filter(|root| is_below(path, root.path.as_bytes()))
        .max_by_key(|root| root.path.len());
    nearest.is_some_and(|root| root.is_shown) && !is_own_record(path)
}

/// Whether a path is another one, or below it.
fn is_below(path: &[u8], other: &[u8]) -> bool {
    let other = other.strip_suffix(b"/").unwrap_or(other);
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The changes of a session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// What is new or different; a directory is before its content.
    pub(super) changed: Vec<(Vec<u8>, Entry)>,
    /// What was removed, without the content of a removed directory.
    pub(super) removed: Vec<Vec<u8>>,
}

impl Changes {
    pub(super) fn between(before: &Files, now: &Files) -> Self {
        let mut changes = Self::default();
        for (path, entry) in now {
            let is_same = before.get(path).is_some_and(|old| old.is_same(entry));
            if !is_same && entry.kind != FileKind::Other {
                changes.changed.push((path.clone(), entry.clone()));
            }
        }
        for path in before.keys().filter(|path| !now.contains_key(*path)) {
            let is_inside =
                changes.removed.last().is_some_and(|removed: &Vec<u8>| is_below(path, removed));
            if !is_inside {
                changes.removed.push(path.clone());
            }
        }
        changes
    }

    /// Every path that a commit would change.
    pub(super) fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.changed.iter().map(|(path, _)| path).chain(&self.removed).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: FileKind, size_bytes: u64) -> Entry {
        let modified_at = Time::from_ms(7);
        Entry { kind, size_bytes, mode: 0o644, uid: 1, gid: 1, modified_at, link: None }
    }

    fn tree(pairs: &[(&str, FileKind, u64)]) -> Files {
        let pairs =
            pairs.iter().map(|(path, kind, size)| (path.as_bytes().to_vec(), entry(*kind, *size)));
        pairs.collect()
    }

    #[test]
    fn changes_are_new_different_and_removed_files() {
        use FileKind::{Directory, File, Other};
        let before = tree(&[
            ("/w/a", File, 1),
            ("/w/d", Directory, 10),
            ("/w/d/x", File, 1),
            ("/w/d-x", File, 1),
            ("/w/k", Directory, 10),
        ]);
        let now = tree(&[
            ("/w/a", File, 2),
            ("/w/d-x", File, 1),
            ("/w/k", Directory, 20),
            ("/w/new", Directory, 10),
            ("/w/new/f", File, 3),
            ("/w/socket", Other, 0),
        ]);
        let changes = Changes::between(&before, &now);
        let changed: Vec<_> =
            changes.changed.iter().map(|(path, _)| String::from_utf8_lossy(path)).collect();
        assert_eq!(changed, ["/w/a", "/w/new", "/w/new/f"]);
        assert_eq!(changes.removed, [b"/w/d".to_vec()]);
        assert_eq!(Changes::between(&before, &before), Changes::default());
    }

    #[test]
    fn the_nearest_directory_decides() {
        let root = |path: &str, is_shown| Root {
            path: path.to_owned(),
            mode: super::super::request::Mode::Overlay,
            is_shown,
        };
        let roots = [root("/w", true), root("/w/cache", false), root("/", false)];
        for (path, shown) in [
            ("/w/a", true),
            ("/w/cache/a", false),
            ("/w/cached", true),
            ("/wide", false),
            ("/etc/a", false),
        ] {
            assert_eq!(is_shown(&roots, path.as_bytes()), shown, "{path}");
        }
    }
}
