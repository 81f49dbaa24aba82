//! `--upstream-proxy`: hosts that only a proxy of the host's network reaches, for runs and for persistent
//! sandboxes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::call::Outcome;
use crate::daemons::{kill_egress, kill_server};
use crate::harness::World;
use crate::network::with_names;

const HOST: &str = "far.test:8080";
const OTHER: &str = "other.test:8080";
const ID: &str = "behind";

/// A proxy that answers for every host itself, and keeps the heads of the requests for tunnels.
#[derive(Debug)]
struct Proxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || answer(stream, &kept));
            }
        });
        Self { address, heads }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The heads since the last call.
    fn heads(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().unwrap())
    }
}

fn answer(mut stream: TcpStream, heads: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let is_tunnel = head.starts_with("CONNECT ");
    heads.lock().unwrap().push(head);
    if !is_tunnel {
        return None;
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    let _ = reader.read(&mut [0; 1024]).ok()?;
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\ngreetings")
        .ok()
}

/// `stockade WORDS` on a host that resolves no name.
fn call(world: &World, words: &[&str]) -> Outcome {
    with_names(world, "", words)
}

fn a_run_reaches_what_is_allowed_through_the_proxy(world: &World) {
    let proxy = Proxy::start();
    let url = proxy.url().replace("http://", "http://ann:p%40ss@");
    for route in ["direct", "proxy"] {
        let fetch = |host| {
            let run = ["run", "--discard", "--upstream-proxy", &url, "--allow", HOST, "--"];
            call(world, &[&run[..], &["./probe", "fetch", route, host]].concat())
        };
        let outcome = fetch(HOST);
        outcome.is_blocked();
        assert!(outcome.stdout.contains("greetings"), "{route}: {outcome}");
        assert!(!outcome.stderr.contains("p%40ss"), "{outcome}");
        let heads = proxy.heads();
        assert_eq!(heads.len(), 1, "{heads:?}");
        assert!(heads[0].starts_with("CONNECT far.test:8080 HTTP/1.1\r\n"), "{heads:?}");
        assert!(heads[0].contains("Proxy-Authorization: Basic YW5uOnBAc3M=\r\n"), "{heads:?}");
        let outcome = fetch(OTHER);
        assert!(!outcome.stdout.contains("greetings"), "{route}: {outcome}");
        assert_eq!(proxy.heads(), Vec::<String>::new(), "the proxy was asked: {outcome}");
    }
    let refused = call(world, &["run", "--upstream-proxy", &proxy.url(), "--", "true"]);
    assert!(refused.stderr.contains("[INVALID_INPUT]"), "{refused}");
}

fn a_policy_is_learned_through_the_proxy(world: &World) {
    let proxy = Proxy::start();
    let file = world.outside().join("learned.toml");
    let learned = file.to_str().unwrap();
    let url = proxy.url();
    let fetch = |options: &[&str]| {
        let run = ["run", "--discard", "--upstream-proxy", &url];
        let command = ["--", "./probe", "fetch", "proxy", HOST];
        call(world, &[&run[..], options, &command].concat())
    };
    let first = fetch(&["--net", "learn", "--learn-file", learned]);
    assert!(first.stdout.contains("greetings"), "{first}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("host = \"far.test\"\nports = [8080]\n"), "{text}");
    let again = fetch(&["--policy", learned]);
    assert!(again.stdout.contains("greetings"), "{again}");
}

fn a_persistent_sandbox_reaches_it_through_the_proxy(world: &World) {
    let proxy = Proxy::start();
    let url = proxy.url();
    let project = world.project.to_str().unwrap();
    let with_password = url.replace("http://", "http://ann:secret@");
    let create = |url: &str| {
        let words = ["create", "--id", ID, "--workspace", project, "--upstream-proxy", url];
        call(world, &[&words[..], &["--allow", HOST]].concat())
    };
    let refused = create(&with_password);
    assert!(refused.stderr.contains("[INVALID_INPUT]"), "{refused}");
    assert!(!refused.stderr.contains("secret"), "{refused}");
    create(&url).succeeds();
    let probe = world.project.join("probe");
    let fetch = |host| {
        let words = ["exec", ID, "--", probe.to_str().unwrap(), "fetch", "proxy", host];
        call(world, &words)
    };
    let is_reached = || {
        let outcome = fetch(HOST);
        assert!(outcome.stdout.contains("greetings"), "{outcome}");
        assert_eq!(proxy.heads().len(), 1, "{outcome}");
    };
    is_reached();
    let outcome = fetch(OTHER);
    assert!(!outcome.stdout.contains("greetings"), "{outcome}");
    assert_eq!(proxy.heads(), Vec::<String>::new(), "the proxy was asked: {outcome}");
    let shown = call(world, &["show", ID, "--json"]);
    assert_eq!(shown.json()["network"]["upstreamProxy"], format!("{url}/"), "{shown}");
    assert!(call(world, &["show", ID]).stdout.contains("through the proxy"));
    // The next processes know it too, and a change of the policy does not lose it.
    kill_server(&world.data());
    is_reached();
    kill_egress(&world.data());
    is_reached();
    call(world, &["allow", ID, OTHER]).succeeds();
    assert!(fetch(OTHER).stdout.contains("greetings"));
    call(world, &["kill", ID, "--discard"]).succeeds();
}

as_root_and_as_user![
    a_run_reaches_what_is_allowed_through_the_proxy,
    a_policy_is_learned_through_the_proxy,
    a_persistent_sandbox_reaches_it_through_the_proxy,
];
