//! Connections to ports and sockets inside.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Fixture, sandbox};
use crate::wire::{Answer, Failure, Request, TargetHead};
use stockade_runtime::{Error, Runtime as _, SandboxPath, Target};

/// A connection to a loopback port that is not established yet.
fn connecting(port: u16) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let _ = rustix::net::connect(&socket, &address);
    socket
}

#[tokio::test]
async fn a_port_is_connected_to_or_the_reason_told() {
    let fixture = Fixture::new();
    let _keeper = fixture.keeper(|peer, message| {
        let Request::Connect { target: TargetHead::Tcp(port), .. } = message.head else {
            panic!("{message:?}")
        };
        peer.answer_with(&Answer::Connected, b"", &[connecting(port).as_fd()])
    });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = Target::Tcp(listener.local_addr().unwrap().port());
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut other = stream.try_clone().unwrap();
        std::io::copy(&mut stream, &mut other).unwrap();
    });
    let mut connection = fixture.native.connect(&sandbox(), &target).await.unwrap();
    connection.write_all(b"hello").await.unwrap();
    connection.shutdown().await.unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "hello");
    echo.join().unwrap();
    // No server listens there any more.
    match fixture.native.connect(&sandbox(), &target).await {
        Err(Error::Connect { source, .. }) => {
            assert_eq!(source.kind(), ErrorKind::ConnectionRefused);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_socket_is_connected_to_by_its_path() {
    let fixture = Fixture::new();
    let path = fixture.scratch.path().join("inside");
    let listener = UnixListener::bind(&path).unwrap();
    let _keeper = fixture.keeper(move |peer, message| {
        assert!(matches!(message.head, Request::Connect { target: TargetHead::Unix, .. }));
        if message.body != b"/run/\xff" {
            let failure = Failure::Connect { target: "the socket".to_owned(), errno: 2 };
            return peer.answer(&Answer::Failed(failure));
        }
        let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        peer.answer_with(&Answer::Connected, b"", &[stream.as_fd()])
    });
    let target = |path: &[u8]| {
        use std::os::unix::ffi::OsStrExt as _;
        Target::Unix(SandboxPath::new(std::ffi::OsStr::from_bytes(path)).unwrap())
    };
    let mut connection = fixture.native.connect(&sandbox(), &target(b"/run/\xff")).await.unwrap();
    let (mut other, _) = listener.accept().unwrap();
    std::io::Write::write_all(&mut other, b"hi").unwrap();
    drop(other);
    let mut text = String::new();
    connection.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "hi");
    match fixture.native.connect(&sandbox(), &target(b"/other")).await {
        Err(Error::Connect { source, .. }) => assert_eq!(source.kind(), ErrorKind::NotFound),
        other => panic!("{other:?}"),
    }
}
