//! Responses on a paused clock: what a program inside receives, in which pieces, and when.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use proptest::prelude::*;
use proptest::sample::select;
use tokio::io::{AsyncReadExt as _, ReadBuf};
use tokio::time::{Instant, sleep};

use super::*;

const PLACEHOLDER: &[u8] = b"stockade-placeholder-0001";

/// Records each write, with its time.
struct Recorder {
    started: Instant,
    writes: Vec<(Duration, Vec<u8>)>,
    is_shut: bool,
}

impl AsyncWrite for Recorder {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let at = self.started.elapsed();
        self.writes.push((at, bytes.to_vec()));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_shut = true;
        Poll::Ready(Ok(()))
    }
}

/// How a host ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// As TLS says.
    Clean,
    /// With an error: without notice, or with a reset.
    Abrupt,
    /// Not at all.
    Never,
}

/// A host that sends pieces, each after a time.
struct Host {
    pieces: Vec<(u64, Vec<u8>)>,
    ending: Ending,
    waiting: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl AsyncRead for Host {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some((millis, _)) = self.pieces.first() else {
            return match self.ending {
                Ending::Clean => Poll::Ready(Ok(())),
                Ending::Abrupt => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ending::Never => Poll::Pending,
            };
        };
        if *millis > 0 {
            let wait = Duration::from_millis(*millis);
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(wait)));
            std::task::ready!(waiting.as_mut().poll(context));
            self.waiting = None;
        }
        let (_, piece) = self.pieces.remove(0);
        buffer.put_slice(&piece);
        Poll::Ready(Ok(()))
    }
}

/// What a client gets: its writes, whether the end was announced, and the result.
struct Received {
    writes: Vec<(Duration, Vec<u8>)>,
    is_shut: bool,
    result: Result<(), RelayError>,
}

impl Received {
    fn bytes(&self) -> Vec<u8> {
        self.writes.iter().flat_map(|(_, bytes)| bytes.clone()).collect()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    fn body_bytes(&self) -> Vec<u8> {
        let bytes = self.bytes();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        end.map(|end| bytes[end + 4..].to_vec()).unwrap_or_default()
    }

    fn body(&self) -> String {
        let text = self.text();
        text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }
}

fn exchange(is_web_socket: bool) -> Exchange {
    Exchange { is_head: false, is_web_socket, minor: 1, is_redacted: true }
}

/// Runs one exchange to its end, or for a minute.
fn run(values: &[&str], exchange: Exchange, pieces: &[(u64, Vec<u8>)], ending: Ending) -> Received {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let mut redaction = Redaction::default();
    values.iter().for_each(|value| redaction.add(value.as_bytes(), PLACEHOLDER));
    runtime.block_on(async {
        let outgoing = Outgoing {
            host: stockade_core::network::Host::parse("api.example").unwrap(),
            bytes: b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            body: if exchange.is_web_socket {
                Body::Switched { held: Vec::new(), is_tunnel: false }
            } else {
                Body::Bytes(0)
            },
            exchange,
            redaction,
        };
        let mut to_inside =
            Recorder { started: Instant::now(), writes: Vec::new(), is_shut: false };
        let (_client, from_inside) = tokio::io::duplex(64);
        let halves = Halves {
            from_inside,
            to_inside: &mut to_inside,
            from_outside: Host { pieces: pieces.to_vec(), ending, waiting: None },
            to_outside: tokio::io::sink(),
        };
        let (limits, traffic) = (Limits::default(), Traffic::default());
        let search = Search::new(Vec::new(), outgoing.host.clone(), |_| {});
        let running = round_trip(halves, (outgoing, search), &limits, &traffic);
        let result = timeout(Duration::from_secs(60), running).await.unwrap_or(Ok(()));
        let Recorder { writes, is_shut, .. } = to_inside;
        Received { writes, is_shut, result }
    })
}

/// One piece at once.
fn at_once(text: &str) -> Vec<(u64, Vec<u8>)> {
    vec![(0, text.as_bytes().to_vec())]
}

const VALUE: &str = "sk-live-ZQ7xK2mPvL9wR4tYbN8c";

#[test]
fn all_of_an_honest_response_arrives() {
    for body in ["nothing", "task", "ask", "sk-live-", "s", "a sk-live-ZQ7xK2mPvL9wR4tYbN8", "x\n"]
    {
        let length = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        for ending in [Ending::Clean, Ending::Abrupt, Ending::Never] {
            let received = run(&[VALUE], exchange(false), &at_once(&length), ending);
            assert_eq!(received.body(), body, "{ending:?}");
            assert!(received.is_shut && received.result.is_ok(), "{body} {ending:?}");
            let last = received.writes.last().unwrap().0;
            assert_eq!(last, Duration::ZERO, "the end is known");
        }
        let chunked = format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\nX-T: y\r\n\r\n",
            body.len()
        );
        for ending in [Ending::Clean, Ending::Abrupt, Ending::Never] {
            let received = run(&[VALUE], exchange(false), &at_once(&chunked), ending);
            let (content, trailers) = decoded(&received.body_bytes());
            assert_eq!((content.as_slice(), trailers.as_str()), (body.as_bytes(), "X-T: y\r\n"));
            assert!(received.is_shut && received.result.is_ok(), "{body} {ending:?}");
        }
        let close = format!("HTTP/1.1 200 OK\r\n\r\n{body}");
        for ending in [Ending::Clean, Ending::Abrupt, Ending::Never] {
            let received = run(&[VALUE], exchange(false), &at_once(&close), ending);
            assert_eq!(received.body(), body, "{ending:?}");
            // The client can tell an end that the host did not mean.
            assert_eq!(received.is_shut, ending == Ending::Clean);
        }
        for accept in ["", "Sec-WebSocket-Accept: x\r\n"] {
            let switched = format!("HTTP/1.1 101 Switching\r\n{accept}\r\n{body}");
            for ending in [Ending::Clean, Ending::Abrupt, Ending::Never] {
                let received = run(&[VALUE], exchange(true), &at_once(&switched), ending);
                assert_eq!(received.body(), body, "{ending:?}");
            }
        }
    }
}

/// The content and the trailers of a chunked body.
fn decoded(mut body: &[u8]) -> (Vec<u8>, String) {
    let mut content = Vec::new();
    loop {
        let end = body.windows(2).position(|pair| pair == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        let rest = &body[end + 2..];
        if size == 0 {
            let trailers = String::from_utf8_lossy(rest.strip_suffix(b"\r\n").unwrap());
            return (content, trailers.into_owned());
        }
        content.extend_from_slice(&rest[..size]);
        body = rest[size..].strip_prefix(b"\r\n").unwrap();
    }
}

#[test]
fn what_arrived_of_a_response_that_breaks_off_is_forwarded() {
    for (text, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nsk-live", "sk-live"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\nsk-live", "7\r\nsk-live\r\n"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nsk-live\r\nzz\r\n",
            "7\r\nsk-live\r\n",
        ),
    ] {
        for ending in [Ending::Clean, Ending::Abrupt] {
            let received = run(&[VALUE], exchange(false), &at_once(text), ending);
            assert_eq!(received.body(), expected);
            assert!(!received.is_shut && matches!(received.result, Err(RelayError::Cut)));
        }
    }
}

#[test]
fn an_open_connection_is_quiet_for_a_fixed_time() {
    let head = "HTTP/1.1 101 Switching\r\n\r\n";
    let pieces = |text: &str| {
        let text = text.as_bytes();
        vec![(0, head.as_bytes().to_vec()), (1000, text.to_vec()), (700, b"\n".to_vec())]
    };
    for text in [&VALUE[..9], "sk-live-q", &VALUE[..20], "something else"] {
        let received = run(&[VALUE], exchange(true), &pieces(text), Ending::Never);
        let times: Vec<_> = received.writes.iter().map(|(at, _)| at.as_millis()).collect();
        assert_eq!(times, [0, 1200, 1700], "{text}");
        assert_eq!(received.writes[1].1, text.as_bytes());
    }
    // A line is not held back at all, and neither is a message.
    let line = [(0, head.as_bytes().to_vec()), (1000, b"hello\n".to_vec())];
    let received = run(&[VALUE], exchange(true), &line, Ending::Never);
    assert_eq!(received.writes[1].0.as_millis(), 1000);
    let head = "HTTP/1.1 101 Switching\r\nSec-WebSocket-Accept: x\r\n\r\n";
    let message = [(0, head.as_bytes().to_vec()), (1000, b"\x81\x07sk-live\x89\x02hi".to_vec())];
    let received = run(&[VALUE], exchange(true), &message, Ending::Never);
    let last = received.writes.last().unwrap();
    assert_eq!((last.0.as_millis(), &last.1[..]), (1000, &b"\x81\x07sk-live\x89\x02hi"[..]));
}

#[test]
fn informational_heads_are_forwarded_at_once() {
    let text = format!("HTTP/1.1 103 Early\r\nX-A: {VALUE}\r\n\r\n");
    let rest = b"HTTP/1.1 204 None\r\n\r\n".to_vec();
    let received =
        run(&[VALUE], exchange(false), &[(0, text.into_bytes()), (300, rest)], Ending::Never);
    assert_eq!(received.writes[0].0, Duration::ZERO);
    let shown = "X-A: stockade-placeholder-0001\r\n\r\n";
    assert!(received.writes[0].1.ends_with(shown.as_bytes()), "{}", received.text());
    assert!(received.result.is_ok() && received.is_shut);
}

#[test]
fn what_cannot_be_redacted_is_answered_with_a_problem() {
    for (head, what) in [
        ("200 OK\r\nContent-Encoding: gzip", "compressed"),
        ("206 Partial\r\nContent-Range: bytes 0-3/9\r\nContent-Length: 4", "part"),
        ("200 OK\r\nContent-Type: text/plain; charset=utf-16", "character encoding"),
        ("200 OK\r\nTransfer-Encoding: gzip, chunked", "transfer encoding"),
        ("101 Switching\r\nUpgrade: other", "not requested"),
    ] {
        let text = format!("HTTP/1.1 {head}\r\n\r\n1234");
        let received = run(&[VALUE], exchange(false), &at_once(&text), Ending::Clean);
        let text = received.text();
        assert!(text.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{text}");
        assert!(text.contains("Stockade-Egress-Refused: unreadable\r\n"), "{text}");
        assert!(text.contains("EGRESS_UNREADABLE") && text.contains(what), "{text}");
        assert!(!text.contains("1234"), "{text}");
        assert!(matches!(received.result, Err(RelayError::Reported(Refusal::Unreadable { .. }))));
    }
}

/// The two values, which have no byte in common at any index.
const ONE: &str = "abcabcaab-bcc.xA9Q";
const OTHER: &str = "zyxwvutsrqponmlk78";
/// A second secret of another length.
const LONGER: &str = "ABCDEFGHIJKLMNOPQRSTUVWX";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Length,
    Chunked,
    Close,
    Stream,
    Messages,
}

/// A response that a command can make a host send without knowing the value.
#[derive(Debug, Clone)]
struct Script {
    kind: Kind,
    /// Runs of text: parts of the value, and other text.
    runs: Vec<String>,
    /// Where pieces, and frames or chunks, end.
    cuts: Vec<usize>,
    /// The times before the pieces.
    millis: Vec<u64>,
    ending: Ending,
}

fn script() -> impl Strategy<Value = Script> {
    let part = (0_usize..18, 0_usize..18)
        .prop_map(|(from, to)| ONE.get(from..to).unwrap_or(&ONE[..to]).to_owned());
    let run = prop_oneof![
        4 => part,
        2 => "[a-c -]{0,4}",
        1 => select(vec!["\n", "\r\n", "\0", "é", "\u{7f}", LONGER, "ABCDEFG"])
            .prop_map(str::to_owned),
    ];
    let kind = select(vec![Kind::Length, Kind::Chunked, Kind::Close, Kind::Stream, Kind::Messages]);
    let ending = select(vec![Ending::Clean, Ending::Abrupt, Ending::Never]);
    let millis = select(vec![0_u64, 1, 100, 199, 200, 201, 499, 500, 501, 3000]);
    (
        kind,
        prop::collection::vec(run, 0..10),
        prop::collection::vec(0_usize..4096, 0..8),
        prop::collection::vec(millis, 12),
        ending,
    )
        .prop_map(|(kind, runs, cuts, millis, ending)| Script {
            kind,
            runs,
            cuts,
            millis,
            ending,
        })
}

/// Bytes between sorted cuts.
fn cut(bytes: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|pair| bytes[pair[0]..pair[1]].to_vec()).collect()
}

impl Script {
    fn content(&self) -> String {
        self.runs.concat()
    }

    fn exchange(&self) -> Exchange {
        exchange(matches!(self.kind, Kind::Stream | Kind::Messages))
    }

    /// The bytes of the response, also with parts of the value in its head and around its content.
    fn bytes(&self) -> Vec<u8> {
        let content = self.content().into_bytes();
        let shown: String = self.runs.iter().flat_map(|run| run.chars()).collect();
        let shown: String = shown.chars().filter(|byte| (' '..='~').contains(byte)).collect();
        let (status, framing) = match self.kind {
            Kind::Length => ("200 OK", format!("Content-Length: {}\r\n", content.len())),
            Kind::Chunked => ("200 OK", "Transfer-Encoding: chunked\r\n".to_owned()),
            Kind::Close => ("200 OK", String::new()),
            Kind::Stream => ("101 Switching", String::new()),
            Kind::Messages => ("101 Switching", "Sec-WebSocket-Accept: x\r\n".to_owned()),
        };
        let head = format!("HTTP/1.1 {status}\r\nX-Echo: {shown}\r\n{framing}\r\n");
        let parts = cut(&content, self.cuts.get(..3).unwrap_or(&self.cuts));
        let body: Vec<u8> = match self.kind {
            Kind::Length | Kind::Close | Kind::Stream => content,
            Kind::Chunked => {
                let chunk = |part: &Vec<u8>| {
                    let size = format!("{:x};x={shown}\r\n", part.len());
                    [size.as_bytes(), part, b"\r\n"].concat()
                };
                let chunks: Vec<u8> = parts.iter().flat_map(chunk).collect();
                let end = format!("0\r\nX-Trailer: {shown}\r\n\r\n");
                [chunks, end.into_bytes()].concat()
            }
            Kind::Messages => {
                let last = parts.len().saturating_sub(1);
                let frame = |(index, part): (usize, &Vec<u8>)| {
                    let first = u8::from(index == 0) | if index == last { 0x80 } else { 0 };
                    let length = u16::try_from(part.len()).unwrap().to_be_bytes();
                    [&[first, 126], &length[..], part, &[0x8a, 2], b"sk"].concat()
                };
                parts.iter().enumerate().flat_map(frame).collect()
            }
        };
        [head.into_bytes(), body].concat()
    }

    fn pieces(&self) -> Vec<(u64, Vec<u8>)> {
        let pieces = cut(&self.bytes(), &self.cuts);
        self.millis.iter().copied().chain(std::iter::repeat(0)).zip(pieces).collect()
    }
}

/// The content of data frames in the form that [`Script::bytes`] uses; ASCII only.
fn unframed(bytes: &[u8], length: usize) -> String {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let mut bytes = &bytes[head + 4..];
    let mut content = Vec::new();
    while content.len() < length {
        let at = bytes.iter().position(|byte| *byte == 126).unwrap();
        let size = usize::from(u16::from_be_bytes([bytes[at + 1], bytes[at + 2]]));
        content.extend_from_slice(&bytes[at + 3..at + 3 + size]);
        bytes = &bytes[at + 3 + size + 4..];
    }
    String::from_utf8_lossy(&content).into_owned()
}

proptest! {
    /// The same responses with two values: the same pieces at the same times.
    #[test]
    fn nothing_that_is_received_depends_on_a_part_of_the_value(script in script()) {
        let text = script.content();
        let shown: String = text.chars().filter(|byte| (' '..='~').contains(byte)).collect();
        prop_assume!(!text.contains(ONE) && !shown.contains(ONE));
        for longer in [&[][..], &[LONGER]] {
            let with = |value| {
                let values = [&[value], longer].concat();
                run(&values, script.exchange(), &script.pieces(), script.ending)
            };
            let (one, other) = (with(ONE), with(OTHER));
            prop_assert_eq!(&one.writes, &other.writes);
            prop_assert_eq!(one.is_shut, other.is_shut);
        }
    }

    /// A host that repeats the value at once, in whatever pieces and frames.
    #[test]
    fn a_value_that_is_repeated_does_not_arrive(
        script in script(),
        at in 0_usize..10,
        other in select(vec![ONE, LONGER]),
    ) {
        let mut script = script;
        script.runs.insert(at.min(script.runs.len()), other.to_owned());
        // A time without bytes within a value may reveal a part of it.
        script.millis.iter_mut().for_each(|millis| *millis = (*millis).min(199));
        let received = run(&[ONE, LONGER], script.exchange(), &script.pieces(), script.ending);
        prop_assert!(!received.text().contains(other), "{}", received.text());
        if script.kind == Kind::Chunked {
            // A character may be split between chunks, and a cut value replaced within one.
            let (content, _) = decoded(&received.body_bytes());
            prop_assert_eq!(content.len(), script.content().len());
            let content = String::from_utf8_lossy(&content);
            prop_assert!(!content.contains(other), "{}", content);
        }
        if script.kind == Kind::Messages {
            let content = unframed(&received.bytes(), script.content().len());
            prop_assert!(!content.contains(other), "{}", content);
        }
        if matches!(script.kind, Kind::Length | Kind::Close | Kind::Stream) {
            let body = received.body();
            prop_assert!(!body.contains(other), "{}", body);
        }
        if script.kind == Kind::Length {
            // As long as the client was told.
            let text = received.text();
            let length = format!("Content-Length: {}\r\n", script.content().len());
            prop_assert!(script.content().is_empty() || text.contains(&length), "{}", text);
        }
    }
}

/// What the host and the client receive of an exchange, and its result. The client has sent `later`
/// after the first bytes; the host answers at once.
async fn requested(
    (body, later): (Body, &[u8]),
    search: Search<'_>,
    answer: &str,
) -> (String, String, Result<(), RelayError>) {
    let is_web_socket = matches!(body, Body::Switched { .. });
    let outgoing = Outgoing {
        host: stockade_core::network::Host::parse("api.example").unwrap(),
        bytes: b"POST / HTTP/1.1\r\n\r\n".to_vec(),
        body,
        exchange: exchange(is_web_socket),
        redaction: Redaction::default(),
    };
    let (mut client, inside) = tokio::io::duplex(4096);
    let (mut host, outside) = tokio::io::duplex(4096);
    client.write_all(later).await.unwrap();
    host.write_all(answer.as_bytes()).await.unwrap();
    let (from_inside, to_inside) = tokio::io::split(inside);
    let (from_outside, to_outside) = tokio::io::split(outside);
    let halves = Halves { from_inside, to_inside, from_outside, to_outside };
    let (limits, traffic) = (Limits::default(), Traffic::default());
    let running = round_trip(halves, (outgoing, search), &limits, &traffic);
    let result = timeout(Duration::from_secs(5), running).await.unwrap_or(Ok(()));
    let mut received = [Vec::new(), Vec::new()];
    for (stream, received) in [&mut host, &mut client].into_iter().zip(&mut received) {
        let _ = timeout(Duration::from_secs(5), stream.read_to_end(received)).await;
    }
    let [host, client] = received.map(|bytes| String::from_utf8(bytes).unwrap());
    (host, client, result)
}

fn without_search() -> Search<'static> {
    let host = stockade_core::network::Host::parse("api.example").unwrap();
    Search::new(Vec::new(), host, |_| {})
}

#[tokio::test(start_paused = true)]
async fn bytes_after_a_request_to_switch_wait_for_an_accepted_response() {
    let body = || Body::Switched { held: b"held ".to_vec(), is_tunnel: false };
    let switch = "HTTP/1.1 101 Switching\r\nSec-WebSocket-Accept: x\r\n";
    let accepted = format!("{switch}\r\n");
    let (host, _, _) = requested((body(), b"later"), without_search(), &accepted).await;
    assert!(host.ends_with("\r\n\r\nheld later"), "{host}");
    for refused in [
        format!("{switch}Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"),
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab".to_owned(),
        "HTTP/1.1 100 Continue\r\n\r\n".to_owned(),
    ] {
        let (host, ..) = requested((body(), b"later"), without_search(), &refused).await;
        assert!(!host.contains("held") && !host.contains("later"), "{refused}: {host}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_or_misdirected_rest_of_a_request_is_refused() {
    let strict = || {
        let host = stockade_core::network::Host::parse("api.example").unwrap();
        let (secret, text) = ("OTHER".to_owned(), "stockade-other".to_owned());
        let own = crate::placeholders::Placeholder { secret, text, strict: true };
        Search::new(vec![own], host, |_| {})
    };
    let chunked = || Body::Chunked(crate::first_bytes::body::Chunks::default());
    for (body, later, search, reason) in [
        (chunked(), "3;x\r\nabc\r\n", without_search(), "invalid-request"),
        (Body::Bytes(20), "a stockade-other end", strict(), "secret-misdirected"),
    ] {
        let (host, client, result) = requested((body, later.as_bytes()), search, "").await;
        assert!(matches!(result, Err(RelayError::Reported(_))), "{result:?}");
        assert!(host.ends_with("\r\n\r\n"), "{host}");
        assert!(client.contains(&format!("Stockade-Egress-Refused: {reason}\r\n")), "{client}");
    }
    // A response that has begun does not become another one.
    let (_, client, result) = requested(
        (Body::Bytes(20), b"a stockade-other end"),
        strict(),
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
    )
    .await;
    assert!(matches!(result, Err(RelayError::Reported(_))), "{result:?}");
    assert!(client.starts_with("HTTP/1.1 200 OK\r\n") && !client.contains("Refused"), "{client}");
}

#[tokio::test(start_paused = true)]
async fn chunks_of_a_request_arrive_and_nothing_after_them() {
    let body = Body::Chunked(crate::first_bytes::body::Chunks::default());
    let later = b"3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n";
    let (host, ..) = requested((body, later), without_search(), "").await;
    assert_eq!(host, "POST / HTTP/1.1\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
}
