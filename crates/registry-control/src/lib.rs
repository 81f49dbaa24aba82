//! The protocol between the process that downloads an image from a registry and the command that
//! starts it. No HTTP and no TLS: a command that starts the process need not link the client.
//!
//! ```text
//!   stockade ── Request (one line of JSON on stdin) ──► download process (`stockade-server`)
//!            ◄── Event (a line each on stdout) ────────  writes an OCI layout into a directory
//! ```
//!
//! The process ends when its standard input is closed. What it writes is not trusted: the command
//! checks each digest again when it takes the layout into its store.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stockade_core::Problem;
use stockade_core::bytes::path;
use stockade_image::{Descriptor, Digest, Index, Platform};

/// The longest line in either direction, in bytes.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// The largest image that is downloaded unless the caller allows more: the sum of all blobs.
pub const DEFAULT_MAX_BYTES: u64 = 64 << 30;

/// What to download.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The directory in which the OCI layout is written. Blobs that are already there are not
    /// downloaded again.
    #[serde(with = "path")]
    pub directory: PathBuf,
    /// The registry as the reference names it, such as `docker.io` or `localhost:5000`.
    pub registry: String,
    /// The repository, such as `library/debian`.
    pub repository: String,
    /// A tag, or a digest.
    pub selector: Selector,
    /// The platform that is chosen from an index.
    pub platform: Platform,
    /// How the registry is reached.
    pub access: Access,
    /// Blobs that need not be downloaded, by digest.
    pub present: Vec<Digest>,
    /// The largest sum of all blobs.
    pub max_bytes: u64,
}

/// Which manifest of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// The one that a tag names now.
    Tag(String),
    /// The one with this digest, `sha256:…`.
    Digest(Digest),
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tag(tag) => f.write_str(tag),
            Self::Digest(digest) => write!(f, "{digest}"),
        }
    }
}

/// The manifest of an index for a platform: the one that names it, or the only one if that names no
/// platform.
#[must_use]
pub fn choose<'i>(index: &'i Index, platform: &Platform) -> Option<&'i Descriptor> {
    match index.manifests.as_slice() {
        [only] if only.platform.is_none() => Some(only),
        _ => index.select(platform),
    }
}

/// How registries are reached: the table `[registries]` of the user's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// The mirrors of the registry, which are asked first, in this order.
    pub mirrors: Vec<String>,
    /// Hosts that may be reached without TLS, each with its port if it has one.
    pub insecure: Vec<String>,
}

/// What happened during a download.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The manifest of the platform is known.
    Resolved {
        /// The host that served it.
        host: String,
        /// The digest of what the reference names: an index or a manifest.
        digest: Digest,
        /// The layers, the lowest first.
        layers: Vec<Layer>,
    },
    /// So many bytes of a blob are on the disk.
    Progress {
        /// The blob.
        digest: Digest,
        /// Its bytes so far.
        bytes: u64,
    },
    /// A download failed and is tried again.
    Retry {
        /// The blob or manifest, by its tag or digest.
        what: String,
        /// What failed.
        reason: String,
    },
    /// The layout is complete.
    Done {
        /// The digest of the manifest of the platform.
        manifest: Digest,
        /// The digest of what the reference names.
        digest: Digest,
    },
    /// The download has ended without an image.
    Failed {
        /// Why.
        problem: Problem,
    },
}

/// A layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// The digest of the blob.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Whether it was there before.
    pub present: bool,
}

#[cfg(test)]
mod tests {
    use stockade_core::Code;

    use super::*;

    #[test]
    fn messages_are_single_lines_and_come_back_the_same() {
        let request = Request {
            directory: "/data/images\n".into(),
            registry: "localhost:5000".to_owned(),
            repository: "a/b".to_owned(),
            selector: Selector::Tag("1".to_owned()),
            platform: "linux/arm/v7".parse().unwrap(),
            access: Access { mirrors: vec!["m".to_owned()], insecure: Vec::new() },
            present: Vec::new(),
            max_bytes: DEFAULT_MAX_BYTES,
        };
        let text = serde_json::to_string(&request).unwrap();
        assert!(!text.contains('\n'));
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
        let event = Event::Failed { problem: Problem::new(Code::Io, "a\nb") };
        let text = serde_json::to_string(&event).unwrap();
        assert!(!text.contains('\n'));
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
        assert!(serde_json::from_str::<Event>(r#"{"event":"other"}"#).is_err());
    }
}
