//! What servers take the heads of requests for, of HTTP/1.1 and HTTP/2, compared with what the egress
//! process decides on. A head that two servers read differently reaches no host with a secret of which
//! a rule says something about methods or paths; and what reaches a host, every server reads as the
//! request that was checked.
//!
//! The fast test compares with `seen`, what the servers made of each head. The tests in `live` ask
//! the servers themselves; with `STOCKADE_WRITE_HEADS=1` they write these files.

mod cases;
mod client;
mod host;
mod live;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stockade_egress::Trust;
use stockade_egress_control::Credential;
use tokio::net::TcpStream;

use self::cases::{Head, NAME, Verdict};
use self::host::Identity;
use super::{policy, sandbox_with, serve};

/// The secret of the host.
const VALUE: &str = "sk-live-ZQ7xK2mPvL9wR4tYbN8c";
/// How many heads are sent at a time.
const CONCURRENT: usize = 8;

/// What a server takes one request for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    number: String,
    method: String,
    host: String,
    path: String,
    authorization: String,
}

impl Seen {
    /// The method, the host and the path: the host in small letters, without port and final dot.
    fn request(&self) -> String {
        let host = self.host.to_ascii_lowercase();
        let host = host.split(':').next().unwrap_or_default();
        let host = host.strip_suffix('.').unwrap_or(host);
        format!("{} {host} {}", self.method, self.path)
    }
}

/// What each server takes the heads for: by the head, the request or nothing.
type Column = BTreeMap<String, Option<String>>;

/// A head as the tables name it.
fn key(head: &Head) -> String {
    match head {
        Head::Stream(headers, body) => format!("HTTP/2 {headers:?} {body:?}"),
        Head::Text(text) => format!("HTTP/1 {text:?}"),
    }
}

/// What a host must take a head for that passes.
fn expected(verdict: Verdict) -> Option<String> {
    match verdict {
        Verdict::Refused => None,
        Verdict::Sent(method, path) | Verdict::Rewritten(method, path) => {
            Some(format!("{method} {NAME} {path}"))
        }
        Verdict::Cut => Some(format!("POST {NAME} {}", cases::PATH)),
    }
}

/// A sandbox that may send any usual request to the host at a port, with its secret: the address of its
/// proxy, and the authority that programs inside trust.
fn sandbox(identity: &Identity, port: u16) -> (SocketAddr, String) {
    let paths = json!({"paths": ["/*"]});
    let rules = [
        json!({"action": "allow", "target": "127.0.0.1"}),
        json!({"action": "allow", "target": NAME, "requests": paths}),
    ];
    let place = json!({"header": {"name": "Authorization", "prefix": "Bearer "}});
    let binding = json!({"credential": "key", "hosts": [NAME], "ports": [port], "place": place});
    let credential: Credential =
        serde_json::from_value(json!({"binding": binding, "value": VALUE})).unwrap();
    let sandbox = sandbox_with(policy(&rules));
    let trust = Trust::from_pem(identity.authority.as_bytes()).unwrap();
    let installed = sandbox.set_credentials(policy(&rules), vec![credential], trust).unwrap();
    (serve(&sandbox), installed.authorities)
}

/// Sends all heads through the sandbox to a server on this machine.
async fn send_through(identity: &Identity, server: SocketAddr, prefix: &str) {
    let (proxy, authority) = sandbox(identity, server.port());
    let authority = Arc::<str>::from(authority);
    send_all(prefix, async |head, number| {
        let stream = client::tunnel(proxy, server.port()).await;
        client::send(stream, &authority, head, &number).await;
    })
    .await;
}

/// Sends all heads to a server.
async fn send_directly(identity: &Identity, server: SocketAddr, prefix: &str) {
    send_all(prefix, async |head, number| {
        let stream = TcpStream::connect(server).await.unwrap();
        client::send(stream, &identity.authority, head, &number).await;
    })
    .await;
}

async fn send_all(prefix: &str, send: impl AsyncFn(&Head, String)) {
    let all = cases::all();
    let sending = all.iter().enumerate().map(|(at, (head, _))| send(head, format!("{prefix}{at}")));
    futures_util::stream::iter(sending).buffer_unordered(CONCURRENT).collect::<Vec<()>>().await;
}

/// Checks what a server has seen of the heads that came through the sandbox. Returns the numbers of those
/// that it has served: it may refuse some.
fn check(seen: &[Seen], prefix: &str) -> BTreeSet<usize> {
    let all = cases::all();
    let mut arrived = BTreeSet::new();
    for one in seen {
        let at = one.number.strip_prefix(prefix).and_then(|number| number.parse::<usize>().ok());
        let at = at.unwrap_or_else(|| panic!("a request that nobody has sent: {one:?}"));
        let (head, verdict) = &all[at];
        assert_eq!(Some(one.request()), expected(*verdict), "{}", key(head));
        assert_eq!(one.authorization, format!("Bearer {VALUE}"), "{}", key(head));
        assert!(arrived.insert(at), "twice: {}", key(head));
    }
    arrived
}

/// Whether a host that refuses nothing receives a head.
const fn passes(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Sent(..) | Verdict::Rewritten(..))
}

/// The tables of all servers.
fn columns() -> [(&'static str, Column); 4] {
    let column = |text: &str| serde_json::from_str(text).unwrap();
    [
        ("nginx", column(include_str!("seen/nginx.json"))),
        ("node", column(include_str!("seen/node.json"))),
        ("go", column(include_str!("seen/go.json"))),
        ("hypercorn", column(include_str!("seen/hypercorn.json"))),
    ]
}

/// What the tables say against the verdict about a head.
fn contradiction(head: &Head, verdict: Verdict) -> Option<String> {
    let key = key(head);
    let mut requests = BTreeSet::new();
    for (server, column) in columns() {
        let Some(seen) = column.get(&key) else { return Some(format!("{server} has no {key}")) };
        requests.extend(seen.clone());
    }
    let as_expected = || requests.iter().all(|request| Some(request) == expected(verdict).as_ref());
    match verdict {
        // The host receives another head.
        Verdict::Refused | Verdict::Rewritten(..) => None,
        Verdict::Sent(..) | Verdict::Cut => {
            (!as_expected()).then(|| format!("{key} is sent, and taken for {requests:?}"))
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_servers_read_differently_is_not_sent() {
    let identity = Identity::new();
    let (address, mut seen) = host::start(&identity).await;
    send_through(&identity, address, "p").await;
    let mut all = Vec::new();
    while let Ok(one) = seen.try_recv() {
        all.push(one);
    }
    let arrived = check(&all, "p");
    let heads = cases::all();
    for (at, (head, verdict)) in heads.iter().enumerate() {
        assert!(arrived.contains(&at) || !passes(*verdict), "not arrived: {}", key(head));
    }
    let wrong = heads.iter().filter_map(|(head, verdict)| contradiction(head, *verdict));
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<String>::new());
    // The tables show servers that read one head differently; otherwise they would show nothing.
    let differ = heads.iter().filter(|(head, _)| {
        let columns = columns();
        let of_each = columns.iter().filter_map(|(_, column)| column.get(&key(head))?.clone());
        of_each.collect::<BTreeSet<_>>().len() > 1
    });
    assert!(differ.count() >= 10);
}
