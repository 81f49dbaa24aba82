//! Images in the store of the server's own runtime. All owners can use them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_core::StoredImage;

/// Images in a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageList {
    /// The images, each by a name and a platform.
    pub images: Vec<StoredImage>,
}

/// Downloads an image into the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullImage {
    /// Its name.
    pub image: String,
    /// The platform, as `OS/ARCH[/VARIANT]`; that of the server when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
}

/// An image that is in the store now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PulledImage {
    /// The name.
    pub reference: String,
    /// The platform, as `OS/ARCH[/VARIANT]`.
    pub platform: String,
    /// The digest of its manifest.
    pub digest: String,
    /// The digest under which its repository has it.
    pub repository_digest: String,
    /// The digest of its configuration, which is its id.
    pub id: String,
    /// Whether the store did not have it before.
    pub is_new: bool,
}

/// Removes images from the store. Only a caller with the admin scope may do that: all owners use them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveImage {
    /// A name, or the start of an id.
    pub image: String,
}

/// What a removal has removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovedImages {
    /// The names.
    pub removed: Vec<String>,
    /// How much of the disk is free again.
    pub freed_bytes: u64,
}
