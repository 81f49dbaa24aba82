//! The words of commands on persistent sandboxes: `latest`, ids that are used again, one JSON document
//! for each answer, tables, relative paths, and the same names everywhere.

use serde_json::Value;

use super::{call, create, refused, sh, show, state};
use crate::harness::World;

fn latest_is_of_the_current_project(world: &World) {
    let other = world.path("other");
    std::fs::create_dir_all(&other).unwrap();
    world.chown(&other);
    create(world, &["--id", "own"]);
    world.stockade(&["create", "--id", "other"]).current_dir(&other).finish().succeeds();
    let workspace = other.to_str().unwrap();
    create(world, &["--id", "theirs", "--workspace", workspace]);
    assert_eq!(show(world, "latest")["id"], "own");
    call(world, &["kill", "latest"]).succeeds();
    for words in [&["pause", "latest"][..], &["kill", "latest"], &["exec", "latest", "--", "true"]]
    {
        let outcome = call(world, words);
        assert!(outcome.stderr.contains("[NOT_FOUND]"), "{outcome}");
    }
    assert_eq!(
        (state(world, "other"), state(world, "theirs")),
        ("running".into(), "running".into())
    );
    let words = ["show", "latest", "--json"];
    let there = world.stockade(&words).current_dir(&other).finish().json();
    assert_eq!(there["id"], "theirs");
}

fn an_id_can_be_used_again(world: &World) {
    for round in 0..2 {
        create(world, &["--id", "demo"]);
        refused(&call(world, &["create", "--id", "demo"]), 1, "CONFLICT");
        sh(world, "demo", &format!("test ! -e /tmp/mark && echo {round} > /tmp/mark")).succeeds();
        call(world, &["kill", "demo"]).succeeds();
    }
    // What could not be created leaves nothing.
    for wrong in [
        &["--pull", "never", "--image", "ubuntu:24.04"][..],
        &["--image", "/nowhere"],
        &["--mount", "/nowhere:/x"],
        &["--user", "1", "--cwd", "relative"],
    ] {
        let outcome = call(world, &[&["create", "--id", "im"], wrong].concat());
        if outcome.code() == 0 {
            call(world, &["kill", "im"]).succeeds();
            continue;
        }
        let all = call(world, &["ls", "--all", "-q"]).stdout;
        assert!(!all.lines().any(|id| id == "im"), "{wrong:?}: {all}");
    }
    create(world, &["--id", "im"]);
}

fn one_answer_is_one_document(world: &World) {
    create(world, &["--id", "box"]);
    for words in [
        &["kill", "nosuch", "--json"][..],
        &["rm", "nosuch:/x", "box:/tmp/none", "--json"],
        &["stop", "nosuch", "--json"],
        &["start", "nosuch", "--json"],
        &["reject", "0123456789ab", "--json"],
        &["show", "nosuch", "--json"],
        &["cp", "nosuch:/x", "y", "--json"],
        &["kill", "box", "nosuch", "--json"],
    ] {
        let outcome = call(world, words);
        outcome.ends_with(1);
        let answer: Value = serde_json::from_str(&outcome.stdout).expect("one document");
        assert!(answer["error"]["code"].is_string(), "{outcome}");
    }
}

fn a_state_that_is_reached_is_no_error(world: &World) {
    create(world, &["--id", "s"]);
    for (verb, end) in [
        ("start", "running"),
        ("resume", "running"),
        ("pause", "paused"),
        ("pause", "paused"),
        ("resume", "running"),
        ("stop", "stopped"),
        ("stop", "stopped"),
    ] {
        call(world, &[verb, "s"]).succeeds();
        assert_eq!(state(world, "s"), end, "{verb}");
    }
    // What needs only files works while there are files.
    call(world, &["snapshot", "s", "--as", "clean"]).succeeds();
    call(world, &["cp", "a.txt", "s:/tmp/copied"]).succeeds();
    assert_eq!(call(world, &["cp", "s:/tmp/copied", "-"]).stdout, "alpha\n");
    call(world, &["rm", "s:/tmp/copied"]).succeeds();
    assert_eq!(state(world, "s"), "stopped");
    let listed = call(world, &["snapshots"]);
    assert!(listed.stdout.starts_with("ID "), "{listed}");
    call(world, &["start", "s"]).succeeds();
    let events = call(world, &["events", "s"]).stdout;
    for kind in ["CREATED", "PAUSED", "RESUMED", "STOPPED", "STARTED"] {
        assert!(events.contains(&format!("SANDBOX_{kind} ")), "{kind}: {events}");
    }
    // Stop and start are not told as pause and resume.
    assert_eq!(events.matches("SANDBOX_PAUSED").count(), 1, "{events}");
    assert_eq!(events.matches("SANDBOX_RESUMED").count(), 1, "{events}");
    call(world, &["kill", "s"]).succeeds();
    call(world, &["kill", "s"]).succeeds();
}

fn relative_paths_start_where_commands_start(world: &World) {
    create(world, &["--id", "c", "--cwd", "/tmp"]);
    sh(world, "c", "mkdir b; echo inside > b/f").succeeds();
    assert_eq!(call(world, &["exec", "--cwd", "b", "c", "--", "pwd"]).stdout, "/tmp/b\n");
    assert_eq!(call(world, &["cp", "c:b/f", "-"]).stdout, "inside\n");
    call(world, &["cp", "a.txt", "c:b/g"]).succeeds();
    assert_eq!(sh(world, "c", "cat /tmp/b/g").stdout, "alpha\n");
    call(world, &["rm", "c:b/g"]).succeeds();
    sh(world, "c", "test ! -e /tmp/b/g").succeeds();
    // Without a directory of its own, commands start in the home of their user.
    create(world, &["--id", "home"]);
    sh(world, "home", "mkdir b; echo x > b/f").succeeds();
    let inside = call(world, &["exec", "--cwd", "b", "home", "--", "cat", "f"]);
    assert_eq!(inside.stdout, "x\n", "{inside}");
    assert_eq!(call(world, &["cp", "home:b/f", "-"]).stdout, "x\n");
}

fn a_list_shows_workspaces_and_labels(world: &World) {
    create(world, &["--id", "l", "--workspace", ".", "--label", "team=blue"]);
    create(world, &["--id", "off"]);
    call(world, &["stop", "off"]).succeeds();
    let listed = call(world, &["ls"]).stdout;
    assert!(
        listed.contains("team=blue") && listed.contains(world.project.to_str().unwrap()),
        "{listed}"
    );
    assert_eq!(call(world, &["ls", "-q", "--state", "stopped"]).stdout, "off\n");
    let wrong = call(world, &["ls", "--state", "asleep"]);
    wrong.ends_with(2);
    assert!(wrong.stderr.contains("running"), "{wrong}");
}

/// Every name in every answer, each with its value.
fn fields<'v>(value: &'v Value, found: &mut Vec<(&'v str, &'v Value)>) {
    match value {
        Value::Object(fields_here) => {
            for (name, value) in fields_here {
                found.push((name, value));
                fields(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, found)),
        _ => {}
    }
}

fn names_and_times_have_one_form(world: &World) {
    world.review("echo x > x");
    create(world, &["--id", "j", "--workspace", ".", "--pids", "500", "--best-effort", "pids"]);
    call(world, &["snapshot", "j", "--as", "s"]).succeeds();
    for words in [
        &["show", "j"][..],
        &["ls"],
        &["bundles"],
        &["diff", "latest"],
        &["snapshots"],
        &["stop", "j"],
        &["collect", "j"],
        &["run", "--", "sh", "-c", "echo y > y"],
        &["kill", "j"],
    ] {
        let words = match words.split_first() {
            Some((&"run", rest)) => [&["run", "--json"], rest].concat(),
            _ => [words, &["--json"]].concat(),
        };
        let answer = call(world, &words).json();
        let mut found = Vec::new();
        fields(&answer, &mut found);
        for (name, value) in found {
            assert!(!name.contains('_'), "{words:?}: {name}");
            assert!(!name.ends_with("AtMs") && name != "timestampMs", "{words:?}: {name}");
            if name.ends_with("At") && !value.is_null() {
                let text = value.as_str().expect("a time is text");
                let is_form = text.len() == 24 && text.ends_with('Z') && &text[19..20] == ".";
                assert!(is_form, "{words:?}: {name} is {text}");
            }
        }
    }
}

as_root_and_as_user![
    latest_is_of_the_current_project,
    an_id_can_be_used_again,
    one_answer_is_one_document,
    a_state_that_is_reached_is_no_error,
    relative_paths_start_where_commands_start,
    a_list_shows_workspaces_and_labels,
    names_and_times_have_one_form,
];
