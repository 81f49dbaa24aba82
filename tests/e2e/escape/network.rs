//! Network off: no network access, and no access to a socket of the host.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::Duration;

use super::{Comparison, assert_blocked};
use crate::harness::World;
use crate::host;

fn host_loopback_tcp(world: &World) {
    let namespace = host::namespace("net");
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(address) else { continue };
        let address = listener.local_addr().unwrap().to_string();
        world.attack_bare(&["connect-tcp", &namespace, &address]).escaped();
        listener.accept().unwrap();
        listener.set_nonblocking(true).unwrap();
        world.attack(&["connect-tcp", &namespace, &address]).is_blocked();
        assert!(listener.accept().is_err(), "somebody connected to {address}");
    }
}

/// The host's loopback written as an IPv6 address.
fn host_loopback_mapped(world: &World) {
    let namespace = host::namespace("net");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = format!("[::ffff:127.0.0.1]:{port}");
    world.attack_bare(&["connect-tcp", &namespace, &address]).escaped();
    listener.accept().unwrap();
    listener.set_nonblocking(true).unwrap();
    world.attack(&["connect-tcp", &namespace, &address]).is_blocked();
    assert!(listener.accept().is_err(), "somebody connected to {address}");
}

fn host_loopback_udp(world: &World) {
    let namespace = host::namespace("net");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    world.attack_bare(&["send-udp", &namespace, &address]);
    assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 5, "without a sandbox it arrives");
    world.attack(&["send-udp", &namespace, &address]).is_blocked();
    assert!(socket.recv(&mut [0; 16]).is_err(), "a datagram arrived from inside");
}

/// Metadata services, private networks, documentation addresses. Nothing is sent unless the probe
/// is in a separate network namespace: it checks first.
fn other_networks(world: &World) {
    let namespace = host::namespace("net");
    let addresses = [
        "169.254.169.254:80",
        "10.0.0.1:80",
        "192.168.0.1:80",
        "198.51.100.7:443",
        "[fd00::1]:80",
        "[2001:db8::1]:443",
    ];
    let mut words = vec!["connect-tcp", &namespace];
    words.extend(addresses);
    world.attack_bare(&words).escaped();
    world.attack(&words).is_blocked();
    words[0] = "send-udp";
    world.attack(&words).is_blocked();
    // DNS in particular.
    world.attack(&["send-udp", &namespace, "198.51.100.53:53"]).is_blocked();
}

fn interfaces(world: &World) {
    world.attack(&["interfaces"]).is_blocked();
    let inside = world.shell("readlink /proc/self/ns/net");
    assert_ne!(inside.stdout.trim(), host::namespace("net"), "{inside}");
}

/// CVE-2020-15257: abstract socket names belong to the network namespace and no mount hides them.
fn abstract_socket(world: &World) {
    abstract_sockets_are_hidden(world, &[]);
}

/// The same attack from inside a sandbox that was started with these options.
pub(super) fn abstract_sockets_are_hidden(world: &World, options: &[&str]) {
    let (first, second) = host::token();
    let name = format!("{first}{second}");
    let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    world.attack_bare(&["connect-abstract", &name]).escaped();
    listener.accept().unwrap();
    listener.set_nonblocking(true).unwrap();
    world.attack_with(options, &["connect-abstract", &name]).is_blocked();
    assert!(listener.accept().is_err(), "somebody connected to @{name}");
}

/// Sockets where agents, engines and desktops have them: the home, /tmp, the project itself.
fn path_sockets(world: &World) {
    let places = [world.home().join("agent"), world.path("socket"), world.project.join("socket")];
    for path in places {
        let listener = UnixListener::bind(&path).unwrap();
        world.chown(&path);
        let text = path.to_str().unwrap();
        world.attack_bare(&["connect-unix", text]).escaped();
        listener.accept().unwrap();
        listener.set_nonblocking(true).unwrap();
        world.attack(&["connect-unix", text]).is_blocked();
        assert!(listener.accept().is_err(), "somebody connected to {text}");
        std::fs::remove_file(&path).unwrap();
        let datagrams = UnixDatagram::bind(&path).unwrap();
        world.chown(&path);
        datagrams.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        world.attack_bare(&["connect-unix", text]).escaped();
        assert_eq!(datagrams.recv(&mut [0; 8]).unwrap(), 1);
        world.attack(&["connect-unix", text]).is_blocked();
        assert!(datagrams.recv(&mut [0; 8]).is_err(), "a datagram arrived at {text}");
        std::fs::remove_file(&path).unwrap();
    }
}

fn engine_and_bus_sockets(world: &World) {
    let paths = [
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
        "/run/containerd/containerd.sock",
        "/run/snapd.socket",
        "/run/user/1000/bus",
        "/tmp/.X11-unix/X0",
        "/dev/log",
    ];
    let mut words = vec!["connect-unix"];
    words.extend(paths);
    world.attack(&words).is_blocked();
    let listing = world.shell("ls -A /run /var/run 2>/dev/null");
    assert!(!listing.stdout.contains("docker"), "{listing}");
}

/// `TCP_ULP` and its like, and the membership of multicast groups.
fn socket_options(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["socket-options"]);
}

fn urgent_data(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["urgent-data"]);
}

/// What listens in a read-only mount, before and after the start, in a run and in a persistent
/// sandbox.
fn sockets_in_a_mount(world: &World) {
    let shared = world.path("shared");
    world.plant(&shared.join("file"), "shared\n");
    let programs = format!("{}:/opt/programs:ro", world.path("bin").display());
    let mount = format!("{}:/m:ro", shared.display());
    let options = ["--mount", &mount, "--mount", &programs];
    let created = world.stockade(&[&["create"], &options[..]].concat()).finish();
    created.succeeds();
    let id = created.stdout.trim_end().to_owned();
    let stream = UnixListener::bind(shared.join("stream")).unwrap();
    let datagrams = UnixDatagram::bind(shared.join("datagrams")).unwrap();
    for name in ["stream", "datagrams"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(shared.join(name), mode).unwrap();
        world.chown(&shared.join(name));
    }
    let attack = ["/opt/programs/probe", "connect-unix", "/m/stream", "/m/datagrams"];
    world.run(&[&["--discard"], &options[..]].concat(), &attack).is_blocked();
    world.stockade(&[&["exec", &id, "--"], &attack[..]].concat()).finish().is_blocked();
    stream.set_nonblocking(true).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    assert!(stream.accept().is_err() && datagrams.recv(&mut [0; 8]).is_err());
    let read = world.stockade(&["exec", &id, "--", "cat", "/m/file"]).finish();
    assert_eq!(read.stdout, "shared\n");
    // A writable mount is refused, and a socket that is named can be used.
    let writable = format!("{}:/m", shared.display());
    let refused = world.run(&["--discard", "--mount", &writable], &["true"]);
    refused.is_refused();
    assert!(refused.stderr.contains("[PATH_REFUSED]"), "{refused}");
    let named = format!("{}:/service", shared.join("stream").display());
    let options = ["--discard", "--mount", &named, "--mount", &programs];
    let used = world.run(&options, &["/opt/programs/probe", "connect-unix", "/service"]);
    used.escaped();
    assert!(used.stderr.contains("is a socket of the host"), "{used}");
}

fn vsock(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["socket", "40", "1", "0"]);
}

fn packet_socket(world: &World) {
    assert_blocked(world, Comparison::Root, &["socket", "17", "3", "768"]);
}

fn raw_socket(world: &World) {
    assert_blocked(world, Comparison::Root, &["socket", "2", "3", "1"]);
}

fn crypto_socket(world: &World) {
    // A kernel may lack AF_ALG: then there is nothing to prove.
    world.attack(&["socket", "38", "5", "0"]).is_blocked();
}

fn stream_control_socket(world: &World) {
    world.attack(&["socket", "2", "5", "132"]).is_blocked();
    world.attack(&["socket", "2", "1", "132"]).is_blocked();
}

fn netlink(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["netlink"]);
}

fn every_other_family(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["socket-families"]);
}

/// System V objects and POSIX queues have no file system path.
fn host_ipc_objects(world: &World) {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let key = (0x5700_0000 + (std::process::id() % 0xffff) * 16 + number).to_string();
    let mut holder = world.on_host(&world.probe(), &["sysv-hold", &key]).start();
    holder.wait_for_output("ready");
    world.attack_bare(&["sysv-find", &key]).escaped();
    world.attack(&["sysv-find", &key]).is_blocked();
    if !holder.stdout().trim_end().ends_with("-1") {
        world.attack_bare(&["message-queue", &key]).escaped();
    }
    world.attack(&["message-queue", &key]).is_blocked();
    holder.finish().succeeds();
}

/// A server and its client inside can connect to each other.
fn own_loopback_works(world: &World) {
    let script = "python3 - <<'E'\nimport socket\ns=socket.create_server(('127.0.0.1',0))\n\
                  c=socket.create_connection(s.getsockname())\nprint('connected')\nE";
    let outcome = world.shell(&format!("command -v python3 >/dev/null || exit 77; {script}"));
    if outcome.code() == 77 {
        crate::harness::skip("own_loopback_works", "no python3 in the system directories");
        return;
    }
    assert_eq!(outcome.stdout, "connected\n", "{outcome}");
}

as_root_and_as_user![
    host_loopback_tcp,
    host_loopback_mapped,
    host_loopback_udp,
    other_networks,
    interfaces,
    abstract_socket,
    path_sockets,
    engine_and_bus_sockets,
    vsock,
    socket_options,
    urgent_data,
    sockets_in_a_mount,
    packet_socket,
    raw_socket,
    crypto_socket,
    stream_control_socket,
    netlink,
    every_other_family,
    host_ipc_objects,
    own_loopback_works,
];
