//! The jail's network: its own loopback and nothing else. What there may be of a way out are
//! listeners in it, which somebody outside holds (`egress`).
//!
//! It is made by [`crate::helper`], in memory that another process uses at the same time: nothing that
//! makes it allocates, and all calls are bare. `listeners` is for whoever
//! holds them outside, and `proof` for whoever wants to know beforehand.

pub(crate) mod egress;
mod listeners;
#[cfg(test)]
mod live_tests;
mod netlink;
mod proof;
mod rules;

use std::os::fd::{AsRawFd as _, RawFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

pub use listeners::Listeners;
pub use proof::{Unavailable, prove};

use crate::raw;

/// Where the listener of everything is. Nobody needs to know: connections to any address arrive.
const EVERYTHING_PORT: u16 = 1022;
/// Where the proxy is, at 127.0.0.1.
pub const PROXY_PORT: u16 = 1023;
/// Where the resolver is, at every address.
pub const RESOLVER_PORT: u16 = 53;

/// What is reached without the proxy: the jail's own loopback.
const OWN: &str = "localhost,127.0.0.1,::1";

/// The steps of raising the wall that only [`crate::Network::Egress`] takes, in words.
pub(crate) const ROUTE: &str = "route every address to the loopback";
pub(crate) const LISTEN: &str = "listen for connections to every address";
pub(crate) const RULES: &str = "load the rules that redirect connections to a listener";

/// The command that lets this host take a step of raising the wall `network`, as an error of a
/// launch names it.
pub fn remedy(step: &str) -> Option<&'static str> {
    match step {
        RULES => Some("sudo modprobe -a nf_tables nft_tproxy nf_tproxy_ipv4 nf_tproxy_ipv6"),
        ROUTE | LISTEN | proof::ARRIVE => None,
        _ => Some("sudo sysctl -w user.max_net_namespaces=65536"),
    }
}

/// The variables by which programs inside find the proxy, and reach themselves without it.
pub fn variables() -> impl Iterator<Item = (&'static str, String)> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let proxies =
        ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let proxies = proxies.into_iter().map(move |name| (name, proxy.clone()));
    proxies.chain(["NO_PROXY", "no_proxy"].map(|name| (name, OWN.to_owned())))
}

/// The variables by which programs inside find the certificates that they are to believe, for those
/// that do not ask the system: OpenSSL and what is like it, curl, git, Python, Node, Deno, cargo and
/// the tools of AWS.
pub fn trust_variables(file: &str) -> impl Iterator<Item = (&'static str, String)> {
    const NAMES: [&str; 9] = [
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "REQUESTS_CA_BUNDLE",
        "PIP_CERT",
        "NODE_EXTRA_CA_CERTS",
        "DENO_CERT",
        "CARGO_HTTP_CAINFO",
        "AWS_CA_BUNDLE",
    ];
    NAMES.into_iter().map(move |name| (name, file.to_owned()))
}

/// A socket's network namespace (since Linux 4.10), and setting an interface's flags
/// (linux/sockios.h).
const SIOCGSKNS: usize = 0x894c;
const SIOCSIFFLAGS: usize = 0x8914;

/// Moves the calling process into a new network, whose loopback is up, and gives a descriptor of that.
/// `others` are more namespaces, made at once; one of users is the network's owner then.
pub(crate) fn make(others: i32) -> rustix::io::Result<RawFd> {
    call(libc::SYS_unshare, [raw::signed(libc::CLONE_NEWNET | others), 0, 0])?;
    bring_up()
}

/// Brings up the loopback of the calling process's network (`netdevice(7)`), and gives a descriptor of
/// that network.
fn bring_up() -> rustix::io::Result<RawFd> {
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
    // SAFETY: the callers pass numbers, and a request that is valid for the call.
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
