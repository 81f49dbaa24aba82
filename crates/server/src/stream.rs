//! Bodies that are made while they are sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use hyper::body::{Body, Frame};
use serde::Serialize;
use stockade_api::wire::Failed;
use stockade_api::{FileContent, Items, Result};
use tokio::io::{AsyncRead, ReadBuf};

/// How many bytes of a file are sent at a time.
const PART: usize = 64 << 10;

/// The bytes of a file. What cannot be read breaks the answer off, so that it is not taken for
/// whole.
pub(crate) struct Content(FileContent);

impl Content {
    pub(crate) const fn new(content: FileContent) -> Self {
        Self(content)
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut part = vec![0; PART];
        let mut buffer = ReadBuf::new(&mut part);
        ready!(self.0.0.as_mut().poll_read(context, &mut buffer))?;
        let read = buffer.filled().len();
        part.truncate(read);
        Poll::Ready((read > 0).then(|| Ok(Frame::data(Bytes::from(part)))))
    }
}

/// Items as lines of JSON.
pub(crate) struct Lines<T>(Items<T>);

impl<T> Lines<T> {
    pub(crate) const fn new(items: Items<T>) -> Self {
        Self(items)
    }
}

impl<T: Serialize> Body for Lines<T> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let item: Option<Result<T>> = ready!(self.0.poll_next(context));
        let line = item.map(|item| match item {
            Ok(item) => line(&item),
            Err(error) => line(&Failed { error }),
        });
        Poll::Ready(line)
    }
}

fn line(value: &impl Serialize) -> io::Result<Frame<Bytes>> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    Ok(Frame::data(Bytes::from(text)))
}

/// The body of a request as bytes to read. One that breaks off is an error, not an end.
pub(crate) struct Incoming {
    body: axum::body::Body,
    rest: Bytes,
}

impl Incoming {
    pub(crate) const fn new(body: axum::body::Body) -> Self {
        Self { body, rest: Bytes::new() }
    }
}

impl AsyncRead for Incoming {
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
