//! Patterns in the last part of a path in a sandbox, such as `ID:/tmp/*.log`. The shell of the caller
//! cannot expand them: it does not see these files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use globset::{GlobBuilder, GlobMatcher};
use stockade_api::{ListDirectory, Problem};
use stockade_core::Code;

use super::{Transfer, join, not_found};
use crate::commands::print::escaped;
use crate::problem::Failure;

/// The directory and the pattern of a path whose last part is one.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|byte| *byte == b'/')?;
    let (directory, name) = (&path[..at], &path[at + 1..]);
    let directory = if directory.is_empty() { b"/" } else { directory };
    name.iter().any(|byte| b"*?[{".contains(byte)).then_some((directory, name))
}

/// The matcher for a pattern: as in a shell, except that `*` matches no name that starts with a dot
/// only in front.
fn matcher(pattern: &[u8]) -> Result<GlobMatcher, Problem> {
    let invalid = |cause: String| {
        let shown = escaped(&String::from_utf8_lossy(pattern));
        Problem::new(Code::InvalidInput, format!("the pattern {shown} is invalid")).because(cause)
    };
    let text = std::str::from_utf8(pattern).map_err(|error| invalid(error.to_string()))?;
    let glob = GlobBuilder::new(text).literal_separator(true).build();
    Ok(glob.map_err(|error| invalid(error.kind().to_string()))?.compile_matcher())
}

fn matches(matcher: &GlobMatcher, pattern: &[u8], name: &[u8]) -> bool {
    let is_hidden = name.starts_with(b".") && !pattern.starts_with(b".");
    !is_hidden && matcher.is_match(OsStr::from_bytes(name))
}

impl Transfer<'_> {
    /// The paths that an absolute path names: itself, or all that match its pattern if there is no
    /// such file.
    ///
    /// # Errors
    /// [`Code::FileNotFound`] if there are none.
    pub(super) async fn expand(&self, path: Vec<u8>) -> Result<Vec<Vec<u8>>, Failure> {
        let Some((directory, pattern)) = split(&path) else { return Ok(vec![path]) };
        if self.stat(&path).await?.is_some() {
            return Ok(vec![path]);
        }
        let matcher = matcher(pattern)?;
        let request = ListDirectory {
            sandbox_id: self.id.clone(),
            path: directory.to_vec().into(),
            depth: None,
        };
        let listing = self.remote.sandboxes.list_directory(self.remote.caller(), request).await?;
        let name = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
        let names = listing.entries.iter().filter_map(|entry| name(&entry.path.0));
        let found: Vec<_> = names
            .filter(|name| matches(&matcher, pattern, name))
            .map(|name| join(directory, &name))
            .collect();
        if found.is_empty() { Err(not_found(&path)) } else { Ok(found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_part_is_a_pattern() {
        assert_eq!(split(b"/tmp/*.log"), Some((&b"/tmp"[..], &b"*.log"[..])));
        assert_eq!(split(b"/a?"), Some((&b"/"[..], &b"a?"[..])));
        for path in [&b"/tmp/a.log"[..], b"/t*/a", b"/tmp/", b"*"] {
            assert_eq!(split(path), None, "{}", String::from_utf8_lossy(path));
        }
    }

    #[test]
    fn names_match_as_in_a_shell() {
        let is = |pattern: &str, name: &[u8]| {
            matches(&matcher(pattern.as_bytes()).unwrap(), pattern.as_bytes(), name)
        };
        assert!(
            is("*.log", b"a.log") && is("a?", b"ab") && is("[ab]", b"a") && is("{x,y}.c", b"y.c")
        );
        assert!(is("*", b"\xff") && is(".*", b".env"));
        assert!(!is("*", b".env") && !is("*.log", b"a.txt") && !is("[ab]", b"c"));
        assert!(matcher(b"[a").is_err() && matcher(b"\xff*").is_err());
    }
}
