//! What a policy can be learned from: the method and path of each request that is read, each once, and
//! that some bytes are not read. Nothing is reported unless the owner has asked for it.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use stockade_core::network::request_match::canonical_path;
use stockade_core::network::{Name, Requests};
use stockade_egress_control::Outcome;

use crate::first_bytes::body::Body;
use crate::first_bytes::http::Head;
use crate::first_bytes::tls;

/// How many different requests are reported. Of hosts whose requests do not fit, all must be allowed.
const MAX_REQUESTS: usize = 8192;

/// A port of a host, and the method and path of a request to it; none for what is not read.
type Reported = (Name, u16, Option<(String, String)>);

/// What was reported.
#[derive(Debug, Default)]
pub(crate) struct Learning(OnceLock<Mutex<BTreeSet<Reported>>>);

impl Learning {
    /// From now on requests are reported.
    pub(crate) fn start(&self) {
        let _ = self.0.set(Mutex::default());
    }

    /// Whether an outcome is to be reported, and which one.
    pub(crate) fn report(&self, name: &Name, port: u16, outcome: Outcome) -> Option<Outcome> {
        let mut known = self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = if known.len() < MAX_REQUESTS { outcome } else { Outcome::Unread };
        let request = match &outcome {
            Outcome::Requested { method, path } => Some((method.clone(), path.clone())),
            _ => None,
        };
        known.insert((name.clone(), port, request)).then_some(outcome)
    }

    /// Whether requests are reported.
    pub(crate) fn is_on(&self) -> bool {
        self.0.get().is_some()
    }
}

/// A request, if a rule can name it.
pub(crate) fn of_request(head: &Head) -> Outcome {
    let method = head.method.clone();
    let path = match head.target.as_str() {
        "*" if method == "OPTIONS" => "/",
        target => match canonical_path(target) {
            Ok(path) => path,
            Err(_) => return Outcome::Unread,
        },
    };
    let rule = Requests { methods: vec![method.clone()], ..Requests::default() };
    if rule.fault().is_some() || head.overrides_itself() {
        return Outcome::Unread;
    }
    Outcome::Requested { method, path: path.to_owned() }
}

/// The first bytes of a connection that is relayed as it is; nothing if there are none.
pub(crate) fn of_first_bytes(bytes: &[u8], body: &Body) -> Option<Outcome> {
    if bytes.is_empty() {
        return None;
    }
    match Head::parse(bytes) {
        Ok(Some((head, _))) if body.is_request() && !tls::is_handshake(bytes) => {
            Some(of_request(&head))
        }
        _ => Some(Outcome::Unread),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(bytes: &str) -> Outcome {
        let (head, _) = Head::parse(bytes.as_bytes()).unwrap().unwrap();
        of_request(&head)
    }

    #[test]
    fn only_what_a_rule_can_name_is_a_request() {
        let told = requested("GET /a/b?c=d HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(told, Outcome::Requested { method: "GET".into(), path: "/a/b".into() });
        for unread in [
            "GET /a//b HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET /@a%2fb HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "get / HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a.example\r\nX-HTTP-Method-Override: PUT\r\n\r\n",
        ] {
            assert_eq!(requested(unread), Outcome::Unread, "{unread}");
        }
        assert_eq!(of_first_bytes(b"", &Body::Open), None);
        assert_eq!(of_first_bytes(b"SSH-2.0-x\r\n", &Body::Open), Some(Outcome::Unread));
    }

    #[test]
    fn each_request_is_reported_once_and_only_if_asked_for() {
        let name = Name::parse("a.example").unwrap();
        let request = || Outcome::Requested { method: "GET".into(), path: "/".into() };
        let learning = Learning::default();
        assert_eq!(learning.report(&name, 80, request()), None);
        learning.start();
        assert_eq!(learning.report(&name, 80, request()), Some(request()));
        assert_eq!(learning.report(&name, 80, request()), None);
        assert_eq!(learning.report(&name, 81, request()), Some(request()));
    }
}
