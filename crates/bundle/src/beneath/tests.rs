//! Tests of `beneath`: what must be refused, and that everything else works.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

fn path(text: &str) -> RelativePath {
    RelativePath::new(text).unwrap()
}

fn scratch() -> (tempfile::TempDir, Dir) {
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    (root, dir)
}

#[test]
fn links_in_parents_are_never_followed() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("file"), "outside").unwrap();
    let (root, dir) = scratch();
    std::fs::create_dir(root.path().join("real")).unwrap();
    std::fs::write(root.path().join("real/file"), "inside").unwrap();
    symlink(outside.path(), root.path().join("absolute")).unwrap();
    symlink("..", root.path().join("up")).unwrap();
    symlink("real", root.path().join("inner")).unwrap();
    symlink("/proc/self/cwd", root.path().join("magic")).unwrap();

    for link in ["absolute", "up", "inner", "magic"] {
        let below = path(&format!("{link}/file"));
        let refused = |result: Result<(), Error>| {
            assert!(matches!(result, Err(Error::ThroughLink { .. })), "{link}: {result:?}");
        };
        refused(dir.open_file(&below).map(drop));
        refused(dir.open_dir(&below).map(drop));
        refused(dir.create_file(&below, 0o644).map(drop));
        refused(dir.stat(&below).map(drop));
        refused(dir.read_link(&below).map(drop));
        refused(dir.symlink(b"x", &below));
        refused(dir.mkdir(&below, 0o755));
        refused(dir.remove_file(&below));
        refused(dir.remove_dir(&below));
        refused(dir.remove_tree(&below));
        refused(dir.chmod(&below, 0o600));
        refused(dir.chown(&below, 0, 0));
        refused(dir.rename(&below, &dir, &path("taken"), Rename::Replace));
        refused(dir.rename(&path("real/file"), &dir, &below, Rename::Replace));
        refused(dir.open_dir(&path(link)).map(drop));
    }
    assert_eq!(std::fs::read(outside.path().join("file")).unwrap(), b"outside");
    assert_eq!(std::fs::read(root.path().join("real/file")).unwrap(), b"inside");
}

#[test]
fn a_link_itself_is_handled_as_a_link() {
    let (root, dir) = scratch();
    symlink("/etc/passwd", root.path().join("link")).unwrap();
    let link = path("link");
    assert!(matches!(dir.open_file(&link), Err(Error::NotRegular { .. })));
    assert!(matches!(dir.chmod(&link, 0o777), Err(Error::NotRegular { .. })));
    assert_eq!(dir.stat(&link).unwrap().unwrap().kind, FileKind::Symlink);
    assert_eq!(dir.read_link(&link).unwrap(), b"/etc/passwd");
    dir.remove_file(&link).unwrap();
    assert_eq!(dir.stat(&link).unwrap(), None);
}

#[test]
fn magic_links_of_proc_are_refused() {
    let proc = Dir::open(Path::new("/proc/self")).unwrap();
    assert!(matches!(proc.open_dir(&path("root")), Err(Error::ThroughLink { .. })));
    assert!(matches!(proc.open_file(&path("root/etc/passwd")), Err(Error::ThroughLink { .. })));
    assert!(matches!(proc.open_file(&path("exe")), Err(Error::NotRegular { .. })));
}

#[test]
fn special_files_are_refused_without_blocking() {
    let (root, dir) = scratch();
    let fifo = root.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        Mode::from_bits_truncate(0o644),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.path().join("socket")).unwrap();
    std::fs::create_dir(root.path().join("directory")).unwrap();
    for name in ["fifo", "socket", "directory"] {
        let opened = dir.open_file(&path(name));
        assert!(matches!(opened, Err(Error::NotRegular { .. })), "{name}: {opened:?}");
    }
    let null = Dir::open(Path::new("/dev")).unwrap().open_file(&path("null"));
    assert!(matches!(null, Err(Error::NotRegular { .. })), "{null:?}");
}

#[test]
fn files_are_made_once_and_read_back() {
    let (_root, dir) = scratch();
    dir.mkdir(&path("a"), 0o755).unwrap();
    let name = RelativePath::new(&b"a/new\nline \xff"[..]).unwrap();
    dir.create_file(&name, 0o600).unwrap().write_all(b"content").unwrap();
    let again = dir.create_file(&name, 0o600).unwrap_err();
    assert_eq!(again.kind(), Some(io::ErrorKind::AlreadyExists));
    let mut text = String::new();
    dir.open_file(&name).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "content");
    dir.chmod(&name, 0o4751).unwrap();
    let stat = dir.stat(&name).unwrap().unwrap();
    assert_eq!((stat.kind, stat.mode, stat.size), (FileKind::File, 0o4751, 7));
    let entries = dir.open_dir(&path("a")).unwrap().entries().unwrap();
    assert_eq!(entries, [(b"new\nline \xff".to_vec(), FileKind::File)]);
    assert_eq!(dir.stat(&path("a/missing/deeper")).unwrap(), None);
}

#[test]
fn a_rename_replaces_only_when_told() {
    let (root, dir) = scratch();
    std::fs::write(root.path().join("a"), "a").unwrap();
    std::fs::write(root.path().join("b"), "b").unwrap();
    let read = |name: &str| std::fs::read_to_string(root.path().join(name)).unwrap();
    let refused = dir.rename(&path("a"), &dir, &path("b"), Rename::NoReplace).unwrap_err();
    assert_eq!(refused.errno(), Some(Errno::EXIST));
    dir.rename(&path("a"), &dir, &path("b"), Rename::Exchange).unwrap();
    assert_eq!((read("a").as_str(), read("b").as_str()), ("b", "a"));
    dir.rename(&path("a"), &dir, &path("c"), Rename::NoReplace).unwrap();
    assert_eq!(read("c"), "b");
    dir.rename(&path("b"), &dir, &path("c"), Rename::Replace).unwrap();
    assert_eq!(read("c"), "a");
}

#[test]
fn trees_are_removed_however_deep_and_locked() {
    let (root, dir) = scratch();
    std::fs::create_dir(root.path().join("tree")).unwrap();
    // This is deeper than PATH_MAX allows a path to be, so it is created from descriptor to
    // descriptor.
    let mut level = dir.open_dir(&path("tree")).unwrap();
    for _ in 0..3000 {
        level.mkdir(&path("d"), 0o755).unwrap();
        drop(level.create_file(&path("f"), 0o644).unwrap());
        level = level.open_dir(&path("d")).unwrap();
    }
    let locked = root.path().join("tree/locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::write(locked.join("file"), "").unwrap();
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o000)).unwrap();
    symlink("/", root.path().join("tree/link")).unwrap();

    dir.remove_tree(&path("tree")).unwrap();
    assert_eq!(dir.entries().unwrap(), []);
    dir.remove_tree(&path("tree")).unwrap();
}
