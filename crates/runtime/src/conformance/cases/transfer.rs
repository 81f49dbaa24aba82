//! Copying directories into a sandbox and out of it, with all of their content and nothing else.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::super::harness::{Harness, path, within};
use super::super::sandbox::Sandbox;
use crate::error::{Error, Result};
use crate::files::{Content, FileKind};

const MIB: u64 = 1 << 20;

/// The kind, mode and content of each path below a directory.
type Tree = BTreeMap<PathBuf, (char, u32, Vec<u8>)>;

fn tree(directory: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory_now) = pending.pop() {
        for entry in fs::read_dir(&directory_now).unwrap() {
            let file = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&file).unwrap();
            let (kind, mode, content) = if metadata.is_symlink() {
                ('l', 0, fs::read_link(&file).unwrap().as_os_str().as_bytes().to_vec())
            } else if metadata.is_dir() {
                pending.push(file.clone());
                ('d', metadata.mode() & 0o777, Vec::new())
            } else {
                ('f', metadata.mode() & 0o777, fs::read(&file).unwrap())
            };
            tree.insert(file.strip_prefix(directory).unwrap().to_owned(), (kind, mode, content));
        }
    }
    tree
}

/// A directory of the host with an example of everything that may be copied.
fn source(harness: &Harness) -> PathBuf {
    let source = harness.host().join("source");
    let permit = |file: &Path, mode| {
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    };
    fs::create_dir_all(source.join("deep/er")).unwrap();
    fs::create_dir(source.join("empty")).unwrap();
    fs::write(source.join("text"), "text\n").unwrap();
    fs::write(source.join("nothing"), "").unwrap();
    fs::write(source.join("deep/er/binary"), (0..=255).collect::<Vec<u8>>()).unwrap();
    fs::write(source.join("program"), "#!/bin/sh\necho shipped\n").unwrap();
    for name in [&b"new\nline"[..], b"\xff", b"-rf", b" "] {
        fs::write(source.join(OsStr::from_bytes(name)), name).unwrap();
    }
    symlink("deep/er", source.join("link")).unwrap();
    symlink("/etc/passwd", source.join("outside")).unwrap();
    symlink("../../../..", source.join("deep/up")).unwrap();
    symlink("nothing at all", source.join("dangling")).unwrap();
    permit(&source.join("program"), 0o755);
    permit(&source.join("text"), 0o640);
    permit(&source.join("nothing"), 0o400);
    permit(&source.join("empty"), 0o750);
    source
}

async fn ship(sandbox: &Sandbox<'_>, from: &Path, to: &str) -> Result<()> {
    within("shipping", sandbox.runtime().ship(sandbox.id(), from, &path(to))).await
}

async fn collect(sandbox: &Sandbox<'_>, from: &str, to: &Path, limit: u64) -> Result<()> {
    let runtime = sandbox.runtime();
    within("collecting", runtime.collect(sandbox.id(), &path(from), to, limit)).await
}

fn names(directory: &Path) -> Vec<OsString> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

pub(crate) async fn what_is_shipped_is_collected(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let (source, to) = (source(harness), harness.host().join("collected"));
    ship(&sandbox, &source, "/data/new/place").await.unwrap();
    assert_eq!(sandbox.stat("/data/new/place/program").await.unwrap().mode & 0o777, 0o755);
    assert_eq!(sandbox.stat("/data/new/place/outside").await.unwrap().kind, FileKind::Link);
    collect(&sandbox, "/data/new/place", &to, MIB).await.unwrap();
    assert_eq!(tree(&to), tree(&source));
}

/// The stream of one directory fills another one, with everything in it.
pub(crate) async fn a_tree_goes_through_a_stream(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let (source, to) = (source(harness), harness.host().join("collected"));
    ship(&sandbox, &source, "/data/place").await.unwrap();
    let (runtime, id) = (sandbox.runtime(), sandbox.id());
    for _ in 0..2 {
        let packed = within("packing", runtime.pack(id, &path("/data/place"), None)).await.unwrap();
        let other = path("/data/other");
        let unpacked = runtime.unpack(id, &other, 0o755, packed.content);
        let size = within("unpacking", unpacked).await.unwrap();
        let (paths, bytes) = packed.progress.read();
        assert_eq!(paths, tree(&source).len() as u64);
        assert_eq!((size.files, size.links, size.bytes), (8, 4, bytes));
    }
    collect(&sandbox, "/data/other", &to, MIB).await.unwrap();
    assert_eq!(tree(&to), tree(&source));
    // A directory that contains the mark is skipped.
    let mark = Some(b"binary".to_vec());
    let packed =
        within("packing", runtime.pack(id, &path("/data/place/deep"), mark)).await.unwrap();
    let marked = path("/data/marked");
    let unpacked = runtime.unpack(id, &marked, 0o755, packed.content);
    within("unpacking", unpacked).await.unwrap();
    let names = within("listing", runtime.read_directory(id, &path("/data/marked"))).await.unwrap();
    assert_eq!(names.iter().map(|file| file.name.as_slice()).collect::<Vec<_>>(), [b"up"]);
    // What is no tree is an error, and so is what is no directory.
    let broken: Content = Box::pin(std::io::Cursor::new(b"F\0\x02..".to_vec()));
    within("unpacking", runtime.unpack(id, &path("/data/broken"), 0o755, broken))
        .await
        .unwrap_err();
    let file = path("/data/place/text");
    assert!(within("packing", runtime.pack(id, &file, None)).await.is_err());
}

/// The operation is repeated after a crash of the caller.
pub(crate) async fn shipped_twice_it_is_the_same(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let (source, to) = (source(harness), harness.host().join("collected"));
    ship(&sandbox, &source, "/data/place").await.unwrap();
    sandbox.write("/data/place/text", "changed since").await;
    ship(&sandbox, &source, "/data/place").await.unwrap();
    collect(&sandbox, "/data/place", &to, MIB).await.unwrap();
    assert_eq!(tree(&to), tree(&source));
}

pub(crate) async fn what_is_shipped_can_be_used(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    ship(&sandbox, &source(harness), "/data/place").await.unwrap();
    let text = "cd /data/place && ./program && echo more >> text && cat text && : > deep/er/new";
    assert_eq!(sandbox.good(text).await, "shipped\ntext\nmore\n");
}

pub(crate) async fn what_commands_left_is_collected(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text =
        "cd /data && umask 022 && mkdir -p out/empty out/deep && echo made > out/deep/file &&
                ln -s /etc/shadow out/link && ln -s ../../.. out/deep/up && chmod 700 out/deep &&
                mkfifo out/pipe && echo closed > out/closed && chmod 640 out/closed";
    sandbox.good(text).await;
    let to = harness.host().join("collected");
    collect(&sandbox, "/data/out", &to, MIB).await.unwrap();
    let text = |text: &str| text.as_bytes().to_vec();
    let expected: [(&str, _); 6] = [
        ("empty", ('d', 0o755, text(""))),
        ("deep", ('d', 0o700, text(""))),
        ("deep/file", ('f', 0o644, text("made\n"))),
        ("deep/up", ('l', 0, text("../../.."))),
        ("link", ('l', 0, text("/etc/shadow"))),
        ("closed", ('f', 0o640, text("closed\n"))),
    ];
    let expected = expected.into_iter().map(|(name, entry)| (PathBuf::from(name), entry));
    assert_eq!(tree(&to), expected.collect());
}

pub(crate) async fn what_is_too_large_leaves_nothing(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    for number in 0..5 {
        sandbox.write(&format!("/data/out/{number}"), vec![b'x'; 100_000]).await;
    }
    let target = harness.host().join("place");
    fs::create_dir(&target).unwrap();
    let refused = collect(&sandbox, "/data/out", &target.join("collected"), 499_999).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert!(names(&target).is_empty(), "{:?}", names(&target));
    collect(&sandbox, "/data/out", &target.join("collected"), 500_000).await.unwrap();
    assert_eq!(names(&target), ["collected"]);
}

/// A sparse file: long, but without disk use.
pub(crate) async fn what_is_hollow_counts_as_long(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox
        .good("mkdir /data/out && dd if=/dev/null of=/data/out/file bs=1 seek=1099511627776")
        .await;
    assert_eq!(sandbox.size("/data/out/file").await, 1 << 40);
    let to = harness.host().join("collected");
    let refused = collect(&sandbox, "/data/out", &to, MIB).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert!(!to.exists());
}

pub(crate) async fn what_is_absent_is_told(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "no directory").await;
    let to = harness.host().join("collected");
    for from in ["/data/none", "/data/file"] {
        let refused = collect(&sandbox, from, &to, MIB).await;
        assert!(matches!(refused, Err(Error::File { .. })), "{from}: {refused:?}");
        assert!(!to.exists());
    }
    let refused = ship(&sandbox, &harness.host().join("none"), "/data/place").await;
    assert!(matches!(refused, Err(Error::Host { .. })), "{refused:?}");
    assert!(!sandbox.exists("/data/place").await);
}

/// Nothing of the host is overwritten.
pub(crate) async fn only_a_new_directory_is_collected_to(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/out/kept", "from inside").await;
    let to = harness.host().join("there");
    fs::create_dir(&to).unwrap();
    fs::write(to.join("kept"), "of the host").unwrap();
    let refused = collect(&sandbox, "/data/out", &to, MIB).await;
    assert!(matches!(refused, Err(Error::Host { .. })), "{refused:?}");
    assert_eq!(fs::read_to_string(to.join("kept")).unwrap(), "of the host");
    let above = harness.host().join("none/there");
    let refused = collect(&sandbox, "/data/out", &above, MIB).await;
    assert!(matches!(refused, Err(Error::Host { .. })), "{refused:?}");
}

/// A pipe of the host is an error, and is not waited for.
pub(crate) async fn what_is_no_file_is_not_shipped(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let source = harness.host().join("source");
    fs::create_dir(&source).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, source.join("pipe"), mode).unwrap();
    let refused = ship(&sandbox, &source, "/data/place").await;
    assert!(matches!(refused, Err(Error::Host { .. } | Error::Invalid(_))), "{refused:?}");
}
