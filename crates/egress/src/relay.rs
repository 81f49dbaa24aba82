//! Relays bytes between a connection from inside and one to outside. The first outgoing bytes are
//! checked before any is sent; incoming bytes are not checked.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stockade_core::network::{Name, Refusal};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::activity::{Activity, CopyError};
use crate::first_bytes::body::Body;
use crate::first_bytes::tls;
use crate::first_bytes::{Admission, admit};
use crate::limits::Limits;
use crate::meter::Meter;
use crate::placeholders::Search;
use crate::rejection;
use crate::sending::{SendError, Sending};
use crate::watch::{Seen, Watched};

/// The first bytes.
#[derive(Debug)]
pub(crate) enum FirstBytes {
    /// Any bytes: the connection is to an address that is allowed as such.
    Any(Vec<u8>),
    /// Bytes for this host. Some of them may have arrived.
    ForHost(Name, Vec<u8>),
    /// A request that was checked already, with so much of its body still to come.
    Request(Vec<u8>, Body),
}

/// The number of relayed bytes.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    /// Counts the bytes of all connections.
    pub(crate) meter: Arc<Meter>,
}

impl Traffic {
    /// That of a new connection.
    pub(crate) fn new(meter: &Arc<Meter>) -> Self {
        Self { meter: Arc::clone(meter), ..Self::default() }
    }

    /// The number of bytes sent outside and received from outside.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }
}

/// The first bytes of a connection of HTTP/2.
#[derive(Debug, Default)]
pub(crate) struct Preface {
    pub(crate) from_inside: Vec<u8>,
    pub(crate) from_outside: Vec<u8>,
}

/// Why a connection failed.
#[derive(Debug)]
pub(crate) enum RelayError {
    /// Its first bytes are refused; they begin with these.
    Refused(Refusal, Vec<u8>),
    /// It is one of HTTP/2 that begins with these bytes. Nothing was sent in either direction.
    Version2(Preface),
    /// It is refused, and the client was notified.
    Reported(Refusal),
    /// The response ended before it was complete, or perhaps did. All of it that arrived was
    /// forwarded, and its end was not announced to the client.
    Cut,
    /// Either side disconnected, or was idle for too long.
    Io,
}

impl From<io::Error> for RelayError {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}

impl From<CopyError> for RelayError {
    fn from(_: CopyError) -> Self {
        Self::Io
    }
}

/// Both directions of both connections.
pub(crate) struct Halves<FromInside, ToInside, FromOutside, ToOutside> {
    pub(crate) from_inside: FromInside,
    pub(crate) to_inside: ToInside,
    pub(crate) from_outside: FromOutside,
    pub(crate) to_outside: ToOutside,
}

/// Relays bytes until both sides are done. The search is for placeholders in what is sent. The first
/// bytes are reported before they are sent.
pub(crate) async fn relay(
    inside: &mut TcpStream,
    outside: &mut TcpStream,
    first: FirstBytes,
    mut search: Search<'_>,
    limits: &Limits,
    traffic: &Traffic,
    report: &(dyn Fn(&[u8], &Body) + Sync),
) -> Result<(), RelayError> {
    let (mut from_inside, mut to_inside) = inside.split();
    let (from_outside, mut to_outside) = outside.split();
    let activity = Activity::new(limits.idle, &traffic.meter);
    let is_request = AtomicBool::new(false);
    let (is_no_request, no_request) = watch::channel(false);
    let (mut from_outside, seen) = Watched::new(from_outside, no_request);
    let early = Mutex::new(Vec::new());
    let (is_known, known) = watch::channel(false);
    let out = async {
        let (bytes, body) = read_first_bytes(&mut from_inside, first, Some(&seen), limits).await?;
        is_known.send_replace(true);
        report(&bytes, &body);
        if tls::is_handshake(&bytes) {
            search.end();
        }
        is_no_request.send_replace(matches!(body, Body::Other(_)));
        let sending = Sending {
            activity: &activity,
            from: &mut from_inside,
            to: &mut to_outside,
            count: &traffic.sent,
            search,
            seen: seen.clone(),
            is_request: &is_request,
        };
        match sending.send(bytes, body).await {
            // A host may answer before it has read all of the request, and close: its response
            // still arrives.
            Err(SendError::Write) if is_request.load(Ordering::Relaxed) => Ok(()),
            sent => Ok::<_, End>(sent?),
        }
    };
    let back = async {
        settings_of_host(&activity, &mut from_outside, &early, known).await?;
        let begun = std::mem::take(&mut *early.lock().unwrap_or_else(PoisonError::into_inner));
        let written = activity.write(&mut to_inside, &begun, &traffic.received).await;
        written.map_err(|_| CopyError::Write)?;
        activity.copy(&mut from_outside, &mut to_inside, &traffic.received).await?;
        to_inside.shutdown().await?;
        // The rest of an unfinished request is not needed any more.
        if is_request.load(Ordering::Relaxed) { Err(End::Answered) } else { Ok(()) }
    };
    match tokio::try_join!(out, back) {
        Ok(_) | Err(End::Answered) => Ok(()),
        Err(End::Broken(RelayError::Version2(preface))) if traffic.bytes().1 > 0 => {
            let what = "it is HTTP/2, and the host has answered in another protocol";
            let refusal = Refusal::InvalidRequest { what };
            Err(RelayError::Refused(refusal, preface.from_inside))
        }
        Err(End::Broken(RelayError::Version2(mut preface))) => {
            preface.from_outside = early.into_inner().unwrap_or_else(PoisonError::into_inner);
            Err(RelayError::Version2(preface))
        }
        Err(End::Broken(broken)) => Err(broken),
        Err(End::Refused(refusal)) => {
            // A response that has begun cannot become another one.
            if traffic.bytes().1 == 0 {
                let mut inside = tokio::io::join(from_inside, to_inside);
                rejection::write_and_close(&mut inside, &rejection::response(&refusal)).await;
            }
            Err(RelayError::Reported(refusal))
        }
    }
}

/// The first frame of a host that speaks HTTP/2, of any length (RFC 9113, section 6.5).
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Whether a host begins with [`SETTINGS`], as far as its bytes go.
fn is_like_settings(bytes: &[u8]) -> bool {
    let mut pairs = bytes.iter().zip(SETTINGS).enumerate();
    !bytes.is_empty() && pairs.all(|(at, (byte, expected))| at == 2 || *byte == expected)
}

/// Reads the first bytes of a host into `early`. What may be HTTP/2 stays there until it is known what
/// the client speaks: then the host's frames are for this process, and not for the client.
async fn settings_of_host(
    activity: &Activity,
    from: &mut (impl AsyncRead + Unpin),
    early: &Mutex<Vec<u8>>,
    mut known: watch::Receiver<bool>,
) -> Result<(), CopyError> {
    let mut buffer = Vec::new();
    loop {
        let is_whole = buffer.len() >= SETTINGS.len();
        tokio::select! {
            biased;
            _ = known.wait_for(|known| *known) => return Ok(()),
            read = activity.read(from, &mut buffer), if !is_whole => {
                let length = read.map_err(|_| CopyError::Read)?;
                early.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&buffer);
                if length == 0 || !is_like_settings(&buffer) {
                    return Ok(());
                }
            }
        }
    }
}

/// Why one direction ends both.
enum End {
    /// The only response is complete.
    Answered,
    /// What follows the first bytes is refused.
    Refused(Refusal),
    Broken(RelayError),
}

impl From<RelayError> for End {
    fn from(error: RelayError) -> Self {
        Self::Broken(error)
    }
}

impl From<SendError> for End {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Read | SendError::Write => Self::Broken(RelayError::Io),
            SendError::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

impl From<CopyError> for End {
    fn from(error: CopyError) -> Self {
        Self::Broken(error.into())
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.into())
    }
}

/// The first outgoing bytes, once they are checked, and how much may follow.
pub(crate) async fn read_first_bytes(
    inside: &mut (impl AsyncRead + Unpin),
    first: FirstBytes,
    seen: Option<&watch::Receiver<Seen>>,
    limits: &Limits,
) -> Result<(Vec<u8>, Body), RelayError> {
    let (name, mut bytes) = match first {
        FirstBytes::Any(bytes) => return Ok((bytes, Body::Open)),
        FirstBytes::Request(bytes, body) => return Ok((bytes, body)),
        FirstBytes::ForHost(name, bytes) => (name, bytes),
    };
    // Some clients wait for the server to send first, for any time.
    let mut deadline =
        Instant::now() + if bytes.is_empty() { limits.idle } else { limits.first_bytes };
    loop {
        let has_answered = seen.is_some_and(|seen| *seen.borrow() == Seen::Other);
        match admit(&name, &bytes, has_answered) {
            Admission::More => {}
            Admission::Forward { bytes, body } => return Ok((bytes, body)),
            Admission::Version2 => {
                let preface = Preface { from_inside: bytes, from_outside: Vec::new() };
                return Err(RelayError::Version2(preface));
            }
            Admission::Refuse(refusal) => return Err(RelayError::Refused(refusal, bytes)),
        }
        let is_first = bytes.is_empty();
        let count = match timeout_at(deadline, inside.read_buf(&mut bytes)).await {
            Ok(count) => count?,
            Err(_) if is_first => return Err(RelayError::Io),
            Err(_) => 0,
        };
        if count == 0 {
            if is_first {
                // The client sends nothing, but may still receive.
                return Ok((Vec::new(), Body::Open));
            }
            let refusal = Refusal::InvalidRequest { what: "its first bytes are incomplete" };
            return Err(RelayError::Refused(refusal, bytes));
        }
        if is_first {
            deadline = Instant::now() + limits.first_bytes;
        }
    }
}
