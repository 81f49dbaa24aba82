//! Finds placeholders of secrets in what leaves for a host that the secrets are not bound to: a
//! program's mistake, or an attempt to obtain a value. Content that a program has encrypted or
//! encoded, but for basic authentication and percent signs in a target, is not recognized.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use stockade_core::network::{Host, Refusal};
use zeroize::Zeroizing;

use crate::first_bytes::http;

/// A placeholder that must not occur.
#[derive(Debug, Clone)]
pub(crate) struct Placeholder {
    /// The name of its secret.
    pub(crate) secret: String,
    pub(crate) text: String,
    /// Whether traffic that contains it is refused.
    pub(crate) strict: bool,
}

/// The search in one connection.
pub(crate) struct Search<'a> {
    /// Those that were not found yet.
    placeholders: Vec<Placeholder>,
    host: Host,
    /// The last bytes, in which a placeholder may begin.
    tail: Zeroizing<Vec<u8>>,
    report: Box<dyn Fn(&Placeholder) + Send + Sync + 'a>,
}

impl<'a> Search<'a> {
    /// `report` receives each placeholder that is found, once.
    pub(crate) fn new(
        placeholders: Vec<Placeholder>,
        host: Host,
        report: impl Fn(&Placeholder) + Send + Sync + 'a,
    ) -> Self {
        Self { placeholders, host, tail: Zeroizing::default(), report: Box::new(report) }
    }

    /// Searches the first bytes: the head of a request also in what programs encode.
    ///
    /// # Errors
    /// As [`Search::bytes`].
    pub(crate) fn first(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        if self.placeholders.is_empty() {
            return Ok(());
        }
        for text in decoded(bytes) {
            self.search(&text)?;
        }
        self.bytes(bytes)
    }

    /// Searches the next bytes, which follow those before.
    ///
    /// # Errors
    /// [`Refusal::SecretMisdirected`] for a placeholder that must not be sent: the bytes complete
    /// it.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let Some(longest) = self.placeholders.iter().map(|own| own.text.len()).max() else {
            return Ok(());
        };
        let mut text = std::mem::take(&mut self.tail);
        text.extend_from_slice(bytes);
        self.search(&text)?;
        let start = text.len().saturating_sub(longest - 1);
        self.tail = Zeroizing::new(text.get(start..).unwrap_or_default().to_vec());
        Ok(())
    }

    /// Ends the search, because what follows is encrypted.
    pub(crate) fn end(&mut self) {
        self.placeholders.clear();
    }

    fn search(&mut self, text: &[u8]) -> Result<(), Refusal> {
        let mut refused = None;
        let (host, report) = (&self.host, &self.report);
        self.placeholders.retain(|own| {
            if !http::contains(text, own.text.as_bytes()) {
                return true;
            }
            report(own);
            if own.strict {
                let secret = own.secret.clone();
                refused = Some(Refusal::SecretMisdirected { secret, host: host.clone() });
            }
            false
        });
        refused.map_or(Ok(()), Err)
    }
}

/// The parts of the head of a request that programs encode, decoded: the target, and the user names
/// and passwords of basic authentication.
fn decoded(bytes: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let Some(first) = lines.next() else { return Vec::new() };
    if !http::contains(first, b" HTTP/1.") {
        return Vec::new();
    }
    let mut decoded = Vec::new();
    if first.contains(&b'%') {
        decoded.push(Zeroizing::new(without_percent(first)));
    }
    for line in lines.take_while(|line| !line.is_empty()) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let value = line.get(colon + 1..).unwrap_or_default().trim_ascii();
        let Some((scheme, encoded)) = value.split_at_checked(http::BASIC.len()) else { continue };
        if scheme.eq_ignore_ascii_case(http::BASIC) {
            let encoded = encoded.trim_ascii();
            let text = STANDARD.decode(encoded).or_else(|_| STANDARD_NO_PAD.decode(encoded));
            decoded.extend(text.ok().map(Zeroizing::new));
        }
    }
    decoded
}

fn without_percent(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, others)) = rest.split_first() {
        let digit = |at: usize| others.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        if *first == b'%'
            && let (Some(high), Some(low)) = (digit(0), digit(1))
            && let Ok(byte) = u8::try_from(high * 16 + low)
        {
            plain.push(byte);
            rest = others.get(2..).unwrap_or_default();
        } else {
            plain.push(*first);
            rest = others;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const TEXT: &str = "stockade-0123456789abcdef";

    /// The secrets that are found in these parts, and whether one of them is refused.
    fn found(parts: &[&str], strict: bool) -> (Vec<String>, bool) {
        let found = Mutex::new(Vec::new());
        let own = |secret: &str, text: &str| Placeholder {
            secret: secret.to_owned(),
            text: text.to_owned(),
            strict,
        };
        let placeholders = vec![own("KEY", TEXT), own("OTHER", "stockade-fedcba98765432100")];
        let host = Host::parse("third.example").unwrap();
        let mut search = Search::new(placeholders, host, |own| {
            found.lock().unwrap().push(own.secret.clone());
        });
        let mut parts = parts.iter();
        let mut refused = search.first(parts.next().unwrap().as_bytes()).is_err();
        refused |= parts.any(|part| search.bytes(part.as_bytes()).is_err());
        drop(search);
        (found.into_inner().unwrap(), refused)
    }

    #[test]
    fn a_placeholder_is_found_once_wherever_it_is_cut() {
        let request = format!("POST / HTTP/1.1\r\nX-Key: a{TEXT}b\r\n\r\n{TEXT}");
        for end in 0..request.len() {
            let parts = [&request[..end], &request[end..]];
            assert_eq!(found(&parts, false), (vec!["KEY".to_owned()], false), "{end}");
            assert_eq!(found(&parts, true), (vec!["KEY".to_owned()], true), "{end}");
        }
        let single: Vec<String> = request.chars().map(String::from).collect();
        let single: Vec<&str> = single.iter().map(String::as_str).collect();
        assert_eq!(found(&single, false).0, ["KEY"]);
        assert_eq!(found(&["stockade-0123456789abcdeF"], true), (vec![], false));
    }

    #[test]
    fn what_programs_encode_is_read() {
        let basic = STANDARD.encode(format!("user:{TEXT}"));
        let bare = basic.trim_end_matches('=');
        for head in [
            format!("GET / HTTP/1.1\r\nAuthorization: Basic {basic}\r\n\r\n"),
            format!("GET / HTTP/1.1\r\nproxy-authorization:bAsic  {bare}\r\n\r\n"),
            format!("GET /?key={}&x=%zz HTTP/1.1\r\n\r\n", TEXT.replace('-', "%2d")),
        ] {
            assert_eq!(found(&[&head], false).0, ["KEY"], "{head}");
        }
    }
}
