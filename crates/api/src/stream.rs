//! Streamed responses: sequences of items, and byte streams in both directions.

use std::fmt::Debug;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::Result;

/// A sequence of items, which ends when the channel is closed; an error is always the last item.
#[derive(Debug)]
pub struct Items<T>(mpsc::Receiver<Result<T>>);

impl<T> Items<T> {
    /// The items of a channel.
    pub const fn new(receiver: mpsc::Receiver<Result<T>>) -> Self {
        Self(receiver)
    }

    /// The next item; `None` after the last one. Cancelling the call loses no item.
    pub async fn next(&mut self) -> Option<Result<T>> {
        self.0.recv().await
    }

    /// The next item, for callers that poll.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        self.0.poll_recv(context)
    }
}

/// A connection: byte streams in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + Debug {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + Debug> Duplex for T {}
