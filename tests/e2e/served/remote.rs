//! `stockade --server URL`: the commands of this machine with the sandboxes of another server, over real
//! TCP and TLS, with the keys of two owners.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustix::process::Signal;
use serde_json::Value;

use super::{Server, key};
use crate::call::{Call, Outcome};
use crate::daemons::wait_until;
use crate::harness::World;

/// A client with a data directory of its own, so that nothing happens on the server's by accident.
struct Client<'w> {
    world: &'w World,
    url: String,
    key: String,
}

impl<'w> Client<'w> {
    fn new(world: &'w World, url: impl Into<String>, key: &str) -> Self {
        Self { world, url: url.into(), key: key.to_owned() }
    }

    fn call(&self, words: &[&str]) -> Call {
        let all: Vec<_> =
            ["--server", &self.url].into_iter().chain(words.iter().copied()).collect();
        self.world
            .stockade(&all)
            .env("STOCKADE_API_KEY", &self.key)
            .env("STOCKADE_DATA_DIR", self.world.path("elsewhere"))
    }

    fn run(&self, words: &[&str]) -> Outcome {
        self.call(words).finish()
    }

    #[track_caller]
    fn json(&self, words: &[&str]) -> Value {
        let outcome = self.run(words);
        outcome.succeeds();
        outcome.json()
    }

    /// No server was started here instead.
    fn nothing_happened_here(&self) {
        let data = self.world.path("elsewhere");
        assert_eq!(crate::daemons::servers(&data), []);
        assert!(!data.join("stockade.db").exists());
    }
}

fn url(server: &Server) -> String {
    format!("http://localhost:{}", server.port)
}

/// Every command that names a sandbox works, and does not for another owner.
fn commands_work_with_the_sandboxes_of_a_server(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let (other, _) = key(world, &["--owner", "other"]);
    let me = Client::new(world, url(&server), &mine);
    let stranger = Client::new(world, url(&server), &other);

    let created = me.json(&["create", "--id", "box", "--label", "a=b", "--json"]);
    assert_eq!((&created["id"], &created["ownerId"]), (&"box".into(), &"me".into()), "{created}");
    let echo = me.call(&["exec", "box", "--", "sh", "-c", "cat; echo err >&2; exit 7"]);
    let echo = echo.input("from the client").finish();
    echo.ends_with(7);
    assert_eq!((echo.stdout.as_str(), echo.stderr.as_str()), ("from the client", "err\n"));

    // Files travel both ways.
    world.write("sent/one.txt", "one");
    me.run(&["cp", "sent", "box:/tmp/sent"]).succeeds();
    me.run(&["exec", "box", "--", "sh", "-c", "echo two >> /tmp/sent/one.txt"]).succeeds();
    me.run(&["cp", "box:/tmp/sent/one.txt", "got.txt"]).succeeds();
    assert_eq!(world.read("got.txt"), "onetwo\n");

    // A detached command, its output, its end and its events.
    let started = me.run(&["exec", "--detach", "box", "--", "sh", "-c", "echo out; sleep 600"]);
    started.succeeds();
    wait_until("the command writes", || me.run(&["logs", "box/latest"]).stdout == "out\n");
    assert!(me.run(&["ps", "box"]).succeeds().stdout.contains("sleep 600"));
    me.run(&["kill", "box/latest"]).succeeds();
    me.run(&["wait", "box/latest"]).ends_with(137);
    assert!(me.run(&["events", "box"]).succeeds().stdout.contains("box"));

    // State, and another sandbox from a snapshot.
    me.run(&["pause", "box"]).succeeds();
    assert_eq!(me.json(&["show", "box", "--json"])["state"], "paused");
    me.run(&["resume", "box"]).succeeds();
    me.run(&["snapshot", "box", "--as", "snap-remote"]).succeeds();
    me.run(&["restore", "snap-remote", "--id", "copy"]).succeeds();
    let read = me.run(&["exec", "copy", "--", "cat", "/tmp/sent/one.txt"]);
    assert_eq!(read.succeeds().stdout, "onetwo\n");
    me.json(&["image", "ls", "--json"]);

    // Nothing of that is there for another owner, nor without a key.
    let listed = |client: &Client<'_>| client.json(&["ls", "--json"]);
    assert_eq!(listed(&me)["sandboxes"].as_array().unwrap().len(), 2);
    assert_eq!(listed(&stranger)["sandboxes"].as_array().unwrap().len(), 0);
    for words in [
        &["show", "box", "--json"][..],
        &["exec", "--json", "box", "--", "true"],
        &["cp", "--json", "box:/tmp/sent", "stolen"],
        &["kill", "box", "--json"],
        &["pause", "box", "--json"],
        &["restore", "snap-remote", "--json"],
        &["renew", "box", "1h", "--json"],
        &["allow", "box", "a.example", "--json"],
    ] {
        let refused = stranger.run(words);
        let code = &refused.json()["error"]["code"];
        assert!(["NOT_FOUND", "INVALID_INPUT"].contains(&code.as_str().unwrap()), "{refused}");
        assert!(!refused.stdout.contains("\"me\""), "{refused}");
        let without = Client::new(world, url(&server), "").run(words);
        assert_eq!(without.json()["error"]["code"], "UNAUTHENTICATED", "{without}");
        assert!(without.stderr.contains("stockade login http://localhost"), "{without}");
    }
    assert_eq!(stranger.run(&["keys", "list", "--json"]).json()["error"]["code"], "FORBIDDEN");
    assert!(!world.has("stolen"));
    me.run(&["kill", "box", "copy"]).succeeds();
    me.nothing_happened_here();
}

/// A command that cannot use the server says so, and does nothing on this machine instead.
fn nothing_runs_here_when_a_server_is_named(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let me = Client::new(world, url(&server), &mine);
    let refused = |words: &[&str], code: &str| {
        let outcome = me.run(words);
        assert_ne!(outcome.code(), 0, "{outcome}");
        assert!(outcome.stderr.contains(&format!("[{code}]")), "{outcome}");
        assert!(outcome.stderr.contains("cause:") && outcome.stderr.contains("hint:"), "{outcome}");
    };
    for words in [
        &["run", "--", "touch", "done"][..],
        &["run", "--apply", "--", "touch", "done"],
        &["diff", "0123", "--commits"],
        &["apply", "latest"],
        &["undo"],
        &["up", "flow.tsx"],
        &["volume", "ls"],
        &["image", "pull", "debian:12"],
        &["image", "prune"],
        &["create", "--workspace", "."],
        &["create", "--mount", "/usr:/x:ro"],
        &["create", "--publish", "8099:80"],
        &["create", "--image", "/srv"],
    ] {
        refused(words, "UNSUPPORTED");
    }
    for words in [&["diff", "latest"][..], &["reject", "latest"], &["reject", "--all"]] {
        refused(words, "INVALID_INPUT");
    }
    refused(&["create", "--net", "policy", "--allow", "host.stockade.internal:80"], "FORBIDDEN");
    let in_process = me.run(&["ls", "--in-process"]);
    assert!(in_process.stderr.contains("--server local"), "{in_process}");
    // The variable says the same as the option.
    let run = world.stockade(&["run", "--", "touch", "done"]).env("STOCKADE_SERVER", url(&server));
    run.finish().ends_with(125);
    assert!(!world.has("done"));
    let here = ["--server", "local", "run", "--apply", "--", "touch", "done"];
    world.stockade(&here).env("STOCKADE_SERVER", url(&server)).finish().succeeds();
    assert!(world.has("done"));
    // No server, and none that is one.
    let closed = Client::new(world, "http://localhost:9", &mine).run(&["ls"]);
    assert!(closed.stderr.contains("[UNREACHABLE]"), "{closed}");
    let other = crate::network::Server::start("127.0.0.1:0", "greetings").unwrap();
    let other = format!("http://localhost:{}", other.address.port());
    assert!(Client::new(world, other, &mine).run(&["ls"]).stderr.contains("[IO]"));
    for url in ["http://box.example", "box.example", "https://u:p@box.example", "https://a/v1"] {
        let outcome = Client::new(world, url, &mine).run(&["ls"]);
        outcome.ends_with(2);
        assert!(!outcome.stderr.contains("u:p"), "{outcome}");
    }
    me.nothing_happened_here();
}

/// A certificate for `localhost`, its key, and the certificate of the authority that signed it.
fn certificate(world: &World, name: &str) -> [String; 3] {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let own = KeyPair::generate().unwrap();
    let names = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = names.signed_by(&own, &issuer).unwrap();
    let all = [
        ("cert", pem("CERTIFICATE", certificate.der())),
        ("key", pem("PRIVATE KEY", &own.serialize_der())),
        ("authority", pem("CERTIFICATE", authority.der())),
    ];
    all.map(|(kind, text)| {
        let path = world.path(&format!("{name}-{kind}.pem"));
        world.plant(&path, &text);
        path.to_str().unwrap().to_owned()
    })
}

fn pem(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

fn a_login_stores_a_key_for_a_server_with_tls(world: &World) {
    let [cert, private, authority] = certificate(world, "own");
    let [_, _, foreign] = certificate(world, "foreign");
    let server = Server::start(world, &["--tls-cert", &cert, "--tls-key", &private]);
    let (mine, mine_id) = key(world, &["--owner", "me"]);
    let (other, _) = key(world, &["--owner", "other"]);
    let url = format!("https://localhost:{}", server.port);
    let file = world.path("key.txt");
    world.plant(&file, &format!("{mine}\n"));
    let file = file.to_str().unwrap();
    let stored = world.home().join(".config/stockade/credentials.json");
    let login = |words: &[&str], input: &str| {
        world.stockade(&[&["login"], words].concat()).input(input).finish()
    };

    // The certificate is verified, and the key is not sent before.
    for words in [&[url.as_str()][..], &[&url, "--tls-ca", &foreign]] {
        let refused = login(words, &mine);
        assert!(refused.stderr.contains("--tls-ca"), "{refused}");
        refused.ends_with(125);
    }
    let by_address = format!("https://127.0.0.1:{}", server.port);
    let refused = login(&[&by_address, "--tls-ca", &authority], &mine);
    assert!(refused.stderr.contains("not valid for it"), "{refused}");
    let wrong = login(&[&url, "--tls-ca", &authority], "e2b_0000");
    assert!(wrong.stderr.contains("[UNAUTHENTICATED]"), "{wrong}");
    login(&[&url, "--tls-ca", &authority], "").ends_with(2);
    assert!(!stored.exists());

    let done = login(&[&url, "--tls-ca", &authority, "--key-file", file], "");
    done.succeeds();
    assert!(!done.stderr.contains(&mine) && !done.stdout.contains(&mine), "{done}");
    let mode = |path: &Path| std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap());
    assert_eq!(mode(&stored) & 0o777, 0o600);

    // From now on it is the server of commands that name none.
    let elsewhere =
        |words: &[&str]| world.stockade(words).env("STOCKADE_DATA_DIR", world.path("elsewhere"));
    elsewhere(&["create", "--id", "box"]).finish().succeeds();
    let ids = |outcome: Outcome| outcome.succeeds().json()["sandboxes"].as_array().unwrap().len();
    assert_eq!(ids(elsewhere(&["ls", "--json"]).finish()), 1);
    assert_eq!(ids(elsewhere(&["--server", "local", "ls", "--json"]).finish()), 0);
    let local = elsewhere(&["ls", "--json"]).env("STOCKADE_SERVER", "local").finish();
    assert_eq!(ids(local), 0);
    let of_directory = world.path("elsewhere");
    let of_directory = ["--data-dir", of_directory.to_str().unwrap(), "ls", "--json"];
    assert_eq!(ids(elsewhere(&of_directory).finish()), 0);
    // What is about this machine stays here.
    assert_eq!(elsewhere(&["run", "--", "echo", "here"]).finish().succeeds().stdout, "here\n");
    elsewhere(&["logout", &url]).finish().succeeds();
    assert_eq!(ids(elsewhere(&["ls", "--json"]).finish()), 0);
    let done = login(&[&url, "--tls-ca", &authority, "--key-file", file, "--no-default"], "");
    assert!(done.succeeds().stderr.contains("export STOCKADE_SERVER="), "{done}");
    assert_eq!(ids(elsewhere(&["ls", "--json"]).finish()), 0);

    let with = |words: &[&str]| elsewhere(words).env("STOCKADE_SERVER", &url);
    let large = with(&["exec", "box", "--", "sh", "-c", "head -c 3000000 /dev/zero; cat | wc -c"]);
    let large = large.input(vec![b'x'; 1_000_000]).finish();
    assert_eq!(large.succeeds().stdout.len(), 3_000_000 + "1000000\n".len());
    // A variable precedes the file.
    let theirs = with(&["ls", "--json"]).env("STOCKADE_API_KEY", &other).finish().json();
    assert_eq!(theirs["sandboxes"].as_array().unwrap().len(), 0);
    // The variables of other clients are understood as well.
    let client = world
        .stockade(&["ls", "--json", "--tls-ca", &authority])
        .env("OPENSANDBOX_DOMAIN", format!("localhost:{}", server.port))
        .env("OPENSANDBOX_PROTOCOL", "https")
        .env("OPENSANDBOX_API_KEY", &mine)
        .finish();
    assert_eq!(client.succeeds().json()["sandboxes"].as_array().unwrap().len(), 1);
    // Others could have read it.
    let permissions = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(&stored, permissions(0o644)).unwrap();
    let refused = with(&["ls"]).finish();
    assert!(refused.stderr.contains("hint: chmod 600 "), "{refused}");
    std::fs::set_permissions(&stored, permissions(0o600)).unwrap();
    // A revoked key opens nothing any more.
    world.stockade(&["keys", "revoke", &mine_id]).finish().succeeds();
    assert!(with(&["ls"]).finish().stderr.contains("[UNAUTHENTICATED]"));
    world.stockade(&["logout", &url]).finish().succeeds();
    assert!(!std::fs::read_to_string(&stored).unwrap().contains(&mine));
    world.stockade(&["logout", &url]).finish().ends_with(1);
}

/// A stop ends the streams of commands; the next server finds the sandbox and the command.
fn a_restart_is_survived_over_tcp(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let me = Client::new(world, url(&server), &mine);
    me.run(&["create", "--id", "box"]).succeeds();
    let script = "echo started; while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 3";
    me.run(&["exec", "--detach", "box", "--", "sh", "-c", script]).succeeds();
    let mut attached = me.call(&["attach", "box/latest"]).start();
    attached.wait_for_output("started");
    let mut session = me.call(&["exec", "box", "--", "sh", "-c", "echo here; sleep 600"]).start();
    session.wait_for_output("here");
    let listen = format!("127.0.0.1:{}", server.port);
    server.running.signal(Signal::TERM);
    server.running.finish().succeeds();
    // Neither hangs: each reports that its stream has ended.
    let ended = session.finish();
    assert_eq!(ended.code(), 125, "{ended}");
    assert!(!ended.stderr.is_empty(), "{ended}");
    let server = Server::start_at(world, &listen, &[]);
    assert_eq!(me.json(&["show", "box", "--json"])["state"], "running");
    me.run(&["exec", "box", "--", "touch", "/tmp/end"]).succeeds();
    let _ = attached.finish();
    server.running.signal(Signal::TERM);
    server.running.finish().succeeds();
}

/// The bundles of a server are shown and rejected from elsewhere by its owner, and by no other.
fn bundles_of_a_server_are_reviewed_from_elsewhere(world: &World) {
    world.run(&["--review"], &["sh", "-c", "echo changed > a.txt"]).succeeds();
    let id = world.bundles()[0]["id"].as_str().unwrap()[..12].to_owned();
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &[]);
    let (other, _) = key(world, &["--owner", "other"]);
    let me = Client::new(world, url(&server), &mine);
    let stranger = Client::new(world, url(&server), &other);
    assert!(me.run(&["bundles"]).succeeds().stdout.contains(&id));
    assert!(me.run(&["diff", &id]).succeeds().stdout.contains("+changed"));
    assert_eq!(stranger.json(&["bundles", "--json"])["bundles"].as_array().unwrap().len(), 0);
    for words in [["diff", "--json", &id], ["reject", "--json", &id]] {
        let refused = stranger.run(&words);
        assert_eq!(refused.json()["error"]["code"], "BUNDLE_NOT_FOUND", "{refused}");
    }
    me.run(&["reject", &id]).succeeds();
    assert_eq!(world.bundles().len(), 0);
    assert_eq!(world.read("a.txt"), "alpha\n");
}

/// Every command takes the data directory, before and after its name.
fn each_command_takes_a_data_directory(world: &World) {
    let data = world.path("other-data");
    let data = data.to_str().unwrap();
    world.stockade(&["--data-dir", data, "create", "--id", "box"]).finish().succeeds();
    let list = |words: &[&str]| {
        let json = world.stockade(words).finish().succeeds().json();
        json["sandboxes"].as_array().unwrap().len()
    };
    assert_eq!(list(&["ls", "--data-dir", data, "--json"]), 1);
    assert_eq!(list(&["ls", "--json"]), 0);
    let run = ["run", "--data-dir", data, "--", "touch", "made"];
    world.stockade(&run).finish().succeeds();
    let bundles = world.stockade(&["bundles", "--json", "--data-dir", data]).finish().json();
    assert_eq!(bundles["bundles"].as_array().unwrap().len(), 1, "{bundles}");
    assert_eq!(world.bundles().len(), 0);
    world.stockade(&["kill", "box", "--data-dir", data]).finish().succeeds();
    for pid in crate::daemons::servers(Path::new(data)) {
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
}

as_root_and_as_user!(
    commands_work_with_the_sandboxes_of_a_server,
    nothing_runs_here_when_a_server_is_named,
    bundles_of_a_server_are_reviewed_from_elsewhere,
    a_login_stores_a_key_for_a_server_with_tls,
    a_restart_is_survived_over_tcp,
    each_command_takes_a_data_directory,
);
