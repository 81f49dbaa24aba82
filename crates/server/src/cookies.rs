//! The server's own cookies on the host names of ports, and what an application inside may do with
//! its own. The name of ours begins with `__Host-`: browsers accept such a cookie only from this host
//! name itself.

use axum::http::{HeaderMap, HeaderValue, header};

/// The cookie with the session.
pub(crate) const SESSION: &str = "__Host-stockade-session";
/// The cookie with what a login has to return to.
pub(crate) const LOGIN: &str = "__Host-stockade-login";
/// What the names of our cookies begin with. No application may use such a name.
const OWN: &str = "__host-stockade-";

/// The cookies of a request: names and values, in their order.
fn pairs(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::COOKIE).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(';')).map(str::trim).filter(|pair| !pair.is_empty())
}

/// The value of one of our cookies. Of several ones, none can be trusted.
pub(crate) fn own<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut found = pairs(headers).filter_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key.trim() == name).then(|| value.trim())
    });
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

fn is_own(pair: &str) -> bool {
    // Browsers send a cookie without a name as its value alone.
    let text = pair.trim_start_matches(['=', ' ', '\t']);
    text.get(..OWN.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN))
}

/// Removes our cookies from a request. Those of the application stay.
pub(crate) fn remove_own(headers: &mut HeaderMap) {
    let kept: Vec<_> = pairs(headers).filter(|pair| !is_own(pair)).collect();
    let kept = kept.join("; ");
    headers.remove(header::COOKIE);
    if !kept.is_empty()
        && let Ok(value) = HeaderValue::try_from(kept)
    {
        headers.insert(header::COOKIE, value);
    }
}

/// Makes the cookies that an application sets valid for its own host name only, and removes those with
/// our names.
pub(crate) fn confine(headers: &mut HeaderMap) {
    let old: Vec<_> = headers.get_all(header::SET_COOKIE).iter().cloned().collect();
    headers.remove(header::SET_COOKIE);
    for value in old {
        // What cannot be read could have any meaning for a browser.
        let Ok(text) = value.to_str() else { continue };
        if is_own(text.trim_start()) {
            continue;
        }
        let is_domain = |part: &&str| {
            let name = part.split('=').next().unwrap_or_default();
            name.trim().eq_ignore_ascii_case("domain")
        };
        let mut parts = text.split(';');
        let pair = parts.next().unwrap_or_default();
        let rest = parts.filter(|part| !is_domain(part));
        let confined: Vec<_> = std::iter::once(pair).chain(rest).collect();
        if let Ok(value) = HeaderValue::try_from(confined.join(";")) {
            headers.append(header::SET_COOKIE, value);
        }
    }
}

/// A cookie of ours that lasts some seconds.
pub(crate) fn set(name: &str, value: &str, seconds: u64) -> String {
    format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age={seconds}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookies(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::COOKIE, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn ours_are_found_and_removed() {
        let mut headers = cookies(&["a=1; __Host-stockade-session=t=t; b=2"]);
        assert_eq!(own(&headers, SESSION), Some("t=t"));
        assert_eq!(own(&headers, LOGIN), None);
        remove_own(&mut headers);
        assert_eq!(headers, cookies(&["a=1; b=2"]));
        let mut headers = cookies(&["__Host-stockade-session=1", "__Host-stockade-session=2"]);
        assert_eq!(own(&headers, SESSION), None);
        remove_own(&mut headers);
        assert_eq!(headers, cookies(&[]));
        let mut headers = cookies(&["=__HOST-stockade-login=1; __Host-a=3"]);
        remove_own(&mut headers);
        assert_eq!(headers, cookies(&["__Host-a=3"]));
    }

    #[test]
    fn cookies_of_applications_have_no_domain() {
        let confined = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.append(header::SET_COOKIE, text.parse().unwrap());
            confine(&mut headers);
            headers.get(header::SET_COOKIE).map(|it| it.to_str().unwrap().to_owned())
        };
        for (set, expected) in [
            ("a=1", Some("a=1")),
            ("a=1; Domain=example.com; Secure", Some("a=1; Secure")),
            ("a=1;DOMAIN = .localhost;path=/", Some("a=1;path=/")),
            ("a=1; domain", Some("a=1")),
            ("domain=x; Path=/", Some("domain=x; Path=/")),
            ("__Host-stockade-session=x; Path=/; Secure", None),
            (" __host-STOCKADE-login=x", None),
            ("=__Host-stockade-session=x", None),
        ] {
            assert_eq!(confined(set).as_deref(), expected, "{set}");
        }
    }
}
