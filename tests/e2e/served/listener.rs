//! The listener over TCP: which requests it refuses before anything else, where it listens, and its end.

use rustix::process::Signal;

use super::{Server, head, key};
use crate::harness::World;

fn requests_of_web_pages_are_refused(world: &World) {
    let server = Server::start(world, &[]);
    let host = server.host();
    let ask = |host: &str, headers: &[&str]| {
        server.raw(&head("GET /health", host, headers, b""), b"").status
    };
    assert_eq!(ask(&host, &[]), 200);
    assert_eq!(ask(&format!("127.0.0.1:{}", server.port), &[]), 200);
    assert_eq!(ask(&host, &[&format!("origin: http://{host}")]), 200);
    assert_eq!(ask(&host, &["sec-fetch-site: none"]), 200);
    for name in ["evil.example", "localhost.evil.example", "", "10.0.0.1"] {
        assert_eq!(ask(name, &[]), 403, "{name}");
    }
    for header in
        ["origin: http://evil.example", "origin: null", "sec-fetch-site: cross-site", "host: b"]
    {
        assert_eq!(ask(&host, &[header]), 403, "{header}");
    }
    let large = format!("x-large: {}", "a".repeat(128 << 10));
    assert_eq!(ask(&host, &[&large]), 431);
    let named = server.request("GET /version", &["x-request-id: mine"], b"");
    assert!(named.head.contains("x-request-id: mine"), "{}", named.head);
}

fn other_hosts_need_keys_and_tls(world: &World) {
    let serve = |options: &[&str]| {
        let mut words = vec!["serve", "--listen", "0.0.0.0:0"];
        words.extend(options);
        world.stockade(&words).finish()
    };
    let refused = serve(&[]);
    refused.ends_with(2);
    assert!(refused.stderr.contains("--tls-cert"), "{refused}");
    let refused = serve(&["--allow-plaintext"]);
    refused.ends_with(2);
    assert!(refused.stderr.contains("stockade keys create"), "{refused}");
    let refused = serve(&["--tls-cert", "/none"]);
    refused.ends_with(2);
}

fn a_flag_precedes_a_variable_and_that_the_file(world: &World) {
    let file = world.path("serve.toml");
    let data = world.path("of-the-file");
    let data = data.to_str().unwrap();
    world.plant(&file, &format!("listen = '0.0.0.0:0'\ndata-dir = '{data}'\npool = 0\n"));
    let file = file.to_str().unwrap();
    // The address of the file needs TLS; that of the variable and of the flag does not.
    let serve = |words: &[&str]| {
        world.stockade(&[&["serve", "--config", file], words].concat()).env("STOCKADE_DATA_DIR", "")
    };
    serve(&[]).finish().ends_with(2);
    for (words, variable) in [(&[][..], "127.0.0.1:0"), (&["--listen", "127.0.0.1:0"], "0.0.0.0:0")]
    {
        let mut running = serve(words).env("STOCKADE_LISTEN", variable).start();
        running.wait_for_message("listening on http://127.0.0.1:");
        assert!(running.stderr().contains(&format!("serving {data}")), "{}", running.stderr());
        running.signal(Signal::TERM);
        running.finish().succeeds();
    }
    for unknown in ["lisen = '127.0.0.1:0'", "pool = 'many'", "[tls]\ncert = 'x'"] {
        world.plant(std::path::Path::new(file), unknown);
        let refused = serve(&[]).finish();
        refused.ends_with(2);
        assert!(refused.stderr.contains("serve.toml"), "{refused}");
    }
}

fn a_stop_ends_streams_with_an_event_and_a_start_finds_the_sandboxes(world: &World) {
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let id = server.create(&key);
    let token = server.token(&key, &id, 44772);
    let line = format!("POST /v1/sandboxes/{id}/proxy/44772/command");
    let body = b"{\"command\":\"echo started > /tmp/started; sleep 600\"}";
    let all = [token.as_str(), "content-type: application/json"];
    let response = std::thread::scope(|scope| {
        let address = server.address;
        let (line, all) = (&line, &all);
        let stream = scope.spawn(move || address.request(line, all, body));
        let started = format!("GET /v1/sandboxes/{id}/proxy/44772/files/info?path=/tmp/started");
        while server.request(&started, &[&token], b"").status != 200 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        server.running.signal(Signal::TERM);
        stream.join().unwrap()
    });
    let events = response.events();
    assert_eq!(events[0]["type"], "init");
    assert_eq!(events.last().unwrap()["type"], "error", "{events:?}");
    server.running.finish().succeeds();
    let server = Server::start(world, &[]);
    let found =
        server.request(&format!("GET /v1/sandboxes/{id}"), &[&format!("x-api-key: {key}")], b"");
    assert_eq!(found.value()["status"]["state"], "Running", "{}", found.text());
    // The token outlives the server.
    let ping = format!("GET /v1/sandboxes/{id}/proxy/44772/ping");
    assert_eq!(server.request(&ping, &[&token], b"").status, 200);
}

as_root_and_as_user!(
    requests_of_web_pages_are_refused,
    other_hosts_need_keys_and_tls,
    a_flag_precedes_a_variable_and_that_the_file,
    a_stop_ends_streams_with_an_event_and_a_start_finds_the_sandboxes
);
