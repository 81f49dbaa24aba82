//! Bodies of answers: as bytes to read, and as lines of JSON.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body as _, Bytes, Incoming};
use serde::de::DeserializeOwned;
use stockade_api::Result;
use stockade_api::wire::Failed;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader, ReadBuf};
use tokio::sync::mpsc;

use crate::{unreachable, unreadable};

/// A body as bytes to read. One that breaks off is an error, not an end.
pub(crate) struct Reader {
    body: Incoming,
    rest: Bytes,
}

impl Reader {
    /// The bytes of a body.
    pub(crate) const fn new(body: Incoming) -> Self {
        Self { body, rest: Bytes::new() }
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                None => return Poll::Ready(Ok(())),
                Some(frame) => {
                    let frame = frame.map_err(io::Error::other)?;
                    self.rest = frame.into_data().unwrap_or_default();
                }
            }
        }
        let taken = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest.split_to(taken));
        Poll::Ready(Ok(()))
    }
}

/// Sends the lines of a body, parsed, to a channel. A line that is a failure is the last.
pub(crate) async fn lines<T: DeserializeOwned>(body: Incoming, to: mpsc::Sender<Result<T>>) {
    let mut lines = BufReader::new(Reader::new(body)).split(b'\n');
    loop {
        let item = match lines.next_segment().await {
            Ok(None) => return,
            Ok(Some(line)) => match serde_json::from_slice::<Failed>(&line) {
                Ok(failed) => Err(failed.error),
                Err(_) => serde_json::from_slice(&line).map_err(unreadable),
            },
            Err(error) => Err(unreachable(error)),
        };
        let last = item.is_err();
        if to.send(item).await.is_err() || last {
            return;
        }
    }
}
