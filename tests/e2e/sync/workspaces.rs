//! Workspaces: staged writes, commits and a history, and as a side of a synchronization.

use super::Scene;
use crate::harness::World;

fn writes_are_staged_and_committed(world: &World) {
    let scene = Scene::new(world, &[]);
    scene.call(&["workspace", "create", "notes"]).succeeds();
    let taken = scene.call(&["workspace", "create", "--json", "notes"]);
    assert!(taken.stdout.contains("CONFLICT"), "{taken}");
    let write = |text: &str| {
        let words = ["workspace", "write", "notes", "a/plan.md"];
        world.stockade(&words).input(text).finish().succeeds();
    };
    write("one");
    let listed = scene.call(&["workspace", "ls", "--json"]).json();
    let branch = &listed["workspaces"][0]["branches"][0];
    assert_eq!((&branch["isStaged"], &branch["head"]), (&true.into(), &serde_json::Value::Null));
    let first = scene.call(&["workspace", "commit", "notes", "-m", "First", "--json"]).json();
    let again = scene.call(&["workspace", "commit", "notes", "-m", "Again", "--json"]).json();
    assert!(first["commitId"].is_string() && again["commitId"].is_null(), "{first} {again}");
    write("two");
    assert_eq!(scene.call(&["workspace", "cat", "notes", "a/plan.md"]).stdout, "two");
    scene.call(&["workspace", "discard", "notes"]).succeeds();
    assert_eq!(scene.call(&["workspace", "cat", "notes", "a/plan.md"]).stdout, "one");
    scene.call(&["workspace", "mkdir", "notes", "drafts"]).succeeds();
    scene.call(&["workspace", "delete", "notes", "a"]).succeeds();
    assert_eq!(scene.call(&["workspace", "files", "notes"]).stdout, "drafts/\n");
    let commit = first["commitId"].as_str().unwrap();
    let old = scene.call(&["workspace", "cat", "notes", "a/plan.md", "--ref", commit]);
    assert_eq!(old.stdout, "one");
    let log = scene.call(&["workspace", "log", "notes", "--json"]).json();
    assert_eq!(log["commits"].as_array().unwrap().len(), 1, "{log}");
    scene.call(&["workspace", "rm", "notes"]).succeeds();
    let gone = scene.call(&["workspace", "files", "notes", "--json"]);
    assert!(gone.stdout.contains("NOT_FOUND"), "{gone}");
}

fn a_workspace_is_synchronized_with_a_sandbox(world: &World) {
    let scene = Scene::new(world, &[]);
    scene.call(&["workspace", "create", "tree"]).succeeds();
    scene.sh("mkdir -p /tmp/t/src && cd /tmp/t && echo 1 > src/a && echo '#!' > run && chmod +x run && ln -s run l");
    let (inside, outside) = (scene.inside("/tmp/t"), "workspace:tree/code");
    let report = scene.report(&["--commit", "-m", "m"], &inside, outside);
    let id = report["commitId"].as_str().unwrap().to_owned();
    assert_eq!(report["copied"], 3, "{report}");
    let again = scene.report(&["--commit", "-m", "m2"], &inside, outside);
    assert_eq!((&again["unchanged"], again.get("commitId")), (&3.into(), None), "{again}");
    let log = scene.call(&["workspace", "log", "tree", "--json"]).json();
    assert_eq!(log["commits"][0]["id"], id.as_str(), "{log}");
    assert_eq!(scene.call(&["workspace", "cat", "tree", "code/src/a"]).stdout, "1\n");
    // Back into another directory, with the permissions and links.
    scene.report(&[], outside, &scene.inside("/tmp/u"));
    assert_eq!(scene.list("/tmp/u"), ["l", "run", "src", "src/a"]);
    assert_eq!(scene.sh("cd /tmp/u && stat -c %a run && readlink l"), "755\nrun\n");
    // Both sides change: nothing is overwritten.
    let words = ["workspace", "write", "tree", "code/src/a"];
    world.stockade(&words).input("2").finish().succeeds();
    scene.sh("echo 3 > /tmp/t/src/a");
    scene.sync(&[], &inside, outside).ends_with(1);
    assert_eq!(scene.call(&["workspace", "cat", "tree", "code/src/a"]).stdout, "2");
    scene.report(&["--conflict", "vfs-wins"], outside, &inside);
    assert_eq!(scene.sh("cat /tmp/t/src/a"), "2");
    // A mirror deletes, and stages until a commit.
    scene.sh("rm -r /tmp/t/src");
    scene.report(&["--mirror"], &inside, outside);
    assert_eq!(scene.call(&["workspace", "files", "tree"]).stdout, "code/\ncode/l\ncode/run\n");
    let branches = scene.call(&["workspace", "ls"]).stdout;
    assert!(branches.contains("(staged)"), "{branches}");
}

fn the_commands_of_the_document_work(world: &World) {
    let made = world.stockade(&["create", "--id", "demo"]).finish();
    made.succeeds();
    world.write("src/a", "1");
    world.write("plan.md", "plan");
    let run = |words: &[&str]| {
        let outcome = world.stockade(words).deadline(120).finish();
        outcome.succeeds();
        outcome.stdout
    };
    run(&["sync", "src", "demo:/tmp/src"]);
    run(&["exec", "demo", "--", "sh", "-c", "mkdir /tmp/out && echo 1 > /tmp/out/result"]);
    run(&["sync", "--mirror", "--commit", "-m", "Results", "demo:/tmp/out", "out"]);
    assert_eq!(world.git(&["log", "-1", "--format=%s"]), "Results\n");
    run(&["workspace", "create", "notes"]);
    run(&["workspace", "write", "notes", "plan.md", "plan.md"]);
    run(&["workspace", "commit", "notes", "-m", "First plan"]);
    assert!(run(&["workspace", "log", "notes"]).contains("First plan"));
    run(&["sync", "--two-way", "workspace:notes", "demo:/tmp/notes"]);
    assert_eq!(run(&["exec", "demo", "--", "cat", "/tmp/notes/plan.md"]), "plan");
}

as_root_and_as_user!(
    writes_are_staged_and_committed,
    a_workspace_is_synchronized_with_a_sandbox,
    the_commands_of_the_document_work,
);
