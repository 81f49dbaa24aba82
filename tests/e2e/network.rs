//! What a run can connect to: nothing, or what `--allow` names, whichever mechanism a program uses.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use serde_json::Value;

use crate::call::Outcome;
use crate::daemons::wait_until;
use crate::harness::World;
use crate::host::processes_with;

/// A server on the host's loopback that sends one sentence to every client.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn start(address: &str, sentence: &str) -> Option<Self> {
        let listener = TcpListener::bind(address).ok()?;
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (counted, sentence) = (Arc::clone(&connections), sentence.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                counted.fetch_add(1, Ordering::SeqCst);
                let mut question = [0; 1024];
                let _ = stream.read(&mut question);
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{sentence}",
                    sentence.len()
                );
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Some(Self { address, connections })
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// `stockade WORDS` on a host that resolves these names and has no name server for others.
pub(crate) fn with_names(world: &World, names: &str, words: &[&str]) -> Outcome {
    let [hosts, resolver] = name_files(world, names);
    world.stockade_by(&["with-names", &hosts, &resolver], words).finish()
}

/// `/etc/hosts` and `/etc/resolv.conf` of such a host.
pub(crate) fn name_files(world: &World, names: &str) -> [String; 2] {
    let files = [world.path("hosts"), world.path("resolv.conf")];
    // No name server listens there.
    let texts = [format!("127.0.0.1 localhost\n{names}\n"), "nameserver 127.0.0.53\n".to_owned()];
    for (file, text) in files.iter().zip(&texts) {
        // A server that is already running may be reading the file, and would find it empty.
        if std::fs::read_to_string(file).ok().as_ref() != Some(text) {
            world.plant(file, text);
        }
    }
    files.map(|path: PathBuf| path.to_str().unwrap().to_owned())
}

/// The same for `run OPTIONS -- COMMAND`.
pub(crate) fn run_with_names(
    world: &World,
    names: &str,
    options: &[&str],
    command: &[&str],
) -> Outcome {
    let mut run = vec!["run", "--discard"];
    run.extend(options);
    run.push("--");
    run.extend(command);
    with_names(world, names, &run)
}

pub(crate) const NAMES: &str = "127.0.0.1 service.test other.test";

fn an_allowed_name_is_reached_by_every_way(world: &World) {
    let server = Server::start("127.0.0.1:0", "greetings").unwrap();
    let port = server.address.port();
    let (name, here) = (format!("service.test:{port}"), format!("127.0.0.1:{port}"));
    let options = ["--allow", &name, "--allow", &here];
    for route in ["direct", "proxy"] {
        let outcome = run_with_names(world, NAMES, &options, &["./probe", "fetch", route, &name]);
        outcome.is_blocked();
        assert!(outcome.stdout.contains("greetings"), "{outcome}");
        assert!(!outcome.stderr.contains("refused"), "{outcome}");
    }
    assert_eq!(server.connections(), 2);
}

fn what_is_not_allowed_is_refused_and_told_with_how_to_allow_it(world: &World) {
    let server = Server::start("127.0.0.1:0", "greetings").unwrap();
    let port = server.address.port();
    let (name, here) = (format!("service.test:{port}"), format!("127.0.0.1:{port}"));
    let other = format!("other.test:{port}");
    let options = ["--allow", &name, "--allow", &here];
    let fetch = |way| ["./probe", "fetch", way, &other, "10.0.0.1:80", "service.test:1"];
    for route in ["direct", "proxy"] {
        let outcome = run_with_names(world, NAMES, &options, &fetch(route));
        outcome.is_blocked();
        assert!(!outcome.stdout.contains("greetings"), "{outcome}");
        for hint in ["--allow other.test", "--allow 10.0.0.1:80", "--allow service.test:1"] {
            assert!(outcome.stderr.contains(&format!("hint: {hint}")), "{hint}: {outcome}");
        }
    }
    let with_json = ["--json", options[0], options[1], options[2], options[3]];
    let outcome = run_with_names(world, NAMES, &with_json, &fetch("proxy"));
    let network = outcome.json()["network"].clone();
    assert_eq!(network["policy"]["default"], "deny", "{network}");
    assert_eq!(network["lost"], 0, "{network}");
    let refused = |host: &str| {
        let all = network["refused"].as_array().unwrap();
        let found = all.iter().find(|refused| refused["host"] == host);
        found.cloned().unwrap_or_else(|| panic!("{host}: {network}"))
    };
    for (host, reason, allow) in [
        ("other.test", "not-allowed", format!("--allow {other}")),
        ("10.0.0.1", "address-not-allowed", "--allow 10.0.0.1:80".to_owned()),
        ("service.test", "port-not-allowed", "--allow service.test:1".to_owned()),
    ] {
        let refused = refused(host);
        assert_eq!(refused["reason"], reason, "{network}");
        assert_eq!(refused["allow"], Value::from(allow), "{network}");
        assert_eq!(refused["way"], "proxy", "{network}");
        assert_eq!(refused["code"], "EGRESS_DENIED", "{network}");
    }
    assert_eq!(server.connections(), 0, "somebody was reached");
}

/// An allowed name gives no access to the host's own addresses, unless those are allowed too.
fn a_name_alone_does_not_open_the_host(world: &World) {
    let server = Server::start("127.0.0.1:0", "greetings").unwrap();
    let name = format!("service.test:{}", server.address.port());
    for route in ["direct", "proxy"] {
        let command = ["./probe", "fetch", route, &name];
        let outcome = run_with_names(world, NAMES, &["--allow", &name], &command);
        assert!(!outcome.stdout.contains("greetings"), "{outcome}");
        assert!(outcome.stderr.contains("[internal-address]"), "{outcome}");
    }
    assert_eq!(server.connections(), 0, "somebody was reached");
}

fn isolation_says_what_is_in_force(world: &World) {
    let network = |options: &[&str]| {
        let mut all = vec!["--discard", "--json"];
        all.extend(options);
        let json = world.run(&all, &["sh", "-c", "env; cat /etc/resolv.conf"]).json();
        assert_eq!(json["isolation"]["level"], "full", "{json}");
        let walls = json["isolation"]["walls"].as_array().unwrap().clone();
        let wall = walls.into_iter().find(|wall| wall["name"] == "network").unwrap();
        assert_eq!(wall["raised"], true, "{json}");
        (wall["reason"].clone(), json["network"].clone(), json["stdout"].to_string())
    };
    for options in [&[][..], &["--net", "off"]] {
        let (reason, network, stdout) = network(options);
        assert_eq!((reason, network), (Value::Null, Value::Null));
        // Only of what refuses at once.
        assert!(stdout.contains("HTTP_PROXY=http://127.0.0.1:1021"), "{stdout}");
        assert!(stdout.contains("nameserver 127.0.0.1"), "{stdout}");
    }
    for options in [&["--net", "policy"][..], &["--allow", "service.test"]] {
        let (reason, network, stdout) = network(options);
        assert!(reason.as_str().unwrap().contains("by policy"), "{reason}");
        assert_eq!(network["refused"], serde_json::json!([]));
        for variable in ["HTTP_PROXY=http://127.0.0.1:", "https_proxy=http://127.0.0.1:"] {
            assert!(stdout.contains(variable), "{stdout}");
        }
        assert!(stdout.contains("nameserver 127.0.0.1"), "{stdout}");
    }
}

fn what_cannot_be_meant_is_refused(world: &World) {
    for options in [
        &["--net", "off", "--allow", "host.example"][..],
        &["--allow", "localhost:80"],
        &["--allow", "https://host.example/"],
        &["--allow", "host.example:0"],
        &["--allow", ""],
    ] {
        let outcome = world.run(options, &["true"]);
        outcome.is_refused().ends_with(125);
        assert_eq!(outcome.stdout, "", "{outcome}");
    }
}

/// The egress process ends with its run, however the run ends.
fn nothing_outlives_a_run(world: &World) {
    let script = "echo ready; exec sleep 100";
    let run = ["run", "--discard", "--net", "policy", "--", "sh", "-c", script];
    let mut run = world.stockade(&run).start();
    run.wait_for_output("ready");
    let parent = format!("PPid:\t{}\n", run.pid());
    let of_this_run = |process: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        status.contains(&parent)
    };
    let found: Vec<_> = processes_with("__egress").into_iter().filter(of_this_run).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    run.signal(Signal::KILL);
    wait_until("the way out has ended", || !processes_with("__egress").contains(&found[0]));
}

as_root_and_as_user![
    an_allowed_name_is_reached_by_every_way,
    what_is_not_allowed_is_refused_and_told_with_how_to_allow_it,
    a_name_alone_does_not_open_the_host,
    isolation_says_what_is_in_force,
    what_cannot_be_meant_is_refused,
    nothing_outlives_a_run,
];
