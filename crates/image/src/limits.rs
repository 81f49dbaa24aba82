//! The limits on one image.

/// Limits on one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of one blob.
    pub blob_bytes: u64,
    /// The most bytes that one layer has when it is unpacked.
    pub layer_bytes: u64,
    /// The most bytes that all layers of one image have when they are unpacked.
    pub image_bytes: u64,
    /// How long unpacking one layer may take: its links and deletions decide how much there is to
    /// look up.
    pub layer_seconds: u64,
    /// The most entries of one layer.
    pub layer_entries: u64,
    /// The most bytes of unpacked content for each byte of compressed content, beyond a gigabyte
    /// that every layer may have.
    pub ratio: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            blob_bytes: 32 << 30,
            layer_bytes: 32 << 30,
            image_bytes: 64 << 30,
            layer_seconds: 60 * 60,
            layer_entries: 2_000_000,
            ratio: 200,
        }
    }
}
