//! A root file system instead of the host's programs: a directory, or a tar archive, which is
//! unpacked once and stored in the data directory.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use stockade_bundle::beneath::{self, Dir};
use stockade_bundle::image::{self, Limits};
use stockade_bundle::manifest::ContentHash;

use crate::host_path::{HostPaths, IMAGES};

/// The limits for the content of an archive.
const LIMITS: Limits = Limits { total_bytes: 32 << 30, entries: 2_000_000 };

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its metadata cannot be read.
    #[error("cannot use the image {}", path.display())]
    Unreadable {
        /// The path as written in the request.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is neither a directory nor a file.
    #[error("the image {} is neither a directory nor a tar archive", .0.display())]
    NoImage(PathBuf),
    /// It must not be visible in a sandbox.
    #[error(transparent)]
    HostPath(#[from] crate::Error),
    /// The archive is invalid.
    #[error("cannot unpack the image {}", path.display())]
    Refused {
        /// The archive.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: image::Error,
    },
    /// It cannot be unpacked into the data directory.
    #[error("cannot unpack the image into {}", directory.display())]
    Write {
        /// The target directory.
        directory: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The directory of an image. An archive is unpacked in `data`, the data directory, unless that was
/// done before.
///
/// # Errors
/// What is wrong with the image or the data directory.
pub fn directory(path: &Path, data: &Path) -> Result<PathBuf, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    let real = fs::canonicalize(path).map_err(unreadable)?;
    let metadata = fs::metadata(&real).map_err(unreadable)?;
    if metadata.is_dir() {
        // The path as written in the request, for errors of later checks.
        return Ok(path.to_owned());
    }
    if !metadata.is_file() {
        return Err(Error::NoImage(path.to_owned()));
    }
    HostPaths::new(data)?.open(path)?;
    // Distinguishes this archive from others at the same path, without reading its content.
    let identity = format!(
        "{}:{}:{}:{}:{}",
        metadata.dev(),
        metadata.ino(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    let images = data.join(IMAGES);
    let target = images.join(ContentHash::of(identity.as_bytes()).to_hex());
    if !target.is_dir() {
        unpack(&real, &images, &target)?;
    }
    Ok(target)
}

/// Unpacks into a temporary directory and then renames it, so that an existing image is always
/// complete.
fn unpack(archive: &Path, images: &Path, target: &Path) -> Result<(), Error> {
    let failed = |source: io::Error| Error::Write { directory: images.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(images).map_err(failed)?;
    let unfinished = images.join(format!(".unfinished-{}", std::process::id()));
    let _ = fs::remove_dir_all(&unfinished);
    fs::DirBuilder::new().mode(0o755).create(&unfinished).map_err(failed)?;
    let extract = || {
        let file = fs::File::open(archive)
            .map_err(|source| Error::Unreadable { path: archive.to_owned(), source })?;
        let to = Dir::open(&unfinished)
            .map_err(|error: beneath::Error| failed(io::Error::other(error)))?;
        let keep_owners = rustix::process::geteuid().is_root();
        image::extract(file, &to, &LIMITS, keep_owners)
            .map_err(|source| Error::Refused { path: archive.to_owned(), source })?;
        match fs::rename(&unfinished, target) {
            // Another process has unpacked the same archive meanwhile.
            Err(_) if target.is_dir() => Ok(()),
            other => other.map_err(failed),
        }
    };
    let result = extract();
    let _ = fs::remove_dir_all(&unfinished);
    result
}
