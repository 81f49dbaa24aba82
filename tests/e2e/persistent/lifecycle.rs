//! The life cycle of a sandbox: created, found, stopped, paused, renewed, stored as a snapshot,
//! ended.

use serde_json::{Value, json};

use super::{call, create, refused, sh, show, state};
use crate::daemons::wait_until;
use crate::harness::World;

fn a_sandbox_is_made_used_and_ended(world: &World) {
    let outcome = call(world, &["create"]);
    outcome.succeeds();
    assert!(outcome.outputs_closed, "the server holds the command's outputs: {outcome}");
    let id = outcome.stdout.trim_end().to_owned();
    assert!(id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{outcome}");
    sh(world, &id, "echo kept > /tmp/file; exit 3").ends_with(3);
    assert_eq!(sh(world, &id, "cat /tmp/file").stdout, "kept\n");

    let listed = call(world, &["ls"]);
    assert!(listed.stdout.contains(&id) && listed.stdout.contains("running"), "{listed}");
    assert_eq!(call(world, &["ls", "--quiet"]).stdout, format!("{id}\n"));
    let listed = call(world, &["ls", "--json"]).json();
    assert_eq!(listed["sandboxes"][0]["id"], id.as_str());
    let shown = call(world, &["show", &id]);
    assert!(shown.stdout.contains(&id) && shown.stdout.contains("running"), "{shown}");
    assert_eq!(show(world, &id)["state"], "running");

    let killed = call(world, &["kill", &id]);
    killed.succeeds();
    assert_eq!(killed.stdout, format!("{id}\n"));
    let listed = call(world, &["ls"]);
    assert!(listed.stdout.is_empty() && listed.stderr.contains("stockade create"), "{listed}");
    assert!(call(world, &["ls", "--all"]).stdout.contains("terminated"));
    refused(&sh(world, &id, "true"), 125, "SANDBOX_TERMINATED");
    refused(&call(world, &["pause", &id]), 1, "SANDBOX_TERMINATED");
    // Ending an ended sandbox succeeds.
    call(world, &["kill", &id]).succeeds();
}

/// With `--json` all data is on standard output, also for failures.
fn json_is_all_there_is_on_standard_output(world: &World) {
    let made = call(world, &["create", "--json", "--label", "a=b", "--env", "X=1"]);
    made.succeeds();
    assert!(made.stderr.is_empty(), "{made}");
    let id = made.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(made.json()["metadata"], json!({ "a": "b" }));
    assert!(made.json()["isolation"]["walls"].is_array(), "{made}");
    for (command, state) in
        [("pause", "paused"), ("resume", "running"), ("stop", "stopped"), ("start", "running")]
    {
        assert_eq!(call(world, &[command, &id, "--json"]).json()["state"], state, "{command}");
    }
    assert_eq!(call(world, &["exec", &id, "--json", "--", "pwd"]).json()["exitCode"], 0);
    let events = call(world, &["events", &id, "--json"]);
    let kinds: Vec<_> = events
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone())
        .collect();
    assert!(kinds.len() >= 4 && kinds.iter().all(Value::is_string), "{events}");
    let failed = call(world, &["show", "nobody", "--json"]);
    failed.ends_with(1);
    assert_eq!(failed.json()["error"]["code"], "NOT_FOUND", "{failed}");
    let killed = call(world, &["kill", &id, "--json"]);
    assert_eq!(killed.json()["killed"][0]["state"], "terminated", "{killed}");
}

fn ids_are_found_by_their_beginnings(world: &World) {
    for id in ["box-one", "box-two"] {
        assert_eq!(create(world, &["--id", id]), id);
    }
    assert_eq!(sh(world, "box-o", "echo one").stdout, "one\n");
    assert_eq!(show(world, "latest")["id"], "box-two");
    let several = call(world, &["show", "box"]);
    refused(&several, 2, "INVALID_INPUT");
    assert!(several.stderr.contains("box-one") && several.stderr.contains("box-two"));
    refused(&call(world, &["show", "nobody"]), 1, "NOT_FOUND");
    refused(&call(world, &["show", "0123456789ab"]), 1, "NOT_FOUND");
    refused(&sh(world, "nobody", "true"), 125, "NOT_FOUND");
    refused(&call(world, &["create", "--id", "box-one"]), 1, "CONFLICT");
    refused(&call(world, &["create", "--id", "Not An Id"]), 2, "INVALID_INPUT");
    // Every sandbox that can be ended is ended, even if others fail.
    let killed = call(world, &["kill", "nobody", "box-one"]);
    refused(&killed, 1, "NOT_FOUND");
    assert_eq!(killed.stdout, "box-one\n");
    call(world, &["kill", "latest"]).succeeds();
    refused(&call(world, &["show", "latest"]), 1, "NOT_FOUND");
}

fn labels_narrow_the_list(world: &World) {
    let (one, two) = (create(world, &["--label", "of=a"]), create(world, &["--label", "of=b"]));
    assert_eq!(call(world, &["ls", "-q", "--label", "of=a"]).stdout, format!("{one}\n"));
    assert_eq!(call(world, &["ls", "-q", "--label", "of=b"]).stdout, format!("{two}\n"));
    assert!(call(world, &["ls", "-q", "--label", "of=c"]).stdout.is_empty());
    assert!(call(world, &["show", &one]).stdout.contains("of=a"));
}

fn files_outlive_a_stop_and_processes_do_not(world: &World) {
    let id = create(world, &[]);
    let script = "mkdir ~/d; echo deep > ~/d/f; chmod 750 ~/d; \
        sleep 1000 >/dev/null 2>&1 & echo started";
    assert_eq!(sh(world, &id, script).stdout, "started\n");
    call(world, &["stop", &id]).succeeds();
    assert_eq!(state(world, &id), "stopped");
    refused(&sh(world, &id, "true"), 125, "INVALID_STATE");
    call(world, &["start", &id]).succeeds();
    let after = sh(world, &id, "cat ~/d/f; stat -c %a ~/d; pgrep sleep || echo none");
    assert_eq!(after.stdout, "deep\n750\nnone\n", "{after}");
}

fn a_paused_sandbox_stands_still(world: &World) {
    let id = create(world, &[]);
    sh(world, &id, "(while :; do echo . >> /tmp/ticks; sleep 0.02; done) >/dev/null 2>&1 &")
        .succeeds();
    call(world, &["pause", &id]).succeeds();
    assert_eq!(state(world, &id), "paused");
    refused(&sh(world, &id, "true"), 125, "INVALID_STATE");
    call(world, &["pause", &id]).succeeds();
    call(world, &["resume", &id]).succeeds();
    assert_eq!(state(world, &id), "running");
    sh(world, &id, "test -s /tmp/ticks").succeeds();
}

/// Each result is reported, and the exit code is that of the first failure.
fn several_are_changed_in_one_command(world: &World) {
    for id in ["box-a", "box-b", "box-c"] {
        create(world, &["--id", id, "--workspace", "."]);
    }
    let all = ["box-a", "box-b", "box-c"];
    let with = |words: &[&str], last: &[&str]| call(world, &[words, &all[..], last].concat());
    let is = |wanted: &str| all.iter().all(|id| state(world, id) == wanted);
    with(&["pause"], &[]).succeeds();
    assert!(is("paused"));
    with(&["resume"], &[]).succeeds();
    assert!(is("running"));
    let renewed = with(&["renew", "--json"], &["3h"]).json();
    assert_eq!(renewed["sandboxes"].as_array().unwrap().len(), 3, "{renewed}");
    sh(world, "box-b", "echo b > b").succeeds();
    let collected = with(&["collect", "--json"], &[]).json();
    let bundles: Vec<_> = collected["collected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["bundle"].is_null())
        .collect();
    assert_eq!(bundles, [true, false, true], "{collected}");
    for verb in ["pause", "resume", "renew", "collect"] {
        let last: &[&str] = if verb == "renew" { &["4h"] } else { &[] };
        let outcome = call(world, &[&[verb, "box-a", "nobody", "box-c"][..], last].concat());
        refused(&outcome, 1, "NOT_FOUND");
    }
    assert_eq!(state(world, "box-c"), "running");
    let flag = call(world, &["resume", "--retry", "box-a", "box-b"]);
    refused(&flag, 2, "INVALID_INPUT");
    with(&["kill", "--discard"], &[]).succeeds();
}

fn who_is_idle_is_paused_and_woken_by_use(world: &World) {
    let id = create(world, &["--idle", "1s"]);
    wait_until("an idle sandbox is paused", || state(world, &id) == "paused");
    assert_eq!(sh(world, &id, "echo awake").stdout, "awake\n");
}

fn time_to_live_ends_it_and_can_be_renewed(world: &World) {
    let short = create(world, &["--ttl", "1s"]);
    wait_until("its time is up", || state(world, &short) == "stopped");
    let ever = create(world, &["--ttl", "none"]);
    assert_eq!(show(world, &ever)["expiresAt"], Value::Null);
    let some = create(world, &["--ttl", "10m"]);
    let end = |id: &str| show(world, id)["expiresAt"].as_str().unwrap().to_owned();
    let first = end(&some);
    call(world, &["renew", &some, "1s"]).succeeds();
    assert_eq!(end(&some), first, "it ends sooner, and nobody said so");
    call(world, &["renew", &some, "1h"]).succeeds();
    assert!(end(&some) > first);
    call(world, &["renew", &some, "1s", "--shorten"]).succeeds();
    wait_until("its new time is up", || state(world, &some) == "stopped");
    call(world, &["renew", &some, "1h"]).succeeds();
    call(world, &["start", &some]).succeeds();
    call(world, &["kill", &some]).succeeds();
    refused(&call(world, &["renew", &some, "1h"]), 1, "SANDBOX_TERMINATED");
}

fn snapshots_are_beginnings_of_others(world: &World) {
    let id = create(world, &[]);
    sh(world, &id, "echo before > ~/file").succeeds();
    let taken = call(world, &["snapshot", &id, "--as", "good"]);
    taken.succeeds();
    assert_eq!(taken.stdout, "good\n", "{taken}");
    sh(world, &id, "echo after > ~/file").succeeds();
    let listed = call(world, &["snapshots", "--json"]).json();
    assert_eq!(listed["snapshots"][0]["id"], "good");
    assert!(call(world, &["snapshots"]).stdout.contains(&id));
    let restored = call(world, &["restore", "good", "--label", "of=snapshot"]);
    restored.succeeds();
    let other = restored.stdout.trim_end();
    assert_ne!(other, id);
    assert_eq!(sh(world, other, "cat ~/file").stdout, "before\n");
    assert_eq!(sh(world, &id, "cat ~/file").stdout, "after\n");
    call(world, &["snapshots", "--remove", "good"]).succeeds();
    assert_eq!(call(world, &["snapshots"]).stdout, "");
    refused(&call(world, &["restore", "good"]), 1, "NOT_FOUND");
    assert_eq!(sh(world, other, "cat ~/file").stdout, "before\n", "it went with the snapshot");
}

fn prune_ends_what_does_not_run(world: &World) {
    let (runs, stopped) = (create(world, &[]), create(world, &[]));
    call(world, &["stop", &stopped]).succeeds();
    assert_eq!(call(world, &["prune"]).stdout, format!("{stopped}\n"));
    assert_eq!(state(world, &runs), "running");
    let all = call(world, &["prune", "--all", "--json"]).json();
    assert_eq!(all["killed"][0]["id"], runs.as_str());
    assert_eq!(call(world, &["ls", "-q"]).stdout, "");
}

fn one_owner_has_so_many_sandboxes(world: &World) {
    let limited =
        |words: &[&str]| world.stockade(words).env("STOCKADE_MAX_SANDBOXES", "2").finish();
    for _ in 0..2 {
        limited(&["create"]).succeeds();
    }
    let third = limited(&["create"]);
    refused(&third, 1, "QUOTA_EXCEEDED");
    assert!(third.stderr.contains("stockade prune"), "{third}");
    limited(&["kill", "latest"]).succeeds();
    limited(&["create"]).succeeds();
}

fn what_is_not_understood_is_refused_before_anything_happens(world: &World) {
    for words in [
        &["create", "--unknown"][..],
        &["create", "--ttl", "soon"],
        &["create", "--label", "novalue"],
        &["create", "--access", "allow:read"],
        &["create", "--mount", "/nowhere-at-all:/x"],
        &["create", "--workspace", "/nowhere-at-all"],
        &["show"],
        &["cp", "a", "b"],
    ] {
        let outcome = call(world, words);
        assert_eq!(outcome.code(), 2, "{outcome}");
        assert!(!outcome.stderr.is_empty(), "{outcome}");
    }
    let rules = ["create", "--access", "allow:read:/a", "--access", "maybe:read:/b"];
    let outcome = call(world, &rules);
    refused(&outcome, 2, "RULE_INVALID");
    assert!(outcome.stderr.contains("access rule 1"), "{outcome}");
    call(world, &["exec"]).ends_with(125);
    assert_eq!(call(world, &["ls", "-q", "--all"]).stdout, "");
}

fn a_project_is_seen_copy_on_write_beside_runs_on_it(world: &World) {
    let project = world.project.to_str().unwrap();
    let id = create(world, &["--workspace", project]);
    sh(world, &id, &format!("cat {project}/a.txt && echo beta >> {project}/a.txt")).succeeds();
    assert_eq!(world.read("a.txt"), "alpha\n");
    world.review("echo gamma >> src/main.rs");
    assert_eq!(world.bundles().len(), 1, "a living sandbox is no bundle");
    call(world, &["diff", "latest"]).succeeds();
    call(world, &["apply", "latest"]).succeeds();
    assert!(world.read("src/main.rs").contains("gamma"));
    world.review("echo delta > delta");
    call(world, &["reject", "latest", "--yes"]).succeeds();
    assert!(!world.has("delta"));
    let seen = sh(world, &id, &format!("cat {project}/a.txt"));
    assert_eq!(seen.stdout, "alpha\nbeta\n", "{seen}");
}

fn a_snapshot_knows_its_workspace(world: &World) {
    let project = world.project.to_str().unwrap();
    let id = create(world, &["--workspace", project]);
    let change = format!("cd {project} && echo beta >> a.txt && rm -r src && echo new > new");
    sh(world, &id, &change).succeeds();
    call(world, &["snapshot", &id, "--as", "changed"]).succeeds();
    call(world, &["kill", &id]).succeeds();
    let again = call(world, &["restore", "changed"]);
    again.succeeds();
    // Its commands start in the same directory as those of the first one.
    let seen = sh(world, again.stdout.trim(), "cat a.txt new; ls");
    assert!(seen.stdout.starts_with("alpha\nbeta\nnew\n"), "{seen}");
    assert!(!seen.stdout.contains("src") && world.has("src"), "{seen}");
    call(world, &["kill", again.stdout.trim()]).succeeds();
}

fn tools_run_in_a_sandbox(world: &World) {
    let id = create(world, &[]);
    let listed = call(world, &["tool", "ls"]);
    assert!(listed.stdout.contains("shell") && listed.stdout.contains("echo"), "{listed}");
    assert!(call(world, &["tool", "ls", "--json"]).json()["tools"].is_array());
    let ran = call(world, &["tool", "run", &id, "shell", r#"{"command": "echo hello"}"#]);
    ran.succeeds();
    assert_eq!(ran.json()["result"]["stdout"], "hello\n", "{ran}");
    refused(&call(world, &["tool", "run", &id, "no_such_tool"]), 1, "TOOL_UNKNOWN");
    refused(&call(world, &["tool", "run", &id, "shell", "no json"]), 2, "INVALID_INPUT");
}

fn what_it_uses_is_told(world: &World) {
    let id = create(world, &[]);
    sh(world, &id, "head -c 3000000 /dev/zero > /tmp/file; sleep 1000 >/dev/null 2>&1 &")
        .succeeds();
    let metrics = &show(world, &id)["metrics"];
    let describe = |name: &str| metrics[name].as_u64().unwrap_or_default();
    assert!(describe("diskBytes") >= 3_000_000, "{metrics}");
    assert!(describe("processes") >= 2 && describe("memoryBytes") > 0, "{metrics}");
    let text = call(world, &["show", &id]);
    for line in ["processes", "memory", "processor", "disk"] {
        assert!(text.stdout.lines().any(|told| told.starts_with(line)), "{line}: {text}");
    }
    call(world, &["kill", &id]).succeeds();
}

as_root_and_as_user![
    a_snapshot_knows_its_workspace,
    what_it_uses_is_told,
    a_sandbox_is_made_used_and_ended,
    json_is_all_there_is_on_standard_output,
    ids_are_found_by_their_beginnings,
    labels_narrow_the_list,
    files_outlive_a_stop_and_processes_do_not,
    a_paused_sandbox_stands_still,
    several_are_changed_in_one_command,
    who_is_idle_is_paused_and_woken_by_use,
    time_to_live_ends_it_and_can_be_renewed,
    snapshots_are_beginnings_of_others,
    prune_ends_what_does_not_run,
    one_owner_has_so_many_sandboxes,
    what_is_not_understood_is_refused_before_anything_happens,
    a_project_is_seen_copy_on_write_beside_runs_on_it,
    tools_run_in_a_sandbox,
];
