//! The contents that a diff is made of, out of a bundle.

use std::io::Read as _;

use crate::manifest::{Entry, Node};
use crate::store::{Bundle, Error};

/// The largest content that is compared line by line.
const MAX_SHOWN_BYTES: u64 = 4 << 20;

/// Where git looks for a NUL byte to tell binary files.
const TEXT_PROBE_BYTES: usize = 8000;

/// One side of a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text, or what a link points to.
    Text(Vec<u8>),
    /// So many bytes that are not text, are too many, or are not kept.
    Binary(u64),
}

/// Both sides of an entry's diff; `None` where there is nothing, or a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sides {
    /// What was there before.
    pub old: Option<Content>,
    /// What is there now.
    pub new: Option<Content>,
}

impl Content {
    /// Bytes as text, where git would take them for that.
    pub fn of(bytes: Vec<u8>) -> Self {
        match bytes.iter().take(TEXT_PROBE_BYTES).any(|b| *b == 0) {
            true => Self::Binary(bytes.len() as u64),
            false => Self::Text(bytes),
        }
    }
}

impl Sides {
    /// The contents of an entry, as far as the bundle keeps them.
    pub fn of(bundle: &Bundle, entry: &Entry) -> Result<Self, Error> {
        let new = match entry.change.new_node() {
            Some(Node::File { hash, size, .. }) if *size <= MAX_SHOWN_BYTES && *size > 0 => {
                match bundle.blob(*hash) {
                    // Entries that can never be applied may have none.
                    Err(_) if entry.refused.is_some() => Some(Content::Binary(*size)),
                    file => {
                        let mut bytes = Vec::new();
                        let read = file?.take(MAX_SHOWN_BYTES + 1).read_to_end(&mut bytes);
                        // What cannot be read, or was altered, is shown as unknown.
                        let is_whole = read.is_ok() && bytes.len() as u64 == *size;
                        Some(if is_whole { Content::of(bytes) } else { Content::Binary(*size) })
                    }
                }
            }
            node => node.and_then(known),
        };
        let old = match entry.change.old() {
            Some(Node::File { hash, size, .. }) if *size > 0 => Some(match bundle.base(*hash)? {
                Some(bytes) => Content::of(bytes),
                None => Content::Binary(*size),
            }),
            node => node.and_then(known),
        };
        Ok(Self { old, new })
    }
}

/// The content of a node that needs no file to be known.
fn known(node: &Node) -> Option<Content> {
    match node {
        Node::File { size: 0, .. } => Some(Content::Text(Vec::new())),
        Node::File { size, .. } => Some(Content::Binary(*size)),
        Node::Symlink { target } => Some(Content::Text(target.clone())),
        Node::Directory { .. } => None,
    }
}
