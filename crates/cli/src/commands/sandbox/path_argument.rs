//! The syntax of path arguments: in a sandbox, or on the host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// A file or directory, on the host or in a sandbox.
pub(super) enum PathArgument {
    Host(PathBuf),
    Sandbox(String, Vec<u8>),
}

impl PathArgument {
    /// Parses `ID:PATH`, else a path of the host. A path of the host that contains a colon before any
    /// slash must be written with `./` before it.
    pub(super) fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        let at = bytes.iter().position(|byte| *byte == b':');
        match at.and_then(|at| Some((std::str::from_utf8(&bytes[..at]).ok()?, at))) {
            Some((id, at)) if !id.is_empty() && !id.contains(['/', '.']) => {
                Self::Sandbox(id.to_owned(), bytes[at + 1..].to_vec())
            }
            _ => Self::Host(PathBuf::from(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_by_its_colon() {
        for (text, inside) in [
            ("latest:/tmp/a", true),
            ("0a1b:/", true),
            ("/tmp/a", false),
            ("./a:/b", false),
            ("a:b", true),
            ("a:", true),
            ("./a:b", false),
            ("dir/a:b", false),
            (":/a", false),
        ] {
            assert_eq!(
                matches!(PathArgument::parse(OsStr::new(text)), PathArgument::Sandbox(..)),
                inside,
                "{text}"
            );
        }
    }
}
