//! A denied path in all forms in which a server may read it. The readers here do what servers,
//! gateways and frameworks do to a path before they look for what it names: in any order, and again.

use proptest::prelude::*;
use serde_json::json;

use super::{Name, Policy};

const DENIED: &str = "/denied";

/// Parts of targets.
const PARTS: &[&str] = &[
    "/",
    "/",
    "/",
    "denied",
    "denied",
    "open",
    "x",
    ".",
    "..",
    "//",
    "\\",
    ";",
    ";a=b",
    "?",
    "#",
    "&",
    "=",
    " ",
    "DENIED",
    "Denied",
    "d",
    "enied",
    "%64",
    "%44",
    "%64enied",
    "%2e",
    "%2E",
    "%2e%2e",
    "%2f",
    "%2F",
    "%5c",
    "%3b",
    "%3f",
    "%23",
    "%25",
    "%252e",
    "%252f",
    "%2564",
    "%00",
    "%0d%0a",
    "%09",
    "%20",
    "%",
    "%2",
    "%u002f",
    "%c0%af",
    "%c0%ae",
    "%e0%80%af",
    "%ef%bc%8f",
    "%ef%bd%84",
    "%ef%bc%8e",
    "%e2%80%a4",
    "%e2%84%aa",
    "%ff",
    "~",
    "*",
    "a.b",
    "/open/",
    "/denied/",
    "/x/",
    "/../",
    "/./",
    "é",
    "\u{ff0f}",
];

/// One step of a server that reads a path.
#[derive(Debug, Clone, Copy)]
enum Step {
    Decode,
    DecodeOverlong,
    Compatible,
    MergeSlashes,
    Backslashes,
    DotSegments,
    Parameters,
    Lower,
    TrailingDots,
    CutQuery,
    CutZero,
    Trim,
}

const STEPS: &[Step] = &[
    Step::Decode,
    Step::DecodeOverlong,
    Step::Compatible,
    Step::MergeSlashes,
    Step::Backslashes,
    Step::DotSegments,
    Step::Parameters,
    Step::Lower,
    Step::TrailingDots,
    Step::CutQuery,
    Step::CutZero,
    Step::Trim,
];

/// A path as bytes, each a character below 256, so that a wrong encoding has a meaning as well.
fn bytes_of(text: &str) -> String {
    text.bytes().map(char::from).collect()
}

fn decoded(path: &str) -> String {
    let bytes: Vec<char> = path.chars().collect();
    let mut plain = String::new();
    let mut at = 0;
    while at < bytes.len() {
        let digits: String = bytes.iter().skip(at + 1).take(2).collect();
        match (bytes[at], u8::from_str_radix(&digits, 16)) {
            ('%', Ok(byte)) if digits.len() == 2 => {
                plain.push(char::from(byte));
                at += 3;
            }
            (other, _) => {
                plain.push(other);
                at += 1;
            }
        }
    }
    plain
}

fn read(path: &str, step: Step) -> String {
    let segments =
        |change: &dyn Fn(&str) -> String| path.split('/').map(change).collect::<Vec<_>>().join("/");
    match step {
        Step::Decode => decoded(path),
        Step::DecodeOverlong => path
            .replace("\u{c0}\u{af}", "/")
            .replace("\u{c0}\u{ae}", ".")
            .replace("\u{e0}\u{80}\u{af}", "/"),
        Step::Compatible => path
            .replace("\u{ef}\u{bc}\u{8f}", "/")
            .replace("\u{ef}\u{bd}\u{84}", "d")
            .replace("\u{ef}\u{bc}\u{8e}", ".")
            .replace("\u{e2}\u{80}\u{a4}", "."),
        Step::MergeSlashes => {
            let mut merged = path.to_owned();
            while merged.contains("//") {
                merged = merged.replace("//", "/");
            }
            merged
        }
        Step::Backslashes => path.replace('\\', "/"),
        Step::DotSegments => {
            let mut kept: Vec<&str> = Vec::new();
            for segment in path.split('/') {
                match segment {
                    "." => {}
                    ".." => drop(kept.pop()),
                    other => kept.push(other),
                }
            }
            let joined = kept.join("/");
            if joined.starts_with('/') { joined } else { format!("/{joined}") }
        }
        Step::Parameters => segments(&|segment| segment.split(';').next().unwrap().to_owned()),
        Step::Lower => path.to_ascii_lowercase(),
        Step::TrailingDots => segments(&|segment| segment.trim_end_matches(['.', ' ']).to_owned()),
        Step::CutQuery => path.split(['?', '#']).next().unwrap().to_owned(),
        Step::CutZero => path.split('\0').next().unwrap().to_owned(),
        Step::Trim => path.trim_matches([' ', '\t', '\r', '\n']).to_owned(),
    }
}

fn is_denied(path: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap();
    path.strip_prefix(DENIED).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn policies() -> Vec<(Policy, Name)> {
    let name = Name::parse("api.example").unwrap();
    let denying = json!([
        {"action": "allow", "target": "api.example"},
        {"action": "deny", "target": "api.example", "requests": {"paths": ["/denied/*"]}},
    ]);
    let allowing = json!([
        {"action": "allow", "target": "api.example", "requests": {"paths": ["/open/*", "/x"]}},
    ]);
    [denying, allowing]
        .map(|rules| serde_json::from_value(json!({"default": "deny", "rules": rules})).unwrap())
        .map(|policy| (policy, name.clone()))
        .into()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn what_a_server_may_take_for_a_denied_path_is_denied(
        parts in prop::collection::vec(prop::sample::select(PARTS), 0..7),
        steps in prop::collection::vec(prop::sample::select(STEPS), 0..6),
    ) {
        let target = format!("/{}", parts.concat());
        // What is behind a question mark as such is no path to any server.
        let mut path = bytes_of(target.split('?').next().unwrap());
        for step in steps {
            path = read(&path, step);
        }
        if is_denied(&path) {
            for (policy, name) in policies() {
                let checked = policy.check_request(&name, 443, ("GET", &target));
                prop_assert!(checked.is_err(), "{target:?} is read as {path:?}");
            }
        }
    }
}

#[test]
fn plain_paths_are_allowed() {
    for (policy, name) in policies() {
        for target in ["/open/x", "/open/a.b?x=/denied", "/open/caf%C3%A9", "/x"] {
            assert!(policy.check_request(&name, 443, ("GET", target)).is_ok(), "{target}");
        }
        for target in ["/denied", "/denied/", "/DENIED/x", "/open/../denied", "/%64enied"] {
            assert!(policy.check_request(&name, 443, ("GET", target)).is_err(), "{target}");
        }
    }
}

/// The readers find the path in forms that are known to have been read so.
#[test]
fn the_readers_read() {
    for (target, steps) in [
        ("/open/..%2fdenied", &[Step::Decode, Step::DotSegments][..]),
        ("/%2564enied", &[Step::Decode, Step::Decode]),
        ("/x;/..\\denied", &[Step::Parameters, Step::Backslashes, Step::DotSegments]),
        ("//denied.", &[Step::MergeSlashes, Step::TrailingDots]),
        ("/%c0%ae./denied", &[Step::Decode, Step::DecodeOverlong, Step::DotSegments]),
        ("/%ef%bd%84enied", &[Step::Decode, Step::Compatible]),
    ] {
        let path = steps.iter().fold(bytes_of(target), |path, step| read(&path, *step));
        assert!(is_denied(&path), "{target} is read as {path}");
    }
}
