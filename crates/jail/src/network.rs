//! The jail's network: its own loopback and nothing else.
//!
//! It is made by [`crate::helper`] or [`crate::prepared`], in memory that another process uses at the
//! same time: nothing here allocates, and all calls are bare.

use std::os::fd::{AsRawFd as _, RawFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::raw;

/// A socket's network namespace (since Linux 4.10), and setting an interface's flags
/// (linux/sockios.h).
const SIOCGSKNS: usize = 0x894c;
const SIOCSIFFLAGS: usize = 0x8914;

/// Moves the calling process into a new namespace, whose loopback is up (`netdevice(7)`), and gives
/// a descriptor of that. `others` are more namespaces, made at once; one of users is the network's
/// owner then.
pub(crate) fn make(others: i32) -> rustix::io::Result<RawFd> {
    call(libc::SYS_unshare, [raw::signed(libc::CLONE_NEWNET | others), 0, 0])?;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all zero is an interface's name of no length and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    // A new namespace's loopback has no other flag that would be lost by this.
    #[expect(clippy::cast_possible_truncation, reason = "both flags fit in 16 bits")]
    {
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    }
    let descriptor = raw::signed(socket.as_raw_fd());
    call(libc::SYS_ioctl, [descriptor, SIOCSIFFLAGS, (&raw const request) as usize])?;
    let namespace = call(libc::SYS_ioctl, [descriptor, SIOCGSKNS, 0])?;
    RawFd::try_from(namespace).map_err(|_| Errno::BADF)
}

fn call(number: libc::c_long, [a, b, c]: [usize; 3]) -> rustix::io::Result<usize> {
    // SAFETY: `make` passes numbers, and a request that is valid for the call.
    let result = raw::check(unsafe { raw::syscall(number, [a, b, c, 0, 0, 0]) });
    result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
