//! Files inside, through the descriptor of a root directory that the keeper sends.

use std::io;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::fs::{Mode, OFlags};
use stockade_core::access::Rules;
use stockade_core::sandbox::User;
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

use super::keeper::Keeper;
use super::{Fixture, sandbox};
use crate::wire::{Answer, Request};
use stockade_runtime::{Content, Error, ReadRange, Runtime as _, SandboxPath, WriteOptions};

/// A keeper whose sandbox has a directory of the test as its root.
fn keeper(fixture: &Fixture) -> Keeper {
    let path = fixture.scratch.path().join("root");
    std::fs::create_dir(&path).unwrap();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty()).unwrap();
    let own = rustix::process::geteuid().as_raw();
    fixture.keeper(move |peer, message| {
        assert_eq!(message.head, Request::Root { id: sandbox() });
        let answer = Answer::Root {
            host_start: None,
            user: User { user: own, group: own },
            access: Rules::default(),
        };
        peer.answer_with(&answer, b"", &[root.as_fd()])
    })
}

fn path(text: &str) -> SandboxPath {
    SandboxPath::new(text).unwrap()
}

fn content(bytes: &[u8]) -> Content {
    Box::pin(io::Cursor::new(bytes.to_vec()))
}

async fn read(fixture: &Fixture, file: &str, range: ReadRange) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut content = fixture.native.read_file(&sandbox(), &path(file), range).await.unwrap();
    content.read_to_end(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test]
async fn files_are_written_and_read_and_listed() {
    let fixture = Fixture::new();
    let _keeper = keeper(&fixture);
    let (native, id) = (&fixture.native, sandbox());
    let options = WriteOptions::default();
    // More than one piece, and not a whole number of pieces.
    let long: Vec<u8> = (0..1_000_003_u32).map(|number| number.to_le_bytes()[0]).collect();
    for bytes in [&long[..], b""] {
        let written = native.write_file(&id, &path("/a/b"), content(bytes), options).await;
        assert_eq!(written.unwrap(), bytes.len() as u64);
        assert!(read(&fixture, "/a/b", ReadRange::default()).await == bytes);
    }
    native.write_file(&id, &path("/a/b"), content(b"0123456789"), options).await.unwrap();
    let range = ReadRange { offset: 3, length: Some(4) };
    assert_eq!(read(&fixture, "/a/b", range).await, b"3456");
    native.make_directory(&id, &path("/a/c/d"), options).await.unwrap();
    native.rename(&id, &path("/a/b"), &path("/a/e")).await.unwrap();
    let names = native.read_directory(&id, &path("/a")).await.unwrap();
    assert_eq!(names.iter().map(|info| &info.name[..]).collect::<Vec<_>>(), [b"c", b"e"]);
    assert_eq!(native.stat(&id, &path("/a/e")).await.unwrap().size_bytes, 10);
    native.remove(&id, &path("/a")).await.unwrap();
    let missing = native.stat(&id, &path("/a")).await.unwrap_err();
    assert!(matches!(missing, Error::File { ref source, .. }
        if source.kind() == io::ErrorKind::NotFound));
}

#[tokio::test]
async fn directories_are_copied_in_and_out() {
    let fixture = Fixture::new();
    let _keeper = keeper(&fixture);
    let (native, id) = (&fixture.native, sandbox());
    let from = fixture.scratch.path().join("from");
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("file"), "text").unwrap();
    native.ship(&id, &from, &path("/in")).await.unwrap();
    let to = fixture.scratch.path().join("to");
    native.collect(&id, &path("/in"), &to, 1 << 20).await.unwrap();
    assert_eq!(std::fs::read_to_string(to.join("file")).unwrap(), "text");
}

/// A content that breaks off: with an error, or by never producing another piece.
struct Broken {
    fails: bool,
    given: bool,
}

impl AsyncRead for Broken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.given {
            self.given = true;
            buffer.put_slice(b"half");
            return Poll::Ready(Ok(()));
        }
        if self.fails { Poll::Ready(Err(io::Error::other("broken"))) } else { Poll::Pending }
    }
}

#[tokio::test]
async fn a_content_that_breaks_off_leaves_what_was_there() {
    let fixture = Fixture::new();
    let _keeper = keeper(&fixture);
    let (native, id, file) = (&fixture.native, sandbox(), path("/file"));
    let options = WriteOptions::default();
    native.write_file(&id, &file, content(b"whole"), options).await.unwrap();
    let fails = Box::pin(Broken { fails: true, given: false });
    let error = native.write_file(&id, &file, fails, options).await.unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");
    let hangs = Box::pin(Broken { fails: false, given: false });
    tokio::select! {
        done = native.write_file(&id, &file, hangs, options) => panic!("{done:?}"),
        // Until the thread that writes has started.
        () = async { while fixture.root_entries() < 2 { tokio::task::yield_now().await } } => {}
    }
    // The thread ends by itself.
    while fixture.root_entries() > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(read(&fixture, "/file", ReadRange::default()).await, b"whole");
    // If no file can be written, no more content is read.
    let hangs = Box::pin(Broken { fails: false, given: false });
    native.write_file(&id, &path("/file/below"), hangs, options).await.unwrap_err();
}

impl Fixture {
    fn root_entries(&self) -> usize {
        self.scratch.path().join("root").read_dir().unwrap().count()
    }
}
