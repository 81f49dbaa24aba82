//! The paths of a project, as users and the API write them.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use stockade_api::{Bytes, Result};
use stockade_bundle::RelativePath;
use stockade_core::{Code, Problem};

/// A path in the form of the API.
pub(crate) fn to_bytes(path: &RelativePath) -> Bytes {
    Bytes(path.as_bytes().to_vec())
}

/// Converts paths that a user named: relative to the project's root, or absolute and inside it.
/// The result is empty if they name the root itself.
///
/// # Errors
/// [`Code::InvalidInput`] for a path that is not in the project.
pub fn paths(project: &[u8], given: &[Bytes]) -> Result<Vec<RelativePath>> {
    let path = |bytes: &'_ [u8]| Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned();
    let project = path(project);
    let mut paths = Vec::new();
    for Bytes(given) in given {
        let named = path(given);
        let below = named.strip_prefix(&project).unwrap_or(&named);
        // `components` normalises the path: it drops `./`, doubled and trailing slashes.
        let plain: std::path::PathBuf =
            below.components().filter(|part| *part != std::path::Component::CurDir).collect();
        if plain.as_os_str().is_empty() && !given.is_empty() {
            return Ok(Vec::new());
        }
        let path = RelativePath::new(plain.as_os_str().as_bytes()).map_err(|error| {
            let message =
                format!("`{}` is not a path in the project", String::from_utf8_lossy(given));
            Problem::new(Code::InvalidInput, message).because(error.to_string()).remedied_by(
                "write paths as `stockade diff --stat` prints them, relative to the project's root",
            )
        })?;
        paths.push(path);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_below_the_project() {
        let named = |text: &str| {
            let paths = paths(b"/home/me/project", &[text.into()]).ok()?;
            Some(paths.iter().map(RelativePath::quoted).collect::<Vec<_>>().join(" "))
        };
        for same in ["a/b", "./a/b", "a//b/", "/home/me/project/a/b"] {
            assert_eq!(named(same).as_deref(), Some("a/b"), "{same}");
        }
        for all in [".", "./", "/home/me/project", "/home/me/project/"] {
            assert_eq!(named(all).as_deref(), Some(""), "{all}");
        }
        for outside in ["", "..", "../x", "a/../../x", "/etc", "/home/me/project/../x"] {
            assert_eq!(named(outside), None, "{outside}");
        }
    }
}
