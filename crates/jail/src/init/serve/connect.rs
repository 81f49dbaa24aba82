//! Opens what only a command's own user may open: connections to its sockets, its terminal.
//!
//! Where init has other ids than the user, a short-lived child takes on the user's ids and opens it
//! in init's file descriptor table.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Ipv4Addr, Ipv6Addr, SocketAddrAny, SocketAddrUnix, SocketAddrV4, SocketAddrV6,
    SocketFlags, SocketType,
};

use crate::control::Target;
use crate::spec::WindowSize;
use crate::{capabilities, pty, sys};

/// How long init waits for a connection before it returns it unfinished.
const CONNECT_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Connects to a listening socket inside; the connection does not block, and may still be
/// connecting.
pub(super) fn connect(target: &Target, become_ids: Option<(u32, u32)>) -> io::Result<OwnedFd> {
    match target {
        Target::Tcp(port) => {
            let first = try_connect(
                AddressFamily::INET,
                &SocketAddrV4::new(Ipv4Addr::LOCALHOST, *port).into(),
            );
            match first {
                // Some servers listen only on the IPv6 loopback.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    let address = SocketAddrV6::new(Ipv6Addr::LOCALHOST, *port, 0, 0);
                    try_connect(AddressFamily::INET6, &address.into()).map_err(|_| error)
                }
                other => other,
            }
        }
        Target::Unix(path) => {
            let address = SocketAddrUnix::new(path.as_slice())?.into();
            as_user(become_ids, || try_connect(AddressFamily::UNIX, &address))
        }
    }
}

/// Opens a terminal that belongs to a command's user: its outer and its inner end.
pub(super) fn terminal(
    size: WindowSize,
    (user, group): (u32, u32),
    become_ids: Option<(u32, u32)>,
) -> io::Result<(OwnedFd, OwnedFd)> {
    as_user(become_ids, || pty::open(size, user, group))
}

fn try_connect(family: AddressFamily, address: &SocketAddrAny) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&CONNECT_TIMEOUT))?;
            rustix::net::sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(socket)
}

/// Opens something with these ids and no capability.
fn as_user<T>(become_ids: Option<(u32, u32)>, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let Some((user, group)) = become_ids else { return open() };
    let result = std::cell::RefCell::new(None);
    let child = || {
        let opened = crate::command::become_ids(user, group, &[])
            .map_err(io::Error::from)
            .and_then(|()| capabilities::drop_all())
            .and_then(|()| open());
        *result.borrow_mut() = Some(opened);
        sys::exit_now(0)
    };
    // SAFETY: init has a single thread and sleeps until the child has ended. What the child opens
    // is in init's own table, and init becomes the owner of what it makes.
    unsafe { sys::spawn_sharing_descriptors(&child) }?;
    result.into_inner().unwrap_or_else(|| Err(io::ErrorKind::Other.into()))
}
