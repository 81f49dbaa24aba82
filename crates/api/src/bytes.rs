//! Bytes in JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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

impl<T: Into<Vec<u8>>> From<T> for Bytes {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Form<'a> {
    Text(std::borrow::Cow<'a, str>),
    Encoded { base64: String },
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => Form::Text(text.into()),
            Err(_) => Form::Encoded { base64: STANDARD.encode(&self.0) },
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Text(text) => Ok(Self(text.into_owned().into_bytes())),
            Form::Encoded { base64 } => {
                STANDARD.decode(base64).map(Self).map_err(serde::de::Error::custom)
            }
        }
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
        assert!(serde_json::from_str::<Bytes>("{\"base64\":\"%\"}").is_err());
    }
}
