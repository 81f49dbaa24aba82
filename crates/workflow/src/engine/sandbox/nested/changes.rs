//! Applies the changes of a nested sandbox to the enclosing workspace: all of them, or none if one of
//! them does not fit. Only processes that the child left running may change the workspace meanwhile. A
//! child that is killed applies the rest of the changes when it continues.

use std::io::{Read as _, Write as _};

use serde::{Deserialize, Serialize};
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind, Rename, Stat};
use stockade_bundle::manifest::{ContentHash, Entry, Node};

use crate::engine::task_error::TaskError;

/// The file with the changes, and the directory with the contents, named by their hashes.
pub(super) const CHANGES: &str = "changes.json";
pub(super) const BLOBS: &str = "blobs";
/// The name of a temporary file, before it is renamed to its final name.
const NEW: &str = ".stockade-new";

/// The changes, sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Changes {
    pub(super) entries: Vec<Entry>,
}

fn failed(error: impl std::fmt::Display) -> TaskError {
    let message = format!("cannot apply the changes of a nested <Sandbox>: {error}");
    TaskError::new("SANDBOX_EXECUTION_FAILED", message).retryable()
}

/// The path of the file with a content.
pub(super) fn blob(hash: ContentHash) -> Result<RelativePath, TaskError> {
    RelativePath::new(hash.to_hex()).map_err(failed)
}

/// The entry at a path; `None` also if its parent directory is missing, or is not a directory.
fn stat_entry(dir: &Dir, path: &RelativePath) -> Result<Option<Stat>, TaskError> {
    dir.stat(path).map_err(failed)
}

/// Whether this node is at a path. Permissions of files are not compared, because those of a copy
/// differ.
pub(super) fn matches_node(
    dir: &Dir,
    path: &RelativePath,
    node: Option<&Node>,
) -> Result<bool, TaskError> {
    let found = stat_entry(dir, path)?;
    let (Some(stat), Some(node)) = (found, node) else {
        return Ok(found.is_none() && node.is_none());
    };
    Ok(match (node, stat.kind) {
        (Node::File { hash, size, .. }, FileKind::File) => {
            stat.size == *size && content_hash(dir, path)? == *hash
        }
        (Node::Symlink { target }, FileKind::Symlink) => {
            dir.read_link(path).map_err(failed)? == *target
        }
        (Node::Directory { .. }, FileKind::Directory) => true,
        _ => false,
    })
}

/// Whether a change was applied to a copy that has the original permissions of the changed node.
pub(super) fn is_applied(copy: &Dir, entry: &Entry) -> Result<bool, TaskError> {
    let new = entry.change.new_node();
    let (Some(Node::File { mode, .. } | Node::Directory { mode }), true) =
        (new, matches_node(copy, &entry.path, entry.change.old())?)
    else {
        return matches_node(copy, &entry.path, new);
    };
    // Both nodes may be there: then they differ only in permissions.
    Ok(matches_node(copy, &entry.path, new)?
        && stat_entry(copy, &entry.path)?.is_some_and(|stat| stat.mode & 0o777 == *mode))
}

fn content_hash(dir: &Dir, path: &RelativePath) -> Result<ContentHash, TaskError> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(dir.open_file(path).map_err(failed)?).map_err(failed)?;
    Ok(hasher.finalize().into())
}

impl Changes {
    /// Applies the changes to a directory. Changes that were already applied are skipped.
    ///
    /// # Errors
    /// `TOOL_PATCH_FAILED`, without applying anything, if the directory differs from the state that the
    /// changes were made from.
    pub(super) fn apply(&self, workspace: &Dir, blobs: &Dir) -> Result<(), TaskError> {
        let mut others = Vec::new();
        let mut pending = Vec::new();
        for entry in &self.entries {
            let (old, new) = (entry.change.old(), entry.change.new_node());
            // An existing node may still have another mode.
            let fits = matches_node(workspace, &entry.path, new)?
                || matches_node(workspace, &entry.path, old)?;
            if fits && (new.is_none() || self.has_parent(workspace, &entry.path)?) {
                pending.push(entry);
            } else {
                others.push(entry.path.quoted());
            }
        }
        if !others.is_empty() {
            let message = format!(
                "the workspace has changed since the nested <Sandbox> started: {}",
                others.join(", ")
            );
            return Err(TaskError::new("TOOL_PATCH_FAILED", message));
        }
        // Removals are applied first, the entries of a directory before the directory.
        for entry in pending.iter().rev() {
            remove(workspace, entry)?;
        }
        for entry in pending {
            if let Some(new) = entry.change.new_node() {
                write_entry(workspace, blobs, entry, new)?;
            }
        }
        Ok(())
    }

    /// Whether an entry can exist at a path: each ancestor is a directory, is missing, or changes too.
    fn has_parent(&self, workspace: &Dir, path: &RelativePath) -> Result<bool, TaskError> {
        let mut above = path.parent();
        while let Some(path) = above {
            let is_changed = self.entries.binary_search_by(|entry| entry.path.cmp(&path)).is_ok();
            match stat_entry(workspace, &path)? {
                Some(stat) if stat.kind != FileKind::Directory && !is_changed => return Ok(false),
                _ => above = path.parent(),
            }
        }
        Ok(true)
    }
}

/// Removes a node that is replaced by a node of another kind, or by none.
fn remove(workspace: &Dir, entry: &Entry) -> Result<(), TaskError> {
    let Some(old) = entry.change.old() else { return Ok(()) };
    let is_directory = matches!(old, Node::Directory { .. });
    let stays = match entry.change.new_node() {
        None => false,
        Some(new) => is_directory == matches!(new, Node::Directory { .. }),
    };
    let kind = stat_entry(workspace, &entry.path)?.map(|stat| stat.kind);
    let is_old = kind.is_some_and(|kind| is_directory == (kind == FileKind::Directory));
    if stays || !is_old {
        return Ok(());
    }
    let removed = if is_directory {
        workspace.remove_dir(&entry.path)
    } else {
        workspace.remove_file(&entry.path)
    };
    match removed {
        // The directory may still contain files that git ignores, which stay.
        Err(error)
            if error.kind() == Some(std::io::ErrorKind::DirectoryNotEmpty)
                && entry.change.new_node().is_none() =>
        {
            Ok(())
        }
        other => other.map_err(failed),
    }
}

fn write_entry(workspace: &Dir, blobs: &Dir, entry: &Entry, new: &Node) -> Result<(), TaskError> {
    let path = &entry.path;
    if let Some(parent) = path.parent() {
        make_directories(workspace, &parent)?;
    }
    let is_there = matches_node(workspace, path, Some(new))?;
    match new {
        Node::Directory { mode } => {
            if !is_there {
                workspace.mkdir(path, *mode).map_err(failed)?;
            }
            let is_same =
                matches!(entry.change.old(), Some(Node::Directory { mode: old }) if old == mode);
            if !is_same {
                workspace.chmod(path, *mode).map_err(failed)?;
            }
        }
        Node::Symlink { target } if !is_there => {
            let temporary = temporary_path(workspace, path)?;
            workspace.symlink(target, &temporary).map_err(failed)?;
            workspace.rename(&temporary, workspace, path, Rename::Replace).map_err(failed)?;
        }
        Node::Symlink { .. } => {}
        Node::File { hash, mode, .. } => {
            // A mode that the nested sandbox did not change stays unchanged here.
            let mode = match entry.change.old() {
                Some(Node::File { mode: old, .. }) if old == mode => {
                    stat_entry(workspace, path)?.map_or(*mode, |stat| stat.mode & 0o777)
                }
                _ => *mode,
            };
            if !is_there {
                let temporary = temporary_path(workspace, path)?;
                copy_blob(blobs, &blob(*hash)?, *hash, workspace, &temporary)?;
                workspace.rename(&temporary, workspace, path, Rename::Replace).map_err(failed)?;
            }
            workspace.chmod(path, mode).map_err(failed)?;
        }
    }
    Ok(())
}

fn make_directories(workspace: &Dir, path: &RelativePath) -> Result<(), TaskError> {
    if stat_entry(workspace, path)?.is_some() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_directories(workspace, &parent)?;
    }
    workspace.mkdir(path, 0o755).map_err(failed)
}

/// A free name in the same directory as a path.
fn temporary_path(workspace: &Dir, path: &RelativePath) -> Result<RelativePath, TaskError> {
    let temporary = match path.parent() {
        Some(parent) => parent.join(NEW.as_bytes()),
        None => RelativePath::new(NEW),
    };
    let temporary = temporary.map_err(failed)?;
    match workspace.remove_file(&temporary) {
        Err(error) if error.kind() != Some(std::io::ErrorKind::NotFound) => Err(failed(error)),
        _ => Ok(temporary),
    }
}

/// Copies a content, and verifies its hash.
pub(super) fn copy_blob(
    from: &Dir,
    at: &RelativePath,
    hash: ContentHash,
    into: &Dir,
    path: &RelativePath,
) -> Result<(), TaskError> {
    let mut content = Vec::new();
    let most = stockade_core::BundleLimits::SANDBOX.total_bytes;
    let file = from.open_file(at).map_err(failed)?;
    file.take(most).read_to_end(&mut content).map_err(failed)?;
    if ContentHash::of(&content) != hash {
        return Err(failed(format!("{} has changed", at.quoted())));
    }
    let mut file = into.create_file(path, 0o600).map_err(failed)?;
    file.write_all(&content).and_then(|()| file.sync_data()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    const TEXT: &[u8] = b"new\n";

    fn file(content: &[u8], mode: u32) -> Value {
        let hash = ContentHash::of(content).to_hex();
        json!({ "type": "file", "hash": hash, "size": content.len(), "mode": mode })
    }

    fn changes() -> Changes {
        let directory = json!({ "type": "directory", "mode": 0o755 });
        let entries = json!([
            { "path": "add/deep", "operation": "add", "new": file(TEXT, 0o755) },
            { "path": "gone", "operation": "delete", "old": directory },
            { "path": "gone/file", "operation": "delete", "old": file(b"old\n", 0o644) },
            { "path": "link", "operation": "add", "new": { "type": "symlink", "target": "add/deep" } },
            { "path": "mode", "operation": "modify", "old": file(b"old\n", 0o644), "new": file(b"old\n", 0o755) },
            { "path": "modify", "operation": "modify", "old": file(b"old\n", 0o644), "new": file(TEXT, 0o644) },
            { "path": "turned", "operation": "modify", "old": directory, "new": file(TEXT, 0o644) },
        ]);
        Changes { entries: serde_json::from_value(entries).unwrap() }
    }

    struct Scene {
        dir: tempfile::TempDir,
        workspace: Dir,
        blobs: Dir,
    }

    impl Scene {
        fn set() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for directory in ["w/gone", "w/turned", "b"] {
                fs::create_dir_all(dir.path().join(directory)).unwrap();
            }
            for name in ["gone/file", "mode", "modify"] {
                fs::write(dir.path().join("w").join(name), "old\n").unwrap();
            }
            fs::set_permissions(dir.path().join("w/modify"), fs::Permissions::from_mode(0o664))
                .unwrap();
            let blob = ContentHash::of(TEXT).to_hex();
            fs::write(dir.path().join("b").join(blob), TEXT).unwrap();
            let open = |name: &str| Dir::open(&dir.path().join(name)).unwrap();
            let (workspace, blobs) = (open("w"), open("b"));
            Self { dir, workspace, blobs }
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.dir.path().join("w").join(name)
        }

        fn assert_applied(&self) {
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(fs::read(self.path("add/deep")).unwrap(), TEXT);
            assert_eq!(mode(&self.path("add/deep")), 0o755);
            assert!(!self.path("gone").exists());
            assert_eq!(fs::read_link(self.path("link")).unwrap(), Path::new("add/deep"));
            assert_eq!(mode(&self.path("mode")), 0o755);
            assert_eq!(fs::read(self.path("modify")).unwrap(), TEXT);
            assert_eq!(mode(&self.path("modify")), 0o664);
            assert_eq!(fs::read(self.path("turned")).unwrap(), TEXT);
            let left = fs::read_dir(self.path("")).unwrap();
            assert!(left.into_iter().all(|entry| entry.unwrap().file_name() != NEW));
        }
    }

    #[test]
    fn all_is_made_also_when_it_was_begun_before() {
        let scene = Scene::set();
        for _ in 0..2 {
            changes().apply(&scene.workspace, &scene.blobs).unwrap();
            scene.assert_applied();
        }
        // The child may have been killed after any number of changes.
        for done in 0..changes().entries.len() {
            let scene = Scene::set();
            let some = Changes { entries: changes().entries.into_iter().skip(done).collect() };
            some.apply(&scene.workspace, &scene.blobs).unwrap();
            if done > 3 {
                // The link was started, but is not at its final path.
                fs::write(scene.path(NEW), "half").unwrap();
            }
            changes().apply(&scene.workspace, &scene.blobs).unwrap();
            scene.assert_applied();
        }
    }

    #[test]
    fn nothing_is_made_where_something_else_is_there() {
        let conflicts: [fn(&Scene); 5] = [
            |scene| fs::write(scene.path("modify"), "mine\n").unwrap(),
            |scene| fs::write(scene.path("link"), "mine").unwrap(),
            |scene| fs::remove_file(scene.path("mode")).unwrap(),
            |scene| {
                fs::create_dir(scene.path("add")).unwrap();
                symlink("/etc", scene.path("add/deep")).unwrap();
            },
            |scene| fs::write(scene.path("add"), "mine").unwrap(),
        ];
        for (number, conflict) in conflicts.iter().enumerate() {
            let scene = Scene::set();
            conflict(&scene);
            let refused = changes().apply(&scene.workspace, &scene.blobs).unwrap_err();
            assert_eq!(refused.code, "TOOL_PATCH_FAILED", "{number}");
            assert!(scene.path("gone/file").exists() && scene.path("turned").is_dir());
        }
    }

    #[test]
    fn what_was_left_out_is_not_made() {
        let scene = Scene::set();
        let applied = |scene: &Scene| {
            let entries = changes().entries.into_iter();
            let applied = entries.filter(|entry| is_applied(&scene.workspace, entry).unwrap());
            applied.map(|entry| entry.path.quoted()).collect::<Vec<_>>().join(" ")
        };
        fs::set_permissions(scene.path("mode"), fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(applied(&scene), "");
        fs::set_permissions(scene.path("mode"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_file(scene.path("gone/file")).unwrap();
        assert_eq!(applied(&scene), "gone/file mode");
        changes().apply(&scene.workspace, &scene.blobs).unwrap();
        let all: Vec<String> = changes().entries.iter().map(|entry| entry.path.quoted()).collect();
        assert_eq!(applied(&scene), all.join(" "));
    }

    #[test]
    fn a_link_on_the_way_leads_nowhere() {
        let scene = Scene::set();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), scene.path("add")).unwrap();
        assert!(changes().apply(&scene.workspace, &scene.blobs).is_err());
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_content_that_is_another_is_not_taken() {
        let scene = Scene::set();
        let blob = ContentHash::of(TEXT).to_hex();
        fs::write(scene.dir.path().join("b").join(blob), "evil").unwrap();
        assert!(changes().apply(&scene.workspace, &scene.blobs).is_err());
    }
}
