//! Direct connections from a sandbox to any address: they arrive here, whatever their destination.
//! Programs inside need no configuration for this.

use std::future::poll_fn;
use std::io::{self, Cursor};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stockade_core::network::{Host, Refusal, Transport};
use stockade_egress_control::Outcome;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::carried::{self, Carried};
use crate::first_bytes::body::Body;
use crate::first_bytes::http::Head;
use crate::first_bytes::tls;
use crate::http2::Streams;
use crate::intercept::Interception;
use crate::rejection;
use crate::relay::{FirstBytes, Preface, RelayError, Traffic, read_first_bytes, relay};
use crate::sandbox::Sandbox;

/// The pause after `accept` failed because no file descriptor was left.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Serves the listener for direct connections. `destination` returns the original destination of an
/// accepted connection.
pub(crate) async fn serve(
    sandbox: &Arc<Sandbox>,
    listener: TcpListener,
    destination: impl Fn(&TcpStream) -> io::Result<SocketAddr>,
) {
    accept(&listener, |stream| {
        let to = destination(&stream);
        let sandbox = Arc::clone(sandbox);
        async move {
            // The client has disconnected already.
            let Ok(to) = to else { return };
            direct(&sandbox, stream, to).await;
        }
    })
    .await;
}

/// Accepts connections, and serves them concurrently. Does not end; dropping it ends all
/// connections.
pub(crate) async fn accept<F>(listener: &TcpListener, mut serve: impl FnMut(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            accepted = accept_next(listener) => match accepted {
                Ok(stream) => {
                    served.spawn(serve(stream));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = served.join_next() => {}
        }
    }
}

/// The next connection to a listener. The sandbox's side shares the open file description and so
/// its `O_NONBLOCK` flag; a blocking call would delay every other sandbox. The flag is therefore
/// set before each call, because `accept(2)` has no flag for a single non-blocking call.
async fn accept_next(listener: &TcpListener) -> io::Result<TcpStream> {
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
    // Before all checks: a refused connection also uses resources for a moment.
    let permit = match sandbox.admit_connection() {
        Ok(permit) => permit,
        Err(refusal) => {
            sandbox.record(Transport::Direct, Some(&literal), port, &refusal);
            return rejection::reset(stream);
        }
    };
    let host = match sandbox.host_for_address(to.ip()) {
        Ok(host) => host,
        Err(refusal) => {
            sandbox.record(Transport::Direct, Some(&literal), port, &refusal);
            return rejection::refuse_unread(stream, &refusal).await;
        }
    };
    // The sandbox's own loopback: a rule for a loopback address does not apply to it.
    let connection = match host {
        Host::Address(address) if address.is_loopback() => {
            Err(Refusal::AddressNotAllowed { address })
        }
        _ => sandbox.connect(&host, to.port()).await,
    };
    match connection {
        Ok((outside, _)) => {
            let first = match &host {
                Host::Name(name) => FirstBytes::ForHost(name.clone(), Vec::new()),
                Host::Address(_) => FirstBytes::Any(Vec::new()),
            };
            relay_connection(
                sandbox,
                Transport::Direct,
                (stream, outside),
                (&host, to.port()),
                first,
            )
            .await;
        }
        Err(refusal) => {
            sandbox.record(Transport::Direct, Some(&host), port, &refusal);
            match refusal {
                // Inside, the connection was accepted before this was known. The next best is what a
                // closed port does as well, at once.
                Refusal::Unreachable { .. } => rejection::reset(stream),
                _ => rejection::refuse_unread(stream, &refusal).await,
            }
        }
    }
    drop(permit);
}

/// Relays bytes between a connection from inside and one to a host and port, for as long as the
/// policy allows it, and records the connection.
pub(crate) async fn relay_connection(
    sandbox: &Sandbox,
    transport: Transport,
    (mut inside, mut outside): (TcpStream, TcpStream),
    (host, port): (&Host, u16),
    first: FirstBytes,
) {
    let Ok(address) = outside.peer_addr().map(|peer| peer.ip().to_canonical()) else {
        return rejection::reset(inside);
    };
    let _ = inside.set_nodelay(true);
    let record = |outcome: Outcome| sandbox.record(transport, Some(host), Some(port), outcome);
    record(Outcome::Opened { address });
    let (traffic, carried) = (Traffic::new(sandbox.meter()), Carried::default());
    let streams = (&mut inside, &mut outside);
    let to = (transport, host, port);
    let relayed = tokio::select! {
        relayed = relay_or_intercept(sandbox, streams, to, first, (&traffic, &carried)) => {
            relayed
        }
        refusal = policy_violation(sandbox, (host, port), address, &carried) => {
            record(Outcome::from(&refusal));
            Err(RelayError::Io)
        }
        refusal = sandbox.meter().exceeded() => {
            record(Outcome::from(&refusal));
            Err(RelayError::Io)
        }
    };
    let (sent_bytes, received_bytes) = traffic.bytes();
    match relayed {
        // Closing while a program still sends would discard what it has not read yet.
        Ok(()) | Err(RelayError::Cut) => {
            drop(outside);
            rejection::drain(&mut inside).await;
        }
        Err(RelayError::Io | RelayError::Version2(_)) => {
            // The reader must not take a partial transfer for a complete one.
            rejection::reset(inside);
            rejection::reset(outside);
        }
        Err(RelayError::Reported(refusal)) => {
            // The host must not take what it received for all of the request.
            rejection::reset(outside);
            record(Outcome::from(&refusal));
            rejection::drain(&mut inside).await;
        }
        Err(RelayError::Refused(refusal, bytes)) => {
            drop(outside);
            record(Outcome::from(&refusal));
            rejection::refuse_after(inside, &bytes, &refusal).await;
        }
    }
    record(Outcome::Closed { address, sent_bytes, received_bytes });
}

/// Relays bytes unchanged, or intercepts them if the host has credentials.
async fn relay_or_intercept(
    sandbox: &Sandbox,
    (inside, outside): (&mut TcpStream, &mut TcpStream),
    (transport, host, port): (Transport, &Host, u16),
    mut first: FirstBytes,
    (traffic, carried): (&Traffic, &Carried),
) -> Result<(), RelayError> {
    let limits = sandbox.limits();
    let search = sandbox.search(transport, host, port);
    if sandbox.reads_requests(host, port) || Interception::of(sandbox, host, port).is_some() {
        let (bytes, body) = match read_first_bytes(inside, first, None, limits).await {
            Err(RelayError::Version2(preface)) => {
                let streams = (inside, outside);
                return version2(sandbox, streams, (transport, host, port), preface, traffic).await;
            }
            read => read?,
        };
        // The policy may have changed in the meantime.
        let reads = sandbox.reads_requests(host, port);
        let interception = Interception::of(sandbox, host, port);
        if tls::is_handshake(&bytes)
            && let Some(interception) = interception
        {
            let streams = (inside, outside);
            let counted = (traffic, carried);
            let carrying = interception.relay(streams, bytes, (transport, search), limits, counted);
            return Box::pin(carrying).await;
        }
        if reads && tls::is_handshake(&bytes) {
            // The process has no authority for the sandbox, so no request could be checked.
            return Err(RelayError::Refused(carried::UNREAD, bytes));
        }
        if reads && let Err(refusal) = sandbox.check_plain_request(host, port, &bytes) {
            return Err(RelayError::Refused(refusal, bytes));
        }
        first = FirstBytes::Request(bytes, body);
    }
    if let FirstBytes::Request(bytes, body) = &first
        && body.is_request()
        && let Ok(Some((head, _))) = Head::parse(bytes)
    {
        carried.is_request(&head);
    }
    // Does nothing if the request is known.
    carried.is_unread();
    let report = |bytes: &[u8], body: &Body| {
        sandbox.report_first_bytes(transport, (host, port), (bytes, body));
    };
    match relay(inside, outside, first, search, limits, traffic, &report).await {
        Err(RelayError::Version2(preface)) => {
            let streams = (inside, outside);
            version2(sandbox, streams, (transport, host, port), preface, traffic).await
        }
        relayed => relayed,
    }
}

/// Relays a connection of HTTP/2 without TLS, whose first bytes have been read.
async fn version2(
    sandbox: &Sandbox,
    (inside, outside): (&mut TcpStream, &mut TcpStream),
    (transport, host, port): (Transport, &Host, u16),
    preface: Preface,
    traffic: &Traffic,
) -> Result<(), RelayError> {
    // Bytes to an address are not read.
    let Host::Name(name) = host else { return Err(RelayError::Io) };
    let streams = Streams { sandbox, transport, name, port, is_tls: false, traffic };
    let (from_inside, to_inside) = inside.split();
    let inside = tokio::io::join(Cursor::new(preface.from_inside).chain(from_inside), to_inside);
    let (from_outside, to_outside) = outside.split();
    let from_outside = Cursor::new(preface.from_outside).chain(from_outside);
    let outside = tokio::io::join(from_outside, to_outside);
    Box::pin(streams.relay(inside, Ok(outside))).await
}

/// Ends when a new policy does not allow the connection.
async fn policy_violation(
    sandbox: &Sandbox,
    (host, port): (&Host, u16),
    address: std::net::IpAddr,
    carried: &Carried,
) -> Refusal {
    let mut policies = sandbox.policy();
    loop {
        let policy = Arc::clone(&policies.borrow_and_update());
        let checked = policy.check(host, port).and_then(|()| match host {
            // The address is that of the proxy.
            Host::Name(_) if sandbox.upstream(host, Some(port)).is_some() => Ok(()),
            Host::Name(name) => policy.check_resolved(name, Some(port), &[address]),
            Host::Address(_) => Ok(()),
        });
        let checked = checked.and_then(|()| match host {
            Host::Name(name) => carried.check(&policy, name, port),
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
