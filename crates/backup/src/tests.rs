//! Archives that are written, read, extracted, damaged and made by somebody else.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;
use stockade_bundle::beneath::Dir;
use stockade_test_support::skipped;

use crate::{Error, Header, Manifest, RECORDS, Source, TableRows, extract, read, write};

fn header() -> Header {
    Header {
        form: 1,
        version: "1.0.0".to_owned(),
        created_at_ms: 7,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        source: Source::Sqlite,
    }
}

fn archive(data: &Path) -> Result<(Vec<u8>, Manifest), Error> {
    let mut records = tempfile::tempfile().unwrap();
    records.write_all(b"the records").unwrap();
    io::Seek::rewind(&mut records).unwrap();
    let table = TableRows { table: "t".to_owned(), rows: 3, sha256: "00".to_owned() };
    let stopped = std::collections::BTreeSet::new();
    write(Vec::new(), header(), records, vec![table], &Dir::open(data).unwrap(), stopped)
}

/// A data directory with every kind of file.
fn sample() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let at = |path: &str| directory.path().join(path);
    fs::create_dir_all(at("bundles/one/blobs")).unwrap();
    fs::write(at("bundles/one/manifest.json"), vec![b'x'; 100_000]).unwrap();
    fs::write(at("bundles/one/empty"), "").unwrap();
    fs::hard_link(at("bundles/one/manifest.json"), at("bundles/one/same")).unwrap();
    symlink("/etc/passwd", at("bundles/one/link")).unwrap();
    let odd = at("bundles/one").join(std::ffi::OsStr::from_bytes(b"new\nline \xff \"quoted\""));
    fs::write(odd, "odd").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("bundles/one/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_bits_truncate(0o620),
        0,
    )
    .unwrap();
    let long = "n".repeat(200);
    fs::create_dir_all(at(&format!("volumes/{long}/{long}"))).unwrap();
    fs::write(at(&format!("volumes/{long}/{long}/{long}")), "long").unwrap();
    fs::write(at("volumes/set-id"), "program").unwrap();
    fs::set_permissions(at("volumes/set-id"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::create_dir(at("volumes/closed")).unwrap();
    fs::write(at("volumes/closed/file"), "inside").unwrap();
    fs::set_permissions(at("volumes/closed"), fs::Permissions::from_mode(0o555)).unwrap();
    // What is not in an archive.
    fs::create_dir_all(at("server")).unwrap();
    fs::write(at("server/log"), "log").unwrap();
    fs::write(at("stockade.db"), "not this one").unwrap();
    std::os::unix::net::UnixListener::bind(at("volumes/socket")).unwrap();
    directory
}

/// Every path below a directory with all of its metadata.
fn listing(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(root.join(&directory)).unwrap() {
            let path = directory.join(entry.unwrap().file_name());
            let meta = fs::symlink_metadata(root.join(&path)).unwrap();
            let content = match meta.file_type() {
                kind if kind.is_file() => format!("{:?}", fs::read(root.join(&path)).unwrap()),
                kind if kind.is_symlink() => {
                    format!("{:?}", fs::read_link(root.join(&path)).unwrap())
                }
                kind => format!("{}{}", kind.is_dir(), kind.is_fifo()),
            };
            let times = (meta.mtime(), meta.mtime_nsec());
            let links = if meta.is_dir() { 0 } else { meta.nlink() };
            let (mode, owner) = (meta.mode(), (meta.uid(), meta.gid()));
            found.push(format!("{path:?} {mode:o} {owner:?} {times:?} {links} {content}"));
            if meta.is_dir() {
                waiting.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn everything_comes_back_as_it_was() {
    let data = sample();
    let (bytes, manifest) = archive(data.path()).unwrap();
    assert_eq!(read(bytes.as_slice()).unwrap(), manifest);
    assert_eq!(manifest.left_out, 1, "the socket");
    assert_eq!(manifest.tables[0].rows, 3);
    let to = tempfile::tempdir().unwrap();
    extract(bytes.as_slice(), &Dir::open(to.path()).unwrap()).unwrap();
    assert_eq!(fs::read(to.path().join(RECORDS)).unwrap(), b"the records");
    fs::remove_file(to.path().join(RECORDS)).unwrap();
    for left_out in ["server/log", "server", "stockade.db", "volumes/socket"] {
        let path = data.path().join(left_out);
        if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }.unwrap();
    }
    let (expected, found) = (listing(data.path()), listing(to.path()));
    // The removal of the socket has changed the time of its directory.
    let is_other = |line: &&String| !line.starts_with("\"volumes\" ");
    let expected: Vec<_> = expected.iter().filter(is_other).collect();
    assert_eq!(expected, found.iter().filter(is_other).collect::<Vec<_>>());
}

#[test]
fn extended_attributes_come_back() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("file");
    fs::write(&file, "").unwrap();
    let value: Vec<u8> = (0..=255).collect();
    for path in [&file, data.path()] {
        if let Err(errno) = rustix::fs::setxattr(path, "user.na=me\n", &value, XattrFlags::empty())
        {
            return skipped(&format!("this file system has no attributes: {errno}"));
        }
    }
    let (bytes, _) = archive(data.path()).unwrap();
    let to = tempfile::tempdir().unwrap();
    extract(bytes.as_slice(), &Dir::open(to.path()).unwrap()).unwrap();
    let mut found = vec![0; 300];
    let length =
        rustix::fs::getxattr(to.path().join("file"), "user.na=me\n", &mut found[..]).unwrap();
    assert_eq!(found[..length], value);
}

#[test]
fn each_changed_byte_is_found() {
    let data = tempfile::tempdir().unwrap();
    fs::create_dir(data.path().join("bundles")).unwrap();
    fs::write(data.path().join("bundles/file"), "the content of a file").unwrap();
    let (bytes, _) = archive(data.path()).unwrap();
    // Where padding of the tar format is, a change means nothing.
    let mut harmless = 0;
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 1;
        match read(changed.as_slice()) {
            Err(_) => {}
            Ok(_) if bytes[place] == 0 => harmless += 1,
            Ok(_) => panic!("byte {place} ({:?})", char::from(bytes[place])),
        }
    }
    assert!(harmless < bytes.len());
    let place = bytes.windows(11).position(|part| part == b"the content").unwrap();
    let mut changed = bytes;
    changed[place] = b'T';
    let error = read(changed.as_slice()).unwrap_err().to_string();
    assert!(error.contains("bundles/file"), "{error}");
}

#[test]
fn an_archive_that_ends_early_is_refused() {
    let data = sample();
    let (bytes, _) = archive(data.path()).unwrap();
    // The last blocks of a tar file are empty.
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    for length in (0..end).step_by(509) {
        assert!(read(&bytes[..length]).is_err(), "{length}");
    }
    for other in [&b""[..], b"not an archive", &[0; 2048]] {
        assert!(read(other).is_err());
    }
}

/// An archive with a valid header, and with an entry that this changes.
fn forged(name: &[u8], kind: tar::EntryType, target: Option<&str>) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |name: &[u8], kind, target: Option<&str>, content: &[u8]| {
        archive.append_pax_extensions([("mtime", &b"1.000000000"[..])]).unwrap();
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
        if let Some(target) = target {
            header.as_gnu_mut().unwrap().linkname[..target.len()]
                .copy_from_slice(target.as_bytes());
        }
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(content.len() as u64);
        header.set_cksum();
        archive.append(&header, content).unwrap();
    };
    let header = serde_json::to_vec(&self::header()).unwrap();
    add(b"stockade-backup.json", tar::EntryType::Regular, None, &header);
    add(b"data/link", tar::EntryType::Symlink, Some("/tmp"), b"");
    add(b"data/dir/", tar::EntryType::Directory, None, b"");
    add(name, kind, target, b"");
    archive.into_inner().unwrap()
}

#[test]
fn an_archive_of_somebody_else_reaches_nothing_outside() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    let absolute = format!("data/{}", secret.display());
    for (name, kind, target) in [
        ("data/../../escaped", tar::EntryType::Regular, None),
        ("data//etc/escaped", tar::EntryType::Regular, None),
        (absolute.as_str(), tar::EntryType::Regular, None),
        ("/escaped", tar::EntryType::Regular, None),
        ("data/link/stockade-escaped", tar::EntryType::Regular, None),
        ("data/link/stockade-escaped", tar::EntryType::Fifo, None),
        ("data/dir/hard", tar::EntryType::Link, Some("/etc/passwd")),
        ("data/dir/hard", tar::EntryType::Link, Some("data/../../etc/passwd")),
        ("data/dir/hard", tar::EntryType::Link, Some("data/link/secret")),
        ("data/device", tar::EntryType::Block, None),
        ("records/other.db", tar::EntryType::Regular, None),
        ("other/file", tar::EntryType::Regular, None),
    ] {
        let to = tempfile::tempdir().unwrap();
        let refused = extract(
            forged(name.as_bytes(), kind, target).as_slice(),
            &Dir::open(to.path()).unwrap(),
        );
        assert!(refused.is_err(), "{name}");
        let is_end = refused.unwrap_err().to_string().contains("end is missing");
        assert!(!is_end, "{name} was extracted");
    }
    assert!(!Path::new("/tmp/stockade-escaped").exists());
    // Without such an entry, only the end is missing.
    let to = tempfile::tempdir().unwrap();
    let plain = forged(b"data/dir/plain", tar::EntryType::Regular, None);
    let refused = extract(plain.as_slice(), &Dir::open(to.path()).unwrap()).unwrap_err();
    assert!(refused.to_string().contains("end is missing"), "{refused}");
}

/// Headers and lists that claim to be endless are not held in memory.
#[test]
fn an_endless_header_is_refused() {
    let whole = forged(b"data/dir/plain", tar::EntryType::Regular, None);
    // Without the two blocks that end a tar file.
    let start = &whole[..whole.len() - 1024];
    for (kind, name) in [
        (tar::EntryType::XHeader, "header"),
        (tar::EntryType::GNULongName, "name"),
        (tar::EntryType::GNULongLink, "link"),
        (tar::EntryType::Directory, "data/dir/filled"),
        (tar::EntryType::Regular, "entries.jsonl"),
        (tar::EntryType::Regular, "manifest.json"),
        (tar::EntryType::GNUSparse, "data/dir/sparse"),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_path(name).unwrap();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(1 << 50);
        header.set_cksum();
        let bytes = start.chain(&header.as_bytes()[..]).chain(io::repeat(b'x'));
        let error = read(bytes).unwrap_err().to_string();
        assert!(!error.contains("end is missing"), "{name}: {error}");
    }
}

#[test]
fn a_newer_form_is_named() {
    let mut archive = tar::Builder::new(Vec::new());
    let text = br#"{"form": 2, "other": true}"#;
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    archive.append_data(&mut header, "stockade-backup.json", &text[..]).unwrap();
    let bytes = archive.into_inner().unwrap();
    assert!(matches!(read(bytes.as_slice()), Err(Error::NewerForm { found: 2, known: 1 })));
}
