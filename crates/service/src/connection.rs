//! A connection that counts as a use of its sandbox until it is closed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use stockade_runtime::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::owned_sandbox::ActiveSandbox;

/// The connection.
#[derive(Debug)]
pub(crate) struct SandboxConnection {
    connection: Box<dyn Connection>,
    _sandbox: ActiveSandbox,
}

impl SandboxConnection {
    /// Wraps a connection as a use of a sandbox.
    pub(crate) fn new(connection: Box<dyn Connection>, used: ActiveSandbox) -> Self {
        Self { connection, _sandbox: used }
    }
}

impl AsyncRead for SandboxConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(context, buffer)
    }
}

impl AsyncWrite for SandboxConnection {
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
