//! Manifests and indexes, of OCI and of Docker: what they say about blobs, within limits.

use serde::Deserialize;
use stockade_registry_control::Platform;

use crate::blob::Descriptor;
use crate::digest::Digest;

/// The largest manifest, index and configuration, in bytes.
pub(crate) const MANIFEST_BYTES: u64 = 4 << 20;
pub(crate) const CONFIG_BYTES: u64 = 8 << 20;
/// The most layers of an image. (Overlays of Docker have at most 127.)
const MAX_LAYERS: usize = 512;
/// The most entries of an index.
const MAX_ENTRIES: usize = 1000;

const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// The media types that are understood, for `Accept`.
pub(crate) fn accepted() -> String {
    [OCI_INDEX, OCI_MANIFEST, DOCKER_INDEX, DOCKER_MANIFEST].join(", ")
}

/// An index or a manifest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Document {
    Index { media_type: &'static str, entries: Vec<Entry> },
    Image { media_type: &'static str, config: Descriptor, layers: Vec<Descriptor> },
}

/// An entry of an index.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) descriptor: Descriptor,
    pub(crate) platform: Option<Platform>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    schema_version: Option<u64>,
    media_type: Option<String>,
    manifests: Option<Vec<RawDescriptor>>,
    config: Option<RawDescriptor>,
    layers: Option<Vec<RawDescriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDescriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<RawPlatform>,
}

/// A platform in an index, or in the configuration of an image.
#[derive(Deserialize)]
struct RawPlatform {
    os: Option<String>,
    architecture: Option<String>,
    variant: Option<String>,
}

impl RawPlatform {
    fn known(self) -> Option<Platform> {
        let named = |text: Option<String>| text.filter(|text| is_word(text));
        let (os, architecture) = (named(self.os)?, named(self.architecture)?);
        // `unknown` is what builders write for attestations, which are no images.
        (os != "unknown").then(|| Platform { os, architecture, variant: named(self.variant) })
    }
}

/// Whether a text can be shown and compared as a part of a platform.
fn is_word(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !text.is_empty() && text.len() <= 64 && text.bytes().all(is_letter)
}

impl Document {
    /// Parses a document.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(content: &[u8]) -> Result<Self, String> {
        let raw: Raw = serde_json::from_slice(content)
            .map_err(|error| format!("its manifest is not valid JSON: {error}"))?;
        if raw.schema_version != Some(2) {
            return Err(match raw.schema_version {
                Some(1) => {
                    "its manifest has version 1 of Docker's form, which is obsolete".to_owned()
                }
                _ => "its manifest has no known version".to_owned(),
            });
        }
        let media_type = raw.media_type.as_deref();
        match (raw.manifests, raw.config, raw.layers) {
            (Some(entries), None, None) => {
                let media_type = match media_type {
                    None | Some(OCI_INDEX) => OCI_INDEX,
                    Some(DOCKER_INDEX) => DOCKER_INDEX,
                    Some(other) => return Err(format!("its index has the type {other:?}")),
                };
                if entries.len() > MAX_ENTRIES {
                    return Err(format!("its index has more than {MAX_ENTRIES} entries"));
                }
                let entry = |raw: RawDescriptor| {
                    let (descriptor, platform) = raw.checked()?;
                    Ok(Entry { descriptor, platform })
                };
                let entries = entries.into_iter().map(entry).collect::<Result<_, String>>()?;
                Ok(Self::Index { media_type, entries })
            }
            (None, Some(config), Some(layers)) => {
                let media_type = match media_type {
                    None | Some(OCI_MANIFEST) => OCI_MANIFEST,
                    Some(DOCKER_MANIFEST) => DOCKER_MANIFEST,
                    Some(other) => return Err(format!("its manifest has the type {other:?}")),
                };
                if layers.len() > MAX_LAYERS {
                    return Err(format!("its manifest has more than {MAX_LAYERS} layers"));
                }
                let (config, _) = config.checked()?;
                if config.size > CONFIG_BYTES {
                    return Err(format!("its configuration is larger than {CONFIG_BYTES} bytes"));
                }
                let layers = layers.into_iter().map(|raw| Ok(raw.checked()?.0));
                let layers = layers.collect::<Result<_, String>>()?;
                Ok(Self::Image { media_type, config, layers })
            }
            // A document that is both would be two images, for two readers.
            _ => Err("its manifest is neither an index nor an image".to_owned()),
        }
    }

    pub(crate) fn media_type(&self) -> &'static str {
        match self {
            Self::Index { media_type, .. } | Self::Image { media_type, .. } => media_type,
        }
    }
}

impl RawDescriptor {
    fn checked(self) -> Result<(Descriptor, Option<Platform>), String> {
        let digest = Digest::parse(&self.digest)
            .ok_or_else(|| "its manifest has an invalid digest".to_owned())?;
        let platform = self.platform.and_then(RawPlatform::known);
        Ok((Descriptor { media_type: self.media_type, digest, size: self.size }, platform))
    }
}

/// The entry of an index for a platform: the one with the same variant, else with a lower one.
pub(crate) fn choose<'e>(entries: &'e [Entry], wanted: &Platform) -> Option<&'e Entry> {
    let is_candidate =
        |found: &Platform| found.os == wanted.os && found.architecture == wanted.architecture;
    let level = variant(wanted);
    let candidates = entries.iter().filter_map(|entry| {
        let platform = entry.platform.as_ref().filter(|platform| is_candidate(platform))?;
        let found = variant(platform);
        (found <= level).then_some((found, entry))
    });
    // The first one of those with the highest variant.
    let best = candidates.fold(None, |best: Option<(u32, &Entry)>, next| match best {
        Some(best) if best.0 >= next.0 => Some(best),
        _ => Some(next),
    });
    best.map(|(_, entry)| entry)
}

/// A number that orders the variants of one architecture; without a variant, the usual one.
fn variant(platform: &Platform) -> u32 {
    let usual = match platform.architecture.as_str() {
        "arm" => 7,
        "arm64" => 8,
        _ => 1,
    };
    let number = |text: &String| text.strip_prefix('v').and_then(|text| text.parse().ok());
    platform.variant.as_ref().and_then(number).unwrap_or(usual)
}

/// Whether an image with this configuration runs on a platform; else the platform that it is for.
///
/// # Errors
/// The configuration is invalid.
pub(crate) fn platform_of_config(config: &[u8]) -> Result<Option<Platform>, String> {
    let raw: RawPlatform = serde_json::from_slice(config)
        .map_err(|error| format!("its configuration is not valid JSON: {error}"))?;
    Ok(raw.known())
}

/// Whether something for `found` runs where `wanted` is asked for.
pub(crate) fn fits(found: &Platform, wanted: &Platform) -> bool {
    found.os == wanted.os
        && found.architecture == wanted.architecture
        && variant(found) <= variant(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        Platform {
            os: parts.next().unwrap(),
            architecture: parts.next().unwrap(),
            variant: parts.next(),
        }
    }

    fn entries(platforms: &[&str]) -> Vec<Entry> {
        let entry = |text: &&str| Entry {
            descriptor: Descriptor {
                media_type: String::new(),
                digest: Digest::of(text.as_bytes()),
                size: 1,
            },
            platform: Some(platform(text)),
        };
        platforms.iter().map(entry).collect()
    }

    #[test]
    fn the_best_variant_is_chosen() {
        let all = entries(&[
            "linux/amd64",
            "linux/arm/v5",
            "linux/arm/v7",
            "linux/arm64/v8",
            "linux/386",
        ]);
        for (wanted, expected) in [
            ("linux/amd64", Some("linux/amd64")),
            ("linux/amd64/v3", Some("linux/amd64")),
            ("linux/arm", Some("linux/arm/v7")),
            ("linux/arm/v6", Some("linux/arm/v5")),
            ("linux/arm64", Some("linux/arm64/v8")),
            ("linux/arm64/v8", Some("linux/arm64/v8")),
            ("linux/riscv64", None),
            ("windows/amd64", None),
        ] {
            let found = choose(&all, &platform(wanted)).and_then(|entry| entry.platform.clone());
            assert_eq!(found, expected.map(platform), "{wanted}");
        }
        assert!(choose(&entries(&["linux/amd64/v3"]), &platform("linux/amd64")).is_none());
    }

    #[test]
    fn invalid_documents_are_refused_with_a_reason() {
        let blob = json!({ "digest": Digest::of(b"").as_str(), "size": 0 });
        let many: Vec<_> = vec![blob.clone(); MAX_LAYERS + 1];
        for (document, part) in [
            (json!([]), "JSON"),
            (json!({}), "no known version"),
            (json!({"schemaVersion": 1, "fsLayers": []}), "obsolete"),
            (json!({"schemaVersion": 2}), "neither"),
            (json!({"schemaVersion": 2, "config": blob, "layers": [], "manifests": []}), "neither"),
            (json!({"schemaVersion": 2, "config": blob, "layers": many}), "layers"),
            (
                json!({"schemaVersion": 2, "config": {"digest": "x", "size": 1}, "layers": []}),
                "digest",
            ),
            (
                json!({"schemaVersion": 2, "config": blob, "layers": [{"digest": "a", "size": -1}]}),
                "JSON",
            ),
            (
                json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "config": blob, "layers": []}),
                "type",
            ),
            (json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "manifests": []}), "type"),
        ] {
            let error = Document::parse(document.to_string().as_bytes()).unwrap_err();
            assert!(error.contains(part), "{document}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(Document::parse(deep.as_bytes()).is_err());
    }
}
