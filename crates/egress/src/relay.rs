//! Relays bytes between a connection from inside and one to outside. The first outgoing bytes are
//! checked before any is sent; incoming bytes are not checked, except for redaction.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stockade_core::network::{Name, Refusal};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::first_bytes::body::Body;
use crate::first_bytes::http::Response;
use crate::first_bytes::tls;
use crate::first_bytes::{Admission, admit};
use crate::limits::Limits;
use crate::placeholders::Search;
use crate::redaction::Redaction;
use crate::rejection;
use crate::watch::{Seen, Watched};

const BUFFER_BYTES: usize = 32 << 10;

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
    sent: AtomicU64,
    received: AtomicU64,
}

impl Traffic {
    /// The number of bytes sent outside and received from outside.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }
}

/// Why a connection failed.
#[derive(Debug)]
pub(crate) enum RelayError {
    /// Its first bytes are refused; they begin with these.
    Refused(Refusal, Vec<u8>),
    /// It is refused, and the client was notified.
    Reported(Refusal),
    /// Either side disconnected, or was idle for too long.
    Io,
}

impl From<io::Error> for RelayError {
    fn from(_: io::Error) -> Self {
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

/// Relays bytes until both sides are done.
pub(crate) async fn relay(
    inside: &mut TcpStream,
    outside: &mut TcpStream,
    first: FirstBytes,
    search: Search<'_>,
    limits: &Limits,
    traffic: &Traffic,
) -> Result<(), RelayError> {
    let (from_inside, to_inside) = inside.split();
    let (from_outside, to_outside) = outside.split();
    let halves = Halves { from_inside, to_inside, from_outside, to_outside };
    relay_halves(halves, first, (search, None), limits, traffic).await
}

/// The same. The search is for placeholders in what is sent; if a redaction is given, it is applied
/// to the response.
pub(crate) async fn relay_halves(
    halves: Halves<
        impl AsyncRead + Unpin,
        impl AsyncWrite + Unpin,
        impl AsyncRead + Unpin,
        impl AsyncWrite + Unpin,
    >,
    first: FirstBytes,
    (mut search, redaction): (Search<'_>, Option<Redaction>),
    limits: &Limits,
    traffic: &Traffic,
) -> Result<(), RelayError> {
    let Halves { mut from_inside, mut to_inside, from_outside, mut to_outside } = halves;
    let activity = Activity::new(limits.idle);
    let is_request = AtomicBool::new(false);
    let (is_no_request, no_request) = watch::channel(false);
    let (mut from_outside, mut seen) = Watched::new(from_outside, no_request);
    let out = async {
        let (bytes, mut body) =
            read_first_bytes(&mut from_inside, first, Some(&seen), limits).await?;
        if tls::is_handshake(&bytes) {
            search.end();
        }
        search.first(&bytes)?;
        is_request.store(body.is_request(), Ordering::Relaxed);
        is_no_request.send_replace(matches!(body, Body::Other(_)));
        activity.write(&mut to_outside, &bytes, &traffic.sent).await?;
        drop(bytes);
        if let Body::Switched { held, is_tunnel } = body {
            let seen = seen.wait_for(|seen| *seen != Seen::Nothing).await.map(|seen| *seen);
            if !seen.is_ok_and(|seen| seen.is_switch(is_tunnel)) {
                return Ok(());
            }
            is_request.store(false, Ordering::Relaxed);
            search.bytes(&held)?;
            activity.write(&mut to_outside, &held, &traffic.sent).await?;
            body = Body::Open;
        }
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        // A direction whose request is complete is not shut down: some servers take that for a
        // cancelled request.
        while !body.is_complete() {
            buffer.clear();
            if activity.read(&mut from_inside, &mut buffer).await? == 0 {
                to_outside.shutdown().await?;
                break;
            }
            if *seen.borrow() == Seen::Other && matches!(body, Body::Other(_)) {
                body = Body::Open;
            }
            buffer.truncate(body.take(&buffer)?);
            search.bytes(&buffer)?;
            activity.write(&mut to_outside, &buffer, &traffic.sent).await?;
        }
        Ok::<_, End>(())
    };
    let back = async {
        let (from, to, count) = (&mut from_outside, &mut to_inside, &traffic.received);
        match redaction {
            Some(redaction) => activity.answer(from, to, redaction, count).await?,
            None => activity.copy(from, to, count).await?,
        }
        to_inside.shutdown().await?;
        // The rest of an unfinished request is not needed any more.
        if is_request.load(Ordering::Relaxed) { Err(End::Answered) } else { Ok(()) }
    };
    match tokio::try_join!(out, back) {
        Ok(_) | Err(End::Answered) => Ok(()),
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

/// Why one direction ends both.
enum End {
    /// The only response is complete.
    Answered,
    /// What follows the first bytes is refused.
    Refused(Refusal),
    Broken(RelayError),
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<RelayError> for End {
    fn from(error: RelayError) -> Self {
        Self::Broken(error)
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

/// The head of a response, and the bytes after it.
async fn response(
    activity: &Activity,
    outside: &mut (impl AsyncRead + Unpin),
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if activity.read(outside, &mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let response = Response::parse(&bytes);
        let response = response.map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))?;
        if let Some(Response { length }) = response {
            let rest = bytes.split_off(length.min(bytes.len()));
            return Ok((bytes, rest));
        }
    }
}

/// The time of the last transfer, in either direction.
struct Activity {
    started: Instant,
    last_millis: AtomicU64,
    idle: Duration,
}

impl Activity {
    fn new(idle: Duration) -> Self {
        Self { started: Instant::now(), last_millis: AtomicU64::new(0), idle }
    }

    fn note(&self) {
        let millis = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_millis.store(millis, Ordering::Relaxed);
    }

    fn deadline(&self) -> Instant {
        let last = Duration::from_millis(self.last_millis.load(Ordering::Relaxed));
        self.started + last + self.idle
    }

    async fn write(
        &self,
        to: &mut (impl AsyncWrite + Unpin),
        bytes: &[u8],
        count: &AtomicU64,
    ) -> io::Result<()> {
        // A peer that reads nothing is treated as disconnected, whatever it sends.
        timeout(self.idle, to.write_all(bytes)).await??;
        count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.note();
        Ok(())
    }

    /// Waits for more bytes until both directions are idle for too long.
    async fn read(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        buffer: &mut Vec<u8>,
    ) -> io::Result<usize> {
        loop {
            let deadline = self.deadline();
            match timeout_at(deadline, from.read_buf(buffer)).await {
                Ok(length) => return length,
                // There may have been traffic in the other direction.
                Err(_) if self.deadline() > deadline => {}
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }

    /// Copies bytes until the end of the stream.
    async fn copy(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        count: &AtomicU64,
    ) -> io::Result<()> {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        loop {
            buffer.clear();
            let length = self.read(from, &mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            self.write(to, &buffer, count).await?;
        }
    }

    /// Copies a redacted response until its end.
    async fn answer(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        mut redaction: Redaction,
        count: &AtomicU64,
    ) -> io::Result<()> {
        let (head, mut buffer) = response(self, from).await?;
        self.write(to, &redaction.head(&head), count).await?;
        loop {
            let bytes = redaction.body(&buffer);
            self.write(to, &bytes, count).await?;
            buffer.clear();
            buffer.reserve(BUFFER_BYTES);
            if self.read(from, &mut buffer).await? == 0 {
                return self.write(to, &redaction.finish(), count).await;
            }
        }
    }
}
