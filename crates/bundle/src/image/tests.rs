//! Archives: what is extracted, and what is refused.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use tar::{Builder, Header};

use super::*;
use EntryType::{Block, Char, Directory, Fifo, Link, Regular, Symlink};

const LIMITS: Limits = Limits { total_bytes: 1 << 20, entries: 100 };

/// Adds one entry with exactly this path and target.
fn add(archive: &mut Builder<Vec<u8>>, kind: EntryType, path: &str, target: &str, content: &str) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o4750);
    header.set_uid(7);
    header.set_gid(8);
    header.set_size(content.len() as u64);
    let old = header.as_old_mut();
    old.name[..path.len()].copy_from_slice(path.as_bytes());
    old.linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    archive.append(&header, content.as_bytes()).unwrap();
}

struct Scratch {
    _directory: tempfile::TempDir,
    root: PathBuf,
}

fn scratch() -> Scratch {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("image");
    std::fs::create_dir(&root).unwrap();
    Scratch { _directory: directory, root }
}

impl Scratch {
    fn extract(&self, entries: &[(EntryType, &str, &str, &str)]) -> Result<ExtractSummary, Error> {
        let mut archive = Builder::new(Vec::new());
        for (kind, path, target, content) in entries {
            add(&mut archive, *kind, path, target, content);
        }
        let archive = archive.into_inner().unwrap();
        extract(archive.as_slice(), &Dir::open(&self.root).unwrap(), &LIMITS, false)
    }
}

#[test]
fn a_root_file_system_is_extracted() {
    let scratch = scratch();
    let extracted = scratch
        .extract(&[
            (Directory, "./", "", ""),
            (Directory, "./usr/", "", ""),
            (Regular, "./usr/bin/tool", "", "content"),
            (Symlink, "./bin", "usr/bin", ""),
            (Symlink, "./etc/mtab", "/proc/mounts", ""),
            (Symlink, "./usr/lib", "../lib", ""),
            (Link, "./usr/bin/twin", "./usr/bin/tool", ""),
            (Char, "./dev/null", "", ""),
            (Block, "./dev/sda", "", ""),
            (Fifo, "./run/pipe", "", ""),
            (Regular, "again", "", "one"),
            (Regular, "again", "", "two"),
        ])
        .unwrap();
    assert_eq!((extracted.entries, extracted.bytes, extracted.skipped), (12, 13, 3));
    assert!(extracted.notes[0].contains("dev/null was skipped: it is a device"));
    let at = |name: &str| scratch.root.join(name);
    assert_eq!(std::fs::read(at("usr/bin/twin")).unwrap(), b"content");
    assert_eq!(std::fs::read(at("again")).unwrap(), b"two");
    let tool = at("usr/bin/tool").metadata().unwrap();
    assert_eq!((tool.mode() & 0o7777, tool.nlink()), (0o750, 2));
    assert_eq!(std::fs::read_link(at("etc/mtab")).unwrap(), PathBuf::from("/proc/mounts"));
    assert!(!at("dev").exists());
}

#[test]
fn root_keeps_the_owners_that_the_archive_names() {
    if !rustix::process::geteuid().is_root() {
        crate::testing::skipped("only root gives files away");
        return;
    }
    let scratch = scratch();
    let mut archive = Builder::new(Vec::new());
    add(&mut archive, Symlink, "link", "file", "");
    add(&mut archive, Regular, "file", "", "x");
    let archive = archive.into_inner().unwrap();
    extract(archive.as_slice(), &Dir::open(&scratch.root).unwrap(), &LIMITS, true).unwrap();
    for name in ["link", "file"] {
        let metadata = scratch.root.join(name).symlink_metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7000), (7, 8, 0), "{name}");
    }
}

#[test]
fn nothing_leaves_the_directory() {
    for entries in [
        &[(Regular, "/etc/evil", "", "x")][..],
        &[(Regular, "../evil", "", "x")],
        &[(Regular, "a/../../evil", "", "x")],
        &[(Symlink, "up", "../evil", "")],
        &[(Symlink, "a/up", "b/../../../evil", "")],
        &[(Symlink, "nothing", "", "")],
        &[(Link, "hard", "../evil", "")],
        &[(Link, "hard", "/etc/passwd", "")],
        &[(Link, "hard", "missing", "")],
        &[(Symlink, "out", "/tmp", ""), (Regular, "out/evil", "", "x")],
        &[(Symlink, "out", "/etc/passwd", ""), (Link, "hard", "out", "")],
        &[(Directory, "d", "", ""), (Regular, "d", "", "x")],
    ] {
        let scratch = scratch();
        let refused = scratch.extract(entries);
        assert!(refused.is_err(), "{entries:?}");
        assert!(!scratch.root.parent().unwrap().join("evil").exists(), "{entries:?}");
        assert!(!std::path::Path::new("/etc/evil").exists());
    }
    // A file with the path of a link replaces the link, not its target.
    let scratch = scratch();
    let victim = scratch.root.parent().unwrap().join("victim");
    std::fs::write(&victim, "safe").unwrap();
    let target = victim.to_str().unwrap();
    scratch.extract(&[(Symlink, "x", target, ""), (Regular, "x", "", "evil")]).unwrap();
    assert_eq!(std::fs::read(&victim).unwrap(), b"safe");
}

#[test]
fn limits_and_compression_are_named() {
    let scratch = scratch();
    let large = "x".repeat(700_000);
    let limit = |entries: &[(EntryType, &str, &str, &str)]| match scratch.extract(entries) {
        Err(Error::Limit { limit, .. }) => limit,
        other => panic!("{other:?}"),
    };
    assert_eq!(limit(&[(Regular, "a", "", &large), (Regular, "b", "", &large)]), "total_bytes");
    assert_eq!(limit(&[(Regular, "a", "", ""); 101]), "entries");
    let to = Dir::open(&scratch.root).unwrap();
    let refused = extract(&b"\x1f\x8b\x08rest"[..], &to, &LIMITS, false).unwrap_err();
    assert_eq!(refused.hint().as_deref(), Some("gzip -d < IMAGE > image.tar"));
}

#[test]
fn damaged_archives_never_panic() {
    let mut archive = Builder::new(Vec::new());
    add(&mut archive, Regular, "a/file", "", "content");
    add(&mut archive, Symlink, "link", "a", "");
    let archive = archive.into_inner().unwrap();
    let mut random = crate::testing::Random::new(2);
    for _ in 0..300 {
        let scratch = scratch();
        let mut damaged = archive.clone();
        for _ in 0..1 + random.below(6) {
            let at = random.below(1600);
            damaged[at] = u8::try_from(random.below(256)).unwrap();
        }
        let _ = extract(damaged.as_slice(), &Dir::open(&scratch.root).unwrap(), &LIMITS, false);
    }
}
