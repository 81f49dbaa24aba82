//! `GET /v1/isolated/session/{session}/diff`: what a session has changed, as an archive (`tar`, compressed
//! by `gzip`). A removed file is an empty file `.wh.NAME`, as in the layers of images.

use std::io::{self, Write as _};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Frame;
use stockade_api::{FileKind, ReadFile};
use tar::{EntryType, Header};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use super::super::super::target::{PortState, Target};
use super::changes::{Baseline, Changes, Entry, list};
use super::session;
use crate::failure::Failure;
use crate::inside::Parts;

/// How many parts may wait for a slow client.
const CHANNEL_CAPACITY: usize = 4;
/// How much of a file is read at a time, in bytes.
const PART_BYTES: usize = 64 << 10;
/// The unit of archives, in bytes.
const BLOCK: usize = 512;

/// Shows the changes of a session.
pub(super) async fn diff(
    State(state): State<PortState>,
    Extension(outer): Extension<Target>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let session = session::find(&state, &outer, &id).await?;
    let baseline = Baseline::read(&state, &outer, &id).await?;
    let now = list(&state, &session.target, &session.request).await?;
    let changes = Changes::between(&baseline.inner_files(), &now);
    let roots = session.request.roots();
    let mut shown = roots.iter().filter(|root| root.is_shown);
    // With several directories, the names are those from the root.
    let base = match (shown.next(), shown.next()) {
        (Some(root), None) => root.path.clone().into_bytes(),
        _ => Vec::new(),
    };
    let (to, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    tokio::spawn(async move {
        let target = session.target;
        let mut archive =
            Archive { encoder: GzEncoder::new(Vec::new(), Compression::default()), to };
        let sent = archive.send(&state, &target, &changes, &base).await;
        if let Err(error) = sent {
            // The client may have disconnected.
            let _ = archive.to.send(Err(error)).await;
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "application/gzip"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"diff.tar.gz\""),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, Body::new(Parts(receiver))).into_response())
}

struct Archive {
    encoder: GzEncoder<Vec<u8>>,
    to: mpsc::Sender<io::Result<Frame<Bytes>>>,
}

impl Archive {
    async fn send(
        &mut self,
        state: &PortState,
        target: &Target,
        changes: &Changes,
        base: &[u8],
    ) -> io::Result<()> {
        for (path, entry) in &changes.changed {
            let name = name_below(path, base);
            self.entry(state, target, path, name, entry).await?;
        }
        for path in &changes.removed {
            let name = removed_name(name_below(path, base));
            self.head(&name, EntryType::Regular, 0, None, None)?;
        }
        self.write(&[0; 2 * BLOCK]).await?;
        self.encoder.try_finish()?;
        self.flush().await
    }

    async fn entry(
        &mut self,
        state: &PortState,
        target: &Target,
        path: &[u8],
        name: &[u8],
        entry: &Entry,
    ) -> io::Result<()> {
        let some = Some(entry);
        match entry.kind {
            FileKind::Directory => {
                self.head(&[name, b"/"].concat(), EntryType::Directory, 0, some, None)?;
            }
            FileKind::Link => {
                let link = entry.link.as_ref().map(|link| link.0.as_slice());
                self.head(name, EntryType::Symlink, 0, some, link)?;
            }
            FileKind::File => {
                self.head(name, EntryType::Regular, entry.size_bytes, some, None)?;
                let request = ReadFile {
                    sandbox_id: target.sandbox.id.clone(),
                    path: path.to_vec().into(),
                    offset: 0,
                    length: Some(entry.size_bytes),
                };
                let content = state.sandboxes.read_file(&target.caller, request).await;
                let mut content = content.map_err(|problem| io::Error::other(problem.message))?.0;
                let mut left = entry.size_bytes;
                let mut part = vec![0; PART_BYTES];
                while left > 0 {
                    let length = content.read(&mut part).await?;
                    if length == 0 {
                        return Err(io::Error::other("a file has changed while it was read"));
                    }
                    left = left.saturating_sub(length as u64);
                    self.write(part.get(..length).unwrap_or_default()).await?;
                }
                self.write(&vec![0; padding(entry.size_bytes)]).await?;
            }
            FileKind::Other => {}
        }
        Ok(())
    }

    /// Writes the head of an entry.
    fn head(
        &mut self,
        name: &[u8],
        kind: EntryType,
        size: u64,
        entry: Option<&Entry>,
        link: Option<&[u8]>,
    ) -> io::Result<()> {
        let heads = heads(name, kind, size, entry, link)?;
        self.encoder.write_all(&heads)
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.encoder.write_all(bytes)?;
        self.flush().await
    }

    /// Passes on what is compressed.
    async fn flush(&mut self) -> io::Result<()> {
        let compressed = std::mem::take(self.encoder.get_mut());
        if compressed.is_empty() {
            return Ok(());
        }
        let sent = self.to.send(Ok(Frame::data(compressed.into()))).await;
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

/// The name of a path in the archive.
fn name_below<'a>(path: &'a [u8], base: &[u8]) -> &'a [u8] {
    let name = path.strip_prefix(base).unwrap_or(path);
    name.strip_prefix(b"/").unwrap_or(name)
}

/// The name of the file that stands for a removed one.
fn removed_name(name: &[u8]) -> Vec<u8> {
    let at = name.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (directory, name) = name.split_at(at);
    [directory, b".wh.", name].concat()
}

fn padding(size: u64) -> usize {
    let block = BLOCK as u64;
    usize::try_from(size.next_multiple_of(block) - size).unwrap_or(0)
}

/// The head of an entry; with further ones before it for a long name or link.
fn heads(
    name: &[u8],
    kind: EntryType,
    size: u64,
    entry: Option<&Entry>,
    link: Option<&[u8]>,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let long = |kind: EntryType, text: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(text.len() as u64 + 1);
        header.set_mode(0o644);
        if let Some(field) = header.as_gnu_mut() {
            copy(&mut field.name, b"././@LongLink");
        }
        header.set_cksum();
        let end = vec![0; 1 + padding(text.len() as u64 + 1)];
        [header.as_bytes().as_slice(), text, &end].concat()
    };
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(entry.map_or(0o644, |entry| entry.mode));
    header.set_uid(entry.map_or(0, |entry| entry.uid).into());
    header.set_gid(entry.map_or(0, |entry| entry.gid).into());
    let modified = entry.map_or(0, |entry| entry.modified_at.as_ms() / 1000);
    header.set_mtime(u64::try_from(modified).unwrap_or(0));
    let field = header.as_gnu_mut().ok_or_else(|| io::Error::other("no GNU header"))?;
    if !copy(&mut field.name, name) {
        bytes.extend(long(EntryType::GNULongName, name));
    }
    if let Some(link) = link
        && !copy(&mut field.linkname, link)
    {
        bytes.extend(long(EntryType::GNULongLink, link));
    }
    header.set_cksum();
    bytes.extend(header.as_bytes());
    Ok(bytes)
}

/// Copies a text to a field of a head; false if it does not fit.
fn copy(field: &mut [u8], text: &[u8]) -> bool {
    for (to, from) in field.iter_mut().zip(text) {
        *to = *from;
    }
    text.len() <= field.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_and_removals_are_marked() {
        assert_eq!(name_below(b"/w/a/b", b"/w"), b"a/b");
        assert_eq!(name_below(b"/w/a", b""), b"w/a");
        assert_eq!(removed_name(b"a/b"), b"a/.wh.b");
        assert_eq!(removed_name(b"b"), b".wh.b");
    }

    #[test]
    fn long_names_survive() {
        let name = vec![b'n'; 300];
        let link = vec![b'l'; 200];
        let mut bytes = heads(&name, EntryType::Symlink, 0, None, Some(&link)).unwrap();
        bytes.extend(heads(b"short", EntryType::Regular, 3, None, None).unwrap());
        bytes.extend(b"abc");
        bytes.extend(vec![0; padding(3) + 2 * BLOCK]);
        let mut archive = tar::Archive::new(bytes.as_slice());
        let found: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let link = entry.link_name_bytes().map(|link| link.into_owned());
                (entry.path_bytes().into_owned(), link, entry.size())
            })
            .collect();
        assert_eq!(found, [(name, Some(link), 0), (b"short".to_vec(), None, 3)]);
    }
}
