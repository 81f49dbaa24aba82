//! `stockade doctor`: its report must agree with what `run` then does.

use crate::harness::World;

fn proves_each_wall(world: &World) {
    let outcome = world.stockade(&["doctor", "--json"]).finish();
    let json = outcome.json();
    let walls = json["walls"].as_array().unwrap_or_else(|| panic!("no walls: {json}")).clone();
    assert!(walls.len() >= 5, "{json}");
    let names: Vec<_> =
        walls.iter().map(|wall| wall["name"].as_str().unwrap().to_owned()).collect();
    for wall in &walls {
        assert!(wall["raised"].is_boolean(), "{wall}");
        if wall["raised"] == false {
            assert!(wall["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{wall}");
        }
    }
    let run = world.stockade(&["run", "--json", "--", "true"]).finish();
    if walls.iter().all(|wall| wall["raised"] == true) {
        run.succeeds();
        let json = run.json();
        let raised: Vec<_> = json["isolation"]["walls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|wall| wall["name"].as_str().unwrap().to_owned())
            .collect();
        for name in &raised {
            assert!(names.contains(name), "doctor does not know {name}");
        }
        outcome.succeeds();
    } else {
        run.ends_with(125);
        assert_ne!(outcome.code(), 0, "{outcome}");
    }
}

fn is_readable_for_people(world: &World) {
    let outcome = world.stockade(&["doctor"]).finish();
    assert!(matches!(outcome.code(), 0 | 1), "{outcome}");
    for word in ["seccomp", "network", "landlock"] {
        assert!(outcome.stdout.to_lowercase().contains(word), "{word}: {outcome}");
    }
    assert!(!outcome.stdout.contains('\u{1b}'), "no colour but on a terminal: {outcome}");
}

/// What `doctor` reports about a network by policy is what `run` then does.
fn proves_a_network_by_policy(world: &World) {
    let json = world.stockade(&["doctor", "--json"]).finish().json();
    let proof = json["network"]["policy"].clone();
    let run = world.run(&["--discard", "--net", "policy"], &["true"]);
    if proof["available"] == true {
        assert!(proof["proof"].as_str().unwrap().contains("192.0.2.1"), "{proof}");
        run.succeeds();
    } else {
        run.ends_with(125);
        assert!(proof["remediation"].is_string(), "{proof}");
    }
}

/// Where a wall is unavailable, `doctor` and `run` agree.
fn agrees_with_run_where_a_wall_is_missing(world: &World) {
    let binary = world.binary().display().to_string();
    let probe = world.probe();
    // A user namespace in which no further one can be created.
    let script = |command: &str| {
        format!("echo 0 > /proc/sys/user/max_user_namespaces && exec {binary} {command}")
    };
    let call = |command: &str| {
        let shell = script(command);
        world.on_host(&probe, &["apart", "/bin/sh", "-c", &shell]).finish()
    };
    let run = call("run --discard -- echo ran");
    if run.stderr.contains("max_user_namespaces: ") {
        crate::harness::skip("agrees_with_run_where_a_wall_is_missing", "the knob is not writable");
        return;
    }
    assert_eq!(run.stdout, "", "{run}");
    run.ends_with(125);
    let doctor = call("doctor");
    assert_ne!(doctor.code(), 0, "{doctor}");
    let text = format!("{}{}", doctor.stdout, doctor.stderr);
    let named = text.contains("user") && run.stderr.contains("user");
    assert!(named, "both name the wall: {run} {doctor}");
}

as_root_and_as_user![
    proves_each_wall,
    is_readable_for_people,
    proves_a_network_by_policy,
    agrees_with_run_where_a_wall_is_missing,
];
