//! `POST /v1/isolated/session/{session}/commit`: makes the changes of a session in the outer sandbox. If a
//! file that the session has changed was changed there too, nothing is made.

use axum::extract::{Path, State};
use axum::{Extension, Json};
use serde_json::{Value, json};
use stockade_api::{
    CommandLine, Execute, FileKind, MakeDirectory, Problem, ReadFile, RemoveFile, SetPermissions,
    WriteFile,
};
use stockade_core::Code;

use super::super::super::target::{PortState, Target};
use super::changes::{Baseline, Changes, Entry, Files, list};
use super::session;
use crate::failure::Failure;

/// Creates or replaces a symbolic link. Arguments: its target, its path.
const LINK: &str = r#"exec ln -sfn -- "$1" "$2""#;
/// How many paths a message names.
const NAMED: usize = 5;

/// Commits the changes of a session; it continues with the committed files as its beginning.
pub(super) async fn commit(
    State(state): State<PortState>,
    Extension(outer): Extension<Target>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    let session = session::find(&state, &outer, &id).await?;
    let (inner, request) = (&session.target, &session.request);
    let baseline = Baseline::read(&state, &outer, &id).await?;
    let now = list(&state, inner, request).await?;
    let changes = Changes::between(&baseline.inner_files(), &now);
    let there = list(&state, &outer, request).await?;
    check(&changes, &baseline.outer_files(), &there)?;
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

/// Refuses changes of files that are not as they were at the beginning of the session.
fn check(changes: &Changes, before: &Files, now: &Files) -> Result<(), Failure> {
    let is_conflict = |path: &&[u8]| match (before.get(*path), now.get(*path)) {
        (None, None) => false,
        (Some(before), Some(now)) => !before.is_same(now),
        // Already removed there.
        (Some(_), None) => !changes.removed.iter().any(|removed| removed == path),
        (None, Some(_)) => true,
    };
    let conflicts: Vec<_> = changes.paths().filter(is_conflict).collect();
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
                let make = MakeDirectory { sandbox_id: sandbox_id.clone(), path: path(), mode };
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
        let is_conflict = |there: &[(&str, u64)]| check(&changes, &begin, &tree(there)).is_err();
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
