//! Every route of the OpenAPI document as every principal. What is expected follows from the document, so
//! a new route is tried, and one without authentication fails.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Response, Server, head, key};
use crate::harness::World;

/// The document, which a test of the server compares with the code.
const DOCUMENT: &str = include_str!("../../../docs/openapi.json");
/// The routes that need no authentication.
const OPEN: [&str; 6] = [
    "GET /auth/authorize",
    "GET /health",
    "GET /playground",
    "GET /playground/app.js",
    "GET /run",
    "GET /version",
];
/// The one of them that there is only with a provider of logins.
const LOGIN: &str = "GET /auth/authorize";
/// The headers with the access token for a port.
const TOKENS: [&str; 3] =
    ["X-EXECD-ACCESS-TOKEN", "OPENSANDBOX-EGRESS-AUTH", "OpenSandbox-Secure-Access"];
/// Those of clients of E2B.
pub(super) const E2B_TOKENS: [&str; 2] = ["X-Access-Token", "E2B-Traffic-Access-Token"];
/// How long a key may take to expire.
const PATIENCE: Duration = Duration::from_secs(60);

/// A route of the document.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: String,
    pub(super) path: String,
    /// The name of its security scheme; none for a route that is open.
    pub(super) security: Option<String>,
    query: String,
    pub(super) body: Value,
    is_unavailable: bool,
    /// Whether it is under the host name of a port.
    is_under_a_port: bool,
}

impl Route {
    /// The request line about a sandbox.
    pub(super) fn line(&self, id: &str) -> String {
        let mut path = self.path.clone();
        for (name, value) in [("{port}", "80"), ("{id}", id), ("{path}", "x"), ("{file}", "app.js")]
        {
            path = path.replace(name, value);
        }
        while let Some((before, rest)) = path.split_once('{') {
            let (_, after) = rest.split_once('}').unwrap();
            path = format!("{before}x{after}");
        }
        format!("{} {path}{}", self.method, self.query)
    }

    /// The port that it is on, and whether its sandbox is named in its path.
    fn port(&self) -> Option<u16> {
        let (_, rest) = self.path.split_once("/proxy/")?;
        let port = rest.split('/').next().unwrap();
        Some(if port == "{port}" { 80 } else { port.parse().unwrap() })
    }

    fn is_about_a_sandbox(&self) -> bool {
        self.path.contains("/sandboxes/{id}")
    }
}

pub(super) fn routes() -> Vec<Route> {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let security = operation["security"].as_array();
            let security = security.unwrap_or_else(|| panic!("{method} {path} has no security"));
            let security =
                security.first().map(|one| one.as_object().unwrap().keys().next().unwrap().clone());
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let required: Vec<_> = parameters
                .iter()
                .filter(|one| one["in"] == "query" && one["required"] == true)
                .map(|one| format!("{}=/tmp/absent", one["name"].as_str().unwrap()))
                .collect();
            let query = if required.is_empty() {
                String::new()
            } else {
                format!("?{}", required.join("&"))
            };
            routes.push(Route {
                method: method.to_uppercase(),
                path: path.clone(),
                security,
                query,
                body: operation["requestBody"]["content"]["application/json"]["example"].clone(),
                is_unavailable: operation["responses"]["501"].is_object(),
                is_under_a_port: operation["servers"].is_array(),
            });
        }
    }
    routes
}

/// The principals of a test.
struct Principals {
    mine: String,
    other: String,
    admin: String,
    wrong: String,
    revoked: String,
    expired: String,
}

fn every_route_admits_the_principals_of_the_document(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let (other, _) = key(world, &["--owner", "other"]);
    let (admin, _) = key(world, &["--owner", "me", "--admin"]);
    let (revoked, revoked_id) = key(world, &["--owner", "me"]);
    let (expired, _) = key(world, &["--owner", "me", "--expires", "2s"]);
    let id = server.create(&mine);
    let elsewhere = server.create(&mine);
    let dead = server.create(&mine);
    let ports = [44772_u16, 18080, 80];
    let tokens = |key: &str, id: &str| ports.map(|port| server.token(key, id, port));
    let (of_revoked, of_other, of_dead) =
        (tokens(&revoked, &id), tokens(&mine, &elsewhere), tokens(&mine, &dead));
    let of_another_port = server.token(&mine, &id, 81);
    let own_tokens = tokens(&mine, &id);
    world.stockade(&["keys", "revoke", &revoked_id]).finish().succeeds();
    let gone = server.request(
        &format!("DELETE /v1/sandboxes/{dead}"),
        &[&format!("x-api-key: {mine}")],
        b"",
    );
    assert_eq!(gone.status, 204, "{}", gone.text());
    let since = Instant::now();
    let expiring = format!("x-api-key: {expired}");
    while server.request("GET /v1/sandboxes", &[&expiring], b"").status != 401 {
        assert!(since.elapsed() < PATIENCE, "the key does not expire");
        std::thread::sleep(Duration::from_millis(50));
    }
    let wrong = format!("e2b_{}", "0".repeat(40));
    let principals = Principals { mine, other, admin, wrong, revoked, expired };

    let routes = routes();
    let open: Vec<_> = routes.iter().filter(|route| route.security.is_none()).collect();
    let lines: Vec<_> = open.iter().map(|route| route.line(&id)).collect();
    assert_eq!(lines, OPEN, "a route without authentication");
    for line in OPEN {
        let expected = if line == LOGIN { 404 } else { 200 };
        assert_eq!(server.request(line, &[], b"").status, expected, "{line}");
    }
    for route in &routes {
        match route.security.as_deref() {
            None => {}
            Some("session") => {
                sessions_are_required(&server, route, &id, &principals, &of_other[2]);
            }
            Some("code") => codes_are_required(&server, route, &id, &principals),
            Some("apiKey" | "adminKey") => {
                let stranger = own_tokens[0].as_str();
                keys_are_required(&server, route, &id, &principals, stranger);
            }
            // `e2b_access` tries these.
            Some(header) if E2B_TOKENS.contains(&header) => {}
            // `e2b_volumes` tries these.
            Some("volumeToken") => {}
            Some(header) => {
                assert!(TOKENS.contains(&header), "{header}");
                let place = ports.iter().position(|port| Some(*port) == route.port()).unwrap();
                let refused = [
                    value(&of_revoked[place]),
                    value(&of_other[place]),
                    value(&of_another_port),
                    principals.mine.clone(),
                    format!("local.{}", "0".repeat(64)),
                    String::new(),
                ];
                tokens_are_required(&server, route, &id, header, &refused, &principals);
                let of_dead = format!("{header}: {}", value(&of_dead[place]));
                let closed = server.json(&route.line(&dead), &[&of_dead], &route.body);
                assert!(matches!(closed.status, 401 | 404), "{route:?}: {}", closed.text());
            }
        }
    }
    // Nothing has changed for the owner.
    let key = format!("x-api-key: {}", principals.mine);
    let found = server.request(&format!("GET /v1/sandboxes/{id}"), &[&key], b"");
    assert_eq!(found.value()["status"]["state"], "Running", "{}", found.text());
    for (token, line) in own_tokens.iter().zip(["44772/ping", "18080/policy"]) {
        let line = format!("GET /v1/sandboxes/{id}/proxy/{line}");
        assert_eq!(server.request(&line, &[token], b"").status, 200, "{line}");
    }
}

/// The value of a header.
fn value(header: &str) -> String {
    header.split_once(": ").unwrap().1.to_owned()
}

#[track_caller]
pub(super) fn assert_unauthenticated(response: &Response, route: &Route, who: &str) {
    assert_eq!(response.status, 401, "{route:?} as {who}: {}", response.text());
    assert!(response.head.contains("www-authenticate: bearer"), "{}", response.head);
    let problem = response.value();
    // Stockade's own dialect has it one level deeper.
    let problem = if problem["error"].is_object() { &problem["error"] } else { &problem };
    // That of E2B has another name for it.
    let code = if problem["error_code"].is_null() { "code" } else { "error_code" };
    assert_eq!(problem[code], "UNAUTHENTICATED", "{route:?}");
}

/// A request under the host name of a port.
fn ask_port(server: &Server, route: &Route, id: &str, headers: &[&str]) -> Response {
    let host = format!("80-{id}.localhost:{}", server.port);
    server.raw(&head(&route.line(id), &host, headers, b""), b"")
}

/// Neither a key nor the session or the token of another port opens a port.
fn sessions_are_required(
    server: &Server,
    route: &Route,
    id: &str,
    principals: &Principals,
    token: &str,
) {
    assert!(route.is_under_a_port, "{route:?}");
    let refused = [
        ("no session", vec![]),
        ("a wrong session", vec!["cookie: __Host-stockade-session=x".to_owned()]),
        ("an API key", vec![format!("x-api-key: {}", principals.mine)]),
        (
            "a key as a session",
            vec![format!("cookie: __Host-stockade-session={}", principals.mine)],
        ),
        ("the token of another sandbox", vec![token.to_owned()]),
    ];
    for (who, headers) in &refused {
        let headers: Vec<_> = headers.iter().map(String::as_str).collect();
        assert_unauthenticated(&ask_port(server, route, id, &headers), route, who);
    }
}

/// Nothing but a code gives a session.
fn codes_are_required(server: &Server, route: &Route, id: &str, principals: &Principals) {
    let key = format!("x-api-key: {}", principals.mine);
    for headers in [vec![], vec![key.as_str()], vec!["cookie: __Host-stockade-login=a.b.Lw"]] {
        let answer = match route.is_under_a_port {
            true => ask_port(server, route, id, &headers),
            false => server.request(&route.line(id), &headers, b""),
        };
        assert!((400..500).contains(&answer.status), "{route:?}: {}", answer.text());
        assert!(!answer.head.contains("set-cookie"), "{}", answer.head);
    }
}

fn keys_are_required(
    server: &Server,
    route: &Route,
    id: &str,
    principals: &Principals,
    token: &str,
) {
    let Principals { mine, other, admin, wrong, revoked, expired } = principals;
    let line = route.line(id);
    let refused = [
        ("no key", vec![]),
        ("an empty key", vec!["x-api-key: ".to_owned()]),
        ("a wrong key", vec![format!("open-sandbox-api-key: {wrong}")]),
        ("a revoked key", vec![format!("x-api-key: {revoked}")]),
        ("an expired key", vec![format!("authorization: Bearer {expired}")]),
        ("a key of another scheme", vec![format!("authorization: Basic {mine}")]),
        ("two keys", vec![format!("x-api-key: {mine}"), format!("open-sandbox-api-key: {other}")]),
        ("a cookie", vec![format!("cookie: x-api-key={mine}")]),
        ("an access token", vec![token.to_owned()]),
        ("an access token as a key", vec![format!("x-api-key: {}", value(token))]),
    ];
    for (who, headers) in &refused {
        let headers: Vec<_> = headers.iter().map(String::as_str).collect();
        assert_unauthenticated(&server.json(&line, &headers, &route.body), route, who);
    }
    let as_other = [format!("x-api-key: {other}")];
    let as_other: Vec<_> = as_other.iter().map(String::as_str).collect();
    if route.security.as_deref() == Some("adminKey") {
        let forbidden = server.json(&line, &as_other, &route.body);
        assert_eq!(forbidden.status, 403, "{route:?}: {}", forbidden.text());
        let admin = format!("x-api-key: {admin}");
        assert_eq!(server.json(&line, &[&admin], &route.body).status, 200, "{route:?}");
    } else if route.is_unavailable {
        assert_eq!(server.json(&line, &as_other, &route.body).status, 501, "{route:?}");
    } else if route.is_about_a_sandbox() {
        // The same response as for a sandbox that does not exist.
        let hidden = server.json(&line, &as_other, &route.body);
        let absent = server.json(&route.line("absent"), &as_other, &route.body);
        assert_eq!((hidden.status, absent.status), (404, 404), "{route:?}: {}", hidden.text());
        assert_eq!(hidden.text().replace(id, "absent"), absent.text(), "{route:?}");
    }
}

fn tokens_are_required(
    server: &Server,
    route: &Route,
    id: &str,
    header: &str,
    refused: &[String],
    principals: &Principals,
) {
    let line = route.line(id);
    let key = format!("x-api-key: {}", principals.mine);
    // Another program on the port could see a WebSocket before any other request.
    let upgrade = [
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    let is_get = route.method == "GET";
    let attempt = |headers: &[&str], who: &str| {
        assert_unauthenticated(&server.json(&line, headers, &route.body), route, who);
        if is_get {
            let all: Vec<_> = headers.iter().copied().chain(upgrade).collect();
            assert_unauthenticated(&server.json(&line, &all, &route.body), route, who);
        }
    };
    attempt(&[], "no token");
    attempt(&[&key], "an API key");
    for value in refused {
        attempt(&[&format!("{header}: {value}")], &format!("the token {value}"));
        // Also with the key of the owner.
        attempt(&[&key, &format!("{header}: {value}")], &format!("the token {value} and a key"));
    }
}

as_root_and_as_user!(every_route_admits_the_principals_of_the_document);
