//! Reads the contents for a diff from a bundle, and from the project where it still has the old one.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::sync::Arc;

use super::measure::{Counts, Nature};
use super::source::{CHUNK_BYTES, Source};
use crate::beneath::Dir;
use crate::manifest::{ContentHash, Entry, Node};
use crate::store::{Bundle, Error};

/// The largest text that is compared line by line.
pub(super) const MAX_TEXT_BYTES: u64 = 512 << 20;

/// Contents up to this size are compared in memory.
const MAX_MEMORY_BYTES: u64 = 32 << 20;

/// One side of a diff.
#[derive(Debug, Clone)]
pub enum Content {
    /// Text, or the target of a link.
    Text(Text),
    /// A content that is not text.
    Binary {
        /// Its size in bytes.
        size: u64,
        /// A guess what it is.
        guess: &'static str,
        /// Its bytes.
        source: Bytes,
    },
    /// A content of this many bytes that is too large, or not stored, or altered.
    Unknown(u64),
}

/// The bytes of a content that is not text.
#[derive(Debug, Clone)]
pub struct Bytes(pub(super) Arc<Source>);

/// A text.
#[derive(Debug, Clone)]
pub struct Text {
    pub(super) source: Arc<Source>,
    pub(super) encoding: super::Encoding,
}

/// Both sides of an entry's diff; `None` if the path does not exist or is a directory.
#[derive(Debug, Clone)]
pub struct Sides {
    /// The old content.
    pub old: Option<Content>,
    /// The new content.
    pub new: Option<Content>,
    /// For a rename: the node at the path that it was renamed from.
    pub renamed: Option<Node>,
}

impl Content {
    /// The content with these bytes.
    pub fn of(bytes: Vec<u8>) -> Self {
        let mut counts = Counts::default();
        bytes.chunks(CHUNK_BYTES).for_each(|part| counts.add(part));
        Self::with(counts.nature(), Source::of(bytes))
    }

    fn with(nature: Nature, source: Source) -> Self {
        match nature {
            Nature::Text(_) if source.size() > MAX_TEXT_BYTES => Self::Unknown(source.size()),
            Nature::Text(encoding) => Self::Text(Text { source: Arc::new(source), encoding }),
            Nature::Binary(guess) => {
                Self::Binary { size: source.size(), guess, source: Bytes(Arc::new(source)) }
            }
        }
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Text(text) => text.source.size(),
            Self::Binary { size, .. } | Self::Unknown(size) => *size,
        }
    }

    /// Writes all of it; false if it is not stored, or too large.
    ///
    /// # Errors
    /// That of reading or writing.
    pub fn write(&self, to: &mut impl io::Write) -> io::Result<bool> {
        let source = match self {
            Self::Text(Text { source, .. }) | Self::Binary { source: Bytes(source), .. } => source,
            Self::Unknown(_) => return Ok(false),
        };
        let mut written = Ok(());
        source.each(|part| {
            if written.is_ok() {
                written = to.write_all(part);
            }
        })?;
        written.map(|()| true)
    }

    /// The content of a file, if it has this hash and size.
    fn read(mut file: File, hash: ContentHash, size: u64) -> Option<Self> {
        let mut counts = Counts::default();
        let mut hasher = blake3::Hasher::new();
        let mut memory = Vec::new();
        let is_small = size <= MAX_MEMORY_BYTES;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut length = 0_u64;
        loop {
            let count = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => return None,
            };
            length += count as u64;
            if length > size {
                return None;
            }
            hasher.update(&buffer[..count]);
            counts.add(&buffer[..count]);
            if is_small {
                memory.extend_from_slice(&buffer[..count]);
            }
        }
        if length != size || ContentHash::from(hasher.finalize()) != hash {
            return None;
        }
        file.rewind().ok()?;
        let source = if is_small { Source::of(memory) } else { Source::of_file(file, size) };
        Some(Self::with(counts.nature(), source))
    }
}

impl Sides {
    /// The contents of an entry, as far as the bundle stores them or the project has them.
    pub fn of(bundle: &Bundle, project: Option<&Dir>, entry: &Entry) -> Result<Self, Error> {
        let new = new(bundle, entry)?;
        match source(bundle, entry) {
            None => Ok(Self { old: old(bundle, project, entry)?, new, renamed: None }),
            Some(source) => Ok(Self {
                old: old(bundle, project, source)?,
                new,
                renamed: source.change.old().cloned(),
            }),
        }
    }
}

impl Sides {
    /// The contents of a change that the host has made, from the old content of a bundle to what the
    /// project has now.
    pub fn of_host(bundle: &Bundle, project: &Dir, entry: &Entry) -> Result<Self, Error> {
        let new = match entry.change.new_node() {
            Some(Node::File { hash, size, .. }) if *size > 0 => {
                let file = project.open_file(&entry.path).ok();
                let content = file.and_then(|file| Content::read(file, *hash, *size));
                Some(content.unwrap_or(Content::Unknown(*size)))
            }
            node => node.and_then(known),
        };
        Ok(Self { old: old(bundle, None, entry)?, new, renamed: None })
    }
}

/// The deletion that belongs to a rename.
pub(super) fn source<'b>(bundle: &'b Bundle, entry: &Entry) -> Option<&'b Entry> {
    let from = entry.renamed_from.as_ref()?;
    let entries = &bundle.manifest.entries;
    entries.binary_search_by(|entry| entry.path.cmp(from)).ok().and_then(|at| entries.get(at))
}

/// The new content of an entry.
pub(super) fn new(bundle: &Bundle, entry: &Entry) -> Result<Option<Content>, Error> {
    Ok(match entry.change.new_node() {
        Some(Node::File { hash, size, .. }) if *size > 0 => match bundle.blob(*hash) {
            // Entries that can never be applied may have no stored content.
            Err(_) if entry.refused.is_some() => Some(Content::Unknown(*size)),
            // A content that cannot be read, or was altered, is shown as unknown.
            file => Some(Content::read(file?, *hash, *size).unwrap_or(Content::Unknown(*size))),
        },
        node => node.and_then(known),
    })
}

fn old(bundle: &Bundle, project: Option<&Dir>, entry: &Entry) -> Result<Option<Content>, Error> {
    let Some(Node::File { hash, size, .. }) = entry.change.old() else {
        return Ok(entry.change.old().and_then(known));
    };
    if *size == 0 {
        return Ok(entry.change.old().and_then(known));
    }
    if let Some(bytes) = bundle.base(*hash)? {
        return Ok(Some(Content::of(bytes)));
    }
    let file = project.and_then(|project| project.open_file(&entry.path).ok());
    let content = file.and_then(|file| Content::read(file, *hash, *size));
    Ok(Some(content.unwrap_or(Content::Unknown(*size))))
}

/// The content of a node, if it is known without reading a file.
fn known(node: &Node) -> Option<Content> {
    match node {
        Node::File { size: 0, .. } => Some(Content::of(Vec::new())),
        Node::File { size, .. } => Some(Content::Unknown(*size)),
        Node::Symlink { target } => Some(Content::of(target.clone())),
        Node::Directory { .. } => None,
    }
}
