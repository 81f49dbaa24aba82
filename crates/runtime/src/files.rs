//! Files inside a sandbox, as seen from outside: their paths and metadata.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use stockade_core::sandbox::User;
use tokio::io::AsyncRead;

use crate::error::{Error, Result};

/// The longest path that the kernel accepts, including its terminator (`PATH_MAX`).
const LENGTH: usize = 4096;

/// An absolute path inside a sandbox, without `..`. Its links are followed only inside.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SandboxPath(PathBuf);

impl SandboxPath {
    /// The path with these bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless it is absolute, shorter than 4096 bytes, and free of `..` and NUL.
    pub fn new(path: impl AsRef<OsStr>) -> Result<Self> {
        let text = path.as_ref();
        let path = Path::new(text);
        let invalid = |what: &str| Err(Error::Invalid(format!("the path {text:?} {what}")));
        if !path.is_absolute() {
            return invalid("is not absolute");
        }
        if text.len() >= LENGTH {
            return invalid("is too long");
        }
        if text.as_bytes().contains(&0) {
            return invalid("contains a NUL byte");
        }
        if path.components().any(|component| component == Component::ParentDir) {
            return invalid("contains `..`");
        }
        // Without repeated slashes and inner dots.
        Ok(Self(path.components().collect()))
    }

    /// The path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl std::fmt::Display for SandboxPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, socket or device.
    Other,
}

/// The metadata of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Its last name; `/` for the root.
    pub name: Vec<u8>,
    /// Its kind; a link is not followed.
    pub kind: FileKind,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Its permission bits.
    pub mode: u32,
    /// Its owner inside.
    pub owner: User,
    /// When its content changed last, in milliseconds since 1970.
    pub modified_ms: i64,
    /// The target of a link.
    pub link: Option<Vec<u8>>,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRange {
    /// How many bytes to skip.
    pub offset: u64,
    /// How many bytes to read at most.
    pub length: Option<u64>,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteOptions {
    /// The permission bits of a new file; an existing one keeps its own.
    pub mode: u32,
    /// The file owner; the sandbox's ordinary user when absent.
    pub owner: Option<User>,
    /// Whether missing parent directories are created.
    pub make_parents: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { mode: 0o644, owner: None, make_parents: true }
    }
}

/// A reader of file content.
pub type Content = Pin<Box<dyn AsyncRead + Send>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_absolute_paths_are_paths_inside() {
        for (text, path) in [("/", "/"), ("/a//b/./c/", "/a/b/c"), ("/a b\n", "/a b\n")] {
            assert_eq!(SandboxPath::new(text).unwrap().as_path(), Path::new(path));
        }
        let long = format!("/{}", "a".repeat(4095));
        for text in ["", "a", "/..", "/a/../b", "/a\0b", long.as_str()] {
            assert!(SandboxPath::new(text).is_err(), "{text}");
        }
        assert!(SandboxPath::new(OsStr::from_bytes(b"/\xff")).is_ok());
    }
}
