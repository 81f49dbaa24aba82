//! A file of a volume in the form of `VolumeEntryStat`.

use serde::Serialize;
use stockade_api::{FileEntry, FileKind};
use stockade_core::Time;

/// A file of a volume. Of its times only that of its last change is known.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    path: String,
    size: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    atime: Time,
    mtime: Time,
    ctime: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl Entry {
    /// A file, under its path in the volume.
    pub(super) fn new(found: &FileEntry, path: &str) -> Self {
        let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("/");
        Self {
            name: name.to_owned(),
            kind: match found.kind {
                FileKind::File => "file",
                FileKind::Directory => "directory",
                FileKind::Link => "symlink",
                FileKind::Other => "unknown",
            },
            path: path.to_owned(),
            size: found.size_bytes,
            mode: found.mode & 0o7777,
            uid: found.uid,
            gid: found.gid,
            atime: found.modified_at,
            mtime: found.modified_at,
            ctime: found.modified_at,
            target: found.link.as_ref().map(|link| link.lossy().into_owned()),
        }
    }
}
