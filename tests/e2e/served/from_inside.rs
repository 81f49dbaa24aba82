//! A sandbox that is allowed to reach the port of a server without keys is not taken for the user of the
//! server, although the process that connects on its behalf has the same user.

use std::path::Path;

use super::{Server, key};
use crate::call::Outcome;
use crate::harness::World;
use crate::network::name_files;

/// Sends a request for each host name after the address, and prints the status of each response. The
/// connection is a direct one, or one through the proxy of the sandbox.
const PROGRAM: &str = r#"
use IO::Socket::INET;
my ($way, $address, $line, @hosts) = @ARGV;
my $path = $line =~ s/ with a path//;
my ($proxy) = ($ENV{https_proxy} || $ENV{HTTPS_PROXY} || "") =~ m{//([^/]+)};
HOST: for my $host (@hosts) {
    my $to = $way eq "proxy" ? $proxy : $address;
    my $s = IO::Socket::INET->new(PeerAddr => $to, Timeout => 10) or do { print "none\n"; next };
    if ($way eq "proxy") {
        print $s "CONNECT $address HTTP/1.1\r\nHost: $address\r\n\r\n";
        my $head = "";
        while ($head !~ /\r\n\r\n/) {
            sysread($s, my $byte, 1) or do { print "none\n"; next HOST };
            $head .= $byte;
        }
        $head =~ m{^HTTP/1.. 200} or do { print "none\n"; next HOST };
    }
    my $create = '{"image":{"uri":"host"},"timeout":600}';
    $create =~ s/}$/,"volumes":[{"name":"a","mountPath":"\/a","host":{"path":"\/srv"}}]}/ if $path;
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

/// Requests that need a caller.
const LINES: [&str; 5] = [
    "GET /v1/sandboxes",
    "POST /v1/sandboxes",
    "POST /v1/sandboxes with a path",
    "GET /stockade/v0/health",
    "POST /stockade/v0/call/list",
];
/// One that needs none: whoever gets an answer has reached the server.
const REACHES: &str = "GET /health";

fn version(world: &World) -> String {
    let shown = world.stockade(&["--version"]).finish();
    shown.stdout.split_whitespace().nth(1).unwrap().to_owned()
}

/// The words that send requests, with these host names.
struct Requests {
    program: String,
    hosts: [String; 4],
}

impl Requests {
    fn words(&self, way: &str, address: &str, line: &str) -> Vec<String> {
        let words = ["perl", "-e", &self.program, way, address, line].map(str::to_owned);
        words.into_iter().chain(self.hosts.clone()).collect()
    }

    /// Attacks the server: it is reached, and serves nothing that needs a caller.
    #[track_caller]
    fn are_refused(&self, way: &str, address: &str, send: impl Fn(&[&str]) -> Outcome) {
        let ask = |line| {
            let words = self.words(way, address, line);
            send(&words.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let reached = ask(REACHES);
        assert!(reached.stdout.contains("200"), "{way} {address} proves nothing: {reached}");
        for line in LINES {
            let outcome = ask(line);
            let lines: Vec<_> = outcome.stdout.lines().collect();
            assert_eq!(lines.len(), self.hosts.len(), "{outcome}");
            for status in lines {
                let is_refused = ["401", "403", "none", "closed"].contains(&status);
                assert!(is_refused, "{way} {address} {line}: a sandbox was served: {outcome}");
            }
        }
    }
}

fn the_user_of_a_sandbox_is_not_the_user_of_the_server(world: &World) {
    // Even if the server is known by the names that lead to it from inside.
    let names = ["--allowed-host", "host.stockade.internal", "--allowed-host", "server.test"];
    let server = Server::start(world, &names);
    let port = server.port;
    let here = format!("127.0.0.1:{port}");
    let inside = format!("host.stockade.internal:{port}");
    let named = format!("server.test:{port}");
    let hosts = ["localhost".to_owned(), inside.clone(), named.clone(), here.clone()];
    let requests = Requests { program: PROGRAM.replace("VERSION", &version(world)), hosts };
    // A process of the user outside is served: the requests are right.
    for line in LINES {
        let own = requests.words("direct", &here, line);
        let own = world.on_host(Path::new("/usr/bin/perl"), &own[1..]).finish();
        assert_eq!(own.stdout.lines().count(), 4, "{own}");
        // Other names than those of the loopback may be those of a tunnel: they name no path.
        let served = |host: &str, status: &str| match line.ends_with("path") {
            true if host != "localhost" && host != here => status == "403",
            _ => status.starts_with('2'),
        };
        let mut all = requests.hosts.iter().zip(own.stdout.lines());
        assert!(all.all(|(host, status)| served(host, status)), "{line}: {own}");
    }
    // The same from inside: of one run, and of a sandbox that the server itself holds.
    world.stockade(&["create", "--id", "box", "--allow", &inside]).finish().succeeds();
    let files = name_files(world, "127.0.0.1 server.test");
    let helper = ["with-names", files[0].as_str(), &files[1]];
    for way in ["direct", "proxy"] {
        requests.are_refused(way, &inside, |words| {
            let run = ["run", "--discard", "--allow", &inside, "--"];
            world.stockade(&[&run[..], words].concat()).finish()
        });
        requests.are_refused(way, &inside, |words| {
            world.stockade(&[&["exec", "box", "--"][..], words].concat()).finish()
        });
        // A name that is allowed, and its address too.
        requests.are_refused(way, &named, |words| {
            let run = ["run", "--discard", "--allow", &named, "--allow", &here, "--"];
            world.stockade_by(&helper, &[&run[..], words].concat()).finish()
        });
    }
    // The address alone: nothing then compares the host name of the request.
    requests.are_refused("proxy", &here, |words| {
        let run = ["run", "--discard", "--allow", &named, "--allow", &here, "--"];
        world.stockade_by(&helper, &[&run[..], words].concat()).finish()
    });
    // A proxy of the user outside, which connects with a socket of its own.
    let script = world.path("proxy.py");
    world.plant(&script, PROXY);
    let mut proxy = world.on_host(Path::new("/usr/bin/python3"), &[&script]).start();
    proxy.wait_for_output("\n");
    let upstream = format!("http://127.0.0.1:{}", proxy.stdout().trim());
    requests.are_refused("proxy", &named, |words| {
        let run = ["run", "--discard", "--allow", &named, "--upstream-proxy", &upstream, "--"];
        world.stockade(&[&run[..], words].concat()).finish()
    });
    proxy.signal(rustix::process::Signal::KILL);
    let list = world.stockade(&["ls", "--json"]).finish().json();
    let list = list["sandboxes"].as_array().unwrap();
    // Those of the requests from outside, and the one from which others were tried.
    assert_eq!(list.len(), requests.hosts.len() + 2 + 1, "{list:?}");
    // As soon as there is a key, nothing but a key counts.
    let (mine, _) = key(world, &[]);
    requests.are_refused("direct", &inside, |words| {
        world.stockade(&[&["exec", "box", "--"][..], words].concat()).finish()
    });
    let listed = server.request("GET /v1/sandboxes", &[&format!("x-api-key: {mine}")], b"");
    assert_eq!(listed.status, 200);
}

as_root_and_as_user!(the_user_of_a_sandbox_is_not_the_user_of_the_server);
