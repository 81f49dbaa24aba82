//! The files of an archive with an image: documents stay in memory, all else becomes blobs of the
//! store. Names are only compared, never given to the kernel.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use tar::EntryType;

use super::{Error, read_error};
use crate::digest::Digest;
use crate::document::MAX_DOCUMENT_BYTES;
use crate::layer::bounds::{Bounded, Counted};
use crate::layer::decompress::decompress;
use crate::layer::entries::Entries;
use crate::layer::merged::clean;
use crate::store::Addition;

/// The most entries of an archive.
const MAX_ENTRIES: usize = 10_000;
/// The documents that are kept in memory.
const DOCUMENTS: [&str; 3] = ["index.json", "manifest.json", "oci-layout"];

/// The content of an archive.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// The documents by their names.
    pub(super) documents: BTreeMap<String, Vec<u8>>,
    /// The other files by their names: digest and size.
    pub(super) files: BTreeMap<String, (Digest, u64)>,
    /// The targets of links, by their names.
    links: BTreeMap<String, String>,
}

impl Content {
    /// The file of a name, also through a link.
    pub(super) fn file(&self, name: &str) -> Option<&(Digest, u64)> {
        let name = plain(name)?;
        self.files.get(&name).or_else(|| self.files.get(self.links.get(&name)?))
    }
}

/// Reads an archive, which may be compressed.
pub(super) fn read(addition: &Addition<'_>, path: &Path) -> Result<Content, Error> {
    let file = File::open(path).map_err(read_error(path))?;
    let (compressed, exceeded) = (Cell::new(0), Cell::new(None));
    let counted = Counted { inner: file, read: &compressed };
    let content = decompress(counted).map_err(read_error(path))?;
    let limits = addition.limits();
    let bounded = Bounded::new(content, &compressed, &exceeded, limits);
    let failed = |source| match exceeded.get() {
        Some((limit, value)) => Error::Layer {
            path: path.to_owned(),
            source: crate::layer::Error::Limit { limit, value },
        },
        None => Error::Layer { path: path.to_owned(), source },
    };
    let mut entries = Entries::new(bounded);
    let mut found = Content::default();
    let mut count = 0;
    while let Some(entry) = entries.next().map_err(failed)? {
        count += 1;
        if count > MAX_ENTRIES {
            let source = crate::layer::Error::Limit { limit: "entries", value: MAX_ENTRIES as u64 };
            return Err(Error::Layer { path: path.to_owned(), source });
        }
        let Some(name) = std::str::from_utf8(&entry.path).ok().and_then(plain) else { continue };
        match entry.kind {
            EntryType::Regular | EntryType::Continuous if entry.sparse.is_none() => {}
            EntryType::Symlink | EntryType::Link => {
                let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
                let target = String::from_utf8_lossy(&entry.link).into_owned();
                let target = match entry.kind {
                    EntryType::Symlink => format!("{parent}/{target}"),
                    _ => target,
                };
                if let Some(target) = plain(&target) {
                    found.links.insert(name, target);
                }
                continue;
            }
            _ => continue,
        }
        let mut buffer = vec![0; 64 << 10];
        if DOCUMENTS.contains(&name.as_str()) {
            let mut text = Vec::new();
            loop {
                match entries.read(&mut buffer).map_err(failed)? {
                    0 => break,
                    read => text.extend_from_slice(&buffer[..read]),
                }
                if text.len() as u64 > MAX_DOCUMENT_BYTES {
                    return Err(crate::InvalidDocument::TooLarge { what: "index" }.into());
                }
            }
            found.documents.insert(name, text);
            continue;
        }
        let mut blob = addition.write_unknown_blob(u64::MAX)?;
        loop {
            match entries.read(&mut buffer).map_err(failed)? {
                0 => break,
                read => blob.write_all(&buffer[..read]).map_err(read_error(path))?,
            }
        }
        found.files.insert(name, blob.finish()?);
    }
    Ok(found)
}

/// A name without `.` and `..`.
fn plain(name: &str) -> Option<String> {
    let parts = clean(name.as_bytes()).ok()?;
    String::from_utf8(parts.join(&b'/')).ok()
}
