//! The challenge of a response with the status 401 (RFC 9110, section 11), and what a token service
//! answers.

use serde::Deserialize;
use zeroize::Zeroizing;

/// How a host wants to be authenticated to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// With a user name and a password in each request.
    Basic,
    /// With a token of this service.
    Bearer { realm: String, service: Option<String> },
}

impl Challenge {
    /// The strongest challenge of these header values that is understood.
    pub(crate) fn parse<'a>(values: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut found = None;
        for value in values {
            for (scheme, parameters) in challenges(value) {
                let parameter = |name: &str| {
                    let mut all = parameters.iter();
                    all.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, v)| v.clone())
                };
                if scheme.eq_ignore_ascii_case("bearer") {
                    let Some(realm) = parameter("realm") else { continue };
                    return Some(Self::Bearer { realm, service: parameter("service") });
                }
                if scheme.eq_ignore_ascii_case("basic") {
                    found = Some(Self::Basic);
                }
            }
        }
        found
    }
}

type Parameters = Vec<(String, String)>;

/// The challenges of one header: schemes with their parameters.
fn challenges(value: &str) -> Vec<(String, Parameters)> {
    let mut all: Vec<(String, Parameters)> = Vec::new();
    let mut rest = value.trim_start_matches([' ', ',']);
    while !rest.is_empty() {
        let end = rest.find(['=', ' ', ',']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = match after.strip_prefix('=') {
            Some(text) => {
                let (value, after) = quoted(text);
                if let Some((_, parameters)) = all.last_mut() {
                    parameters.push((word.to_owned(), value));
                }
                after
            }
            None => {
                all.push((word.to_owned(), Vec::new()));
                after
            }
        };
        rest = rest.trim_start_matches([' ', ',', '=']);
    }
    all
}

/// The value at the start of a text, which may be quoted, and the rest.
fn quoted(text: &str) -> (String, &str) {
    let Some(inner) = text.strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut letters = inner.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &inner[at + 1..]),
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            letter => value.push(letter),
        }
    }
    (value, "")
}

/// The answer of a token service.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<Zeroizing<String>>,
    access_token: Option<Zeroizing<String>>,
}

/// The token in the answer of a token service; `None` if there is none that a header can contain.
pub(crate) fn token(answer: &[u8]) -> Option<Zeroizing<String>> {
    let TokenAnswer { token, access_token } = serde_json::from_slice(answer).ok()?;
    let token = token.or(access_token)?;
    let is_sendable = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_sendable.then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>) -> Option<Challenge> {
        let service = service.map(str::to_owned);
        Some(Challenge::Bearer { realm: realm.to_owned(), service })
    }

    #[test]
    fn challenges_are_understood_in_every_form() {
        for (text, expected) in [
            (
                r#"Bearer realm="https://a/t",service="s, x",scope="p""#,
                bearer("https://a/t", Some("s, x")),
            ),
            (r#"bearer realm=https://a/t"#, bearer("https://a/t", None)),
            (r#"Bearer realm="a\"b" , service=s"#, bearer("a\"b", Some("s"))),
            (r#"Basic realm="x", Bearer realm="y""#, bearer("y", None)),
            (r#"Basic realm="x""#, Some(Challenge::Basic)),
            ("Basic", Some(Challenge::Basic)),
            ("Bearer", None),
            ("Negotiate abc==", None),
            (r#"Bearer realm=""#, bearer("", None)),
            ("", None),
            ("=,=,\"", None),
        ] {
            assert_eq!(Challenge::parse([text].into_iter()), expected, "{text}");
        }
    }

    #[test]
    fn only_a_token_that_a_header_can_contain_is_accepted() {
        let read = |text: &str| token(text.as_bytes()).map(|token| token.to_string());
        assert_eq!(read(r#"{"token":"a","access_token":"b"}"#).as_deref(), Some("a"));
        assert_eq!(read(r#"{"access_token":"b","expires_in":60}"#).as_deref(), Some("b"));
        for bad in ["", "[]", "{}", r#"{"token":""}"#, r#"{"token":"a\r\nX: y"}"#, r#"{"token":1}"#]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
