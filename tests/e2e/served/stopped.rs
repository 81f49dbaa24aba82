//! How streams end: in order when the server stops, and at once with the API key that has opened them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::web_socket::{Message, WebSocket};
use super::{Address, PATIENCE, Server, key};
use crate::harness::World;

/// A response that arrives in parts.
struct Stream {
    socket: TcpStream,
    received: Vec<u8>,
}

impl Stream {
    fn open(address: Address, line: &str, headers: &[&str], body: &Value) -> Self {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut head = format!("{line} HTTP/1.1\r\nhost: {}\r\n", address.host());
        for header in headers {
            head += &format!("{header}\r\n");
        }
        head +=
            &format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        let mut socket = TcpStream::connect(("127.0.0.1", address.port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all((head + &body).as_bytes()).unwrap();
        Self { socket, received: Vec::new() }
    }

    /// Reads until a text was received.
    fn wait_for(&mut self, text: &str) {
        let mut part = [0; 4096];
        while !String::from_utf8_lossy(&self.received).contains(text) {
            let length = self.socket.read(&mut part).unwrap();
            assert!(length > 0, "no {text:?}: {}", String::from_utf8_lossy(&self.received));
            self.received.extend(&part[..length]);
        }
    }

    /// Reads until the server closes the connection. Returns everything.
    fn rest(mut self) -> String {
        // A connection that is cut may be reset.
        let ended = self.socket.read_to_end(&mut self.received);
        if let Err(error) = ended {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it does not end");
        }
        String::from_utf8_lossy(&self.received).into_owned()
    }
}

/// What a client has open: a command, a terminal and a session of MCP.
struct Open {
    command: Stream,
    terminal: WebSocket,
    session: Stream,
    id: String,
    token: String,
}

const MCP: [&str; 2] =
    ["accept: application/json, text/event-stream", "mcp-protocol-version: 2025-06-18"];

impl Open {
    fn new(server: &Server, key: &str) -> Self {
        let id = server.create(key);
        let token = server.token(key, &id, 44772);
        let place = format!("/v1/sandboxes/{id}/proxy/44772");
        let script = "echo started; while [ ! -e /tmp/end ]; do sleep 0.1; done; echo ended";
        let line = format!("POST {place}/command");
        let mut command = Stream::open(**server, &line, &[&token], &json!({ "command": script }));
        command.wait_for("started");
        let created = server.json(&format!("POST {place}/pty"), &[&token], &json!({}));
        let pty = created.value()["session_id"].as_str().unwrap().to_owned();
        let path = format!("{place}/pty/{pty}/ws");
        let mut terminal = WebSocket::connect(**server, &path, &[&token]).ok().unwrap();
        assert!(matches!(terminal.receive(), Message::Text(_)), "it is connected");
        terminal.send_binary(b"\0echo $((6*7))-here\n");
        terminal.output_until("42-here");
        let key = format!("x-api-key: {key}");
        let hello = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" },
            },
        });
        let opened = server.json("POST /mcp", &[MCP[0], &key], &hello);
        let head = opened.raw_head.lines();
        let own = head.filter_map(|line| line.split_once(": "));
        let mut own = own.filter(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id"));
        let own = format!("mcp-session-id: {}", own.next().unwrap().1);
        let headers = [MCP[0], MCP[1], &key, &own];
        let done = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(server.json("POST /mcp", &headers, &done).status, 202);
        let mut session = Stream::open(**server, "GET /mcp", &headers, &Value::Null);
        session.wait_for("\r\n\r\n");
        Self { command, terminal, session, id, token }
    }
}

/// Each stream has a last event, and the command continues in the next server.
fn a_stop_ends_streams_in_order(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let Open { command, mut terminal, session, id, .. } = Open::new(&server, &key);
    server.running.signal(Signal::TERM);
    let text = command.rest();
    let last = text.rsplit("\n\n").find(|event| event.contains('{')).unwrap();
    assert!(last.contains("UNREACHABLE") && last.contains("\"error\""), "{text}");
    assert!(text.ends_with("0\r\n\r\n"), "the body is not whole: {text}");
    loop {
        match terminal.receive() {
            Message::Close(_) => break,
            Message::Text(_) | Message::Binary(_) => {}
        }
    }
    assert!(session.rest().ends_with("0\r\n\r\n"));
    server.running.finish().succeeds();

    let server = Server::start(world, &[]);
    let token = server.token(&key, &id, 44772);
    let line = format!("POST /v1/sandboxes/{id}/proxy/44772/command");
    let ran = server.json(&line, &[&token], &json!({ "command": "touch /tmp/end; echo it" }));
    assert_eq!(ran.events()[1]["text"], "it", "{}", ran.text());
    let kill = format!("DELETE /v1/sandboxes/{id}");
    assert_eq!(server.request(&kill, &[&format!("x-api-key: {key}")], b"").status, 204);
}

fn streams_end_with_their_key(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, mine_id) = key(world, &["--owner", "me"]);
    let (other, _) = key(world, &["--owner", "other"]);
    let Open { command, mut terminal, session, .. } = Open::new(&server, &mine);
    let mut others = Open::new(&server, &other);
    world.stockade(&["keys", "revoke", &mine_id]).finish().succeeds();
    let text = command.rest();
    assert!(text.contains("started") && !text.contains("ended"), "{text}");
    assert!(!session.rest().ends_with("0\r\n\r\n"));
    terminal.wait_for_end();
    // Those of another key continue.
    others.terminal.send_binary(b"\0echo $((7*7))-there\n");
    others.terminal.output_until("49-there");
    let line = format!("POST /v1/sandboxes/{}/proxy/44772/command", others.id);
    let ended = json!({ "command": "touch /tmp/end" });
    assert_eq!(server.json(&line, &[&others.token], &ended).status, 200);
    others.command.wait_for("execution_complete");
}

as_root_and_as_user!(a_stop_ends_streams_in_order, streams_end_with_their_key);
