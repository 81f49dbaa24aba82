//! Targets that some server reads as a path below `/denied`.

use std::net::SocketAddr;

use super::requests::ALLOWED;
use super::{direct, exchange};

/// Forms of one path.
const TARGETS: &[&str] = &[
    "/denied",
    "/denied/",
    "/denied/x",
    "/denied?x",
    "/denied/x?y=/open",
    "//denied/x",
    "///denied",
    "/./denied/x",
    "/open/../denied/x",
    "/open/./../denied",
    "/open/x/../../denied/x",
    "/../denied/x",
    "/%64enied/x",
    "/%44enied/x",
    "/d%65nied",
    "/denie%64/x",
    "/%2564enied/x",
    "/%2e/denied/x",
    "/open/%2e%2e/denied/x",
    "/open/%2E%2E/denied/x",
    "/open/.%2e/denied/x",
    "/open%2f..%2fdenied/x",
    "/open/..%2Fdenied",
    "/%2fdenied/x",
    "/denied%2fx",
    "/denied%2Fx",
    "/open/..\\denied/x",
    "/open\\..\\denied/x",
    "\\denied/x",
    "/\\denied/x",
    "/open/..%5cdenied/x",
    "/%5cdenied",
    "/denied;x/y",
    "/denied;/x",
    "/;/denied/x",
    "/open/..;/denied/x",
    "/denied%3bx",
    "/denied%00",
    "/denied%00/x",
    "/denied/%00x",
    "/denied%20",
    "/denied%20/x",
    "/denied./x",
    "/denied%2e/x",
    "/denied%09/x",
    "/denied#x",
    "/denied%23x",
    "/denied%3fx",
    "/DENIED/x",
    "/Denied",
    "/%c0%ae%c0%ae/denied",
    "/open/%c0%ae%c0%ae/denied",
    "/%c0%afdenied",
    "/%ef%bc%8fdenied/x",
    "/%ef%bd%84enied/x",
    "/denied/../denied/x",
    "/denied/../open",
    "http://allowed.example/denied/x",
    "http://allowed.example//denied/x",
    "HTTP://allowed.example/open/../denied/x",
    "http:/denied/x",
    "http:denied/x",
    "//allowed.example/denied/x",
    "denied/x",
    "./denied/x",
    "*",
];

const MARK: &[u8] = b"denied\n";

/// Compares the check of paths with one server. `proxy` is that of a sandbox whose policy denies all
/// below `/denied`.
pub(super) fn compare(proxy: SocketAddr, server: SocketAddr) {
    let targets = TARGETS.iter().map(|target| target.replace("allowed.example", ALLOWED));
    let targets: Vec<_> = targets.collect();
    // Without the check the server takes several of them for a denied path.
    let taken = targets.iter().filter(|target| direct(server, ALLOWED, target).ends_with(MARK));
    let taken: Vec<_> = taken.collect();
    assert!(taken.len() > 5, "{taken:?}");
    let send = |target: &str| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {ALLOWED}\r\n\r\n");
        exchange(proxy, server, &[request.as_bytes()])
    };
    for target in &targets {
        let answer = send(target);
        assert!(!answer.ends_with(MARK), "{target}: {}", String::from_utf8_lossy(&answer));
    }
    for target in ["/open", "/open/caf%C3%A9?x=/denied", "/deniedx"] {
        let answer = send(target);
        assert!(answer.ends_with(b"served\n"), "{target}: {}", String::from_utf8_lossy(&answer));
    }
}
