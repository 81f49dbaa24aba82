//! Whose process is at the other end of a connection on this host. The kernel lists every socket of
//! a network namespace with its user in `/proc/net/tcp` and `/proc/net/tcp6`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The lists of sockets. A program may connect to an IPv4 address with a socket of IPv6.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// A list that is read while sockets come and go may miss one.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(10);

/// The user of the process that has the other end of a connection; `None` if no process of this host
/// has it, or none any more.
pub async fn find_uid(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        for table in TABLES {
            let text = std::fs::read_to_string(table).unwrap_or_default();
            if let Some(uid) = find_in(&text, peer, own) {
                return Some(uid);
            }
        }
    }
    None
}

/// The user of the socket with these addresses in a list.
fn find_in(table: &str, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let (peer, own) = (canonical(peer), canonical(own));
    let mut found = sockets_in(table).filter(|it| it.local == peer && it.remote == own);
    // A socket that no process has any more is listed as one of root.
    found.find_map(|it| (it.inode != 0).then_some(it.uid))
}

/// A socket in a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Socket {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) uid: u32,
    /// 0 if no process has it any more.
    pub(crate) inode: u64,
    pub(crate) is_listener: bool,
}

/// How the lists name the state of a socket that listens.
const LISTENS: &str = "0A";

/// All sockets of this network namespace.
pub(crate) fn sockets() -> Vec<Socket> {
    let texts = TABLES.map(|table| std::fs::read_to_string(table).unwrap_or_default());
    texts.iter().flat_map(|text| sockets_in(text)).collect()
}

fn sockets_in(table: &str) -> impl Iterator<Item = Socket> {
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
        let is_listener = fields.next()? == LISTENS;
        // Queues, timer, retransmissions, the user, a timeout, the inode.
        let mut rest = fields.skip(3);
        let uid = rest.next()?.parse().ok()?;
        let inode = rest.nth(1)?.parse().ok()?;
        Some(Socket { local, remote, uid, inode, is_listener })
    })
}

/// An IPv4 address in the form of IPv6 is the IPv4 address.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// An address as the kernel prints it: words in the order of the machine, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut bytes = [0; 16];
            for (number, part) in bytes.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(number * 8)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A list with one socket, as a machine with little-endian words prints it.
    fn table(local: &str, remote: &str, uid: u32, inode: u64) -> String {
        format!(
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: {local} {remote} 01 00000000:00000000 00:00000000 00000000 {uid:>5}        0 {inode} 1 0\n"
        )
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn only_the_socket_of_a_process_at_the_other_end_counts() {
        let (peer, own) = ("127.0.0.1:40000".parse().unwrap(), "127.0.0.1:80".parse().unwrap());
        let found = |text: String| find_in(&text, peer, own);
        assert_eq!(found(table("0100007F:9C40", "0100007F:0050", 1000, 7)), Some(1000));
        assert_eq!(found(table("0100007F:0050", "0100007F:9C40", 1000, 7)), None, "our own end");
        assert_eq!(found(table("0100007F:9C40", "0100007F:0051", 1000, 7)), None);
        assert_eq!(found(table("0200007F:9C40", "0100007F:0050", 1000, 7)), None);
        // The sender has exited and left what it sent: the kernel lists root and no inode.
        assert_eq!(found(table("0100007F:9C40", "0100007F:0050", 0, 0)), None);
        let mapped = |port: &str| format!("0000000000000000FFFF00000100007F:{port}");
        assert_eq!(found(table(&mapped("9C40"), &mapped("0050"), 7, 7)), Some(7));
        let (peer, own) = ("[::1]:40000".parse().unwrap(), "[::1]:80".parse().unwrap());
        let six = |port: &str| format!("00000000000000000000000001000000:{port}");
        assert_eq!(find_in(&table(&six("9C40"), &six("0050"), 7, 7), peer, own), Some(7));
        for broken in ["", "x", "a b c\n1: zz:1 zz:2 01", "a\n1: 0100007F:9C40 0100007F:0050 01"] {
            assert_eq!(find_in(broken, peer, own), None);
        }
    }

    #[tokio::test]
    async fn the_kernel_names_this_user() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        let connecting = TcpStream::connect(own).await.unwrap();
        let (accepted, peer) = listener.accept().await.unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(find_uid(peer, own).await, Some(uid));
        drop(connecting);
        assert_eq!(find_uid(peer, own).await, None, "no process has the socket any more");
        drop(accepted);
    }
}
