//! The limits of each key, the metrics, and the log of requests.

use serde_json::{Value, json};

use super::{Response, Server, key};
use crate::harness::World;

#[track_caller]
fn is_limited(response: &Response) {
    assert_eq!(response.status, 429, "{}", response.text());
    let retry = response.head.lines().find_map(|line| line.strip_prefix("retry-after: "));
    let seconds: u64 = retry.unwrap_or_else(|| panic!("{}", response.head)).parse().unwrap();
    assert!((1..=600).contains(&seconds), "{}", response.head);
}

fn each_key_has_limits(world: &World) {
    let server = Server::start(world, &["--requests-per-minute", "20"]);
    let (one, _) = key(world, &["--owner", "me"]);
    let (two, _) = key(world, &["--owner", "me"]);
    let (one, two) = (format!("x-api-key: {one}"), format!("x-api-key: {two}"));
    let list = |key: &str| server.request("GET /v1/sandboxes", &[key], b"");
    let limited = (0..40).map(|_| list(&one)).find(|response| response.status != 200);
    let limited = limited.expect("there is a limit");
    is_limited(&limited);
    assert_eq!(limited.value()["code"], "RATE_LIMITED");
    // The limit is the same for each interface.
    for line in ["POST /mcp", "POST /api/sandbox"] {
        is_limited(&server.request(line, &[&one], b""));
    }
    assert_eq!(list(&two).status, 200);
    assert_eq!(server.request("GET /health", &[], b"").status, 200);
    // Clients without a key have a limit, too.
    let mut strangers = (0..40).map(|_| server.request("GET /v1/sandboxes", &[], b""));
    is_limited(&strangers.find(|response| response.status != 401).expect("there is a limit"));
    assert_eq!(list(&two).status, 200);
}

fn bytes_are_limited(world: &World) {
    let server = Server::start(world, &["--bytes-per-minute", "100k"]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let id = server.create(&mine);
    let token = server.token(&mine, &id, 44772);
    let line = format!("POST /v1/sandboxes/{id}/proxy/44772/files/upload");
    let kind = "content-type: multipart/form-data; boundary=b";
    let body = format!(
        "--b\r\ncontent-disposition: form-data; name=\"metadata\"; filename=\"m\"\r\n\r\n{{\"path\":\"/tmp/a\"}}\r\n\
         --b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n{}\r\n--b--\r\n",
        "x".repeat(200 << 10)
    );
    assert_eq!(server.request(&line, &[&token, kind], body.as_bytes()).status, 200);
    let ping = format!("GET /v1/sandboxes/{id}/proxy/44772/ping");
    is_limited(&server.request(&ping, &[&token], b""));
    is_limited(&server.request("GET /v1/sandboxes", &[&format!("x-api-key: {mine}")], b""));
}

fn sandboxes_are_limited(world: &World) {
    let mut words = vec!["serve", "--listen", "127.0.0.1:0"];
    words.extend(["--requests-per-minute", "1000"]);
    let mut running = world.stockade(&words).env("STOCKADE_MAX_SANDBOXES", "1").start();
    running.wait_for_message("listening on ");
    let message = running.stderr();
    let (_, rest) = message.split_once("127.0.0.1:").unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let server = Server { running, address: super::Address { port: digits.parse().unwrap() } };
    let (mine, _) = key(world, &["--owner", "me"]);
    server.create(&mine);
    let request = json!({ "image": { "uri": "host" }, "timeout": 600, "entrypoint": [] });
    let own = format!("x-api-key: {mine}");
    let second = server.json("POST /v1/sandboxes", &[&own], &request);
    is_limited(&second);
    assert_eq!(second.value()["code"], "QUOTA_EXCEEDED");
}

fn metrics_and_logs_show_requests(world: &World) {
    let server = Server::start(world, &["--log", "json"]);
    let (mine, id) = key(world, &["--owner", "me"]);
    let (admin, _) = key(world, &["--owner", "me", "--admin"]);
    let sandbox = server.create(&mine);
    let own = format!("x-api-key: {mine}");
    let get = format!("GET /v1/sandboxes/{sandbox}");
    server.request(&get, &[&own, "x-request-id: named-by-a-test"], b"");
    assert_eq!(server.request("GET /metrics", &[&own], b"").status, 403);
    assert_eq!(server.request("GET /metrics", &[], b"").status, 401);
    let metrics = server.request("GET /metrics", &[&format!("x-api-key: {admin}")], b"");
    assert_eq!(metrics.status, 200, "{}", metrics.text());
    assert!(
        metrics.head.contains("content-type: application/openmetrics-text"),
        "{}",
        metrics.head
    );
    let text = metrics.text();
    for line in [
        "stockade_http_requests_total{method=\"GET\",route=\"/v1/sandboxes/{id}\",status=\"200\"} 1",
        "stockade_http_requests_total{method=\"POST\",route=\"/v1/sandboxes\",status=\"202\"} 1",
        "stockade_sandboxes{state=\"running\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(!text.contains(&sandbox), "a metric names a sandbox: {text}");
    let log = server.running.stderr();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let named = lines.into_iter().find(|line| line["request"] == "named-by-a-test");
    let named = named.unwrap_or_else(|| panic!("{log}"));
    assert_eq!(named["sandbox"], *sandbox);
    assert_eq!(named["status"], 200);
    assert_eq!(named["key"], *id);
    assert_eq!(named["owner"], "me");
    assert!(!log.contains(&mine), "the log has a key");
}

/// The log is in files of a limited size, and a later server continues it.
fn a_full_log_gets_another_name(world: &World) {
    let path = world.path("log.json");
    let name = path.to_str().unwrap();
    let options = ["--log", "json", "--log-file", name, "--log-file-size", "4k"];
    let requests = |server: &Server, from: u32| {
        for number in from..from + 30 {
            let id = format!("x-request-id: request-{number}");
            assert_eq!(server.request("GET /health", &[&id], b"").status, 200);
        }
    };
    let server = Server::start(world, &options);
    requests(&server, 0);
    server.running.signal(rustix::process::Signal::TERM);
    let ended = server.running.finish();
    ended.succeeds();
    assert!(!ended.stderr.contains("request-"), "{ended}");
    let server = Server::start(world, &options);
    requests(&server, 30);
    let files: Vec<_> = [".5", ".4", ".3", ".2", ".1", ""]
        .iter()
        .filter_map(|suffix| std::fs::read_to_string(format!("{name}{suffix}")).ok())
        .collect();
    assert!(files.len() > 2, "{} files", files.len());
    for text in &files {
        assert!(text.len() <= 4096, "{} bytes", text.len());
    }
    let all = files.concat();
    let lines = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found: Vec<_> = lines.map(|line| line["request"].as_str().unwrap().to_owned()).collect();
    // The newest ones are all there, in order.
    let last: Vec<_> = (60 - found.len()..60).map(|number| format!("request-{number}")).collect();
    assert_eq!(found, last);
    let mode = std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap());
    assert_eq!(mode & 0o777, 0o600);
    for options in [&["--log-file", name][..], &["--log", "json", "--log-file-size", "1k"]] {
        let words = [&["serve", "--listen", "127.0.0.1:0"], options].concat();
        let refused = world.stockade(&words).finish();
        assert!(refused.stderr.contains("[INVALID_INPUT]"), "{refused}");
    }
}

as_root_and_as_user!(
    each_key_has_limits,
    bytes_are_limited,
    sandboxes_are_limited,
    metrics_and_logs_show_requests,
    a_full_log_gets_another_name
);
