//! The checks of hosts and of paths compared with common servers: whatever passes the egress proxy for
//! an allowed host, no server behind it takes for a request to another one, or to a denied path. A server that is not installed is
//! skipped; `cargo xtask ci --install` installs them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "servers/heads/mod.rs"]
mod heads;
#[path = "servers/paths.rs"]
mod paths;
#[path = "servers/process.rs"]
mod process;
#[path = "servers/requests.rs"]
mod requests;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stockade_core::SandboxId;
use stockade_core::network::{Name, Policy};
use stockade_egress::{Limits, Listeners, NotFound, Options, Queue, Resolution, Resolve, Sandbox};

use process::{PATIENCE, Server};
use requests::{ALLOWED, OTHER};

/// How long a server may leave a connection open.
const SILENCE: Duration = Duration::from_secs(2);

/// The hosts of all requests so far: lower case, without port and final dot.
fn hosts(server: &Server) -> Vec<String> {
    let plain = |line: &str| {
        let host = line.strip_prefix("HOST ").unwrap_or(line).to_ascii_lowercase();
        let host = host.split(':').next().unwrap_or_default();
        host.strip_suffix('.').unwrap_or(host).to_owned()
    };
    server.log().lines().map(plain).collect()
}

/// The hosts, once there are so many.
fn wait_for_hosts(server: &Server, count: usize) -> Vec<String> {
    let tries = PATIENCE.as_millis() / 20;
    for _ in 0..tries {
        let hosts = hosts(server);
        if hosts.len() >= count {
            return hosts;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{:?}", hosts(server))
}

/// Both names have the address of this machine.
#[derive(Debug)]
struct Loopback;

#[async_trait::async_trait]
impl Resolve for Loopback {
    async fn resolve(&self, _: &Name) -> Result<Resolution, NotFound> {
        let addresses = vec!["127.0.0.1".parse().unwrap()];
        Ok(Resolution { addresses, valid: Duration::from_secs(3600) })
    }
}

/// A sandbox that may reach one of the names, but for these requests, and the address of its proxy.
fn sandbox(runtime: &tokio::runtime::Runtime, denied: Option<serde_json::Value>) -> SocketAddr {
    let rule = |target: &str| json!({"action": "allow", "target": target});
    let denied =
        denied.map(|requests| json!({"action": "deny", "target": ALLOWED, "requests": requests}));
    let rules: Vec<_> = [rule(ALLOWED), rule("127.0.0.1")].into_iter().chain(denied).collect();
    let _inside = runtime.enter();
    serve(&sandbox_with(policy(&rules)))
}

fn policy(rules: &[serde_json::Value]) -> Policy {
    serde_json::from_value(json!({"default": "deny", "rules": rules})).unwrap()
}

fn sandbox_with(policy: Policy) -> Arc<Sandbox> {
    let (queue, _) = Queue::new(1);
    Sandbox::new(Options {
        id: SandboxId::new("sb1").unwrap(),
        policy,
        limits: Limits::default(),
        resolve: Arc::new(Loopback),
        record: Arc::new(queue),
    })
}

/// Serves a sandbox in the current runtime; the address of its proxy.
fn serve(sandbox: &Arc<Sandbox>) -> SocketAddr {
    let listener = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    };
    let (everything, proxy, streams) = (listener(), listener(), listener());
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let descriptors = vec![
        everything.into(),
        proxy.into(),
        std::os::fd::OwnedFd::from(datagrams),
        streams.into(),
    ];
    let listeners = Listeners::from_descriptors(descriptors).unwrap();
    tokio::spawn(Arc::clone(sandbox).serve(listeners));
    address
}

/// Sends parts of a request through a tunnel to a server, and returns what comes back.
fn exchange(proxy: SocketAddr, server: SocketAddr, parts: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "CONNECT {ALLOWED}:{} HTTP/1.1\r\n\r\n", server.port()).unwrap();
    let mut byte = [0];
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    // A refusal may come before all parts are sent.
    for part in parts {
        if stream.write_all(part).is_err() {
            break;
        }
        std::thread::yield_now();
    }
    let _ = stream.shutdown(Shutdown::Write);
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Sends a request without the proxy, and returns what comes back.
fn direct(server: SocketAddr, host: &str, target: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let written = stream.write_all(request.as_bytes());
    let _ = written.and_then(|()| stream.read_to_end(&mut answer).map(drop));
    answer
}

/// Compares the check with one server.
fn compare(server: &Server) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let proxy = sandbox(&runtime, None);
    // The server shows which host it takes, both without the proxy and through it.
    direct(server.address, OTHER, "/");
    assert_eq!(wait_for_hosts(server, 1), [OTHER]);
    let honest = format!("GET / HTTP/1.1\r\nHost: {ALLOWED}\r\n\r\n");
    let answer = exchange(proxy, server.address, &[honest.as_bytes()]);
    assert!(answer.ends_with(b"served\n"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(wait_for_hosts(server, 2), [OTHER, ALLOWED]);
    let checked = sandbox(&runtime, Some(json!({"paths": ["/denied/*"]})));
    paths::compare(checked, server.address);
    let requests = requests::all();
    assert!(requests.len() > 300, "{}", requests.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(request) = requests.get(index) else { return };
                    exchange(proxy, server.address, &[request]);
                    let (one, two) = request.split_at(index * 7 % (request.len() + 1));
                    exchange(proxy, server.address, &[one, two]);
                }
            });
        }
    });
    let mut known = hosts(server);
    if known.iter().skip(1).all(|host| host == ALLOWED) {
        return;
    }
    // Which of them it was.
    for request in &requests {
        exchange(proxy, server.address, &[request]);
        std::thread::sleep(Duration::from_millis(5));
        let now = hosts(server);
        let new: Vec<_> = now.iter().skip(known.len()).collect();
        if new.iter().any(|host| *host != ALLOWED) {
            panic!("{new:?}: {:?}", String::from_utf8_lossy(request));
        }
        known = now;
    }
    panic!("only in parts: {known:?}");
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers").join(name)
}

#[test]
fn nginx_takes_nothing_for_another_host() {
    let Some(nginx) = process::program("nginx", "nginx-light") else { return };
    compare(&Server::start("nginx", |directory, port| {
        process::nginx(&nginx, (&file("nginx.conf"), directory), port)
    }));
}

#[test]
fn node_takes_nothing_for_another_host() {
    let Some(node) = process::program("node", "nodejs") else { return };
    compare(&Server::start("node", |_, port| {
        let mut command = Command::new(node);
        command.arg(file("node.js")).arg(port.to_string());
        command
    }));
}

#[test]
fn python_takes_nothing_for_another_host() {
    let Some(python) = process::program("python3", "python3") else { return };
    compare(&Server::start("python", |_, port| {
        let mut command = Command::new(python);
        command.arg(file("python.py")).arg(port.to_string());
        command
    }));
}

#[test]
fn waitress_takes_nothing_for_another_host() {
    let Some(python) = process::python_with("waitress", "python") else { return };
    compare(&Server::start("waitress", |_, port| {
        let mut command = Command::new(python);
        command.arg(file("waitress_server.py")).arg(port.to_string());
        command
    }));
}

#[test]
fn go_takes_nothing_for_another_host() {
    let Some(program) = process::built_by_go(&file("server.go"), "servers-go") else { return };
    compare(&Server::start("go", |_, port| {
        let mut command = Command::new(program);
        command.arg(port.to_string());
        command
    }));
}
