//! Why a secret cannot be used. No error has a part of a value.

use stockade_core::{Code, Problem};

use crate::kind::Kind;

/// A part of a sealed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The ciphertext, with what belongs to it.
    Encrypted,
    /// The salt of the key derivation.
    Nonce,
    /// The public key of the sender.
    PublicKey,
    /// The members of the message.
    Members,
}

impl Part {
    /// Its name in a message.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Encrypted => "encrypted",
            Self::Nonce => "hkdfNonce",
            Self::PublicKey => "publicKey",
            Self::Members => "the members",
        }
    }
}

/// Why a secret cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such type of secrets.
    #[error("there is no secret type {0:?}")]
    UnknownKind(String),
    /// A type has other fields.
    #[error("a secret of type {kind} has the fields {}", kind.fields().join(", "))]
    WrongFields {
        /// The type.
        kind: Kind,
    },
    /// The value of a field has another form.
    #[error("the field {field} of a secret of type {kind} {why}")]
    FieldValue {
        /// The type.
        kind: Kind,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A sealed message has an invalid form.
    #[error("{} of the envelope: {why}", part.as_str())]
    Envelope {
        /// Where.
        part: Part,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A key has an invalid form.
    #[error("the key is invalid: {0}")]
    Key(&'static str),
    /// A message was not sealed for this key and this use, or was changed.
    #[error("the envelope cannot be opened with this key, for this use")]
    Open,
    /// A record was not sealed under this key, or was changed.
    #[error("the record of the secret {0} cannot be opened with the key of the vault")]
    Record(String),
    /// A reference has an invalid form.
    #[error("{path} is no reference to a secret: {why}")]
    Reference {
        /// Its path.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A secret has no such field, or several and none was named.
    #[error("{}", match field {
        Some(field) => format!("the secret has no field {field}"),
        None => "the secret has several fields, and none was named".to_owned(),
    })]
    NoField {
        /// The field that was named.
        field: Option<String>,
        /// The fields that there are.
        fields: Vec<String>,
    },
    /// Two mappings set one variable.
    #[error("two secrets are for the variable {0}")]
    Duplicate(String),
    /// A name is that of no variable, or of one that programs obey.
    #[error("the variable {name} cannot have a secret: {why}")]
    Variable {
        /// The name.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// A value cannot be that of a variable.
    #[error("the value for the variable {0} contains a NUL byte")]
    Value(String),
    /// Sealing failed.
    #[error("the secret cannot be sealed")]
    Seal,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::UnknownKind(_)
            | Error::WrongFields { .. }
            | Error::FieldValue { .. }
            | Error::Variable { .. } => Code::InvalidInput,
            Error::Envelope { .. } => Code::InvalidEnvelope,
            Error::Key(_) => Code::InvalidKey,
            Error::Open | Error::Record(_) => Code::DecryptFailed,
            Error::Reference { .. } => Code::SecretRefInvalid,
            Error::NoField { .. } => Code::SecretFieldNotFound,
            Error::Duplicate(_) => Code::DuplicateEnv,
            Error::Value(_) => Code::SecretValueInvalid,
            Error::Seal => Code::Io,
        };
        let problem = Self::new(code, error.to_string());
        match error {
            Error::UnknownKind(_) => {
                let known: Vec<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
                problem.because(format!("the types are {}", known.join(", ")))
            }
            Error::NoField { fields, .. } => {
                problem.because(format!("its fields are {}", fields.join(", ")))
            }
            Error::Record(name) => problem
                .because("it was sealed under another key, or was changed")
                .remedied_by(format!("stockade secrets rotate {name}")),
            Error::Value(_) => problem.because("a file can contain it: use `write_secret_file`"),
            _ => problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use stockade_test_support::assert_snapshot;

    use super::*;

    #[test]
    fn the_problems_of_all_errors_match_their_snapshots() {
        let fields = vec!["key".to_owned(), "secretKey".to_owned()];
        let errors = [
            Error::UnknownKind("other".to_owned()),
            Error::WrongFields { kind: Kind::XApp },
            Error::FieldValue { kind: Kind::ZeroG, field: "privateKey", why: "is empty" },
            Error::Envelope { part: Part::Nonce, why: "it has not 32 bytes" },
            Error::Key("it has not 32 bytes"),
            Error::Open,
            Error::Record("github".to_owned()),
            Error::Reference { path: "a.ffsecret".to_owned(), why: "its version is not 1" },
            Error::NoField { field: Some("apiKey".to_owned()), fields: fields.clone() },
            Error::NoField { field: None, fields },
            Error::Duplicate("TOKEN".to_owned()),
            Error::Variable { name: "PATH".to_owned(), why: "programs obey it" },
            Error::Value("TOKEN".to_owned()),
            Error::Seal,
        ];
        let problems: Vec<Problem> = errors.into_iter().map(Problem::from).collect();
        assert_snapshot("errors/vault", &serde_json::to_string_pretty(&problems).unwrap());
    }
}
