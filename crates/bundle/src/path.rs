//! Paths inside a project, as bytes: always relative, never with `.` or `..`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stockade_core::printable::{escape_with, is_printable};

/// A path below a project's root, checked when it is created: not empty, not absolute, no
/// empty, `.` or `..` component, no NUL byte. Any other byte is allowed, as in Linux.
///
/// In JSON it is a string where the bytes are UTF-8, else `{"base64": "…"}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelativePath(Vec<u8>);

/// Why bytes are not a [`RelativePath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The path is empty.
    #[error("the path is empty")]
    Empty,
    /// The path starts with a slash.
    #[error("the path is absolute")]
    Absolute,
    /// The path has an empty, `.` or `..` component.
    #[error("the path has an empty, `.` or `..` component")]
    Component,
    /// The path holds a NUL byte.
    #[error("the path contains a NUL byte")]
    Nul,
}

impl RelativePath {
    /// Checks the bytes and stores them.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, Error> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Err(Error::Empty);
        }
        if bytes[0] == b'/' {
            return Err(Error::Absolute);
        }
        if bytes.contains(&0) {
            return Err(Error::Nul);
        }
        if bytes.split(|b| *b == b'/').any(|part| matches!(part, b"" | b"." | b"..")) {
            return Err(Error::Component);
        }
        Ok(Self(bytes))
    }

    /// A constant path that is known to be valid at compile time.
    pub fn literal(text: &'static str) -> Self {
        debug_assert!(Self::new(text).is_ok(), "{text}");
        Self(text.as_bytes().to_vec())
    }

    /// The path's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path in the form that file system calls take.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// The path's components, first to last; never empty.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/')
    }

    /// The last component.
    pub fn file_name(&self) -> &[u8] {
        self.0.rsplit(|b| *b == b'/').next().unwrap_or(&self.0)
    }

    /// The path without its last component; `None` at the top.
    pub fn parent(&self) -> Option<Self> {
        let slash = self.0.iter().rposition(|b| *b == b'/')?;
        Some(Self(self.0[..slash].to_vec()))
    }

    /// Whether `self` is `ancestor` or lies below it.
    pub fn is_within(&self, ancestor: &Self) -> bool {
        self.0
            .strip_prefix(ancestor.0.as_slice())
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    /// `self` with one more component.
    pub fn join(&self, name: &[u8]) -> Result<Self, Error> {
        Self::new([self.0.as_slice(), b"/", name].concat())
    }

    /// The path on one line for display: bytes that are not printable UTF-8 are escaped as git
    /// does, in double quotes.
    pub fn quoted(&self) -> String {
        let plain = std::str::from_utf8(&self.0)
            .ok()
            .filter(|s| !s.contains(['"', '\\']) && is_printable(s));
        if let Some(text) = plain {
            return text.to_owned();
        }
        let mut quoted = String::from("\"");
        for chunk in self.0.utf8_chunks() {
            let valid = chunk.valid().replace('\\', "\\\\").replace('"', "\\\"");
            quoted.push_str(&escape_with(&valid, |quoted, c| match c {
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                '\r' => quoted.push_str("\\r"),
                c => {
                    let mut buffer = [0; 4];
                    for byte in c.encode_utf8(&mut buffer).bytes() {
                        quoted.push_str(&format!("\\{byte:03o}"));
                    }
                }
            }));
            for byte in chunk.invalid() {
                quoted.push_str(&format!("\\{byte:03o}"));
            }
        }
        quoted.push('"');
        quoted
    }
}

impl std::fmt::Debug for RelativePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RelativePath({})", self.quoted())
    }
}

impl std::fmt::Display for RelativePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.quoted())
    }
}

/// Serialises bytes as JSON: a string where they are UTF-8, else `{"base64": "…"}`.
pub(crate) mod bytes_as_json {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(untagged)]
    enum Shape {
        Text(String),
        Bytes { base64: String },
    }

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Shape::Bytes { base64: STANDARD.encode(bytes) }.serialize(serializer),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        match Shape::deserialize(deserializer)? {
            Shape::Text(text) => Ok(text.into_bytes()),
            Shape::Bytes { base64 } => STANDARD.decode(base64).map_err(serde::de::Error::custom),
        }
    }
}

impl Serialize for RelativePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        bytes_as_json::serialize(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for RelativePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(bytes_as_json::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_that_stay_below_are_accepted() {
        for good in ["a", "a/b", " ", "a\nb", ".git", "...", "a/.b/c"] {
            assert!(RelativePath::new(good).is_ok(), "{good:?}");
        }
        for bad in ["", "/", "/a", ".", "..", "a/..", "a//b", "a/", "./a", "a/./b", "a\0b"] {
            assert!(RelativePath::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn any_bytes_survive_json() {
        for bytes in [&b"plain"[..], b"a b\nc", b"\xff\xfe/x", "grün".as_bytes()] {
            let path = RelativePath::new(bytes).unwrap();
            let json = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<RelativePath>(&json).unwrap(), path, "{json}");
        }
        assert!(serde_json::from_str::<RelativePath>("\"../x\"").is_err());
        assert!(serde_json::from_str::<RelativePath>("{\"base64\":\"Li4vYQ==\"}").is_err());
    }

    #[test]
    fn odd_names_are_printed_on_one_line() {
        assert_eq!(RelativePath::new("a b").unwrap().quoted(), "a b");
        assert_eq!(RelativePath::new("a\né").unwrap().quoted(), "\"a\\né\"");
        assert_eq!(RelativePath::new(&b"\xff\x1b"[..]).unwrap().quoted(), "\"\\377\\033\"");
        let hidden = RelativePath::new("a\u{202e}\"\\").unwrap().quoted();
        assert_eq!(hidden, "\"a\\342\\200\\256\\\"\\\\\"");
    }

    #[test]
    fn within_goes_by_component() {
        let path = |p: &str| RelativePath::new(p).unwrap();
        assert!(path("a/b").is_within(&path("a")));
        assert!(path("a").is_within(&path("a")));
        assert!(!path("ab").is_within(&path("a")));
    }
}
