//! A connection that counts as a use of its sandbox until it is closed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use stockade_runtime::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::owned::Used;

/// The connection.
#[derive(Debug)]
pub(crate) struct UsedConnection {
    connection: Box<dyn Connection>,
    _used: Used,
}

impl UsedConnection {
    /// Wraps a connection as a use of a sandbox.
    pub(crate) fn new(connection: Box<dyn Connection>, used: Used) -> Self {
        Self { connection, _used: used }
    }
}

impl AsyncRead for UsedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(context, buffer)
    }
}

impl AsyncWrite for UsedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}
