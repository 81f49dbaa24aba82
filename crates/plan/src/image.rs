//! A root file system instead of the host's programs: a directory, or a tar archive, which is
//! unpacked once and stored in the data directory.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{self, Dir, FileKind, Rename};
use stockade_bundle::data::{self, DataDir};
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
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] data::Error),
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
    let directory = data.join(IMAGES);
    let failed = |error: beneath::Error| Error::Write {
        directory: directory.clone(),
        source: io::Error::other(error),
    };
    let images = DataDir::open(data)?.images()?;
    let hash = ContentHash::of(identity.as_bytes()).to_hex();
    let name = relative(&hash).map_err(failed)?;
    let is_there =
        images.stat(&name).map_err(failed)?.is_some_and(|found| found.kind == FileKind::Directory);
    if !is_there {
        unpack(&real, &images, &name, &directory)?;
    }
    Ok(directory.join(hash))
}

/// Unpacks into a temporary directory and then renames it, so that an existing image is always
/// complete.
fn unpack(
    archive: &Path,
    images: &Dir,
    name: &RelativePath,
    directory: &Path,
) -> Result<(), Error> {
    let failed = |error: beneath::Error| Error::Write {
        directory: directory.to_owned(),
        source: io::Error::other(error),
    };
    let unfinished = relative(&format!(".unfinished-{}", std::process::id())).map_err(failed)?;
    let discard = || match images.remove_tree(&unfinished) {
        Err(error) if error.errno() != Some(Errno::NOENT) => Err(failed(error)),
        _ => Ok(()),
    };
    discard()?;
    images.mkdir(&unfinished, 0o755).map_err(failed)?;
    let extract = || {
        let file = fs::File::open(archive)
            .map_err(|source| Error::Unreadable { path: archive.to_owned(), source })?;
        let to = images.open_dir(&unfinished).map_err(failed)?;
        let keep_owners = rustix::process::geteuid().is_root();
        image::extract(file, &to, &LIMITS, keep_owners)
            .map_err(|source| Error::Refused { path: archive.to_owned(), source })?;
        match images.rename(&unfinished, images, name, Rename::NoReplace) {
            // Another process has unpacked the same archive meanwhile.
            Err(error) if error.errno() == Some(Errno::EXIST) => Ok(()),
            other => other.map_err(failed),
        }
    };
    let result = extract();
    // A leftover is removed before this process unpacks again.
    let _ = discard();
    result
}

fn relative(name: &str) -> Result<RelativePath, beneath::Error> {
    RelativePath::new(name).map_err(|error| beneath::Error::Io {
        operation: "name",
        path: name.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidInput, error),
    })
}
