//! Writing an image to an archive: the same image gives the same bytes.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde_json::json;

use crate::digest::Digest;
use crate::document::{Descriptor, Index};
use crate::reference::Reference;
use crate::store::{Error, Image, Store};

/// The form of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// An OCI layout.
    Oci,
    /// The form of `docker save`: an OCI layout with a `manifest.json`, which `docker load` reads.
    Docker,
}

/// Writes an image in this form.
///
/// # Errors
/// A part is missing or damaged, or writing fails.
pub fn export(
    store: &Store,
    image: &Image,
    name: Option<&Reference>,
    format: Format,
    to: impl Write,
) -> Result<(), Error> {
    let manifest = store.read_document(&image.digest)?;
    let mut annotations = BTreeMap::new();
    if let Some(name) = name {
        if let Some(tag) = name.tag() {
            let key = "org.opencontainers.image.ref.name".to_owned();
            annotations.insert(key, tag.to_owned());
        }
        annotations.insert("io.containerd.image.name".to_owned(), name.to_string());
    }
    let descriptor = Descriptor {
        media_type: "application/vnd.oci.image.manifest.v1+json".to_owned(),
        digest: image.digest.clone(),
        size: manifest.len() as u64,
        platform: Some((&image.configuration.platform()).into()),
        annotations,
    };
    let failed = |source: io::Error| Error::Io { operation: "export an image", source };
    let json = |value: serde_json::Result<Vec<u8>>| value.map_err(|error| failed(error.into()));
    let mut archive = Archive(tar::Builder::new(to));
    let mut blobs = BTreeMap::from([(image.digest.clone(), manifest.len() as u64)]);
    blobs.extend(image.manifest.parts().map(|part| (part.digest.clone(), part.size)));
    archive.directory("blobs/").map_err(failed)?;
    archive.directory("blobs/sha256/").map_err(failed)?;
    for (digest, size) in &blobs {
        let file = store.open_blob(digest)?.ok_or_else(|| Error::MissingBlob(digest.clone()))?;
        let mut content = crate::Sha256Stream::new(file);
        archive.file(&path(digest), *size, &mut content).map_err(failed)?;
        let (found, length) = content.finish();
        if found != *digest {
            return Err(Error::Digest { expected: digest.clone(), found });
        }
        if length != *size {
            return Err(Error::Size { digest: digest.clone(), expected: *size, found: length });
        }
    }
    let index = json(serde_json::to_vec(&Index::new(vec![descriptor])))?;
    archive.file("index.json", index.len() as u64, &mut index.as_slice()).map_err(failed)?;
    if format == Format::Docker {
        let tags: Vec<String> = name.into_iter().filter_map(tagged).collect();
        let list = json!([{
            "Config": path(&image.manifest.config.digest),
            "RepoTags": tags,
            "Layers": image.manifest.layers.iter().map(|layer| path(&layer.digest)).collect::<Vec<_>>(),
        }]);
        let list = list.to_string();
        archive.file("manifest.json", list.len() as u64, &mut list.as_bytes()).map_err(failed)?;
    }
    let layout = r#"{"imageLayoutVersion":"1.0.0"}"#;
    archive.file("oci-layout", layout.len() as u64, &mut layout.as_bytes()).map_err(failed)?;
    archive.0.into_inner().and_then(|mut to| to.flush()).map_err(failed)
}

/// A name with its tag and without a digest, as `docker load` expects it.
fn tagged(name: &Reference) -> Option<String> {
    Some(name.with_tag(name.tag()?).ok()?.familiar())
}

fn path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// An archive whose entries have the same owner and time.
struct Archive<W: Write>(tar::Builder<W>);

impl<W: Write> Archive<W> {
    fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(size);
        header
    }

    fn directory(&mut self, name: &str) -> io::Result<()> {
        let mut header = Self::header(tar::EntryType::Directory, 0o755, 0);
        self.0.append_data(&mut header, name, io::empty())
    }

    fn file(&mut self, name: &str, size: u64, content: &mut impl Read) -> io::Result<()> {
        let mut header = Self::header(tar::EntryType::Regular, 0o644, size);
        self.0.append_data(&mut header, name, content)
    }
}
