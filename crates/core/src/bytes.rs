//! Bytes and paths in JSON, which need not be UTF-8.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that are mostly text. In JSON a string if they are UTF-8, else `{"base64": "…"}`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl std::fmt::Debug for Bytes {
    /// Only the length: the bytes may be the content of a file, and this may go to a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({})", self.0.len())
    }
}

impl Bytes {
    /// The bytes as text, with each invalid byte replaced.
    pub fn lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<T: Into<Vec<u8>>> From<T> for Bytes {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

// Written by hand: the derived code would leave copies in freed memory, and the bytes may be a secret.
impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(&self.0) {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(BASE64, &format_args!("{}", Base64Display::new(&self.0, &STANDARD)))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Form)
    }
}

/// The only member of the form of bytes that are not UTF-8.
const BASE64: &str = "base64";

struct Form;

impl<'de> Visitor<'de> for Form {
    type Value = Bytes;

    fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("a string or {\"base64\": \"…\"}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
        Ok(text.into())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Bytes, E> {
        Ok(text.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bytes, A::Error> {
        let Some(BASE64) = map.next_key::<String>()?.as_deref() else {
            return Err(Error::missing_field(BASE64));
        };
        let mut text = map.next_value::<String>()?.into_bytes();
        let decoded = STANDARD.decode(&text);
        text.fill(0);
        std::hint::black_box(&text);
        if map.next_key::<String>()?.is_some() {
            return Err(Error::custom("there is more than `base64`"));
        }
        decoded.map(Bytes).map_err(Error::custom)
    }
}

/// Values of variables that are text, as bytes.
pub fn values(text: BTreeMap<String, String>) -> BTreeMap<String, Bytes> {
    text.into_iter().map(|(name, value)| (name, value.into())).collect()
}

/// A path in JSON in the form of [`Bytes`], for `#[serde(with)]`.
pub mod path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::Bytes;

    /// Serializes a path.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        Bytes::from(path.as_os_str().as_bytes()).serialize(serializer)
    }

    /// Deserializes a path.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        let bytes = Bytes::deserialize(deserializer)?;
        Ok(PathBuf::from(OsString::from_vec(bytes.0)))
    }
}

/// An optional path in JSON in the form of [`Bytes`], for `#[serde(with)]`.
pub mod optional_path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::path::PathBuf;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::Bytes;

    /// Serializes a path.
    pub fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        path.as_ref().map(|path| Bytes::from(path.as_os_str().as_bytes())).serialize(serializer)
    }

    /// Deserializes a path.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        let bytes = Option::<Bytes>::deserialize(deserializer)?;
        Ok(bytes.map(|bytes| PathBuf::from(OsString::from_vec(bytes.0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text_and_the_rest_survives_the_way() {
        for (bytes, json) in [
            (&b"a\n\xc3\xbc"[..], "\"a\\n\u{fc}\""),
            (b"", "\"\""),
            (b"\xff\0", "{\"base64\":\"/wA=\"}"),
        ] {
            let bytes = Bytes::from(bytes);
            assert_eq!(serde_json::to_string(&bytes).unwrap(), json);
            assert_eq!(serde_json::from_str::<Bytes>(json).unwrap(), bytes);
        }
        for bad in [
            "{\"base64\":\"%\"}",
            "{}",
            "{\"base64\":\"/wA=\",\"more\":1}",
            "{\"base65\":\"/wA=\"}",
            "{\"base64\":1}",
            "1",
            "null",
        ] {
            assert!(serde_json::from_str::<Bytes>(bad).is_err(), "{bad}");
        }
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Paths {
        #[serde(with = "super::path")]
        one: std::path::PathBuf,
        #[serde(default, with = "super::optional_path")]
        other: Option<std::path::PathBuf>,
    }

    #[test]
    fn a_path_is_text_where_it_can_be() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;
        for (path, json) in [
            (&b"/a/\xc3\xbc"[..], "{\"one\":\"/a/\u{fc}\",\"other\":\"/a/\u{fc}\"}"),
            (b"/\xff", "{\"one\":{\"base64\":\"L/8=\"},\"other\":{\"base64\":\"L/8=\"}}"),
        ] {
            let path = std::path::PathBuf::from(OsStr::from_bytes(path));
            let paths = Paths { one: path.clone(), other: Some(path) };
            assert_eq!(serde_json::to_string(&paths).unwrap(), json);
            assert_eq!(serde_json::from_str::<Paths>(json).unwrap(), paths);
        }
        let absent: Paths = serde_json::from_str("{\"one\":\"/a\"}").unwrap();
        assert_eq!(absent.other, None);
    }
}
