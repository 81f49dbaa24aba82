//! Nothing is lost when a sandbox ends, whatever ends it: its files remain, or its changes are in a
//! bundle, or both.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{call, create, refused, sh, show, state};
use crate::daemons::{keepers, kill_server, servers, wait_until};
use crate::harness::World;

/// Creates a sandbox that works on the project, and changes a file of the project in it.
fn at_work(world: &World, options: &[&str]) -> String {
    let workspace = format!("{}:/project", world.project.display());
    let id = create(world, &[&["--workspace", &workspace], options].concat());
    sh(world, &id, "echo hours > /project/work.txt; echo own > ~/own").succeeds();
    id
}

/// The bundles that wait for a decision.
fn bundles(world: &World) -> Vec<Value> {
    let listed = call(world, &["bundles", "--json"]);
    listed.succeeds();
    listed.json()["bundles"].as_array().unwrap().clone()
}

/// Asserts that the one bundle has the changes that [`at_work`] made, and returns its id.
#[track_caller]
fn the_bundle(world: &World) -> String {
    let waiting = bundles(world);
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    let id = waiting[0]["id"].as_str().unwrap().to_owned();
    let diff = call(world, &["diff", &id]);
    assert!(diff.stdout.contains("work.txt") && diff.stdout.contains("+hours"), "{diff}");
    id
}

/// The last event of a sandbox.
fn last_event(world: &World, id: &str) -> Value {
    let events = call(world, &["events", id, "--json"]);
    events.succeeds();
    serde_json::from_str(events.stdout.lines().last().unwrap()).unwrap()
}

fn stops(world: &World, id: &str, reason: &str) {
    wait_until("it has stopped", || state(world, id) == "stopped");
    let shown = show(world, id);
    assert!(shown["reason"].as_str().unwrap().starts_with(reason), "{shown}");
    let event = last_event(world, id);
    assert_eq!(event["type"], "SANDBOX_STOPPED", "{event}");
    assert_eq!(event["data"]["reason"], reason, "{event}");
}

/// Asserts that a stopped sandbox starts with its files.
fn starts_again(world: &World, id: &str) {
    call(world, &["start", id]).succeeds();
    assert_eq!(sh(world, id, "cat /project/work.txt ~/own").stdout, "hours\nown\n");
}

fn an_expired_sandbox_keeps_its_files_and_its_changes(world: &World) {
    let id = at_work(world, &["--ttl", "4s"]);
    stops(world, &id, "expired");
    let bundle = the_bundle(world);
    let shown = show(world, &id);
    assert_eq!(shown["bundle"], bundle.as_str(), "{shown}");
    assert!(shown["removeAt"].as_str() > shown["expiresAt"].as_str(), "{shown}");
    assert_eq!(last_event(world, &id)["data"]["bundle"], bundle.as_str());
    let listed = call(world, &["ls"]);
    assert!(listed.stdout.contains("stopped") && listed.stdout.contains(&bundle[..12]), "{listed}");
    refused(&sh(world, &id, "true"), 125, "INVALID_STATE");
    // Its changes are in a bundle already.
    let again = call(world, &["collect", &id]);
    assert_eq!(again.stdout, format!("{bundle}\n"), "{again}");

    starts_again(world, &id);
    let shown = show(world, &id);
    assert!(shown["removeAt"].is_null() && shown["state"] == "running", "{shown}");
    let killed = call(world, &["kill", &id]);
    killed.succeeds();
    assert!(killed.stderr.contains(&bundle[..12]), "{killed}");
    assert_eq!(the_bundle(world), bundle, "the same changes are not in two bundles");
}

fn a_paused_sandbox_expires_like_any_other(world: &World) {
    let id = at_work(world, &["--ttl", "4s"]);
    call(world, &["pause", &id]).succeeds();
    stops(world, &id, "expired");
    the_bundle(world);
    starts_again(world, &id);
}

fn processes_are_lost_and_files_are_not(world: &World) {
    let id = at_work(world, &["--ttl", "none"]);
    kill_init(world, &id);
    stops(world, &id, "processes_lost");
    the_bundle(world);
    starts_again(world, &id);
    // A start does not wait for the watcher.
    kill_init(world, &id);
    starts_again(world, &id);
    call(world, &["kill", &id, "--discard"]).succeeds();
}

/// The keeper's record of a sandbox, and where it is.
fn record(world: &World, id: &str) -> (PathBuf, Value) {
    let runtime = fs::read_dir(world.data().join("runtime")).unwrap();
    let records = runtime
        .map(|version| version.unwrap().path().join("sandboxes").join(id).join("record.json"));
    let path = records.into_iter().find(|path| path.exists()).expect("a record");
    let record = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    (path, record)
}

/// Kills the first process of a sandbox, and so all of them.
fn kill_init(world: &World, id: &str) {
    let init = record(world, id).1["stage"]["held"]["init"].as_i64().expect("it runs");
    let init = Pid::from_raw(i32::try_from(init).unwrap()).unwrap();
    kill_process(init, Signal::KILL).unwrap();
    wait_until("init has ended", || !is_alive(init));
}

/// Whether a process exists that is more than an exit code.
fn is_alive(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.is_ok_and(|stat| {
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        !matches!(after.split_whitespace().next(), None | Some("Z" | "X"))
    })
}

fn kill_keeper(world: &World) {
    let keepers = keepers(&world.data());
    assert!(!keepers.is_empty());
    for keeper in &keepers {
        let _ = kill_process(*keeper, Signal::KILL);
    }
    wait_until("the keeper has ended", || keepers.iter().all(|keeper| !is_alive(*keeper)));
}

/// What a reboot leaves: no process, and records of an earlier boot.
fn a_reboot_removes_no_file(world: &World) {
    let id = at_work(world, &["--ttl", "none"]);
    let paused = create(world, &["--ttl", "none"]);
    sh(world, &paused, "echo own > ~/own").succeeds();
    call(world, &["pause", &paused]).succeeds();
    kill_server(&world.data());
    kill_keeper(world);
    for id in [&id, &paused] {
        kill_init(world, id);
        let (path, mut record) = record(world, id);
        record["host_start"] = "00000000-0000-0000-0000-000000000000".into();
        fs::write(path, record.to_string()).unwrap();
    }
    stops(world, &id, "host_restarted");
    stops(world, &paused, "host_restarted");
    the_bundle(world);
    starts_again(world, &id);
    call(world, &["start", &paused]).succeeds();
    assert_eq!(sh(world, &paused, "cat ~/own").stdout, "own\n");
}

fn no_process_is_alive_when_it_expires(world: &World) {
    let id = at_work(world, &["--ttl", "4s"]);
    kill_server(&world.data());
    kill_keeper(world);
    // Whether any process is alive then can only be observed by waiting.
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert!(servers(&world.data()).is_empty());
    stops(world, &id, "expired");
    the_bundle(world);
    starts_again(world, &id);
}

fn a_kill_makes_a_bundle_unless_it_discards(world: &World) {
    let id = at_work(world, &[]);
    let killed = call(world, &["kill", &id, "--json"]);
    killed.succeeds();
    let bundle = the_bundle(world);
    assert_eq!(killed.json()["killed"][0]["bundle"], bundle.as_str(), "{killed}");
    let event = last_event(world, &id);
    assert_eq!(
        (&event["type"], &event["data"]["bundle"]),
        (&"SANDBOX_KILLED".into(), &bundle.as_str().into())
    );
    let refused_ = call(world, &["collect", &id]);
    refused(&refused_, 1, "SANDBOX_TERMINATED");
    assert!(refused_.stderr.contains(&bundle[..12]), "{refused_}");
    call(world, &["apply", &bundle]).succeeds();
    assert_eq!(world.read("work.txt"), "hours\n");

    let id = at_work(world, &[]);
    sh(world, &id, "echo other > /project/other.txt").succeeds();
    call(world, &["kill", &id, "--discard"]).succeeds();
    assert!(bundles(world).is_empty());
}

fn prune_makes_bundles_and_leaves_what_is_kept(world: &World) {
    let (id, kept) = (at_work(world, &[]), create(world, &["--keep"]));
    for id in [&id, &kept] {
        call(world, &["stop", id]).succeeds();
    }
    let pruned = call(world, &["prune"]);
    assert_eq!(pruned.stdout, format!("{id}\n"), "{pruned}");
    let bundle = the_bundle(world);
    assert!(pruned.stderr.contains(&bundle[..12]), "{pruned}");
    assert_eq!(call(world, &["prune", "--all", "--discard"]).stdout, format!("{kept}\n"));
}

fn files_are_kept_or_removed_as_requested(world: &World) {
    let kept = create(world, &["--keep"]);
    sh(world, &kept, "echo own > ~/own").succeeds();
    let ended = at_work(world, &["--on-expiry", "terminate"]);
    for id in [&kept, &ended] {
        call(world, &["renew", id, "1s", "--shorten"]).succeeds();
    }
    wait_until("it stops", || state(world, &kept) == "stopped");
    assert!(show(world, &kept)["removeAt"].is_null());
    assert!(call(world, &["ls"]).stdout.contains("never"), "it is removed");
    call(world, &["renew", &kept, "1h"]).succeeds();
    call(world, &["start", &kept]).succeeds();
    assert_eq!(sh(world, &kept, "cat ~/own").stdout, "own\n");
    wait_until("it ends", || state(world, &ended) == "terminated");
    let bundle = the_bundle(world);
    let event = last_event(world, &ended);
    assert_eq!(event["type"], "SANDBOX_KILLED");
    assert_eq!(
        (&event["data"]["reason"], &event["data"]["bundle"]),
        (&"expired".into(), &bundle.into())
    );
    let both = call(world, &["create", "--keep", "--on-expiry", "terminate"]);
    refused(&both, 2, "INVALID_INPUT");
}

/// Without a bundle no file is removed.
fn a_kill_that_can_make_no_bundle_removes_nothing(world: &World) {
    let id = at_work(world, &[]);
    let moved = world.path("moved");
    fs::rename(&world.project, &moved).unwrap();
    let there = |words: &[&str]| world.stockade(words).current_dir(&moved).finish();
    let outcome = there(&["kill", &id]);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(outcome.stderr.contains("its files remain"), "{outcome}");
    fs::rename(&moved, &world.project).unwrap();
    assert_eq!(state(world, &id), "stopped");
    starts_again(world, &id);
    call(world, &["kill", &id]).succeeds();
    the_bundle(world);
}

as_root_and_as_user![
    an_expired_sandbox_keeps_its_files_and_its_changes,
    a_paused_sandbox_expires_like_any_other,
    processes_are_lost_and_files_are_not,
    a_reboot_removes_no_file,
    no_process_is_alive_when_it_expires,
    a_kill_makes_a_bundle_unless_it_discards,
    prune_makes_bundles_and_leaves_what_is_kept,
    files_are_kept_or_removed_as_requested,
    a_kill_that_can_make_no_bundle_removes_nothing,
];
