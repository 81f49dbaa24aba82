//! The loop, over sockets of this machine's loopback.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, socketpair};

use super::*;
use crate::records::receive;

const PATIENCE: Duration = Duration::from_secs(20);

struct Served {
    owner: OwnedFd,
    thread: JoinHandle<()>,
    datagrams: SocketAddr,
    streams: SocketAddr,
    proxy: SocketAddr,
}

impl Served {
    fn start() -> Self {
        let (owner, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let [streams, proxy] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = (
            datagrams.local_addr().unwrap(),
            streams.local_addr().unwrap(),
            proxy.local_addr().unwrap(),
        );
        let sockets = Sockets {
            resolver_datagrams: datagrams.into(),
            resolver_streams: streams.into(),
            proxy: proxy.into(),
        };
        sockets.prepare().unwrap();
        let thread = std::thread::spawn(move || serve(&sockets, Records::new(other)));
        let (datagrams, streams, proxy) = addresses;
        Self { owner, thread, datagrams, streams, proxy }
    }

    /// What was wanted, once the loop has ended.
    fn end(self) -> Vec<String> {
        rustix::net::shutdown(&self.owner, rustix::net::Shutdown::Write).unwrap();
        self.thread.join().unwrap();
        receive(&self.owner)
            .listed()
            .filter_map(stockade_core::network::WantedHost::allow)
            .collect()
    }
}

fn query(name: &str) -> Vec<u8> {
    let mut bytes = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.extend_from_slice(&[0, 0, 28, 0, 1]);
    bytes
}

fn request(proxy: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn lookups_and_requests_are_refused_and_recorded() {
    let served = Served::start();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(&query("a.example.com"), served.datagrams).unwrap();
    let mut answer = [0; 512];
    let (length, from) = socket.recv_from(&mut answer).unwrap();
    assert_eq!((length, from, answer[3] & 15), (query("a.example.com").len(), served.datagrams, 3));
    let mut stream = TcpStream::connect(served.streams).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let question = query("b.example.com");
    // In two pieces, which is one message.
    stream.write_all(&u16::try_from(question.len()).unwrap().to_be_bytes()).unwrap();
    stream.write_all(&question).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    assert_eq!(usize::from(u16::from_be_bytes(length)), question.len());
    let connect = b"CONNECT c.example.com:443 HTTP/1.1\r\nHost: c.example.com:443\r\n\r\n";
    let answer = request(served.proxy, connect);
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("c.example.com"), "{answer}");
    assert!(request(served.proxy, b"\x05\x01\x00").starts_with("HTTP/1.1 400 "));
    let expected = ["--allow a.example.com", "--allow b.example.com", "--allow c.example.com:443"];
    assert_eq!(served.end(), expected);
}

#[test]
fn idle_connections_keep_no_other_from_being_answered() {
    let served = Served::start();
    let idle: Vec<_> =
        (0..3 * MAX_CONNECTIONS).map(|_| TcpStream::connect(served.proxy).unwrap()).collect();
    let answer = request(served.proxy, b"GET http://a.example.com/ HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    drop(idle);
    assert_eq!(served.end(), ["--allow a.example.com:80"]);
}

#[test]
fn what_was_asked_right_before_the_end_is_recorded() {
    let served = Served::start();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&query("last.example.com"), served.datagrams).unwrap();
    assert_eq!(served.end(), ["--allow last.example.com"]);
}
