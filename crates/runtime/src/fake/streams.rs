//! Trees of the fake as streams.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_core::sandbox::SECRETS_DIRECTORY;

use super::tree::{Kind, Node, Tree, USER};
use crate::files::WriteOptions;
use crate::tree::{Record, SkipReason, TreeProgress, TreeReader, TreeSize, TreeWriter};

/// Creates a tree of files in a directory.
pub(super) fn unpack(
    tree: &mut Tree,
    to: &Path,
    mode: u32,
    content: impl Read,
) -> io::Result<TreeSize> {
    let options = WriteOptions { mode, ..WriteOptions::default() };
    tree.make_directory(to, options)?;
    let (mut at, mut size) = (tree.directory(to)?, TreeSize::default());
    let mut stream = TreeReader::new(content);
    while let Some(record) = stream.record()? {
        let path = |name: &RelativePath| at.join(name.as_os_str());
        match record {
            Record::Leave => drop(at.pop()),
            Record::Enter { name, mode } => {
                at = path(&name);
                match tree.get(&at).map(|node| &node.kind) {
                    Some(Kind::Directory) => {}
                    Some(_) => return Err(Errno::NOTDIR.into()),
                    None => {
                        size.directories += 1;
                        tree.put(at.clone(), Node::new(Kind::Directory, mode, USER));
                    }
                }
            }
            Record::File { name, mode, .. } => {
                let path = path(&name);
                let old = tree.get(&path).map(|node| (node.mode, node.owner));
                refuse_directory(tree, &path)?;
                let mut bytes = Vec::new();
                if stream.content(&mut bytes)??.is_some() {
                    size.files += 1;
                    size.bytes += bytes.len() as u64;
                    let (mode, owner) = old.unwrap_or((mode, USER));
                    tree.put(path, Node::new(Kind::File(Arc::new(bytes)), mode, owner));
                }
            }
            Record::Link { name, target } => {
                let path = path(&name);
                refuse_directory(tree, &path)?;
                size.links += 1;
                let target = PathBuf::from(OsStr::from_bytes(&target));
                tree.put(path, Node::new(Kind::Link(target), 0o777, USER));
            }
            Record::Skipped { .. } => {}
        }
    }
    Ok(size)
}

fn refuse_directory(tree: &Tree, path: &Path) -> io::Result<()> {
    match tree.get(path).map(|node| &node.kind) {
        Some(Kind::Directory) => Err(Errno::ISDIR.into()),
        _ => Ok(()),
    }
}

/// The content of a directory.
pub(super) fn pack(
    tree: &Tree,
    from: &Path,
    mark: Option<&[u8]>,
    progress: &TreeProgress,
) -> io::Result<Vec<u8>> {
    let top = tree.directory(from)?;
    let mut bytes = Vec::new();
    let mut stream = TreeWriter::new(&mut bytes);
    children(tree, &top, mark, progress, &mut stream)?;
    stream.finish()?;
    Ok(bytes)
}

fn children(
    tree: &Tree,
    directory: &Path,
    mark: Option<&[u8]>,
    progress: &TreeProgress,
    stream: &mut TreeWriter<&mut Vec<u8>>,
) -> io::Result<()> {
    for (path, node) in tree.below(directory).filter(|(path, _)| path.parent() == Some(directory)) {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let name = RelativePath::new(name).map_err(io::Error::other)?;
        match &node.kind {
            Kind::Directory if path == Path::new(SECRETS_DIRECTORY) => {
                stream.record(&Record::Skipped { name, reason: SkipReason::SecretFile })?;
            }
            Kind::Directory => {
                let marked = mark.map(|mark| path.join(OsStr::from_bytes(mark)));
                if marked.is_some_and(|marked| tree.get(&marked).is_some()) {
                    stream.record(&Record::Skipped { name, reason: SkipReason::Special })?;
                    continue;
                }
                progress.add(1, 0);
                stream.record(&Record::Enter { name, mode: node.mode & 0o777 })?;
                children(tree, path, mark, progress, stream)?;
                stream.record(&Record::Leave)?;
            }
            Kind::File(content) => {
                progress.add(1, content.len() as u64);
                let mode = node.mode & 0o777;
                stream.record(&Record::File { name, mode, modified: (0, 0) })?;
                stream.content(&mut content.as_slice())??;
            }
            Kind::Link(target) => {
                progress.add(1, 0);
                let target = target.as_os_str().as_bytes().to_vec();
                stream.record(&Record::Link { name, target })?;
            }
        }
    }
    Ok(())
}
