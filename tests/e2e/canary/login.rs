//! The hunt in a login at an OpenID provider: the secret of the client, the code, the tokens, and the
//! session of the browser.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::records::Database;
use super::{Hunt, forms};
use crate::harness::World;
use crate::served::port_app::start_app;
use crate::served::{Response, Server, head, key};

/// A provider at which one user has logged in. It signs with the secret of its client.
struct Provider {
    issuer: String,
    client_secret: String,
    /// What it answers to the code.
    tokens: Value,
    claim: String,
    nonce: Mutex<String>,
}

impl Provider {
    fn start(hunt: &Hunt, client_secret: &str) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let provider = Arc::new(Self {
            issuer: format!("http://{}", listener.local_addr().unwrap()),
            client_secret: client_secret.to_owned(),
            tokens: json!({
                "access_token": hunt.of("access"), "refresh_token": hunt.of("refresh"),
                "token_type": "Bearer", "expires_in": 600,
            }),
            claim: hunt.of("claim"),
            nonce: Mutex::default(),
        });
        let own = Arc::clone(&provider);
        std::thread::spawn(move || {
            listener.incoming().flatten().for_each(|stream| own.serve(stream));
        });
        provider
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        let mut byte = [0];
        while !bytes.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
            bytes.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
        stream.read_exact(&mut body).unwrap();
        let answer = match head.split(' ').nth(1).unwrap_or_default() {
            "/.well-known/openid-configuration" => json!({
                "issuer": self.issuer,
                "authorization_endpoint": format!("{}/authorize", self.issuer),
                "token_endpoint": format!("{}/token", self.issuer),
                "jwks_uri": format!("{}/jwks", self.issuer),
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["HS256"],
            }),
            "/jwks" => json!({ "keys": [] }),
            _ => {
                let mut tokens = self.tokens.clone();
                tokens["id_token"] = json!(self.identity());
                tokens
            }
        };
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n",
            answer.len()
        );
        let _ = stream.write_all(format!("{head}{answer}").as_bytes());
    }

    /// The identity token (RFC 7515, `HS256`).
    fn identity(&self) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let claims = json!({
            "iss": self.issuer, "aud": "stockade", "sub": "alice", "iat": now.as_secs(),
            "exp": now.as_secs() + 600, "nonce": *self.nonce.lock().unwrap(), "other": self.claim,
        });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "HS256", "typ": "JWT"})), part(&claims));
        let secret = self.client_secret.as_bytes();
        let mut key = [0; 64];
        match secret.len() <= key.len() {
            true => key[..secret.len()].copy_from_slice(secret),
            false => key[..32].copy_from_slice(&Sha256::digest(secret)),
        }
        let padded = |pad: u8| key.map(|byte| byte ^ pad);
        let inner = Sha256::new().chain_update(padded(0x36)).chain_update(&signed).finalize();
        let signature = Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// The address that a response leads to.
fn location(response: &Response) -> String {
    let line = response
        .raw_head
        .lines()
        .find(|line| line.get(..9).is_some_and(|name| name.eq_ignore_ascii_case("location:")));
    line.unwrap_or_else(|| panic!("{} {}", response.head, response.text()))[9..].trim().to_owned()
}

/// The cookies that a response sets, as one header.
fn cookies(response: &Response) -> String {
    let lines = response.raw_head.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("set-cookie").then(|| value.trim().split(';').next().unwrap())
    });
    format!("cookie: {}", lines.collect::<Vec<_>>().join("; "))
}

/// A parameter of an address; its values need no decoding.
fn parameter(address: &str, name: &str) -> String {
    let query = address.split_once('?').unwrap().1;
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(own, _)| *own == name).unwrap().1.to_owned()
}

fn no_value_of_a_login_is_left_anywhere(world: &World) {
    let Some(database) = Database::new(world) else { return };
    let hunt = Hunt::new();
    // The server has it in memory, so it is hunted in everything else.
    let of_client = Hunt::new();
    let client_secret = of_client.of("client");
    let file = world.path("client-secret");
    world.plant(&file, &client_secret);
    let provider = Provider::start(&hunt, &client_secret);
    let config = world.path("serve.toml");
    let text = format!(
        "[login]\nissuer = {:?}\nclient-id = \"stockade\"\nclient-secret-file = {file:?}\n\
         [login.owners]\nalice = \"uid:{}\"\n",
        provider.issuer,
        world.identity.uid()
    );
    world.plant(&config, &text);
    let options = ["--config", config.to_str().unwrap()];
    let settings = [("STOCKADE_DATABASE_URL", database.url.as_str())];
    let server = Server::start_with(world, &options, &settings);
    let (key, _) = key(world, &[]);
    let id = start_app(&server, &key, &["3000"], &Value::Null);

    let host = format!("3000-{id}.localhost:{}", server.port);
    let public = format!("localhost:{}", server.port);
    let ask = |address: &str, host: &str, cookies: &str| {
        let path =
            address.split_once("://").map_or(address, |(_, rest)| &rest[rest.find('/').unwrap()..]);
        let headers = ["accept: text/html", cookies];
        server.raw(&head(&format!("GET {path}"), host, &headers, b""), b"")
    };
    let page = ask("/page?x=1", &host, "cookie: a=b");
    let at_server = ask(&location(&page), &public, "cookie: a=b");
    let at_provider = location(&at_server);
    *provider.nonce.lock().unwrap() = parameter(&at_provider, "nonce");
    let state = parameter(&at_provider, "state");
    let callback = |code: &str, state: &str| {
        let path = format!("/auth/callback?code={code}&state={state}");
        ask(&path, &public, &cookies(&at_server))
    };
    // A code with a wrong state is not sent on, and not kept.
    assert_eq!(callback(&hunt.of("wrong"), "x").status, 400);
    let back = location(&callback(&hunt.of("code"), &state));
    let opened = ask(&back, &host, &cookies(&page));
    let session = cookies(&opened);
    assert_eq!(ask("/page", &host, &session).status, 200, "{}", opened.head);

    let value = session.split("__Host-stockade-session=").nth(1).unwrap();
    let value = value.split(';').next().unwrap().to_owned();
    let code = parameter(&back, "code");
    let hunt_for = |text: &str| Hunt { patterns: forms(text.as_bytes()), prefix: text.to_owned() };
    let of_server = [of_client, hunt_for(&value), hunt_for(&code)];
    let search = |when: &str| {
        hunt.finds_nothing(world, when);
        assert_eq!(database.finds(&hunt), Vec::<String>::new(), "{when}");
        for own in &of_server {
            let mut found = own.files(&world.data());
            found.extend(own.processes());
            found.extend(database.finds(own));
            assert_eq!(found, Vec::<String>::new(), "{when}");
        }
    };
    search("after a login");
    for own in of_server.iter().chain([&hunt]) {
        let told = format!("{}{}", server.running.stderr(), server.running.stdout());
        assert!(own.forms_in(told.as_bytes()).is_empty(), "{told}");
    }
    server.running.signal(Signal::KILL);
    server.running.finish();
    let _server = Server::start_with(world, &options, &settings);
    search("after the end of the server");
}

as_root_and_as_user![no_value_of_a_login_is_left_anywhere];
