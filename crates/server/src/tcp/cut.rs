//! A stream that ends when its connection must end, whatever waits for it; and that counts as one as long
//! as it is open, also after it was upgraded to another protocol.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::auth::Lifetime;
use crate::local::ConnectionGuard;

/// A stream with the lifetime of its connection.
pub(super) struct Cut<S> {
    stream: S,
    lifetime: Arc<Lifetime>,
    // The two directions may be used by two tasks, of which each is woken.
    reading: Pin<Box<WaitForCancellationFutureOwned>>,
    writing: Pin<Box<WaitForCancellationFutureOwned>>,
    _counted: ConnectionGuard,
}

impl<S> Cut<S> {
    pub(super) fn new(stream: S, lifetime: Arc<Lifetime>, counted: ConnectionGuard) -> Self {
        let (reading, writing) = (Box::pin(lifetime.cut()), Box::pin(lifetime.cut()));
        Self { stream, lifetime, reading, writing, _counted: counted }
    }
}

impl<S> Drop for Cut<S> {
    fn drop(&mut self) {
        self.lifetime.end();
    }
}

fn aborted<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::Error::new(ErrorKind::ConnectionAborted, "the API key was revoked")))
}

impl<S: AsyncRead + Unpin> AsyncRead for Cut<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.reading.as_mut().poll(context).is_ready() {
            return aborted();
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cut<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.writing.as_mut().poll(context).is_ready() {
            return aborted();
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.writing.as_mut().poll(context).is_ready() {
            return aborted();
        }
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
