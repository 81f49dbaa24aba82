//! The jail's network: its own loopback and nothing else. What there may be of a way out are
//! listeners in it, which somebody outside holds (`egress`).
//!
//! It is made by [`crate::helper`] or [`crate::prepared`], in memory that another process uses at the
//! same time: nothing here allocates, and all calls are bare.

pub(crate) mod egress;
#[cfg(test)]
mod live_tests;
mod netlink;
mod rules;

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::raw;

/// Where the listener of everything is. Nobody needs to know: connections to any address arrive.
const EVERYTHING_PORT: u16 = 1022;
/// Where the proxy is, at 127.0.0.1.
pub const PROXY_PORT: u16 = 1023;
/// Where the resolver is, at every address.
pub const RESOLVER_PORT: u16 = 53;

/// The steps of raising the wall that only [`crate::Network::Egress`] takes, in words.
pub(crate) const ROUTE: &str = "route every address to the loopback";
pub(crate) const LISTEN: &str = "listen for connections to every address";
pub(crate) const RULES: &str = "load the rules that lead connections to a listener";

/// The command that lets this host take a step of raising the wall `network`, as an error of a
/// launch names it.
pub fn remedy(step: &str) -> Option<&'static str> {
    match step {
        RULES => Some("sudo modprobe -a nf_tables nft_tproxy nf_tproxy_ipv4 nf_tproxy_ipv6"),
        ROUTE | LISTEN => None,
        _ => Some("sudo sysctl -w user.max_net_namespaces=65536"),
    }
}

/// The only ways out of a jail's network ([`crate::Network::Egress`]): sockets in it, which block.
/// Without anybody who accepts, nothing is reached.
#[derive(Debug)]
pub struct Listeners {
    /// Where every TCP connection arrives that is not to a loopback address. The own address of one
    /// that is accepted is where it was to go; an address of version 4 comes as `::ffff:a.b.c.d`. One
    /// whose own address is a loopback's was made to the listener itself.
    pub everything: OwnedFd,
    /// At 127.0.0.1 and [`PROXY_PORT`], for those who ask a proxy.
    pub proxy: OwnedFd,
    /// A socket for datagrams at [`RESOLVER_PORT`] of every address.
    pub resolver_datagrams: OwnedFd,
    /// A listener at [`RESOLVER_PORT`] of every address.
    pub resolver_streams: OwnedFd,
}

impl Listeners {
    /// Each of them, in the order of the fields.
    pub fn each(&self) -> [BorrowedFd<'_>; 4] {
        let Self { everything, proxy, resolver_datagrams, resolver_streams } = self;
        [everything, proxy, resolver_datagrams, resolver_streams].map(|listener| listener.as_fd())
    }

    /// From what a jail hands out.
    pub(crate) fn of(descriptors: impl IntoIterator<Item = OwnedFd>) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next();
        Some(Self {
            everything: next()?,
            proxy: next()?,
            resolver_datagrams: next()?,
            resolver_streams: next()?,
        })
    }
}

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

#[cfg(test)]
mod tests {
    use crate::fixtures::Step;

    #[test]
    fn each_step_has_a_remedy_of_its_own() {
        let remedy = |step: Step| super::remedy(step.words()).unwrap_or_default();
        assert!(remedy(Step::Rules).contains("modprobe -a nf_tables nft_tproxy"));
        assert!(remedy(Step::Network).contains("max_net_namespaces"));
        assert_eq!(remedy(Step::Route), "");
    }
}
