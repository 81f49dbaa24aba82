//! Shells with a terminal, which clients join over a WebSocket.

use serde_json::{Value, json};

use super::web_socket::{Message, WebSocket};
use super::{Server, key};
use crate::harness::World;

fn a_terminal_is_joined_left_and_joined_again(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let id = server.create(&key);
    let token = server.token(&key, &id, 44772);
    let place = format!("/v1/sandboxes/{id}/proxy/44772");
    let ask = |line: &str, body: &Value| {
        let (method, path) = line.split_once(' ').unwrap();
        server.json(&format!("{method} {place}{path}"), &[&token], body)
    };
    let created = ask("POST /pty", &json!({ "cwd": "/tmp" }));
    assert_eq!(created.status, 201, "{}", created.text());
    let pty = created.value()["session_id"].as_str().unwrap().to_owned();
    let status = || ask(&format!("GET /pty/{pty}"), &Value::Null).value();
    assert_eq!(status()["running"], json!(false));
    let join = |query: &str| {
        WebSocket::connect(*server, &format!("{place}/pty/{pty}/ws{query}"), &[&token])
    };
    let path = format!("{place}/pty/{pty}/ws");
    assert_eq!(WebSocket::connect(*server, &path, &[]).err().unwrap().0, 401);

    let mut socket = join("").ok().unwrap();
    let connected = json!({ "type": "connected", "session_id": pty, "mode": "pty" });
    assert_eq!(socket.receive(), Message::Text(connected.clone()));
    socket.send_text(&json!({ "type": "resize", "cols": 111, "rows": 37 }));
    socket.send_binary(b"\0stty size; pwd; echo $((6*7))-done\n");
    let output = socket.output_until("42-done");
    assert!(output.contains("37 111"), "{output}");
    assert!(output.contains("/tmp"), "{output}");
    socket.send_text(&json!({ "type": "ping" }));
    socket.send_text(&json!({ "type": "nonsense" }));
    let mut texts = Vec::new();
    while texts.len() < 2 {
        if let Message::Text(text) = socket.receive() {
            texts.push(text);
        }
    }
    assert_eq!(texts[0], json!({ "type": "pong" }));
    assert_eq!(texts[1]["code"], "INVALID_FRAME");

    // One client at a time, unless another takes over. The shell stays.
    assert_eq!(join("").err().unwrap().0, 409);
    let mut second = join("?takeover=1&since=0").ok().unwrap();
    loop {
        match socket.receive() {
            Message::Close(code) => break assert_eq!(code, 4001),
            Message::Binary(_) => {}
            Message::Text(other) => panic!("{other}"),
        }
    }
    let Message::Binary(replay) = second.receive() else { panic!("no replay") };
    assert_eq!(&replay[..9], [3, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(String::from_utf8_lossy(&replay[9..]).contains("42-done"));
    assert_eq!(second.receive(), Message::Text(connected));
    assert_eq!(status()["running"], json!(true));
    let offset = replay.len() as u64 - 9;
    // The record of the output follows the output.
    let is_recorded = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(25));
        status()["output_offset"].as_u64().unwrap() >= offset
    });
    assert!(is_recorded, "{}", status());
    drop(second);
    // The server notices that the client has left.
    let mut third = (0..200)
        .find_map(|_| {
            let joined = join(&format!("?since={offset}")).ok();
            if joined.is_none() {
                std::thread::sleep(std::time::Duration::from_millis(25));
            }
            joined
        })
        .expect("the place is free");
    third.send_binary(b"\0exit 5\n");
    let exit = loop {
        match third.receive() {
            Message::Text(text) if text["type"] == "exit" => break text,
            Message::Close(code) => panic!("{code}"),
            _ => {}
        }
    };
    assert_eq!(exit["exit_code"], 5);
    assert_eq!(third.receive(), Message::Close(1000));
    assert_eq!(status()["running"], json!(false));
    assert_eq!(ask(&format!("DELETE /pty/{pty}"), &Value::Null).status, 200);
    assert_eq!(ask(&format!("GET /pty/{pty}"), &Value::Null).status, 404);
}

fn pipes_keep_errors_apart(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let id = server.create(&key);
    let token = server.token(&key, &id, 44772);
    let place = format!("/v1/sandboxes/{id}/proxy/44772");
    let request = json!({ "command": "read line; echo \"got $line\"; echo oops >&2; sleep 600" });
    let created = server.json(&format!("POST {place}/pty"), &[&token], &request);
    let pty = created.value()["session_id"].as_str().unwrap().to_owned();
    let path = format!("{place}/pty/{pty}/ws?pty=0");
    let mut socket = WebSocket::connect(*server, &path, &[&token]).ok().unwrap();
    assert!(matches!(socket.receive(), Message::Text(text) if text["mode"] == "pipe"));
    socket.send_text(&json!({ "type": "stdin", "data": "it\n" }));
    let mut received = Vec::new();
    while received.len() < 2 {
        match socket.receive() {
            Message::Binary(data) => received.push(data),
            other => panic!("{other:?}"),
        }
    }
    received.sort();
    assert_eq!(received, [b"\x01got it\n".to_vec(), b"\x02oops\n".to_vec()]);
    // The end of the sandbox is the end of the terminal.
    let api_key = format!("x-api-key: {key}");
    let killed = server.request(&format!("DELETE /v1/sandboxes/{id}"), &[&api_key], b"");
    assert_eq!(killed.status, 204, "{}", killed.text());
    assert!(matches!(socket.receive(), Message::Text(text) if text["type"] != "connected"));
}

as_root_and_as_user!(a_terminal_is_joined_left_and_joined_again, pipes_keep_errors_apart);
