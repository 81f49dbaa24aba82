//! Ids that callers choose: of sandboxes, of what runs in them, of snapshots.
//!
//! An id is also the idempotency key of whatever it names: asking twice with the same id starts
//! the thing once. Making ids up takes a clock or chance, and is the caller's.

use serde::{Deserialize, Serialize};

/// The longest id: a DNS label, so that it fits into container names, host names and labels.
const LENGTH: usize = 63;

/// A text that is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no id: up to {LENGTH} lower-case letters, digits and inner hyphens")]
pub struct InvalidId(pub String);

fn check(text: String) -> Result<String, InvalidId> {
    let fits = (1..=LENGTH).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !text.starts_with('-')
        && !text.ends_with('-');
    if fits { Ok(text) } else { Err(InvalidId(text)) }
}

macro_rules! id {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The id that a text is.
            ///
            /// # Errors
            /// [`InvalidId`] for anything but 1 to 63 lower-case letters, digits and hyphens, with
            /// no hyphen at either end.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
                check(text.into()).map(Self)
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

id!(
    /// Names a sandbox, in its runtime and in everything that is kept of it.
    SandboxId
);
id!(
    /// Names one command that was started in a sandbox; unique within the sandbox.
    ExecId
);
id!(
    /// Names a snapshot of a sandbox's file system.
    SnapshotId
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_dns_label() {
        for good in ["a", "0", "a-b", &"x".repeat(63)] {
            assert_eq!(SandboxId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "..", "a b", "ü", &"x".repeat(64)] {
            assert_eq!(SandboxId::new(bad), Err(InvalidId(bad.to_owned())));
        }
    }

    #[test]
    fn an_id_that_is_read_back_is_checked() {
        let id = ExecId::new("build-1").unwrap();
        let text = serde_json::to_string(&id).unwrap();
        assert_eq!(text, "\"build-1\"");
        assert_eq!(serde_json::from_str::<ExecId>(&text).unwrap(), id);
        assert!(serde_json::from_str::<ExecId>("\"../build\"").is_err());
    }
}
