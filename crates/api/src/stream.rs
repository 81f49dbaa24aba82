//! Answers that take their time: items one after another, and bytes both ways.

use std::fmt::Debug;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::Result;

/// Items, one after another. The end of the channel is the end of them; an error is the last.
#[derive(Debug)]
pub struct Items<T>(mpsc::Receiver<Result<T>>);

impl<T> Items<T> {
    /// The items that come from a channel.
    pub const fn new(receiver: mpsc::Receiver<Result<T>>) -> Self {
        Self(receiver)
    }

    /// The next item; `None` after the last. May be cancelled without losing one.
    pub async fn next(&mut self) -> Option<Result<T>> {
        self.0.recv().await
    }

    /// The next item, for those who poll.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        self.0.poll_recv(context)
    }
}

/// A connection: bytes both ways.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + Debug {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + Debug> Duplex for T {}
