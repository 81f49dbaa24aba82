//! `POST /v1/isolated/session/{session}/commit`: makes the changes of a session in the outer sandbox. If a
//! file that the session has changed was changed there too, nothing is made; unless it has the same content
//! now, as after a commit that a killed server did not complete. So such a commit is repeated.

use axum::extract::{Path, State};
use axum::{Extension, Json};
use serde_json::{Value, json};
use stockade_api::{
    CommandLine, Execute, FileKind, MakeDirectory, Problem, ReadFile, RemoveFile, SetPermissions,
    WriteFile,
};
use stockade_core::Code;
use tokio::io::AsyncReadExt as _;

use super::super::super::target::{PortState, Target};
use super::changes::{Baseline, Changes, Entry, Files, list};
use super::session;
use crate::failure::Failure;

/// Creates or replaces a symbolic link. Arguments: its target, its path.
const LINK: &str = r#"exec ln -sfn -- "$1" "$2""#;
/// How many paths a message names.
const NAMED: usize = 5;
/// How much of a file is read at a time, in bytes.
const PART_BYTES: usize = 64 << 10;

/// Commits the changes of a session; it continues with the committed files as its beginning.
pub(super) async fn commit(
    State(state): State<PortState>,
    Extension(outer): Extension<Target>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    // It is completed, also if the client disconnects.
    let committed = tokio::spawn(commit_all(state, outer, id));
    committed.await.map_err(|error| Failure(Problem::caused(Code::Io, &error)))?
}

async fn commit_all(state: PortState, outer: Target, id: String) -> Result<Json<Value>, Failure> {
    let session = session::find(&state, &outer, &id).await?;
    let (inner, request) = (&session.target, &session.request);
    let baseline = Baseline::read(&state, &outer, &id).await?;
    let now = list(&state, inner, request).await?;
    let changes = Changes::between(&baseline.inner_files(), &now);
    let there = list(&state, &outer, request).await?;
    let mut conflicts = Vec::new();
    for path in differing(&changes, &baseline.outer_files(), &there) {
        if !is_made(&state, (inner, &now), (&outer, &there), path).await? {
            conflicts.push(path);
        }
    }
    refuse(&conflicts)?;
    for path in &changes.removed {
        remove(&state, &outer, path, &there).await?;
    }
    for (path, entry) in &changes.changed {
        let is_other_kind = there.get(path).is_some_and(|old| old.kind != entry.kind);
        if is_other_kind {
            remove(&state, &outer, path, &there).await?;
        }
        let is_new = is_other_kind || !there.contains_key(path);
        make(&state, inner, &outer, (path, entry), is_new).await?;
    }
    let after = Baseline::outer(&state, &outer, request).await?;
    after.complete(&state, inner, request).await?.write(&state, &outer, &id).await?;
    Ok(Json(json!({
        "session_id": session.id,
        "changed": changes.changed.len(),
        "removed": changes.removed.len(),
    })))
}

/// The paths among those of the changes that are not as they were at the beginning of the session.
fn differing<'a>(changes: &'a Changes, before: &Files, now: &Files) -> Vec<&'a [u8]> {
    let is_removed = |path: &[u8]| changes.removed.iter().any(|removed| removed == path);
    // What is replaced by another kind is removed first.
    let is_replaced = |path: &[u8], old: &Entry| {
        changes.changed.iter().any(|(changed, entry)| changed == path && entry.kind != old.kind)
    };
    let differs = |path: &&[u8]| match (before.get(*path), now.get(*path)) {
        (None, None) => false,
        (Some(before), Some(now)) => !before.is_same(now),
        // Already removed there.
        (Some(before), None) => !is_removed(path) && !is_replaced(path, before),
        (None, Some(_)) => true,
    };
    changes.paths().filter(differs).collect()
}

/// Whether a path of the outer sandbox is already what the session has there.
async fn is_made(
    state: &PortState,
    (inner, wanted): (&Target, &Files),
    (outer, there): (&Target, &Files),
    path: &[u8],
) -> Result<bool, Failure> {
    let (Some(wanted), Some(there)) = (wanted.get(path), there.get(path)) else {
        return Ok(false);
    };
    Ok(match wanted.kind {
        kind if kind != there.kind => false,
        FileKind::Directory => true,
        FileKind::Link => wanted.link == there.link,
        FileKind::File => {
            wanted.size_bytes == there.size_bytes
                && hash(state, inner, path).await? == hash(state, outer, path).await?
        }
        FileKind::Other => false,
    })
}

async fn hash(state: &PortState, target: &Target, path: &[u8]) -> Result<blake3::Hash, Failure> {
    let sandbox_id = target.sandbox.id.clone();
    let read = ReadFile { sandbox_id, path: path.to_vec().into(), offset: 0, length: None };
    let mut content = state.sandboxes.read_file(&target.caller, read).await?.0;
    let mut hasher = blake3::Hasher::new();
    let mut part = vec![0; PART_BYTES];
    loop {
        let length = content.read(&mut part).await;
        match length.map_err(|error| Failure(Problem::caused(Code::Io, &error)))? {
            0 => return Ok(hasher.finalize()),
            length => hasher.update(part.get(..length).unwrap_or_default()),
        };
    }
}

/// Refuses a commit with conflicts.
fn refuse(conflicts: &[&[u8]]) -> Result<(), Failure> {
    if conflicts.is_empty() {
        return Ok(());
    }
    let named: Vec<_> =
        conflicts.iter().take(NAMED).map(|path| String::from_utf8_lossy(path)).collect();
    let message = format!("{} files were changed in the sandbox meanwhile", conflicts.len());
    Err(Problem::new(Code::BundleConflict, message)
        .because(named.join(", "))
        .remedied_by("compare the diff of the session, or create another session")
        .into())
}

async fn remove(
    state: &PortState,
    outer: &Target,
    path: &[u8],
    there: &Files,
) -> Result<(), Failure> {
    if there.contains_key(path) {
        let (sandbox_id, path) = (outer.sandbox.id.clone(), path.to_vec().into());
        state.sandboxes.remove_file(&outer.caller, RemoveFile { sandbox_id, path }).await?;
    }
    Ok(())
}

/// Creates a file of the session in the outer sandbox, or replaces it.
async fn make(
    state: &PortState,
    inner: &Target,
    outer: &Target,
    (path, entry): (&[u8], &Entry),
    is_new: bool,
) -> Result<(), Failure> {
    let sandbox_id = outer.sandbox.id.clone();
    let path = || path.to_vec().into();
    let (mode, uid, gid) = (Some(entry.mode), Some(entry.uid), Some(entry.gid));
    match entry.kind {
        FileKind::Directory => {
            if is_new {
                let make = MakeDirectory {
                    sandbox_id: sandbox_id.clone(),
                    path: path(),
                    mode,
                    uid: None,
                    gid: None,
                };
                state.sandboxes.make_directory(&outer.caller, make).await?;
            }
            let set = SetPermissions { sandbox_id, path: path(), mode, uid, gid };
            state.sandboxes.set_permissions(&outer.caller, set).await?;
        }
        FileKind::File => {
            let read = ReadFile {
                sandbox_id: inner.sandbox.id.clone(),
                path: path(),
                offset: 0,
                length: None,
            };
            let content = state.sandboxes.read_file(&inner.caller, read).await?;
            let write = WriteFile { sandbox_id: sandbox_id.clone(), path: path(), mode, uid, gid };
            state.sandboxes.write_file(&outer.caller, write, content).await?;
            // A file that was there keeps its permissions.
            let set = SetPermissions { sandbox_id, path: path(), mode, uid, gid };
            state.sandboxes.set_permissions(&outer.caller, set).await?;
        }
        FileKind::Link => {
            let Some(link) = entry.link.clone() else { return Ok(()) };
            let words = ["/bin/sh", "-c", LINK, "sh"].map(Into::into);
            let words = words.into_iter().chain([link, path()]).collect();
            let line = CommandLine::Words(words);
            let ran = state.sandboxes.execute(&outer.caller, Execute::new(sandbox_id, line));
            let ran = ran.await?;
            if ran.end.exit_code != Some(0) {
                let message = "a symbolic link cannot be created in the sandbox";
                let cause = ran.stderr.lossy().trim().to_owned();
                return Err(Problem::new(Code::Io, message).because(cause).into());
            }
        }
        FileKind::Other => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use stockade_core::Time;

    use super::*;

    fn tree(pairs: &[(&str, u64)]) -> Files {
        let entry = |size_bytes| Entry {
            kind: FileKind::File,
            size_bytes,
            mode: 0o644,
            uid: 1,
            gid: 1,
            modified_at: Time::from_ms(7),
            link: None,
        };
        pairs.iter().map(|(path, size)| (path.as_bytes().to_vec(), entry(*size))).collect()
    }

    #[test]
    fn a_file_that_was_changed_on_both_sides_is_a_conflict() {
        let begin = tree(&[("/w/a", 1), ("/w/b", 1), ("/w/c", 1)]);
        let inner = tree(&[("/w/a", 2), ("/w/b", 1), ("/w/new", 1)]);
        let changes = Changes::between(&begin, &inner);
        let is_conflict =
            |there: &[(&str, u64)]| !differing(&changes, &begin, &tree(there)).is_empty();
        assert!(!is_conflict(&[("/w/a", 1), ("/w/b", 1), ("/w/c", 1)]));
        // Changed by the outer sandbox only.
        assert!(!is_conflict(&[("/w/a", 1), ("/w/b", 9), ("/w/c", 1)]));
        // Removed by both.
        assert!(!is_conflict(&[("/w/a", 1), ("/w/b", 1)]));
        assert!(is_conflict(&[("/w/a", 3), ("/w/b", 1), ("/w/c", 1)]));
        assert!(is_conflict(&[("/w/b", 1), ("/w/c", 1)]));
        assert!(is_conflict(&[("/w/a", 1), ("/w/b", 1), ("/w/c", 3)]));
        assert!(is_conflict(&[("/w/a", 1), ("/w/b", 1), ("/w/c", 1), ("/w/new", 1)]));
    }
}
