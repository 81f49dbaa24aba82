//! Downloads of images that an operation of the caller waits for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Waits for news of a download.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaitDownload {
    /// The image, as the operation names it.
    pub image: String,
    /// The number of the last status that the caller has seen; 0 for none.
    #[serde(default)]
    pub seen: u64,
}

/// How far a download is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DownloadStatus {
    /// Grows with each change.
    pub number: u64,
    /// What it does; absent if no operation of the caller waits for a download of this image.
    pub progress: Option<DownloadProgress>,
}

/// What a download does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "stage", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DownloadProgress {
    /// It waits for another download.
    Waiting,
    /// It receives layers.
    Pulling {
        /// The host that sends them.
        host: String,
        /// How many layers the image has.
        layers: u64,
        /// How many of them are downloaded; the others are in the store.
        missing_layers: u64,
        /// How many bytes have arrived.
        received_bytes: u64,
        /// How many there are.
        total_bytes: u64,
    },
    /// All layers have arrived, and go into the store.
    Unpacking,
}
