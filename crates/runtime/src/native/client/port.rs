//! Connections to ports and sockets inside: a descriptor that the keeper has sent, wrapped.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use crate::runtime::{Connection, Target};

/// The connection that a stream socket is, once it is established.
///
/// # Errors
/// Why it was not: `ConnectionRefused` when nothing listens there.
pub(super) async fn established(
    descriptor: OwnedFd,
    target: &Target,
) -> io::Result<Box<dyn Connection>> {
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    match target {
        Target::Tcp(_) => {
            let stream = TcpStream::from_std(descriptor.into())?;
            stream.ready(Interest::WRITABLE).await?;
            stream.take_error()?.map_or(Ok(()), Err)?;
            // Whoever is connected decides itself when to wait for more.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
        Target::Unix(_) => {
            let stream = UnixStream::from_std(descriptor.into())?;
            stream.ready(Interest::WRITABLE).await?;
            stream.take_error()?.map_or(Ok(()), Err)?;
            Ok(Box::new(stream))
        }
    }
}
