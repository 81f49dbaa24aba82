//! The manifest of a bundle, read back from a data directory.

use stockade_bundle::Manifest;
use stockade_core::BundleLimits;

/// Words of the format.
pub(super) const WORDS: &[&str] = &[
    "\"version\":1",
    "\"project\":",
    "\"entries\":[",
    "\"path\":",
    "\"operation\":\"add\"",
    "\"operation\":\"modify\"",
    "\"operation\":\"delete\"",
    "\"type\":\"file\"",
    "\"type\":\"symlink\"",
    "\"type\":\"directory\"",
    "\"new\":",
    "\"old\":",
    "\"target\":",
    "\"mode\":",
    "\"size\":",
    "{\"base64\":\"Li4=\"}",
    "\"..\"",
    "\"../x\"",
    "\"/etc/passwd\"",
    "\".git/config\"",
    "\"a//b\"",
    "\"\\u0000\"",
    "null",
    "true",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\\ud800",
];

/// Reads a manifest. What was accepted keeps within its limits, refuses what must be refused,
/// and survives being written and read again.
pub(super) fn run(bytes: &[u8]) -> bool {
    let limits = &BundleLimits::SANDBOX;
    let Ok(manifest) = Manifest::parse(bytes, limits) else { return false };
    assert!(manifest.entries.len() as u64 <= limits.entries);
    for pair in manifest.entries.windows(2) {
        assert!(pair[0].path < pair[1].path, "{:?}", pair[1].path);
    }
    for entry in &manifest.entries {
        let path = entry.path.as_bytes();
        assert!(!path.is_empty() && path[0] != b'/' && !path.contains(&0), "{path:?}");
        let mut parts = path.split(|byte| *byte == b'/');
        assert!(parts.clone().all(|part| !matches!(part, b"" | b"." | b"..")), "{path:?}");
        let in_git = parts.any(|part| part.eq_ignore_ascii_case(b".git"));
        assert!(!in_git || entry.refused.is_some(), "{path:?} may be applied");
    }
    let written = manifest.to_bytes(limits).unwrap_or_default();
    assert_eq!(Manifest::parse(&written, limits).ok().as_ref(), Some(&manifest));
    true
}
