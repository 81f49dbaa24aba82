//! A file in the form of `EntryInfo`.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stockade_api::{FileEntry, FileKind};

use crate::e2b::user::User;
use crate::e2b::{App, metadata};
use crate::inside::{Names, Target, stat};

/// What is known about several files.
pub(super) struct Details {
    names: Names,
    metadata: metadata::Found,
}

impl Details {
    pub(super) async fn read(
        app: &App,
        target: &Target,
        user: &User,
        entries: impl IntoIterator<Item = &FileEntry>,
    ) -> Self {
        let files = entries.into_iter().filter(|entry| entry.kind != FileKind::Other);
        let paths: BTreeSet<_> = files.map(|entry| entry.path.lossy().into_owned()).collect();
        let names = Names::read(&*app.sandboxes, &target.caller, &target.sandbox.id).await;
        Self { names, metadata: metadata::get(app, target, user, paths).await }
    }
}

/// A file, under the path that the client knows. A link has the type and the mode of what it leads to.
pub(super) async fn to_json(
    app: &App,
    target: &Target,
    (entry, path): (&FileEntry, &str),
    details: &Details,
) -> Value {
    let Details { names, metadata } = details;
    let followed = match entry.kind {
        FileKind::Link => {
            let real = entry.path.lossy();
            stat(&app.sandboxes, target, &real, true).await.ok()
        }
        _ => None,
    };
    let (kind, mode) = match &followed {
        Some(followed) => (followed.kind, followed.mode),
        None => (entry.kind, entry.mode),
    };
    let mut body = json!({
        "name": path.rsplit('/').next().unwrap_or_default(),
        "type": type_of(kind),
        "path": path,
        // 64-bit integers are texts in this form of JSON.
        "size": entry.size_bytes.to_string(),
        "mode": mode & 0o7777,
        "permissions": permissions(entry.kind, mode),
        "owner": names.user(entry.uid),
        "group": names.group(entry.gid),
        "modifiedTime": entry.modified_at,
    });
    if entry.kind == FileKind::Link {
        let resolved = followed.map(|followed| followed.path);
        let resolved = resolved.or_else(|| entry.link.clone());
        if let Some(resolved) = resolved {
            body["symlinkTarget"] = resolved.lossy().into_owned().into();
        }
    }
    if let Some(metadata) = metadata.get(&*entry.path.lossy()) {
        body["metadata"] = json!(metadata);
    }
    body
}

const fn type_of(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "FILE_TYPE_FILE",
        FileKind::Directory => "FILE_TYPE_DIRECTORY",
        FileKind::Link => "FILE_TYPE_SYMLINK",
        FileKind::Other => "FILE_TYPE_UNSPECIFIED",
    }
}

/// A mode as `ls` shows it, except for the first letter, which is that of the clients.
fn permissions(kind: FileKind, mode: u32) -> String {
    let first = match kind {
        FileKind::File | FileKind::Other => '-',
        FileKind::Directory => 'd',
        FileKind::Link => 'L',
    };
    let bits = (0..9).rev().zip("rwxrwxrwx".chars());
    let bits = bits.map(|(bit, letter)| if mode >> bit & 1 == 1 { letter } else { '-' });
    std::iter::once(first).chain(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_has_letters() {
        assert_eq!(permissions(FileKind::File, 0o644), "-rw-r--r--");
        assert_eq!(permissions(FileKind::Directory, 0o40_751), "drwxr-x--x");
        assert_eq!(permissions(FileKind::Link, 0o777), "Lrwxrwxrwx");
    }
}
