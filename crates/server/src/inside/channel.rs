//! Bodies whose parts another task sends over a channel.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

/// A body of parts that arrive one by one, and whose end is always that of the body.
pub(crate) struct Channel(pub(crate) mpsc::Receiver<Bytes>);

impl Body for Channel {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|part| part.map(|part| Ok(Frame::data(part))))
    }
}

/// A body whose sender may also report an error.
pub(crate) struct Parts(pub(crate) mpsc::Receiver<io::Result<Frame<Bytes>>>);

impl Body for Parts {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context)
    }
}
