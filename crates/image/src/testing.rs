//! Layers and images as tests need them, also such as no tool would make.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use tar::{Builder, EntryType, Header};

use crate::digest::Digest;
use crate::document::{Configuration, Descriptor, Index, Manifest, Process, RootFs};
use crate::platform::Platform;

/// A layer that is being made. Names are written as they are.
pub(crate) struct Layer {
    archive: Builder<Vec<u8>>,
    owner: (u64, u64),
    mode: u32,
}

impl Layer {
    pub(crate) fn new() -> Self {
        Self { archive: Builder::new(Vec::new()), owner: (0, 0), mode: 0o644 }
    }

    /// The owner of the entries that follow.
    pub(crate) fn owner(mut self, user: u64, group: u64) -> Self {
        self.owner = (user, group);
        self
    }

    /// The mode of the files that follow.
    pub(crate) fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    pub(crate) fn directory(self, name: &str) -> Self {
        let mode = self.mode;
        self.mode(0o755).entry(EntryType::Directory, name, "", b"").mode(mode)
    }

    pub(crate) fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        self.entry(EntryType::Regular, name, "", content.as_ref())
    }

    pub(crate) fn link(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, name, target, b"")
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Link, name, target, b"")
    }

    /// Extension records of the next entry, in PAX format.
    pub(crate) fn pax(mut self, records: &[(&str, &[u8])]) -> Self {
        self.archive.append_pax_extensions(records.iter().copied()).unwrap();
        self
    }

    /// An entry with exactly this name and target, of at most 100 bytes each.
    pub(crate) fn entry(mut self, kind: EntryType, name: &str, to: &str, content: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(self.mode);
        header.set_uid(self.owner.0);
        header.set_gid(self.owner.1);
        header.set_mtime(1_000_000_000);
        header.set_size(content.len() as u64);
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..to.len()].copy_from_slice(to.as_bytes());
        header.set_cksum();
        self.archive.append(&header, content).unwrap();
        self
    }

    /// An entry by a header of the test's own.
    pub(crate) fn raw(mut self, header: &Header, content: &[u8]) -> Self {
        self.archive.append(header, content).unwrap();
        self
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.archive.into_inner().unwrap()
    }
}

/// Compresses by gzip.
pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(content).unwrap();
    writer.finish().unwrap()
}

/// The documents and blobs of an image.
pub(crate) struct Parts {
    pub(crate) manifest: Vec<u8>,
    pub(crate) blobs: Vec<Vec<u8>>,
}

/// An image of these layers, as they are and compressed.
pub(crate) fn parts(layers: &[Vec<u8>], process: Process) -> Parts {
    parts_for(&Platform::host(), layers, process)
}

/// The same for a platform.
pub(crate) fn parts_for(platform: &Platform, layers: &[Vec<u8>], process: Process) -> Parts {
    let configuration = Configuration {
        architecture: platform.architecture.clone(),
        os: platform.os.clone(),
        variant: platform.variant.clone(),
        config: process,
        rootfs: RootFs {
            kind: "layers".to_owned(),
            diff_ids: layers.iter().map(|layer| Digest::of(layer)).collect(),
        },
        ..Configuration::default()
    };
    let configuration = serde_json::to_vec(&configuration).unwrap();
    let mut blobs: Vec<Vec<u8>> = layers.iter().map(|layer| gzip(layer)).collect();
    let describe = |kind: &str, content: &[u8]| {
        Descriptor::new(kind, Digest::of(content), content.len() as u64)
    };
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    let layers = blobs.iter().map(|blob| describe(kind, blob)).collect();
    let config = describe("application/vnd.oci.image.config.v1+json", &configuration);
    let manifest = serde_json::to_vec(&Manifest::new(config, layers)).unwrap();
    blobs.push(configuration);
    Parts { manifest, blobs }
}

/// Writes an OCI layout with images by their tags.
pub(crate) fn write_layout(at: &Path, images: &[(&str, &Parts)]) {
    let blobs = at.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let put = |content: &[u8]| {
        std::fs::write(blobs.join(Digest::of(content).hex()), content).unwrap();
    };
    let mut manifests = Vec::new();
    for (tag, image) in images {
        image.blobs.iter().for_each(|blob| put(blob));
        put(&image.manifest);
        let digest = Digest::of(&image.manifest);
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let mut entry = Descriptor::new(kind, digest, image.manifest.len() as u64);
        let name = "org.opencontainers.image.ref.name".to_owned();
        entry.annotations = BTreeMap::from([(name, (*tag).to_owned())]);
        manifests.push(entry);
    }
    std::fs::write(at.join("index.json"), serde_json::to_vec(&Index::new(manifests)).unwrap())
        .unwrap();
    std::fs::write(at.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}
