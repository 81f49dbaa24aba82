//! How a program inside is notified of a refused connection, in its own protocol: HTTP gets the
//! problem as JSON, TLS an alert, and every other protocol a reset.

use std::time::Duration;

use serde_json::json;
use stockade_core::network::Refusal;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::first_bytes::{http, tls};

/// The header with the name of the reason.
pub(crate) const HEADER: &str = "Stockade-Egress-Refused";

/// `access_denied`, fatal, in a record of its own (RFC 8446, section 6). Programs print its name.
const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 49];

/// How long to wait for the first bytes of a refused connection, which show its protocol.
const PEEK_TIMEOUT: Duration = Duration::from_millis(300);
/// How long, and how many bytes, are read after the response.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const DRAIN_BYTES: usize = 1 << 20;

/// Refuses a connection of which no byte was read yet; waits a moment to recognize its protocol.
pub(crate) async fn refuse_unread(stream: TcpStream, refusal: &Refusal) {
    let mut bytes = [0; 256];
    // Peeked, not read, so that a connection without data is no special case.
    let length = match timeout(PEEK_TIMEOUT, stream.peek(&mut bytes)).await {
        Ok(Ok(length)) => length,
        _ => 0,
    };
    refuse_after(stream, bytes.get(..length).unwrap_or_default(), refusal).await;
}

/// Refuses a connection with these first bytes.
pub(crate) async fn refuse_after(stream: TcpStream, bytes: &[u8], refusal: &Refusal) {
    if tls::is_handshake(bytes) {
        return answer(stream, ALERT).await;
    }
    let is_request = match http::guess(bytes) {
        http::Guess::Version1 | http::Guess::Invalid => true,
        // A long first line: only a request begins with a method and a path.
        http::Guess::Unknown => bytes.windows(2).any(|pair| pair == b" /"),
        // A request to lenient servers.
        http::Guess::NotHttp => matches!(refusal, Refusal::InvalidRequest { .. }),
        http::Guess::Version2 => false,
    };
    if is_request {
        return answer(stream, &response(refusal)).await;
    }
    reset(stream);
}

/// Responds, and closes the connection so that the response arrives.
pub(crate) async fn answer(mut stream: TcpStream, bytes: &[u8]) {
    write_and_close(&mut stream, bytes).await;
}

/// The same, over any stream.
pub(crate) async fn write_and_close(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    bytes: &[u8],
) {
    let written = timeout(DRAIN_TIMEOUT, stream.write_all(bytes)).await;
    if matches!(written, Ok(Ok(()))) {
        drain(stream).await;
    }
}

/// Ends the direction to the client, and waits a moment for the end of the other one: closing while
/// bytes arrive would reset the connection, and discard what the client has not read yet.
pub(crate) async fn drain(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let draining = async {
        stream.shutdown().await?;
        let mut scratch = [0; 4096];
        let mut left = DRAIN_BYTES;
        while left > 0 {
            match stream.read(&mut scratch).await? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        std::io::Result::Ok(())
    };
    // A client that does not read misses the response.
    let _ = timeout(DRAIN_TIMEOUT, draining).await;
}

/// Closes a connection without a response.
pub(crate) fn reset(stream: TcpStream) {
    // If that fails, the connection is closed in the ordinary way.
    let _ = stream.set_zero_linger();
    drop(stream);
}

/// The HTTP response for a refusal.
pub(crate) fn response(refusal: &Refusal) -> Vec<u8> {
    let problem = json!({ "error": refusal.problem() });
    let body = format!("{problem}\n");
    let (status, reason) = (refusal.code().http_status(), refusal.reason());
    let phrase = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        429 => "Too Many Requests",
        503 => "Service Unavailable",
        _ => "Bad Gateway",
    };
    let head = format!(
        "HTTP/1.1 {status} {phrase}\r\n{HEADER}: {reason}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_the_problem_and_the_reason() {
        let refusal = Refusal::InvalidRequest { what: "x" };
        let text = String::from_utf8(response(&refusal)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        assert!(head.contains("\r\nStockade-Egress-Refused: invalid-request\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], "INVALID_INPUT");
        assert_eq!(body["error"]["retryable"], false);
    }
}
