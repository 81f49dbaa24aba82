//! The rules on sockets in the kernel: forked children try what they must refuse and what they must
//! not break.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixDatagram, UnixStream};

use libc::{ENOPROTOOPT, EPERM, c_long};

use super::live_tests::confined;
use crate::testing::{ChildExit, errno_of};

/// A number as an argument of a call.
fn argument(number: i32) -> usize {
    usize::try_from(number).unwrap()
}

/// The error of setting an option of a socket; 0 where it was set.
fn set(socket: &impl std::os::fd::AsRawFd, level: i32, name: i32, value: &[u8]) -> i32 {
    let arguments = [
        argument(socket.as_raw_fd()),
        argument(level),
        argument(name),
        value.as_ptr().addr(),
        value.len(),
        0,
    ];
    errno_of(libc::SYS_setsockopt, arguments)
}

/// Whether each option is refused on each kind of socket.
fn all_are_refused(options: &[(i32, i32)]) -> ChildExit {
    confined(|| {
        let value = [0_u8; 264];
        let connection = TcpListener::bind("127.0.0.1:0").unwrap();
        let six = TcpListener::bind("[::1]:0");
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (unix, _other) = UnixStream::pair().unwrap();
        for (level, name) in options {
            let mut errors = vec![
                set(&connection, *level, *name, &value),
                set(&datagrams, *level, *name, &value),
                set(&unix, *level, *name, &value),
            ];
            errors.extend(six.as_ref().ok().map(|six| set(six, *level, *name, &value)));
            assert!(errors.iter().all(|error| *error == ENOPROTOOPT), "{level} {name}: {errors:?}");
        }
        0
    })
}

#[test]
fn no_socket_takes_another_protocol() {
    let ended = all_are_refused(&[(6, 31), (17, 100), (41, 1)]);
    assert_eq!(ended, ChildExit::Exited(0));
}

#[test]
fn no_socket_joins_a_group() {
    let four = (35..=48).map(|name| (0, name));
    let six = [20, 21, 27, 28].into_iter().chain(42..=48).map(|name| (41, name));
    let ended = all_are_refused(&four.chain(six).collect::<Vec<_>>());
    assert_eq!(ended, ChildExit::Exited(0));
}

#[test]
fn ordinary_options_can_be_set() {
    let ended = confined(|| {
        let connection = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let one = 1_i32.to_ne_bytes();
        // SO_REUSEADDR, TCP_NODELAY, IP_TTL, IP_RECVERR; IP_MULTICAST_LOOP, IP_MULTICAST_TTL.
        for (level, name) in [(1, 2), (6, 1), (0, 2), (0, 11)] {
            assert_eq!(set(&connection, level, name, &one), 0, "{level} {name}");
        }
        for (level, name) in [(0, 34), (0, 33)] {
            assert_eq!(set(&datagrams, level, name, &one), 0, "{level} {name}");
        }
        0
    });
    assert_eq!(ended, ChildExit::Exited(0));
}

/// Every call that takes flags of messages, and where they are.
const CALLS: &[(c_long, usize)] = &[
    (libc::SYS_sendto, 3),
    (libc::SYS_recvfrom, 3),
    (libc::SYS_sendmsg, 2),
    (libc::SYS_recvmsg, 2),
    (libc::SYS_sendmmsg, 3),
    (libc::SYS_recvmmsg, 3),
];

#[test]
fn no_socket_carries_urgent_data() {
    let ended = confined(|| {
        let (stream, _peer) = UnixStream::pair().unwrap();
        let (datagrams, _other) = UnixDatagram::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for socket in [stream.as_raw_fd(), datagrams.as_raw_fd(), connection.as_raw_fd()] {
            for (number, flags_argument) in CALLS {
                // With MSG_DONTWAIT, and with bits that the kernel drops.
                for flags in [0x1, 0x41, 0x100_0000_0001] {
                    let mut arguments = [argument(socket), usize::MAX, 1, 0, 0, 0];
                    arguments[*flags_argument] = flags;
                    assert_eq!(errno_of(*number, arguments), EPERM, "{number} {flags:#x}");
                }
            }
        }
        0
    });
    assert_eq!(ended, ChildExit::Exited(0));
}

#[test]
fn ordinary_messages_pass() {
    let ended = confined(|| {
        let (mut stream, mut peer) = UnixStream::pair().unwrap();
        stream.write_all(b"x").unwrap();
        let mut byte = [0];
        // SAFETY: the buffer has room for the byte.
        let peeked = unsafe {
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            libc::recv(peer.as_raw_fd(), byte.as_mut_ptr().cast(), 1, flags)
        };
        assert_eq!((peeked, byte), (1, *b"x"));
        peer.read_exact(&mut byte).unwrap();
        0
    });
    assert_eq!(ended, ChildExit::Exited(0));
}
