//! Requests to the HTTP proxy: their target, and the response that refuses them.

use serde_json::json;
use stockade_core::network::{Host, Refusal, WantedHost};

/// The longest first line of a request, in bytes.
pub(crate) const LINE_BYTES: usize = 8 << 10;

/// The response, and the host that was asked for.
pub(crate) fn answer(head: &[u8]) -> (Vec<u8>, Option<WantedHost>) {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.get(..line.len().min(LINE_BYTES)).unwrap_or_default();
    match target(line.strip_suffix(b"\r").unwrap_or(line)) {
        Some((host, port)) => {
            let refusal = Refusal::NoNetwork { host: host.clone(), port };
            (response(&refusal), WantedHost::new(host, port))
        }
        None => (response(&Refusal::InvalidRequest { what: "its target is not a host" }), None),
    }
}

/// The host and port of the first line of a request.
fn target(line: &[u8]) -> Option<(Host, Option<u16>)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let (authority, default) = match target.split_once("://") {
        _ if method == "CONNECT" => (target, None),
        Some((scheme, rest)) => {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            let default = match scheme.to_ascii_lowercase().as_str() {
                "http" | "ws" => 80,
                "https" | "wss" => 443,
                "ftp" => 21,
                _ => return None,
            };
            (rest.get(..end)?, Some(default))
        }
        None => return None,
    };
    // A user and a password, which are not repeated.
    let authority = authority.rsplit('@').next()?;
    let is_bracketed = authority.ends_with(']');
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !is_bracketed => (host, Some(port.parse::<u16>().ok()?)),
        _ => (authority, None),
    };
    if port == Some(0) {
        return None;
    }
    Some((Host::parse(host).ok()?, port.or(default)))
}

/// The same form as that of the egress proxy.
fn response(refusal: &Refusal) -> Vec<u8> {
    let body = format!("{}\n", json!({ "error": refusal.problem() }));
    let (status, phrase) = match refusal.code().http_status() {
        400 => (400, "Bad Request"),
        _ => (403, "Forbidden"),
    };
    let (reason, length) = (refusal.reason(), body.len());
    let head = format!(
        "HTTP/1.1 {status} {phrase}\r\nStockade-Egress-Refused: {reason}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wanted(line: &str) -> Option<String> {
        answer(format!("{line}\r\nHost: x\r\n\r\n").as_bytes()).1.and_then(|wanted| wanted.allow())
    }

    #[test]
    fn the_target_of_each_form_of_request_is_known() {
        for (line, allow) in [
            ("CONNECT registry.npmjs.org:443 HTTP/1.1", "--allow registry.npmjs.org:443"),
            ("CONNECT [2606:2800::1]:443 HTTP/1.1", "--allow [2606:2800::1]:443"),
            ("CONNECT pypi.org HTTP/1.1", "--allow pypi.org"),
            ("GET http://example.com/a?b HTTP/1.1", "--allow example.com:80"),
            ("GET http://example.com:8080 HTTP/1.0", "--allow example.com:8080"),
            ("POST https://example.com/a:b@c HTTP/1.1", "--allow example.com:443"),
            ("GET ftp://user:password@example.com/x HTTP/1.1", "--allow example.com:21"),
            ("GET http://93.184.216.34/ HTTP/1.1", "--allow 93.184.216.34:80"),
        ] {
            assert_eq!(wanted(line).as_deref(), Some(allow), "{line}");
        }
        for line in [
            "",
            "GET",
            "GET / HTTP/1.1",
            "CONNECT",
            "CONNECT :443 HTTP/1.1",
            "CONNECT a.example:0 x",
            "CONNECT a.example.com:99999 x",
            "GET gopher://example.com/ HTTP/1.1",
            "\u{16}\u{3}\u{1}",
            "CONNECT 10.0.0.5:443 HTTP/1.1",
            "CONNECT 169.254.169.254:80 HTTP/1.1",
            "GET http://localhost:8080/ HTTP/1.1",
            "CONNECT a\u{1b}.example:1 HTTP/1.1",
        ] {
            assert_eq!(wanted(line), None, "{line}");
        }
    }

    #[test]
    fn a_refusal_names_the_reason_and_no_password() {
        let (response, _) = answer(b"GET http://me:hunter2@example.com/ HTTP/1.1\r\n\r\n");
        let text = String::from_utf8(response).unwrap();
        assert!(text.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{text}");
        assert!(text.contains("\r\nStockade-Egress-Refused: no-network\r\n"), "{text}");
        assert!(
            text.contains("EGRESS_DENIED") && text.contains("--allow example.com:80"),
            "{text}"
        );
        assert!(!text.contains("hunter2"), "{text}");
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        assert!(answer(b"\x05\x01\x00").0.starts_with(b"HTTP/1.1 400 "));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_shortly(bytes in proptest::collection::vec(any::<u8>(), 0..9000)) {
            prop_assert!(answer(&bytes).0.len() < 4096);
        }
    }
}
