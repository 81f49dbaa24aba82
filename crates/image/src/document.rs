//! The JSON documents of an image: index, manifest and configuration, of OCI and of Docker's
//! schema 2, which differ only in the names of their types.
//!
//! They are input from outside: sizes are bounded before they are read, and members that are
//! missing or `null` count as empty, as older tools write them.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::digest::Digest;
use crate::platform::Platform;

/// The largest document that is read.
pub const MAX_DOCUMENT_BYTES: u64 = 4 << 20;
/// The most layers of an image; the kernel's overlay supports 500.
const MAX_LAYERS: usize = 127;
/// The most manifests of an index.
const MAX_MANIFESTS: usize = 1000;

/// A manifest or an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    /// The manifest of one image.
    Manifest(Manifest),
    /// A list of manifests, one per platform.
    Index(Index),
}

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidDocument {
    /// It is not the JSON that it should be.
    #[error("the {what} of the image cannot be read")]
    Json {
        /// Which document.
        what: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// It is too large.
    #[error("the {what} of the image is larger than {MAX_DOCUMENT_BYTES} bytes")]
    TooLarge {
        /// Which document.
        what: &'static str,
    },
    /// It is of a type that is not supported.
    #[error("the image has a document of the type {}, which is not supported", .0.escape_debug())]
    Type(String),
    /// It is Docker's schema 1, which has no digests of configurations.
    #[error("the image has a manifest of Docker's schema 1, which is not supported")]
    SchemaOne,
    /// It contradicts itself.
    #[error("the {what} of the image is invalid: {reason}")]
    Invalid {
        /// Which document.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
}

/// The type of a part of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaType {
    /// A manifest.
    Manifest,
    /// An index.
    Index,
    /// A configuration.
    Configuration,
    /// A layer without compression.
    Tar,
    /// A layer compressed by gzip.
    TarGzip,
    /// A layer compressed by Zstandard.
    TarZstd,
}

impl MediaType {
    /// The types that can be asked of a registry, of manifests and indices.
    pub const ACCEPTED: [&'static str; 4] = [
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    ];

    /// The type of a name; `None` for another one.
    pub fn of(name: &str) -> Option<Self> {
        // Registries add parameters, such as a character set.
        let name = name.split(';').next().unwrap_or(name).trim();
        Some(match name {
            "application/vnd.oci.image.manifest.v1+json"
            | "application/vnd.docker.distribution.manifest.v2+json" => Self::Manifest,
            "application/vnd.oci.image.index.v1+json"
            | "application/vnd.docker.distribution.manifest.list.v2+json" => Self::Index,
            "application/vnd.oci.image.config.v1+json"
            | "application/vnd.docker.container.image.v1+json" => Self::Configuration,
            "application/vnd.oci.image.layer.v1.tar"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar"
            | "application/vnd.docker.image.rootfs.diff.tar" => Self::Tar,
            "application/vnd.oci.image.layer.v1.tar+gzip"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
            | "application/vnd.docker.image.rootfs.diff.tar.gzip"
            | "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip" => Self::TarGzip,
            "application/vnd.oci.image.layer.v1.tar+zstd"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd"
            | "application/vnd.docker.image.rootfs.diff.tar.zstd" => Self::TarZstd,
            _ => return None,
        })
    }

    /// Whether it is the type of a layer.
    pub const fn is_layer(self) -> bool {
        matches!(self, Self::Tar | Self::TarGzip | Self::TarZstd)
    }
}

/// A reference from one part of an image to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The name of its type ([`MediaType::of`]).
    #[serde(default)]
    pub media_type: String,
    /// The digest of its content.
    pub digest: Digest,
    /// The length of its content.
    pub size: u64,
    /// The platform, in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<DescribedPlatform>,
    /// Notes; an OCI layout has the tag among them.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A platform as an index names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedPlatform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
}

impl From<&Platform> for DescribedPlatform {
    fn from(platform: &Platform) -> Self {
        let Platform { os, architecture, variant } = platform.clone();
        Self { os, architecture, variant }
    }
}

impl Descriptor {
    /// The descriptor of content of a type.
    pub fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        let media_type = media_type.to_owned();
        Self { media_type, digest, size, platform: None, annotations: BTreeMap::new() }
    }

    /// The platform in normal form, if it names one.
    pub fn platform(&self) -> Option<Platform> {
        let platform = self.platform.as_ref()?;
        Some(Platform::new(&platform.os, &platform.architecture, platform.variant.as_deref()))
    }
}

/// A list of manifests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    /// The manifests.
    #[serde(default, deserialize_with = "or_default")]
    pub manifests: Vec<Descriptor>,
}

impl Index {
    /// An index of these manifests.
    pub fn new(manifests: Vec<Descriptor>) -> Self {
        let media_type = Some("application/vnd.oci.image.index.v1+json".to_owned());
        Self { schema_version: 2, media_type, manifests }
    }

    /// The manifest for a platform: the one of exactly this platform, else the one without a
    /// variant.
    pub fn select(&self, platform: &Platform) -> Option<&Descriptor> {
        let without_variant = Platform { variant: None, ..platform.clone() };
        let of = |wanted: &Platform| {
            self.manifests.iter().find(|manifest| manifest.platform().as_ref() == Some(wanted))
        };
        of(platform).or_else(|| of(&without_variant))
    }

    /// The platforms of images; what is no image, such as a record of how one was built, has none.
    pub fn platforms(&self) -> BTreeSet<Platform> {
        let all = self.manifests.iter().filter_map(Descriptor::platform);
        all.filter(|platform| platform.os != "unknown").collect()
    }
}

/// The parts of one image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    /// The configuration.
    pub config: Descriptor,
    /// The layers, the lowest one first.
    #[serde(default, deserialize_with = "or_default")]
    pub layers: Vec<Descriptor>,
}

impl Manifest {
    /// A manifest of these parts.
    pub fn new(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        let media_type = Some("application/vnd.oci.image.manifest.v1+json".to_owned());
        Self { schema_version: 2, media_type, config, layers }
    }

    /// All parts: the configuration and the layers.
    pub fn parts(&self) -> impl Iterator<Item = &Descriptor> {
        std::iter::once(&self.config).chain(&self.layers)
    }
}

/// The configuration of an image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Configuration {
    /// The architecture.
    #[serde(default, deserialize_with = "or_default")]
    pub architecture: String,
    /// The operating system.
    #[serde(default, deserialize_with = "or_default")]
    pub os: String,
    /// The variant of the architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// How a process is started.
    #[serde(default, deserialize_with = "or_default")]
    pub config: Process,
    /// The digests of the layers' content.
    #[serde(default, deserialize_with = "or_default")]
    pub rootfs: RootFs,
}

/// How a process of an image is started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Process {
    /// The user and the group, by name or number: `user`, `user:group`; empty for root.
    #[serde(default, deserialize_with = "or_default")]
    pub user: String,
    /// The environment, as `NAME=value`.
    #[serde(default, deserialize_with = "or_default")]
    pub env: Vec<String>,
    /// What is executed; arguments are added.
    #[serde(default, deserialize_with = "or_default")]
    pub entrypoint: Vec<String>,
    /// The arguments unless others are given; the whole command where there is no entrypoint.
    #[serde(default, deserialize_with = "or_default")]
    pub cmd: Vec<String>,
    /// The working directory; empty for `/`.
    #[serde(default, deserialize_with = "or_default")]
    pub working_dir: String,
    /// The signal that asks the process to end, by name or number; empty for `SIGTERM`.
    #[serde(default, deserialize_with = "or_default")]
    pub stop_signal: String,
    /// Directories with writable content of their own.
    #[serde(default, deserialize_with = "or_default")]
    pub volumes: BTreeMap<String, Empty>,
    /// The ports that the process listens on, such as `80/tcp`.
    #[serde(default, deserialize_with = "or_default")]
    pub exposed_ports: BTreeMap<String, Empty>,
    /// Notes.
    #[serde(default, deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
}

/// The empty object that is the value of each member of a set in these documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Empty {}

/// The digests of the layers' content.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RootFs {
    /// `layers`.
    #[serde(rename = "type", default, deserialize_with = "or_default")]
    pub kind: String,
    /// The digests of the uncompressed layers, the lowest one first.
    #[serde(default, deserialize_with = "or_default")]
    pub diff_ids: Vec<Digest>,
}

impl Configuration {
    /// The platform that the image is made for.
    pub fn platform(&self) -> Platform {
        Platform::new(&self.os, &self.architecture, self.variant.as_deref())
    }
}

impl Document {
    /// Reads a manifest or an index. `media_type` is the type that the source of the document
    /// gave, where it gave one; the document's own type must be the same.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &[u8], media_type: Option<&str>) -> Result<Self, InvalidDocument> {
        /// What tells the two apart. An index that is read as a manifest, or the reverse, would
        /// be another image with the same digest.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Head {
            schema_version: u32,
            #[serde(default)]
            media_type: Option<String>,
            manifests: Option<IgnoredAny>,
            config: Option<IgnoredAny>,
            layers: Option<IgnoredAny>,
        }
        let head: Head = parse(text, "manifest")?;
        if head.schema_version == 1 {
            return Err(InvalidDocument::SchemaOne);
        }
        let invalid =
            |reason: &str| InvalidDocument::Invalid { what: "manifest", reason: reason.to_owned() };
        if head.schema_version != 2 {
            return Err(invalid("its schema version is not 2"));
        }
        let is_index = head.manifests.is_some();
        if is_index && (head.config.is_some() || head.layers.is_some()) {
            return Err(invalid("it is a manifest and an index at once"));
        }
        let generic = |name: &&str| !matches!(*name, "" | "application/json" | "text/plain");
        for name in [media_type, head.media_type.as_deref()].into_iter().flatten().filter(generic) {
            match (MediaType::of(name), is_index) {
                (Some(MediaType::Manifest), false) | (Some(MediaType::Index), true) => {}
                (Some(MediaType::Manifest | MediaType::Index), _) => {
                    return Err(invalid("its type contradicts its content"));
                }
                _ => return Err(InvalidDocument::Type(name.to_owned())),
            }
        }
        if is_index {
            let index: Index = parse(text, "index")?;
            if index.manifests.len() > MAX_MANIFESTS {
                return Err(invalid("it has too many manifests"));
            }
            return Ok(Self::Index(index));
        }
        let manifest: Manifest = parse(text, "manifest")?;
        if manifest.layers.is_empty() {
            return Err(invalid("it has no layers"));
        }
        if manifest.layers.len() > MAX_LAYERS {
            return Err(invalid(&format!("it has more than {MAX_LAYERS} layers")));
        }
        for layer in &manifest.layers {
            if !MediaType::of(&layer.media_type).is_some_and(MediaType::is_layer) {
                return Err(InvalidDocument::Type(layer.media_type.clone()));
            }
        }
        if MediaType::of(&manifest.config.media_type) != Some(MediaType::Configuration) {
            return Err(InvalidDocument::Type(manifest.config.media_type));
        }
        Ok(Self::Manifest(manifest))
    }
}

impl Configuration {
    /// Reads a configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, InvalidDocument> {
        parse(text, "configuration")
    }
}

fn parse<'a, T: Deserialize<'a>>(text: &'a [u8], what: &'static str) -> Result<T, InvalidDocument> {
    if text.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(InvalidDocument::TooLarge { what });
    }
    serde_json::from_slice(text).map_err(|source| InvalidDocument::Json { what, source })
}

/// Reads a member that may be missing or `null`.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"{"mediaType":"application/vnd.oci.image.config.v1+json",
        "digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":0}"#;

    fn of(text: &str) -> Result<Document, InvalidDocument> {
        Document::parse(text.as_bytes(), None)
    }

    #[test]
    fn documents_are_told_apart_by_their_content_and_must_agree_with_their_type() {
        let layer = CONFIG.replace("config.v1+json", "layer.v1.tar");
        let manifest = format!(r#"{{"schemaVersion":2,"config":{CONFIG},"layers":[{layer}]}}"#);
        assert!(matches!(of(&manifest), Ok(Document::Manifest(_))));
        assert!(matches!(of(r#"{"schemaVersion":2,"manifests":[]}"#), Ok(Document::Index(_))));
        let both = format!(r#"{{"schemaVersion":2,"config":{CONFIG},"layers":[],"manifests":[]}}"#);
        for wrong in [
            both.as_str(),
            r#"{"schemaVersion":1,"fsLayers":[]}"#,
            r#"{"schemaVersion":3,"manifests":[]}"#,
            r#"{"schemaVersion":2,"manifests":[],"mediaType":"application/x"}"#,
            r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","manifests":[]}"#,
            r#"{"schemaVersion":2}"#,
            &format!(r#"{{"schemaVersion":2,"config":{CONFIG},"layers":null}}"#),
            "[]",
            "",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        let listed =
            Some("application/vnd.docker.distribution.manifest.list.v2+json; charset=utf-8");
        assert!(Document::parse(manifest.as_bytes(), listed).is_err());
        assert!(Document::parse(br#"{"schemaVersion":2,"manifests":[]}"#, listed).is_ok());
    }

    #[test]
    fn a_layer_of_an_unknown_type_is_refused() {
        let layer = CONFIG.replace("config.v1+json", "layer.v1.tar+encrypted");
        let text = format!(r#"{{"schemaVersion":2,"config":{CONFIG},"layers":[{layer}]}}"#);
        assert!(matches!(of(&text), Err(InvalidDocument::Type(_))));
    }

    #[test]
    fn documents_have_a_size_and_a_number_of_parts() {
        let layer = CONFIG.replace("config.v1+json", "layer.v1.tar");
        let with = |count: usize| {
            let layers = vec![layer.as_str(); count].join(",");
            of(&format!(r#"{{"schemaVersion":2,"config":{CONFIG},"layers":[{layers}]}}"#))
        };
        assert!(with(MAX_LAYERS).is_ok());
        assert!(matches!(with(MAX_LAYERS + 1), Err(InvalidDocument::Invalid { .. })));
        let index = |count: usize| {
            let manifests = vec![CONFIG; count].join(",");
            of(&format!(r#"{{"schemaVersion":2,"manifests":[{manifests}]}}"#))
        };
        assert!(index(MAX_MANIFESTS).is_ok());
        assert!(index(MAX_MANIFESTS + 1).is_err());
        let mut giant = br#"{"schemaVersion":2,"manifests":[]"#.to_vec();
        giant.resize(usize::try_from(MAX_DOCUMENT_BYTES).unwrap(), b' ');
        giant.push(b'}');
        let refused = Document::parse(&giant, None);
        assert!(matches!(refused, Err(InvalidDocument::TooLarge { .. })), "{refused:?}");
        let nested = "[".repeat(100_000);
        let refused = of(&format!(r#"{{"schemaVersion":2,"manifests":{nested}"#));
        assert!(matches!(refused, Err(InvalidDocument::Json { .. })), "{refused:?}");
    }

    #[test]
    fn missing_members_of_a_configuration_are_empty() {
        let text = r#"{"os":"linux","architecture":"amd64","config":{"Env":null,"Cmd":null,
            "Volumes":{"/data":{}},"OnBuild":null},"rootfs":{"type":"layers"}}"#;
        let read = Configuration::parse(text.as_bytes()).unwrap();
        assert_eq!(read.platform(), Platform::new("linux", "amd64", None));
        assert_eq!(read.config.volumes.keys().collect::<Vec<_>>(), ["/data"]);
        assert_eq!(Configuration::parse(b"{}").unwrap(), Configuration::default());
    }

    #[test]
    fn the_platform_is_chosen_by_its_variant() {
        let manifests: Vec<Descriptor> = ["linux/arm/v6", "linux/arm/v7", "linux/amd64"]
            .iter()
            .map(|name| Descriptor {
                media_type: MediaType::ACCEPTED[1].to_owned(),
                digest: Digest::of(name.as_bytes()),
                size: 1,
                platform: Some((&name.parse::<Platform>().unwrap()).into()),
                annotations: BTreeMap::new(),
            })
            .collect();
        let index = Index::new(manifests);
        let chosen =
            |name: &str| index.select(&name.parse().unwrap()).map(|found| found.digest.clone());
        assert_eq!(chosen("linux/arm"), Some(Digest::of(b"linux/arm/v7")));
        assert_eq!(chosen("linux/arm/v6"), Some(Digest::of(b"linux/arm/v6")));
        assert_eq!(chosen("linux/s390x"), None);
        assert_eq!(index.platforms().len(), 3);
    }
}
