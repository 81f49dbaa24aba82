//! A reference to a secret, in a file that ends in `.ffsecret`: JSON with its id, type and name, and
//! never a ciphertext.

use serde::Deserialize;

use crate::error::Error;
use crate::kind::Kind;

/// How the name of the file ends.
pub const SUFFIX: &str = ".ffsecret";
/// The longest reference, in bytes.
pub const MAX_BYTES: usize = 16 << 10;
/// The longest id, in bytes.
const ID_BYTES: usize = 128;

/// A reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The id of the secret.
    pub secret: String,
    /// Its type.
    pub kind: Kind,
    /// Its name, for people.
    pub name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    version: u32,
    secret_id: String,
    secret_type: String,
    #[serde(default)]
    name: String,
}

impl Reference {
    /// Reads the content of a file.
    ///
    /// # Errors
    /// [`Error::Reference`].
    pub fn parse(path: &str, content: &[u8]) -> Result<Self, Error> {
        let invalid = |why| Error::Reference { path: path.to_owned(), why };
        if content.len() > MAX_BYTES {
            return Err(invalid("it is larger than 16 KiB"));
        }
        // The error of the parser could contain what it has read.
        let file: File = serde_json::from_slice(content).map_err(|_| {
            invalid("it is not JSON with exactly `version`, `secretId`, `secretType` and `name`")
        })?;
        if file.version != 1 {
            return Err(invalid("its version is not 1"));
        }
        let is_id = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if file.secret_id.is_empty()
            || file.secret_id.len() > ID_BYTES
            || !file.secret_id.bytes().all(is_id)
        {
            return Err(invalid("its `secretId` is invalid"));
        }
        let kind = file.secret_type.parse().map_err(|_| invalid("its `secretType` is unknown"))?;
        Ok(Self { secret: file.secret_id, kind, name: file.name })
    }

    /// The content of a file.
    pub fn to_json(&self) -> String {
        serde_json::json!({
            "version": 1,
            "secretId": self.secret,
            "secretType": self.kind,
            "name": self.name,
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_as_it_is_written() {
        let own = Reference {
            secret: "sec-0123".to_owned(),
            kind: Kind::XApp,
            name: "the app".to_owned(),
        };
        assert_eq!(Reference::parse("a.ffsecret", own.to_json().as_bytes()), Ok(own.clone()));
        let large = format!("{}{}", own.to_json(), " ".repeat(2 << 20));
        for bad in [
            "{}",
            "not json",
            &large,
            &own.to_json().replace("\"version\":1", "\"version\":99"),
            &own.to_json().replace("xApp", "unknown"),
            &own.to_json().replace("sec-0123", "../sec"),
            &own.to_json().replace("\"name\"", "\"encrypted\":\"x\",\"name\""),
        ] {
            let refused = Reference::parse("a.ffsecret", bad.as_bytes());
            assert!(matches!(refused, Err(Error::Reference { .. })), "{bad:.80}");
        }
    }
}
