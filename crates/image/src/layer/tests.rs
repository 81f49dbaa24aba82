//! Layers of every kind, hostile ones among them: what becomes of them, and that nothing outside of
//! their directory is touched.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tar::{EntryType, Header};

use super::*;
use crate::testing::{Layer, gzip};

const LIMITS: Limits = Limits {
    blob_bytes: 1 << 30,
    layer_bytes: 1 << 20,
    image_bytes: 1 << 20,
    layer_seconds: 60,
    layer_entries: 200,
    ratio: 200,
};

/// Directories with something outside that must not change.
struct Stage {
    directory: tempfile::TempDir,
    layers: Vec<PathBuf>,
}

impl Stage {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let outside = directory.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("file"), "outside").unwrap();
        Self { directory, layers: Vec::new() }
    }

    fn outside(&self) -> PathBuf {
        self.directory.path().join("outside")
    }

    /// Unpacks the next layer, on top of the others.
    fn add(&mut self, layer: &[u8]) -> Result<LayerRecord, Error> {
        let path = self.directory.path().join(format!("layer-{}", self.layers.len()));
        std::fs::create_dir(&path).unwrap();
        let below: Vec<Dir> =
            self.layers.iter().rev().map(|layer| Dir::open(layer).unwrap()).collect();
        let to = Dir::open(&path).unwrap();
        let keep_owners = rustix::process::geteuid().is_root();
        let before = list(&self.outside());
        let result = unpack(layer, &to, &below, None, &LIMITS, keep_owners);
        assert_eq!(list(&self.outside()), before, "something outside was changed");
        let all = std::fs::read_dir(self.directory.path()).unwrap().count();
        assert_eq!(all, self.layers.len() + 2, "something was made outside");
        self.layers.push(path);
        result
    }

    fn top(&self, name: &str) -> PathBuf {
        self.layers.last().unwrap().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.top(name)).unwrap()
    }

    fn is_whiteout(&self, name: &str) -> bool {
        let found = std::fs::symlink_metadata(self.top(name));
        found.is_ok_and(|found| found.file_type().is_char_device() && found.rdev() == 0)
    }

    fn is_opaque(&self, name: &str) -> bool {
        merged::is_opaque(
            &Dir::open(self.layers.last().unwrap()).unwrap(),
            &stockade_bundle::RelativePath::new(name).unwrap(),
        )
        .unwrap()
    }
}

/// Everything below a directory, with contents, modes and owners.
fn list(directory: &Path) -> BTreeMap<PathBuf, (u32, u32, u64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut ahead = vec![directory.to_owned()];
    while let Some(path) = ahead.pop() {
        let found = std::fs::symlink_metadata(&path).unwrap();
        let mut content = Vec::new();
        if found.is_dir() {
            ahead.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if found.is_file() {
            content = std::fs::read(&path).unwrap();
        }
        all.insert(path, (found.mode(), found.uid(), found.nlink(), content));
    }
    all
}

fn limit(result: Result<LayerRecord, Error>) -> &'static str {
    match result {
        Err(Error::Limit { limit, .. }) => limit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_directories_and_links_are_as_the_layer_says() {
    let mut stage = Stage::new();
    let layer = Layer::new()
        .directory("./")
        .directory("bin/")
        .mode(0o4755)
        .file("bin/su", "su")
        .mode(0o000)
        .file("secret", "s")
        .link("usr", "/does/not/../exist")
        .hard_link("bin/sudo", "bin/su")
        .file("deep/er/file", "d")
        .done();
    let record = stage.add(&gzip(&layer)).unwrap();
    assert_eq!((record.entries, record.bytes, record.skipped), (7, 4, 0));
    let su = stage.top("bin/su").metadata().unwrap();
    assert_eq!(
        (su.permissions().mode() & 0o7777, su.nlink(), su.mtime()),
        (0o4755, 2, 1_000_000_000)
    );
    assert_eq!(stage.top("secret").metadata().unwrap().mode() & 0o7777, 0);
    assert_eq!(std::fs::read_link(stage.top("usr")).unwrap(), Path::new("/does/not/../exist"));
    assert_eq!(stage.top("deep/er").metadata().unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn owners_are_kept_for_root_and_counted_for_all() {
    let mut stage = Stage::new();
    let layer = Layer::new().owner(1000, 2000).directory("home").file("home/file", "x").done();
    let record = stage.add(&layer).unwrap();
    let found = stage.top("home/file").metadata().unwrap();
    let own = rustix::process::geteuid();
    let expected = if own.is_root() { (1000, 2000) } else { (own.as_raw(), found.gid()) };
    assert_eq!((found.uid(), found.gid()), expected);
    assert_eq!((record.highest_id, record.has_owners), (2000, own.is_root()));
    for id in [u64::from(u32::MAX), 1 << 40] {
        let layer = Layer::new().owner(id, 0).file("file", "x").done();
        assert!(matches!(Stage::new().add(&layer), Err(Error::Entry { .. })), "{id}");
    }
}

#[test]
fn a_name_that_leads_out_is_refused_and_an_absolute_one_stays_inside() {
    for name in ["../outside/file", "a/../../outside/file", "..", "./../outside/new"] {
        for layer in [
            Layer::new().file(name, "evil").done(),
            Layer::new().directory(name).done(),
            Layer::new().link(name, "/").done(),
            Layer::new().file("a", "x").hard_link("b", name).done(),
            Layer::new().file("a", "x").hard_link(name, "a").done(),
        ] {
            let mut stage = Stage::new();
            assert!(matches!(stage.add(&layer), Err(Error::Entry { .. })), "{name}");
        }
    }
    let mut stage = Stage::new();
    let outside = stage.outside().join("file");
    let long = outside.to_str().unwrap();
    let layer = Layer::new()
        .file("/etc/passwd", "inside")
        .pax(&[("path", long.as_bytes())])
        .file("x", "inside")
        .file("/../../up", "inside")
        .file("a/b/../c", "inside")
        .done();
    stage.add(&layer).unwrap();
    assert_eq!(stage.read("etc/passwd"), "inside");
    assert_eq!(stage.read("up"), "inside");
    assert_eq!(stage.read("a/c"), "inside");
    assert_eq!(stage.read(long.trim_start_matches('/')), "inside");
}

#[test]
fn a_link_on_the_way_leads_only_within_the_image() {
    let mut stage = Stage::new();
    let outside = stage.outside();
    let outside = outside.to_str().unwrap();
    let layer = Layer::new()
        .pax(&[("linkpath", outside.as_bytes())])
        .link("absolute", "x")
        .link("up", "../../../../../../../../../../tmp")
        .link("magic", "/proc/self/root")
        .file("absolute/file", "inside")
        .file("absolute/new", "inside")
        .file("up/evil", "inside")
        .file("magic/evil", "inside")
        .link("chain", "up")
        .directory("chain/directory")
        .done();
    stage.add(&layer).unwrap();
    let inside = outside.trim_start_matches('/');
    assert_eq!(stage.read(&format!("{inside}/file")), "inside");
    assert_eq!(stage.read("tmp/evil"), "inside");
    assert_eq!(stage.read("proc/self/root/evil"), "inside");
    assert!(stage.top("tmp/directory").is_dir());
    assert!(!Path::new("/tmp/evil").exists() && !Path::new("/evil").exists());

    // The same through a link of a layer below, as in images whose /bin is a link.
    let mut stage = Stage::new();
    stage.add(&Layer::new().directory("usr/bin").link("bin", "usr/bin").done()).unwrap();
    stage.add(&Layer::new().file("bin/tool", "tool").done()).unwrap();
    assert_eq!(stage.read("usr/bin/tool"), "tool");
    assert!(!stage.top("bin").exists());

    let loops = Layer::new().link("a", "b").link("b", "a").file("a/file", "x").done();
    assert!(matches!(Stage::new().add(&loops), Err(Error::Entry { .. })));
    let through = Layer::new().file("a", "x").file("a/b", "x").done();
    assert!(matches!(Stage::new().add(&through), Err(Error::Entry { .. })));
}

#[test]
fn a_hard_link_leads_only_to_a_file_of_the_image() {
    for (name, target) in
        [("a", "a"), ("a", "missing"), ("a", "/"), ("a", "directory"), ("a", ""), ("a", "pipe")]
    {
        let layer = Layer::new()
            .directory("directory")
            .entry(EntryType::Fifo, "pipe", "", b"")
            .hard_link(name, target)
            .done();
        assert!(matches!(Stage::new().add(&layer), Err(Error::Entry { .. })), "{target}");
    }
    let mut stage = Stage::new();
    let outside = stage.outside().join("file");
    let layer = Layer::new().pax(&[("linkpath", outside.to_str().unwrap().as_bytes())]);
    let layer = layer.hard_link("stolen", "x").done();
    assert!(matches!(stage.add(&layer), Err(Error::Entry { .. })));

    // A link to a link of the image is one to the link itself, wherever that leads.
    let mut stage = Stage::new();
    let layer = Layer::new().pax(&[("linkpath", outside.to_str().unwrap().as_bytes())]);
    let layer = layer.link("link", "x").hard_link("same", "link").done();
    stage.add(&layer).unwrap();
    assert_eq!(std::fs::read_link(stage.top("same")).unwrap(), outside);
}

#[test]
fn a_hard_link_to_a_lower_layer_takes_the_file_with_it() {
    let mut stage = Stage::new();
    stage.add(&Layer::new().mode(0o640).owner(7, 8).file("low", "low").done()).unwrap();
    stage.add(&Layer::new().hard_link("high", "low").done()).unwrap();
    assert_eq!(stage.read("high"), "low");
    let high = stage.top("high").metadata().unwrap();
    assert_eq!((high.mode() & 0o7777, high.nlink()), (0o640, 2));
    stage.add(&Layer::new().file(".wh.low", "").done()).unwrap();
    let gone = Layer::new().hard_link("again", "low").done();
    assert!(matches!(stage.add(&gone), Err(Error::Entry { .. })));
}

#[test]
fn deletions_become_marks_of_an_overlay() {
    let mut stage = Stage::new();
    let base = Layer::new()
        .file("dir/old", "old")
        .file("dir/kept", "kept")
        .file("hidden/old", "old")
        .file("gone/old", "old")
        .file("file", "old")
        .done();
    stage.add(&base).unwrap();
    let layer = Layer::new()
        .file("dir/.wh.old", "")
        .file("hidden/.wh..wh..opq", "")
        .file("hidden/new", "new")
        .file(".wh.gone", "")
        .file(".wh.never", "")
        .file("dir/.wh..wh.plnk", "")
        .done();
    stage.add(&layer).unwrap();
    assert!(stage.is_whiteout("dir/old") && stage.is_whiteout("gone"));
    assert!(!stage.top("dir/kept").exists() && !stage.is_opaque("dir"));
    assert!(stage.is_opaque("hidden") && stage.top("hidden/new").exists());
    // What hides nothing would be visible itself.
    assert!(std::fs::symlink_metadata(stage.top("never")).is_err());
    // A directory in place of a deleted one shows nothing of it, in either order.
    for layer in [
        Layer::new().file(".wh.dir", "").file("dir/new", "new").done(),
        Layer::new().file("dir/new", "new").file(".wh.dir", "").done(),
        Layer::new().directory("dir").file(".wh.dir", "").file("dir/new", "new").done(),
    ] {
        let mut stage = Stage::new();
        stage.add(&base).unwrap();
        stage.add(&layer).unwrap();
        assert!(stage.is_opaque("dir") && stage.read("dir/new") == "new");
    }
    for name in [".wh.", ".wh..", ".wh...", "dir/.wh.."] {
        let layer = Layer::new().file(name, "").done();
        assert!(matches!(Stage::new().add(&layer), Err(Error::Entry { .. })), "{name}");
    }
    // Everything below the root.
    let mut stage = Stage::new();
    stage.add(&base).unwrap();
    stage.add(&Layer::new().file(".wh..wh..opq", "").file("dir/new", "").done()).unwrap();
    assert!(stage.is_opaque("dir") && stage.is_whiteout("hidden") && stage.is_whiteout("file"));
}

#[test]
fn a_deletion_touches_only_what_the_image_has() {
    let mut stage = Stage::new();
    let outside = stage.outside();
    let layer = Layer::new().pax(&[("linkpath", outside.to_str().unwrap().as_bytes())]);
    stage.add(&layer.link("out", "x").done()).unwrap();
    stage.add(&Layer::new().file("out/.wh.file", "").done()).unwrap();
    stage.add(&Layer::new().file("out/.wh..wh..opq", "").done()).unwrap();
    assert!(outside.join("file").exists());
}

#[test]
fn directories_that_a_layer_leaves_out_are_those_of_the_layers_below() {
    let mut stage = Stage::new();
    let mut tmp = Header::new_gnu();
    tmp.set_entry_type(EntryType::Directory);
    tmp.set_path("tmp/").unwrap();
    tmp.set_mode(0o1777);
    tmp.set_uid(3);
    tmp.set_gid(4);
    tmp.set_mtime(5);
    tmp.set_size(0);
    tmp.set_cksum();
    stage.add(&Layer::new().raw(&tmp, b"").done()).unwrap();
    stage.add(&Layer::new().file("tmp/file", "x").done()).unwrap();
    let found = stage.top("tmp").metadata().unwrap();
    assert_eq!(found.mode() & 0o7777, 0o1777);
    if rustix::process::geteuid().is_root() {
        assert_eq!((found.uid(), found.gid()), (3, 4));
    }
}

#[test]
fn devices_and_pipes_are_left_out_and_listed() {
    let mut stage = Stage::new();
    let layer = Layer::new()
        .entry(EntryType::Char, "dev/null", "", b"")
        .entry(EntryType::Block, "dev/sda", "", b"")
        .entry(EntryType::Fifo, "pipe", "", b"")
        .entry(EntryType::new(b'Z'), "unknown", "", b"content")
        .file("file", "x")
        .done();
    let record = stage.add(&layer).unwrap();
    assert_eq!((record.skipped, record.notes.len()), (4, 4));
    assert!(record.notes[0].contains("dev/null") && record.notes[0].contains("device"));
    assert!(!stage.top("dev/null").exists() && !stage.top("pipe").exists());
    assert_eq!(stage.read("file"), "x");
}

#[test]
fn a_later_entry_of_the_same_name_replaces_the_earlier_one() {
    let mut stage = Stage::new();
    let layer = Layer::new()
        .file("a", "old")
        .file("a", "new")
        .file("b", "file")
        .directory("b")
        .file("b/in", "x")
        .file("c/in", "x")
        .file("c", "file")
        .link("d", "a")
        .file("d", "file")
        .file("e", "shared")
        .hard_link("f", "e")
        .file("e", "other")
        .done();
    stage.add(&layer).unwrap();
    assert_eq!((stage.read("a"), stage.read("b/in")), ("new".into(), "x".into()));
    assert_eq!((stage.read("c"), stage.read("d")), ("file".into(), "file".into()));
    assert_eq!((stage.read("e"), stage.read("f")), ("other".into(), "shared".into()));
    // The content of a layer below must not appear in what has replaced it twice.
    let mut stage = Stage::new();
    stage.add(&Layer::new().file("d/low", "x").done()).unwrap();
    stage.add(&Layer::new().file("d", "x").directory("d").done()).unwrap();
    assert!(stage.is_opaque("d"));
}

#[test]
fn attributes_that_mean_something_to_the_host_are_dropped() {
    let mut stage = Stage::new();
    let attributes: [(&str, &[u8]); 6] = [
        ("SCHILY.xattr.user.note", b"kept"),
        ("SCHILY.xattr.user.overlay.opaque", b"y"),
        ("SCHILY.xattr.user.overlay.redirect", b"/etc"),
        ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
        ("SCHILY.xattr.security.capability", b"\x01\0\0\x02\xff\xff\xff\xff\0\0\0\0"),
        ("SCHILY.xattr.security.selinux", b"x"),
    ];
    let layer = Layer::new().pax(&attributes).directory("d").pax(&attributes).file("f", "x").done();
    stage.add(&layer).unwrap();
    for name in ["d", "f"] {
        let file = std::fs::File::open(stage.top(name)).unwrap();
        let mut names = vec![0; 4096];
        let length = rustix::fs::flistxattr(&file, &mut names).unwrap();
        let names = String::from_utf8_lossy(&names[..length]).into_owned();
        let names: Vec<_> = names.split('\0').filter(|name| !name.is_empty()).collect();
        assert!(names.iter().all(|name| *name == "user.note"), "{names:?}");
    }
}

#[test]
fn limits_hold_whatever_the_layer_says() {
    let many = (0..201).fold(Layer::new(), |layer, n| layer.file(&format!("f{n}"), ""));
    assert_eq!(limit(Stage::new().add(&many.done())), "entries");
    let large = vec![0; (1 << 20) + 1];
    assert_eq!(limit(Stage::new().add(&gzip(&Layer::new().file("a", &large).done()))), "bytes");
    let half = vec![0; 1 << 19];
    let three = Layer::new().file("a", &half).file("a", &half).file("a", &half).done();
    assert_eq!(limit(Stage::new().add(&three)), "bytes");
    let deep = "d/".repeat(200) + "f";
    let layer = Layer::new().pax(&[("path", deep.as_bytes())]).file("x", "").done();
    assert_eq!(limit(Stage::new().add(&layer)), "depth");
    let long = "d".repeat(256);
    let layer = Layer::new().pax(&[("path", long.as_bytes())]).file("x", "").done();
    assert!(matches!(Stage::new().add(&layer), Err(Error::Entry { .. })));
    // A name that would take a gigabyte of memory is refused before it is read.
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader] {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_path("x").unwrap();
        header.set_size(1 << 30);
        header.set_cksum();
        assert_eq!(limit(Stage::new().add(header.as_bytes())), "names");
    }
    // So are headers that are small each: all of them are held until the entry comes.
    let value = vec![b'v'; 100 << 10];
    let many = (0..20).fold(Layer::new(), |layer, _| layer.pax(&[("SCHILY.xattr.user.a", &value)]));
    assert_eq!(limit(Stage::new().add(&many.file("a", "x").done())), "names");
    let empty =
        (0..4096).fold(Layer::new(), |layer, _| layer.entry(EntryType::XHeader, "x", "", b""));
    assert_eq!(limit(Stage::new().add(&empty.file("a", "x").done())), "names");
    // Zeros behind the end of the archive.
    let mut bomb = Layer::new().file("a", "x").done();
    bomb.resize(bomb.len() + (4 << 20), 0);
    assert_eq!(limit(Stage::new().add(&gzip(&bomb))), "bytes");
}

#[test]
fn long_names_of_both_formats_and_large_numbers_are_read() {
    let mut stage = Stage::new();
    let long = ["directory-with-a-long-name"; 8].join("/");
    let layer = Layer::new()
        .entry(EntryType::GNULongName, "././@LongLink", "", format!("{long}\0").as_bytes())
        .file("cut", "gnu")
        .pax(&[("path", format!("{long}-pax").as_bytes()), ("mtime", b"1234567890.5")])
        .file("cut", "pax")
        .entry(EntryType::GNULongLink, "././@LongLink", "", format!("{long}\0").as_bytes())
        .link("link", "cut")
        .done();
    stage.add(&layer).unwrap();
    assert_eq!(stage.read(&long), "gnu");
    assert_eq!(stage.read(&format!("{long}-pax")), "pax");
    let time = stage.top(&format!("{long}-pax")).metadata().unwrap();
    assert_eq!((time.mtime(), time.mtime_nsec()), (1_234_567_890, 500_000_000));
    assert_eq!(std::fs::read_link(stage.top("link")).unwrap(), Path::new(&long));
}

/// A sparse file in GNU's old format: size, and parts with content.
fn gnu_sparse(name: &str, size: u64, parts: &[(u64, u64)]) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNUSparse);
    header.set_path(name).unwrap();
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(parts.iter().map(|(_, length)| length).sum());
    let gnu = header.as_gnu_mut().unwrap();
    gnu.set_real_size(size);
    for (slot, (offset, length)) in gnu.sparse.iter_mut().zip(parts) {
        slot.set_offset(*offset);
        slot.set_length(*length);
    }
    header.set_cksum();
    header
}

#[test]
fn sparse_files_of_all_formats_are_written_with_their_holes() {
    let mut expected = vec![0; 10_000];
    expected[1000..1003].copy_from_slice(b"abc");
    expected[9000..9002].copy_from_slice(b"de");
    let map = {
        let mut map = b"2\n1000\n3\n9000\n2\n".to_vec();
        map.resize(512, 0);
        map
    };
    let layer = Layer::new()
        .raw(&gnu_sparse("gnu", 10_000, &[(1000, 3), (9000, 2)]), b"abcde")
        .pax(&[
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"pax1"),
            ("GNU.sparse.realsize", b"10000"),
        ])
        .file("GNUSparseFile.0/pax1", [map.as_slice(), b"abcde"].concat())
        .pax(&[
            ("GNU.sparse.map", b"1000,3,9000,2"),
            ("GNU.sparse.name", b"pax01"),
            ("GNU.sparse.size", b"10000"),
        ])
        .file("GNUSparseFile.0/pax01", "abcde")
        .done();
    let mut stage = Stage::new();
    let record = stage.add(&layer).unwrap();
    assert_eq!(record.bytes, 30_000);
    for name in ["gnu", "pax1", "pax01"] {
        assert_eq!(std::fs::read(stage.top(name)).unwrap(), expected, "{name}");
    }
    for header in [
        gnu_sparse("huge", 1 << 60, &[(0, 1)]),
        gnu_sparse("overlap", 100, &[(10, 5), (12, 5)]),
        gnu_sparse("beyond", 10, &[(8, 5)]),
        gnu_sparse("wraps", 10, &[(u64::MAX, 2)]),
    ] {
        let layer = Layer::new().raw(&header, &[1; 10]).done();
        assert!(Stage::new().add(&layer).is_err(), "{header:?}");
    }
}

#[test]
fn a_layer_that_ends_early_or_is_no_tar_is_refused() {
    let whole = Layer::new().file("file", [7; 2000]).done();
    for length in [100, 511, 600, 1500] {
        assert!(Stage::new().add(&whole[..length]).is_err(), "{length}");
    }
    let compressed = gzip(&whole);
    assert!(Stage::new().add(&compressed[..compressed.len() / 2]).is_err());
    for wrong in [&b"\xfd7zXZ\0rest"[..], b"BZh91AY", b"no archive at all, but longer than nothing"]
    {
        assert!(Stage::new().add(wrong).is_err());
    }
    let mut header = *Header::from_byte_slice(&whole[..512]).as_bytes();
    header[0] = b'X';
    assert!(matches!(Stage::new().add(&header), Err(Error::Malformed(_))));
}

#[test]
fn zstandard_frames_are_read_one_after_the_other() {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    let layer = Layer::new().file("file", [7; 3000]).done();
    let (one, two) = layer.split_at(700);
    let frame = |part: &[u8]| compress_to_vec(part, CompressionLevel::Fastest);
    let skipped = [&b"\x50\x2a\x4d\x18\x03\0\0\0abc"[..]].concat();
    let blob = [skipped.clone(), frame(one), skipped, frame(two)].concat();
    let mut stage = Stage::new();
    stage.add(&blob).unwrap();
    assert_eq!(std::fs::read(stage.top("file")).unwrap(), [7; 3000]);
    assert!(Stage::new().add(&blob[..blob.len() - 5]).is_err());
}

#[test]
fn the_content_must_have_the_digest_that_the_image_says() {
    let layer = Layer::new().file("file", "x").done();
    let directory = tempfile::tempdir().unwrap();
    let to = Dir::open(directory.path()).unwrap();
    let expected = Digest::of(b"other");
    let result = unpack(gzip(&layer).as_slice(), &to, &[], Some(&expected), &LIMITS, false);
    assert!(matches!(result, Err(Error::DiffId { found, .. }) if found == Digest::of(&layer)));
}

#[test]
fn the_chain_names_a_layer_with_all_below_it() {
    let ids = [Digest::of(b"a"), Digest::of(b"b")];
    let chained: Vec<_> = chain(&ids).collect();
    assert_eq!(chained[0], ids[0]);
    assert_eq!(chained[1], Digest::of(format!("{} {}", ids[0], ids[1]).as_bytes()));
}

/// A name as an attacker would choose it.
fn name() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "c", "link"]),
        1 => prop::sample::select(vec!["..", ".", "", "outside", "file"]),
        1 => prop::sample::select(vec![".wh.a", ".wh.b", ".wh..wh..opq", ".wh.link", ".wh.."]),
    ];
    (any::<bool>(), prop::collection::vec(part, 1..5)).prop_map(|(absolute, parts)| {
        format!("{}{}", if absolute { "/" } else { "" }, parts.join("/"))
    })
}

fn kind() -> impl Strategy<Value = EntryType> {
    prop::sample::select(vec![
        EntryType::Regular,
        EntryType::Regular,
        EntryType::Directory,
        EntryType::Symlink,
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Fifo,
        EntryType::Char,
        EntryType::GNUSparse,
        EntryType::GNULongName,
        EntryType::XHeader,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// [`Stage::add`] compares what is outside before and after.
    #[test]
    fn nothing_outside_is_touched_whatever_the_layers_say(
        layers in prop::collection::vec(
            prop::collection::vec((kind(), name(), name(), any::<bool>()), 0..12),
            1..4,
        ),
    ) {
        let mut stage = Stage::new();
        let out = stage.outside();
        let out = out.to_str().unwrap().to_owned();
        for entries in layers {
            let layer = entries.iter().fold(Layer::new(), |layer, (kind, name, target, leads_out)| {
                let layer = match leads_out {
                    true => layer.pax(&[("linkpath", out.as_bytes())]),
                    false => layer,
                };
                let content: &[u8] = if *kind == EntryType::Regular { b"evil" } else { b"" };
                layer.entry(*kind, name, target, content)
            });
            // The next layer is unpacked upon a complete one only.
            if stage.add(&layer.done()).is_err() {
                break;
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_reason_to_panic(
        content in prop::collection::vec(any::<u8>(), 0..2000),
        magic in prop::sample::select(vec![&b""[..], b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd"]),
    ) {
        let _ = Stage::new().add(&[magic, &content].concat());
    }
}
