//! Queries the name servers of the host's configuration, and no others. No file is read here: the
//! caller passes the text of `/etc/resolv.conf` and `/etc/hosts`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::network::Name;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::message::{Answer, Kind, question, read};
use crate::resolve::{NotFound, Resolution, Resolve};

/// The timeout of one name server, and how often all of them are queried.
const PATIENCE: Duration = Duration::from_secs(2);
const ROUNDS: usize = 2;
/// As in `resolv.conf(5)`.
const MAX_SERVERS: usize = 3;
/// The most names of the hosts file that are kept, and how long they are valid.
const MAX_HOSTS: usize = 10_000;
const HOSTS_VALID: Duration = Duration::from_secs(60);
const ANSWER_BYTES: usize = 4096;

/// The name servers, and the names that need no query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configuration {
    servers: Vec<SocketAddr>,
    hosts: HashMap<Name, Vec<IpAddr>>,
}

impl Configuration {
    /// Parses the text of the two files (`resolv.conf(5)`, `hosts(5)`). Invalid lines are skipped,
    /// as in other resolvers.
    pub fn parse(resolv_conf: &str, hosts: &str) -> Self {
        let server = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let address =
                words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
            // A link-local zone is dropped: no name server on a link can be reached from here.
            address.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, 53))
        };
        let mut servers: Vec<_> =
            resolv_conf.lines().filter_map(server).take(MAX_SERVERS).collect();
        if servers.is_empty() {
            servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 53));
        }
        let mut own = Self { servers, hosts: HashMap::new() };
        for line in hosts.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else { continue };
            for name in words.filter_map(|word| Name::parse(word).ok()) {
                if own.hosts.len() < MAX_HOSTS || own.hosts.contains_key(&name) {
                    own.hosts.entry(name).or_default().push(address);
                }
            }
        }
        own
    }

    /// The same with other name servers, at any port.
    #[must_use]
    pub fn with_servers(self, servers: Vec<SocketAddr>) -> Self {
        Self { servers, ..self }
    }
}

/// The resolver of the host.
#[derive(Debug, Default)]
pub struct Stub {
    configuration: RwLock<Arc<Configuration>>,
}

impl Stub {
    /// A resolver with this configuration.
    pub fn new(configuration: Configuration) -> Self {
        Self { configuration: RwLock::new(Arc::new(configuration)) }
    }

    /// Replaces the configuration: the network of the host may have changed.
    pub fn set(&self, configuration: Configuration) {
        let mut current = self.configuration.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(configuration);
    }

    fn configuration(&self) -> Arc<Configuration> {
        Arc::clone(&self.configuration.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Resolve for Stub {
    async fn resolve(&self, name: &Name) -> Result<Resolution, NotFound> {
        let configuration = self.configuration();
        if let Some(addresses) = configuration.hosts.get(name) {
            return Ok(Resolution { addresses: addresses.clone(), valid: HOSTS_VALID });
        }
        let servers = &configuration.servers;
        let (v4, v6) = tokio::join!(
            query_servers(servers, name, Kind::A),
            query_servers(servers, name, Kind::Aaaa)
        );
        match (v4, v6) {
            (Ok(v4), Ok(v6)) => Ok(Resolution {
                addresses: [v4.addresses, v6.addresses].concat(),
                valid: v4.valid.min(v6.valid),
            }),
            // A name with one kind of address often has a wrong response for the other.
            (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found),
            (Err(NotFound::Failed(cause)), Err(_)) | (Err(_), Err(NotFound::Failed(cause))) => {
                Err(NotFound::Failed(cause))
            }
            (Err(NotFound::NoSuchName), Err(NotFound::NoSuchName)) => Err(NotFound::NoSuchName),
            (Err(_), Err(_)) => Err(NotFound::NoAddress),
        }
    }
}

/// Queries one name server after the other.
async fn query_servers(
    servers: &[SocketAddr],
    name: &Name,
    kind: Kind,
) -> Result<Resolution, NotFound> {
    let mut failure = NotFound::Failed("no name server answered".to_owned());
    for _ in 0..ROUNDS {
        for server in servers {
            match timeout(PATIENCE, query_udp(*server, name, kind)).await {
                Ok(Ok(Err(NotFound::Failed(cause)))) => failure = NotFound::Failed(cause),
                Ok(Ok(answer)) => return answer,
                Ok(Err(error)) => failure = NotFound::Failed(error.to_string()),
                Err(_) => {}
            }
        }
    }
    Err(failure)
}

async fn query_udp(
    server: SocketAddr,
    name: &Name,
    kind: Kind,
) -> std::io::Result<Result<Resolution, NotFound>> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A new port and a random id for each query: a forged response must guess both.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    let id = random()?;
    let query = question(id, name, kind);
    socket.send(&query).await?;
    let mut bytes = [0; ANSWER_BYTES];
    loop {
        let length = socket.recv(&mut bytes).await?;
        match read(bytes.get(..length).unwrap_or_default(), id, name, kind) {
            Some(Answer::Complete(answer)) => return Ok(answer),
            Some(Answer::Truncated) => return query_tcp(server, &query, id, name, kind).await,
            // Not the response to this query; that may still arrive.
            None => {}
        }
    }
}

async fn query_tcp(
    server: SocketAddr,
    query: &[u8],
    id: u16,
    name: &Name,
    kind: Kind,
) -> std::io::Result<Result<Resolution, NotFound>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(query.len()).map_err(std::io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], query].concat()).await?;
    let mut bytes = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut bytes).await?;
    Ok(match read(&bytes, id, name, kind) {
        Some(Answer::Complete(answer)) => answer,
        _ => Err(NotFound::Failed("the name server's answer cannot be read".to_owned())),
    })
}

fn random() -> std::io::Result<u16> {
    let mut bytes = [0; 2];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u16::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::message::{Query, Reply};
    use super::*;

    #[test]
    fn the_files_of_the_host_are_read_as_programs_read_them() {
        let read = Configuration::parse(
            "# one\nsearch corp.example\nnameserver 127.0.0.53\nnameserver ::1\nnameserver fe80::1%eth0\n\
             options edns0\nnameserver 9.9.9.9\nnameserver 1.1.1.1\n",
            "127.0.0.1 localhost\n10.0.0.1\tGit.Corp git # own\n::1 localhost 0x7f.1\nnonsense x\n",
        );
        let servers: Vec<_> = read.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["127.0.0.53:53", "[::1]:53", "9.9.9.9:53"]);
        let host = |name: &str| {
            let addresses = read.hosts.get(&Name::parse(name).unwrap());
            addresses.map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(host("localhost").as_deref(), Some("127.0.0.1 ::1"));
        assert_eq!(host("git.corp").as_deref(), Some("10.0.0.1"));
        assert_eq!(host("x"), None);
        assert_eq!(Configuration::parse("", "").servers[0].to_string(), "127.0.0.1:53");
    }

    /// A name server that knows one name, returns its other kind of address only over TCP, and
    /// sends a wrong response before each right one.
    async fn server() -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = UdpSocket::bind(address).await.unwrap();
        let answer = |question: &[u8], truncated: bool| {
            let query = Query::parse(question).unwrap();
            let is_known = query.name().unwrap().as_str() == "a.example";
            let reply = match query.kind() {
                _ if !is_known => Reply::NoSuchName,
                Kind::A => Reply::Address(Ipv4Addr::new(192, 0, 2, 1).into()),
                _ => Reply::Address("2001:db8::1".parse().unwrap()),
            };
            let mut bytes = query.answer(&reply);
            if truncated && query.kind() == Kind::Aaaa {
                bytes[2] |= 2;
            }
            bytes
        };
        tokio::spawn(async move {
            let mut bytes = [0; 1500];
            while let Ok((length, asker)) = socket.recv_from(&mut bytes).await {
                let right = answer(&bytes[..length], true);
                let mut wrong = right.clone();
                wrong[0] ^= 1;
                socket.send_to(b"x", asker).await.unwrap();
                socket.send_to(&wrong, asker).await.unwrap();
                socket.send_to(&right, asker).await.unwrap();
            }
        });
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = vec![0; usize::from(stream.read_u16().await.unwrap())];
                stream.read_exact(&mut bytes).await.unwrap();
                let answer = answer(&bytes, false);
                stream.write_u16(u16::try_from(answer.len()).unwrap()).await.unwrap();
                stream.write_all(&answer).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn name_servers_are_asked_for_both_kinds_of_address() {
        let hosts = Configuration::parse("", "192.0.2.7 own.example\n");
        // No server listens at the first one.
        let nobody = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1);
        let stub = Stub::new(hosts.with_servers(vec![nobody, server().await]));
        let resolve = async |name: &str| {
            let found = stub.resolve(&Name::parse(name).unwrap()).await?;
            let addresses = found.addresses.iter().map(ToString::to_string);
            Ok(addresses.collect::<Vec<_>>().join(" "))
        };
        assert_eq!(resolve("own.example").await, Ok("192.0.2.7".to_owned()));
        assert_eq!(resolve("a.example").await, Ok("192.0.2.1 2001:db8::1".to_owned()));
        assert_eq!(resolve("b.example").await, Err(NotFound::NoSuchName));
        stub.set(Configuration::default().with_servers(vec![nobody]));
        assert!(matches!(resolve("a.example").await, Err(NotFound::Failed(_))));
    }
}
