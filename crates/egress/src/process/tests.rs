//! The process as its owner sees it.

use std::io::{Seek as _, Write as _};
use std::os::fd::AsFd as _;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketType, socket};
use stockade_core::network::Reason;
use stockade_egress_control::{Credential, MESSAGE_BYTES, Outcome, OwnerSocket};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::authority::Authority;
use crate::testing::policy;

struct Process {
    owner: Arc<OwnerSocket>,
    serving: JoinHandle<Result<(), Error>>,
    last_number: u64,
}

impl Process {
    fn start() -> Self {
        let (owner, other) = OwnerSocket::pair().unwrap();
        Self { owner: Arc::new(owner), serving: tokio::spawn(serve(other)), last_number: 0 }
    }

    async fn receive(&self) -> Message {
        let owner = Arc::clone(&self.owner);
        tokio::task::spawn_blocking(move || owner.receive()).await.unwrap().unwrap().unwrap()
    }

    async fn request(&mut self, request: Request, listeners: &[OwnedFd]) -> Option<Code> {
        self.last_number += 1;
        let listeners: Vec<_> = listeners.iter().map(|listener| listener.as_fd()).collect();
        self.owner.send(self.last_number, request, &listeners).unwrap();
        match self.receive().await {
            Message::Response { number, problem, .. } if number == self.last_number => {
                problem.map(|problem| problem.code)
            }
            other => panic!("{other:?}"),
        }
    }
}

fn id(text: &str) -> SandboxId {
    SandboxId::new(text).unwrap()
}

/// Four sockets, and the address of the proxy.
fn listeners() -> (Vec<OwnedFd>, std::net::SocketAddr) {
    let tcp = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let proxy = tcp();
    let address = proxy.local_addr().unwrap();
    (vec![tcp().into(), proxy.into(), udp.into(), tcp().into()], address)
}

async fn answer_of(proxy: std::net::SocketAddr, target: &str) -> String {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let mut bytes = [0; 12];
    stream.read_exact(&mut bytes).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_is_served_from_its_coming_to_its_going() {
    let server = crate::testing::echo(b"").await;
    let mut process = Process::start();
    let (descriptors, proxy) = listeners();
    let add = |sandbox: &str| Request::Add { sandbox: id(sandbox), policy: Policy::default() };
    assert_eq!(process.request(add("a"), &descriptors).await, None);
    assert_eq!(process.request(add("a"), &listeners().0).await, Some(Code::Conflict));
    assert_eq!(process.request(add("b"), &descriptors[..3]).await, Some(Code::InvalidInput));
    let hosts = "127.0.0.1 api.example".to_owned();
    let names = Request::Names { resolv_conf: String::new(), hosts };
    assert_eq!(process.request(names, &[]).await, None);
    drop(descriptors);

    let target = format!("api.example:{}", server.port());
    assert_eq!(answer_of(proxy, &target).await, "HTTP/1.1 403");
    let Message::Event(event) = process.receive().await else { panic!() };
    assert_eq!(event.sandbox_id, id("a"));
    let Outcome::Refused { reason: Reason::NotAllowed, .. } = event.outcome else {
        panic!("{event:?}")
    };

    let policy = policy(&["allow api.example", "allow 127.0.0.1"]);
    let change = |sandbox: &str| Request::Change { sandbox: id(sandbox), policy: policy.clone() };
    assert_eq!(process.request(change("b"), &[]).await, Some(Code::NotFound));
    assert_eq!(process.request(change("a"), &[]).await, None);
    assert_eq!(answer_of(proxy, &target).await, "HTTP/1.1 200");
    for _ in 0..2 {
        let Message::Event(_) = process.receive().await else { panic!() };
    }

    assert_eq!(process.request(Request::Remove { sandbox: id("a") }, &[]).await, None);
    assert_eq!(
        process.request(Request::Remove { sandbox: id("a") }, &[]).await,
        Some(Code::NotFound)
    );
    assert!(TcpStream::connect(proxy).await.is_err(), "nobody listens any more");
    drop(process.owner);
    process.serving.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_understood_is_refused() {
    let mut process = Process::start();
    let request = Request::Remove { sandbox: id("a") };
    let envelope = Envelope { version: VERSION + 1, number: 3, request };
    send(process.owner.as_fd(), &envelope, &[]).unwrap();
    let Message::Response { number: 3, problem: Some(problem), .. } = process.receive().await
    else {
        panic!()
    };
    assert_eq!(problem.code, Code::Unsupported);
    // Unexpected file descriptors are closed.
    let descriptor = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    assert_eq!(
        process.request(Request::Remove { sandbox: id("a") }, &[descriptor]).await,
        Some(Code::NotFound)
    );
    let long = Request::Names { resolv_conf: "x".repeat(MESSAGE_BYTES), hosts: String::new() };
    assert_eq!(process.owner.send(9, long, &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    send(process.owner.as_fd(), &serde_json::json!({"request": "everything"}), &[]).unwrap();
    assert!(matches!(process.serving.await.unwrap(), Err(Error::Receive(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_asks_no_more_is_told_what_is_left() {
    let mut process = Process::start();
    let (descriptors, proxy) = listeners();
    let add = Request::Add { sandbox: id("a"), policy: Policy::default() };
    assert_eq!(process.request(add, &descriptors).await, None);
    for _ in 0..100 {
        assert_eq!(answer_of(proxy, "a.example:443").await, "HTTP/1.1 403");
    }
    rustix::net::shutdown(process.owner.as_fd(), rustix::net::Shutdown::Write).unwrap();
    for _ in 0..100 {
        let Message::Event(event) = process.receive().await else { panic!("no event") };
        assert!(matches!(event.outcome, Outcome::Refused { .. }), "{event:?}");
    }
    let owner = Arc::clone(&process.owner);
    let last = tokio::task::spawn_blocking(move || owner.receive()).await.unwrap();
    assert_eq!(last.unwrap(), None);
    process.serving.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_answered_with_whom_to_believe() {
    let credential = |host: &str| -> Credential {
        serde_json::from_value(serde_json::json!({
            "binding": {
                "credential": "key",
                "hosts": [host],
                "place": {"placeholder": "sk-placeholder-000001"},
            },
            "value": "sk-ZQ7xK2mPvL9wR4tYbN8c",
        }))
        .unwrap()
    };
    let give = |host: &str| Request::Credentials {
        sandbox: id("a"),
        policy: policy(&["allow api.example"]),
        credentials: vec![credential(host)],
    };
    let add = || Request::Add { sandbox: id("a"), policy: policy(&["allow api.example"]) };

    let authorities = |text: &str| -> OwnedFd {
        let mut file = std::fs::File::from(memfd_create("a", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        file.into()
    };
    let good = Authority::new().unwrap().pem();

    let mut process = Process::start();
    let unknown = process.request(give("api.example"), &[authorities(&good)]).await;
    assert_eq!(unknown, Some(Code::NotFound));
    assert_eq!(process.request(add(), &listeners().0).await, None);
    assert_eq!(process.request(give("api.example"), &[]).await, Some(Code::Unsupported));
    let empty = process.request(give("api.example"), &[authorities("nobody")]).await;
    assert_eq!(empty, Some(Code::Unsupported));
    let unbound = process.request(give("other.example"), &[authorities(&good)]).await;
    assert_eq!(unbound, Some(Code::InvalidInput));
    process.owner.send(9, give("api.example"), &[authorities(&good).as_fd()]).unwrap();
    let Message::Response { number: 9, problem: None, installed: Some(installed) } =
        process.receive().await
    else {
        panic!()
    };
    let Installed { authorities: pem, missing } = installed;
    assert!(missing.is_empty(), "{missing:?}");
    assert!(pem.starts_with("-----BEGIN CERTIFICATE-----\n"), "{pem}");
    // The rule that a credential needs cannot be removed.
    let orphan = Request::Change { sandbox: id("a"), policy: Policy::default() };
    process.last_number = 9;
    assert_eq!(process.request(orphan, &[]).await, Some(Code::InvalidInput));
}

/// A sandbox needs the certificate for its programs before it has listeners.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_may_be_known_before_it_listens() {
    let mut process = Process::start();
    let (descriptors, proxy) = listeners();
    let listen = || Request::Listen { sandbox: id("a") };
    let add = Request::Add { sandbox: id("a"), policy: Policy::default() };
    assert_eq!(process.request(listen(), &descriptors).await, Some(Code::NotFound));
    assert_eq!(process.request(add, &[]).await, None);
    assert_eq!(process.request(listen(), &[]).await, Some(Code::InvalidInput));
    assert_eq!(process.request(listen(), &descriptors).await, None);
    assert_eq!(process.request(listen(), &listeners().0).await, Some(Code::Conflict));
    drop(descriptors);
    assert_eq!(answer_of(proxy, "api.example:443").await, "HTTP/1.1 403");
}

/// The sandbox's side shares the sockets and makes them blocking: the process, which accepts and
/// receives for all sandboxes in one thread, must not block.
#[test]
fn no_sandbox_keeps_the_others_waiting() {
    let (owner, other) = OwnerSocket::pair().unwrap();
    let serving = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(serve(other))
    });
    let (descriptors, proxy) = listeners();
    let request = |number, request: Request, descriptors: &[OwnedFd]| {
        let descriptors: Vec<_> = descriptors.iter().map(|open| open.as_fd()).collect();
        owner.send(number, request, &descriptors).unwrap();
        loop {
            match owner.receive().unwrap().unwrap() {
                Message::Event(_) => {}
                Message::Response { number: answered, problem, .. } => {
                    assert_eq!((answered, problem), (number, None));
                    return;
                }
            }
        }
    };
    let add = |sandbox: &str| Request::Add { sandbox: id(sandbox), policy: Policy::default() };
    request(1, add("hostile"), &descriptors);
    let resolver = std::net::UdpSocket::from(descriptors[2].try_clone().unwrap());
    let resolver = resolver.local_addr().unwrap();
    let asker = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..20 {
        for descriptor in &descriptors {
            rustix::io::ioctl_fionbio(descriptor, false).unwrap();
        }
        drop(std::net::TcpStream::connect(proxy).unwrap());
        asker.send_to(b"does not accept requests", resolver).unwrap();
        request(2 + number, add(&format!("other-{number}")), &listeners().0);
    }
    drop(owner);
    serving.join().unwrap().unwrap();
}
