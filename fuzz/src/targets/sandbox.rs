//! The `README.md` of a `<Sandbox>` result bundle, which the sandbox wrote.

use serde_json::Value;
use stockade_bundle::RelativePath;
use stockade_bundle::sandbox::SandboxManifest;
use stockade_core::BundleLimits;

/// Words of the format.
pub(super) const WORDS: &[&str] = &[
    "\"status\":\"finished\"",
    "\"status\":\"failed\"",
    "\"runId\":",
    "\"outputs\":",
    "\"patches\":[",
    "\"patches/a.patch\"",
    "\"patches/../x\"",
    "\"diffBundle\":{",
    "\"seq\":1",
    "\"baseRef\":\"HEAD\"",
    "\"path\":",
    "\"operation\":\"add\"",
    "\"operation\":\"modify\"",
    "\"operation\":\"delete\"",
    "\"diff\":\"\"",
    "\"binaryContent\":\"AAE=\"",
    "\"../x\"",
    "\"/etc/passwd\"",
    "\"a//b\"",
    "\"\\u0000\"",
    "\\ud800",
    "[[[[[[[[[[[[[[[[[",
    "null",
    "true",
    "1e400",
    "[",
    "]",
    "{",
    "}",
    ",",
];

/// Reads a manifest. What was accepted keeps its paths where they belong and its outputs within
/// the limits of Smithers.
pub(super) fn run(bytes: &[u8]) -> bool {
    let limits = &BundleLimits::SANDBOX;
    let Ok(manifest) = SandboxManifest::parse(bytes, limits) else { return false };
    assert!(manifest.run_id.is_none_or(|id| id.chars().count() <= 256));
    assert!(depth(&manifest.outputs) <= 16, "{}", manifest.outputs);
    assert!(manifest.patches.len() as u64 <= limits.entries);
    for path in &manifest.patches {
        assert!(path.as_bytes().starts_with(b"patches/"), "{path:?}");
        stays_below(path, limits);
    }
    for patch in manifest.diff_bundle.iter().flat_map(|bundle| &bundle.patches) {
        stays_below(&patch.path, limits);
    }
    true
}

fn stays_below(path: &RelativePath, limits: &BundleLimits) {
    assert!(path.as_bytes().len() as u64 <= limits.path_bytes, "{path:?}");
    let mut parts = path.as_bytes().split(|byte| *byte == b'/');
    assert!(parts.all(|part| !matches!(part, b"" | b"." | b"..")), "{path:?}");
    assert!(!path.as_bytes().contains(&0), "{path:?}");
}

/// How many arrays and objects lie in each other.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
