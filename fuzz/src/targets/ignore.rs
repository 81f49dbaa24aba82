//! The rules of git's ignore files, which a project brings along.

use std::convert::Infallible;

use stockade_bundle::RelativePath;
use stockade_bundle::ignore::{Case, Ignore};

/// Words of the format.
pub(super) const WORDS: &[&str] = &[
    "*",
    "**",
    "**/",
    "/**/",
    "?",
    "[a-z]",
    "[!a]",
    "[[:alpha:]]",
    "[",
    "]",
    "!",
    "#",
    "\\",
    "/",
    " ",
    "\\ ",
    "\n",
    "\r\n",
    "\0",
    "a",
    "a/b",
];

/// Judges the path behind the first NUL byte by the rules before it, twice: the second answer
/// comes from what was remembered.
pub(super) fn run(bytes: &[u8]) -> bool {
    let mut halves = bytes.splitn(2, |byte| *byte == 0);
    let rules = halves.next().unwrap_or_default();
    let Ok(path) = RelativePath::new(halves.next().unwrap_or_default()) else { return false };
    for case in [Case::Distinct, Case::Ignored] {
        let mut ignore = Ignore::new(b"", case, |asked: &RelativePath| {
            Ok::<_, Infallible>((asked.as_bytes() == b".gitignore").then(|| rules.to_vec()))
        });
        for is_directory in [false, true] {
            let answers =
                [ignore.ignores(&path, is_directory), ignore.ignores(&path, is_directory)];
            assert_eq!(answers[0], answers[1]);
        }
    }
    true
}
