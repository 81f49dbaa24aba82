//! A server with a sandbox in which an application listens, as the tests of ports and browsers need it,
//! and a provider of logins.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use super::{Address, Response, Server, key};
use crate::harness::World;

/// The application inside.
pub(super) const APP: &str = include_str!("../../packages/port_app.py");

/// A server, with a sandbox in which the application listens.
pub(super) struct App<'w> {
    pub(super) world: &'w World,
    pub(super) server: Server,
    pub(super) key: String,
    pub(super) id: String,
}

impl<'w> App<'w> {
    pub(super) fn start(world: &'w World, options: &[&str], extensions: &Value) -> Self {
        let server = Server::start(world, options);
        // The owner is the user of the world, whom `stockade open` serves.
        let (key, _) = key(world, &[]);
        let id = start_app(&server, &key, &["3000", "3001"], extensions);
        Self { world, server, key, id }
    }

    /// The host name of a port.
    pub(super) fn host(&self, port: u16) -> String {
        format!("{port}-{}.localhost:{}", self.id, self.server.port)
    }

    /// A link that opens a port once.
    pub(super) fn link(&self, words: &[&str]) -> String {
        let mut all = vec!["open", &self.id, "--json"];
        all.extend(words);
        let outcome = self.world.stockade(&all).finish();
        outcome.succeeds().json()["url"].as_str().unwrap().to_owned()
    }

    /// A request under a host name.
    pub(super) fn ask(&self, line: &str, host: &str, headers: &[&str]) -> Response {
        self.server.raw(&super::head(line, host, headers, b""), b"")
    }

    /// Opens a link as a browser does; the response, and the cookie with the session.
    pub(super) fn follow(&self, link: &str) -> (Response, String) {
        let (host, path) = link.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let line = format!("GET /{path}");
        let opened = self.ask(&line, host, &["sec-fetch-site: none"]);
        let cookie = session(&opened);
        (opened, cookie)
    }

    /// A session with a port, as a header.
    pub(super) fn session(&self, port: u16) -> String {
        let (opened, cookie) = self.follow(&self.link(&[&port.to_string()]));
        assert_eq!(opened.status, 302, "{} {}", opened.head, opened.text());
        cookie
    }

    pub(super) fn access(&self, port: u16) -> String {
        self.server.token(&self.key, &self.id, port)
    }

    /// The path of a signed link to a port.
    pub(super) fn signed(&self, port: u16, seconds: u64) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let expires = now.as_secs() + seconds;
        let line = format!("GET /v1/sandboxes/{}/endpoints/{port}?expires={expires}", self.id);
        let signed = self.server.request(&line, &[&format!("x-api-key: {}", self.key)], b"");
        assert_eq!(signed.status, 200, "{}", signed.text());
        assert_eq!(signed.value()["headers"], json!({}));
        let endpoint = signed.value()["endpoint"].as_str().unwrap().to_owned();
        endpoint.strip_prefix(&self.server.host()).unwrap().to_owned()
    }

    pub(super) fn get(&self, path: &str) -> u16 {
        self.server.request(&format!("GET {path}"), &[], b"").status
    }
}

/// The session that a response gives, as a header of later requests.
pub(super) fn session(response: &Response) -> String {
    let line = response.head.lines().find(|line| line.contains("__host-stockade-session="));
    let Some(line) = line else { return "cookie: none=1".to_owned() };
    for part in ["path=/", "secure", "httponly", "samesite=lax"] {
        assert!(line.contains(part), "{line}");
    }
    assert!(!line.contains("domain"), "{line}");
    // The head is in lower case; the value is not.
    let text = &response.raw_head;
    let value = text.split("__Host-stockade-session=").nth(1).unwrap().split(';').next().unwrap();
    format!("cookie: __Host-stockade-session={value}")
}

/// Creates a sandbox in which the application listens, and returns its id.
pub(crate) fn start_app(server: &Address, key: &str, ports: &[&str], extensions: &Value) -> String {
    let mut request = json!({ "image": { "uri": "host" }, "timeout": 600, "entrypoint": [] });
    if !extensions.is_null() {
        request["extensions"] = extensions.clone();
    }
    let api_key = format!("x-api-key: {key}");
    let created = server.json("POST /v1/sandboxes", &[&api_key], &request);
    assert_eq!(created.status, 202, "{}", created.text());
    let id = created.value()["id"].as_str().unwrap().to_owned();
    let execd = server.token(key, &id, 44772);
    let mut words = vec!["python3", "-c", APP];
    words.extend(ports);
    let request = json!({ "argv": words, "background": true });
    let line = format!("POST /v1/sandboxes/{id}/proxy/44772/command");
    assert_eq!(server.json(&line, &[&execd], &request).status, 200);
    // `3000` is an exposed port wherever only some are.
    let token = server.token(key, &id, 3000);
    let line = format!("GET /v1/sandboxes/{id}/proxy/3000/");
    for _ in 0..400 {
        if server.request(&line, &[&token], b"").status == 200 {
            return id;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("the application inside does not answer");
}

/// The head of a configuration file with a provider of logins at this address.
pub(super) fn config(world: &World, issuer: &str) -> String {
    let path = world.path("serve.toml");
    let text = format!("[login]\nissuer = \"{issuer}\"\nclient-id = \"stockade\"\n");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A provider that publishes its metadata, and accepts no code.
pub(super) fn metadata_provider() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    let own = issuer.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let (status, body) = if head.contains("openid-configuration") {
                let metadata = json!({
                    "issuer": own,
                    "authorization_endpoint": format!("{own}/authorize"),
                    "token_endpoint": format!("{own}/token"),
                    "jwks_uri": format!("{own}/jwks"),
                    "response_types_supported": ["code"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": ["RS256"],
                });
                ("200 OK", metadata)
            } else if head.contains("/jwks") {
                ("200 OK", json!({ "keys": [] }))
            } else {
                ("400 Bad Request", json!({ "error": "invalid_grant" }))
            };
            let body = body.to_string();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    issuer
}
