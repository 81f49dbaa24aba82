//! Secrets of persistent sandboxes: commands use them without seeing them, their values are in the
//! memory of the egress process and nowhere else, and are given again after its end.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use rustix::process::Pid;
use serde_json::{Value, json};

use super::{call, show};
use crate::call::Outcome;
use crate::credentials::{TlsServer, tls_server, value};
use crate::daemons::{
    descendants_of, egresses, keepers, kill_egress, kill_server, servers, wait_until,
};
use crate::harness::{World, tests_run_as_root};
use crate::network::{NAMES, name_files};

/// A host outside, the caller's secret for it, and a sandbox that has the secret.
struct Scene<'a> {
    world: &'a World,
    server: TlsServer,
    authorities: String,
    value: String,
    bound: String,
    /// `API_KEY@HOST`.
    secret: String,
    /// The address of the host.
    here: String,
}

/// Whether the output of a call contains a text.
fn tells(outcome: &Outcome, text: &str) -> bool {
    outcome.stdout.contains(text) || outcome.stderr.contains(text)
}

impl<'a> Scene<'a> {
    fn new(world: &'a World) -> Self {
        let (server, authorities) = tls_server(world);
        let bound = format!("service.test:{}", server.port);
        let here = format!("127.0.0.1:{}", server.port);
        let secret = format!("API_KEY@{bound}");
        Self { world, server, authorities, value: value(), bound, secret, here }
    }

    /// `stockade WORDS` of a caller who has this value, on a host with the names and authorities.
    fn call_with(&self, value: &str, words: &[&str]) -> Outcome {
        let [hosts, resolver] = name_files(self.world, NAMES);
        let by = ["with-authorities", &hosts, &resolver, &self.authorities];
        self.world.stockade_by(&by, words).env("API_KEY", value).finish()
    }

    fn call(&self, words: &[&str]) -> Outcome {
        self.call_with(&self.value, words)
    }

    fn create(&self, options: &[&str]) -> String {
        let project = self.world.project.to_str().unwrap();
        let allowed = ["--allow", &self.bound, "--allow", &self.here];
        let made =
            self.call(&[&["create", "--workspace", project], &allowed[..], options].concat());
        made.succeeds();
        made.stdout.trim_end().to_owned()
    }

    /// A sandbox with the secret.
    fn sandbox(&self) -> String {
        self.create(&["--secret", &self.secret])
    }

    /// The response to a request with the variable of the secret, by a command that gets options.
    fn fetch(&self, id: &str, options: &[&str]) -> Outcome {
        let probe = self.world.project.join("probe");
        let fetch = ["--", probe.to_str().unwrap(), "fetch-secured", "API_KEY", &self.bound];
        let outcome = self.call(&[&["exec"], options, &[id], &fetch[..]].concat());
        assert!(!tells(&outcome, &self.value), "{outcome}");
        outcome
    }

    /// How many requests with the value the host has received.
    fn received(&self) -> usize {
        let requests = self.server.requests.lock().unwrap();
        let with_value = format!("Authorization: Bearer {}\r\n", self.value);
        requests.iter().filter(|request| request.contains(&with_value)).count()
    }

    /// How many requests the host has received.
    fn requests(&self) -> usize {
        let requests = self.server.requests.lock().unwrap();
        requests.iter().filter(|request| !request.is_empty()).count()
    }

    /// A request arrives with the value.
    #[track_caller]
    fn works(&self, id: &str, options: &[&str]) {
        let before = self.received();
        let outcome = self.fetch(id, options);
        outcome.is_blocked();
        assert!(outcome.stdout.contains("HTTP/1.1 200 OK"), "{outcome}");
        assert_eq!(self.received(), before + 1, "{outcome}");
    }

    /// A request is refused, and told why and what to do.
    #[track_caller]
    fn is_missing(&self, id: &str) {
        let before = self.requests();
        let outcome = self.fetch(id, &[]);
        for text in ["HTTP/1.1 503 ", "SECRET_MISSING", "Stockade-Egress-Refused: secret-missing"] {
            assert!(outcome.stdout.contains(text), "{text}: {outcome}");
        }
        assert_eq!(self.requests(), before, "{outcome}");
        assert_eq!(self.secrets(id)[0]["missing"], true);
        let shown = call(self.world, &["show", id]);
        let hint = format!("stockade secret set {id} {}", self.secret);
        assert!(shown.stdout.contains(&hint), "{shown}");
        assert!(shown.stdout.contains("its value is missing"), "{shown}");
    }

    fn secrets(&self, id: &str) -> Value {
        let shown = show(self.world, id);
        shown["network"].get("secrets").cloned().unwrap_or_else(|| json!([]))
    }

    fn variable(&self, id: &str) -> String {
        let script = "printf '%s' \"$API_KEY\"";
        let outcome = call(self.world, &["exec", id, "--", "sh", "-c", script]);
        outcome.succeeds();
        outcome.stdout
    }
}

fn every_command_uses_a_secret_without_seeing_it(world: &World) {
    let scene = Scene::new(world);
    let id = scene.sandbox();
    for options in [&[][..], &["--json"]] {
        scene.works(&id, options);
    }
    let [secret] = scene.secrets(&id).as_array().unwrap().clone().try_into().unwrap();
    let placeholder = secret["placeholder"].as_str().unwrap().to_owned();
    assert_eq!(
        secret,
        json!({"name": "API_KEY", "hosts": [scene.bound], "placeholder": placeholder, "missing": false})
    );
    assert_eq!(scene.variable(&id), placeholder);
    let shell = world.stockade(&["shell", &id]).input("echo $API_KEY\n").finish();
    assert_eq!(shell.stdout.trim(), placeholder, "{shell}");
    // Another sandbox has another placeholder, and no use of this one.
    let other = scene.create(&[]);
    assert_eq!(scene.variable(&other), "");
    let no_trust = call(world, &["exec", &other, "--", "env"]);
    assert!(!no_trust.stdout.contains("SSL_CERT_FILE"), "{no_trust}");
    let variable = format!("API_KEY={placeholder}");
    let trust = "SSL_CERT_FILE=/etc/stockade/authorities.pem";
    let before = scene.received();
    scene.fetch(&other, &["--env", &variable, "--env", trust]);
    assert_eq!(scene.received(), before);
    // A secret is added while the sandbox lives.
    scene.works(&other, &["--secret", &scene.secret]);
    assert_ne!(scene.variable(&other), placeholder);
    assert!(scene.variable(&other).starts_with("stockade-"));
    scene.works(&other, &[]);
    let changed = call(world, &["events", &other, "--type", "NETWORK_CHANGED", "--json"]);
    assert_eq!(changed.stdout.lines().count(), 1, "{changed}");
    assert!(changed.stdout.contains(&scene.secret), "{changed}");
    scene.works(&other, &["--secret", &scene.secret]);
    let again = call(world, &["events", &other, "--type", "NETWORK_CHANGED", "--json"]);
    assert_eq!(again.stdout.lines().count(), 1, "nothing has changed: {again}");
}

/// The placeholder stays the same, so that programs that live on can go on.
fn after_the_end_of_the_egress_process_a_value_is_given_again(world: &World) {
    let scene = Scene::new(world);
    let id = scene.sandbox();
    scene.works(&id, &[]);
    let placeholder = scene.variable(&id);
    let set = ["secret", "set", &id, &scene.secret];
    for round in ["secret set", "exec", "the server", "again"] {
        if round == "the server" {
            kill_server(&world.data());
            scene.call(&["ls"]).succeeds();
        } else {
            kill_egress(&world.data());
        }
        wait_until("it is served again", || {
            show(world, &id)["network"]["closed"].is_null() && !egresses(&world.data()).is_empty()
        });
        scene.is_missing(&id);
        let failing = format!(
            "{} fetch-secured API_KEY {}; exit 3",
            world.project.join("probe").display(),
            scene.bound
        );
        let failed = scene.call(&["exec", &id, "--", "sh", "-c", &failing]);
        failed.ends_with(3);
        let hint = format!("give them again: stockade secret set {id} {}", scene.secret);
        assert!(failed.stderr.contains(&hint), "{failed}");
        if round == "exec" {
            scene.works(&id, &["--secret", &scene.secret]);
        } else {
            let given = scene.call(&set);
            given.succeeds();
            assert!(!tells(&given, &scene.value), "{given}");
            scene.works(&id, &[]);
        }
        assert_eq!(scene.variable(&id), placeholder, "after {round}");
        assert_eq!(scene.secrets(&id)[0]["missing"], false, "after {round}");
    }
    let recorded = call(world, &["events", &id, "--type", "NETWORK_REFUSED", "--json"]);
    assert!(recorded.stdout.contains("secret-missing"), "{recorded}");
}

/// A value that is that of a stored secret is fetched again: no request is refused meanwhile.
fn a_stored_secret_comes_back_by_itself(world: &World) {
    let scene = Scene::new(world);
    let id = scene.create(&[]);
    let stored = world.stockade(&["secrets", "set", "token"]);
    stored.input(format!("{}\n", scene.value)).finish().succeeds();
    let set = ["secret", "set", &id, &scene.secret, "--stored", "token"];
    scene.call(&set).succeeds();
    scene.works(&id, &[]);
    for round in ["the egress process", "the server", "both", "the egress process again"] {
        if round != "the server" {
            kill_egress(&world.data());
        }
        if round == "the server" || round == "both" {
            kill_server(&world.data());
        }
        // Not one request is refused because the value is missing.
        wait_until("a request arrives", || {
            let fetched = scene.fetch(&id, &[]);
            assert!(!tells(&fetched, "SECRET_MISSING"), "{round}: {fetched}");
            fetched.stdout.contains("HTTP/1.1 200 OK")
        });
        assert_eq!(scene.secrets(&id)[0]["missing"], false, "{round}");
    }
    assert!(world.files_with(&world.data(), &scene.value).is_empty());
    // Also after it was stopped.
    scene.call(&["stop", &id]).succeeds();
    scene.call(&["start", &id]).succeeds();
    scene.works(&id, &[]);
    // Without the stored secret the value is missing, once the process has ended.
    scene.call(&["secrets", "remove", "token"]).succeeds();
    kill_egress(&world.data());
    wait_until("it is served again", || {
        show(world, &id)["network"]["closed"].is_null() && !egresses(&world.data()).is_empty()
    });
    scene.is_missing(&id);
}

/// Neither a stopped sandbox nor a snapshot has a value.
fn values_end_with_the_processes(world: &World) {
    let scene = Scene::new(world);
    let id = scene.sandbox();
    scene.call(&["snapshot", &id, "--as", "kept"]).succeeds();
    let copy = scene.call(&["restore", "kept", "--allow", &scene.bound, "--allow", &scene.here]);
    copy.succeeds();
    let copy = copy.stdout.trim_end().to_owned();
    assert_eq!((scene.secrets(&copy), scene.variable(&copy)), (json!([]), String::new()));
    let options = ["--allow", &scene.bound, "--allow", &scene.here, "--secret", &scene.secret];
    let with = scene.call(&[&["restore", "kept"], &options[..]].concat());
    with.succeeds();
    scene.works(with.stdout.trim_end(), &[]);

    scene.call(&["pause", &id]).succeeds();
    scene.call(&["resume", &id]).succeeds();
    scene.works(&id, &[]);
    let placeholder = scene.variable(&id);
    scene.call(&["stop", &id]).succeeds();
    assert_eq!(scene.secrets(&id)[0]["missing"], true);
    let refused = scene.call(&["secret", "set", &id, &scene.secret]);
    assert!(refused.stderr.contains("[INVALID_STATE]"), "{refused}");
    assert!(refused.stderr.contains(&format!("stockade start {id}")), "{refused}");
    let started = scene.call(&["start", &id]);
    started.succeeds();
    assert!(started.stderr.contains(&format!("stockade secret set {id}")), "{started}");
    scene.is_missing(&id);
    scene.call(&["secret", "set", &id, &scene.secret]).succeeds();
    scene.works(&id, &[]);
    assert_eq!(scene.variable(&id), placeholder);
    assert!(world.files_with(&world.data(), &scene.value).is_empty());
}

fn a_secret_is_taken_away(world: &World) {
    let scene = Scene::new(world);
    for by_host in [false, true] {
        let id = scene.sandbox();
        scene.works(&id, &[]);
        let placeholder = scene.variable(&id);
        let words: &[&str] = if by_host {
            &["refuse", &id, &scene.bound]
        } else {
            &["secret", "rm", &id, "API_KEY"]
        };
        call(world, words).succeeds();
        assert_eq!((scene.secrets(&id), scene.variable(&id)), (json!([]), String::new()));
        let before = scene.received();
        // A program that lives on has the placeholder.
        let trust = "SSL_CERT_FILE=/etc/stockade/authorities.pem";
        scene.fetch(&id, &["--env", &format!("API_KEY={placeholder}"), "--env", trust]);
        assert_eq!(scene.received(), before);
        // The process has forgotten the value: bound again, it must be given again.
        call(world, &["allow", &id, &scene.bound]).succeeds();
        let unknown = call(world, &["secret", "rm", &id, "API_KEY"]);
        assert!(unknown.stderr.contains("[INVALID_INPUT]"), "{unknown}");
        scene.works(&id, &["--secret", &scene.secret]);
        // A new binding replaces the old one, whose host does not get the new value.
        let other = format!("other.test:{}", scene.server.port);
        call(world, &["allow", &id, &other]).succeeds();
        scene.call(&["secret", "set", &id, &format!("API_KEY@{other}")]).succeeds();
        assert_eq!(scene.secrets(&id)[0]["hosts"], json!([other]));
        let before = scene.received();
        scene.fetch(&id, &[]);
        assert_eq!(scene.received(), before);
    }
}

fn what_cannot_be_kept_is_refused(world: &World) {
    let scene = Scene::new(world);
    let allow = ["--allow", &scene.bound];
    let secret = ["--secret", &scene.secret];
    let before = call(world, &["ls", "--quiet"]).stdout;
    let create = |value: &str, options: &[&str], hint: &str| {
        let outcome = scene.call_with(value, &[&["create"], options].concat());
        outcome.ends_with(2);
        assert!(outcome.stderr.contains(hint), "{hint}: {outcome}");
        assert!(value.len() < 7 || !tells(&outcome, value), "{outcome}");
        assert_eq!(call(world, &["ls", "--quiet"]).stdout, before, "nothing is made");
    };
    let value = scene.value.as_str();
    create(value, &secret, &format!("--allow {}", scene.bound));
    create(value, &[&secret[..], &["--allow", "other.test"]].concat(), "--allow service.test");
    create(value, &[&secret[..], &allow, &["--env", "API_KEY=x"]].concat(), "API_KEY");
    create("hunter2", &[&secret[..], &allow].concat(), "can be guessed");
    create("two-of-these\nlines-in-a-value", &[&secret[..], &allow].concat(), "API_KEY");
    create(value, &[&["--secret", "LD_PRELOAD@service.test"][..], &allow].concat(), "LD_PRELOAD");
    create(value, &[&["--secret", "UNSET_KEY@service.test"][..], &allow].concat(), "UNSET_KEY");
    create(value, &["--strict-secrets"], "--secret");

    let id = scene.create(&["--env", "OWN=x"]);
    let exec = |options: &[&str], hint: &str| {
        let outcome = scene.call(&[&["exec"], options, &[&id, "--", "touch", "/tmp/ran"]].concat());
        outcome.ends_with(125);
        assert!(outcome.stderr.contains(hint), "{hint}: {outcome}");
        assert_eq!(scene.secrets(&id), json!([]));
    };
    exec(&["--secret", "API_KEY@third.test"], &format!("stockade allow {id} third.test"));
    exec(&[&secret[..], &["--env", "API_KEY=x"]].concat(), "API_KEY");
    exec(&["--secret", "UNSET_KEY@service.test"], "export UNSET_KEY=");
    let ran = call(world, &["exec", &id, "--", "test", "-e", "/tmp/ran"]);
    ran.ends_with(1);
    let alone = call(world, &["create"]);
    alone.succeeds();
    let outcome = scene.call(&["exec", secret[0], secret[1], alone.stdout.trim(), "--", "true"]);
    outcome.ends_with(125);
    assert!(outcome.stderr.contains("without network access"), "{outcome}");
}

fn a_placeholder_that_goes_elsewhere_is_told(world: &World) {
    let scene = Scene::new(world);
    let other = format!("other.test:{}", scene.server.port);
    for strict in [false, true] {
        // TLS to a host without a secret is passed on unread, so the other one has a secret too.
        let secrets =
            ["--allow", &other, "--secret", &scene.secret, "--secret", &format!("B_KEY@{other}")];
        let options = [&secrets[..], if strict { &["--strict-secrets"] } else { &[] }].concat();
        let project = scene.world.project.to_str().unwrap();
        let allowed = ["--allow", &scene.bound, "--allow", &scene.here];
        let words = [&["create", "--workspace", project], &allowed[..], &options].concat();
        let [hosts, resolver] = name_files(world, NAMES);
        let made = world
            .stockade_by(&["with-authorities", &hosts, &resolver, &scene.authorities], &words)
            .env("API_KEY", &scene.value)
            .env("B_KEY", value())
            .finish();
        made.succeeds();
        let id = made.stdout.trim_end().to_owned();
        let probe = world.project.join("probe");
        let fetch = ["--", probe.to_str().unwrap(), "fetch-secured", "API_KEY", &other];
        let outcome = scene.call(&[&["exec", &id], &fetch[..]].concat());
        assert_eq!(outcome.stdout.contains("secret-misdirected"), strict, "{outcome}");
        let expected = json!([
            {"secret": "API_KEY", "host": "other.test", "port": scene.server.port, "blocked": strict, "times": 1}
        ]);
        wait_until("the placeholder is reported", || {
            show(world, &id)["network"]["misdirected"] == expected
        });
        let recorded = || call(world, &["events", &id, "--type", "SECRET_MISDIRECTED", "--json"]);
        wait_until("it is recorded", || recorded().stdout.lines().count() == 1);
        assert_eq!(scene.received(), 0);
    }
}

/// A text, in the readable memory of a process; `None` if this test may not read it.
fn memory_holds(process: Pid, text: &str) -> Option<bool> {
    let path = |name: &str| format!("/proc/{}/{name}", process.as_raw_nonzero());
    let maps = std::fs::read_to_string(path("maps")).ok()?;
    let mut memory = std::fs::File::open(path("mem")).ok()?;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
        let (start, end) = range.split_once('-')?;
        let bounds = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap_or(0));
        // The program itself holds no value.
        if !rights.starts_with("rw") {
            continue;
        }
        let mut bytes = vec![0; usize::try_from(bounds[1] - bounds[0]).ok()?];
        let read = memory.seek(SeekFrom::Start(bounds[0])).and_then(|_| memory.read(&mut bytes));
        let Ok(length) = read else { continue };
        if bytes[..length].windows(text.len()).any(|window| window == text.as_bytes()) {
            return Some(true);
        }
    }
    Some(false)
}

/// The value is in the memory of the egress process, and in no other place that outlives the
/// command that has given it.
fn a_value_is_in_no_other_place(world: &World) {
    let scene = Scene::new(world);
    let id = scene.sandbox();
    scene.works(&id, &[]);
    let waits = ["exec", "--detach", &id, "--", "sleep", "1000"];
    scene.call(&waits).succeeds();
    scene.call(&["secret", "set", &id, &scene.secret]).succeeds();
    scene.works(&id, &["--secret", &scene.secret]);
    scene.call(&["collect", &id]).succeeds();

    let found: Vec<PathBuf> = world.files_with(&world.data(), &scene.value);
    assert!(found.is_empty(), "it is in {found:?}");
    let egress = egresses(&world.data());
    assert_eq!(egress.len(), 1);
    let mut others = [servers(&world.data()), keepers(&world.data())].concat();
    for keeper in keepers(&world.data()) {
        others.extend(descendants_of(keeper));
    }
    for server in servers(&world.data()) {
        others.extend(descendants_of(server));
    }
    others.retain(|process| !egress.contains(process));
    assert!(others.len() > 4, "server, keeper, init, command: {others:?}");
    for process in others.iter().chain(&egress) {
        for name in ["cmdline", "environ"] {
            let path = format!("/proc/{}/{name}", process.as_raw_nonzero());
            let Ok(bytes) = std::fs::read(path) else { continue };
            let holds = bytes.windows(scene.value.len()).any(|it| it == scene.value.as_bytes());
            assert!(!holds, "it is in the {name} of {process:?}");
        }
    }
    if tests_run_as_root() {
        assert_eq!(memory_holds(egress[0], &scene.value), Some(true), "the search finds it");
    }
    for process in others {
        let line = std::fs::read(format!("/proc/{}/cmdline", process.as_raw_nonzero()));
        let line = String::from_utf8_lossy(&line.unwrap_or_default()).replace('\0', " ");
        let holds = memory_holds(process, &scene.value).unwrap_or_default();
        assert!(!holds, "it is in the memory of {line}");
    }
    // Their dumps could contain it. With one byte no dump is given to a program either.
    for process in [servers(&world.data()), egress].concat() {
        let limits = format!("/proc/{}/limits", process.as_raw_nonzero());
        let limits = std::fs::read_to_string(limits).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert!(matches!(core.split_whitespace().nth(4), Some("0" | "1")), "{core}");
    }
    // And the kernel's own view from inside.
    let script =
        "env; cat /etc/stockade/* /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' ' '";
    let outcome = scene.call(&["exec", &id, "--", "sh", "-c", script]);
    assert!(outcome.stdout.contains("API_KEY=stockade-"), "{outcome}");
    assert!(!tells(&outcome, &scene.value), "{outcome}");
    assert!(!outcome.stdout.contains("PRIVATE KEY"), "{outcome}");
    // Nobody inside decides whom the others trust.
    let write = "echo > /etc/stockade/authorities.pem || rm -f /etc/stockade/authorities.pem";
    let outcome = scene.call(&["exec", "--user", "0", &id, "--", "sh", "-c", write]);
    assert_ne!(outcome.code(), 0, "{outcome}");
    scene.works(&id, &[]);
}

/// A `<Sandbox>` that names a secret of its run has it as other sandboxes have theirs. The value is in no
/// file, also while the run waits; after the end of the server it is given again.
fn a_workflow_uses_a_secret_without_seeing_it(world: &World) {
    let scene = Scene::new(world);
    let (bound, here) = (&scene.bound, &scene.here);
    let flow = |name: &str, before: &str| {
        let config = json!({
            "allowHosts": [bound, here], "env": { "API_KEY": "sk-placeholder" },
            "secretBindings": { "sk-placeholder": "API_KEY" },
        });
        // What the probe prints becomes a file, and the output of the task is its digest.
        let command = format!(
            "{before} ./probe fetch-secured API_KEY {bound} > /tmp/out; env >> /tmp/out; \
             grep -q '200 OK' /tmp/out && grep -q '^API_KEY=stockade-' /tmp/out && echo '{{\"ok\": true}}'"
        );
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
        world.write(name, text).to_str().unwrap().to_owned()
    };
    let file = flow("keyed.tsx", "");
    let before = scene.received();
    let ended = scene.call(&["up", &file, "--run-id", "keyed", "--secret", &scene.secret]);
    ended.succeeds();
    assert_eq!(scene.received(), before + 1, "{ended}");
    assert!(tells(&ended, "\"ok\":true") || tells(&ended, "\"ok\": true"), "{ended}");
    assert!(world.files_with(&world.data(), &scene.value).is_empty());
    assert!(world.files_with(&world.project, &scene.value).is_empty());
    // Without the caller's binding the name belongs to a proxy of the contract, and nothing is replaced.
    let without = scene.call(&["up", &file, "--run-id", "without"]);
    assert_eq!(scene.received(), before + 1, "{without}");

    // The server ends while the command waits; the next one has no value.
    let waiting =
        flow("waiting.tsx", "touch /result/ready; while ! test -e /result/go; do sleep 0.1; done;");
    let up = ["up", &waiting, "--run-id", "waiting", "--secret", &scene.secret, "--detach"];
    scene.call(&up).succeeds();
    let listed = || {
        let listed = call(world, &["ls", "--json"]);
        let sandboxes: Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
        let all = sandboxes["sandboxes"].as_array().cloned().unwrap_or_default();
        all.iter().find_map(|it| it["id"].as_str().map(str::to_owned))
    };
    wait_until("the sandbox is there", || listed().is_some());
    let id = listed().unwrap();
    let exec = |script: &str| scene.call(&["exec", &id, "--", "sh", "-c", script]);
    wait_until("the command waits", || exec("test -e /result/ready").code() == 0);
    assert!(world.files_with(&world.data(), &scene.value).is_empty());
    kill_server(&world.data());
    // The first request may be made before the sandbox has the authority of the new egress process.
    wait_until("the value is missing", || {
        let fetched = exec(&format!("./probe fetch-secured API_KEY {bound}"));
        assert!(!tells(&fetched, &scene.value), "{fetched}");
        fetched.stdout.contains("SECRET_MISSING")
    });
    scene.call(&["resume", "waiting", "--secret", &scene.secret, "--detach"]).succeeds();
    let before = scene.received();
    exec("touch /result/go").succeeds();
    wait_until("the run has ended", || {
        call(world, &["inspect", "waiting", "--json"]).stdout.contains("finished")
    });
    assert_eq!(scene.received(), before + 1);
    assert!(world.files_with(&world.data(), &scene.value).is_empty());
    // Only what the run was started with can be given.
    let other = ["resume", "waiting", "--secret", &format!("OTHER_KEY@{bound}")];
    let refused = world.stockade(&other).env("OTHER_KEY", value()).finish();
    assert!(refused.stderr.contains("without the secret OTHER_KEY"), "{refused}");
}

as_root_and_as_user![
    a_workflow_uses_a_secret_without_seeing_it,
    a_stored_secret_comes_back_by_itself,
    every_command_uses_a_secret_without_seeing_it,
    after_the_end_of_the_egress_process_a_value_is_given_again,
    values_end_with_the_processes,
    a_secret_is_taken_away,
    what_cannot_be_kept_is_refused,
    a_placeholder_that_goes_elsewhere_is_told,
    a_value_is_in_no_other_place,
];
