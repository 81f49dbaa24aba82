//! An image in a store, as lists show it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A name in a store of images, for one platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredImage {
    /// The name.
    pub reference: String,
    /// The platform, as `OS/ARCH[/VARIANT]`.
    pub platform: String,
    /// The digest of its configuration, which is its id.
    pub id: String,
    /// The digest of its manifest.
    pub digest: String,
    /// The digest under which its repository has it: that of the index that it was chosen from, or of
    /// its manifest.
    pub repository_digest: String,
    /// The size of its parts as they were fetched.
    pub size_bytes: u64,
    /// When it was made, as its configuration says.
    pub created_at: Option<String>,
    /// When it was added, in RFC 3339.
    pub added_at: String,
}
