//! What leaves over a connection to an allowed host: a request that names another host to some
//! server, and TLS that names none, do not.

use std::io::Read as _;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::harness::World;
use crate::network::{NAMES, run_with_names};

/// A server on the host's loopback that stores what it receives, and answers nothing.
struct Recorder {
    port: u16,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let storing = Arc::clone(&received);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let storing = Arc::clone(&storing);
                std::thread::spawn(move || {
                    let mut bytes = Vec::new();
                    let _ = stream.read_to_end(&mut bytes);
                    storing.lock().unwrap().extend(bytes);
                });
            }
        });
        Self { port, received }
    }
}

/// Sends each of these on a connection of its own, and prints what comes back, as hexadecimal
/// digits. The `printf` of bash writes line by line, and a first line that is no HTTP decides alone.
const SEND: &str = r#"
port=$1; shift
for bytes in "$@"; do
    exec 3<>/dev/tcp/service.test/"$port"
    env printf '%b' "$bytes" >&3
    timeout 20 od -An -v -tx1 <&3 | tr -d ' \n'
    echo
    exec 3>&-
done
"#;

/// What comes back for each of these, and what the server received of all.
fn sent(world: &World, all: &[&[u8]]) -> (Vec<String>, String) {
    let server = Recorder::start();
    let port = server.port.to_string();
    let (name, here) = (format!("service.test:{port}"), format!("127.0.0.1:{port}"));
    let escaped: Vec<String> = all
        .iter()
        .map(|bytes| bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect())
        .collect();
    let mut command = vec!["bash", "-c", SEND, "send", &port];
    command.extend(escaped.iter().map(String::as_str));
    let options = ["--allow", &name, "--allow", &here];
    let outcome = run_with_names(world, NAMES, &options, &command);
    let lines = outcome.stdout.lines().map(text_of).collect();
    let received = String::from_utf8_lossy(&server.received.lock().unwrap()).into_owned();
    (lines, received)
}

fn text_of(digits: &str) -> String {
    let digit =
        |at: usize| digits.get(at..at + 2).map(|pair| u8::from_str_radix(pair, 16).unwrap());
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).filter_map(digit).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn a_request_for_another_host_does_not_leave(world: &World) {
    let long = [&[b'A'; 65][..], b" / HTTP/1.1\r\nHost: other.test\r\n\r\n"].concat();
    let all: [&[u8]; 9] = [
        &long,
        b"GET /\r\nHost: other.test\r\n\r\n",
        b"GET\t/\tHTTP/1.1\r\nHost: other.test\r\n\r\n",
        b"GET /\x0bHTTP/1.1\r\nHost: other.test\r\n\r\n",
        b"GET /\x1cHTTP/1.1\r\nHost: other.test\r\n\r\n",
        b"GE(T / HTTP/1.1\r\nHost: other.test\r\n\r\n",
        b"EHLO me\r\nHost: other.test\r\n\r\n",
        b"\r\nGET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: service.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    ];
    let (answers, received) = sent(world, &all);
    assert_eq!(answers.len(), all.len(), "{answers:?}");
    for (answer, bytes) in answers.iter().zip(all) {
        let is_refused = answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.1 403 ");
        assert!(is_refused, "{:?}: {answer}", String::from_utf8_lossy(bytes));
        assert!(answer.contains("Stockade-Egress-Refused: "), "{answer}");
    }
    assert_eq!(received, "");
}

/// A ClientHello with the extension of these bytes.
fn hello(extensions: &[u8]) -> Vec<u8> {
    let sized = |content: &[u8]| {
        [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
    };
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &sized(extensions)].concat();
    let message = [&[1, 0][..], &sized(&body)].concat();
    [&[22, 3, 1][..], &sized(&message)].concat()
}

fn tls_without_a_server_name_does_not_leave(world: &World) {
    let nameless = hello(&[0, 16, 0, 5, 0, 3, 2, b'h', b'2']);
    let empty = hello(&[0, 0, 0, 5, 0, 3, 0, 0, 0]);
    let (answers, received) = sent(world, &[&nameless, &empty]);
    // The alert `access_denied`.
    assert_eq!(answers, ["\u{15}\u{3}\u{3}\0\u{2}\u{2}1"; 2]);
    assert_eq!(received, "");
}

as_root_and_as_user![
    a_request_for_another_host_does_not_leave,
    tls_without_a_server_name_does_not_leave,
];
