//! The JSON of each command that has `--json`, one file for each form, with the exit code and the
//! standard error.

use stockade_test_support::{Postgres, skipped};

use super::{ACCESS, Calls, redact};
use crate::harness::World;
use crate::registry::interrupted::SlowRegistry;
use crate::registry::sample::{Layout, architecture};
use crate::served::Server;

as_user! {
    of_audit_records,
    of_backups,
    of_bases,
    of_runs_and_bundles,
    of_doctor,
    of_images,
    of_keys,
    of_sandboxes,
    of_snippets,
    of_volumes,
    of_workflows,
}

fn of_runs_and_bundles(world: &World) {
    let mut calls = Calls::new(world, "json/bundles");
    let script = "echo more >> a.txt; echo new > b.txt; rm src/main.rs; echo out; echo error >&2";
    calls.call("run", &["run", "--json", "--", "sh", "-c", script]);
    calls.call("run-nothing", &["run", "--json", "--", "sh", "-c", "exit 3"]);
    calls.call("run-killed", &["run", "--json", "--", "sh", "-c", "kill -9 $$"]);
    calls.call("bundles", &["bundles", "--json"]);
    calls.call("diff", &["diff", "latest", "--json"]);
    calls.call("apply-some", &["apply", "latest", "--json", "a.txt"]);
    calls.call("apply", &["apply", "latest", "--json"]);
    world.review("echo another > c.txt");
    calls.call("reject", &["reject", "latest", "--yes", "--json"]);
    calls.call("bundles-none", &["bundles", "--json"]);
    calls.call("undo", &["undo", "--json"]);
    calls.call("history", &["history", "--json"]);
    calls.finish();
}

/// Creating a base copies gigabytes, so only the removal is here.
fn of_bases(world: &World) {
    let mut calls = Calls::new(world, "json/bases");
    calls.call("rm", &["base", "--rm", "--json"]);
    calls.finish();
}

/// How much a directory takes on the disk is the file system's own: it is not compared.
fn of_volumes(world: &World) {
    let mut calls = Calls::new(world, "json/volumes");
    calls.call("create", &["volume", "create", "data", "--label", "for=tests", "--json"]);
    calls.call("rm-missing", &["volume", "rm", "none", "--json"]);
    calls.call("ls-none", &["volume", "ls", "--label", "for=none", "--json"]);
    let names = |words: &[&str]| {
        let names = redact::names(&world.stockade(words).finish().json());
        format!("$ stockade {}\n{names:#}\n", words.join(" "))
    };
    calls.snapshots.assert("ls", &names(&["volume", "ls", "--json"]));
    calls.snapshots.assert("inspect", &names(&["volume", "inspect", "data", "--json"]));
    world.run(&["--discard", "--cache", "npm"], &["true"]).succeeds();
    calls.snapshots.assert("cache-ls", &names(&["cache", "ls", "--json"]));
    calls.snapshots.assert("cache-prune", &names(&["cache", "prune", "--force", "--json"]));
    calls.call("cache-rm", &["cache", "rm", "npm", "--force", "--json"]);
    calls.call("rm", &["volume", "rm", "data", "--json"]);
    calls.snapshots.assert("prune", &names(&["volume", "prune", "--all", "--force", "--json"]));
    calls.finish();
}

/// What a host can do is its own: the names are compared.
fn of_doctor(world: &World) {
    let mut calls = Calls::new(world, "json/doctor");
    let names = redact::names(&world.stockade(&["doctor", "--json"]).finish().json());
    calls.snapshots.assert("doctor", &format!("$ stockade doctor --json\n{names:#}"));
    calls.finish();
}

fn of_images(world: &World) {
    let mut calls = Calls::new(world, "json/images");
    let layout = Layout::new(world, "layout");
    // An archive without entries.
    layout.finish(layout.image(architecture(), &[vec![0; 1024]]));
    let registry = SlowRegistry::start(&layout);
    let name = format!("{}/team/app:1", registry.host);
    for (call, words) in
        [("pull", ["image", "pull", &name, "--json"]), ("rm", ["image", "rm", &name, "--json"])]
    {
        let outcome = world.stockade(&words).finish();
        let text = redact::outcome(world, &words, &outcome).replace(&registry.host, "<host>");
        calls.snapshots.assert(call, &text);
    }
    let mut call = |name: &str, words: &[&str]| calls.call(name, words);
    let source = format!("oci:{}", layout.path.display());
    call("import", &["image", "import", &source, "team/app:1", "--json"]);
    call("ls", &["image", "ls", "--json"]);
    call("inspect", &["image", "inspect", "team/app:1", "--json"]);
    let target = format!("oci-archive:{}", world.home().join("app.tar").display());
    call("export", &["image", "export", "team/app:1", &target, "--json"]);
    call("prune", &["image", "prune", "--all", "--json"]);
    call("ls-none", &["image", "ls", "--json"]);
    calls.finish();
}

fn of_keys(world: &World) {
    let mut calls = Calls::new(world, "json/keys");
    let create =
        ["keys", "create", "--json", "--name", "ci", "--owner", "team", "--expires", "30d"];
    let created = calls.call("create", &create);
    let id = created.json()["id"].as_str().unwrap().to_owned();
    calls.call("list", &["keys", "list", "--json"]);
    calls.call("revoke", &["keys", "revoke", &id, "--json"]);
    calls.call("list-all", &["keys", "list", "--all", "--json"]);
    calls.finish();
}

fn of_audit_records(world: &World) {
    let mut calls = Calls::new(world, "json/audit");
    world.stockade(&["volume", "create", "data"]).finish().succeeds();
    calls.call("ls", &["audit", "ls", "--json"]);
    calls.call("verify", &["audit", "verify", "--json"]);
    calls.finish();
}

/// Times and hashes differ: the names are compared.
fn of_backups(world: &World) {
    let mut calls = Calls::new(world, "json/backups");
    world.stockade(&["volume", "create", "data"]).finish().succeeds();
    let file = world.outside().join("one.backup");
    let file = file.to_str().unwrap();
    let restored = world.path("restored");
    let names = |words: &[&str], shown: &str| {
        let outcome = world.stockade(words).finish();
        outcome.succeeds();
        let names = redact::names(&outcome.json());
        format!("$ stockade {shown} --json\n{names:#}")
    };
    let text = names(&["backup", file, "--json"], "backup FILE");
    calls.snapshots.assert("backup", &text);
    let text = names(&["backup", "check", file, "--json"], "backup check FILE");
    calls.snapshots.assert("check", &text);
    let words = ["--data-dir", restored.to_str().unwrap(), "backup", "restore", file, "--json"];
    let text = names(&words, "backup restore FILE");
    calls.snapshots.assert("restore", &text);
    let Ok(postgres) = Postgres::start().map_err(|reason| skipped(&reason)) else { return };
    let text = names(&["migrate", "--to", &postgres.database(), "--json"], "migrate --to URL");
    calls.snapshots.assert("migrate", &text);
    calls.finish();
}

fn of_sandboxes(world: &World) {
    let mut calls = Calls::new(world, "json/sandboxes");
    let mut call = |name: &str, words: &[&str]| calls.call(name, words);
    let create = ["create", "--json", "--id", "box", "--workspace", ".", "--label", "for=tests"];
    call("create", &[&create[..], &ACCESS].concat());
    call("ls", &["ls", "--json"]);
    call("show", &["show", "box", "--json"]);
    let script = "echo out; echo error >&2; exit 3";
    call("exec", &["exec", "--json", "box", "--", "sh", "-c", script]);
    let long = ["exec", "--json", "--timeout", "100ms", "box", "--", "sleep", "60"];
    call("exec-timed-out", &long);
    let started = call("exec-detached", &["exec", "--json", "--detach", "box", "--", "echo", "x"]);
    let operation = started.json()["workflowId"].as_str().unwrap().to_owned();
    world.stockade(&["logs", "--follow", &operation]).finish().succeeds();
    call("logs", &["logs", "--json", &operation]);
    call("wait", &["wait", &operation, "--json"]);
    call("ps", &["ps", "--all", "box", "--json"]);
    let server = Server::start(world, &[]);
    calls.call("open", &["open", "box", "80", "--json"]);
    drop(server);
    let words = ["forward", "box", "0:80", "--json"];
    let mut forward = world.stockade(&words).start();
    forward.wait_for_output("\n");
    let printed = forward.stdout();
    forward.signal(rustix::process::Signal::INT);
    forward.finish().succeeds();
    // Whether the host has IPv6 is its own: the names are compared.
    let names = redact::names(&serde_json::from_str(&printed).unwrap());
    let line = format!("$ stockade {}\n{names:#}\n", words.join(" "));
    calls.snapshots.assert("forward", &line);
    let mut call = |name: &str, words: &[&str]| calls.call(name, words);
    call("cp", &["cp", "--json", "a.txt", "box:/tmp/a.txt"]);
    call("rm", &["rm", "--json", "box:/tmp/a.txt"]);
    call("tools", &["tool", "ls", "--json"]);
    call("tool", &["tool", "run", "box", "echo", r#"{"text": "hello"}"#]);
    call("renew", &["renew", "box", "3h", "--json"]);
    call("snapshot", &["snapshot", "box", "--as", "clean", "--json"]);
    call("snapshots", &["snapshots", "--json"]);
    world.stockade(&["exec", "box", "--", "sh", "-c", "echo new > b.txt"]).finish().succeeds();
    call("collect", &["collect", "box", "--json"]);
    call("pause", &["pause", "box", "--json"]);
    call("resume", &["resume", "box", "--json"]);
    call("stop", &["stop", "box", "--json"]);
    call("start", &["start", "box", "--json"]);
    call("events", &["events", "box", "--json"]);
    call("kill", &["kill", "box", "--json"]);
    call("restore", &["restore", "clean", "--id", "again", "--json"]);
    call("snapshots-remove", &["snapshots", "--remove", "clean", "--json"]);
    world.stockade(&["stop", "again"]).finish().succeeds();
    call("prune", &["prune", "--json"]);
    let create = ["create", "--json", "--id", "open", "--allow", "service.example:443"];
    call("create-with-network", &create);
    call("allow", &["allow", "open", "other.example", "--json"]);
    call("refuse", &["refuse", "open", "other.example", "--json"]);
    call("update", &["update", "open", "--max-connections", "7", "--json"]);
    let set = ["secret", "set", "open", "API_KEY@service.example", "--json"];
    let value = "sk-Zq83hTnw04LxvUe7RbN2";
    calls.prepared("secret-set", &set, world.stockade(&set).env("API_KEY", value));
    calls.call("secret-rm", &["secret", "rm", "open", "API_KEY", "--json"]);
    calls.finish();
}

fn of_snippets(world: &World) {
    let mut calls = Calls::new(world, "json/snippets");
    world.write("good.ts", "export const count = 1;\nconsole.log(\"count\", count);\n");
    world.write("bad.ts", "import fs from \"fs\";\n");
    world.write("guide.md", "# A guide\n\n```ts\nconsole.log(\"hello\");\n```\n");
    calls.call("run", &["snippet", "run", "good.ts", "--json"]);
    calls.call("run-refused", &["snippet", "run", "bad.ts", "--json"]);
    calls.call("check", &["snippet", "check", "good.ts", "bad.ts", "--json"]);
    calls.call("gate", &["snippet", "gate", "guide.md", "--json"]);
    calls.finish();
}

fn of_workflows(world: &World) {
    let mut calls = Calls::new(world, "json/workflows");
    let files = [
        ("hello.tsx", include_str!("../../../examples/workflows/hello.tsx")),
        ("approval.tsx", include_str!("../../../examples/workflows/approval.tsx")),
        ("signal.tsx", include_str!("../../../examples/workflows/signal.tsx")),
    ];
    for (name, content) in files {
        world.write(name, content);
    }
    let mut call = |name: &str, words: &[&str]| calls.call(name, words);
    call("graph", &["graph", "hello.tsx", "--json"]);
    world.stockade(&["up", "--run-id", "hello", "hello.tsx"]).finish().succeeds();
    world.stockade(&["up", "--run-id", "ask", "approval.tsx"]).finish().ends_with(3);
    call("up-detached", &["up", "--json", "--detach", "--run-id", "word", "signal.tsx"]);
    call("resume", &["resume", "hello", "--json"]);
    call("inspect", &["inspect", "ask", "--json"]);
    call("events", &["events", "hello", "--json"]);
    call("metrics", &["metrics", "--json"]);
    world.stockade(&["up", "--run-id", "end", "signal.tsx"]).finish().ends_with(3);
    call("cancel", &["cancel", "end", "--json"]);
    call("runs", &["runs", "--json", "--limit", "1"]);
    // From here on, runs continue beside the commands.
    call("approve", &["approve", "ask", "deploy", "--json", "--note", "go"]);
    world.stockade(&["up", "--run-id", "no", "approval.tsx"]).finish().ends_with(3);
    call("deny", &["deny", "no", "deploy", "--json"]);
    let payload = ["--payload", r#"{"ok": true}"#];
    call("signal", &[&["signal", "word", "review", "--json"], &payload[..]].concat());
    calls.finish();
}
