//! The hunt for values that must be nowhere: each door gets a secret of its own, processes are killed in
//! between, and then every file, record, answer, process and core dump is searched, in each form that a
//! value can have. The hunt itself is tested with values that were planted.

mod dialects;
mod login;
mod records;

use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rustix::process::Signal;
use serde_json::json;

use crate::call::Outcome;
use crate::credentials::{tls_server, value};
use crate::daemons::{
    descendants_of, egresses, keepers, kill_egress, kill_server, servers, wait_until,
};
use crate::harness::{World, tests_run_as_root};
use crate::network::{NAMES, name_files};
use crate::served::{Server, key};

/// The secrets of a test. All begin alike, so that one search finds them all.
struct Hunt {
    prefix: String,
    patterns: Vec<(&'static str, Vec<u8>)>,
}

impl Hunt {
    fn new() -> Self {
        let random = value();
        let letters: String = random.chars().filter(char::is_ascii_alphanumeric).collect();
        // No part of another text has it: letters of both kinds, and digits.
        let prefix = format!("Cy7{}", &letters[letters.len() - 12..]);
        let patterns = forms(prefix.as_bytes());
        Self { prefix, patterns }
    }

    /// The secret of a door.
    fn of(&self, door: &str) -> String {
        format!("{}-{door}-{}", self.prefix, value())
    }

    /// The forms that a text contains, each with what follows.
    fn forms_in(&self, bytes: &[u8]) -> Vec<String> {
        let begins: BTreeSet<[u8; 2]> =
            self.patterns.iter().map(|(_, pattern)| [pattern[0], pattern[1]]).collect();
        let mut is_begin = vec![false; 1 << 16];
        for [first, second] in begins {
            is_begin[usize::from(first) << 8 | usize::from(second)] = true;
        }
        let mut found = Vec::new();
        for (at, pair) in bytes.windows(2).enumerate() {
            if !is_begin[usize::from(pair[0]) << 8 | usize::from(pair[1])] {
                continue;
            }
            for (form, pattern) in &self.patterns {
                if bytes[at..].starts_with(pattern) {
                    let end = bytes.len().min(at + pattern.len() + 12);
                    found.push(format!("{form}: {}", String::from_utf8_lossy(&bytes[at..end])));
                }
            }
        }
        found.truncate(10);
        found
    }

    /// Whether a program has printed a form.
    fn is_told(&self, outcome: &Outcome) -> bool {
        !self.forms_in(format!("{}{}", outcome.stdout, outcome.stderr).as_bytes()).is_empty()
    }

    /// The files below a directory that contain a form.
    fn files(&self, root: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut pending = vec![root.to_owned()];
        while let Some(path) = pending.pop() {
            let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.extend(self.forms_in(name.as_bytes()).iter().map(|it| format!("name {it}")));
            if metadata.is_dir() {
                let Ok(entries) = std::fs::read_dir(&path) else { continue };
                pending.extend(entries.flatten().map(|entry| entry.path()));
            } else if metadata.is_file() {
                let content = std::fs::read(&path).unwrap_or_default();
                let forms = self.forms_in(&content);
                found.extend(forms.iter().map(|form| format!("{}: {form}", path.display())));
            }
        }
        found
    }

    /// The arguments and the environment of all processes of this machine but this one's.
    fn processes(&self) -> Vec<String> {
        let own = std::process::id().to_string();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == own || !name.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            for file in ["cmdline", "environ"] {
                let path = entry.path().join(file);
                let content = std::fs::read(&path).unwrap_or_default();
                let forms = self.forms_in(&content);
                found.extend(forms.iter().map(|form| format!("{}: {form}", path.display())));
            }
        }
        found
    }

    /// The memory of a process that this one may read.
    fn memory(&self, process: u32) -> Vec<String> {
        let path = |name: &str| format!("/proc/{process}/{name}");
        let maps = std::fs::read_to_string(path("maps")).unwrap_or_default();
        let Ok(mut memory) = std::fs::File::open(path("mem")) else { return Vec::new() };
        let mut found = Vec::new();
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
            // The texts of a program are not from a caller.
            if !rights.starts_with("rw") {
                continue;
            }
            let (start, end) = range.split_once('-').unwrap();
            let bounds = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap_or(0));
            let mut bytes = vec![0; usize::try_from(bounds[1] - bounds[0]).unwrap()];
            let read =
                memory.seek(SeekFrom::Start(bounds[0])).and_then(|_| memory.read(&mut bytes));
            let forms = self.forms_in(&bytes[..read.unwrap_or(0)]);
            found.extend(forms.iter().map(|form| format!("the memory of {process}: {form}")));
        }
        found
    }

    /// Searches everything of a world that outlives its commands, also the memory of its processes; not
    /// that of the egress process, which must have values.
    #[track_caller]
    fn finds_nothing(&self, world: &World, when: &str) {
        let mut found = Vec::new();
        for root in [world.data(), world.home(), world.project.clone(), world.path("core")] {
            found.extend(self.files(&root));
        }
        found.extend(self.processes());
        for words in [
            &["ls", "--all", "--json"][..],
            &["events", "--json"],
            &["secrets", "list", "--json"],
            &["snapshot", "ls", "--json"],
            &["bundles", "--json"],
            &["audit", "ls", "--json"],
            &["audit", "export", "--format", "ocsf"],
            &["audit", "export", "--format", "json"],
            &["doctor", "--json"],
        ] {
            let told = world.stockade(words).finish();
            let text = format!("{}{}", told.stdout, told.stderr);
            found
                .extend(self.forms_in(text.as_bytes()).iter().map(|it| format!("{words:?}: {it}")));
        }
        if tests_run_as_root() {
            let egress = egresses(&world.data());
            let owners = [servers(&world.data()), keepers(&world.data())].concat();
            let mut all = owners.clone();
            all.extend(owners.into_iter().flat_map(descendants_of));
            all.retain(|process| !egress.contains(process));
            for process in all {
                let id = u32::try_from(process.as_raw_nonzero().get()).unwrap();
                found.extend(self.memory(id));
            }
        }
        assert!(found.is_empty(), "{when}: {found:#?}");
    }
}

/// The forms of a value: those in base64 without the characters that also depend on what is beside it.
fn forms(value: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = value.iter().map(|byte| format!("%{byte:02X}")).collect();
    let escapes: String = value.iter().map(|byte| format!("\\u{byte:04x}")).collect();
    let mut all = vec![
        ("plain", value.to_vec()),
        ("reversed", value.iter().rev().copied().collect()),
        ("hex", hex.to_uppercase().into_bytes()),
        ("hex", hex.into_bytes()),
        ("percent", percent.to_lowercase().into_bytes()),
        ("percent", percent.into_bytes()),
        ("json", escapes.into_bytes()),
    ];
    for before in 0..3 {
        let text = STANDARD_NO_PAD.encode([&vec![0; before], value].concat());
        let whole = (before * 8).div_ceil(6)..(before + value.len()) * 8 / 6;
        all.push(("base64", text.as_bytes()[whole].to_vec()));
    }
    all
}

/// A process that is ended with the test.
struct Planted(Child);

impl Drop for Planted {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn the_hunt_finds_what_is_planted(world: &World) {
    let hunt = Hunt::new();
    hunt.finds_nothing(world, "before");
    let planted = hunt.of("planted");
    let file = world.data().join("deep/er/file");
    for text in [
        planted.clone(),
        STANDARD_NO_PAD.encode(&planted),
        STANDARD_NO_PAD.encode(format!("u{planted}")),
        STANDARD_NO_PAD.encode(format!("us{planted}")),
        planted.bytes().map(|byte| format!("{byte:02x}")).collect(),
        planted.bytes().map(|byte| format!("{byte:02X}")).collect(),
        planted.bytes().map(|byte| format!("%{byte:02x}")).collect(),
        planted.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        planted.bytes().map(|byte| format!("\\u{byte:04x}")).collect(),
        planted.chars().rev().collect(),
    ] {
        world.plant(&file, &format!("before {text} after"));
        assert_eq!(hunt.files(&world.data()).len(), 1, "{text}");
    }
    std::fs::remove_file(&file).unwrap();
    let named = world.data().join(&planted);
    world.plant(&named, "");
    assert_eq!(hunt.files(&world.data()).len(), 1);
    std::fs::remove_file(named).unwrap();
    assert!(hunt.files(&world.data()).is_empty());

    assert!(hunt.processes().is_empty());
    let mut sleeping = Command::new("sleep");
    let sleeping = sleeping.arg("1000").env("PLANTED", &planted).stdin(Stdio::null()).spawn();
    let sleeping = Planted(sleeping.unwrap());
    wait_until("the environment is found", || !hunt.processes().is_empty());
    if tests_run_as_root() {
        assert!(!hunt.memory(sleeping.0.id()).is_empty());
    }
    drop(sleeping);
    // It waits for its input, and starts no other program.
    let named =
        Command::new("sh").args(["-c", "read line", &planted]).stdin(Stdio::piped()).spawn();
    let named = Planted(named.unwrap());
    wait_until("the argument is found", || !hunt.processes().is_empty());
    drop(named);
}

/// `stockade WORDS` of a caller who has a value, on a host where `service.test` is a server.
struct Doors<'a> {
    world: &'a World,
    authorities: String,
}

impl Doors<'_> {
    fn call(&self, value: &str, words: &[&str]) -> Outcome {
        let [hosts, resolver] = name_files(self.world, NAMES);
        let by = ["with-authorities", &hosts, &resolver, &self.authorities];
        self.world.stockade_by(&by, words).env("API_KEY", value).finish()
    }

    /// Starts the server, whose egress process knows the names of the host.
    fn start(&self) {
        self.call("no-secret", &["ls"]).succeeds();
    }
}

fn no_value_is_left_anywhere(world: &World) {
    let hunt = Hunt::new();
    std::fs::create_dir(world.path("core")).unwrap();
    world.chown(&world.path("core"));
    let (server, authorities) = tls_server(world);
    let bound = format!("service.test:{}", server.port);
    let here = format!("127.0.0.1:{}", server.port);
    let secret = format!("API_KEY@{bound}");
    let doors = Doors { world, authorities };
    let probe = world.project.join("probe");
    let probe = probe.to_str().unwrap();

    doors.start();

    // A one-shot run.
    let run_value = hunt.of("run");
    let run = ["run", "--allow", &bound, "--allow", &here, "--secret", &secret, "--json", "--"];
    let fetched = doors
        .call(&run_value, &[&run[..], &["./probe", "fetch-secured", "API_KEY", &bound]].concat());
    assert!(fetched.stdout.contains("200 OK"), "{fetched}");
    assert!(!hunt.is_told(&fetched), "{fetched}");
    hunt.finds_nothing(world, "after a run");

    // A persistent sandbox, from its creation to each end of a process.
    let project = world.project.to_str().unwrap();
    let create_value = hunt.of("create");
    let create = ["create", "--workspace", project, "--allow", &bound, "--allow", &here];
    let made = doors.call(&create_value, &[&create[..], &["--secret", &secret]].concat());
    made.succeeds();
    let id = made.stdout.trim().to_owned();
    let fetch = ["exec", &id, "--", probe, "fetch-secured", "API_KEY", &bound];
    assert!(doors.call(&create_value, &fetch).stdout.contains("200 OK"));
    hunt.finds_nothing(world, "after a creation");
    kill_egress(&world.data());
    doors.call(&create_value, &["secret", "set", &id, &secret]).succeeds();
    hunt.finds_nothing(world, "after the end of the egress process");

    // The vault: a variable of a command, a file, and a rotated value.
    let (stored, rotated) = (hunt.of("vault"), hunt.of("rotated"));
    let with_input = |words: &[&str], input: &str| {
        let outcome = world.stockade(words).input(format!("{input}\n")).finish();
        outcome.succeeds();
    };
    with_input(&["secrets", "set", "token"], &stored);
    hunt.finds_nothing(world, "after a secret was stored");
    let variable = ["exec", "--secret-env", "TOKEN=token", &id, "--", "sh", "-c", "echo ${#TOKEN}"];
    let told = world.stockade(&variable).finish();
    assert_eq!(told.stdout.trim(), stored.len().to_string(), "{told}");
    with_input(&["secrets", "write", "token", &id, "/run/secrets/key"], "");
    hunt.finds_nothing(world, "after deliveries");
    world.stockade(&["snapshot", &id, "--json"]).finish().succeeds();
    world.stockade(&["collect", &id]).finish();
    hunt.finds_nothing(world, "after a snapshot and a bundle");
    kill_server(&world.data());
    wait_until("the server has ended", || servers(&world.data()).is_empty());
    doors.start();
    with_input(&["secrets", "rotate", "token"], &rotated);
    hunt.finds_nothing(world, "after the end of the server");

    // A request that is refused keeps nothing either.
    let refused = hunt.of("refused");
    let wrong = world.stockade(&["secrets", "set", "token"]).input(format!("{refused}\n")).finish();
    assert_ne!(wrong.code(), 0, "{wrong}");
    let wrong = world.stockade(&["secrets", "set", "0g", "--type", "0g"]).input(refused).finish();
    assert_ne!(wrong.code(), 0, "{wrong}");
    hunt.finds_nothing(world, "after refusals");

    // A server that ends as programs with a fault do.
    for server in servers(&world.data()) {
        rustix::process::kill_process(server, Signal::ABORT).unwrap();
    }
    wait_until("the server has ended", || servers(&world.data()).is_empty());
    doors.start();
    hunt.finds_nothing(world, "after an abort");

    // A workflow.
    let flow = hunt.of("workflow");
    let config = json!({
        "allowHosts": [bound, here], "env": { "API_KEY": "sk-placeholder" },
        "secretBindings": { "sk-placeholder": "API_KEY" },
    });
    let command = format!("./probe fetch-secured API_KEY {bound} && echo '{{\"ok\": true}}'");
    let text = format!(
        "/** @jsxImportSource stockade */\n\
         import {{ createSmithers, Sandbox }} from \"stockade\";\n\
         const {{ Workflow, smithers, outputs }} =\n  \
           createSmithers({{ output: {{ type: \"object\" }} }});\n\
         export default smithers((ctx) => <Workflow name=\"keyed\">\n  \
         <Sandbox id=\"box\" allowNetwork noRetry egress={{{config}}}\n    \
         command={{{}}} output={{outputs.output}} />\n</Workflow>);\n",
        json!(command)
    );
    let file = world.write("keyed.tsx", text);
    let up = ["up", file.to_str().unwrap(), "--run-id", "keyed", "--secret", &secret];
    let ended = doors.call(&flow, &up);
    ended.succeeds();
    assert!(!hunt.is_told(&ended), "{ended}");
    hunt.finds_nothing(world, "after a workflow");

    // Credentials for an image: those of the file are there, and nowhere else.
    let password = hunt.of("image");
    let docker = world.outside().join("docker");
    let auth = STANDARD_NO_PAD.encode(format!("user:{password}"));
    let config = json!({ "auths": { "127.0.0.1:1": { "auth": auth } } });
    world.plant(&docker.join("config.json"), &config.to_string());
    let pull = world.stockade(&["image", "pull", "127.0.0.1:1/team/app:1"]);
    let pulled = pull.env("DOCKER_CONFIG", &docker).finish();
    assert_ne!(pulled.code(), 0, "{pulled}");
    assert!(!hunt.is_told(&pulled), "{pulled}");
    hunt.finds_nothing(world, "after a pull");

    world.stockade(&["kill", "--discard", &id]).finish().succeeds();
    hunt.finds_nothing(world, "at the end");
    let requests = server.requests.lock().unwrap();
    for value in [&run_value, &create_value, &flow] {
        assert!(requests.iter().any(|request| request.contains(value)), "the host received it");
    }
}

/// The doors of a server that listens: HTTP, and the credential vault of OpenSandbox.
fn no_value_of_a_client_is_left_anywhere(world: &World) {
    const EGRESS: u16 = 18080;
    let hunt = Hunt::new();
    let server = Server::start(world, &[]);
    let (key, _) = key(world, &["--owner", "me"]);
    let header = format!("open-sandbox-api-key: {key}");
    let request = json!({
        "image": {"uri": "host"}, "timeout": 600, "entrypoint": [],
        "credentialProxy": {"enabled": true},
        "networkPolicy": {"egress": [{"action": "allow", "target": "api.example.com"}]},
    });
    let created = server.json("POST /v1/sandboxes", &[&header], &request);
    assert_eq!(created.status, 202, "{}", created.text());
    let id = created.value()["id"].as_str().unwrap().to_owned();
    let token = server.token(&key, &id, EGRESS);
    let path = format!("/v1/sandboxes/{id}/proxy/{EGRESS}/credential-vault");
    let whole = |value: &str| {
        json!({
            "credentials": [{"name": "token", "source": {"type": "inline", "value": value}}],
            "bindings": [{
                "name": "api", "match": {"hosts": ["api.example.com"]},
                "auth": {"type": "bearer", "credential": "token"},
            }],
        })
    };
    let ask = |line: &str, body: &serde_json::Value| {
        let answer = server.json(line, &[&token], body);
        assert!(hunt.forms_in(answer.text().as_bytes()).is_empty(), "{}", answer.text());
        answer.status
    };
    assert_eq!(ask(&format!("POST {path}"), &whole(&hunt.of("dialect"))), 201);
    hunt.finds_nothing(world, "after credentials");
    assert_eq!(ask(&format!("POST {path}"), &whole(&hunt.of("again"))), 409);
    let replace = json!({ "credentials": { "replace": [
        {"name": "token", "source": {"type": "inline", "value": hunt.of("replaced")}},
    ] } });
    assert_eq!(ask(&format!("PATCH {path}"), &replace), 200);
    // Bodies that are no requests, and requests that are none.
    let broken = format!("{{\"credentials\": [\"{}\"", hunt.of("broken"));
    server.request(&format!("POST {path}"), &[&token], broken.as_bytes());
    let query = format!("GET /v1/sandboxes?token={}", hunt.of("query"));
    server.request(&query, &[&header], b"");
    let wrong = format!("open-sandbox-api-key: {}", hunt.of("wrong-key"));
    assert_eq!(server.request("GET /v1/sandboxes", &[&wrong], b"").status, 401);
    hunt.finds_nothing(world, "after refusals");
    // Its log.
    assert!(hunt.forms_in(server.running.stderr().as_bytes()).is_empty());
    assert!(hunt.forms_in(server.running.stdout().as_bytes()).is_empty());
    let metrics = server.request("GET /metrics", &[&header], b"");
    assert!(hunt.forms_in(metrics.text().as_bytes()).is_empty());
    if tests_run_as_root() {
        assert_eq!(hunt.memory(server.running.pid()), Vec::<String>::new());
    }
    server.running.signal(Signal::KILL);
    drop(server);
    hunt.finds_nothing(world, "after the end of the server");
}

as_root_and_as_user![
    the_hunt_finds_what_is_planted,
    no_value_is_left_anywhere,
    no_value_of_a_client_is_left_anywhere,
];
