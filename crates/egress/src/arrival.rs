//! Connections to anybody: they arrive here, wherever they were to. Nothing inside has to know of
//! that.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stockade_core::network::{Host, Refusal, Way};
use stockade_egress_control::Outcome;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::opening::tls;
use crate::refuse;
use crate::relay::{Broken, First, Traffic, opening, relay};
use crate::sandbox::Sandbox;

/// How long is waited when nothing can be accepted, for want of descriptors.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Serves the listener of everything. `destination` tells where an accepted connection was to.
pub(crate) async fn serve(
    sandbox: &Arc<Sandbox>,
    listener: TcpListener,
    destination: impl Fn(&TcpStream) -> io::Result<SocketAddr>,
) {
    accept(&listener, |stream| {
        let to = destination(&stream);
        let sandbox = Arc::clone(sandbox);
        async move {
            // One that is gone already.
            let Ok(to) = to else { return };
            direct(&sandbox, stream, to).await;
        }
    })
    .await;
}

/// Accepts connections, and serves each beside the others. Does not end; they end when it is dropped.
pub(crate) async fn accept<F>(listener: &TcpListener, mut serve: impl FnMut(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            accepted = next(listener) => match accepted {
                Ok(stream) => {
                    served.spawn(serve(stream));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = served.join_next() => {}
        }
    }
}

/// The next connection to a listener. The sandbox's side has the listener too, and with it the flag that
/// says whether calls on it wait, which would keep every other sandbox waiting. So that is set before
/// each call: `accept(2)` cannot be told by itself.
async fn next(listener: &TcpListener) -> io::Result<TcpStream> {
    poll_fn(|context| {
        rustix::io::ioctl_fionbio(listener, true)?;
        listener.poll_accept(context)
    })
    .await
    .map(|(stream, _)| stream)
}

async fn direct(sandbox: &Sandbox, stream: TcpStream, to: SocketAddr) {
    let port = Some(to.port());
    let literal = Host::Address(to.ip().to_canonical());
    // First of all: whoever is refused is here for a moment as well.
    let permit = match sandbox.admit_connection() {
        Ok(permit) => permit,
        Err(refusal) => {
            sandbox.record(Way::Direct, Some(&literal), port, &refusal);
            return refuse::reset(stream);
        }
    };
    let host = match sandbox.host(to.ip()) {
        Ok(host) => host,
        Err(refusal) => {
            sandbox.record(Way::Direct, Some(&literal), port, &refusal);
            return refuse::unread(stream, &refusal).await;
        }
    };
    // The sandbox's own loopback: nobody is let through by the name of that.
    let reached = match host {
        Host::Address(address) if address.is_loopback() => {
            Err(Refusal::AddressNotAllowed { address })
        }
        _ => sandbox.reach(&host, to.port()).await,
    };
    match reached {
        Ok((outside, _)) => {
            let first = match &host {
                Host::Name(name) => First::For(name.clone(), Vec::new()),
                Host::Address(_) => First::Anything(Vec::new()),
            };
            carry(sandbox, Way::Direct, (stream, outside), (&host, to.port()), first).await;
        }
        Err(refusal) => {
            sandbox.record(Way::Direct, Some(&host), port, &refusal);
            refuse::unread(stream, &refusal).await;
        }
    }
    drop(permit);
}

/// Carries what a connection from inside and one to a host and port have to say to each other, for as
/// long as the policy lets it, and records it.
pub(crate) async fn carry(
    sandbox: &Sandbox,
    way: Way,
    (mut inside, mut outside): (TcpStream, TcpStream),
    (host, port): (&Host, u16),
    first: First,
) {
    let Ok(address) = outside.peer_addr().map(|peer| peer.ip().to_canonical()) else {
        return refuse::reset(inside);
    };
    let _ = inside.set_nodelay(true);
    let record = |outcome: Outcome| sandbox.record(way, Some(host), Some(port), outcome);
    record(Outcome::Opened { address });
    let traffic = Traffic::default();
    let relayed = tokio::select! {
        relayed = pass(sandbox, (&mut inside, &mut outside), (host, port), first, &traffic) => {
            relayed
        }
        refusal = overruled(sandbox, (host, port), address) => {
            record(Outcome::from(&refusal));
            Err(Broken::Io)
        }
    };
    let (sent_bytes, received_bytes) = traffic.bytes();
    match relayed {
        Ok(()) => {}
        Err(Broken::Io) => {
            // Whoever reads must not take what has arrived for all of it.
            refuse::reset(inside);
            refuse::reset(outside);
        }
        Err(Broken::Told(refusal)) => record(Outcome::from(&refusal)),
        Err(Broken::Refused(refusal, bytes)) => {
            drop(outside);
            record(Outcome::from(&refusal));
            refuse::after(inside, &bytes, &refusal).await;
        }
    }
    record(Outcome::Closed { address, sent_bytes, received_bytes });
}

/// Carries bytes as they are, or looks into them where the host has credentials.
async fn pass(
    sandbox: &Sandbox,
    (inside, outside): (&mut TcpStream, &mut TcpStream),
    (host, port): (&Host, u16),
    mut first: First,
    traffic: &Traffic,
) -> Result<(), Broken> {
    let limits = sandbox.limits();
    if let Some(interception) = sandbox.interception(host, port) {
        let (bytes, body) = opening(inside, first, limits).await?;
        if tls::is_handshake(&bytes) {
            let carrying = interception.carry((inside, outside), bytes, limits, traffic);
            return Box::pin(carrying).await;
        }
        first = First::Request(bytes, body);
    }
    relay(inside, outside, first, limits, traffic).await
}

/// Ends when a policy comes that would not have let a connection be made.
async fn overruled(
    sandbox: &Sandbox,
    (host, port): (&Host, u16),
    address: std::net::IpAddr,
) -> Refusal {
    let mut policies = sandbox.policy();
    loop {
        let policy = Arc::clone(&policies.borrow_and_update());
        let checked = policy.check(host, port).and_then(|()| match host {
            Host::Name(name) => policy.check_resolved(name, Some(port), &[address]),
            Host::Address(_) => Ok(()),
        });
        if let Err(refusal) = checked {
            return refusal;
        }
        if policies.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
