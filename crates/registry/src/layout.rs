//! The directory in which an image is put together: an OCI layout. A blob has its final name only
//! when its digest is right, and `index.json` is written last.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde_json::json;

use stockade_image::{Digest, Sha256Stream};

use crate::error::Error;

/// An OCI layout that is being written.
#[derive(Debug)]
pub(crate) struct Layout {
    directory: PathBuf,
}

/// The part of a blob that has been downloaded.
pub(crate) struct Partial {
    file: File,
    pub(crate) path: PathBuf,
    hasher: Sha256Stream<io::Sink>,
    pub(crate) length: u64,
}

impl Layout {
    /// Opens or creates a layout.
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        let layout = Self { directory: directory.to_owned() };
        let blobs = directory.join("blobs/sha256");
        std::fs::create_dir_all(&blobs).map_err(|source| write_error(&blobs, source))?;
        layout.replace(
            "oci-layout",
            json!({ "imageLayoutVersion": "1.0.0" }).to_string().as_bytes(),
        )?;
        Ok(layout)
    }

    fn blob(&self, digest: &Digest) -> PathBuf {
        self.directory.join("blobs/sha256").join(digest.hex())
    }

    /// Whether a blob of this size is complete.
    pub(crate) fn has(&self, digest: &Digest, size: u64) -> bool {
        let found = std::fs::symlink_metadata(self.blob(digest));
        found.is_ok_and(|metadata| metadata.is_file() && metadata.len() == size)
    }

    /// The content of a small blob that is complete.
    pub(crate) fn read(&self, digest: &Digest) -> Result<Vec<u8>, Error> {
        let path = self.blob(digest);
        std::fs::read(&path).map_err(|source| write_error(&path, source))
    }

    /// Writes a small blob, whose digest was checked.
    pub(crate) fn add(&self, digest: &Digest, content: &[u8]) -> Result<(), Error> {
        self.replace(&format!("blobs/sha256/{}", digest.hex()), content)
    }

    /// The part of a blob that an earlier download left; empty if there is none, or if it is longer
    /// than the blob.
    pub(crate) fn partial(&self, digest: &Digest, size: u64) -> Result<Partial, Error> {
        let path = self.blob(digest).with_extension("partial");
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits()).unwrap_or_default();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        let file = options.open(&path).map_err(|source| write_error(&path, source))?;
        let mut partial = Partial { file, path, hasher: Sha256Stream::new(io::sink()), length: 0 };
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = partial.file.read(&mut buffer);
            let count = read.map_err(|source| write_error(&partial.path, source))?;
            if count == 0 {
                break;
            }
            partial.hash(&buffer[..count]);
            if partial.length > size {
                partial.clear()?;
                break;
            }
        }
        Ok(partial)
    }

    /// Gives a complete blob its final name.
    pub(crate) fn complete(&self, partial: Partial, digest: &Digest) -> Result<(), Error> {
        let Partial { file, path, .. } = partial;
        let renamed = file.sync_data().and_then(|()| std::fs::rename(&path, self.blob(digest)));
        renamed.map_err(|source| write_error(&path, source))
    }

    /// Writes `index.json`, which makes the layout complete.
    pub(crate) fn finish(&self, media_type: &str, digest: &Digest, size: u64) -> Result<(), Error> {
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{ "mediaType": media_type, "digest": digest, "size": size }],
        });
        self.replace("index.json", index.to_string().as_bytes())
    }

    /// Replaces a small file, all or nothing.
    fn replace(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let path = self.directory.join(name);
        let new = path.with_extension("new");
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(content)?;
            file.sync_data()?;
            std::fs::rename(&new, &path)
        };
        write().map_err(|source| write_error(&path, source))
    }
}

impl Partial {
    fn hash(&mut self, part: &[u8]) {
        // Into a sink this cannot fail.
        let _ = self.hasher.write_all(part);
        self.length += part.len() as u64;
    }

    /// The digest of what has been downloaded; after this, nothing can be appended.
    pub(crate) fn digest(&mut self) -> Digest {
        std::mem::replace(&mut self.hasher, Sha256Stream::new(io::sink())).finish().0
    }

    /// Appends a part.
    pub(crate) fn append(&mut self, part: &[u8]) -> Result<(), Error> {
        self.file.write_all(part).map_err(|source| write_error(&self.path, source))?;
        self.hash(part);
        Ok(())
    }

    /// Starts again at the first byte.
    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        use std::io::Seek as _;
        let cleared = self.file.set_len(0).and_then(|()| self.file.rewind());
        cleared.map_err(|source| write_error(&self.path, source))?;
        self.hasher = Sha256Stream::new(io::sink());
        self.length = 0;
        Ok(())
    }
}

fn write_error(path: &Path, source: io::Error) -> Error {
    Error::Write { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_continues_where_it_was_cut() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::open(directory.path()).unwrap();
        let digest = Digest::of(b"abcdef");
        let mut partial = layout.partial(&digest, 6).unwrap();
        partial.append(b"abc").unwrap();
        drop(partial);
        assert!(!layout.has(&digest, 6));
        let mut partial = layout.partial(&digest, 6).unwrap();
        assert_eq!(partial.length, 3);
        partial.append(b"def").unwrap();
        assert_eq!(partial.digest(), digest);
        layout.complete(partial, &digest).unwrap();
        assert!(layout.has(&digest, 6) && !layout.has(&digest, 5));
        assert_eq!(layout.read(&digest).unwrap(), b"abcdef");
    }

    #[test]
    fn a_part_that_is_too_long_or_a_link_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::open(directory.path()).unwrap();
        let digest = Digest::of(b"ab");
        let path = layout.blob(&digest).with_extension("partial");
        std::fs::write(&path, b"abc").unwrap();
        let partial = layout.partial(&digest, 2).unwrap();
        assert_eq!(partial.length, 0);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
        assert!(layout.partial(&digest, 2).is_err());
    }
}
