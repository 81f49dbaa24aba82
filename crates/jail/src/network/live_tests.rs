//! The network in the kernel: where traffic from inside arrives, and what no process inside can
//! change.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::Duration;

use super::*;
use crate::testing::{ChildExit, errno_of, in_child, skipped};
use crate::{
    Command, Ending, Error, Identity, Jail, JailSpec, Network, Payload, Signals, Sink, Source,
    Streams, Supervision, Task, Wall,
};

/// A jail that runs `payload`, with no other content.
fn launch(network: Network, payload: fn() -> u8) -> Result<Jail, Error> {
    let identity = Identity::for_caller().unwrap();
    let (user, group) = match &identity {
        Identity::Own { user, group } => (*user, *group),
        Identity::Range(_) => (1000, 1000),
    };
    let command = Command {
        payload: Payload::Function(payload),
        environment: Vec::new(),
        working_directory: c"/".to_owned(),
        user,
        group,
        groups: Vec::new(),
        umask: 0o022,
        processors: None,
        not_before: None,
    };
    crate::launch(JailSpec {
        identity,
        root: Source::Empty,
        root_writable: false,
        root_is_own: true,
        mounts: Vec::new(),
        hostname: "network".to_owned(),
        network,
        task: Task::Once { command, streams: Streams::Pipes },
        rlimits: crate::rlimits::ResourceLimits::default(),
        cgroup: None,
        locks: Vec::new(),
        access_mounts: None,
        landlock_optional: true,
        reports_refused_calls: false,
    })
}

/// The output of the payload, while `outside` runs with the listeners; `None` where this host
/// supports no such jails.
fn output_of<T>(
    payload: fn() -> u8,
    outside: impl FnOnce(Option<Listeners>) -> T,
) -> Option<String> {
    let signals = Signals::block().unwrap();
    let mut jail = match launch(Network::Egress, payload) {
        Ok(jail) => jail,
        Err(Error::Wall { wall: Wall::Network, step, source }) if step == RULES => {
            skipped(&format!("{step}: {source}"));
            return None;
        }
        Err(error) => panic!("{error:?}"),
    };
    let _held = outside(jail.listeners.take());
    let supervision = Supervision {
        input: None,
        output: Sink::Capture(1 << 16),
        error: Sink::Capture(1 << 16),
        timeout: Some(Duration::from_secs(20)),
        output_limit_bytes: None,
        grace: Duration::from_secs(1),
        terminal: None,
        watches: Vec::new(),
        after_input: None,
        first_request: None,
    };
    let outcome = crate::supervise(jail, supervision, signals).unwrap();
    let output = String::from_utf8_lossy(&outcome.output.bytes).into_owned();
    let error = String::from_utf8_lossy(&outcome.error.bytes).into_owned();
    assert_eq!(outcome.ending, Ending::Exited(0), "{output}{error}");
    Some(output)
}

/// Answers every connection with the name of its listener and its intended destination.
fn answer_all(listeners: Option<Listeners>) {
    let Listeners { transparent: everything, proxy, resolver_datagrams, resolver_streams } =
        listeners.unwrap();
    for (name, listener) in
        [("everything", everything), ("proxy", proxy), ("resolver", resolver_streams)]
    {
        let listener = TcpListener::from(listener);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let address = connection.local_addr().unwrap();
                let address = SocketAddr::new(address.ip().to_canonical(), address.port());
                let _ = write!(connection, "{name} {address}");
            }
        });
    }
    let socket = UdpSocket::from(resolver_datagrams);
    std::thread::spawn(move || {
        let mut question = [0; 16];
        loop {
            let (_, from) = socket.recv_from(&mut question).unwrap();
            socket.send_to(b"resolved", from).unwrap();
        }
    });
}

/// Bypasses the standard library's output, whose lock another test may have held when this process
/// was forked.
fn print(lines: &str) -> u8 {
    // SAFETY: the standard output is never closed.
    let output = unsafe { BorrowedFd::borrow_raw(libc::STDOUT_FILENO) };
    rustix::io::write(output, lines.as_bytes()).map_or(1, |written| (written != lines.len()).into())
}

/// The answer to a connection to an address.
fn connect(address: &str) -> String {
    let address: SocketAddr = address.parse().unwrap();
    let mut answer = String::new();
    let got =
        TcpStream::connect_timeout(&address, Duration::from_secs(5)).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.read_to_string(&mut answer)
        });
    got.map_or_else(|error| error.kind().to_string(), |_| answer)
}

/// The answer to a datagram to an address.
fn query(address: &str) -> String {
    let local = if address.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let ask = || {
        let socket = UdpSocket::bind(local)?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        socket.connect(address)?;
        socket.send(b"question")?;
        let mut answer = [0; 64];
        let length = socket.recv(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    };
    ask().unwrap_or_else(|error: std::io::Error| error.kind().to_string())
}

/// Runs a test where a jail can be launched: in a process with a single thread.
fn alone(body: fn()) {
    let ended = in_child(|| {
        body();
        0
    });
    assert_eq!(ended, ChildExit::Exited(0));
}

/// Private networks, metadata services, documentation, addresses for names, an IPv4 address mapped
/// into IPv6, and ports with a listener.
const ANYWHERE: [&str; 10] = [
    "10.0.0.1:80",
    "169.254.169.254:80",
    "198.51.100.7:443",
    "198.18.0.1:5432",
    "192.0.2.1:1022",
    "192.0.2.1:1023",
    "192.0.2.1:7777",
    "[2001:db8::1]:443",
    "[fd00::1]:80",
    "[::ffff:10.0.0.1]:80",
];

fn connect_anywhere() -> u8 {
    // A process inside listens at every address, and gets the connections to itself.
    let _own = TcpListener::bind("0.0.0.0:7777");
    let mut lines = String::new();
    for address in ANYWHERE {
        let _ = writeln!(lines, "{address} {}", connect(address));
    }
    print(&lines)
}

#[test]
fn each_connection_arrives_with_where_it_wanted_to_go() {
    alone(|| {
        let Some(lines) = output_of(connect_anywhere, answer_all) else { return };
        for address in ANYWHERE {
            let expected: SocketAddr = address.parse().unwrap();
            let expected = SocketAddr::new(expected.ip().to_canonical(), expected.port());
            let line = format!("{address} everything {expected}\n");
            assert!(lines.contains(&line), "{line}{lines}");
        }
    });
}

fn connect_to_loopback() -> u8 {
    let Ok(own) = TcpListener::bind("127.0.0.1:7777") else { return 2 };
    let _ = own.set_nonblocking(true);
    let arrives = |address: &str| {
        let connected = TcpStream::connect(address);
        connected.is_ok() && own.accept().is_ok()
    };
    let mut lines = String::new();
    for address in ["127.0.0.1:7777", "[::ffff:127.0.0.1]:7777", "0.0.0.0:7777"] {
        let _ = writeln!(lines, "{address} {}", arrives(address));
    }
    for address in ["127.0.0.1:1022", "127.0.0.1:1023", "127.0.0.1:9", "[::1]:9"] {
        let _ = writeln!(lines, "{address} {}", connect(address));
    }
    print(&lines)
}

#[test]
fn the_loopback_is_the_jails_own() {
    alone(|| {
        let Some(lines) = output_of(connect_to_loopback, answer_all) else { return };
        let expected = "127.0.0.1:7777 true\n[::ffff:127.0.0.1]:7777 true\n0.0.0.0:7777 true\n\
                        127.0.0.1:1022 everything 127.0.0.1:1022\n\
                        127.0.0.1:1023 proxy 127.0.0.1:1023\n\
                        127.0.0.1:9 connection refused\n[::1]:9 connection refused\n";
        assert_eq!(lines, expected);
    });
}

const QUERIES: [(&str, &str); 6] = [
    ("127.0.0.1:53", "resolved"),
    ("198.51.100.53:53", "resolved"),
    ("8.8.8.8:53", "resolved"),
    ("198.51.100.7:443", "connection refused"),
    ("10.0.0.1:123", "connection refused"),
    ("[2001:db8::1]:443", "connection refused"),
];

fn query_all() -> u8 {
    let mut lines = String::new();
    for (address, _) in QUERIES {
        let _ = writeln!(lines, "{address} {}", query(address));
    }
    for address in ["127.0.0.1:53", "192.0.2.53:53"] {
        let _ = writeln!(lines, "{address} {}", connect(address));
    }
    print(&lines)
}

#[test]
fn any_resolver_is_ours_and_no_other_datagram_arrives_anywhere() {
    alone(|| {
        let Some(lines) = output_of(query_all, answer_all) else { return };
        for (address, answer) in QUERIES {
            assert!(lines.contains(&format!("{address} {answer}\n")), "{address}\n{lines}");
        }
        for address in ["127.0.0.1:53", "192.0.2.53:53"] {
            let line = format!("{address} resolver {address}\n");
            assert!(lines.contains(&line), "{line}{lines}");
        }
    });
}

fn connect_and_query() -> u8 {
    let lines = ["192.0.2.1:443", "127.0.0.1:1023", "127.0.0.1:53"].map(connect);
    print(&format!("{lines:?} {}\n", query("192.0.2.53:53")))
}

#[test]
fn without_anybody_outside_nothing_is_reached() {
    alone(|| {
        let Some(lines) = output_of(connect_and_query, drop) else { return };
        // A connection from before the listeners were closed is reset, or gets no answer.
        let errors = ["connection refused", "connection reset", "timed out", "would block"];
        let failed: usize = errors.iter().map(|error| lines.matches(error).count()).sum();
        assert_eq!(failed, 4, "{lines}");
    });
}

/// Each attempt to change the network or to bind in front of the listeners, with its error number.
fn change() -> u8 {
    let number = |value: i32| raw::signed(value);
    let socket = |family, kind, protocol| {
        errno_of(libc::SYS_socket, [number(family), number(kind), number(protocol), 0, 0, 0])
    };
    let mut lines = String::new();
    let packet = socket(libc::AF_PACKET, libc::SOCK_RAW, 0x0300);
    let raw_socket = socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_TCP);
    let netfilter = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_NETFILTER);
    let _ = writeln!(lines, "packet {packet} raw {raw_socket} netfilter {netfilter}");
    let unshare = errno_of(libc::SYS_unshare, [number(libc::CLONE_NEWUSER), 0, 0, 0, 0, 0]);
    let namespace = errno_of(libc::SYS_unshare, [number(libc::CLONE_NEWNET), 0, 0, 0, 0, 0]);
    let _ = writeln!(lines, "unshare {unshare} {namespace}");
    // The old interface for rules (`IPT_SO_SET_REPLACE`, which a kernel may lack), a mark, and
    // receiving packets for other addresses.
    let Ok(socket) = UdpSocket::bind("127.0.0.1:0") else { return 2 };
    let set = |level: i32, option: i32, value: &[u8]| {
        let arguments = [
            number(socket.as_raw_fd()),
            number(level),
            number(option),
            value.as_ptr() as usize,
            value.len(),
            0,
        ];
        errno_of(libc::SYS_setsockopt, arguments)
    };
    let replace = set(libc::SOL_IP, 64, &[0; 128]);
    let mark = set(libc::SOL_SOCKET, libc::SO_MARK, &[1, 0, 0, 0]);
    let transparent = set(libc::SOL_IP, libc::IP_TRANSPARENT, &[1, 0, 0, 0]);
    let _ = writeln!(
        lines,
        "replace {} mark {mark} transparent {transparent}",
        [libc::EPERM, libc::ENOPROTOOPT].contains(&replace)
    );
    let down = change_loopback(&socket);
    let routes = change_routes();
    let _ = writeln!(lines, "down {down} routes {routes:?}");
    for address in ["127.0.0.1:53", "0.0.0.0:53", "127.0.0.1:1022", "0.0.0.0:1023", "[::]:1022"] {
        let error = |error: std::io::Error| error.raw_os_error().unwrap_or(-1);
        let stream = TcpListener::bind(address).map_or_else(error, |_| 0);
        let datagram = UdpSocket::bind(address).map_or_else(error, |_| 0);
        let _ = writeln!(lines, "bind {address} {stream} {datagram}");
    }
    print(&lines)
}

/// Takes the loopback down.
fn change_loopback(socket: &UdpSocket) -> i32 {
    // SAFETY: all zeros are an empty interface name and no flags.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed();
    request.ifr_name[1] = b'o'.cast_signed();
    let descriptor = raw::signed(socket.as_raw_fd());
    let arguments = [descriptor, SIOCSIFFLAGS, (&raw const request) as usize, 0, 0, 0];
    errno_of(libc::SYS_ioctl, arguments)
}

/// Removes and adds routes, with the messages that created them.
fn change_routes() -> [i32; 2] {
    const REMOVE: u16 = 25;
    let made = egress::ROUTE_4.as_slice().to_vec();
    let mut removal = made.clone();
    removal[4..6].copy_from_slice(&REMOVE.to_ne_bytes());
    [made, removal]
        .map(|message| netlink::request(None, &message).map_or_else(Errno::raw_os_error, |()| 0))
}

#[test]
fn nobody_inside_changes_the_network_or_comes_before_the_listeners() {
    alone(|| {
        let Some(lines) = output_of(change, answer_all) else { return };
        let permission = libc::EPERM;
        let unsupported = libc::EPROTONOSUPPORT;
        let expected = [
            format!("packet {} raw {permission} netfilter {unsupported}", libc::EAFNOSUPPORT),
            format!("unshare {permission} {permission}"),
            format!("replace true mark {permission} transparent {permission}"),
            format!("down {permission} routes {:?}", [permission; 2]),
        ];
        for line in expected {
            assert!(lines.contains(&line), "{line}\n{lines}");
        }
        let bound: Vec<_> = lines.lines().filter(|line| line.starts_with("bind")).collect();
        assert_eq!(bound.len(), 5);
        for line in bound {
            // Only the resolver has datagrams.
            let in_use = libc::EADDRINUSE;
            let expected = if line.contains(":53 ") { [in_use; 2] } else { [in_use, 0] };
            let [stream, datagram] = expected;
            assert!(line.ends_with(&format!(" {stream} {datagram}")), "{line}");
        }
    });
}

fn nothing() -> u8 {
    0
}

#[test]
fn a_jail_without_a_way_out_hands_nothing_out() {
    alone(|| {
        let jail = launch(Network::Off, nothing).unwrap();
        assert!(jail.listeners.is_none());
    });
}

/// Where IPv6 is disabled, nothing is reachable by it, and everything by IPv4.
#[test]
fn one_version_of_the_protocol_is_enough() {
    let ended = in_child(|| {
        crate::testing::enter_user_namespace();
        make(0).unwrap();
        if std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").is_err() {
            skipped("version 6 cannot be switched off here");
            return 0;
        }
        let listeners = match egress::open() {
            Ok(listeners) => Listeners::take_from(listeners).unwrap(),
            Err((step, errno)) => {
                skipped(&format!("{}: {errno}", step.as_str()));
                return 0;
            }
        };
        answer_all(Some(listeners));
        assert_eq!(connect("10.0.0.1:80"), "everything 10.0.0.1:80");
        let unreached = connect("[2001:db8::1]:443");
        assert!(!unreached.contains("everything"), "{unreached}");
        0
    });
    assert_eq!(ended, ChildExit::Exited(0));
}
