//! A network by policy: whatever a program tries, it connects only to hosts that the policy names.

use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use crate::harness::World;
use crate::host;
use crate::network::{Server, run_with_names};

/// An egress proxy that allows no host.
const BY_POLICY: [&str; 2] = ["--net", "policy"];

/// Every address of a server on the host's loopback, by direct connections and through the proxy.
fn host_loopback_tcp(world: &World) {
    let (first, second) = host::token();
    let token = format!("{first}{second}");
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Some(server) = Server::start(address, &token) else { continue };
        let port = server.address.port();
        let addresses = [
            server.address.to_string(),
            format!("[::ffff:127.0.0.1]:{port}"),
            format!("[::127.0.0.1]:{port}"),
            format!("[64:ff9b::7f00:1]:{port}"),
            format!("127.1.2.3:{port}"),
            format!("0.0.0.0:{port}"),
            format!("[::]:{port}"),
            format!("localhost:{port}"),
            format!("127.1:{port}"),
            format!("0x7f.1:{port}"),
            format!("2130706433:{port}"),
        ];
        let mut words = vec!["reach", &token];
        words.extend(addresses.iter().map(String::as_str));
        // Without the sandbox's own network, nothing is sent to the other addresses.
        world.attack_bare(&["reach", &token, &addresses[0]]).escaped();
        let came = server.connections();
        // Also if all public addresses are allowed.
        for options in [&BY_POLICY[..], &["--allow", "0.0.0.0/0", "--allow", "::/0"]] {
            world.attack_with(options, &words).is_blocked();
        }
        assert_eq!(server.connections(), came, "somebody connected to {}", server.address);
    }
}

/// Every address of this machine, of its networks and of cloud metadata services: each attempt is
/// denied, and reported with its destination.
fn other_networks(world: &World) {
    let addresses = [
        "169.254.169.254:80",
        "10.0.0.1:80",
        "192.168.0.1:80",
        "198.18.0.1:80",
        "[fd00::1]:80",
        "[fe80::1]:80",
        "[::ffff:10.0.0.1]:81",
    ];
    let mut words = vec!["reach", "nobody says this"];
    words.extend(addresses);
    for options in [&BY_POLICY[..], &["--allow", "0.0.0.0/0", "--allow", "::/0"]] {
        let outcome = world.attack_with(&[options, &["--json"]].concat(), &words);
        outcome.succeeds();
        let json = outcome.json();
        assert!(json["stdout"].as_str().unwrap().contains("held: "), "{json}");
        let refused = json["network"]["refused"].as_array().unwrap();
        for address in addresses {
            let address: std::net::SocketAddr = address.parse().unwrap();
            let host = address.ip().to_canonical().to_string();
            let describe = refused.iter().any(|refused| {
                refused["host"] == host.as_str() && refused["port"] == address.port()
            });
            assert!(describe, "{address}: {json}");
        }
    }
}

/// An allowed name that resolves to the host, as by DNS rebinding.
fn a_name_that_leads_to_the_host(world: &World) {
    let (first, second) = host::token();
    let token = format!("{first}{second}");
    let server = Server::start("127.0.0.1:0", &token).unwrap();
    let target = format!("rebound.test:{}", server.address.port());
    for address in ["127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0"] {
        let names = format!("{address} rebound.test");
        let words = ["./probe", "fetch", "direct", &target];
        let outcome = run_with_names(world, &names, &["--allow", "rebound.test"], &words);
        assert!(!outcome.stdout.contains(&token), "{address}: {outcome}");
        let words = ["./probe", "reach", &token, &target];
        run_with_names(world, &names, &["--allow", "rebound.test"], &words).is_blocked();
    }
    assert_eq!(server.connections(), 0);
}

fn host_loopback_udp(world: &World) {
    let namespace = host::namespace("net");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    world.attack_bare(&["send-udp", &namespace, &address]);
    assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 5, "without a sandbox it arrives");
    world.attack_with(&BY_POLICY, &["send-udp", &namespace, &address]).is_blocked();
    assert!(socket.recv(&mut [0; 16]).is_err(), "a datagram arrived from inside");
}

fn interfaces(world: &World) {
    world.attack_with(&BY_POLICY, &["interfaces"]).is_blocked();
}

fn abstract_socket(world: &World) {
    super::network::abstract_sockets_are_hidden(world, &BY_POLICY);
}

/// Sockets that could bypass TCP and UDP, or change the network's rules.
fn other_sockets(world: &World) {
    for words in [
        &["socket", "40", "1", "0"][..],
        &["socket", "17", "3", "768"],
        &["socket", "2", "3", "1"],
        &["socket", "2", "3", "255"],
        &["socket", "10", "3", "58"],
        &["netlink"],
        &["socket-families"],
    ] {
        world.attack_with(&BY_POLICY, words).is_blocked();
    }
}

/// A server inside the sandbox and its client connect as usual.
fn own_loopback_works(world: &World) {
    let script = "python3 - <<'E'\nimport socket\ns=socket.create_server(('127.0.0.1',0))\n\
                  c=socket.create_connection(s.getsockname())\nprint('connected')\nE";
    let script = format!("command -v python3 >/dev/null || exit 77; {script}");
    let outcome = world.run(&["--discard", "--net", "policy"], &["sh", "-c", &script]);
    if outcome.code() == 77 {
        crate::harness::skip("own_loopback_works", "no python3 in the system directories");
        return;
    }
    assert_eq!(outcome.stdout, "connected\n", "{outcome}");
}

/// If the egress process is killed, programs have no network at all, and not the host's.
fn without_the_egress_proxy(world: &World) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let script = format!("echo ready; read line; ./probe reach x 10.0.0.1:80 127.0.0.1:{port}");
    let run = ["run", "--discard", "--net", "policy", "--", "sh", "-c", &script];
    let mut run = world.stockade(&run).start();
    run.wait_for_output("ready");
    let parent = format!("PPid:\t{}\n", run.pid());
    for process in host::processes_with("__egress") {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        if status.contains(&parent) {
            let process = rustix::process::Pid::from_raw(process.cast_signed()).unwrap();
            rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        }
    }
    run.send(b"go on\n");
    let outcome = run.finish();
    outcome.is_blocked();
    assert!(outcome.stderr.contains("exited early"), "{outcome}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "somebody connected");
}

as_root_and_as_user![
    host_loopback_tcp,
    other_networks,
    a_name_that_leads_to_the_host,
    host_loopback_udp,
    interfaces,
    abstract_socket,
    other_sockets,
    own_loopback_works,
    without_the_egress_proxy,
];
