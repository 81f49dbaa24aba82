//! Inside a container of another kind: the run works with every wall, or it is refused with the
//! reason; it never runs with fewer walls.

use crate::harness::{Identity, World};
use crate::host::Tree;

fn works_or_refuses(world: &World, kind: &[&str]) {
    let before = Tree::of(&world.project);
    let mut helper = vec!["container"];
    helper.extend(kind);
    let script = "echo x > made; for a in privileges interfaces write-proc 'read /etc/shadow'; \
        do ./probe $a; done";
    let run = ["run", "--json", "--discard", "--", "sh", "-c", script];
    let outcome = world.stockade_by(&helper, &run).finish();
    before.assert_same(&Tree::of(&world.project), "the project");
    assert!(!outcome.stderr.contains("BROKEN"), "the container itself: {outcome}");
    if outcome.code() == 0 {
        let json = outcome.json();
        let stdout = json["stdout"].as_str().unwrap();
        assert!(!stdout.contains("ESCAPED"), "{json}");
        // Without /proc, two of the attacks have nothing to inspect; the report then mentions
        // /proc.
        let wanted = if json["isolation"]["reasons"].to_string().contains("/proc") { 2 } else { 4 };
        assert_eq!(stdout.matches("held: ").count(), wanted, "{json}");
        for wall in json["isolation"]["walls"].as_array().unwrap() {
            assert!(wall["raised"] == true || !wall["reason"].is_null(), "{wall}");
        }
    } else {
        outcome.ends_with(125);
        assert!(outcome.stderr.len() + outcome.stdout.len() > 20, "a reason is given: {outcome}");
    }
    let doctor = world.stockade_by(&helper, &["doctor"]).finish();
    assert!(!doctor.stderr.contains("panicked"), "{doctor}");
}

fn one_id(world: &World) {
    works_or_refuses(world, &["one", "plain"]);
}

fn one_id_with_a_masked_proc(world: &World) {
    works_or_refuses(world, &["one", "masked"]);
}

fn a_range_of_ids(world: &World) {
    if world.identity == Identity::User {
        return;
    }
    world.chown_tree(&world.path(""), |uid| 1_000_000 + uid);
    works_or_refuses(world, &["range", "plain"]);
    works_or_refuses(world, &["range", "masked"]);
}

/// Inside the container and outside: applied changes have the right file owners.
fn review_in_a_container(world: &World) {
    let run = ["run", "--review", "--", "sh", "-c", "echo new > new"];
    let outcome = world.stockade_by(&["container", "one", "plain"], &run).finish();
    if outcome.code() == 125 {
        return;
    }
    outcome.succeeds();
    world.stockade_by(&["container", "one", "plain"], &["apply", "latest"]).finish().succeeds();
    assert_eq!(world.read("new"), "new\n");
    let path = world.project.join("new");
    assert_eq!(Tree::of(&path).entries[&path].uid, world.identity.uid());
}

/// If the project has to be copied, a file that consists of one hole stays sparse.
fn a_copy_keeps_holes(world: &World) {
    if world.identity == Identity::User {
        return;
    }
    let hole = std::fs::File::create(world.project.join("hole")).unwrap();
    hole.set_len(1 << 30).unwrap();
    world.chown_tree(&world.path(""), |uid| 1_000_000 + uid);
    let run = ["run", "--discard", "--", "sh", "-c", "du -k hole"];
    let outcome = world.stockade_by(&["container", "range", "plain"], &run).finish();
    outcome.succeeds();
    let kib: u64 = outcome.stdout.split_whitespace().next().unwrap().parse().unwrap();
    assert!(kib < 1024, "{kib} KiB are used: {outcome}");
}

/// A sandbox in a sandbox would need namespaces that the outer one denies: this is reported, not
/// skipped.
fn inside_itself(world: &World) {
    crate::harness::copy_program(&world.binary(), &world.project.join("stockade"));
    let script = "./stockade run --discard -- echo ran; echo code $?";
    let outcome = world.shell(script);
    assert!(outcome.stdout.contains("code 125"), "{outcome}");
    assert!(!outcome.stdout.contains("ran\n"), "{outcome}");
}

/// In a container a network by policy works fully, or the run is refused.
fn a_network_by_policy(world: &World) {
    let command = ["./probe", "reach", "nobody says this", "10.0.0.1:80"];
    let mut run = vec!["run", "--json", "--discard", "--net", "policy", "--"];
    run.extend(command);
    for kind in [["one", "plain"], ["one", "masked"]] {
        let helper = ["container", kind[0], kind[1]];
        let outcome = world.stockade_by(&helper, &run).finish();
        if outcome.code() == 125 {
            assert!(outcome.json()["error"]["message"].is_string(), "{outcome}");
            continue;
        }
        outcome.succeeds();
        let json = outcome.json();
        assert!(json["stdout"].as_str().unwrap().contains("held: "), "{json}");
        assert_eq!(json["network"]["refused"][0]["host"], "10.0.0.1", "{json}");
    }
}

as_root_and_as_user![
    a_network_by_policy,
    one_id,
    one_id_with_a_masked_proc,
    a_range_of_ids,
    review_in_a_container,
    a_copy_keeps_holes,
    inside_itself,
];
