//! `--image DIR|TAR`: the root file system in place of the host's programs. An
//! archive is unpacked once and kept in the data directory.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use stockade_bundle::beneath::Dir;
use stockade_bundle::data::DataDir;
use stockade_bundle::image::{self, Limits};
use stockade_bundle::manifest::ContentHash;
use stockade_core::{Code, Problem};

use crate::problem::caused;

/// How much an archive may hold.
const LIMITS: Limits = Limits { total_bytes: 32 << 30, entries: 2_000_000 };

/// The directory of an image.
pub(super) fn directory(path: &Path, data: &DataDir) -> Result<PathBuf, Problem> {
    let shown = path.display();
    let unusable = |e: std::io::Error| {
        Problem::new(Code::InvalidInput, format!("cannot use the image {shown}"))
            .because(e.to_string())
    };
    let real = fs::canonicalize(path).map_err(unusable)?;
    let metadata = fs::metadata(&real).map_err(unusable)?;
    if metadata.is_dir() {
        if real == Path::new("/") {
            return Err(Problem::new(Code::InvalidInput, "the host's root is no image")
                .remedied_by("leave --image out: the host's programs are visible without it"));
        }
        return Ok(real);
    }
    if !metadata.is_file() {
        return Err(Problem::new(
            Code::InvalidInput,
            format!("the image {shown} is neither a directory nor an archive"),
        ));
    }
    // What tells this archive from another of the same path, without reading all of it.
    let identity = format!(
        "{}:{}:{}:{}:{}",
        metadata.dev(),
        metadata.ino(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec()
    );
    let images = data.path().join("images");
    let place = images.join(ContentHash::of(identity.as_bytes()).to_hex());
    if place.is_dir() {
        return Ok(place);
    }
    unpack(&real, &images, &place)?;
    Ok(place)
}

/// Unpacks beside the place and then moves there, so that a place is always whole.
fn unpack(archive: &Path, images: &Path, place: &Path) -> Result<(), Problem> {
    let failed = |e: std::io::Error| {
        Problem::new(Code::Io, "cannot unpack the image").because(e.to_string())
    };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(images).map_err(failed)?;
    let unfinished = images.join(format!(".unfinished-{}", std::process::id()));
    let _ = fs::remove_dir_all(&unfinished);
    fs::DirBuilder::new().mode(0o755).create(&unfinished).map_err(failed)?;
    let file = fs::File::open(archive).map_err(failed)?;
    let extracted = Dir::open(&unfinished).map_err(|e| caused(Code::Io, &e)).and_then(|to| {
        let keep_owners = rustix::process::geteuid().is_root();
        image::extract(file, &to, &LIMITS, keep_owners).map_err(|e| caused(Code::InvalidInput, &e))
    });
    let result = extracted.and_then(|_| match fs::rename(&unfinished, place) {
        // Another run has unpacked the same archive meanwhile.
        Err(_) if place.is_dir() => Ok(()),
        other => other.map_err(failed),
    });
    let _ = fs::remove_dir_all(&unfinished);
    result
}
