//! For tests: a sandbox whose listeners are on the machine's own loopback, names with addresses
//! that the test chooses, and servers that act as the outside.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use stockade_core::SandboxId;
use stockade_core::network::{Name, Policy};
use stockade_egress_control::{Event, Outcome};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::limits::Limits;
use crate::record::Queue;
use crate::resolve::{NotFound, Resolution, Resolve};
use crate::sandbox::{Options, Sandbox};
use crate::{accept, dns, proxy};

/// How long a test waits for an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A resolver with addresses that the test chooses.
#[derive(Debug, Default)]
pub(crate) struct FakeResolver {
    known: Mutex<HashMap<Name, Result<Resolution, NotFound>>>,
    queries: Mutex<usize>,
}

impl FakeResolver {
    pub(crate) fn set(&self, name: &str, addresses: &[&str], seconds: u64) {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let found = Resolution { addresses, valid: Duration::from_secs(seconds) };
        self.known.lock().unwrap().insert(Name::parse(name).unwrap(), Ok(found));
    }

    pub(crate) fn fail(&self, name: &str, failure: NotFound) {
        self.known.lock().unwrap().insert(Name::parse(name).unwrap(), Err(failure));
    }

    pub(crate) fn queries(&self) -> usize {
        *self.queries.lock().unwrap()
    }
}

#[async_trait]
impl Resolve for FakeResolver {
    async fn resolve(&self, name: &Name) -> Result<Resolution, NotFound> {
        *self.queries.lock().unwrap() += 1;
        let known = self.known.lock().unwrap().get(name).cloned();
        known.unwrap_or(Err(NotFound::NoSuchName))
    }
}

/// A policy of `allow TARGET` and `deny TARGET`, with the default deny.
pub(crate) fn policy(rules: &[&str]) -> Policy {
    let rule = |text: &&str| {
        let (action, target) = text.split_once(' ').unwrap();
        json!({"action": action, "target": target})
    };
    let rules: Vec<_> = rules.iter().map(rule).collect();
    serde_json::from_value(json!({"default": "deny", "rules": rules})).unwrap()
}

/// A sandbox that is served.
pub(crate) struct World {
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) resolver: Arc<FakeResolver>,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) proxy: SocketAddr,
    pub(crate) datagrams: SocketAddr,
    pub(crate) streams: SocketAddr,
    everything: SocketAddr,
    /// The original destination of connections to `everything`.
    destination: Arc<Mutex<SocketAddr>>,
    serving: JoinHandle<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub(crate) fn sandbox(
    rules: &[&str],
    limits: Limits,
) -> (Arc<Sandbox>, Arc<FakeResolver>, mpsc::Receiver<Event>) {
    let (queue, events) = Queue::new(100);
    let resolver = Arc::new(FakeResolver::default());
    let sandbox = Sandbox::new(Options {
        id: SandboxId::new("sb1").unwrap(),
        policy: policy(rules),
        limits,
        resolve: Arc::<FakeResolver>::clone(&resolver),
        record: Arc::new(queue),
    });
    (sandbox, resolver, events)
}

impl World {
    pub(crate) async fn new(rules: &[&str]) -> Self {
        Self::with(rules, Limits::default()).await
    }

    pub(crate) async fn with(rules: &[&str], limits: Limits) -> Self {
        let (sandbox, resolver, events) = sandbox(rules, limits);
        let listener = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (everything, proxy, streams) = (listener().await, listener().await, listener().await);
        let datagrams = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let destination = Arc::new(Mutex::new(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)));
        let mut world = Self {
            sandbox: Arc::clone(&sandbox),
            resolver,
            events,
            proxy: proxy.local_addr().unwrap(),
            datagrams: datagrams.local_addr().unwrap(),
            streams: streams.local_addr().unwrap(),
            everything: everything.local_addr().unwrap(),
            destination: Arc::clone(&destination),
            serving: tokio::spawn(async {}),
        };
        world.serving = tokio::spawn(async move {
            tokio::join!(
                accept::serve(&sandbox, everything, |_| Ok(*destination.lock().unwrap())),
                proxy::serve(&sandbox, proxy),
                dns::serve_datagrams(&sandbox, datagrams),
                dns::serve_streams(&sandbox, streams),
            );
        });
        world
    }

    /// A connection from inside to an address, as through the sandbox's network.
    pub(crate) async fn connect(&self, address: IpAddr, port: u16) -> TcpStream {
        *self.destination.lock().unwrap() = SocketAddr::new(address, port);
        TcpStream::connect(self.everything).await.unwrap()
    }

    /// The address that stands for a name inside.
    pub(crate) async fn address_of(&self, name: &str) -> IpAddr {
        let name = Name::parse(name).unwrap();
        self.sandbox.lookup(&name, None).await.unwrap();
        let (address, _) = self.sandbox.names().addresses(&name).unwrap();
        address.into()
    }

    /// Sends a request to the proxy; returns the connection and its first response.
    pub(crate) async fn ask_proxy(&self, request: &str) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(self.proxy).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = vec![0; 4096];
        let length = timeout(PATIENCE, stream.read(&mut bytes)).await.unwrap().unwrap();
        (stream, String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    /// The outcome of the next event.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        timeout(PATIENCE, self.events.recv()).await.unwrap().unwrap().outcome
    }

    /// The reason of the next refusal event.
    pub(crate) async fn refusal(&mut self) -> &'static str {
        loop {
            if let Outcome::Refused { reason, .. } = self.outcome().await {
                return reason.as_str();
            }
        }
    }
}

/// A server that sends a greeting, and then echoes its input. After the end of the input it sends a
/// notice and closes.
pub(crate) async fn echo(greeting: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.write_all(greeting).await.unwrap();
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.write_all(b".").await;
            });
        }
    });
    address
}

/// An HTTP server that responds to one request of each connection with the request itself. The
/// bytes after the request are reported as well.
pub(crate) async fn mirror() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (received_sender, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let received_sender = received_sender.clone();
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
                    if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                        break;
                    }
                }
                let answer = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nmirrored";
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut bytes).await;
                let _ = received_sender.send(String::from_utf8_lossy(&bytes).into_owned());
            });
        }
    });
    (address, received)
}

/// All bytes until the other side closes; the kind of error if the connection fails.
pub(crate) async fn rest(stream: &mut TcpStream) -> Result<String, std::io::ErrorKind> {
    let mut bytes = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap();
    read.map(|_| String::from_utf8_lossy(&bytes).into_owned()).map_err(|error| error.kind())
}
