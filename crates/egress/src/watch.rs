//! Watches the first bytes of a host: whether it answers in HTTP, and whether it switches to
//! another protocol (`101`, or `2xx` for `CONNECT`). The bytes are read by another part of the
//! relay, and are not changed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;

use crate::first_bytes::http::{HEAD_BYTES, MAX_HEADERS};

/// What the first bytes of a host show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing yet.
    Nothing,
    /// An answer of HTTP with this final status.
    Status(u16),
    /// Another protocol.
    Other,
}

impl Seen {
    /// Whether the host has switched to another protocol in answer to its request.
    pub(crate) fn is_switch(self, is_tunnel: bool) -> bool {
        match self {
            Self::Status(status) if is_tunnel => (200..300).contains(&status),
            Self::Status(status) => status == 101,
            Self::Nothing | Self::Other => false,
        }
    }
}

/// Reads from a host, and reports what its first bytes show.
pub(crate) struct Watched<R> {
    inner: R,
    first: Vec<u8>,
    seen: watch::Sender<Seen>,
    /// Whether an answer of HTTP is an error, because no request was sent.
    is_no_request: watch::Receiver<bool>,
}

impl<R> Watched<R> {
    pub(crate) fn new(
        inner: R,
        is_no_request: watch::Receiver<bool>,
    ) -> (Self, watch::Receiver<Seen>) {
        let (seen, receiver) = watch::channel(Seen::Nothing);
        (Self { inner, first: Vec::new(), seen, is_no_request }, receiver)
    }

    fn see(&mut self, bytes: &[u8]) -> io::Result<()> {
        if *self.seen.borrow() != Seen::Nothing {
            return Ok(());
        }
        self.first.extend_from_slice(bytes);
        let compared = self.first.len().min(VERSION.len());
        if self.first.get(..compared) != VERSION.get(..compared) {
            self.seen.send_replace(Seen::Other);
        } else if compared == VERSION.len() {
            if *self.is_no_request.borrow() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a response to no request"));
            }
            if let Some(status) = final_status(&self.first) {
                self.seen.send_replace(Seen::Status(status));
            }
        }
        if *self.seen.borrow() != Seen::Nothing {
            self.first = Vec::new();
        }
        Ok(())
    }
}

/// The start of each response.
const VERSION: &[u8] = b"HTTP/";

/// The status of a response after informational ones; `None` while their heads are incomplete. It
/// is zero if one is invalid.
fn final_status(bytes: &[u8]) -> Option<u16> {
    let mut rest = bytes;
    loop {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(rest) {
            Ok(httparse::Status::Complete(count)) => {
                rest = rest.get(count..).unwrap_or_default();
                match response.code {
                    Some(100 | 102..=199) => {}
                    status => return Some(status.unwrap_or_default()),
                }
            }
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES => return None,
            _ => return Some(0),
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let seen = self.see(buffer.filled().get(before..).unwrap_or_default());
        if seen.is_err() {
            buffer.set_filled(before);
        }
        Poll::Ready(seen)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// What is seen in an answer that comes in these parts.
    async fn seen(parts: &[&str], is_no_request: bool) -> io::Result<Seen> {
        let parts: Vec<_> = parts.iter().map(|part| part.as_bytes()).collect();
        let mut all = parts.into_iter();
        let (first, second) = (all.next().unwrap_or_default(), all.next().unwrap_or_default());
        let (_sender, no_request) = watch::channel(is_no_request);
        let (mut watched, seen) = Watched::new(first.chain(second), no_request);
        watched.read_to_end(&mut Vec::new()).await?;
        let seen = *seen.borrow();
        Ok(seen)
    }

    #[tokio::test]
    async fn an_answer_shows_its_protocol_and_status() {
        let switch = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n";
        for end in 0..switch.len() {
            let (one, two) = switch.split_at(end);
            assert_eq!(seen(&[one, two], false).await.unwrap(), Seen::Status(101), "{end}");
        }
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 101 X\r\n\r\n", Seen::Status(200)),
            ("HTTP/1.1 100 Continue\r\n\r\n", Seen::Nothing),
            ("HTTP/x\r\n\r\n", Seen::Status(0)),
            ("220 ready\r\n", Seen::Other),
            ("HTT", Seen::Nothing),
            ("", Seen::Nothing),
        ] {
            assert_eq!(seen(&[text], false).await.unwrap(), expected, "{text}");
        }
        assert!(Seen::Status(101).is_switch(false) && Seen::Status(200).is_switch(true));
        assert!(!Seen::Status(200).is_switch(false) && !Seen::Other.is_switch(true));
    }

    #[tokio::test]
    async fn an_answer_to_no_request_is_an_error() {
        assert!(seen(&["HT", "TP/1.1 400 Bad Request\r\n\r\n"], true).await.is_err());
        assert_eq!(seen(&["HT", "ML"], true).await.unwrap(), Seen::Other);
    }
}
