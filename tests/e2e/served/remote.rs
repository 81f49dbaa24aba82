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
use crate::registry::interrupted::{SlowRegistry, large};

/// A client with a data directory of its own, so that nothing happens on the server's by accident.
pub(crate) struct Client<'w> {
    world: &'w World,
    url: String,
    key: String,
}

impl<'w> Client<'w> {
    pub(crate) fn new(world: &'w World, url: impl Into<String>, key: &str) -> Self {
        Self { world, url: url.into(), key: key.to_owned() }
    }

    pub(crate) fn call(&self, words: &[&str]) -> Call {
        let all: Vec<_> =
            ["--server", &self.url].into_iter().chain(words.iter().copied()).collect();
        self.world
            .stockade(&all)
            .env("STOCKADE_API_KEY", &self.key)
            .env("STOCKADE_DATA_DIR", self.world.path("elsewhere"))
    }

    pub(crate) fn run(&self, words: &[&str]) -> Outcome {
        self.call(words).finish()
    }

    #[track_caller]
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let outcome = self.run(words);
        outcome.succeeds();
        outcome.json()
    }

    /// No server was started here instead.
    pub(crate) fn nothing_happened_here(&self) {
        let data = self.world.path("elsewhere");
        assert_eq!(crate::daemons::servers(&data), []);
        assert!(!data.join("stockade.db").exists());
    }
}

pub(crate) fn url(server: &Server) -> String {
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
        &["run", "--tools", "node", "--", "touch", "done"][..],
        &["run", "--mount", "/usr:/x:ro", "--", "touch", "done"],
        &["run", "--access", "deny:read:/tmp", "--", "touch", "done"],
        &["run", "--keep-ignored", "--", "touch", "done"],
        &["run", "--ssh-agent", "permissions.toml", "--", "touch", "done"],
        &["run", "--image", "/srv", "--", "touch", "done"],
        &["diff", "0123", "--commits"],
        &["apply", "0123", "--branch", "x"],
        &["undo"],
        &["image", "prune"],
        &["image", "inspect", "debian:12"],
        &["image", "import", "dir:."],
        &["mcp", "--workspace", "."],
        &["mcp", "--allow-workspace", "."],
        &["trust"],
        &["df"],
        &["create", "--workspace", "."],
        &["create", "--mount", "/usr:/x:ro"],
        &["create", "--publish", "8099:80"],
        &["create", "--image", "/srv"],
    ] {
        refused(words, "UNSUPPORTED");
    }
    // `latest` is of the project of this directory, wherever its command ran.
    for words in [&["diff", "latest"][..], &["apply", "latest"], &["reject", "latest"]] {
        let outcome = me.run(words);
        assert_ne!(outcome.code(), 0, "{outcome}");
        assert!(outcome.stderr.contains("[BUNDLE_NOT_FOUND]"), "{outcome}");
    }
    refused(&["create", "--net", "policy", "--allow", "host.stockade.internal:80"], "FORBIDDEN");
    let in_process = me.run(&["ls", "--in-process"]);
    assert!(in_process.stderr.contains("--server local"), "{in_process}");
    // The variable says the same as the option: without the key of the server nothing runs here instead.
    let run = ["run", "--apply", "--", "touch", "done"];
    let run = world.stockade(&run).env("STOCKADE_SERVER", "http://localhost:9").finish();
    run.ends_with(125);
    assert!(run.stderr.contains("[UNREACHABLE]"), "{run}");
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

/// A run on a server sends the project, and its changes come back as a bundle of this machine, with the
/// checks of any other.
fn a_run_elsewhere_comes_back_as_a_bundle(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let (other, _) = key(world, &["--owner", "other"]);
    let me = Client::new(world, url(&server), &mine);
    let stranger = Client::new(world, url(&server), &other);
    std::os::unix::fs::symlink("/usr/bin/env", world.project.join("tool")).unwrap();
    world.write("ignored.log", "of this machine\n");
    let script = "pwd; cat; git status --short >&2; echo more >> a.txt; rm -r src; mkdir new; \
                  printf 'x' > new/file; chmod 755 new/file; readlink tool; exit 3";
    let ran = me.call(&["run", "--", "sh", "-c", script]).input("input\n").finish();
    ran.ends_with(3);
    assert_eq!(ran.stdout, format!("{}\ninput\n/usr/bin/env\n", world.project.display()), "{ran}");
    assert!(ran.stderr.contains("?? tool") && ran.stderr.contains("stockade apply"), "{ran}");
    // Nothing has changed here, and nothing is left there.
    assert_eq!(world.read("a.txt"), "alpha\n");
    assert!(world.has("src/main.rs") && !world.has("new"));
    assert_eq!(me.run(&["ls", "-q"]).stdout, "");
    // The bundle is here, whatever server is named, and only here.
    let listed = me.json(&["bundles", "--json"]);
    let bundles = listed["bundles"].as_array().unwrap();
    assert_eq!(bundles.len(), 1, "{listed}");
    let id = bundles[0]["id"].as_str().unwrap();
    let here = world
        .stockade(&["diff", id, "--stat"])
        .env("STOCKADE_DATA_DIR", world.path("elsewhere"))
        .finish();
    for line in ["a.txt", "new/file", "src/main.rs", "src/deep/er/file.txt"] {
        assert!(here.succeeds().stdout.contains(line), "{here}");
    }
    assert!(!here.stdout.contains("tool") && !here.stdout.contains(".git/"), "{here}");
    assert!(!here.stdout.contains("ignored.log") && !here.stdout.contains("probe"), "{here}");
    assert_eq!(world.bundles().len(), 0);
    // What this machine has changed since is a conflict, which nothing settles silently.
    world.write("a.txt", "changed here\n");
    let conflict = me.run(&["apply", id]);
    assert!(conflict.stderr.contains("[BUNDLE_CONFLICT]"), "{conflict}");
    assert!(world.has("src/main.rs") && !world.has("new"));
    world.write("a.txt", "alpha\n");
    me.run(&["apply", "latest"]).succeeds();
    assert_eq!(
        (world.read("a.txt").as_str(), world.read("new/file").as_str()),
        ("alpha\nmore\n", "x")
    );
    assert!(!world.has("src") && world.has("ignored.log"));
    assert_eq!(me.json(&["bundles", "--json"])["bundles"].as_array().unwrap().len(), 0);

    // Applied at once, as JSON, rejected, and discarded.
    let run = |words: &[&str]| me.run(&[&["run"], words].concat());
    run(&["--apply", "--", "sh", "-c", "echo at once > once"]).succeeds();
    assert_eq!(world.read("once"), "at once\n");
    let json = run(&["--json", "--", "sh", "-c", "echo out; echo two >> once; echo err >&2"]);
    let json = json.succeeds().json();
    assert_eq!((&json["stdout"], &json["stderr"]), (&"out\n".into(), &"err\n".into()), "{json}");
    assert_eq!((&json["exitCode"], &json["server"]), (&0.into(), &url(&server).into()), "{json}");
    assert_eq!(json["bundle"]["changes"]["total"], 1, "{json}");
    me.run(&["reject", "latest", "--yes"]).succeeds();
    run(&["--discard", "--", "touch", "discarded"]).succeeds();
    let unchanged = run(&["--json", "--", "true"]).succeeds().json();
    assert!(unchanged["bundle"].is_null(), "{unchanged}");
    assert_eq!(me.json(&["bundles", "--json"])["bundles"].as_array().unwrap().len(), 0);

    // Commits come out as those of any run.
    let commit = "git add once; git -c user.name=n -c user.email=e@e commit -qm there";
    run(&["--", "sh", "-c", commit]).succeeds();
    let data = world.path("elsewhere");
    let commits = world.stockade(&["diff", "latest", "--commits"]).env("STOCKADE_DATA_DIR", &data);
    assert!(commits.finish().succeeds().stdout.contains("there"));
    me.run(&["reject", "--all"]).succeeds();

    // Another owner's server has no part in it, and without a key nothing is sent.
    assert_eq!(stranger.run(&["ls", "-q"]).stdout, "");
    let refused = Client::new(world, url(&server), "").run(&["run", "--", "true"]);
    refused.ends_with(125);
    assert!(refused.stderr.contains("[UNAUTHENTICATED]"), "{refused}");
    // What host tools execute by themselves needs an acceptance of its own, as always.
    run(&["--", "sh", "-c", "printf 'echo x' > .envrc"]).succeeds();
    let refused = me.run(&["apply", "latest"]);
    assert!(!world.has(".envrc"), "{refused}");
    me.run(&["reject", "--all"]).succeeds();
    me.nothing_happened_here();
}

/// A sandbox that attacks the machine that its project came from: its stream is hostile.
fn a_hostile_project_comes_back_harmless(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let me = Client::new(world, url(&server), &mine);
    let outside = world.outside();
    let outside = outside.to_str().unwrap();
    let script = format!(
        "rm -r src; ln -s {outside} src; mkfifo pipe; rm a.txt; ln -s /etc/passwd a.txt; \
         mkdir -p .git/hooks; printf 'touch {outside}/hook' > .git/hooks/post-commit; \
         chmod 4755 .git/hooks/post-commit; printf '[core]\\nfsmonitor=touch {outside}/monitor' >> .git/config"
    );
    me.run(&["run", "--", "sh", "-c", &script]).succeeds();
    let applied = me.run(&["apply", "latest"]);
    // Neither a link that leaves nor anything of the repository is taken; nothing is written outside.
    assert!(!world.project.join("src").is_symlink() && !world.project.join("a.txt").is_symlink());
    assert_eq!(world.read("a.txt"), "alpha\n", "{applied}");
    assert!(
        !world.has(".git/hooks/post-commit") && !world.read(".git/config").contains("fsmonitor")
    );
    assert!(!world.has("pipe"));
    world.git(&["status"]);
    assert_eq!(std::fs::read_dir(outside).unwrap().count(), 0);
    // More than the limit is not stored here, and stays where it is.
    let large =
        ["run", "--max-bundle", "1M", "--", "sh", "-c", "head -c 3000000 /dev/zero > large"];
    let large = me.run(&large);
    large.ends_with(125);
    assert!(large.stderr.contains("[BUNDLE_TOO_LARGE]"), "{large}");
    assert!(!world.has("large"));
    // A command that removes the project there does not remove it here.
    let gone = me.run(&["run", "--", "sh", "-c", "cd /; rm -r \"$OLDPWD\""]);
    assert!(gone.stderr.contains("still has the changed project"), "{gone}");
    assert!(world.has("a.txt"));
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

/// The server downloads an image that it does not have, and the client sees how far it is.
fn the_progress_of_a_download_is_seen_from_elsewhere(world: &World) {
    let registry = SlowRegistry::start(&large(world));
    let settings = [("STOCKADE_REGISTRIES", registry.host.as_str())];
    let server = Server::start_with(world, &[], &settings);
    let (mine, _) = key(world, &["--owner", "me"]);
    let me = Client::new(world, url(&server), &mine);
    let name = format!("{}/team/large:1", registry.host);
    let mut creating = me.call(&["create", "--id", "box", "--image", &name, "--json"]).start();
    creating.wait_for_message(&format!("the server pulls {name} from 127.0.0.1:"));
    registry.release();
    let created = creating.finish();
    created.succeeds();
    assert_eq!(created.json()["id"], "box");
    // A pipe gets lines, and few of them.
    assert!(created.stderr.contains(": 1 of 1 layers, 3.8 MiB\n"), "{created}");
    assert!(created.stderr.lines().count() <= 4 && !created.stderr.contains('\r'), "{created}");
    // The next one is quick, and says nothing.
    let again = me.run(&["create", "--image", &name]);
    assert!(!again.succeeds().stderr.contains("pull"), "{again}");
}

as_root_and_as_user!(
    the_progress_of_a_download_is_seen_from_elsewhere,
    commands_work_with_the_sandboxes_of_a_server,
    nothing_runs_here_when_a_server_is_named,
    bundles_of_a_server_are_reviewed_from_elsewhere,
    a_run_elsewhere_comes_back_as_a_bundle,
    a_hostile_project_comes_back_harmless,
    a_login_stores_a_key_for_a_server_with_tls,
    a_restart_is_survived_over_tcp,
    each_command_takes_a_data_directory,
);
