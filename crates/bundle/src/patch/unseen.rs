//! How much of a change a reader does not see in its diff, and has to accept without having read it.

use std::time::Instant;

use super::code::unseen_bytes;
use super::render;
use super::sides::{self, Content, Sides};
use crate::beneath::Dir;
use crate::manifest::{Entry, Node};
use crate::store::{Bundle, Error};

/// A text up to this size is always shown, whatever it is compared with.
const ALWAYS_SHOWN_BYTES: u64 = 16 << 20;

/// How many bytes of the new content of an entry its diff does not show.
///
/// # Errors
/// When the bundle cannot be read.
pub fn unseen(
    bundle: &Bundle,
    project: Option<&Dir>,
    entry: &Entry,
    deadline: Option<Instant>,
) -> Result<u64, Error> {
    let Some(Node::File { hash, size, .. }) = entry.change.new_node() else { return Ok(0) };
    let source = sides::source(bundle, entry).unwrap_or(entry);
    let is_known = matches!(source.change.old(), Some(Node::File { hash: old, .. }) if old == hash);
    if is_known || *size == 0 {
        return Ok(0);
    }
    let content = sides::new(bundle, entry)?;
    match content {
        Some(Content::Text(_)) if *size <= ALWAYS_SHOWN_BYTES => Ok(0),
        Some(Content::Text(_)) => {
            let sides = Sides::of(bundle, project, entry)?;
            Ok(render(entry, &sides, deadline).unseen)
        }
        Some(content) => Ok(unseen_bytes(entry, &content)),
        None => Ok(0),
    }
}
