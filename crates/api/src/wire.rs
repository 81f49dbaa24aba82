//! The protocol for operations over HTTP: paths, headers, and the frames of a session.
//!
//! A plain operation is `POST /v0/call/NAME` with the request as JSON, and the response is JSON.
//! Streamed responses are lines of JSON; file content is the body itself; sessions and connections
//! take over the connection (`101`). A failure is `{"error": {…}}` with the status of its code; in
//! lines of JSON it is the last line.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use stockade_core::Problem;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::{SessionEvent, SessionInput};

/// The prefix of the path of a plain operation, before its name.
pub const CALL: &str = "/v0/call/";
/// Opens a session; the response is `101`, then frames.
pub const SESSION: &str = "/v0/session";
/// Joins a command; the response is `101`, then frames as in a session.
pub const ATTACH: &str = "/v0/attach";
/// Connects to a port; the response is `101`, then its bytes.
pub const CONNECT: &str = "/v0/connect";
/// Sends a request to a port; the response body is streamed, its head is in [`RESPONSE_HEADER`].
pub const HTTP_STREAM: &str = "/v0/http-stream";
/// Opens a WebSocket to a port; the response is `101`, the selected protocol in [`RESPONSE_HEADER`],
/// then its bytes.
pub const WEB_SOCKET: &str = "/v0/web-socket";
/// Reads the output of an operation; the response is lines of JSON.
pub const OUTPUT: &str = "/v0/output";
/// Reads events; the response is lines of JSON.
pub const EVENTS: &str = "/v0/events";
/// Shows the changed lines of a bundle; the response is lines of JSON.
pub const DIFF: &str = "/v0/diff";
/// Reads a file; the response is its bytes.
pub const READ: &str = "/v0/read";
/// Writes a file: the body is its content, the request is in [`REQUEST_HEADER`].
pub const WRITE: &str = "/v0/write";
/// Creates a tree of files: the body is the stream, the request is in [`REQUEST_HEADER`].
pub const SEND: &str = "/v0/send";
/// Reads a tree of files; the response is the stream.
pub const RECEIVE: &str = "/v0/receive";
/// Identifies the server.
pub const HEALTH: &str = "/v0/health";

/// The prefix of all these paths on a listener over TCP.
pub const TCP_PREFIX: &str = "/stockade";
/// The prefix of all these paths on a listener over TCP, for the other servers of a cluster.
pub const CLUSTER_PREFIX: &str = "/stockade-cluster";
/// The caller of a request that another server of the cluster passes on, sealed with their common secret.
pub const FORWARDED_HEADER: &str = "stockade-forwarded";
/// The version of the client. Over TCP it must be that of the server: the protocol is the same only
/// then.
pub const VERSION_HEADER: &str = "stockade-version";
/// The version of this protocol.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The idempotency key of the caller.
pub const KEY_HEADER: &str = "idempotency-key";
/// The execution that the operation is part of.
pub const EXECUTION_HEADER: &str = "stockade-execution-id";
/// A request whose body is something else: its JSON in base64.
pub const REQUEST_HEADER: &str = "stockade-request";
/// A response whose body is something else: its JSON in base64.
pub const RESPONSE_HEADER: &str = "stockade-answer";
/// The protocol to which a connection is upgraded.
pub const PROTOCOL: &str = "stockade";

/// The longest frame, in bytes.
const FRAME_BYTES: usize = 1 << 20;

/// The JSON form of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct ErrorBody {
    /// The failure.
    pub error: Problem,
}

/// The content of a frame; its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Stdout = 1,
    Stderr = 2,
    Event = 3,
    Problem = 4,
    Stdin = 5,
    Input = 6,
}

impl Kind {
    fn from_byte(byte: u8) -> io::Result<Self> {
        let all =
            [Self::Stdout, Self::Stderr, Self::Event, Self::Problem, Self::Stdin, Self::Input];
        let found = all.into_iter().find(|kind| *kind as u8 == byte);
        found.ok_or_else(|| invalid(format!("a frame of the unknown kind {byte}")))
    }
}

/// Writes an event of a command as one frame. Output is written as raw bytes, everything else as
/// JSON.
///
/// # Errors
/// If the connection is closed.
pub async fn write_event(
    to: &mut (impl AsyncWrite + Unpin),
    event: &crate::Result<SessionEvent>,
) -> io::Result<()> {
    match event {
        Ok(SessionEvent::Stdout { data }) => write_bytes(to, Kind::Stdout, &data.0).await,
        Ok(SessionEvent::Stderr { data }) => write_bytes(to, Kind::Stderr, &data.0).await,
        Ok(event) => write(to, Kind::Event, &json(event)?).await,
        Err(problem) => write(to, Kind::Problem, &json(problem)?).await,
    }
}

/// Reads an event of a command; `None` at the end of the connection.
///
/// # Errors
/// If the connection is closed within a frame, or a frame is invalid.
pub async fn read_event(
    from: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<crate::Result<SessionEvent>>> {
    let Some((kind, payload)) = read(from).await? else { return Ok(None) };
    Ok(Some(match kind {
        Kind::Stdout => Ok(SessionEvent::Stdout { data: payload.into() }),
        Kind::Stderr => Ok(SessionEvent::Stderr { data: payload.into() }),
        Kind::Event => Ok(parse(&payload)?),
        Kind::Problem => Err(parse(&payload)?),
        Kind::Stdin | Kind::Input => return Err(invalid("a frame for the other side")),
    }))
}

/// Writes an input for a command as one frame.
///
/// # Errors
/// If the connection is closed.
pub async fn write_input(
    to: &mut (impl AsyncWrite + Unpin),
    input: &SessionInput,
) -> io::Result<()> {
    match input {
        SessionInput::Stdin { data } => write_bytes(to, Kind::Stdin, &data.0).await,
        input => write(to, Kind::Input, &json(input)?).await,
    }
}

/// Reads an input for a command; `None` at the end of the connection.
///
/// # Errors
/// As [`read_event`].
pub async fn read_input(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SessionInput>> {
    let Some((kind, payload)) = read(from).await? else { return Ok(None) };
    Ok(Some(match kind {
        Kind::Stdin => SessionInput::Stdin { data: payload.into() },
        Kind::Input => parse(&payload)?,
        _ => return Err(invalid("a frame for the other side")),
    }))
}

async fn write_bytes(
    to: &mut (impl AsyncWrite + Unpin),
    kind: Kind,
    bytes: &[u8],
) -> io::Result<()> {
    for part in bytes.chunks(FRAME_BYTES) {
        write(to, kind, part).await?;
    }
    Ok(())
}

async fn write(to: &mut (impl AsyncWrite + Unpin), kind: Kind, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).map_err(|_| invalid("a frame that is too long"))?;
    let mut frame = Vec::with_capacity(payload.len() + 5);
    frame.push(kind as u8);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(payload);
    to.write_all(&frame).await?;
    to.flush().await
}

async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(Kind, Vec<u8>)>> {
    let mut head = [0; 5];
    if from.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[1..]).await?;
    let [kind, length @ ..] = head;
    let length = u32::from_be_bytes(length) as usize;
    if length > FRAME_BYTES {
        return Err(invalid("a frame that is too long"));
    }
    let mut payload = vec![0; length];
    from.read_exact(&mut payload).await?;
    Ok(Some((Kind::from_byte(kind)?, payload)))
}

fn json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| invalid(error.to_string()))
}

fn parse<T: DeserializeOwned>(payload: &[u8]) -> io::Result<T> {
    serde_json::from_slice(payload).map_err(|error| invalid(error.to_string()))
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
mod tests {
    use stockade_core::Code;

    use super::*;
    use crate::Terminal;

    #[tokio::test]
    async fn frames_survive_the_way_and_foreign_ones_are_refused() {
        let events = [
            Ok(SessionEvent::Stdout { data: b"a\xff".into() }),
            Ok(SessionEvent::Lost { bytes: 7 }),
            Err(Problem::new(Code::Cancelled, "gone")),
        ];
        let mut wire = Vec::new();
        for event in &events {
            write_event(&mut wire, event).await.unwrap();
        }
        let mut from = wire.as_slice();
        for event in &events {
            assert_eq!(read_event(&mut from).await.unwrap().as_ref(), Some(event));
        }
        assert_eq!(read_event(&mut from).await.unwrap(), None);
        assert!(read_input(&mut wire.as_slice()).await.is_err());

        let inputs = [
            SessionInput::Stdin { data: vec![7; FRAME_BYTES].into() },
            SessionInput::End,
            SessionInput::Resize(Terminal { rows: 24, columns: 80 }),
            SessionInput::Signal { signal: 15 },
        ];
        let mut wire = Vec::new();
        for input in &inputs {
            write_input(&mut wire, input).await.unwrap();
        }
        let mut from = wire.as_slice();
        for input in &inputs {
            assert_eq!(read_input(&mut from).await.unwrap().as_ref(), Some(input));
        }
        assert!(read_input(&mut &wire[..7]).await.is_err(), "a frame that is cut off");
        assert!(read_input(&mut &b"\x05\xff\xff\xff\xff"[..]).await.is_err(), "one too long");
        assert!(read_input(&mut &b"\x63\0\0\0\0"[..]).await.is_err(), "one of no kind");
    }
}
