//! Bodies that are generated while they are sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use hyper::body::{Body, Frame};
use serde::Serialize;
use stockade_api::wire::ErrorBody;
use stockade_api::{Items, Result};

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
            Err(error) => line(&ErrorBody { error }),
        });
        Poll::Ready(line)
    }
}

fn line(value: &impl Serialize) -> io::Result<Frame<Bytes>> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    Ok(Frame::data(Bytes::from(text)))
}
