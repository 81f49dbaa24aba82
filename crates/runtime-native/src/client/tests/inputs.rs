//! A command's standard input.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Mutex;

use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;

use super::keeper::{Keeper, Peer};
use super::{Fixture, exec, sandbox};
use crate::wire::{Action, Answer, Request};
use stockade_runtime::{Command, Ending, Error, Exec, Offsets, Runtime as _, StandardInput};

/// A keeper whose commands have this descriptor as the outer end of their input, until it receives
/// a request to close the input.
fn keeper(fixture: &Fixture, end: OwnedFd) -> Keeper {
    let end = Mutex::new(Some(end));
    fixture.keeper(move |peer: &Peer, message| match message.head {
        Request::Execute { .. } | Request::Attach { .. } => {
            if end.lock().unwrap().is_none() {
                return peer.answer(&Answer::Attached { input: false });
            }
            let end = end.lock().unwrap().as_ref().unwrap().try_clone().unwrap();
            let attached = Answer::Attached { input: true };
            let went = peer.answer_with(&attached, b"", &[end.as_fd()]);
            drop(end);
            went && peer.request().is_some()
        }
        Request::Command { action: Action::CloseInput, .. } => {
            drop(end.lock().unwrap().take());
            peer.answer(&Answer::Done)
        }
        _ => peer.answer(&Answer::Ended(Ending::Exited(0))),
    })
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap()
}

async fn execute(fixture: &Fixture) -> Exec {
    let input = StandardInput::Streamed;
    let command = Command { arguments: vec!["cat".into()], input, ..Command::default() };
    fixture.native.execute(&sandbox(), &exec(), &command).await.unwrap()
}

#[tokio::test]
async fn a_pipe_gets_all_bytes_and_its_end() {
    let fixture = Fixture::new();
    let (reader, writer) = pipe();
    let _keeper = keeper(&fixture, writer);
    let exec = execute(&fixture).await;
    let input = exec.input.unwrap();
    let pieces: Vec<Vec<u8>> = (0..40_u8).map(|number| vec![number; 50_000]).collect();
    let expected = pieces.concat();
    // More than the pipe holds, so the write has to wait for the reader.
    let writing = tokio::spawn(async move {
        for piece in pieces {
            input.write(piece).await.unwrap();
        }
        input.close().await.unwrap();
        input
    });
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        File::from(reader).read_to_end(&mut bytes).unwrap();
        bytes
    });
    assert!(read.await.unwrap() == expected);
    let input = writing.await.unwrap();
    // A piece may be accepted before the end was noticed.
    let closed = loop {
        if let Err(error) = input.write(b"more".to_vec()).await {
            break error;
        }
    };
    assert!(matches!(closed, Error::Invalid(_)), "{closed}");
}

#[tokio::test]
async fn a_pipe_that_nobody_reads_any_more_is_closed() {
    let fixture = Fixture::new();
    let (reader, writer) = pipe();
    let _keeper = keeper(&fixture, writer);
    let exec = execute(&fixture).await;
    drop(reader);
    let input = exec.input.unwrap();
    // One piece may be in flight when it is noticed.
    while input.write(b"x".to_vec()).await.is_ok() {}
}

#[tokio::test]
async fn dropping_the_input_leaves_it_open_for_others() {
    let fixture = Fixture::new();
    let (reader, writer) = pipe();
    let _keeper = keeper(&fixture, writer.try_clone().unwrap());
    let exec = execute(&fixture).await;
    let input = exec.input.unwrap();
    input.write(b"a".to_vec()).await.unwrap();
    drop(input);
    rustix::io::write(&writer, b"b").unwrap();
    drop(writer);
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = [0; 2];
        File::from(reader).read_exact(&mut bytes).unwrap();
        bytes
    });
    let mut bytes = read.await.unwrap();
    bytes.sort_unstable();
    assert_eq!(&bytes, b"ab");
}

#[tokio::test]
async fn whoever_only_listens_does_not_keep_the_input_open() {
    let fixture = Fixture::new();
    let (reader, writer) = pipe();
    let _keeper = keeper(&fixture, writer);
    let attach = async || {
        let from = Offsets::default();
        fixture.native.attach(&sandbox(), &exec(), from).await.unwrap().input.unwrap()
    };
    let (listener, writer) = (attach().await, attach().await);
    writer.write(b"text".to_vec()).await.unwrap();
    writer.close().await.unwrap();
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        File::from(reader).read_to_string(&mut text).unwrap();
        text
    });
    assert_eq!(read.await.unwrap(), "text");
    // It receives an error when it writes after all.
    while listener.write(b"late".to_vec()).await.is_ok() {}
}

#[tokio::test]
async fn a_terminal_gets_its_character_for_the_end() {
    let fixture = Fixture::new();
    let outer = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .unwrap();
    rustix::pty::grantpt(&outer).unwrap();
    rustix::pty::unlockpt(&outer).unwrap();
    let name = rustix::pty::ptsname(&outer, Vec::new()).unwrap().into_string().unwrap();
    let mut inner = File::options().read(true).write(true).open(name).unwrap();
    let _keeper = keeper(&fixture, outer);
    let exec = execute(&fixture).await;
    let input = exec.input.unwrap();
    input.write(b"line\n".to_vec()).await.unwrap();
    input.close().await.unwrap();
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        inner.read_to_end(&mut bytes).unwrap();
        bytes
    });
    assert_eq!(read.await.unwrap(), b"line\n");
}
