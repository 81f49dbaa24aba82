//! A name server that lies: whatever it answers, a sandbox is connected only to an address that was an
//! answer to the name which the policy has allowed, and that is no internal one.

use std::net::SocketAddr;
use std::sync::Arc;

use stockade_core::SandboxId;
use stockade_core::network::{Host, Name};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

use super::{Configuration, Stub};
use crate::limits::Limits;
use crate::record::Queue;
use crate::sandbox::{Options, Sandbox};
use crate::testing::{echo, policy};

const A: u16 = 1;
const CNAME: u16 = 5;
const TXT: u16 = 16;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;
const CHAOS: u16 = 3;
/// Flags of a response: it is one, it is authoritative, and it is cut.
const ANSWER: u16 = 0x8180;
const CUT: u16 = 0x0200;

/// A record: owner, type, class and data.
type Record = (Vec<u8>, u16, u16, Vec<u8>);

/// The parts of a response, which a test changes.
struct Response {
    id: u16,
    flags: u16,
    /// Name, type and class.
    question: Vec<u8>,
    questions: u16,
    answers: Vec<Record>,
    authorities: Vec<Record>,
    additional: Vec<Record>,
}

impl Response {
    fn bytes(&self) -> Vec<u8> {
        let sections = [&self.answers, &self.authorities, &self.additional];
        let counts = sections.map(|section| u16::try_from(section.len()).unwrap());
        let head = [self.id, self.flags, self.questions, counts[0], counts[1], counts[2]];
        let mut bytes: Vec<u8> = head.into_iter().flat_map(u16::to_be_bytes).collect();
        bytes.extend(&self.question);
        for (owner, kind, class, data) in sections.into_iter().flatten() {
            bytes.extend(owner);
            bytes.extend([kind.to_be_bytes(), class.to_be_bytes()].concat());
            bytes.extend(60_u32.to_be_bytes());
            bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            bytes.extend(data);
        }
        bytes
    }

    fn add(&mut self, owner: &str, kind: u16, data: Vec<u8>) {
        self.answers.push((wire(owner), kind, INTERNET, data));
    }
}

/// A name as labels.
fn wire(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// What the server does: it gets the response without records, the type that was asked for, and whether
/// over TCP, and returns datagrams.
type Lie = Arc<dyn Fn(Response, u16, bool) -> Vec<Vec<u8>> + Send + Sync>;

fn response(query: &[u8]) -> (Response, u16) {
    let end = query.iter().skip(12).position(|byte| *byte == 0).unwrap() + 12 + 5;
    let number = |at: usize| u16::from_be_bytes([query[at], query[at + 1]]);
    let response = Response {
        id: number(0),
        flags: ANSWER,
        question: query[12..end].to_vec(),
        questions: 1,
        answers: Vec::new(),
        authorities: Vec::new(),
        additional: Vec::new(),
    };
    (response, number(end - 4))
}

async fn server(lie: Lie) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let socket = UdpSocket::bind(address).await.unwrap();
    let own = Arc::clone(&lie);
    tokio::spawn(async move {
        let mut bytes = [0; 1500];
        while let Ok((length, asker)) = socket.recv_from(&mut bytes).await {
            let (response, kind) = response(&bytes[..length]);
            for datagram in own(response, kind, false) {
                let _ = socket.send_to(&datagram, asker).await;
            }
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = vec![0; usize::from(stream.read_u16().await.unwrap())];
            stream.read_exact(&mut bytes).await.unwrap();
            let (response, kind) = response(&bytes);
            for answer in lie(response, kind, true) {
                let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                let _ = stream.write_all(&[&length[..], &answer].concat()).await;
            }
        }
    });
    address
}

/// Where a connection to `api.example` leads, or the reason why it leads nowhere. Only this name and
/// 127.0.0.1 are allowed, where something listens at the port.
async fn connected(port: u16, lie: Lie) -> Result<String, &'static str> {
    let servers = vec![server(lie).await];
    let (queue, _events) = Queue::new(10);
    let sandbox = Sandbox::new(Options {
        id: SandboxId::new("sb1").unwrap(),
        policy: policy(&["allow api.example", "allow 127.0.0.1"]),
        limits: Limits::default(),
        resolve: Arc::new(Stub::new(Configuration::default().with_servers(servers))),
        record: Arc::new(queue),
    });
    let host = Host::Name(Name::parse("api.example").unwrap());
    let connected = sandbox.connect(&host, port).await;
    let address = connected.map_err(|refusal| refusal.reason().as_str())?.1;
    Ok(address.to_string())
}

const GOOD: [u8; 4] = [127, 0, 0, 1];
const INSIDE: [u8; 4] = [10, 0, 0, 5];

/// A lie about addresses of version 4; there are none of version 6.
fn about_4(lie: impl Fn(&mut Response) + Send + Sync + 'static) -> Lie {
    Arc::new(move |mut response, kind, _| {
        if kind == A {
            lie(&mut response);
        }
        vec![response.bytes()]
    })
}

/// A false response, which comes before the right one: it is not believed.
fn first_a_false_one(change: impl Fn(&mut Response) + Send + Sync + 'static) -> Lie {
    Arc::new(move |mut response, kind, _| {
        let (id, flags, question) = (response.id, response.flags, response.question.clone());
        if kind == A {
            response.add("api.example", A, INSIDE.to_vec());
        }
        change(&mut response);
        let mut right = Response {
            id,
            flags,
            question,
            questions: 1,
            answers: Vec::new(),
            authorities: Vec::new(),
            additional: Vec::new(),
        };
        if kind == A {
            right.add("api.example", A, GOOD.to_vec());
        }
        vec![response.bytes(), right.bytes()]
    })
}

#[tokio::test]
async fn a_name_leads_where_its_answer_says() {
    let port = echo(b"hi").await.port();
    let good = || Ok("127.0.0.1".to_owned());
    let inside = || Err("internal-address");
    let nowhere = || Err("unresolved");
    let cases: Vec<(&str, Lie, Result<String, &str>)> = vec![
        ("one address", about_4(|own| own.add("api.example", A, GOOD.to_vec())), good()),
        ("other case", about_4(|own| own.add("API.eXample", A, GOOD.to_vec())), good()),
        (
            "one of two is inside",
            about_4(|own| {
                own.add("api.example", A, GOOD.to_vec());
                own.add("api.example", A, INSIDE.to_vec());
            }),
            inside(),
        ),
        (
            "an alias that leads inside",
            about_4(|own| {
                own.add("api.example", CNAME, wire("db.corp"));
                own.add("db.corp", A, INSIDE.to_vec());
            }),
            inside(),
        ),
        (
            "an alias of the machine itself",
            about_4(|own| {
                own.add("api.example", CNAME, wire("localhost"));
                own.add("localhost", A, vec![127, 0, 0, 2]);
            }),
            inside(),
        ),
        (
            "an alias without an address",
            about_4(|own| own.add("api.example", CNAME, wire("localhost"))),
            nowhere(),
        ),
        (
            "a loop of aliases",
            about_4(|own| {
                own.add("api.example", CNAME, wire("b.example"));
                own.add("b.example", CNAME, wire("api.example"));
                own.add("c.example", A, GOOD.to_vec());
            }),
            nowhere(),
        ),
        (
            "an endless chain of aliases",
            about_4(|own| {
                own.add("api.example", CNAME, wire("a0.example"));
                for at in 0..100 {
                    own.add(
                        &format!("a{at}.example"),
                        CNAME,
                        wire(&format!("a{}.example", at + 1)),
                    );
                }
                own.add("a100.example", A, GOOD.to_vec());
            }),
            nowhere(),
        ),
        (
            "somebody else's address",
            about_4(|own| own.add("evil.example", A, GOOD.to_vec())),
            nowhere(),
        ),
        (
            "somebody else's beside its own",
            about_4(|own| {
                own.add("evil.example", A, INSIDE.to_vec());
                own.add("api.example", A, GOOD.to_vec());
            }),
            good(),
        ),
        (
            "addresses in other sections",
            about_4(|own| {
                own.authorities.push((wire("api.example"), A, INTERNET, GOOD.to_vec()));
                own.additional.push((wire("api.example"), A, INTERNET, GOOD.to_vec()));
            }),
            nowhere(),
        ),
        (
            "another class",
            about_4(|own| own.answers.push((wire("api.example"), A, CHAOS, GOOD.to_vec()))),
            nowhere(),
        ),
        ("five bytes", about_4(|own| own.add("api.example", A, vec![127, 0, 0, 1, 0])), nowhere()),
        ("another type", about_4(|own| own.add("api.example", TXT, GOOD.to_vec())), nowhere()),
        (
            "one label with a dot",
            about_4(|own| {
                own.answers.push((b"\x0bapi.example\0".to_vec(), A, INTERNET, GOOD.to_vec()));
            }),
            nowhere(),
        ),
        ("another id", first_a_false_one(|own| own.id ^= 1), good()),
        ("no answer", first_a_false_one(|own| own.flags &= !0x8000), good()),
        ("another operation", first_a_false_one(|own| own.flags |= 2 << 11), good()),
        (
            "no question",
            first_a_false_one(|own| {
                own.questions = 0;
                own.question.clear();
            }),
            good(),
        ),
        (
            "two questions",
            first_a_false_one(|own| {
                own.questions = 2;
                let one = own.question.clone();
                own.question.extend(one);
            }),
            good(),
        ),
        (
            "another name",
            first_a_false_one(|own| {
                own.question = [wire("evil.example"), vec![0, 1, 0, 1]].concat();
            }),
            good(),
        ),
        ("another class", first_a_false_one(|own| *own.question.last_mut().unwrap() = 3), good()),
        (
            "a pointer to itself",
            first_a_false_one(|own| {
                let at = u8::try_from(12 + own.question.len()).unwrap();
                own.answers.insert(0, (vec![0xc0, at], A, INTERNET, GOOD.to_vec()));
            }),
            good(),
        ),
        (
            "a pointer ahead",
            first_a_false_one(|own| {
                own.answers.insert(0, (vec![0xc0, 0xff], A, INTERNET, GOOD.to_vec()));
            }),
            good(),
        ),
        (
            "a pointer in the question",
            first_a_false_one(|own| own.question = vec![0xc0, 12, 0, 1, 0, 1]),
            good(),
        ),
        (
            "a name that is too long",
            first_a_false_one(|own| {
                own.answers.insert(0, ([&[63; 64][..]; 5].concat(), A, INTERNET, GOOD.to_vec()));
            }),
            good(),
        ),
        (
            "a question that is cut off",
            first_a_false_one(|own| {
                own.question.pop();
            }),
            good(),
        ),
        (
            "cut, and whole over TCP",
            Arc::new(|mut response, kind, is_tcp| {
                let address = if is_tcp { GOOD } else { INSIDE };
                if kind == A {
                    response.add("api.example", A, address.to_vec());
                }
                response.flags |= if is_tcp { 0 } else { CUT };
                vec![response.bytes()]
            }),
            good(),
        ),
        (
            "inside over TCP",
            Arc::new(|mut response, kind, is_tcp| {
                let address = if is_tcp { INSIDE } else { GOOD };
                if kind == A {
                    response.add("api.example", A, address.to_vec());
                }
                response.flags |= if is_tcp { 0 } else { CUT };
                vec![response.bytes()]
            }),
            inside(),
        ),
        (
            "of another name over TCP",
            Arc::new(|mut response, _, is_tcp| {
                response.flags |= if is_tcp { 0 } else { CUT };
                if is_tcp {
                    response.question = [wire("evil.example"), vec![0, 1, 0, 1]].concat();
                    response.add("evil.example", A, GOOD.to_vec());
                }
                vec![response.bytes()]
            }),
            nowhere(),
        ),
    ];
    let tries = cases.into_iter().map(async |(what, lie, expected)| {
        assert_eq!(connected(port, lie).await, expected, "{what}");
    });
    futures_util::future::join_all(tries).await;
}

#[tokio::test]
async fn no_form_of_an_internal_address_is_an_answer() {
    let port = echo(b"hi").await.port();
    let four = [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.5",
        "100.64.0.1",
        "127.0.0.2",
        "169.254.169.254",
        "172.16.0.1",
        "192.0.0.8",
        "192.168.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
    ];
    let six = [
        "::",
        "::1",
        "::10.0.0.5",
        "::ffff:10.0.0.5",
        "::ffff:127.0.0.2",
        "::ffff:0:10.0.0.5",
        "64:ff9b::10.0.0.5",
        "64:ff9b::127.0.0.1",
        "64:ff9b:1::10.0.0.5",
        "100::1",
        "2001::1",
        "2001:2::1",
        "2002:a00:5::1",
        "2002:7f00:1::",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::5efe:10.0.0.5",
    ];
    for text in four.iter().chain(&six) {
        let address: std::net::IpAddr = text.parse().unwrap();
        let (own, data) = match address {
            std::net::IpAddr::V4(address) => (A, address.octets().to_vec()),
            std::net::IpAddr::V6(address) => (AAAA, address.octets().to_vec()),
        };
        // Also behind an address that may be connected to.
        for with_good in [false, true] {
            let data = data.clone();
            let lie: Lie = Arc::new(move |mut response, kind, _| {
                if with_good && kind == A {
                    response.add("api.example", A, GOOD.to_vec());
                }
                if kind == own {
                    response.add("api.example", own, data.clone());
                }
                vec![response.bytes()]
            });
            assert_eq!(connected(port, lie).await, Err("internal-address"), "{text}");
        }
    }
}
