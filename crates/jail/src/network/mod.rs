//! The jail's network: its own loopback and nothing else. The only network access are listeners in
//! it, which a process outside holds (`egress`).
//!
//! It is created by [`crate::vm_helper`], in memory that another process uses concurrently: that code
//! allocates nothing and makes bare system calls only. `listeners` is for the process outside that
//! holds them, and `proof` tests beforehand whether this works.

pub(crate) mod egress;
mod listeners;
#[cfg(test)]
mod live_tests;
mod netlink;
mod proof;
mod rules;
pub(crate) mod stub;

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

pub use listeners::Listeners;
pub use proof::{Unavailable, probe};
pub use stub::StubListeners;

use crate::helper_step::{LISTEN, ROUTE, RULES, Step};
use crate::raw;

/// The port of the listener for all connections. Clients need not know it: connections to any
/// address arrive there.
const TRANSPARENT_PORT: u16 = 1022;
/// The port of the proxy, at 127.0.0.1.
pub const PROXY_PORT: u16 = 1023;
/// The port of the proxy of a network without access, at 127.0.0.1: another one, so that programs
/// inside can tell whether they have network access.
pub const STUB_PROXY_PORT: u16 = 1021;
/// The port of the resolver, at every address.
pub const RESOLVER_PORT: u16 = 53;

/// The hosts that are reached without the proxy: the jail's own loopback, as programs name it.
const NO_PROXY: &str = "localhost,127.0.0.1,::1,0.0.0.0,.localhost,127.0.0.0/8";

/// The command that enables a step of the wall `network` on this host, for the step's text in a
/// launch error.
pub fn remedy(step: &str) -> Option<&'static str> {
    match step {
        RULES => Some("sudo modprobe -a nf_tables nft_tproxy nf_tproxy_ipv4 nf_tproxy_ipv6"),
        ROUTE | LISTEN | proof::REDIRECT => None,
        step if step == Step::ListenStub.as_str() => None,
        _ => Some("sudo sysctl -w user.max_net_namespaces=65536"),
    }
}

/// The variables by which programs inside find the proxy at this port, and bypass it for the
/// loopback.
pub fn variables(proxy_port: u16) -> impl Iterator<Item = (&'static str, String)> {
    let proxy = format!("http://127.0.0.1:{proxy_port}");
    let proxies =
        ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let proxies = proxies.into_iter().map(move |name| (name, proxy.clone()));
    proxies.chain(["NO_PROXY", "no_proxy"].map(|name| (name, NO_PROXY.to_owned())))
}

/// Get a socket's network namespace (since Linux 4.10), and set an interface's flags
/// (linux/sockios.h).
const SIOCGSKNS: usize = 0x894c;
const SIOCSIFFLAGS: usize = 0x8914;

/// Moves the calling process into a new network, whose loopback is up, and returns a file
/// descriptor of that. `others` are further namespaces to create in the same call; a user namespace
/// among them becomes the network's owner.
pub(crate) fn make(others: i32) -> rustix::io::Result<RawFd> {
    call(libc::SYS_unshare, [raw::signed(libc::CLONE_NEWNET | others), 0, 0])?;
    bring_up()
}

/// `/proc/sys` of the host, for [`open_low_ports`]; `None` where there is none.
pub(crate) fn host_settings() -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, c"/proc/sys", flags, Mode::empty()).ok()
}

/// Lets every process use the ports below 1024 of the calling process's network (`ip_sysctl`), which
/// no other network shares. Where `/proc/sys` is read-only, as in containers, they stay closed.
pub(crate) fn open_low_ports(settings: &OwnedFd) {
    const START: &std::ffi::CStr = c"net/ipv4/ip_unprivileged_port_start";
    // The kernel finds the file of the network in which it is opened.
    if let Ok(file) = openat(settings, START, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::io::write(&file, b"0");
    }
}

/// Brings up the loopback of the calling process's network (`netdevice(7)`), and returns a file
/// descriptor of that network.
fn bring_up() -> rustix::io::Result<RawFd> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all zeros are an empty interface name and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    // The loopback of a new namespace has no other flag that this would clear.
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
    // SAFETY: the callers pass numbers, and a request that is valid for the call.
    let result = raw::check(unsafe { raw::syscall(number, [a, b, c, 0, 0, 0]) });
    result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use crate::helper_step::Step;

    #[test]
    fn each_step_has_a_remedy_of_its_own() {
        let remedy = |step: Step| super::remedy(step.as_str()).unwrap_or_default();
        assert!(remedy(Step::Rules).contains("modprobe -a nf_tables nft_tproxy"));
        assert!(remedy(Step::Network).contains("max_net_namespaces"));
        assert_eq!(remedy(Step::Route), "");
    }
}
