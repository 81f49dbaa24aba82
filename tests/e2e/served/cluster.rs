//! Several servers on one database: a request for a sandbox of another server is passed on, nobody else can
//! pass one on, and a server that dies leaves nothing that runs twice.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use stockade_test_support::{Postgres, skipped};

use super::{Server, key};
use crate::call::Outcome;
use crate::harness::World;

const SECRET: &str = "an example secret of thirty-two bytes or more";
/// How long a test waits for another server to notice something.
const DEADLINE: Duration = Duration::from_secs(60);

/// The servers of a cluster, each with a data directory of its own.
pub(super) struct Cluster<'w> {
    world: &'w World,
    url: String,
    postgres: Postgres,
}

impl<'w> Cluster<'w> {
    pub(super) fn new(world: &'w World) -> Option<Self> {
        match Postgres::start() {
            Ok(postgres) => Some(Self { world, url: postgres.database(), postgres }),
            Err(reason) => {
                skipped(&reason);
                None
            }
        }
    }

    fn directory(&self, name: &str) -> String {
        let directory = match name {
            "a" => self.world.data(),
            name => self.world.path(name),
        };
        directory.to_str().unwrap().to_owned()
    }

    pub(super) fn start(&self, name: &str, options: &[&str]) -> Server {
        self.start_with(name, options, &self.url)
    }

    /// A server that reaches the database at this URL.
    fn start_with(&self, name: &str, options: &[&str], url: &str) -> Server {
        let directory = self.directory(name);
        let settings = [
            ("STOCKADE_DATABASE_URL", url),
            ("STOCKADE_CLUSTER_SECRET", SECRET),
            ("STOCKADE_HOST_PATIENCE", "3"),
            ("STOCKADE_POOL", "0"),
            ("STOCKADE_DATA_DIR", directory.as_str()),
        ];
        Server::start_with(self.world, options, &settings)
    }

    /// A command that uses the server of a directory.
    pub(super) fn call(&self, name: &str, words: &[&str]) -> Outcome {
        self.world.stockade(words).env("STOCKADE_DATA_DIR", self.directory(name)).finish()
    }

    /// The state of a sandbox; none as long as it is asked of a server that does not answer.
    fn state(&self, name: &str, id: &str) -> String {
        let shown = self.call(name, &["show", id, "--json"]);
        if shown.stderr.contains("UNREACHABLE") || shown.stdout.contains("UNREACHABLE") {
            return String::new();
        }
        shown.succeeds();
        shown.json()["state"].as_str().unwrap().to_owned()
    }
}

pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the runtime of the first server has something of a sandbox.
fn holds(world: &World, id: &str) -> bool {
    let mut find = std::process::Command::new("find");
    let found = find.arg(world.data().join("runtime")).args(["-name", id]).output().unwrap();
    !found.stdout.is_empty()
}

/// Files, commands, streams and ports of a sandbox are reached through another server; when its own server
/// dies it is given up, and its server continues with its files.
fn a_sandbox_is_used_through_another_server(world: &World) {
    let Some(cluster) = Cluster::new(world) else { return };
    let a = cluster.start("a", &[]);
    let b = cluster.start("b", &[]);
    for id in ["box", "lost"] {
        cluster.call("a", &["create", "--id", id]).succeeds();
    }
    assert!(holds(world, "lost"));
    let write = "echo kept > /tmp/file; echo to-stderr >&2; cat";
    let ran = world
        .stockade(&["exec", "-i", "box", "--", "sh", "-c", write])
        .env("STOCKADE_DATA_DIR", cluster.directory("b"))
        .input("typed")
        .finish();
    ran.succeeds();
    assert_eq!((ran.stdout.as_str(), ran.stderr.contains("to-stderr")), ("typed", true), "{ran:?}");
    let read = cluster.call("b", &["exec", "box", "--", "cat", "/tmp/file"]);
    assert_eq!(read.stdout, "kept\n");
    assert_eq!(cluster.state("b", "box"), "running");

    // A port, by the dialect of OpenSandbox on the other server.
    let (key, _) = key(world, &[]);
    let listens = "import http.server as h; h.HTTPServer(('127.0.0.1', 3000), \
                   h.SimpleHTTPRequestHandler).serve_forever()";
    cluster.call("b", &["exec", "-d", "box", "--", "python3", "-c", listens]).succeeds();
    let token = b.token(&key, "box", 3000);
    until("a port that answers", || {
        b.request("GET /v1/sandboxes/box/proxy/3000/", &[&token], b"").status == 200
    });

    // Nobody else names a caller to a server of the cluster.
    let version = format!("stockade-version: {}", env!("CARGO_PKG_VERSION"));
    let owner = "stockade-forwarded: eyJvd25lciI6Im1lIn0.00";
    let bearer = format!("x-api-key: {key}");
    for headers in [&[version.as_str()][..], &[&version, owner], &[&version, &bearer, owner]] {
        let refused = a.json("POST /stockade-cluster/v0/call/list", headers, &json!({}));
        assert_eq!(refused.status, 401, "{}", refused.text());
    }
    let ignored = b.json("POST /stockade/v0/call/list", &[&version, owner], &json!({}));
    assert_eq!(ignored.status, 401, "{}", ignored.text());

    a.running.signal(Signal::KILL);
    a.running.finish();
    until("a silent server", || {
        let refused = cluster.call("b", &["exec", "box", "--", "true"]);
        refused.stderr.contains("UNREACHABLE") || refused.stderr.contains("INVALID_STATE")
    });
    until("given up", || cluster.state("b", "box") == "stopped");
    let refused = cluster.call("b", &["start", "box"]);
    assert!(refused.stderr.contains("UNREACHABLE"), "{refused:?}");
    let own = cluster.call("b", &["create", "--id", "own"]);
    own.succeeds();
    // Its owner gets rid of one of the sandboxes, and uses its id again.
    let killed = cluster.call("b", &["kill", "lost"]);
    killed.succeeds();
    assert!(killed.stderr.contains("may still be on that machine"), "{killed:?}");
    cluster.call("b", &["create", "--id", "lost"]).succeeds();

    let _a = cluster.start("a", &[]);
    assert!(!holds(world, "lost"), "it is still on the machine of its first server");
    cluster.call("a", &["exec", "lost", "--", "true"]).succeeds();
    until("started again", || cluster.call("b", &["start", "box"]).code() == 0);
    let read = cluster.call("b", &["exec", "box", "--", "cat", "/tmp/file"]);
    assert_eq!(read.stdout, "kept\n", "{read:?}");
    cluster.call("a", &["exec", "own", "--", "true"]).succeeds();
    for id in ["box", "own", "lost"] {
        cluster.call("b", &["kill", id]).succeeds();
    }
}

/// A server that was only paused notices that it was given up, and ends.
fn a_paused_server_is_given_up_and_ends(world: &World) {
    let Some(cluster) = Cluster::new(world) else { return };
    let a = cluster.start("a", &[]);
    let _b = cluster.start("b", &[]);
    cluster.call("a", &["create", "--id", "box"]).succeeds();
    a.running.signal(Signal::STOP);
    until("given up", || cluster.state("b", "box") == "stopped");
    a.running.signal(Signal::CONT);
    let ended = a.running.finish();
    assert_ne!(ended.code(), 0, "{ended:?}");
    assert!(ended.stderr.contains("given up"), "{ended:?}");
}

/// The way of one server to the database, which can be cut.
struct Way {
    port: u16,
    is_cut: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let way = Self { port: own, is_cut: Arc::default(), open: Arc::default() };
        let (is_cut, open) = (Arc::clone(&way.is_cut), Arc::clone(&way.open));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                for (mut from, mut to) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server.try_clone().unwrap(), client.try_clone().unwrap()),
                ] {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                open.lock().unwrap().extend([client, server]);
            }
        });
        way
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

/// How many processes of the machine have this word in their arguments.
fn processes_with(word: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(word)).count()
}

/// A server that does not reach the database for longer than its lease records nothing more, also when it reaches
/// it again; and when it is back, nothing that was given up runs any more.
fn a_server_that_is_cut_off_from_the_database_is_given_up(world: &World) {
    let Some(cluster) = Cluster::new(world) else { return };
    let (start, database) = cluster.url.rsplit_once('/').unwrap();
    let (name, port) = start.rsplit_once(':').unwrap();
    let way = Way::to(port.parse().unwrap());
    let url = format!("{name}:{}/{database}", way.port);
    let a = cluster.start_with("a", &[], &url);
    let b = cluster.start("b", &[]);
    cluster.call("a", &["create", "--id", "box"]).succeeds();
    let word = format!("ticks-{}", way.port);
    let ticks = format!(": {word}; while :; do echo tick >> /tmp/ticks; sleep 0.1; done");
    cluster.call("a", &["exec", "-d", "box", "--", "sh", "-c", &ticks]).succeeds();
    let waits = world
        .stockade(&["exec", "box", "--", "sleep", "1000"])
        .env("STOCKADE_DATA_DIR", cluster.directory("b"))
        .start();
    until("a command that runs", || processes_with(&word) > 0);

    way.cut();
    until("given up", || cluster.state("b", "box") == "stopped");
    let ended = waits.finish();
    assert_ne!(ended.code(), 0, "{ended:?}");
    assert!(ended.stderr.contains("UNREACHABLE"), "{ended:?}");
    let refused = cluster.call("b", &["exec", "box", "--", "true"]);
    assert!(refused.stderr.contains("UNREACHABLE") || refused.stderr.contains("INVALID_STATE"));
    cluster.call("b", &["create", "--id", "own"]).succeeds();
    // What it has not recorded before is never recorded.
    let sql = "SELECT count(*) FROM stockade.workflow_status WHERE completed_at IS NULL \
               AND name <> 'sandbox.watch' AND place = (SELECT id FROM stockade.sandbox_hosts \
               WHERE lost_at IS NOT NULL)";
    assert_eq!(cluster.postgres.run_sql(database, sql), "0");
    way.mend();
    let given_up = a.running.finish();
    assert_ne!(given_up.code(), 0, "{given_up:?}");
    assert!(given_up.stderr.contains("given up"), "{given_up:?}");
    assert_eq!(cluster.state("b", "box"), "stopped");

    let _a = cluster.start_with("a", &[], &url);
    until("no process of what was given up", || processes_with(&word) == 0);
    until("started again", || cluster.call("b", &["start", "box"]).code() == 0);
    let read = cluster.call("b", &["exec", "box", "--", "head", "-1", "/tmp/ticks"]);
    assert_eq!(read.stdout, "tick\n", "{read:?}");
    assert_eq!(processes_with(&word), 0);
    for id in ["box", "own"] {
        cluster.call("a", &["kill", id]).succeeds();
    }
    drop(b);
}

/// A server without the queue of sandboxes passes new ones on.
fn a_server_without_queues_holds_no_sandboxes(world: &World) {
    let Some(cluster) = Cluster::new(world) else { return };
    let front = cluster.start("a", &["--queues", "none"]);
    let _b = cluster.start("b", &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let id = front.create(&key);
    let header = format!("x-api-key: {key}");
    until("created", || {
        let found = front.request(&format!("GET /v1/sandboxes/{id}"), &[&header], b"").value();
        found["status"]["state"] == json!("Running")
    });
    let (_, database) = cluster.url.rsplit_once('/').unwrap();
    let host = cluster.postgres.run_sql(database, "SELECT host FROM stockade.sandbox_instances");
    let own = std::fs::read_to_string(world.path("b").join("host")).unwrap();
    assert_eq!(host, own.trim());
    let deleted = front.request(&format!("DELETE /v1/sandboxes/{id}"), &[&header], b"");
    assert_eq!(deleted.status, 204, "{}", deleted.text());
}

as_root_and_as_user!(
    a_sandbox_is_used_through_another_server,
    a_paused_server_is_given_up_and_ends,
    a_server_that_is_cut_off_from_the_database_is_given_up,
    a_server_without_queues_holds_no_sandboxes,
);
