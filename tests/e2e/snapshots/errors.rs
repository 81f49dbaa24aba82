//! Errors as a command line prints them, one file for each. Errors that no command line causes on every
//! host are in snapshots of the crates: `tests/snapshots/errors` has every code.

use std::os::unix::fs::PermissionsExt;

use super::{ACCESS, Calls};
use crate::harness::World;
use crate::network;
use crate::served::{self, Server};

as_user! {
    of_arguments,
    of_runs,
    of_sandboxes,
    of_servers,
    of_programs,
    of_networks,
    of_files,
    of_requests,
}

fn of_arguments(world: &World) {
    let mut calls = Calls::new(world, "errors/arguments");
    let mut call = |name: &str, words: &[&str]| calls.call(name, words);
    call("no-such-command", &["bogus"]);
    call("no-command", &["run"]);
    call("no-bundle", &["apply"]);
    call("no-such-option", &["run", "--bogus", "--", "true"]);
    call("invalid-size", &["run", "--memory", "much", "--", "true"]);
    call("invalid-duration", &["run", "--timeout", "soon", "--", "true"]);
    call("invalid-host", &["run", "--allow", "a host", "--", "true"]);
    call("conflicting", &["run", "--apply", "--discard", "--", "true"]);
    call("no-such-manual", &["man", "nothing"]);
    calls.finish();
}

fn of_runs(world: &World) {
    let mut calls = Calls::new(world, "errors/runs");
    let mut call = |name: &str, words: &[&str]| calls.call(name, words);
    call("no-such-program", &["run", "--discard", "--", "./not-there"]);
    call("no-such-directory", &["run", "--discard", "--cwd", "nowhere", "--", "true"]);
    call(
        "no-such-image",
        &["run", "--discard", "--pull", "never", "--image", "nowhere", "--", "true"],
    );
    call("BUNDLE_NOT_FOUND", &["diff", "0123456789ab"]);
    let data = format!("{}:/inside", world.data().display());
    call("PATH_REFUSED", &["run", "--discard", "--mount", &data, "--", "true"]);
    call("TIMED_OUT", &["run", "--discard", "--timeout", "100ms", "--", "sleep", "60"]);
    let json = ["run", "--discard", "--json"];
    call("TIMED_OUT-json", &[&json[..], &["--timeout", "100ms", "--", "sleep", "60"]].concat());
    call(
        "OUTPUT_EXCEEDED",
        &["run", "--discard", "--max-output", "10", "--", "sh", "-c", "echo 0123456789; sleep 60"],
    );
    call("BUNDLE_TOO_LARGE", &["run", "--max-bundle", "1", "--", "sh", "-c", "echo 12345 > b.txt"]);

    world.review("echo inside > a.txt");
    world.write("a.txt", "outside\n");
    call("BUNDLE_CONFLICT", &["apply", "latest"]);
    call("BUNDLE_CONFLICT-json", &["apply", "latest", "--json"]);
    world.stockade(&["reject", "latest", "--yes"]).finish().succeeds();
    world.review("echo true > .envrc");
    call("EXECUTED_FILE", &["apply", "latest"]);
    let bundle = world.bundles()[0]["id"].as_str().unwrap().to_owned();
    let decided = std::fs::File::open(world.data().join("bundles").join(&bundle)).unwrap();
    decided.lock().unwrap();
    call("BUSY", &["reject", &bundle]);
    drop(decided);
    world.stockade(&["reject", "latest", "--yes"]).finish().succeeds();
    world.review("cp /bin/true program");
    call("UNSEEN_CONTENT", &["apply", "latest"]);
    let bundle = world.bundles()[0]["id"].as_str().unwrap().to_owned();
    let manifest = world.data().join("bundles").join(&bundle).join("manifest.json");
    std::fs::write(manifest, "{}").unwrap();
    call("BUNDLE_INVALID", &["diff", &bundle]);

    let words = ["run", "--", "true"];
    let in_the_root = world.stockade(&words).current_dir("/".as_ref());
    calls.prepared("PROJECT_REFUSED", &words, in_the_root);
    let without_data = world.stockade(&words).env("STOCKADE_DATA_DIR", "/dev/null");
    calls.prepared("IO", &words, without_data);
    let words = ["run", "--discard", "--secret", "TOKEN@service.test", "--", "true"];
    calls.call("secret-without-network", &words);
    calls.finish();
}

fn of_sandboxes(world: &World) {
    let mut calls = Calls::new(world, "errors/sandboxes");
    let mut call = |name: &str, words: &[&str]| calls.call(name, words);
    call("INVALID_INPUT", &["create", "--id", "Not an id"]);
    call("INVALID_INPUT-json", &["create", "--id", "Not an id", "--json"]);
    call("INVALID_INPUT-access", &["create", "--access", "nonsense"]);
    call("RULE_INVALID", &["create", "--access", "deny:read:relative"]);
    call("NOT_FOUND", &["show", "nothing"]);
    call("NOT_FOUND-json", &["show", "nothing", "--json"]);
    call("NOT_FOUND-snapshot", &["restore", "nothing"]);
    call("NOT_FOUND-operation", &["logs", "nothing"]);
    call("NOT_FOUND-run", &["inspect", "nothing"]);
    let create = [&["create", "--id", "box"], &ACCESS[..]].concat();
    world.stockade(&create).finish().succeeds();
    call("CONFLICT", &["create", "--id", "box"]);
    // The snapshot contains the number, so it is always the same.
    let taken = std::net::TcpListener::bind("127.0.0.1:24817").unwrap();
    call("PORT_IN_USE", &["create", "--id", "other", "--publish", "24817:80"]);
    drop(taken);
    call("CONFLICT-network", &["allow", "box", "service.example"]);
    let link = ["exec", "box", "--", "ln", "-s", "loop", "/tmp/loop"];
    world.stockade(&link).finish().succeeds();
    call("PATH_INVALID", &["cp", "box:/tmp/loop/file", "-"]);
    call("FILE_NOT_FOUND-path", &["cp", "box:relative", "-"]);
    call("no-such-directory", &["exec", "box", "--cwd", "relative", "--", "true"]);
    call("FILE_NOT_FOUND", &["cp", "box:/nothing", "-"]);
    call("ACCESS_DENIED", &["cp", "box:/etc/hostname", "-"]);
    call("TOOL_UNKNOWN", &["tool", "run", "box", "nothing"]);
    call("TIMED_OUT", &["exec", "box", "--timeout", "100ms", "--", "sleep", "60"]);
    call(
        "OUTPUT_EXCEEDED",
        &["exec", "box", "--max-output", "10", "--", "sh", "-c", "echo 0123456789; sleep 60"],
    );
    call("no-such-program", &["exec", "box", "--", "/not/there"]);
    world.stockade(&["pause", "box"]).finish().succeeds();
    call("INVALID_STATE-paused", &["exec", "box", "--", "true"]);
    world.stockade(&["resume", "box"]).finish().succeeds();
    world.stockade(&["stop", "box"]).finish().succeeds();
    call("INVALID_STATE", &["exec", "box", "--", "true"]);
    world.stockade(&["kill", "box"]).finish().succeeds();
    call("SANDBOX_TERMINATED", &["exec", "box", "--", "true"]);
    calls.finish();
}

/// Errors of a server with another environment.
fn of_servers(world: &World) {
    let mut calls = Calls::new(world, "errors/servers");
    let full = |words: &[&str]| world.stockade(words).env("STOCKADE_MAX_SANDBOXES", "1");
    full(&["create", "--id", "one"]).finish().succeeds();
    let words = ["create", "--id", "two"];
    calls.prepared("QUOTA_EXCEEDED", &words, full(&words));

    let other = world.path("other");
    world.plant(&other.join("stockade.db"), "This is a text and no database.\n");
    let words = ["ls"];
    let damaged = world.stockade(&words).env("STOCKADE_DATA_DIR", &other);
    calls.prepared("DATABASE_INVALID", &words, damaged);
    let words = ["serve"];
    let invalid = world.stockade(&words).env("STOCKADE_POOL", "many");
    calls.prepared("INVALID_INPUT", &words, invalid);
    calls.finish();
}

/// Refused requests to the server over TCP.
fn of_requests(world: &World) {
    let mut calls = Calls::new(world, "errors/requests");
    let server = Server::start(world, &[]);
    served::key(world, &[]);
    let line = "GET /v1/sandboxes";
    let foreign = "origin: http://evil.example";
    for (name, headers) in [("UNAUTHENTICATED", &[][..]), ("FORBIDDEN", &[foreign])] {
        let refused = server.request(line, headers, b"");
        let text = format!("{line}\n{}\n{:#}\n", refused.status, refused.value());
        calls.snapshots.assert(name, &text);
    }
    drop(server);
    let server = Server::start(world, &["--requests-per-minute", "1"]);
    let mut responses = (0..10).map(|_| server.request(line, &[], b""));
    let limited = responses.find(|response| response.status == 429).unwrap();
    calls.snapshots.assert("RATE_LIMITED", &format!("{line}\n429\n{:#}\n", limited.value()));
    calls.finish();
}

/// Errors of an installation whose other program is missing, cannot be executed, or does not start.
fn of_programs(world: &World) {
    let mut calls = Calls::new(world, "errors/programs");
    let server = world.path("bin/stockade-server");
    std::fs::remove_file(&server).unwrap();
    calls.call("UNSUPPORTED", &["snippet", "run", "a.ts"]);
    std::fs::write(&server, "#!/bin/sh\nexit 1\n").unwrap();
    calls.call("LAUNCH_FAILED", &["snippet", "run", "a.ts"]);
    std::fs::set_permissions(&server, PermissionsExt::from_mode(0o755)).unwrap();
    calls.call("UNREACHABLE", &["ls"]);
    calls.finish();
}

/// Denied connections of a run are listed with codes, too.
fn of_networks(world: &World) {
    let mut calls = Calls::new(world, "errors/networks");
    let allowed = ["--allow", "service.test:1", "--allow", "unknown.test:1"];
    let command = ["./probe", "fetch", "proxy", "other.test:1", "service.test:1", "unknown.test:1"];
    for (name, options) in [("EGRESS", &[][..]), ("EGRESS-json", &["--json"])] {
        let options = [options, &allowed].concat();
        let outcome = network::run_with_names(world, network::NAMES, &options, &command);
        let words = [&["run", "--discard"], &options[..], &["--"], &command].concat();
        calls.compare(name, &words, &outcome);
    }
    calls.finish();
}

fn of_files(world: &World) {
    let mut calls = Calls::new(world, "errors/files");
    world.write("good.ts", "console.log(1);\n");
    world.write("wrong.tsx", "export default 1;\n");
    let mut call = |name: &str, words: &[&str]| calls.call(name, words);
    call("no-such-snippet", &["snippet", "run", "nothing.ts"]);
    let packages = ["--libraries", "nowhere", "--package", "zod"];
    call("LIBRARY_UNAVAILABLE", &[&["snippet", "run", "good.ts"], &packages[..]].concat());
    call("no-such-workflow", &["up", "nothing.tsx"]);
    call("no-workflow", &["up", "wrong.tsx"]);
    call("no-workflow-json", &["up", "wrong.tsx", "--json"]);
    calls.finish();
}
