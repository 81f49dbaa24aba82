//! Writing files for a client. Clients expect that every file can be written, whoever owns it, and that it
//! has the requested owner and mode afterwards: a write with the rights of the sandbox's ordinary user, and
//! then a change of the owner, which needs none.

use std::io::Cursor;
use std::sync::Arc;

use stockade_api::{
    Bytes, FileContent, FileEntry, FileKind, MoveFile, ReadFile, RemoveFile, Sandboxes,
    SetPermissions, WriteFile,
};
use stockade_core::Code;
use tokio::io::AsyncReadExt as _;

use super::Target;
use super::stat::stat;
use crate::failure::{Failure, invalid};

/// The ordinary user of a sandbox that names no other one.
const ORDINARY_USER: u32 = 1000;
/// The largest file of another user in which texts are replaced, in bytes.
const EDITED_BYTES: u64 = 64 << 20;

/// A file to write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewFile<'a> {
    pub(crate) path: &'a str,
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

/// Writes a file, completely or not at all. The owner of one that exists stays, unless the request names
/// another one.
pub(crate) async fn write(
    sandboxes: &Arc<dyn Sandboxes>,
    target: &Target,
    file: NewFile<'_>,
    content: FileContent,
) -> Result<(), Failure> {
    if let Some(identity) = target.identity {
        let (uid, gid) = (Some(identity.uid), Some(identity.gid));
        return direct(sandboxes, target, NewFile { uid, gid, ..file }, content).await;
    }
    let plain = NewFile { uid: None, gid: None, ..file };
    let names_owner = file.uid.is_some() || file.gid.is_some();
    match existing(sandboxes, target, file.path).await? {
        None => {
            direct(sandboxes, target, plain, content).await?;
            if names_owner { set(sandboxes, target, file).await } else { Ok(()) }
        }
        Some(old) if old.kind == FileKind::File && (names_owner || is_foreign(target, &old)) => {
            replace(sandboxes, target, file, &old, content).await
        }
        Some(old) => {
            direct(sandboxes, target, plain, content).await?;
            let is_new_mode = file.mode.is_some_and(|mode| mode != old.mode & 0o7777);
            let changes = old.kind == FileKind::File && is_new_mode;
            if changes { set(sandboxes, target, plain).await } else { Ok(()) }
        }
    }
}

/// Replaces every occurrence of a text in a file of another user than the ordinary one; `None` for a file
/// of that one.
pub(crate) async fn edit(
    sandboxes: &Arc<dyn Sandboxes>,
    target: &Target,
    path: &str,
    (old, new): (&[u8], &[u8]),
) -> Result<Option<u64>, Failure> {
    let Some(found) = existing(sandboxes, target, path).await? else { return Ok(None) };
    if target.identity.is_some() || found.kind != FileKind::File || !is_foreign(target, &found) {
        return Ok(None);
    }
    if old.is_empty() || found.size_bytes > EDITED_BYTES {
        return Err(invalid(format!(
            "no text can be replaced in {path}: it is empty, or the file too large"
        )));
    }
    let sandbox_id = target.sandbox.id.clone();
    let length = Some(EDITED_BYTES);
    let read = ReadFile { sandbox_id, path: path.into(), offset: 0, length };
    let mut text = Vec::new();
    let mut content = sandboxes.read_file(&target.caller, read).await?;
    let read = content.0.read_to_end(&mut text).await;
    read.map_err(|error| invalid(format!("{path} cannot be read: {error}")))?;
    let (text, count) = replaced(&text, old, new);
    if count > 0 {
        let file = NewFile { path, mode: None, uid: None, gid: None };
        let content = FileContent(Box::pin(Cursor::new(text)));
        replace(sandboxes, target, file, &found, content).await?;
    }
    Ok(Some(count))
}

fn is_foreign(target: &Target, entry: &FileEntry) -> bool {
    entry.uid != target.sandbox.default_uid.unwrap_or(ORDINARY_USER)
}

async fn existing(
    sandboxes: &Arc<dyn Sandboxes>,
    target: &Target,
    path: &str,
) -> Result<Option<FileEntry>, Failure> {
    match stat(sandboxes, target, path, false).await {
        Ok(entry) => Ok(Some(entry)),
        Err(Failure(problem)) if problem.code == Code::FileNotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

async fn direct(
    sandboxes: &Arc<dyn Sandboxes>,
    target: &Target,
    NewFile { path, mode, uid, gid }: NewFile<'_>,
    content: FileContent,
) -> Result<(), Failure> {
    let sandbox_id = target.sandbox.id.clone();
    let write = WriteFile { sandbox_id, path: path.into(), mode, uid, gid };
    sandboxes.write_file(&target.caller, write, content).await?;
    Ok(())
}

async fn set(
    sandboxes: &Arc<dyn Sandboxes>,
    target: &Target,
    NewFile { path, mode, uid, gid }: NewFile<'_>,
) -> Result<(), Failure> {
    let sandbox_id = target.sandbox.id.clone();
    let set = SetPermissions { sandbox_id, path: path.into(), mode, uid, gid };
    sandboxes.set_permissions(&target.caller, set).await?;
    Ok(())
}

/// Writes a file beside an existing one, gives it the owner, and puts it in its place.
async fn replace(
    sandboxes: &Arc<dyn Sandboxes>,
    target: &Target,
    file: NewFile<'_>,
    old: &FileEntry,
    content: FileContent,
) -> Result<(), Failure> {
    let beside = beside(file.path);
    let empty = NewFile { path: &beside, mode: Some(0o600), uid: None, gid: None };
    let sandbox_id = || target.sandbox.id.clone();
    let made = async {
        direct(sandboxes, target, empty, content).await?;
        let owned = NewFile {
            path: &beside,
            mode: file.mode.or(Some(old.mode & 0o7777)),
            uid: file.uid.or(Some(old.uid)),
            gid: file.gid.or(Some(old.gid)),
        };
        set(sandboxes, target, owned).await?;
        let (from, to) = (beside.as_str().into(), Bytes::from(file.path));
        let rename = MoveFile { sandbox_id: sandbox_id(), from, to };
        sandboxes.move_file(&target.caller, rename).await?;
        Ok(())
    };
    let made: Result<(), Failure> = made.await;
    if made.is_err() {
        let remove = RemoveFile { sandbox_id: sandbox_id(), path: beside.as_str().into() };
        // The response reports the first failure.
        let _ = sandboxes.remove_file(&target.caller, remove).await;
    }
    made
}

/// A new name in the directory of a path.
fn beside(path: &str) -> String {
    let directory = path.rfind('/').map_or("", |at| &path[..=at]);
    format!("{directory}.stockade-{}", uuid::Uuid::now_v7().simple())
}

/// A text with each occurrence of another one replaced, and their number.
fn replaced(text: &[u8], old: &[u8], new: &[u8]) -> (Vec<u8>, u64) {
    let (mut result, mut count, mut rest) = (Vec::with_capacity(text.len()), 0, text);
    while let Some(at) = rest.windows(old.len()).position(|part| part == old) {
        result.extend(rest.iter().take(at));
        result.extend(new);
        count += 1;
        rest = rest.get(at + old.len()..).unwrap_or_default();
    }
    result.extend(rest);
    (result, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_occurrence_is_replaced() {
        assert_eq!(replaced(b"foo bar foo", b"foo", b"qux"), (b"qux bar qux".to_vec(), 2));
        assert_eq!(replaced(b"aaa", b"aa", b"a"), (b"aa".to_vec(), 1));
        assert_eq!(replaced(b"a", b"long", b"x"), (b"a".to_vec(), 0));
    }

    #[test]
    fn the_name_beside_is_in_the_same_directory() {
        assert!(beside("/a/b").starts_with("/a/.stockade-"));
        assert!(beside("/b").starts_with("/.stockade-"));
        assert!(!beside("/a/b").strip_prefix("/a/").unwrap().contains('/'));
    }
}
