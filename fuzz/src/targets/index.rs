//! The index of a git repository, which tells what is tracked.

use stockade_bundle::index::Index;

/// Words of the format.
pub(super) const WORDS: &[&str] = &[
    "DIRC",
    "TREE",
    "REUC",
    "link",
    "sdir",
    "\0\0\0\u{2}",
    "\0\0\0\u{3}",
    "\0\0\0\u{4}",
    "\0",
    "a.txt",
    "../x",
    ".git/config",
    "/",
];

/// Reads an index; what it tracks can be asked for.
pub(super) fn run(bytes: &[u8]) -> bool {
    let Ok(index) = Index::parse(bytes) else { return false };
    // Each entry takes more than its name, so there cannot be more of them than bytes.
    assert!(index.len() <= bytes.len(), "{} paths in {} bytes", index.len(), bytes.len());
    assert!(index.shared().is_none_or(|name| !name.contains('/')), "{:?}", index.shared());
    true
}
