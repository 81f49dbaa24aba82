//! Trees as streams: what arrives is what was sent, every record is checked, and nothing is created
//! or read through a link.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, symlink};

use rustix::fs::{CWD, FileType, Mode};
use stockade_bundle::RelativePath;
use stockade_runtime::{Record, SkipReason, TreeProgress, TreeReader, TreeSize, TreeWriter};

use crate::files::testing::{Fixture, chmod, path};

fn name(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

fn file(text: &str) -> Record {
    Record::File { name: name(text), mode: 0o640, modified: (1_000_000_000, 5) }
}

fn enter(text: &str, mode: u32) -> Record {
    Record::Enter { name: name(text), mode }
}

/// The stream of these records; each file contains `text`.
fn stream(records: &[Record], text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut tree = TreeWriter::new(&mut bytes);
    for record in records {
        tree.record(record).unwrap();
        if matches!(record, Record::File { .. }) {
            tree.content(&mut text.as_bytes()).unwrap().unwrap();
        }
    }
    tree.finish().unwrap();
    bytes
}

/// The records of a directory inside, without the content of files.
fn packed(fixture: &Fixture, from: &str, mark: Option<&[u8]>) -> (Vec<Record>, (u64, u64)) {
    let (mut bytes, progress) = (Vec::new(), TreeProgress::default());
    fixture.root.open_tree(&path(from)).unwrap().pack(mark, &mut bytes, &progress).unwrap();
    let mut tree = TreeReader::new(bytes.as_slice());
    let mut records = Vec::new();
    while let Some(record) = tree.record().unwrap() {
        if matches!(record, Record::File { .. }) {
            tree.content(&mut std::io::sink()).unwrap().unwrap();
        }
        records.push(record);
    }
    (records, progress.read())
}

#[test]
fn a_tree_is_created_and_read_again() {
    for fixture in Fixture::all() {
        let records = [
            enter("closed", 0o555),
            file("within"),
            Record::Leave,
            file("f"),
            Record::Link { name: name("link"), target: b"closed/within".to_vec() },
        ];
        let bytes = stream(&records, "text");
        let size =
            fixture.root.unpack(&path("/project/new"), 0o750, &mut bytes.as_slice()).unwrap();
        assert_eq!(size, TreeSize { files: 2, directories: 1, links: 1, bytes: 8 });
        let user = fixture.host(fixture.user());
        assert_eq!(fixture.owner_and_mode("/project/new"), (user, 0o750));
        assert_eq!(fixture.owner_and_mode("/project/new/closed"), (user, 0o555));
        assert_eq!(fixture.owner_and_mode("/project/new/f"), (user, 0o640));
        let at = fixture.at("project/new");
        assert_eq!(fs::metadata(at.join("f")).unwrap().mtime(), 1_000_000_000);
        let (read, size) = packed(&fixture, "/project/new", None);
        assert_eq!(read, records, "{}", fixture.name);
        assert_eq!(size, (4, 8));
        // Once more: everything is replaced, and an existing directory keeps its mode.
        chmod(at.join("closed"), 0o755);
        let again = fixture.root.unpack(&path("/project/new"), 0o700, &mut bytes.as_slice());
        assert_eq!(again.unwrap().files, 2);
        assert_eq!(fixture.owner_and_mode("/project/new/closed"), (user, 0o755));
        assert_eq!(fs::read(at.join("closed/within")).unwrap(), b"text");
    }
}

#[test]
fn nothing_is_created_through_a_link_or_in_place_of_a_directory() {
    for fixture in Fixture::all() {
        let outside = fixture.outside.path().join("victim");
        fs::create_dir_all(outside.join("below")).unwrap();
        let at = fixture.at("project");
        fixture.as_user(|| {
            symlink(&outside, at.join("out")).unwrap();
            symlink(outside.join("file"), at.join("file")).unwrap();
            fs::create_dir(at.join("directory")).unwrap();
        });
        let through = stream(&[enter("out", 0o755), file("f"), Record::Leave], "x");
        fixture.root.unpack(&path("/project"), 0o755, &mut through.as_slice()).unwrap_err();
        // The stream itself makes the link, and then uses its name.
        let target = outside.as_os_str().as_encoded_bytes().to_vec();
        let own = [
            Record::Link { name: name("own"), target },
            enter("own", 0o755),
            file("f"),
            Record::Leave,
        ];
        let own = stream(&own, "x");
        fixture.root.unpack(&path("/project"), 0o755, &mut own.as_slice()).unwrap_err();
        let over = stream(&[file("directory")], "x");
        fixture.root.unpack(&path("/project"), 0o755, &mut over.as_slice()).unwrap_err();
        // A link at the name of a file is replaced itself.
        let replaced = stream(&[file("file")], "new");
        fixture.root.unpack(&path("/project"), 0o755, &mut replaced.as_slice()).unwrap();
        assert!(fs::symlink_metadata(at.join("file")).unwrap().is_file());
        let found: Vec<_> =
            fs::read_dir(&outside).unwrap().map(|one| one.unwrap().file_name()).collect();
        assert_eq!(found, ["below"], "{}", fixture.name);
        let left = fs::read_dir(&at).unwrap().map(|one| one.unwrap().file_name());
        assert!(!left.into_iter().any(|one| one.to_string_lossy().contains(".stockade")));
    }
}

#[test]
fn a_stream_that_is_cut_off_leaves_whole_files_only() {
    for fixture in Fixture::all() {
        let bytes = stream(&[file("a"), file("b")], &"x".repeat(100_000));
        let cut = &bytes[..bytes.len() - 50_000];
        fixture.root.unpack(&path("/project"), 0o755, &mut &*cut).unwrap_err();
        let at = fixture.at("project");
        assert_eq!(fs::metadata(at.join("a")).unwrap().len(), 100_000);
        let names: Vec<_> =
            fs::read_dir(&at).unwrap().map(|one| one.unwrap().file_name()).collect();
        let is_part =
            |name: &std::ffi::OsString| name == "b" || name.to_string_lossy().contains(".stockade");
        assert!(!names.iter().any(is_part), "{}: {names:?}", fixture.name);
    }
}

#[test]
fn what_is_no_file_is_skipped_and_never_waited_for() {
    for fixture in Fixture::all() {
        let at = fixture.at("project");
        fixture.as_user(|| {
            fs::create_dir_all(at.join("tree/marked")).unwrap();
            fs::write(at.join("tree/marked/.mark"), "").unwrap();
            fs::write(at.join("tree/f"), "text").unwrap();
            let mode = Mode::from_bits_truncate(0o666);
            rustix::fs::mknodat(CWD, at.join("tree/pipe"), FileType::Fifo, mode, 0).unwrap();
        });
        let (records, size) = packed(&fixture, "/project/tree", Some(b".mark"));
        let skipped = |text| Record::Skipped { name: name(text), reason: SkipReason::Special };
        assert!(matches!(&records[0], Record::File { name, .. } if name.as_bytes() == b"f"));
        assert_eq!(records[1..], [skipped("marked"), skipped("pipe")], "{}", fixture.name);
        assert_eq!(size, (1, 4));
        assert!(fixture.root.open_tree(&path("/project/tree/f")).is_err());
        let mut text = String::new();
        fs::File::open(at.join("tree/f")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
    }
}
