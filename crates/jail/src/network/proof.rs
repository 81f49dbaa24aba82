//! The proof that this host supports networks with an egress proxy.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

use super::{egress, make};
use crate::helper_step::Step;

/// An unassigned address: TEST-NET-1 (RFC 5737), the port "discard".
const UNROUTED: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);
/// How long a connection within one machine may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// The step that only the proof takes, as text.
pub(super) const REDIRECT: &str = "redirect a connection to a listener";

/// Why such networks are unavailable.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}")]
pub struct Unavailable {
    /// The failed step, as text; [`remedy`](super::remedy) knows some of them.
    pub step: &'static str,
    /// The cause.
    #[source]
    pub source: io::Error,
}

/// Creates such a network and connects to an unassigned address, which must arrive at its listener.
/// The calling process must have a single thread, and stays in that network.
///
/// # Errors
/// The step that failed, and why.
pub fn probe() -> Result<(), Unavailable> {
    let failed =
        |(step, errno): (Step, Errno)| Unavailable { step: step.as_str(), source: errno.into() };
    let network = make(libc::CLONE_NEWUSER).map_err(|errno| failed((Step::Network, errno)))?;
    // SAFETY: it was just opened for this process, and nothing else owns it.
    let _network = unsafe { OwnedFd::from_raw_fd(network) };
    let [everything, ..] = egress::open().map_err(failed)?;
    check_redirect(everything).map_err(|source| Unavailable { step: REDIRECT, source })
}

fn check_redirect(everything: OwnedFd) -> io::Result<()> {
    let nobody = SocketAddr::from(UNROUTED);
    let _sent = TcpStream::connect_timeout(&nobody, DEADLINE)?;
    let listener = TcpListener::from(everything);
    // An established connection is in the backlog already.
    listener.set_nonblocking(true)?;
    let (arrived, _) = listener.accept()?;
    let destination = arrived.local_addr()?;
    if (destination.ip().to_canonical(), destination.port()) == (nobody.ip(), nobody.port()) {
        return Ok(());
    }
    Err(io::Error::other(format!("a connection to {nobody} arrives as one to {destination}")))
}
