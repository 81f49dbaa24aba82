//! Connections to servers inside. The server returns what it gets.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::harness::{Harness, path, within};
use super::super::sandbox::Sandbox;
use crate::error::Error;
use crate::runtime::{Connection, Target};

const PORT: Target = Target::Tcp(8123);

fn socket() -> Target {
    Target::Unix(path("/data/socket"))
}

async fn connect(sandbox: &Sandbox<'_>, target: &Target) -> Box<dyn Connection> {
    let runtime = sandbox.runtime();
    within("a connection", runtime.connect(sandbox.id(), target)).await.expect("a connection")
}

/// Sends all bytes and the end of the stream, and receives the answer.
async fn echo(mut connection: Box<dyn Connection>, bytes: Vec<u8>) -> Vec<u8> {
    within("an echo", async move {
        let (mut reader, mut writer) = tokio::io::split(&mut connection);
        let mut received = Vec::new();
        let writing = async {
            writer.write_all(&bytes).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let ((), read) = tokio::join!(writing, reader.read_to_end(&mut received));
        read.unwrap();
        received
    })
    .await
}

async fn answers(harness: &Harness, target: &Target) {
    let sandbox = harness.sandbox().await;
    harness.serve(&sandbox, target).await;
    let mut connection = connect(&sandbox, target).await;
    let mut received = [0; 4];
    within("an answer", async {
        for text in [b"ping", b"pong"] {
            connection.write_all(text).await.unwrap();
            connection.read_exact(&mut received).await.unwrap();
            assert_eq!(&received, text);
        }
    })
    .await;
    // One direction is closed; the other still delivers the data in transit.
    assert_eq!(echo(connection, b"last words".to_vec()).await, b"last words");
    let long: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    assert!(echo(connect(&sandbox, target).await, long.clone()).await == long);
}

pub(crate) async fn a_tcp_port_answers(harness: &Harness) {
    answers(harness, &PORT).await;
}

pub(crate) async fn a_unix_socket_answers(harness: &Harness) {
    answers(harness, &socket()).await;
}

pub(crate) async fn where_nobody_listens_it_is_refused(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/file", "no socket").await;
    let runtime = sandbox.runtime();
    let refused =
        async |target: Target| match within("a refusal", runtime.connect(sandbox.id(), &target))
            .await
        {
            Err(Error::Connect { source, .. }) => source.kind(),
            other => panic!("{target}: {other:?}"),
        };
    assert_eq!(refused(PORT).await, std::io::ErrorKind::ConnectionRefused);
    assert_eq!(refused(Target::Unix(path("/data/none"))).await, std::io::ErrorKind::NotFound);
    refused(Target::Unix(path("/data/file"))).await;
}

/// The ports of one sandbox are not those of another, nor of the host.
pub(crate) async fn ports_are_the_sandboxes_own(harness: &Harness) {
    let (one, two) = (harness.sandbox().await, harness.sandbox().await);
    harness.serve(&one, &PORT).await;
    let runtime = harness.runtime();
    let other = within("a refusal", runtime.connect(two.id(), &PORT)).await;
    assert!(matches!(other, Err(Error::Connect { .. })), "{other:?}");

    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let host = within("a refusal", runtime.connect(two.id(), &Target::Tcp(port))).await;
    assert!(matches!(host, Err(Error::Connect { .. })), "{host:?}");

    harness.serve(&two, &PORT).await;
    for sandbox in [&one, &two] {
        assert_eq!(echo(connect(sandbox, &PORT).await, b"here".to_vec()).await, b"here");
    }
}

pub(crate) async fn many_connections_are_held_at_once(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    harness.serve(&sandbox, &PORT).await;
    let mut connections = Vec::new();
    for _ in 0..30 {
        connections.push(connect(&sandbox, &PORT).await);
    }
    for (number, connection) in connections.into_iter().enumerate() {
        let text = format!("connection {number}").into_bytes();
        assert_eq!(echo(connection, text.clone()).await, text);
    }
}

pub(crate) async fn connections_end_with_their_sandbox(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    harness.serve(&sandbox, &PORT).await;
    let mut connection = connect(&sandbox, &PORT).await;
    connection.write_all(b"x").await.unwrap();
    let mut received = [0; 1];
    within("an answer", connection.read_exact(&mut received)).await.unwrap();
    sandbox.cleanup().await;
    let ended = within("the connection's end", connection.read(&mut received)).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}
