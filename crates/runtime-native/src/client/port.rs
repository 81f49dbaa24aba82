//! Connections to ports and sockets inside: a descriptor that the keeper has sent, wrapped.
//!
//! A jail's init has opened it, and shares its `O_NONBLOCK` flag. So each call sets the
//! non-blocking flag itself.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::readiness::watched;
use stockade_runtime::{Connection, Target};

/// The connection of a stream socket, once it is established.
///
/// # Errors
/// Why the connection failed: `ConnectionRefused` when no server listens there.
pub(super) async fn established(
    descriptor: OwnedFd,
    target: &Target,
) -> io::Result<Box<dyn Connection>> {
    let socket = watched(descriptor, Interest::READABLE | Interest::WRITABLE)?;
    socket.writable().await?.retain_ready();
    sockopt::socket_error(&socket)??;
    if let Target::Tcp(_) = target {
        // The user of the connection decides itself when to wait for more data.
        sockopt::set_tcp_nodelay(&socket, true)?;
    }
    Ok(Box::new(Port(socket)))
}

#[derive(Debug)]
struct Port(AsyncFd<OwnedFd>);

impl AsyncRead for Port {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled();
            match ready.try_io(|socket| Ok(recv(socket, &mut *room, RecvFlags::DONTWAIT)?.0)) {
                Ok(Ok(length)) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                // Another holder of the socket was faster.
                Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for Port {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            match ready.try_io(|socket| Ok(send(socket, bytes, flags)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(sent) => return Poll::Ready(sent),
                Err(_) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match shutdown(&self.0, Shutdown::Write) {
            // The peer has already closed the connection.
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(errno) => Err(errno.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Another holder of the socket makes calls on it block, and reads the data that had made it
    /// ready.
    #[tokio::test]
    async fn nobody_else_makes_it_wait() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let shared = ours.try_clone().unwrap();
        let interest = Interest::READABLE | Interest::WRITABLE;
        let mut port = Port(watched(ours, interest).unwrap());
        rustix::io::ioctl_fionbio(&shared, false).unwrap();
        send(&theirs, b"x", SendFlags::empty()).unwrap();
        port.0.readable().await.unwrap().retain_ready();
        recv(&shared, &mut [0; 9], RecvFlags::empty()).unwrap();
        let read = tokio::time::timeout(Duration::from_millis(20), port.read_u8()).await;
        assert!(read.is_err(), "{read:?}");
        let write = async { while port.write(&[0; 65536]).await.is_ok() {} };
        assert!(tokio::time::timeout(Duration::from_millis(20), write).await.is_err());
        drop(theirs);
        assert!(port.write(b"x").await.is_err());
    }
}
