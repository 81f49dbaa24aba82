//! The documents of an image: manifest, index and configuration.

use stockade_image::{Configuration, Document, Platform};

/// Members of these documents.
pub(super) const WORDS: &[&str] = &[
    "\"schemaVersion\":2",
    "\"mediaType\":\"application/vnd.oci.image.index.v1+json\"",
    "\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\"",
    "\"mediaType\":\"application/vnd.docker.distribution.manifest.v2+json\"",
    "\"manifests\":[",
    "\"layers\":[",
    "\"config\":{",
    "\"digest\":\"sha256:",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "\"size\":18446744073709551615",
    "\"platform\":{\"os\":\"linux\",\"architecture\":\"arm\",\"variant\":\"v7\"}",
    "\"annotations\":null",
    "\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[",
    "\"Volumes\":{\"/data\":{}}",
    "\"User\":\"a:b\"",
    "null",
    "[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":",
    "]",
    "}",
    ",",
];

/// Reads a document. What was accepted is of one kind, and is the same when it is written and read.
pub(super) fn run(bytes: &[u8]) -> bool {
    let read = Document::parse(bytes, None);
    match &read {
        Ok(Document::Manifest(manifest)) => {
            assert!(!manifest.layers.is_empty());
            let text = serde_json::to_vec(manifest).unwrap_or_default();
            assert_eq!(Document::parse(&text, None).ok().as_ref(), read.as_ref().ok());
            return true;
        }
        Ok(Document::Index(index)) => {
            let platforms = index.platforms();
            assert!(platforms.iter().all(|platform| index.select(platform).is_some()));
            // It may be the one that this host needs, or not.
            let _ = index.select(&Platform::host());
            return true;
        }
        Err(_) => {}
    }
    Configuration::parse(bytes).is_ok_and(|configuration| {
        let text = serde_json::to_vec(&configuration).unwrap_or_default();
        assert!(Configuration::parse(&text).is_ok_and(|again| again == configuration));
        !configuration.rootfs.diff_ids.is_empty()
    })
}
