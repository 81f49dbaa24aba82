//! Ports of sandboxes: through a path of the server, by signed links, and under host names of their own.
//! The cases of `endpoint_proxy.json` run here, and the attacks on the sessions of browsers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::port_app::{App, config, metadata_provider, start_app};
use super::web_socket::Frames;
use super::{PATIENCE, Response, key};
use crate::cases::{drive, no_driver, same};
use crate::harness::World;

/// The value of a parameter in an address.
fn parameter<'a>(address: &'a str, name: &str) -> &'a str {
    let query = address.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next().unwrap_or("")
}

/// Where a response leads to.
fn location(response: &Response) -> String {
    let line = response.raw_head.lines().find(|line| line.to_lowercase().starts_with("location: "));
    line.map_or_else(String::new, |line| line["location: ".len()..].trim().to_owned())
}

/// The value of a cookie that a response sets, as a header.
fn cookie(response: &Response, name: &str) -> String {
    let start = format!("{name}=");
    let value = response.raw_head.split(&start).nth(1).unwrap().split(';').next().unwrap();
    format!("cookie: {name}={value}")
}

fn ensure(is_met: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if is_met { Ok(()) } else { Err(what()) }
}

fn cases(world: &World) {
    let issuer = metadata_provider();
    let config = config(world, &issuer);
    let app = App::start(world, &["--config", &config], &Value::Null);
    let test = "tests/e2e/served/ports.rs::cases";
    drive(test, "endpoint_proxy.json", |case| match case.name.as_str() {
        "raw endpoint hidden" => raw_endpoint_hidden(&app),
        "no login" => no_login(&app),
        "exposedPorts" => exposed_ports(&app),
        "defaultPort" => default_port(&app),
        "plain challenge refused" => plain_challenge(&app),
        "code single use and short" => code_single_use(&app),
        "state mismatch or replay" => state_mismatch(&app),
        "our cookie never reaches the sandbox" => own_cookie(&app),
        "app cannot set cookies for parents or siblings" => parent_cookies(&app),
        "termination cuts live connections" => termination(&app),
        "signed url" => signed_links(&app),
        "present but wrong header" => wrong_header(&app),
        "hop-by-hop and smuggling" => smuggling(&app),
        "WebSocket" => web_sockets(&app),
        "HTML to Markdown" => markdown(&app),
        _ => no_driver(),
    });
}

fn raw_endpoint_hidden(app: &App<'_>) -> Result<(), String> {
    let (token, cookie) = (app.access(3000), app.session(3000));
    let path = format!("/v1/sandboxes/{}/proxy/3000", app.id);
    for path_of_app in ["/redirect", "/set", "/html"] {
        let by_path = app.server.request(&format!("GET {path}{path_of_app}"), &[&token], b"");
        let by_name = app.ask(&format!("GET {path_of_app}"), &app.host(3000), &[&cookie]);
        for response in [by_path, by_name] {
            for hidden in ["127.0.0.1", "10.0.0.7", "via:", "domain="] {
                ensure(!response.head.contains(hidden), || format!("{hidden}: {}", response.head))?;
            }
        }
    }
    let redirect = app.server.request(&format!("GET {path}/redirect"), &[&token], b"");
    ensure(location(&redirect) == format!("{path}/next?a=b"), || redirect.head.clone())?;
    let redirect = app.ask("GET /redirect", &app.host(3000), &[&cookie]);
    ensure(location(&redirect) == "/next?a=b", || redirect.head.clone())?;
    let token = app.access(3999);
    let dead =
        app.server.request(&format!("GET /v1/sandboxes/{}/proxy/3999/", app.id), &[&token], b"");
    ensure(dead.status == 503 && !dead.text().contains("127.0.0.1"), || dead.text())
}

fn no_login(app: &App<'_>) -> Result<(), String> {
    let host = app.host(3000);
    let page = app.ask("GET /a?b=c", &host, &["accept: text/html"]);
    let to = location(&page);
    ensure(page.status == 302, || page.head.clone())?;
    ensure(to.starts_with(&format!("http://localhost:{}/auth/", app.server.port)), || to.clone())?;
    ensure(!parameter(&to, "state").is_empty(), || to.clone())?;
    ensure(parameter(&to, "code_challenge_method") == "S256", || to.clone())?;
    ensure(parameter(&to, "code_challenge").len() == 43, || to.clone())?;
    for headers in [
        &["accept: application/json"][..],
        &[],
        &["accept: text/html", "connection: upgrade", "upgrade: websocket"],
        &["accept: text/html", "sec-fetch-mode: cors"],
        &["accept: text/html", "sec-fetch-mode: navigate", "sec-fetch-dest: iframe"],
        &["cookie: __Host-stockade-session=x"],
    ] {
        let refused = app.ask("GET /", &host, headers);
        ensure(refused.status == 401, || format!("{headers:?}: {}", refused.head))?;
    }
    let posted = app.ask("POST /", &host, &["accept: text/html"]);
    ensure(posted.status == 401, || posted.head.clone())?;
    // The provider is asked with a challenge, too.
    let path = to.split_once("/auth/").unwrap().1;
    let at_provider = app.ask(&format!("GET /auth/{path}"), &app.server.host(), &[]);
    let to = location(&at_provider);
    ensure(at_provider.status == 302 && to.contains("/authorize?"), || at_provider.head.clone())?;
    ensure(parameter(&to, "code_challenge_method") == "S256", || to.clone())?;
    ensure(!parameter(&to, "nonce").is_empty(), || to.clone())
}

fn exposed_ports(app: &App<'_>) -> Result<(), String> {
    let extensions = json!({ "stockade.exposedPorts": [3000] });
    let id = start_app(&app.server, &app.key, &["3000", "3001"], &extensions);
    for port in [22, 3001] {
        let token = app.server.token(&app.key, &id, port);
        let line = format!("GET /v1/sandboxes/{id}/proxy/{port}/");
        let refused = app.server.request(&line, &[&token], b"");
        ensure(refused.status == 404, || format!("{port}: {}", refused.head))?;
        let host = format!("{port}-{id}.localhost:{}", app.server.port);
        let refused = app.ask("GET /", &host, &[&token]);
        ensure(refused.status == 404, || format!("{port}: {}", refused.head))?;
        let opened = app.world.stockade(&["open", &id, &port.to_string()]).finish();
        ensure(opened.code() != 0, || format!("{opened}"))?;
    }
    let token = app.server.token(&app.key, &id, 3000);
    let line = format!("GET /v1/sandboxes/{id}/proxy/3000/received");
    let received = app.server.request(&line, &[&token], b"");
    let others = received.value().as_array().unwrap().iter().any(|it| it[0] != 3000);
    ensure(!others, || received.text())
}

fn default_port(app: &App<'_>) -> Result<(), String> {
    let extensions = json!({ "stockade.defaultPort": 3000 });
    let id = start_app(&app.server, &app.key, &["3000"], &extensions);
    let outcome = app.world.stockade(&["open", &id, "--json"]).finish();
    let link = outcome.succeeds().json()["url"].as_str().unwrap().to_owned();
    let host = format!("{id}.localhost:{}", app.server.port);
    ensure(link.starts_with(&format!("http://{host}/")), || link.clone())?;
    let (opened, cookie) = app.follow(&link);
    ensure(opened.status == 302, || opened.head.clone())?;
    let shown = app.ask("GET /x", &host, &[&cookie]);
    ensure(shown.status == 200 && shown.value()["port"] == 3000, || shown.head.clone())
}

fn plain_challenge(app: &App<'_>) -> Result<(), String> {
    let page = app.ask("GET /", &app.host(3000), &["accept: text/html"]);
    let to = location(&page);
    let path = to.split_once("/auth/").unwrap().1;
    let ask = |path: &str| app.ask(&format!("GET /auth/{path}"), &app.server.host(), &[]);
    ensure(ask(path).status == 302, || path.to_owned())?;
    let challenge = parameter(path, "code_challenge");
    for bad in [
        path.replace("S256", "plain"),
        path.replace("&code_challenge_method=S256", ""),
        path.replace(&format!("&code_challenge={challenge}"), ""),
        path.replace(challenge, "short"),
        path.replace("response_type=code", "response_type=token"),
        path.replace("callback", "elsewhere"),
        path.replace("localhost", "evil.example"),
        path.replace("client_id=3000", "client_id=3001"),
        format!("{path}&state=again"),
        path.replace("state=", "other="),
    ] {
        let refused = ask(&bad);
        ensure(refused.status == 400, || format!("{bad}: {}", refused.head))?;
        ensure(location(&refused).is_empty(), || refused.head.clone())?;
    }
    Ok(())
}

fn code_single_use(app: &App<'_>) -> Result<(), String> {
    let link = app.link(&["3000", "--path", "/a?b=c"]);
    let (opened, cookie) = app.follow(&link);
    ensure(opened.status == 302 && location(&opened) == "/a?b=c", || opened.head.clone())?;
    let ask = |cookie: &str| app.ask("GET /a?b=c", &app.host(3000), &[cookie]).status;
    ensure(ask(&cookie) == 200, || "the session".to_owned())?;
    let (again, none) = app.follow(&link);
    ensure(again.status == 400 && again.text().contains("invalid_grant"), || again.text())?;
    ensure(none == "cookie: none=1", || none.clone())?;
    ensure(ask(&cookie) == 401, || "the session of the first use has ended".to_owned())?;
    let link = app.link(&["3000"]);
    let database = rusqlite::Connection::open(app.world.data().join("stockade.db")).unwrap();
    database.busy_timeout(PATIENCE).unwrap();
    database.execute("UPDATE browser_codes SET expires_at = 0", []).unwrap();
    let (late, _) = app.follow(&link);
    ensure(late.status == 400 && late.text().contains("invalid_grant"), || late.text())?;
    // A code is for one host name.
    let link = app.link(&["3000"]).replace("//3000-", "//3001-");
    let (elsewhere, _) = app.follow(&link);
    ensure(elsewhere.status == 400, || elsewhere.text())
}

fn state_mismatch(app: &App<'_>) -> Result<(), String> {
    let own = app.server.host();
    let refused = |line: &str, host: &str, headers: &[&str], status: u16| {
        let refused = app.ask(line, host, headers);
        let has_session = refused.head.contains("__host-stockade-session");
        ensure(refused.status == status && !has_session, || {
            format!("{line} {headers:?}: {} {}", refused.head, refused.text())
        })
    };
    refused("GET /auth/callback?code=c&state=unknown", &own, &[], 400)?;
    let page = app.ask("GET /", &app.host(3000), &["accept: text/html"]);
    let started = cookie(&page, "__Host-stockade-login");
    let state = parameter(&location(&page), "state").to_owned();
    let path = location(&page).split_once("/auth/").unwrap().1.to_owned();
    let start = || {
        let at_provider = app.ask(&format!("GET /auth/{path}"), &own, &[]);
        let browser = cookie(&at_provider, "__Host-stockade-login");
        (parameter(&location(&at_provider), "state").to_owned(), browser)
    };
    // Another browser than the one that has started the login.
    let (of_provider, browser) = start();
    let line = format!("GET /auth/callback?code=c&state={of_provider}");
    refused(&line, &own, &[], 400)?;
    refused(&line, &own, &[&browser], 400)?;
    // The provider does not accept the code; the state is used all the same.
    let (of_provider, browser) = start();
    let line = format!("GET /auth/callback?code=c&state={of_provider}");
    refused(&line, &own, &[&browser], 403)?;
    refused(&line, &own, &[&browser], 400)?;
    let (of_provider, browser) = start();
    let line = format!("GET /auth/callback?code=c&state={of_provider}&iss=http://evil.example");
    refused(&line, &own, &[&browser], 403)?;
    let host = app.host(3000);
    refused("GET /.stockade/callback?code=c&state=other", &host, &[&started], 400)?;
    refused(&format!("GET /.stockade/callback?code=c&state={state}"), &host, &[], 400)?;
    refused(&format!("GET /.stockade/callback?code=c&state={state}"), &host, &[&started], 400)
}

fn own_cookie(app: &App<'_>) -> Result<(), String> {
    let session = app.session(3000);
    let cookies = format!("{session}; app=1; __host-stockade-login=x; other=2");
    let key = "authorization: Bearer e2b_secret";
    let headers = [cookies.as_str(), key, "x-api-key: secret", "x-forwarded-for: 10.0.0.7"];
    let shown = app.ask("GET /x", &app.host(3000), &headers);
    ensure(shown.status == 200, || shown.head.clone())?;
    let text = shown.text();
    for secret in ["stockade-", "secret", "10.0.0.7"] {
        ensure(!text.contains(secret), || format!("{secret}: {text}"))?;
    }
    // Simple servers know headers by the usual form of their names only.
    let names = shown.value()["names"].clone();
    let has = |name: &str| names.as_array().is_some_and(|names| names.contains(&json!(name)));
    ensure(has("Host") && has("X-Forwarded-Host"), || text.clone())?;
    ensure(text.contains("app=1; other=2"), || text.clone())?;
    // What the application itself has given out is not the server's.
    let own = app.ask("GET /x", &app.host(3000), &[&session, "authorization: Bearer own"]);
    ensure(own.text().contains("Bearer own"), || own.text())
}

fn parent_cookies(app: &App<'_>) -> Result<(), String> {
    let session = app.session(3000);
    let set = app.ask("GET /set", &app.host(3000), &[&session]);
    let cookies: Vec<_> =
        set.head.lines().filter(|line| line.starts_with("set-cookie: ")).collect();
    same(vec!["set-cookie: app=1; path=/", "set-cookie: wide=1; path=/"], cookies)
}

fn termination(app: &App<'_>) -> Result<(), String> {
    for (change, is_paused) in [("POST /pause", true), ("DELETE ", false)] {
        let id = start_app(&app.server, &app.key, &["3000"], &Value::Null);
        let token = app.server.token(&app.key, &id, 3000);
        let host = format!("3000-{id}.localhost:{}", app.server.port);
        let connected = Frames::connect(&app.server, "/socket", &host, &[&token]);
        let mut socket = connected.map_err(|(_, answer)| answer)?;
        socket.send(1, b"hello");
        ensure(socket.receive()? == (1, b"hello".to_vec()), || "no echo".to_owned())?;
        let head = super::head(
            &format!("GET /v1/sandboxes/{id}/proxy/3000/drip"),
            &app.server.host(),
            &[&token],
            b"",
        );
        let mut stream = TcpStream::connect(("127.0.0.1", app.server.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        let (method, path) = change.split_once(' ').unwrap();
        let line = format!("{method} /v1/sandboxes/{id}{path}");
        let changed = app.server.request(&line, &[&format!("x-api-key: {}", app.key)], b"");
        ensure(changed.status < 300, || changed.text())?;
        ensure(socket.is_cut(), || format!("{change}: the WebSocket is not cut"))?;
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        let is_reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        let is_cut = ended.as_ref().is_ok() || ended.as_ref().is_err_and(is_reset);
        ensure(is_cut, || format!("{change}: the stream is not cut: {ended:?}"))?;
        let is_complete = rest.ends_with(b"0\r\n\r\n");
        ensure(!is_complete, || format!("{change}: the stream looks complete"))?;
        let status =
            app.server.request(&format!("GET /v1/sandboxes/{id}/proxy/3000/"), &[&token], b"");
        let expected = if is_paused { 409 } else { 404 };
        ensure(status.status == expected, || status.text())?;
    }
    Ok(())
}

fn signed_links(app: &App<'_>) -> Result<(), String> {
    let path = app.signed(3000, 3600);
    ensure(app.get(&format!("{path}/a")) == 200, || path.clone())?;
    // Any page may show what the link alone opens.
    let cross = app.server.request(&format!("GET {path}/a"), &["sec-fetch-site: cross-site"], b"");
    ensure(cross.status == 200, || cross.text())?;
    ensure(cross.head.contains("content-security-policy: sandbox"), || cross.head.clone())?;
    let other = start_app(&app.server, &app.key, &["3000"], &Value::Null);
    let parts: Vec<_> = path.split('~').collect();
    let [port, expires, key, signer, signature] = parts.as_slice() else {
        return Err(format!("{path} has not five parts"));
    };
    let later = (expires.parse::<u64>().unwrap() + 60).to_string();
    let flipped = if signature.starts_with('0') { "1" } else { "0" };
    let flipped = format!("{flipped}{}", &signature[1..]);
    let upper = signature.to_uppercase();
    let link = |parts: &[&str]| parts.join("~");
    for (what, altered) in [
        ("port", path.replace("/3000~", "/3001~")),
        ("own port", path.replace("/3000~", "/44772~")),
        ("id", path.replace(&app.id, &other)),
        ("expiry", link(&[port, &later, key, signer, signature])),
        ("key", link(&[port, expires, "local", signer, signature])),
        ("signer", link(&[port, expires, key, "00000000", signature])),
        ("signature", link(&[port, expires, key, signer, &flipped])),
        ("form", link(&[port, expires, key, signer, &upper])),
        ("no signature", link(&[port, expires, key, signer, ""])),
        ("half", link(&[port, expires, key, signer, &signature[..32]])),
    ] {
        let status = app.get(&format!("{altered}/a"));
        ensure(status == 401, || format!("{what}: {status} for {altered}"))?;
    }
    let short = app.signed(3000, 1);
    let mut status = app.get(&short);
    for _ in 0..200 {
        if status == 401 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        status = app.get(&short);
    }
    ensure(status == 401, || format!("expired: {status}"))?;
    for query in
        ["expires=1", "expires=99999999999", "expires=x", "expires=9&use_server_proxy=true"]
    {
        let line = format!("GET /v1/sandboxes/{}/endpoints/3000?{query}", app.id);
        let refused = app.server.request(&line, &[&format!("x-api-key: {}", app.key)], b"");
        ensure(refused.status == 400, || format!("{query}: {}", refused.text()))?;
    }
    Ok(())
}

fn wrong_header(app: &App<'_>) -> Result<(), String> {
    let path = app.signed(3000, 3600);
    let with = |header: &str| app.server.request(&format!("GET {path}/"), &[header], b"").status;
    let (right, wrong) = (app.access(3000), app.access(3001));
    ensure(with(&right) == 200, || "a valid token".to_owned())?;
    for header in [wrong.as_str(), "OpenSandbox-Secure-Access: x", "OpenSandbox-Secure-Access: "] {
        ensure(with(header) == 401, || header.to_owned())?;
    }
    // The same under a host name: a session does not make up for it.
    let session = app.session(3000);
    let status = app.ask("GET /", &app.host(3000), &[&session, &wrong]).status;
    ensure(status == 401, || format!("a session and a wrong token: {status}"))
}

fn smuggling(app: &App<'_>) -> Result<(), String> {
    let session = app.session(3000);
    let token = app.access(3000);
    let by_path = format!("/v1/sandboxes/{}/proxy/3000", app.id);
    for (prefix, host, secret) in
        [("", app.host(3000), &session), (by_path.as_str(), app.server.host(), &token)]
    {
        let send = |headers: &str, body: &str| {
            let head = format!(
                "POST {prefix}/x HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{secret}\r\n\
                 {headers}\r\n\r\n"
            );
            app.server.raw(&head, body.as_bytes())
        };
        for headers in [
            "transfer-encoding: chunked\r\ncontent-length: 5",
            "content-length: 5\r\ntransfer-encoding: chunked",
            "content-length: 5\r\ncontent-length: 6",
            "content-length: 5, 5",
            "content-length: +5",
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: chunked\r\ntransfer-encoding: identity",
            "transfer-encoding: xchunked",
        ] {
            let refused = send(headers, "0\r\n\r\n");
            // Refused, or passed on with the one length that counts.
            let is_safe = match refused.status {
                400 | 501 => true,
                200 => {
                    let text = refused.text();
                    refused.value()["body"] == "" && !text.contains("content-length")
                }
                _ => false,
            };
            ensure(is_safe, || format!("{headers}: {} {}", refused.head, refused.text()))?;
        }
        let named = send(
            "connection: x-hop\r\nx-hop: 1\r\nkeep-alive: 5\r\nte: trailers\r\n\
             proxy-authorization: Basic x\r\ncontent-length: 2",
            "{}",
        );
        ensure(named.status == 200, || named.head.clone())?;
        let text = named.text();
        for header in ["x-hop", "keep-alive", "\"te\"", "proxy-auth"] {
            ensure(!text.contains(header), || format!("{header}: {text}"))?;
        }
        ensure(named.value()["body"] == "{}", || text.clone())?;
        let chunked = send("transfer-encoding: chunked", "2\r\n{}\r\n0\r\n\r\n");
        ensure(chunked.value()["body"] == "{}", || chunked.text())?;
        for method in ["PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"] {
            let line = format!("{method} {prefix}/any?x=%2F");
            let answered = app.ask(&line, &host, &[secret]);
            ensure(answered.value()["method"] == method, || answered.text())?;
            ensure(answered.value()["path"] == "/any?x=%2F", || answered.text())?;
        }
    }
    Ok(())
}

fn web_sockets(app: &App<'_>) -> Result<(), String> {
    let (session, host) = (app.session(3000), app.host(3000));
    let open = |path, headers: &[&str]| Frames::connect(&app.server, path, &host, headers);
    let refusal = |(_, answer): (u16, String)| answer;
    let mut socket = open("/socket", &[&session]).map_err(refusal)?;
    let large: Vec<u8> = (0..1_u32 << 20).map(|at| (at % 251) as u8).collect();
    socket.send(2, &large);
    let (opcode, echo) = socket.receive()?;
    ensure(opcode == 2 && echo == large, || format!("{opcode}, {} bytes", echo.len()))?;
    socket.send(9, b"ping");
    ensure(socket.receive()? == (10, b"ping".to_vec()), || "no pong".to_owned())?;
    socket.send(8, &4001_u16.to_be_bytes());
    ensure(socket.receive()? == (8, 4001_u16.to_be_bytes().to_vec()), || "no close".to_owned())?;
    ensure(socket.is_cut(), || "the connection stays open".to_owned())?;
    // A server that reads nothing makes the client wait: the relay stores little.
    let mut socket = open("/silent", &[&session]).map_err(refusal)?;
    socket.0.set_write_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
    let part = vec![0; 1 << 20];
    let sent = (0..256).take_while(|_| socket.0.write_all(&part).is_ok()).count();
    ensure(sent < 256, || "256 MiB were accepted".to_owned())?;
    // A page of another origin cannot use the session.
    let refused = open("/socket", &[&session, "origin: http://evil.example"]);
    ensure(refused.is_err_and(|(status, _)| status == 403), || "a foreign origin".to_owned())
}

fn markdown(app: &App<'_>) -> Result<(), String> {
    let program = "import http.client, json, socket, sys\n\
        class Local(http.client.HTTPConnection):\n\
        \x20def connect(self):\n\
        \x20 self.sock = socket.socket(socket.AF_UNIX)\n\
        \x20 self.sock.connect(sys.argv[1])\n\
        local = Local('localhost')\n\
        local.request('POST', '/v0/call/http_request', sys.argv[2])\n\
        print(local.getresponse().read().decode())\n";
    let socket = app.world.data().join("server/socket");
    let ask = |limit: u64| {
        let request = json!({
            "sandboxId": app.id, "port": 3000, "path": "/html", "markdown": true,
            "limitBytes": limit,
        });
        let words = ["-c", program, socket.to_str().unwrap(), &request.to_string()];
        let outcome = app.world.on_host(std::path::Path::new("/usr/bin/python3"), &words).finish();
        outcome.succeeds().json()
    };
    let answer = ask(1 << 20);
    let text = answer["body"]["text"].as_str().or_else(|| answer["body"].as_str());
    let text = text.ok_or_else(|| answer.to_string())?.to_owned();
    ensure(answer["markdown"] == true, || answer.to_string())?;
    ensure(text.contains("# Title") && text.contains("[link](/more)"), || text.clone())?;
    ensure(!text.contains("alert") && !text.contains("color: red"), || text.clone())?;
    let capped = ask(20);
    ensure(capped["truncated"] == true, || capped.to_string())
}

fn attacks(world: &World) {
    let issuer = metadata_provider();
    let config = config(world, &issuer);
    let app = App::start(world, &["--config", &config], &Value::Null);
    let session = app.session(3000);
    let (own, host) = (app.server.host(), app.host(3000));
    let port = app.server.port;
    let ask = |line: &str, host: &str, headers: &[&str]| app.ask(line, host, headers).status;
    assert_eq!(ask("GET /x", &host, &[&session]), 200);

    // A session is for one host name, and opens nothing of the server.
    let id = &app.id;
    for name in [
        format!("3001-{id}.localhost:{port}"),
        format!("{id}.localhost:{port}"),
        format!("44772-{id}.localhost:{port}"),
        format!("3000-other.localhost:{port}"),
    ] {
        assert_eq!(ask("GET /x", &name, &[&session]), 401, "{name}");
    }
    for line in ["GET /v1/sandboxes", "POST /api/sandbox", "GET /v1/nothing"] {
        assert_eq!(ask(line, &own, &[&session]), 401, "{line}");
    }
    let by_path = format!("GET /v1/sandboxes/{id}/proxy/3000/x");
    assert_eq!(ask(&by_path, &own, &[&session]), 401);
    // No path of the server lies under the name of a port: the application answers.
    for line in ["GET /v1/sandboxes", "GET /health", "GET /playground", "GET /auth/authorize"] {
        let answered = app.ask(line, &host, &[&session]);
        let path = line.split(' ').nth(1).unwrap();
        assert_eq!(answered.value()["path"], path, "{}", answered.text());
    }
    assert_eq!(ask("GET /.stockade/other", &host, &[&session]), 404);

    // Host names that confuse, among them those of another site that leads here.
    for name in [
        format!("3000-{id}.localhost.evil.example:{port}"),
        format!("3000-{id}.evil.example:{port}"),
        format!("3000-{id}.127.0.0.1:{port}"),
        format!("3000-{id}@localhost:{port}"),
        "evil.example".to_owned(),
    ] {
        assert_eq!(ask("GET /x", &name, &[&session]), 403, "{name}");
    }
    for name in [format!("a.3000-{id}.localhost:{port}"), format!(".localhost:{port}")] {
        assert_eq!(ask("GET /x", &name, &[&session]), 404, "{name}");
    }
    assert_eq!(ask("GET /x", &format!("3000-{id}.LOCALHOST.:{port}"), &[&session]), 200);
    let two = format!("host: {own}");
    assert_eq!(ask("GET /x", &host, &[&session, &two]), 403);
    let absolute = format!("GET http://{own}/v1/sandboxes");
    assert_eq!(ask(&absolute, &host, &[&session]), 403);
    let rebound = format!("GET http://{host}/x");
    assert_eq!(ask(&rebound, "evil.example", &[&session]), 403);

    // Pages of other origins, also of the same sandbox.
    let foreign = [
        format!("origin: http://3001-{id}.localhost:{port}"),
        format!("origin: http://{own}"),
        "origin: null".to_owned(),
        "sec-fetch-site: same-site".to_owned(),
        "sec-fetch-site: cross-site".to_owned(),
    ];
    for header in &foreign {
        assert_eq!(ask("POST /x", &host, &[&session, header]), 403, "{header}");
        assert_eq!(ask("GET /x", &host, &[&session, header]), 403, "{header}");
        assert_eq!(ask("GET /v1/sandboxes", &own, &[header]) / 100, 4, "{header}");
    }
    let origin = format!("origin: http://{host}");
    assert_eq!(ask("POST /x", &host, &[&session, &origin]), 200);
    let navigation = [
        session.as_str(),
        "sec-fetch-site: cross-site",
        "sec-fetch-mode: navigate",
        "sec-fetch-dest: document",
    ];
    assert_eq!(ask("GET /x", &host, &navigation), 200);
    assert_eq!(ask("POST /x", &host, &navigation), 403);

    // A session that another page chooses: by a link, by a second cookie, by a login of its own.
    let link = app.link(&["3000"]);
    let path = link.split_once(&host).unwrap().1;
    for header in
        ["sec-fetch-site: cross-site", "sec-fetch-site: same-origin", "sec-purpose: prefetch"]
    {
        assert_eq!(ask(&format!("GET {path}"), &host, &[header]), 403, "{header}");
    }
    assert_eq!(ask(&format!("POST {path}"), &host, &[]), 400);
    assert_eq!(ask(&format!("GET {path}&path=//evil.example"), &host, &[]), 400);
    assert_eq!(ask(&format!("GET {path}&path=https://evil.example"), &host, &[]), 400);
    let (opened, other) = app.follow(&link);
    assert_eq!(opened.status, 302, "no attempt has used it");
    assert_ne!(other, session, "each session is new");
    let both = format!("{session}; {}", other.strip_prefix("cookie: ").unwrap());
    assert_eq!(ask("GET /x", &host, &[&both]), 401);
    let page = app.ask("GET //evil.example/a", &host, &["accept: text/html"]);
    let started = cookie(&page, "__Host-stockade-login");
    assert!(started.ends_with(".Lw"), "it returns to `/`: {started}");

    // Another owner, with a key of its own, and after the sandbox has another owner.
    let (other_key, _) = key(world, &["--owner", "other"]);
    let line = format!("GET /v1/sandboxes/{id}/endpoints/3000?expires=9");
    let refused = app.server.request(&line, &[&format!("x-api-key: {other_key}")], b"");
    assert_eq!(refused.status, 404, "{}", refused.text());
    let theirs = start_app(&app.server, &other_key, &["3000"], &Value::Null);
    let opened = world.stockade(&["open", &theirs, "3000"]).finish();
    assert!(opened.stderr.contains("NOT_FOUND") || opened.code() != 0, "{opened}");
    let signed = app.signed(3000, 3600);
    let token = app.access(3000);
    let mut socket = Frames::connect(&app.server, "/socket", &host, &[&session]).ok().unwrap();
    socket.send(1, b"a");
    assert_eq!(socket.receive(), Ok((1, b"a".to_vec())));
    let database = rusqlite::Connection::open(world.data().join("stockade.db")).unwrap();
    database.busy_timeout(PATIENCE).unwrap();
    let sql = "UPDATE sandbox_instances SET owner_id = 'other' WHERE id = ?1";
    assert_eq!(database.execute(sql, [id]).unwrap(), 1);
    assert!(socket.is_cut(), "the connection of the old owner is cut");
    assert_eq!(ask("GET /x", &host, &[&session]), 401);
    assert_eq!(app.get(&signed), 401);
    assert_eq!(ask(&by_path, &own, &[&token]), 401);
}

as_root_and_as_user!(cases, attacks);
