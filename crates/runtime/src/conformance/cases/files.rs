//! Writing, reading, inspecting, moving and removing files from outside.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

use super::super::harness::{Harness, path, within, within_long};
use super::super::sandbox::{Sandbox, content};
use crate::error::{Error, Result};
use crate::files::{FileKind, ReadRange, WriteOptions};

/// Checks that an operation failed for one of these reasons.
fn fails<T: std::fmt::Debug>(what: &str, result: Result<T>, kinds: &[io::ErrorKind]) {
    match result {
        Err(Error::File { source, .. }) if kinds.contains(&source.kind()) => {}
        other => panic!("{what}: {other:?}, not one of {kinds:?}"),
    }
}

async fn make(sandbox: &Sandbox<'_>, directory: &str, mode: u32) -> Result<()> {
    let options = WriteOptions { mode, ..WriteOptions::default() };
    let (runtime, directory) = (sandbox.runtime(), path(directory));
    within("a directory", runtime.make_directory(sandbox.id(), &directory, options)).await
}

async fn rename(sandbox: &Sandbox<'_>, from: &str, to: &str) -> Result<()> {
    let (runtime, from, to) = (sandbox.runtime(), path(from), path(to));
    within("another name", runtime.rename(sandbox.id(), &from, &to)).await
}

async fn remove(sandbox: &Sandbox<'_>, file: &str) -> Result<()> {
    let (runtime, file) = (sandbox.runtime(), path(file));
    within("a removal", runtime.remove(sandbox.id(), &file)).await
}

pub(crate) async fn contents_come_back(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let every: Vec<u8> = (0..=255).cycle().take(3 * 65_536 + 7).collect();
    for length in [0, 1, 255, 65_535, 65_536, 65_537, every.len()] {
        let bytes = &every[..length];
        assert_eq!(sandbox.try_write("/data/file", bytes).await.unwrap(), length as u64);
        let read = sandbox.try_read("/data/file").await.unwrap();
        assert!(read == bytes, "{} bytes of {length} came back", read.len());
        let info = sandbox.stat("/data/file").await.unwrap();
        assert_eq!((info.kind, info.size_bytes), (FileKind::File, length as u64));
        assert_eq!(info.name, b"file");
    }
}

pub(crate) async fn commands_see_what_is_written(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/text", "from outside\n").await;
    assert_eq!(sandbox.run(&["cat", "/data/text"]).await.output(), "from outside\n");
}

pub(crate) async fn what_commands_write_is_seen(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.good("umask 022; echo inside > /data/text; chmod 750 /data/text").await;
    assert_eq!(sandbox.read("/data/text").await, "inside\n");
    assert_eq!(sandbox.stat("/data/text").await.unwrap().mode & 0o7777, 0o750);
}

pub(crate) async fn parts_are_read(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "0123456789").await;
    for (offset, length, part) in [
        (0, None, "0123456789"),
        (3, None, "3456789"),
        (3, Some(4), "3456"),
        (3, Some(0), ""),
        (9, Some(100), "9"),
        (10, None, ""),
        (1 << 40, Some(5), ""),
        (u64::MAX, Some(u64::MAX), ""),
    ] {
        let read = sandbox.try_read_range("/data/file", ReadRange { offset, length }).await;
        assert_eq!(read.unwrap(), part.as_bytes(), "{offset} {length:?}");
    }
}

pub(crate) async fn what_is_absent_is_told(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let absent = [io::ErrorKind::NotFound];
    let (runtime, none) = (sandbox.runtime(), path("/data/none/at/all"));
    fails("read", sandbox.try_read("/data/none").await, &absent);
    fails("stat", sandbox.stat("/data/none").await, &absent);
    fails("list", runtime.read_directory(sandbox.id(), &none).await, &absent);
    fails("rename", rename(&sandbox, "/data/none", "/data/new").await, &absent);
    fails("remove", remove(&sandbox, "/data/none").await, &absent);
    let options = WriteOptions { make_parents: false, ..WriteOptions::default() };
    let written = runtime.write_file(sandbox.id(), &none, content("x"), options).await;
    fails("write", written, &absent);
    assert!(!sandbox.exists("/data/none").await);
}

pub(crate) async fn missing_directories_are_made(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/a/b/c", "deep").await;
    assert_eq!(sandbox.read("/data/a/b/c").await, "deep");
    assert_eq!(sandbox.stat("/data/a/b").await.unwrap().kind, FileKind::Directory);
    make(&sandbox, "/data/d/e", 0o700).await.unwrap();
    make(&sandbox, "/data/d/e", 0o755).await.unwrap();
    let info = sandbox.stat("/data/d/e").await.unwrap();
    assert_eq!((info.kind, info.mode & 0o7777), (FileKind::Directory, 0o700));
}

pub(crate) async fn modes_are_as_asked(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let runtime = sandbox.runtime();
    let mode = async || sandbox.stat("/data/file").await.unwrap().mode & 0o7777;
    for (asked, is) in [(0o640, 0o640), (0o777, 0o640)] {
        let options = WriteOptions { mode: asked, ..WriteOptions::default() };
        let file = path("/data/file");
        let written = runtime.write_file(sandbox.id(), &file, content("x"), options);
        within("writing", written).await.unwrap();
        assert_eq!(mode().await, is, "what is there keeps its mode");
    }
    make(&sandbox, "/data/open", 0o777).await.unwrap();
    assert_eq!(sandbox.stat("/data/open").await.unwrap().mode & 0o7777, 0o777);
}

pub(crate) async fn writing_replaces_the_whole(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "a long content").await;
    sandbox.write("/data/file", "short").await;
    assert_eq!(sandbox.read("/data/file").await, "short");
}

/// Content that ends in an error.
struct Broken(usize);

impl AsyncRead for Broken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = self.0.min(buffer.remaining());
        if length == 0 {
            return Poll::Ready(Err(io::Error::other("no more")));
        }
        buffer.put_slice(&vec![b'x'; length]);
        self.0 -= length;
        Poll::Ready(Ok(()))
    }
}

pub(crate) async fn what_cannot_be_written_whole_is_not_written(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "old").await;
    let before = sandbox.names("/data").await;
    for file in ["/data/file", "/data/new"] {
        let (runtime, broken) = (sandbox.runtime(), Box::pin(Broken(300_000)));
        let (file, options) = (path(file), WriteOptions::default());
        let written = runtime.write_file(sandbox.id(), &file, broken, options);
        within("writing", written).await.expect_err("broken content");
    }
    assert_eq!(sandbox.read("/data/file").await, "old");
    assert_eq!(sandbox.names("/data").await, before);
}

/// A concurrent reader sees the old content or the new.
pub(crate) async fn readers_see_no_half(harness: &Harness) {
    const LENGTH: usize = 200_000;
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", vec![b'a'; LENGTH]).await;
    let writing = async {
        for letter in b'b'..=b'p' {
            sandbox.write("/data/file", vec![letter; LENGTH]).await;
        }
    };
    let reading = async {
        for _ in 0..30 {
            let read = sandbox.try_read("/data/file").await.unwrap();
            let first = read.first().copied().unwrap_or_default();
            let whole = read.len() == LENGTH && read.iter().all(|byte| *byte == first);
            assert!(whole, "{} bytes that begin with {first}", read.len());
        }
    };
    tokio::join!(writing, reading);
}

pub(crate) async fn directories_and_files_are_not_confused(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    make(&sandbox, "/data/full", 0o755).await.unwrap();
    sandbox.write("/data/full/file", "x").await;
    let is_directory = [io::ErrorKind::IsADirectory];
    let not_directory = [io::ErrorKind::NotADirectory];
    let file_is_there = [io::ErrorKind::NotADirectory, io::ErrorKind::AlreadyExists];
    fails("write", sandbox.try_write("/data/full", "x").await, &is_directory);
    fails("write to /", sandbox.try_write("/", "x").await, &is_directory);
    fails("read", sandbox.try_read("/data/full").await, &is_directory);
    let below = "/data/full/file/below";
    fails("write below", sandbox.try_write(below, "x").await, &file_is_there);
    fails("read below", sandbox.try_read(below).await, &not_directory);
    fails("make", make(&sandbox, "/data/full/file", 0o755).await, &file_is_there);
    let (runtime, file) = (sandbox.runtime(), path("/data/full/file"));
    fails("list", runtime.read_directory(sandbox.id(), &file).await, &not_directory);
    assert_eq!(sandbox.read("/data/full/file").await, "x");
}

pub(crate) async fn names_are_changed(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/one", "1").await;
    sandbox.write("/data/two", "2").await;
    sandbox.write("/data/tree/deep/file", "3").await;
    rename(&sandbox, "/data/one", "/data/two").await.unwrap();
    assert_eq!(sandbox.read("/data/two").await, "1");
    rename(&sandbox, "/data/tree", "/data/moved").await.unwrap();
    assert_eq!(sandbox.read("/data/moved/deep/file").await, "3");
    assert_eq!(sandbox.names("/data").await, [&b"moved"[..], b"two"]);

    let into_itself = rename(&sandbox, "/data/moved", "/data/moved/deep/moved").await;
    fails("into itself", into_itself, &[io::ErrorKind::InvalidInput]);
    let over = rename(&sandbox, "/data/two", "/data/moved").await;
    fails("a file over a directory", over, &[io::ErrorKind::IsADirectory]);
    let over = rename(&sandbox, "/data/moved", "/data/two").await;
    fails("a directory over a file", over, &[io::ErrorKind::NotADirectory]);
    assert_eq!(sandbox.read("/data/moved/deep/file").await, "3");
    assert_eq!(sandbox.read("/data/two").await, "1");
}

pub(crate) async fn trees_are_removed(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let deep = format!("/data/tree{}", "/d".repeat(200));
    sandbox.write(&format!("{deep}/file"), "deep").await;
    for number in 0..50 {
        sandbox.write(&format!("/data/tree/{number}"), "flat").await;
    }
    sandbox.write("/data/other", "stays").await;
    remove(&sandbox, "/data/tree").await.unwrap();
    assert_eq!(sandbox.names("/data").await, [b"other"]);
    remove(&sandbox, "/data/other").await.unwrap();
    assert!(sandbox.names("/data").await.is_empty());
    assert!(remove(&sandbox, "/").await.is_err());
    assert!(sandbox.exists("/data").await);
}

/// Removing works even if the mode denies access to the user, as it does for a file's owner.
pub(crate) async fn closed_directories_are_removed(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox
        .good("mkdir -p /data/closed/in && : > /data/closed/in/file && chmod 0 /data/closed/in")
        .await;
    remove(&sandbox, "/data/closed").await.unwrap();
    assert!(!sandbox.exists("/data/closed").await);
}

pub(crate) async fn times_are_told(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.good(": > /data/old && touch -t 200102030405.06 /data/old && : > /data/new").await;
    let old = sandbox.stat("/data/old").await.unwrap().modified_ms;
    // The tolerance covers every time zone.
    assert!((old - 981_173_106_000).abs() <= 14 * 3_600_000, "{old}");
    assert!(sandbox.stat("/data/new").await.unwrap().modified_ms > old);
}

pub(crate) async fn a_gigabyte_passes(harness: &Harness) {
    const LENGTH: u64 = 1 << 30;
    let sandbox = harness.sandbox().await;
    let (runtime, file) = (sandbox.runtime(), path("/data/large"));
    let content = Box::pin(tokio::io::repeat(b'g').take(LENGTH));
    let options = WriteOptions::default();
    let deadline = Duration::from_secs(120);
    let written = runtime.write_file(sandbox.id(), &file, content, options);
    let written = within_long("writing a gigabyte", deadline, written).await;
    assert_eq!(written.unwrap(), LENGTH);
    let read = within_long("reading a gigabyte", deadline, async {
        let range = ReadRange::default();
        let mut content = runtime.read_file(sandbox.id(), &file, range).await.unwrap();
        let (mut buffer, mut read) = (vec![0; 1 << 20], 0);
        loop {
            match content.read(&mut buffer).await.unwrap() {
                0 => break read,
                length => {
                    assert!(buffer[..length].iter().all(|byte| *byte == b'g'));
                    read += length as u64;
                }
            }
        }
    });
    assert_eq!(read.await, LENGTH);
}
