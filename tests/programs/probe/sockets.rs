//! Attacks through sockets and the other means of communication between processes without a file:
//! System V objects, message queues.
//!
//! An attack that could leave the machine takes the host's network namespace as its first argument
//! and sends nothing when it runs in that namespace.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram, UnixStream};
use std::time::Duration;

use crate::attempt::{all_refused, call, error_name, last_error};
use crate::{Attack, Verdict};

pub(crate) const ATTACKS: &[Attack] = &[
    ("socket", socket),
    ("socket-families", socket_families),
    ("netlink", netlink),
    ("socket-options", socket_options),
    ("urgent-data", urgent_data),
    ("connect-abstract", connect_abstract),
    ("connect-unix", connect_unix),
    ("connect-tcp", connect_tcp),
    ("send-udp", send_udp),
    ("interfaces", interfaces),
    ("sysv-hold", sysv_hold),
    ("sysv-find", sysv_find),
    ("message-queue", message_queue),
];

/// `socket FAMILY TYPE PROTOCOL`: one kind of socket, by numbers.
fn socket(arguments: &[String]) -> Verdict {
    let numbers: Vec<usize> = arguments.iter().filter_map(|text| text.parse().ok()).collect();
    let [family, kind, protocol] = numbers[..] else {
        return Verdict::Broken("three numbers are needed".into());
    };
    let attempt = call(libc::SYS_socket, [family, kind, protocol, 0, 0, 0]);
    let mut both = [0_i32; 2];
    let pointer = both.as_mut_ptr().addr();
    let pair = call(libc::SYS_socketpair, [family, kind, protocol, pointer, 0, 0]);
    let mut attempts = vec![(format!("socket {family} {kind} {protocol}"), attempt)];
    // Families without pairs return EOPNOTSUPP after having created two sockets.
    if family != libc::AF_INET as usize && family != libc::AF_INET6 as usize {
        attempts.push(("socketpair".into(), pair));
    }
    all_refused(&attempts)
}

/// Every address family except those that a command needs to communicate locally.
fn socket_families(_: &[String]) -> Verdict {
    const NEEDED: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let mut attempts = Vec::new();
    for family in (0..64).filter(|family| !NEEDED.contains(family)) {
        for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET] {
            let arguments = [family as usize, kind as usize, 0, 0, 0, 0];
            attempts.push((format!("{family}/{kind}"), call(libc::SYS_socket, arguments)));
        }
    }
    all_refused(&attempts)
}

/// Every netlink protocol except routing, which tools use to list the loopback interface.
fn netlink(_: &[String]) -> Verdict {
    let attempts: Vec<_> = (1..32_usize)
        .map(|protocol| {
            let arguments = [libc::AF_NETLINK as usize, libc::SOCK_RAW as usize, protocol, 0, 0, 0];
            (format!("netlink {protocol}"), call(libc::SYS_socket, arguments))
        })
        .collect();
    all_refused(&attempts)
}

/// Options that put another protocol on a socket, or make it a member of a group.
fn socket_options(_: &[String]) -> Verdict {
    let level =
        |level: usize, names: std::ops::RangeInclusive<usize>| names.map(move |name| (level, name));
    let options = level(6, 31..=31)
        .chain(level(17, 100..=100))
        .chain(level(0, 35..=48))
        .chain(level(41, 20..=21))
        .chain(level(41, 27..=28))
        .chain(level(41, 42..=48));
    let options: Vec<_> = options.collect();
    // 224.0.0.251 at 127.0.0.1, and room for the longer values.
    let mut value = [0_u8; 264];
    value[..8].copy_from_slice(&[224, 0, 0, 251, 127, 0, 0, 1]);
    let mut reached = Vec::new();
    for (family, kind) in [(2, 1), (2, 2), (10, 1), (10, 2), (1, 1)] {
        for (level, name) in &options {
            let attempt = crate::attempt::in_child(|| {
                // SAFETY: takes three numbers.
                let socket = unsafe { libc::socket(family, kind, 0) };
                let Ok(socket) = usize::try_from(socket) else { return libc::ENOPROTOOPT };
                let arguments = [socket, *level, *name, value.as_ptr().addr(), value.len(), 0];
                crate::attempt::raw_syscall(libc::SYS_setsockopt, arguments)
            });
            if attempt != crate::attempt::Attempt::Failed(libc::ENOPROTOOPT) {
                reached.push(format!("option {level}/{name} of {family}/{kind}: {attempt}"));
            }
        }
    }
    Verdict::unless(&reached, format!("{} options refused", options.len()))
}

/// Out-of-band data of unix sockets, through every call that takes flags.
fn urgent_data(_: &[String]) -> Verdict {
    let mut pair = [0_i32; 2];
    // SAFETY: the array has room for both descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()) } != 0 {
        return Verdict::Broken(error_name(last_error()).to_owned());
    }
    let socket = usize::try_from(pair[0]).unwrap_or_default();
    let byte = b"x".as_ptr().addr();
    let oob = libc::MSG_OOB.unsigned_abs() as usize;
    let mut reached = Vec::new();
    for (name, number, arguments) in [
        ("sendto", libc::SYS_sendto, [socket, byte, 1, oob, 0, 0]),
        ("recvfrom", libc::SYS_recvfrom, [socket, usize::MAX, 1, oob | 0x40, 0, 0]),
        ("sendmsg", libc::SYS_sendmsg, [socket, usize::MAX, oob, 0, 0, 0]),
        ("recvmsg", libc::SYS_recvmsg, [socket, usize::MAX, oob | 0x40, 0, 0, 0]),
        ("sendmmsg", libc::SYS_sendmmsg, [socket, usize::MAX, 1, oob, 0, 0]),
        ("recvmmsg", libc::SYS_recvmmsg, [socket, usize::MAX, 1, oob | 0x40, 0, 0]),
    ] {
        let attempt = call(number, arguments);
        if attempt != crate::attempt::Attempt::Failed(libc::EPERM) {
            reached.push(format!("{name}: {attempt}"));
        }
    }
    Verdict::unless(&reached, "6 calls refused")
}

/// `connect-abstract NAME`: a unix socket that no mount hides (CVE-2020-15257).
fn connect_abstract(arguments: &[String]) -> Verdict {
    let Ok(address) = UnixAddress::from_abstract_name(arguments[0].as_bytes()) else {
        return Verdict::Broken("not a name".into());
    };
    match UnixStream::connect_addr(&address) {
        Ok(_) => Verdict::Escaped(format!("connected to @{}", arguments[0])),
        Err(error) => Verdict::Blocked(error.to_string()),
    }
}

/// `connect-unix PATH…`: unix sockets by path, as streams and as datagrams.
fn connect_unix(paths: &[String]) -> Verdict {
    let mut escapes = Vec::new();
    for path in paths {
        if UnixStream::connect(path).is_ok() {
            escapes.push(format!("connected to {path}"));
        }
        let datagram = UnixDatagram::unbound();
        if datagram.is_ok_and(|socket| socket.send_to(b"x", path).is_ok()) {
            escapes.push(format!("sent to {path}"));
        }
    }
    Verdict::unless(&escapes, format!("{} sockets refused", paths.len()))
}

/// Whether sending to `address` could leave the machine: only when this process has the
/// host's network namespace.
fn leaves_sandbox(namespace: &str, address: &SocketAddr) -> Option<Verdict> {
    let own = std::fs::read_link("/proc/self/ns/net")
        .map_or_else(|_| "unreadable".into(), |link| link.display().to_string());
    (own == namespace && !address.ip().to_canonical().is_loopback())
        .then(|| Verdict::Escaped("this is the host's own network namespace".into()))
}

/// `connect-tcp NAMESPACE ADDRESS…`.
fn connect_tcp(arguments: &[String]) -> Verdict {
    let mut escapes = Vec::new();
    let mut held = Vec::new();
    for text in &arguments[1..] {
        let Ok(address) = text.parse::<SocketAddr>() else {
            return Verdict::Broken(format!("{text} is not an address"));
        };
        if let Some(verdict) = leaves_sandbox(&arguments[0], &address) {
            return verdict;
        }
        match TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
            Ok(_) => escapes.push(format!("connected to {address}")),
            Err(error) => held.push(format!("{address}: {error}")),
        }
    }
    Verdict::unless(&escapes, held.join(", "))
}

/// `send-udp NAMESPACE ADDRESS…`: a datagram leaves when the kernel accepts it; to loopback it is
/// accepted without a receiver, so the host checks whether it arrived.
fn send_udp(arguments: &[String]) -> Verdict {
    let mut escapes = Vec::new();
    let mut held = Vec::new();
    for text in &arguments[1..] {
        let Ok(address) = text.parse::<SocketAddr>() else {
            return Verdict::Broken(format!("{text} is not an address"));
        };
        if let Some(verdict) = leaves_sandbox(&arguments[0], &address) {
            return verdict;
        }
        let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let sent = UdpSocket::bind(local).and_then(|socket| socket.send_to(b"probe", address));
        match sent {
            Ok(_) if !address.ip().is_loopback() => escapes.push(format!("sent to {address}")),
            Ok(_) => held.push(format!("{address}: sent, to whom is for the host to see")),
            Err(error) => held.push(format!("{address}: {error}")),
        }
    }
    Verdict::unless(&escapes, held.join(", "))
}

/// Any interface but loopback.
fn interfaces(_: &[String]) -> Verdict {
    // SAFETY: returns an array that is freed below, or null.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Verdict::Blocked(format!("no list: {}", error_name(last_error())));
    }
    let mut names = Vec::new();
    let mut entry = list;
    // SAFETY: the array ends with an entry whose name is null; names are C strings.
    unsafe {
        while !(*entry).if_name.is_null() {
            names.push(std::ffi::CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        libc::if_freenameindex(list);
    }
    let others: Vec<_> = names.into_iter().filter(|name| name != "lo").collect();
    Verdict::unless(&others, "only lo")
}

/// `sysv-hold KEY`: for the host: creates one object of each System V kind and a message queue,
/// reports that, and removes them when standard input ends.
fn sysv_hold(arguments: &[String]) -> Verdict {
    let Ok(key) = arguments[0].parse::<i32>() else {
        return Verdict::Broken("no key".into());
    };
    let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o666;
    // SAFETY: the three calls take numbers and return an id or -1; the queue's name is a C string.
    let (memory, semaphores, messages) = unsafe {
        (libc::shmget(key, 4096, flags), libc::semget(key, 1, flags), libc::msgget(key, flags))
    };
    let name = queue_name(key);
    // SAFETY: the name outlives the call; null attributes select the system's defaults.
    let queue = unsafe {
        libc::mq_open(
            name.as_ptr(),
            libc::O_CREAT | libc::O_RDWR,
            0o666,
            std::ptr::null::<libc::mq_attr>(),
        )
    };
    let _ = writeln!(std::io::stdout(), "ready {memory} {semaphores} {messages} {queue}");
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    // SAFETY: removes what was made above; a null pointer is allowed with IPC_RMID.
    unsafe {
        libc::shmctl(memory, libc::IPC_RMID, std::ptr::null_mut());
        libc::semctl(semaphores, 0, libc::IPC_RMID);
        libc::msgctl(messages, libc::IPC_RMID, std::ptr::null_mut());
        libc::mq_unlink(name.as_ptr());
    }
    Verdict::Blocked("removed".into())
}

/// `sysv-find KEY`: looks for the objects of `sysv-hold`.
fn sysv_find(arguments: &[String]) -> Verdict {
    let Ok(key) = arguments[0].parse::<i32>() else {
        return Verdict::Broken("no key".into());
    };
    let mut escapes = Vec::new();
    // SAFETY: the three calls take numbers and return an id or -1.
    let found = unsafe {
        [
            ("shared memory", libc::shmget(key, 0, 0)),
            ("semaphores", libc::semget(key, 0, 0)),
            ("messages", libc::msgget(key, 0)),
        ]
    };
    escapes.extend(found.iter().filter(|(_, id)| *id >= 0).map(|(name, _)| (*name).to_owned()));
    Verdict::unless(&escapes, "none of the host's objects")
}

/// `message-queue KEY`: the POSIX queue of `sysv-hold`.
fn message_queue(arguments: &[String]) -> Verdict {
    let Ok(key) = arguments[0].parse::<i32>() else {
        return Verdict::Broken("no key".into());
    };
    let name = queue_name(key);
    // SAFETY: the name outlives the call.
    if unsafe { libc::mq_open(name.as_ptr(), libc::O_RDONLY) } >= 0 {
        return Verdict::Escaped("the host's queue was opened".into());
    }
    Verdict::Blocked(error_name(last_error()).into())
}

fn queue_name(key: i32) -> std::ffi::CString {
    std::ffi::CString::new(format!("/stockade-probe-{key}")).unwrap_or_default()
}
