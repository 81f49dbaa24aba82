//! The manifest of a bundle, read back from a data directory.

use stockade_bundle::Manifest;

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

/// Reads a manifest; what was accepted must survive being written and read again.
pub(super) fn run(bytes: &[u8]) -> bool {
    let Ok(manifest) = serde_json::from_slice::<Manifest>(bytes) else { return false };
    let written = serde_json::to_vec(&manifest).unwrap_or_default();
    assert_eq!(serde_json::from_slice::<Manifest>(&written).ok().as_ref(), Some(&manifest));
    for entry in &manifest.entries {
        let path = entry.path.as_bytes();
        assert!(!path.is_empty() && path[0] != b'/' && !path.contains(&0), "{path:?}");
        assert!(path.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b"..")));
    }
    true
}
