//! Limits on the size of a bundle. One validator, several profiles.

use serde::Serialize;

/// The limits that are checked when a bundle is read and when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BundleLimits {
    /// The name of the profile, for error messages.
    pub profile: &'static str,
    /// All file contents of the bundle together, in bytes.
    pub total_bytes: u64,
    /// The manifest (`README.md` in a `<Sandbox>` bundle), in bytes.
    pub manifest_bytes: u64,
    /// How many changed paths (patches) one bundle may contain.
    pub entries: u64,
    /// The length of one path, in bytes.
    pub path_bytes: u64,
}

impl BundleLimits {
    /// The limits of `<Sandbox>` bundles (Smithers, "Bundle limits").
    pub const SANDBOX: Self = Self {
        profile: "sandbox",
        total_bytes: 100 << 20,
        manifest_bytes: 5 << 20,
        entries: 1_000,
        path_bytes: 1_024,
    };

    /// The limits of `stockade run`; `--max-bundle` raises `total_bytes`.
    pub const RUN: Self = Self {
        profile: "run",
        total_bytes: 4 << 30,
        manifest_bytes: 256 << 20,
        entries: 200_000,
        path_bytes: 4_096,
    };
}
