//! The fields of a secret with their values, and the text of a type. A value is a map of texts.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::kind::Kind;

/// The first line of a private key of ssh.
const SSH_BEGINNING: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
/// The longest value of a field, in bytes.
const FIELD_BYTES: usize = 64 << 10;

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().find(|kind| kind.as_str() == text);
        found.copied().ok_or_else(|| Error::UnknownKind(text.chars().take(64).collect()))
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error: Error| de::Error::custom(error.to_string()))
    }
}

/// The fields of a secret with their values.
#[derive(Clone)]
pub struct Fields(BTreeMap<&'static str, Zeroizing<String>>);

impl Fields {
    /// The fields of a secret of some type: exactly those of the type.
    ///
    /// # Errors
    /// [`Error::WrongFields`] or [`Error::FieldValue`].
    pub fn new(kind: Kind, values: BTreeMap<String, Zeroizing<String>>) -> Result<Self, Error> {
        let mut values = values;
        let mut fields = BTreeMap::new();
        for name in kind.fields() {
            let value = values.remove(*name).ok_or(Error::WrongFields { kind })?;
            check_field(kind, name, &value)?;
            fields.insert(*name, value);
        }
        if values.is_empty() { Ok(Self(fields)) } else { Err(Error::WrongFields { kind }) }
    }

    /// The names of the fields.
    pub fn names(&self) -> Vec<String> {
        self.0.keys().map(|name| (*name).to_owned()).collect()
    }

    /// The value of a field; if none is named, of the only one.
    ///
    /// # Errors
    /// [`Error::NoField`].
    pub fn get(&self, field: Option<&str>) -> Result<&Zeroizing<String>, Error> {
        let found = match field {
            Some(name) => self.0.get(name),
            None if self.0.len() == 1 => self.0.values().next(),
            None => None,
        };
        found.ok_or_else(|| Error::NoField {
            field: field.map(|name| name.chars().take(64).collect()),
            fields: self.names(),
        })
    }

    /// As the JSON that is sealed.
    pub(crate) fn to_json(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let values: BTreeMap<_, _> =
            self.0.iter().map(|(name, value)| (*name, value.as_str())).collect();
        serde_json::to_vec(&values).map(Zeroizing::new).map_err(|_| Error::Seal)
    }

    /// From the JSON that was sealed.
    pub(crate) fn from_json(kind: Kind, json: &[u8]) -> Result<Self, Error> {
        // The error of the parser could contain what it has read.
        let values = serde_json::from_slice::<BTreeMap<String, Zeroizing<String>>>(json);
        Self::new(kind, values.map_err(|_| Error::WrongFields { kind })?)
    }
}

fn check_field(kind: Kind, field: &'static str, value: &str) -> Result<(), Error> {
    let wrong = |why| Err(Error::FieldValue { kind, field, why });
    if value.is_empty() {
        return wrong("is empty");
    }
    if value.len() > FIELD_BYTES {
        return wrong("is longer than 64 KiB");
    }
    let is_alphanumeric = value.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match kind {
        Kind::ZeroG if value.len() != 64 || !is_alphanumeric => {
            wrong("is not 64 letters and digits")
        }
        Kind::Alchemy if value.len() < 32 || !is_alphanumeric => {
            wrong("is not 32 or more letters and digits")
        }
        Kind::Ssh if !value.trim_start().starts_with(SSH_BEGINNING) => {
            wrong("is no private key in the format of OpenSSH")
        }
        _ => Ok(()),
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(kind: &str, values: &[(&str, &str)]) -> Result<Fields, Error> {
        let value = |(name, value): &(&str, &str)| {
            ((*name).to_owned(), Zeroizing::new((*value).to_owned()))
        };
        Fields::new(kind.parse()?, values.iter().map(value).collect())
    }

    #[test]
    fn a_type_has_its_fields_and_no_others() {
        let long = "a1".repeat(32);
        for (kind, values) in [
            ("string", &[("value", "x")][..]),
            ("openai", &[("apiKey", "k")]),
            ("xApp", &[("key", "a"), ("secretKey", "b")]),
            ("OkxDexApi", &[("apiKey", "a"), ("secretKey", "b"), ("apiPassphrase", "c")]),
            ("0g", &[("privateKey", &long)]),
            ("alchemy", &[("apiKey", &long)]),
            ("ssh", &[("privateKey", "-----BEGIN OPENSSH PRIVATE KEY-----\nx")]),
        ] {
            assert!(made(kind, values).is_ok(), "{kind}");
        }
        for (kind, values) in [
            ("nothing", &[("value", "x")][..]),
            ("string", &[]),
            ("string", &[("value", "")]),
            ("string", &[("value", "x"), ("other", "y")]),
            ("openai", &[("value", "x")]),
            ("xApp", &[("key", "a")]),
            ("0g", &[("privateKey", "short")]),
            ("alchemy", &[("apiKey", "short")]),
            ("ssh", &[("privateKey", "-----BEGIN RSA PRIVATE KEY-----\nx")]),
        ] {
            assert!(made(kind, values).is_err(), "{kind}");
        }
    }

    #[test]
    fn the_only_field_needs_no_name() {
        let one = made("string", &[("value", "x")]).unwrap();
        assert_eq!(one.get(None).unwrap().as_str(), "x");
        let two = made("xApp", &[("key", "a"), ("secretKey", "b")]).unwrap();
        assert_eq!(two.get(Some("secretKey")).unwrap().as_str(), "b");
        for field in [None, Some("apiKey")] {
            let fields = vec!["key".to_owned(), "secretKey".to_owned()];
            let expected = Error::NoField { field: field.map(str::to_owned), fields };
            assert_eq!(two.get(field).unwrap_err(), expected);
        }
        assert!(!format!("{two:?}").contains("\"b\""));
    }
}
