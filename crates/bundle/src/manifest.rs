//! The manifest of a bundle: one entry for each changed path, with the hashes of the old and
//! the new content.
//!
//! The bytes of the manifest are written once. Their BLAKE3 hash is the bundle's id, so a
//! bundle whose manifest was altered is not found.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::path::{RelativePath, bytes_as_json};

/// The version of the manifest format that this build writes and reads.
pub const VERSION: u32 = 1;

/// A BLAKE3 hash of a file's content, as 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash([u8; 32]);

/// The file, link or directory at a path, before or after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum Node {
    /// A regular file.
    File {
        /// The hash of its content.
        hash: ContentHash,
        /// Its length in bytes.
        size: u64,
        /// Its permission bits (0o777 at most: set-id and sticky bits never travel).
        mode: u32,
    },
    /// A symbolic link.
    Symlink {
        /// Its target, as written.
        #[serde(with = "bytes_as_json")]
        target: Vec<u8>,
    },
    /// A directory.
    Directory {
        /// Its permission bits (0o777 at most).
        mode: u32,
    },
}

/// The kind of change at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "lowercase", deny_unknown_fields)]
pub enum Change {
    /// The path did not exist; now `new` is there.
    Add {
        /// The new node.
        new: Node,
    },
    /// `old` was there; now `new` is.
    Modify {
        /// The old node.
        old: Node,
        /// The new node.
        new: Node,
    },
    /// `old` was there; now the path does not exist.
    Delete {
        /// The old node.
        old: Node,
    },
}

/// Why an entry can never be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// It is a `.git`, or lies in one (in any letter case or disguise that a file system folds).
    GitDirectory,
    /// It creates or changes a directory that git takes for a bare repository.
    BareRepository,
    /// It is a symbolic link whose target is absolute or leaves the project.
    LinkLeaves,
    /// It is a socket, pipe or device.
    SpecialFile,
    /// Its path is longer than the limit.
    PathTooLong,
}

/// The kind of host tool that runs a file automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutedBy {
    /// Git or a hook manager.
    Hooks,
    /// The shell, on entering the directory (`.envrc` and its kind).
    Shell,
    /// An editor or agent, on opening the directory.
    Editor,
    /// A continuous-integration service.
    Ci,
    /// A build tool or package manager, through its own configuration.
    Build,
}

/// The changes in an ignored directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IgnoredTree {
    /// The hash of the listing: the entries at and below the directory.
    pub listing: ContentHash,
    /// The number of entries.
    pub paths: u64,
    /// The size of their new contents together, in bytes.
    pub bytes: u64,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The path below the project's root.
    pub path: RelativePath,
    /// The change.
    #[serde(flatten)]
    pub change: Change,
    /// For an `Add`: the deleted path that had this content. The two are applied together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed_from: Option<RelativePath>,
    /// Whether git ignores the path; such an entry is applied only on request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
    /// Set when the entry can never be applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
    /// Set when a host tool would run the file automatically; the entry then needs explicit
    /// acceptance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed_by: Option<ExecutedBy>,
    /// The host changed the path after the view was created and before the bundle was created.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict: bool,
    /// Whether the old node is that from the start of the view, although the host changed the path
    /// since. Without it, the old node of a path in conflict is what the host had when the bundle was
    /// created.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base_known: bool,
    /// For an ignored directory with many changed paths: the changes in it, which have no entries of
    /// their own here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<IgnoredTree>,
}

/// How copy-on-write was implemented for the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ViewKind {
    /// An overlay with the project as its lower layer.
    Overlay,
    /// A plain copy of the project.
    Copy,
}

/// The description of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// [`VERSION`].
    pub version: u32,
    /// The absolute path of the project's root on the host.
    #[serde(with = "bytes_as_json")]
    pub project: Vec<u8>,
    /// When the bundle was created, in milliseconds since the epoch.
    pub created_at_ms: u64,
    /// The command that made the changes, in readable form.
    pub command: Vec<String>,
    /// Labels by which the bundle can be found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The digest of the image that the command ran in, if it ran in one of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The exit code of the command, as `stockade run` returned it.
    pub exit_code: u8,
    /// The commit that the project's HEAD named when the view was created, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_ref: Option<String>,
    /// How the view was implemented.
    pub view: ViewKind,
    /// The changed paths, sorted by path, each at most once.
    pub entries: Vec<Entry>,
}

impl Entry {
    /// An entry without marks.
    pub fn new(path: RelativePath, change: Change) -> Self {
        Self {
            path,
            change,
            renamed_from: None,
            ignored: false,
            refused: None,
            executed_by: None,
            conflict: false,
            base_known: false,
            tree: None,
        }
    }
}

impl Change {
    /// The old node, if there was one.
    pub fn old(&self) -> Option<&Node> {
        match self {
            Self::Add { .. } => None,
            Self::Modify { old, .. } | Self::Delete { old } => Some(old),
        }
    }

    /// The new node, if there is one.
    pub fn new_node(&self) -> Option<&Node> {
        match self {
            Self::Add { new } | Self::Modify { new, .. } => Some(new),
            Self::Delete { .. } => None,
        }
    }
}

impl ContentHash {
    /// Hashes `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The hash as 64 lower-case hexadecimal digits.
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// Reads 64 lower-case hexadecimal digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        if hex.bytes().any(|b| b.is_ascii_uppercase()) {
            return None;
        }
        blake3::Hash::from_hex(hex).ok().map(|hash| Self(*hash.as_bytes()))
    }
}

impl From<blake3::Hash> for ContentHash {
    fn from(hash: blake3::Hash) -> Self {
        Self(*hash.as_bytes())
    }
}

impl Serialize for ContentHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let hex = String::deserialize(deserializer)?;
        Self::from_hex(&hex).ok_or_else(|| serde::de::Error::custom("not a BLAKE3 hash"))
    }
}
