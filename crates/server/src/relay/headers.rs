//! Which headers pass between a client and a port inside, in both directions. Below a path of the
//! server, a page from inside can neither set cookies nor act as a page of this origin. Under a host
//! name of its own, it has an origin of its own, without the cookies of the server.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use url::Url;

use crate::auth::{E2B_TOKEN_HEADERS, KEY_HEADERS, TOKEN_HEADERS};
use crate::cookies;
use crate::failure::{Failure, invalid};

/// How a client has addressed a port.
#[derive(Debug, Clone)]
pub(crate) enum Form {
    /// Below this path of the server.
    Path(String),
    /// By a host name of its own.
    Host {
        /// `http` or `https`, as browsers see it.
        scheme: String,
        /// The host name and the port, as the client has sent them.
        authority: String,
    },
}

/// Headers that are about one connection only (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
];
/// Headers of a request that do not enter the sandbox, beside those with keys and tokens.
const REQUEST_ONLY_OUTSIDE: [&str; 4] = ["expect", "forwarded", "via", "proxy-authorization"];
/// More of them, if the port has no origin of its own. The page that caused the request may be a link
/// that opens the port.
const REQUEST_ONLY_OUTSIDE_PATH: [&str; 5] =
    ["authorization", "cookie", "host", "origin", "referer"];
/// The beginning of an API key, in upper and lower case.
const KEY_PREFIX: &str = "e2b_";
/// Headers of a response that would have an effect on other ports or on this server.
const RESPONSE_ONLY_INSIDE: [&str; 7] = [
    "alt-svc",
    "clear-site-data",
    "proxy-status",
    "public-key-pins",
    "set-cookie2",
    "strict-transport-security",
    "via",
];
/// More of them, if the port has no origin of its own: browsers keep them for the whole origin. Reports about
/// it would tell a program inside the links of other ports, and a dictionary would be sent for them.
const RESPONSE_ONLY_INSIDE_PATH: [&str; 14] = [
    "accept-ch",
    "critical-ch",
    "expect-ct",
    "nel",
    "origin-agent-cluster",
    "origin-trial",
    "report-to",
    "reporting-endpoints",
    "sec-session-registration",
    "secure-session-registration",
    "service-worker-allowed",
    "set-cookie",
    "set-login",
    "use-as-dictionary",
];

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    remove_all(headers, &HOP_BY_HOP);
    headers.remove(header::UPGRADE);
}

fn remove_all(headers: &mut HeaderMap, names: &[&str]) {
    for name in names {
        headers.remove(*name);
    }
}

fn remove_with_prefix(headers: &mut HeaderMap, prefixes: &[&str]) {
    let is_named = |name: &&HeaderName| prefixes.iter().any(|it| name.as_str().starts_with(it));
    let names: Vec<HeaderName> = headers.keys().filter(is_named).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// The headers of a request as the sandbox sees them.
pub(super) fn inner_headers(
    headers: &mut HeaderMap,
    form: &Form,
    port: u16,
    upgrades: bool,
) -> Result<(), Failure> {
    remove_hop_by_hop(headers);
    remove_all(headers, &REQUEST_ONLY_OUTSIDE);
    remove_all(headers, &KEY_HEADERS);
    remove_all(headers, &TOKEN_HEADERS);
    remove_all(headers, &E2B_TOKEN_HEADERS);
    remove_with_prefix(
        headers,
        &["x-forwarded-", "open-sandbox-", "opensandbox-", "e2b-sandbox-", "x-real-ip"],
    );
    let value = |text: &str| {
        HeaderValue::try_from(text).map_err(|_| invalid("the host of the request is invalid"))
    };
    match form {
        Form::Path(_) => {
            remove_all(headers, &REQUEST_ONLY_OUTSIDE_PATH);
            remove_with_prefix(headers, &["sec-fetch-"]);
            headers.insert(header::HOST, value(&format!("localhost:{port}"))?);
        }
        Form::Host { scheme, authority } => {
            cookies::remove_own(headers);
            remove_key(headers);
            headers.insert(header::HOST, value(authority)?);
            headers.insert("x-forwarded-host", value(authority)?);
            headers.insert("x-forwarded-proto", value(scheme)?);
        }
    }
    if upgrades {
        add_upgrade(headers);
    }
    Ok(())
}

/// Removes a key of the server. Another one is that of the application: under its own name, the server reads none here.
fn remove_key(headers: &mut HeaderMap) {
    let has_key = |value: &HeaderValue| match value.to_str() {
        Ok(text) => text.to_ascii_lowercase().contains(KEY_PREFIX),
        Err(_) => true,
    };
    if headers.get_all(header::AUTHORIZATION).iter().any(has_key) {
        headers.remove(header::AUTHORIZATION);
    }
}

/// Replaces the host of a request.
pub(super) fn mask_host(headers: &mut HeaderMap, masked: &str, port: u16) -> Result<(), Failure> {
    headers.insert(header::HOST, masked_host(masked, port)?);
    Ok(())
}

/// The host that a mask means at a port.
pub(crate) fn masked_host(mask: &str, port: u16) -> Result<HeaderValue, Failure> {
    let text = mask.replace("${PORT}", &port.to_string());
    let is_host = text.parse::<axum::http::uri::Authority>().is_ok_and(|authority| {
        let is_whole = authority.as_str() == authority.host();
        (is_whole || authority.port_u16().is_some()) && !text.contains('@')
    });
    let value = HeaderValue::try_from(text).ok().filter(|_| is_host);
    value.ok_or_else(|| invalid(format!("{mask:?} is not a host")))
}

fn add_upgrade(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// The headers of a response as the client sees them.
pub(super) fn outer_headers(headers: &mut HeaderMap, form: &Form, port: u16, is_upgraded: bool) {
    remove_hop_by_hop(headers);
    remove_all(headers, &RESPONSE_ONLY_INSIDE);
    let prefix = match form {
        Form::Path(prefix) => {
            remove_all(headers, &RESPONSE_ONLY_INSIDE_PATH);
            remove_with_prefix(headers, &["access-control-"]);
            prefix.as_str()
        }
        Form::Host { .. } => {
            cookies::confine(headers);
            ""
        }
    };
    for name in [header::LOCATION, header::CONTENT_LOCATION] {
        let old = headers.get(&name).and_then(|value| value.to_str().ok());
        if let Some(new) = old.and_then(|location| outer_location(location, prefix, port))
            && let Ok(new) = HeaderValue::try_from(new)
        {
            headers.insert(name, new);
        }
    }
    if is_upgraded {
        add_upgrade(headers);
        return;
    }
    match form {
        Form::Path(_) => {
            // A second policy only adds to what the first one forbids.
            headers.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
            headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        }
        Form::Host { .. } => {
            // Pages of other sandboxes share neither a process nor a domain with this one.
            headers.insert("origin-agent-cluster", HeaderValue::from_static("?1"));
            if !headers.contains_key("cross-origin-resource-policy") {
                let policy = HeaderValue::from_static("same-origin");
                headers.insert("cross-origin-resource-policy", policy);
            }
        }
    }
}

/// The location for the client, if it is one of the port itself: as an address inside it would be
/// of no use outside, and reveal where the port is.
fn outer_location(location: &str, prefix: &str, port: u16) -> Option<String> {
    if location.starts_with('/') && !location.starts_with("//") && !location.starts_with("/\\") {
        return (!prefix.is_empty()).then(|| format!("{prefix}{location}"));
    }
    let url = Url::parse(location).ok()?;
    let is_inside = matches!(url.scheme(), "http" | "https")
        && matches!(url.host_str()?, "localhost" | "127.0.0.1" | "[::1]" | "0.0.0.0")
        && url.port_or_known_default() == Some(port);
    let mut path = is_inside.then(|| format!("{prefix}{}", url.path()))?;
    if let Some(query) = url.query() {
        path.push_str(&format!("?{query}"));
    }
    if let Some(fragment) = url.fragment() {
        path.push_str(&format!("#{fragment}"));
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn path() -> Form {
        Form::Path("/v1/sandboxes/box/proxy/80".to_owned())
    }

    fn host() -> Form {
        Form::Host { scheme: "http".to_owned(), authority: "80-box.localhost:8080".to_owned() }
    }

    const REQUEST: [(&str, &str); 17] = [
        ("authorization", "Bearer k"),
        ("cookie", "a=1; __Host-stockade-session=s; b=2"),
        ("x-api-key", "k"),
        ("open-sandbox-api-key", "k"),
        ("open-sandbox-client-ip", "10.0.0.1"),
        ("opensandbox-secure-access", "t"),
        ("x-execd-access-token", "t"),
        ("x-forwarded-for", "10.0.0.1"),
        ("connection", "close, x-hop"),
        ("x-hop", "1"),
        ("te", "trailers"),
        ("upgrade", "h2c"),
        ("host", "box.example"),
        ("accept", "text/html"),
        ("referer", "http://localhost/v1/sandboxes/box/proxy/80~1~k~s~x/"),
        ("expect", "100-continue"),
        ("proxy-authorization", "Basic k"),
    ];

    #[test]
    fn nothing_that_authenticates_enters() {
        let mut headers = map(&REQUEST);
        inner_headers(&mut headers, &path(), 80, false).unwrap();
        assert_eq!(headers, map(&[("accept", "text/html"), ("host", "localhost:80")]));
    }

    #[test]
    fn under_its_own_name_an_application_has_its_own_cookies() {
        let mut headers = map(&REQUEST);
        headers.insert("origin", HeaderValue::from_static("http://80-box.localhost:8080"));
        inner_headers(&mut headers, &host(), 80, true).unwrap();
        let expected = map(&[
            ("authorization", "Bearer k"),
            ("cookie", "a=1; b=2"),
            ("accept", "text/html"),
            ("referer", "http://localhost/v1/sandboxes/box/proxy/80~1~k~s~x/"),
            ("origin", "http://80-box.localhost:8080"),
            ("host", "80-box.localhost:8080"),
            ("x-forwarded-host", "80-box.localhost:8080"),
            ("x-forwarded-proto", "http"),
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
        ]);
        assert_eq!(headers, expected);
    }

    #[test]
    fn under_its_own_name_an_application_has_its_own_keys_and_not_those_of_the_server() {
        let entered = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("authorization", HeaderValue::from_static(value));
            }
            inner_headers(&mut headers, &host(), 80, false).unwrap();
            headers.get_all("authorization").iter().count()
        };
        assert_eq!(entered(&["Bearer a.b.c"]), 1);
        assert_eq!(entered(&["Basic dXNlcjpwYXNz"]), 1);
        for key in ["Bearer e2b_0123456789abcdef", "bearer  E2B_0", "e2b_0"] {
            assert_eq!(entered(&[key]), 0, "{key}");
        }
        assert_eq!(entered(&["Bearer a", "Bearer e2b_0"]), 0);
    }

    #[test]
    fn a_mask_replaces_the_host_alone() {
        let mut headers = map(&[("host", "80-box.localhost:8080"), ("x-forwarded-host", "80-box")]);
        mask_host(&mut headers, "a.example:${PORT}", 80).unwrap();
        assert_eq!(headers, map(&[("host", "a.example:80"), ("x-forwarded-host", "80-box")]));
        assert!(mask_host(&mut headers, "a/b", 80).is_err());
    }

    #[test]
    fn a_page_from_inside_cannot_act_on_this_origin() {
        let mut headers = map(&[
            ("set-cookie", "a=1"),
            ("access-control-allow-origin", "*"),
            ("content-security-policy", "default-src *"),
            ("location", "/next?x"),
            ("transfer-encoding", "chunked"),
            ("via", "1.1 10.0.0.1"),
            ("content-type", "text/html"),
        ]);
        outer_headers(&mut headers, &path(), 80, false);
        let expected = map(&[
            ("content-security-policy", "default-src *"),
            ("content-security-policy", "sandbox"),
            ("location", "/v1/sandboxes/box/proxy/80/next?x"),
            ("content-type", "text/html"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
        ]);
        assert_eq!(headers, expected);
    }

    #[test]
    fn nothing_from_inside_is_kept_for_the_whole_origin_of_the_server() {
        let policy = "{\"report_to\":\"x\",\"max_age\":9,\"include_subdomains\":true}";
        let all = [
            ("nel", policy),
            ("report-to", "{\"group\":\"x\",\"endpoints\":[{\"url\":\"https://evil.example\"}]}"),
            ("reporting-endpoints", "x=\"https://evil.example\""),
            ("use-as-dictionary", "match=\"/*\""),
            ("accept-ch", "sec-ch-ua-model"),
            ("origin-agent-cluster", "?0"),
            ("set-login", "logged-in"),
        ];
        let mut headers = map(&all);
        outer_headers(&mut headers, &path(), 80, false);
        for (name, _) in all {
            assert!(!headers.contains_key(name), "{name}");
        }
        // Under a name of its own, an application has the reports about itself.
        let mut headers = map(&all);
        outer_headers(&mut headers, &host(), 80, false);
        assert!(headers.contains_key("nel") && headers.contains_key("report-to"));
        assert_eq!(headers["origin-agent-cluster"], "?1");
    }

    #[test]
    fn cookies_of_an_application_are_for_its_own_name() {
        let mut headers = map(&[
            ("set-cookie", "a=1; Domain=localhost; Path=/"),
            ("set-cookie", "__host-Stockade-session=x; Path=/; Secure"),
            ("location", "http://127.0.0.1:80/next"),
            ("clear-site-data", "\"cookies\""),
        ]);
        outer_headers(&mut headers, &host(), 80, false);
        let expected = map(&[
            ("set-cookie", "a=1; Path=/"),
            ("location", "/next"),
            ("origin-agent-cluster", "?1"),
            ("cross-origin-resource-policy", "same-origin"),
        ]);
        assert_eq!(headers, expected);
    }

    #[test]
    fn locations_inside_become_locations_outside() {
        let outer = |location: &str| outer_location(location, "/p", 80);
        assert_eq!(outer("/a?b").as_deref(), Some("/p/a?b"));
        assert_eq!(outer("http://localhost/a?b#c").as_deref(), Some("/p/a?b#c"));
        assert_eq!(outer("http://127.0.0.1:80").as_deref(), Some("/p/"));
        for other in ["//evil.example/", "http://localhost:81/", "https://a.example/", "a", "/\\a"]
        {
            assert_eq!(outer(other), None, "{other}");
        }
        assert_eq!(outer_location("/a", "", 80), None);
    }
}
