//! Reads the contents for a diff from a bundle.

use std::io::Read as _;

use crate::manifest::{Entry, Node};
use crate::store::{Bundle, Error};

/// The largest content that is compared line by line.
const MAX_SHOWN_BYTES: u64 = 4 << 20;

/// Git looks for a NUL byte in this many bytes to detect binary files.
const TEXT_PROBE_BYTES: usize = 8000;

/// One side of a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text, or the target of a link.
    Text(Vec<u8>),
    /// The number of bytes of a content that is not text, is too large, or is not stored.
    Binary(u64),
}

/// Both sides of an entry's diff; `None` if the path does not exist or is a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sides {
    /// The old content.
    pub old: Option<Content>,
    /// The new content.
    pub new: Option<Content>,
}

impl Content {
    /// Treats bytes as text if git would.
    pub fn of(bytes: Vec<u8>) -> Self {
        match bytes.iter().take(TEXT_PROBE_BYTES).any(|b| *b == 0) {
            true => Self::Binary(bytes.len() as u64),
            false => Self::Text(bytes),
        }
    }
}

impl Sides {
    /// The contents of an entry, as far as the bundle stores them.
    pub fn of(bundle: &Bundle, entry: &Entry) -> Result<Self, Error> {
        let new = match entry.change.new_node() {
            Some(Node::File { hash, size, .. }) if *size <= MAX_SHOWN_BYTES && *size > 0 => {
                match bundle.blob(*hash) {
                    // Entries that can never be applied may have no stored content.
                    Err(_) if entry.refused.is_some() => Some(Content::Binary(*size)),
                    file => {
                        let mut bytes = Vec::new();
                        let read = file?.take(MAX_SHOWN_BYTES + 1).read_to_end(&mut bytes);
                        // A content that cannot be read, or was altered, is shown as unknown.
                        let is_whole = read.is_ok() && bytes.len() as u64 == *size;
                        Some(if is_whole { Content::of(bytes) } else { Content::Binary(*size) })
                    }
                }
            }
            node => node.and_then(known_content),
        };
        let old = match entry.change.old() {
            Some(Node::File { hash, size, .. }) if *size > 0 => Some(match bundle.base(*hash)? {
                Some(bytes) => Content::of(bytes),
                None => Content::Binary(*size),
            }),
            node => node.and_then(known_content),
        };
        Ok(Self { old, new })
    }
}

/// The content of a node, if it is known without reading a file.
fn known_content(node: &Node) -> Option<Content> {
    match node {
        Node::File { size: 0, .. } => Some(Content::Text(Vec::new())),
        Node::File { size, .. } => Some(Content::Binary(*size)),
        Node::Symlink { target } => Some(Content::Text(target.clone())),
        Node::Directory { .. } => None,
    }
}
