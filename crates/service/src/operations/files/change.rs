//! `write_file`, `make_directory`, `move_file`, `remove_file`, `set_permissions`, `replace_text`:
//! one workflow, whose record contains the changes but no file contents.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stockade_api::{
    Bytes, Caller, FileContent, MakeDirectory, MoveFile, RemoveFile, ReplaceResult, ReplaceText,
    Result, SetPermissions, WriteFile, WriteResult,
};
use stockade_core::access::Level;
use stockade_core::event::Direction;
use stockade_core::sandbox::User;
use stockade_core::{Code, Problem, SandboxId};
use stockade_durable::{Context, Failure, StartOptions, Step};
use stockade_runtime::{Content, ReadRange, Runtime, SandboxPath, WriteOptions};
use tokio::io::AsyncReadExt as _;

use super::{copied, resolve_allowed, use_sandbox};
use crate::events;
use crate::failure::{access_problem, invalid, runtime_problem, store_problem, to_failure};
use crate::handoff::{Handoff, Once};
use crate::inner::Inner;
use crate::operation::{self, Input};
use crate::operations::record_with_next;
use crate::owned_sandbox::OwnedSandbox;
use crate::paths::{as_bytes, as_path, resolve};
use crate::service::Service;

/// The workflow's name.
pub(crate) const NAME: &str = "sandbox.files";

/// The largest file in which texts are replaced.
const EDIT_BYTES: u64 = 64 << 20;

/// A change in its recorded form.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "change", content = "request")]
pub(crate) enum Change {
    Write(WriteFile),
    MakeDirectory(MakeDirectory),
    Move(MoveFile),
    Remove(RemoveFile),
    SetPermissions(SetPermissions),
}

impl Change {
    const fn sandbox(&self) -> &SandboxId {
        match self {
            Self::Write(request) => &request.sandbox_id,
            Self::MakeDirectory(request) => &request.sandbox_id,
            Self::Move(request) => &request.sandbox_id,
            Self::Remove(request) => &request.sandbox_id,
            Self::SetPermissions(request) => &request.sandbox_id,
        }
    }

    /// The path of a change, if the sandbox's rules allow it, and for a move also the new path.
    async fn check(&self, runtime: &dyn Runtime, owned: &OwnedSandbox) -> Result<ResolvedPaths> {
        let rules = &owned.rules;
        let writes = async |path: &Bytes| {
            let path = resolve_allowed(runtime, owned, Level::ReadWrite, path, true).await?;
            Ok(ResolvedPaths { path, to: None })
        };
        match self {
            Self::Write(WriteFile { path, uid, gid, .. })
            | Self::SetPermissions(SetPermissions { path, uid, gid, .. }) => {
                owner(*uid, *gid)?;
                writes(path).await
            }
            Self::MakeDirectory(MakeDirectory { path, .. }) => writes(path).await,
            Self::Move(MoveFile { from, to, .. }) => {
                let (mut path, mut to) = (as_path(from)?, as_path(to)?);
                let allows = |path: &SandboxPath, to: &SandboxPath| {
                    let allowed = rules.allows_move(as_bytes(path), as_bytes(to));
                    allowed.map_err(|error| access_problem(&error))
                };
                allows(&path, &to)?;
                if !rules.is_empty() {
                    path = resolve(runtime, &owned.id, &path, false).await?;
                    to = resolve(runtime, &owned.id, &to, false).await?;
                    allows(&path, &to)?;
                }
                Ok(ResolvedPaths { path, to: Some(to) })
            }
            Self::Remove(RemoveFile { path, .. }) => {
                let mut path = as_path(path)?;
                let allows = |path: &SandboxPath| {
                    let allowed = rules.allows_tree(Level::ReadWrite, as_bytes(path));
                    allowed.map_err(|error| access_problem(&error))
                };
                allows(&path)?;
                if !rules.is_empty() {
                    path = resolve(runtime, &owned.id, &path, false).await?;
                    allows(&path)?;
                }
                Ok(ResolvedPaths { path, to: None })
            }
        }
    }
}

/// The resolved paths of a change.
struct ResolvedPaths {
    path: SandboxPath,
    /// The new path.
    to: Option<SandboxPath>,
}

/// The new owner of a file.
fn owner(uid: Option<u32>, gid: Option<u32>) -> Result<Option<User>> {
    match (uid, gid) {
        (None, Some(_)) => Err(invalid("`gid` requires `uid`")),
        (None, None) => Ok(None),
        (Some(user), gid) => Ok(Some(User { user, group: gid.unwrap_or(user) })),
    }
}

/// Makes a change that needs no content.
pub(crate) async fn change(service: &Service, caller: &Caller, change: Change) -> Result<u64> {
    let owned = use_sandbox(service, caller, change.sandbox()).await?;
    change.check(&**service.inner.runtime(&owned.runtime)?, &owned).await?;
    operation::run(&service.engine, NAME, caller, &change).await
}

/// Writes a file.
pub(crate) async fn write(
    service: &Service,
    caller: &Caller,
    request: WriteFile,
    content: FileContent,
) -> Result<WriteResult> {
    let change = Change::Write(request);
    let owned = use_sandbox(service, caller, change.sandbox()).await?;
    change.check(&**service.inner.runtime(&owned.runtime)?, &owned).await?;
    let handoff = Handoff { content: Some(content), ..Handoff::default() };
    let options = StartOptions::default();
    let started = service.start_with(NAME, caller, &change, handoff, options);
    let size_bytes = started.await?.get_result().await.map_err(store_problem)?;
    Ok(WriteResult { size_bytes })
}

/// Replaces texts in files; each file is replaced atomically.
pub(crate) async fn replace(
    service: &Service,
    caller: &Caller,
    request: ReplaceText,
) -> Result<ReplaceResult> {
    let owned = use_sandbox(service, caller, &request.sandbox_id).await?;
    let runtime = service.inner.runtime(&owned.runtime)?;
    let failed = |error| runtime_problem(&error);
    let mut counts = Vec::with_capacity(request.edits.len());
    for edit in &request.edits {
        if edit.old.0.is_empty() {
            return Err(invalid("the text to replace must not be empty"));
        }
        let path = resolve_allowed(&**runtime, &owned, Level::ReadWrite, &edit.path, true).await?;
        let info = runtime.stat(&owned.id, &path).await.map_err(failed)?;
        let range = ReadRange { offset: 0, length: Some(EDIT_BYTES + 1) };
        let mut before = Vec::new();
        let mut content = runtime.read_file(&owned.id, &path, range).await.map_err(failed)?;
        content.read_to_end(&mut before).await.map_err(|error| {
            Problem::new(Code::Io, format!("cannot read {path}")).because(error.to_string())
        })?;
        if before.len() as u64 > EDIT_BYTES {
            return Err(invalid(format!("{path} is larger than {EDIT_BYTES} bytes")));
        }
        let (after, count) = replace_all(&before, &edit.old.0, &edit.new.0);
        if count > 0 {
            let written = WriteFile {
                sandbox_id: owned.id.clone(),
                path: edit.path.clone(),
                mode: Some(info.mode),
                uid: None,
                gid: None,
            };
            let caller = Caller { idempotency_key: None, ..caller.clone() };
            let content = FileContent(Box::pin(std::io::Cursor::new(after)));
            write(service, &caller, written, content).await?;
        }
        counts.push(count);
    }
    Ok(ReplaceResult { counts })
}

fn replace_all(text: &[u8], old: &[u8], new: &[u8]) -> (Vec<u8>, u64) {
    let (mut after, mut count, mut rest) = (Vec::with_capacity(text.len()), 0, text);
    while let Some(at) = rest.windows(old.len()).position(|window| window == old) {
        after.extend_from_slice(&rest[..at]);
        after.extend_from_slice(new);
        rest = &rest[at + old.len()..];
        count += 1;
    }
    after.extend_from_slice(rest);
    (after, count)
}

/// The workflow. Returns how many bytes were written.
pub(crate) async fn perform(
    inner: Arc<Inner>,
    context: Context,
    input: Input<Change>,
) -> std::result::Result<u64, Failure> {
    let change = &input.request;
    let content = Once::new(inner.handoffs.take(context.id()).and_then(|handoff| handoff.content));
    let owned = inner.use_in_workflow(&context, &input.owner, change.sandbox(), None).await?;
    let written = context
        .step_with("change", record_with_next(), async |_: Step| {
            let runtime = &**inner.runtime(&owned.runtime).map_err(to_failure)?;
            let paths = change.check(runtime, &owned).await.map_err(to_failure)?;
            let content = content.take().map(|FileContent(content)| content);
            apply(runtime, &owned, change, &paths, content).await.map_err(to_failure)
        })
        .await?;
    let mut records = vec![owned.touch()];
    if let Change::Write(WriteFile { path, .. }) = change {
        let payload = copied(Direction::In, path, 1, written);
        records.push(events::record(&context, &owned, payload));
    }
    context.finish_with(records);
    Ok(written)
}

async fn apply(
    runtime: &dyn Runtime,
    owned: &OwnedSandbox,
    change: &Change,
    paths: &ResolvedPaths,
    content: Option<Content>,
) -> Result<u64> {
    let failed = |error| runtime_problem(&error);
    let (id, path) = (&owned.id, &paths.path);
    match change {
        Change::Write(request) => {
            let content = content.ok_or_else(interrupted)?;
            let options = WriteOptions {
                mode: request.mode.unwrap_or(0o644),
                owner: owner(request.uid, request.gid)?,
                make_parents: true,
            };
            runtime.write_file(id, path, content, options).await.map_err(failed)
        }
        Change::MakeDirectory(request) => {
            let mode = request.mode.unwrap_or(0o755);
            let owner = owner(request.uid, request.gid)?;
            let options = WriteOptions { mode, owner, make_parents: true };
            runtime.make_directory(id, path, options).await.map_err(failed)?;
            Ok(0)
        }
        Change::Move(_) => {
            let to = paths.to.as_ref().unwrap_or(path);
            runtime.rename(id, path, to).await.map_err(failed)?;
            Ok(0)
        }
        Change::Remove(_) => {
            runtime.remove(id, path).await.map_err(failed)?;
            Ok(0)
        }
        Change::SetPermissions(request) => {
            let owner = owner(request.uid, request.gid)?;
            runtime.set_attributes(id, path, request.mode, owner).await.map_err(failed)?;
            Ok(0)
        }
    }
}

/// The problem for a file whose content was lost with the process that had it.
pub(super) fn interrupted() -> Problem {
    Problem::new(Code::Cancelled, "the server exited before the file was written")
        .because("the content of files is not recorded, and is lost")
        .remedied_by("write it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_occurrence_is_replaced_once() {
        for (text, old, new, after, count) in [
            ("aXbXc", "X", "--", "a--b--c", 2),
            ("aaa", "aa", "b", "ba", 1),
            ("abc", "z", "y", "abc", 0),
            ("aa", "a", "aa", "aaaa", 2),
        ] {
            let expected = (after.as_bytes().to_vec(), count);
            assert_eq!(replace_all(text.as_bytes(), old.as_bytes(), new.as_bytes()), expected);
        }
    }
}
