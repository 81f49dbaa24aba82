//! Ids. Those of sandboxes, commands and snapshots are labels that callers choose: such an id is
//! also the idempotency key of the object that it names, so that two requests with the same id
//! create it once. Those of owners and executions come from other systems and are taken as they
//! are. Generating ids needs a clock or randomness, and is the task of the caller.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest id: a DNS label, so that it is valid in container names, host names and labels.
const LENGTH: usize = 63;

/// The longest name from another system, in bytes.
const FOREIGN_LENGTH: usize = 200;

/// The longest name of a volume. With the suffixes that Stockade adds it is still a file name.
const VOLUME_LENGTH: usize = 128;

/// A text that is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// It is not a label.
    #[error(
        "{0:?} is not a valid id: use up to {LENGTH} lower-case letters, digits and inner hyphens"
    )]
    Label(String),
    /// It is not the name of a volume.
    #[error(
        "{0:?} is not a valid name of a volume: use up to {VOLUME_LENGTH} letters, digits, `_`, `.` and `-`, starting with a letter or digit"
    )]
    Volume(String),
    /// It is not a valid name from another system.
    #[error(
        "{0:?} is not a valid name: use up to {FOREIGN_LENGTH} bytes of text without control characters"
    )]
    Foreign(String),
}

fn label(text: String) -> Result<String, InvalidId> {
    let fits = (1..=LENGTH).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !text.starts_with('-')
        && !text.ends_with('-');
    if fits { Ok(text) } else { Err(InvalidId::Label(text)) }
}

fn foreign(text: String) -> Result<String, InvalidId> {
    let fits = (1..=FOREIGN_LENGTH).contains(&text.len()) && !text.chars().any(char::is_control);
    if fits { Ok(text) } else { Err(InvalidId::Foreign(text)) }
}

/// The names that Docker accepts for volumes.
fn volume(text: String) -> Result<String, InvalidId> {
    let fits = (1..=VOLUME_LENGTH).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    if fits { Ok(text) } else { Err(InvalidId::Volume(text)) }
}

macro_rules! id {
    ($(#[$documentation:meta])* $name:ident, $check:ident) => {
        $(#[$documentation])*
        #[derive(
            Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(try_from = "String", into = "String")]
        #[schemars(inline)]
        pub struct $name(String);

        impl $name {
            /// Parses an id.
            ///
            /// # Errors
            /// [`InvalidId`] for a text that this kind of id does not allow.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
                $check(text.into()).map(Self)
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
    /// Identifies a sandbox, in its runtime and in all its records: 1 to 63 lower-case letters,
    /// digits and hyphens, with no hyphen at either end.
    SandboxId,
    label
);
id!(
    /// Identifies one command in a sandbox; unique within the sandbox, and formed as [`SandboxId`].
    ExecId,
    label
);
id!(
    /// Identifies a snapshot of a sandbox's file system; formed as [`SandboxId`].
    SnapshotId,
    label
);
id!(
    /// Identifies a volume among those of its owner: 1 to 128 letters, digits, `_`, `.` and `-`,
    /// starting with a letter or digit.
    VolumeName,
    volume
);
id!(
    /// Identifies the owner of a sandbox, byte by byte: `u1` is not `U1`. 1 to 200 bytes of text
    /// without control characters.
    OwnerId,
    foreign
);
id!(
    /// Identifies the execution that a sandbox or an operation belongs to, for the system that
    /// started it; formed as [`OwnerId`].
    ExecutionId,
    foreign
);

impl OwnerId {
    /// The owner for a user of this machine.
    pub fn from_uid(uid: u32) -> Self {
        Self(format!("uid:{uid}"))
    }

    /// Whether it is a user of this host.
    pub fn is_user(&self) -> bool {
        self.0.starts_with("uid:")
    }
}

impl SandboxId {
    /// The id of the workflow that watches the sandbox (FireFlow, "Lifecycle watcher").
    pub fn watcher_id(&self) -> String {
        format!("sandbox-watcher:{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_dns_label() {
        for good in ["a", "0", "a-b", &"x".repeat(63)] {
            assert_eq!(SandboxId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "..", "a b", "ü", &"x".repeat(64)] {
            assert_eq!(SandboxId::new(bad), Err(InvalidId::Label(bad.to_owned())));
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

    #[test]
    fn a_volume_has_a_name_that_is_no_path() {
        for good in ["a", "0", "npm-cache", "A_b.c", &"x".repeat(128)] {
            assert_eq!(VolumeName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", ".a", "-a", "_a", "a/b", "a b", "ü", "a\0", &"x".repeat(129)] {
            assert_eq!(VolumeName::new(bad), Err(InvalidId::Volume(bad.to_owned())));
        }
    }

    #[test]
    fn an_owner_is_taken_as_it_is() {
        for good in ["u1", "U1", "auth0|5f7c", "Jürgen <j@example.org>", " ", &"x".repeat(200)] {
            assert_eq!(OwnerId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a\nb", "a\0", "\u{7f}", "\u{85}", &"x".repeat(201)] {
            assert_eq!(OwnerId::new(bad), Err(InvalidId::Foreign(bad.to_owned())));
        }
        assert_ne!(OwnerId::new("u1"), OwnerId::new("U1"));
    }

    #[test]
    fn a_watcher_is_named_after_its_sandbox() {
        assert_eq!(SandboxId::new("sb1").unwrap().watcher_id(), "sandbox-watcher:sb1");
    }
}
