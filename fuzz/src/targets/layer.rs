//! A layer of an image: a TAR, unpacked on top of itself, so that its links and deletions meet what an
//! earlier layer has.

use std::path::Path;

use stockade_bundle::beneath::Dir;
use stockade_image::{Limits, unpack_layer};

/// Names that mean something, and pieces of headers.
pub(super) const WORDS: &[&str] = &[
    ".wh.",
    ".wh..wh..opq",
    ".wh..wh.plnk",
    "../",
    "/",
    "./",
    "a/b/c",
    "/outside/file",
    "../outside/file",
    "../../outside",
    "ustar\0",
    "ustar  \0",
    "12 path=x\n",
    "28 path=../outside/escaped\n",
    "22 linkpath=/outside\n",
    "20 size=9999999999\n",
    "30 SCHILY.xattr.user.overlay.opaque=y\n",
    "GNU.sparse.map",
    "GNU.sparse.major=1",
    "0000644\0",
    "0006755\0",
    "77777777777\0",
    "\0\0\0\0\0\0\0\0",
];

/// The magic of a header, and where it is.
const MAGIC: (usize, &[u8]) = (257, b"ustar");
const BLOCK: usize = 512;
const CHECKSUM: std::ops::Range<usize> = 148..156;

const LIMITS: Limits = Limits {
    blob_bytes: 1 << 20,
    layer_bytes: 1 << 20,
    image_bytes: 1 << 20,
    layer_seconds: 20,
    layer_entries: 500,
    ratio: 200,
};

/// Unpacks a layer twice. Nothing outside of its directories may change, and no device but the mark of
/// a deletion may be made.
pub(super) fn run(bytes: &[u8]) -> bool {
    let Ok(place) = tempfile::tempdir() else { return false };
    let path = |name: &str| place.path().join(name);
    let made = ["outside", "lower", "upper"].map(|name| std::fs::create_dir(path(name)));
    if made.iter().any(Result::is_err) || std::fs::write(path("outside/file"), "x").is_err() {
        return false;
    }
    let (Ok(lower), Ok(upper)) = (Dir::open(&path("lower")), Dir::open(&path("upper"))) else {
        return false;
    };
    let bytes = with_checksums(bytes);
    let first = unpack_layer(&bytes[..], &lower, &[], None, &LIMITS, false);
    let second = unpack_layer(&bytes[..], &upper, &[lower], None, &LIMITS, false);
    let outside = std::fs::read(path("outside/file"));
    assert!(outside.is_ok_and(|content| content == b"x"), "a file outside was changed");
    assert_eq!(count(&path("outside")), 1, "something was made outside");
    assert_eq!(count(place.path()), 3, "something was made beside the layers");
    check_devices(&path("lower"));
    check_devices(&path("upper"));
    first.is_ok() && second.is_ok()
}

/// Headers with a wrong checksum are refused at once: nearly every changed one would be.
fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(BLOCK) {
        if !block[MAGIC.0..].starts_with(MAGIC.1) {
            continue;
        }
        block[CHECKSUM].fill(b' ');
        let sum: u32 = block.iter().copied().map(u32::from).sum();
        block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}

fn count(directory: &Path) -> usize {
    std::fs::read_dir(directory).map_or(0, Iterator::count)
}

fn check_devices(directory: &Path) {
    use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(metadata) = std::fs::symlink_metadata(entry.path()) else { continue };
        let kind = metadata.file_type();
        let is_deletion = kind.is_char_device() && metadata.rdev() == 0;
        assert!(
            is_deletion || kind.is_file() || kind.is_dir() || kind.is_symlink(),
            "{} is special",
            entry.path().display()
        );
        if kind.is_dir() {
            check_devices(&entry.path());
        }
    }
}
