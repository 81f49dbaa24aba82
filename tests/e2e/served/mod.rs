//! `stockade serve`: requests over TCP. `principals` tries every route as callers that must be refused,
//! `every_route` tries every route of the OpenAPI document as every principal, `operations` every operation;
//! `sandboxes`, `properties`, `terminals` and `isolated` use sandboxes by plain HTTP, `clients` and `e2b` with
//! released clients, `e2b_access` tries the tokens of E2B as callers that must be refused, `e2b_secrets` uses its
//! secrets, `frameworks` are released frameworks, `remote` the commands of Stockade, `runs_elsewhere` runs whose sandboxes are on a server, `stores` those on volumes and images, `code` runs code in contexts, `database` has its records elsewhere, `cluster` is about several servers, `balanced` about two behind a balancer; `ports` is about
//! ports of sandboxes, `browsers` and `playground` about what browsers use; `listener` is about the listener
//! itself, `stopped` about the ends of streams, `killed` about servers
//! that are killed, `limited` about limits and metrics, `machine` about what clients of E2B expect of a machine; `hostile`, `hostile_stores` and `fuzzed` send requests that no client
//! sends, `answers` gives answers that no server gives, `reused` uses an id again, `own_programs` is about programs of the server's user, and `from_inside` attacks from a sandbox.

mod answers;
mod balanced;
mod browsers;
mod clients;
mod cluster;
mod code;
mod credential_vault;
mod database;
mod e2b;
mod e2b_access;
mod e2b_secrets;
mod e2b_volumes;
mod every_route;
mod frameworks;
mod from_inside;
mod fuzzed;
mod hostile;
mod hostile_stores;
mod isolated;
mod killed;
mod limited;
mod listener;
mod machine;
mod operations;
mod own_programs;
mod pages;
mod playground;
pub(crate) mod port_app;
mod ports;
mod principals;
mod properties;
pub(crate) mod remote;
mod reused;
mod runs_elsewhere;
mod sandboxes;
mod stopped;
mod stores;
mod terminals;
mod web_socket;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::call::Running;
use crate::harness::World;

/// How long a response may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that listens over TCP.
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) address: Address,
}

/// Where a server listens, for requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub(crate) port: u16,
}

impl std::ops::Deref for Server {
    type Target = Address;

    fn deref(&self) -> &Address {
        &self.address
    }
}

impl Server {
    /// Starts a server with more options.
    pub(crate) fn start(world: &World, options: &[&str]) -> Self {
        Self::start_at(world, "127.0.0.1:0", options)
    }

    /// Starts a server at an address of the loopback.
    pub(crate) fn start_at(world: &World, listen: &str, options: &[&str]) -> Self {
        Self::start_as(world, listen, options, &[])
    }

    /// Starts a server with more options and variables.
    pub(crate) fn start_with(world: &World, options: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_as(world, "127.0.0.1:0", options, variables)
    }

    fn start_as(world: &World, listen: &str, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut words = vec!["serve", "--listen", listen];
        words.extend(options);
        let call = variables
            .iter()
            .fold(world.stockade(&words), |call, (name, value)| call.env(name, value));
        let mut running = call.start();
        running.wait_for_message("listening on ");
        let message = running.stderr();
        let (_, rest) = message.split_once("127.0.0.1:").unwrap();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Self { running, address: Address { port: digits.parse().unwrap() } }
    }
}

impl Address {
    /// The value of the header `host`.
    pub(crate) fn host(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// A request with these headers, each `NAME: VALUE`.
    pub(crate) fn request(&self, line: &str, headers: &[&str], body: &[u8]) -> Response {
        self.raw(&head(line, &self.host(), headers, body), body)
    }

    /// A request with a JSON body, if it is not null.
    pub(crate) fn json(&self, line: &str, headers: &[&str], body: &Value) -> Response {
        if body.is_null() {
            return self.request(line, headers, b"");
        }
        let mut all = headers.to_vec();
        all.push("content-type: application/json");
        self.request(line, &all, body.to_string().as_bytes())
    }

    /// Sends a head and a body, and reads until the server closes the connection.
    pub(crate) fn raw(&self, head: &str, body: &[u8]) -> Response {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses the head may close before it has read the body.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Response::parse(&answer)
    }

    /// Creates a sandbox, and returns its id.
    pub(crate) fn create(&self, key: &str) -> String {
        let request = json!({ "image": { "uri": "host" }, "timeout": 600, "entrypoint": [] });
        let key = format!("open-sandbox-api-key: {key}");
        let created = self.json("POST /v1/sandboxes", &[&key], &request);
        assert_eq!(created.status, 202, "{}", created.text());
        created.value()["id"].as_str().unwrap().to_owned()
    }

    /// The header with the access token for a port of a sandbox.
    pub(crate) fn token(&self, key: &str, id: &str, port: u16) -> String {
        let key = format!("x-api-key: {key}");
        let line = format!("GET /v1/sandboxes/{id}/endpoints/{port}");
        let found = self.request(&line, &[&key], b"");
        assert_eq!(found.status, 200, "{}", found.text());
        let value = found.value();
        let path = format!("{}/v1/sandboxes/{id}/proxy/{port}", self.host());
        assert_eq!(value["endpoint"], path);
        let (name, token) = value["headers"].as_object().unwrap().iter().next().unwrap();
        format!("{name}: {}", token.as_str().unwrap())
    }
}

pub(crate) fn head(line: &str, host: &str, headers: &[&str], body: &[u8]) -> String {
    let mut head = format!("{line} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
    if !body.is_empty() || line.starts_with("POST") {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    head
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The head, in lower case.
    pub(crate) head: String,
    /// The head, as it was sent.
    pub(crate) raw_head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    fn parse(answer: &[u8]) -> Self {
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no response: {}", String::from_utf8_lossy(answer)));
        let raw_head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let head = raw_head.to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = &answer[end + 4..];
        let is_chunked = head.contains("transfer-encoding: chunked");
        let body = if is_chunked { unchunked(body) } else { body.to_vec() };
        Self { status, head, raw_head, body }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The events of a stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = self.text();
        let events = text.split("\n\n").filter(|event| !event.is_empty());
        events.map(|event| serde_json::from_str(event).unwrap()).collect()
    }
}

/// The content of a body in chunks.
fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(end) = rest.windows(2).position(|part| part == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        let from = end + 2;
        if length == 0 || rest.len() < from + length {
            break;
        }
        content.extend(&rest[from..from + length]);
        rest = &rest[from + length + 2..];
    }
    content
}

/// Creates an API key with more options.
pub(crate) fn key(world: &World, options: &[&str]) -> (String, String) {
    let mut words = vec!["keys", "create", "--json"];
    words.extend(options);
    let outcome = world.stockade(&words).finish();
    outcome.succeeds();
    let created = outcome.json();
    let text = |name: &str| created[name].as_str().unwrap().to_owned();
    (text("key"), text("id"))
}
