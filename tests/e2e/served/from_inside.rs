//! A sandbox that is allowed to reach the port of a server without keys is not taken for the user of the
//! server, although the process that connects on its behalf has the same user.

use std::io::Write as _;
use std::path::Path;

use super::{Server, key};
use crate::harness::World;
use crate::network::name_files;

/// Sends a request for each host name after the address, and prints the status of each response.
const PROGRAM: &str = r#"
use IO::Socket::INET;
my ($address, $line, @hosts) = @ARGV;
for my $host (@hosts) {
    my $s = IO::Socket::INET->new(PeerAddr => $address, Timeout => 10) or do { print "none\n"; next };
    my $create = '{"image":{"uri":"host"},"timeout":600}';
    my $body = $line =~ m{^POST /v1} ? $create : $line =~ /^POST/ ? '{}' : '';
    print $s "$line HTTP/1.1\r\nHost: $host\r\nConnection: close\r\nContent-Type: application/json\r\n",
        "Stockade-Version: VERSION\r\nContent-Length: ", length($body), "\r\n\r\n$body";
    my $answer = <$s> // "closed";
    $answer =~ s{^HTTP/1.1 (\d+).*}{$1}s;
    print "$answer\n";
}
"#;

/// A proxy of the user that leads every name to the loopback. It prints its port.
const PROXY: &str = r#"
import socket, threading
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def copy(a, b):
    while True:
        try: data = a.recv(65536)
        except OSError: data = b""
        if not data:
            try: b.shutdown(socket.SHUT_WR)
            except OSError: pass
            return
        b.sendall(data)
def serve(client):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        more = client.recv(1)
        if not more: return
        head += more
    target = head.split()[1].decode()
    outside = socket.create_connection(("127.0.0.1", int(target.rsplit(":", 1)[1])))
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    threading.Thread(target=copy, args=(outside, client), daemon=True).start()
    copy(client, outside)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

const LINES: [&str; 4] = [
    "GET /v1/sandboxes",
    "POST /v1/sandboxes",
    "GET /stockade/v0/health",
    "POST /stockade/v0/call/list",
];

/// No response is one of success, and each request has had a response.
#[track_caller]
fn is_held(output: &str, requests: usize) {
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines.len(), requests, "{output}");
    for line in lines {
        let is_refused = ["401", "403", "none", "closed"].contains(&line);
        assert!(is_refused, "a sandbox was served: {output}");
    }
}

fn version(world: &World) -> String {
    let shown = world.stockade(&["--version"]).finish();
    shown.stdout.split_whitespace().nth(1).unwrap().to_owned()
}

fn the_user_of_a_sandbox_is_not_the_user_of_the_server(world: &World) {
    // Even if the server is known by the names that lead to it from inside.
    let names = ["--allowed-host", "host.stockade.internal", "--allowed-host", "server.test"];
    let server = Server::start(world, &names);
    let port = server.port;
    let program = PROGRAM.replace("VERSION", &version(world));
    let here = format!("127.0.0.1:{port}");
    let inside = format!("host.stockade.internal:{port}");
    let named = format!("server.test:{port}");
    let hosts = ["localhost", &inside, &named, &here];
    let words = |address: &str, line: &str| {
        let words = ["perl", "-e", &program, address, line];
        words.into_iter().chain(hosts).map(str::to_owned).collect::<Vec<_>>()
    };
    // A process of the user outside is served: the requests are right.
    for line in LINES {
        let own = words(&here, line);
        let own = world.on_host(Path::new("/usr/bin/perl"), &own[1..]).finish();
        assert!(own.stdout.lines().all(|status| status.starts_with('2')), "{line}: {own}");
    }
    // The same by every way out of a sandbox: of one run, and of a sandbox that the server itself holds.
    let files = name_files(world, "127.0.0.1 server.test");
    world.stockade(&["create", "--id", "box", "--allow", &inside]).finish().succeeds();
    for line in LINES {
        let request = words(&inside, line);
        let run = ["run", "--discard", "--allow", &inside, "--"].map(str::to_owned);
        let outcome = world.stockade(&[&run[..], &request].concat()).finish();
        is_held(&outcome.stdout, hosts.len());
        let exec = ["exec", "box", "--"].map(str::to_owned);
        let outcome = world.stockade(&[&exec[..], &request].concat()).finish();
        is_held(&outcome.stdout, hosts.len());
        // A name that is allowed, and its address too.
        let request = words(&named, line);
        let request: Vec<_> = request.iter().map(String::as_str).collect();
        let run = ["run", "--discard", "--allow", &named, "--allow", &here, "--"];
        let helper = ["with-names", &files[0], &files[1]];
        let outcome = world.stockade_by(&helper, &[&run[..], &request].concat()).finish();
        is_held(&outcome.stdout, hosts.len());
    }
    // A proxy of the user outside, which connects with a socket of its own.
    let script = world.path("proxy.py");
    let mut file = std::fs::File::create(&script).unwrap();
    file.write_all(PROXY.as_bytes()).unwrap();
    let mut proxy = world.on_host(Path::new("/usr/bin/python3"), &[&script]).start();
    proxy.wait_for_output("\n");
    let upstream = format!("http://127.0.0.1:{}", proxy.stdout().trim());
    for line in LINES {
        let request = words(&named, line);
        let run = ["run", "--discard", "--allow", &named, "--upstream-proxy", &upstream, "--"];
        let outcome = world.stockade(&[&run.map(str::to_owned)[..], &request].concat()).finish();
        is_held(&outcome.stdout, hosts.len());
    }
    proxy.signal(rustix::process::Signal::KILL);
    let list = world.stockade(&["ls", "--json"]).finish().json();
    let list = list["sandboxes"].as_array().unwrap();
    // Those of the requests from outside, and the one from which others were tried.
    assert_eq!(list.len(), hosts.len() + 1, "{list:?}");
    // With a key the user of a sandbox has nothing at all.
    let (mine, _) = key(world, &[]);
    let request = words(&inside, LINES[0]);
    let exec = ["exec", "box", "--"].map(str::to_owned);
    is_held(&world.stockade(&[&exec[..], &request].concat()).finish().stdout, hosts.len());
    let listed = server.request("GET /v1/sandboxes", &[&format!("x-api-key: {mine}")], b"");
    assert_eq!(listed.status, 200);
}

as_root_and_as_user!(the_user_of_a_sandbox_is_not_the_user_of_the_server);
