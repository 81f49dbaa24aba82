//! The changes of a sandbox in its workspace, as a bundle: shown, applied or rejected while the
//! sandbox keeps running. Nothing hostile in it leaves the sandbox.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use serde_json::{Value, json};

use super::{call, create, refused, sh, state};
use crate::harness::World;

/// Creates a sandbox that works on the project at `/project`.
fn busy_sandbox(world: &World) -> String {
    create(world, &["--workspace", &format!("{}:/project", world.project.display())])
}

/// The id of the bundle that is printed as data.
fn collect(world: &World, words: &[&str]) -> String {
    let outcome = call(world, &[&["collect"], words].concat());
    outcome.succeeds();
    let id = outcome.stdout.trim_end().to_owned();
    assert_eq!(outcome.stdout, format!("{id}\n"), "{outcome}");
    for verb in ["diff", "apply", "reject"] {
        let named = format!("`stockade {verb} {}`", &id[..12]);
        assert!(outcome.stderr.contains(&named), "{verb}: {outcome}");
    }
    id
}

/// The changes of a bundle with their paths, and why they are refused.
fn entries(world: &World, bundle: &str) -> Vec<String> {
    let report = call(world, &["diff", bundle, "--json"]).json();
    let entry = |entry: &Value| {
        let [operation, path] = ["operation", "path"].map(|name| entry[name].as_str().unwrap());
        let refused = entry["refused"].as_str().map(|why| format!(" {why}"));
        format!("{operation} {path}{}", refused.unwrap_or_default())
    };
    report["entries"].as_array().unwrap().iter().map(entry).collect()
}

fn changes_of_a_living_sandbox_are_shown_and_applied(world: &World) {
    world.write("gone", "g\n");
    let id = busy_sandbox(world);
    let nothing = call(world, &["collect", &id]);
    nothing.succeeds();
    assert!(nothing.stdout.is_empty() && nothing.stderr.contains("nothing has changed"));
    let report = call(world, &["collect", &id, "--json"]).json();
    assert_eq!(report, json!({"bundle": null, "notes": []}));

    sh(world, &id, "cd /project && echo beta >> a.txt && rm gone && echo n > new && sleep 1000 &")
        .succeeds();
    sh(world, &id, "until [ -s /project/new ]; do sleep 0.01; done").succeeds();
    let first = collect(world, &[&id]);
    assert_eq!(entries(world, &first), ["modify a.txt", "delete gone", "add new"]);
    assert!(world.has("gone") && !world.has("new"), "nothing is applied by itself");
    let diff = call(world, &["diff", &first]);
    assert!(diff.stdout.contains("+beta"), "{diff}");
    let listed = call(world, &["bundles"]);
    assert!(listed.stdout.contains(&format!("stockade collect {id}")), "{listed}");

    // The sandbox keeps running, and its later changes of the same files are not in the first
    // bundle.
    sh(world, &id, "cd /project && echo gamma >> a.txt && echo more > new && echo o > other")
        .succeeds();
    let second = collect(world, &[&id, "--exclude", "other"]);
    assert_ne!(first, second);
    assert_eq!(entries(world, &second), ["modify a.txt", "delete gone", "add new"]);
    call(world, &["apply", &first]).succeeds();
    assert_eq!((world.read("a.txt"), world.read("new")), ("alpha\nbeta\n".into(), "n\n".into()));
    assert!(!world.has("gone"));
    let stale = call(world, &["apply", &second]);
    refused(&stale, 1, "BUNDLE_CONFLICT");
    call(world, &["reject", &second]).succeeds();
    assert!(world.bundles().is_empty());
    // New files of the project belong to its file owner.
    let owner = |name: &str| fs::metadata(world.project.join(name)).unwrap().uid();
    assert_eq!(owner("new"), owner("a.txt"));
    assert_eq!(sh(world, &id, "cat /project/a.txt").stdout, "alpha\nbeta\ngamma\n");
    call(world, &["kill", &id]).succeeds();
}

fn it_does_not_matter_what_the_sandbox_does(world: &World) {
    let id = busy_sandbox(world);
    sh(world, &id, "echo n > /project/new").succeeds();
    for (command, expected) in
        [("pause", "paused"), ("resume", "running"), ("stop", "stopped"), ("start", "running")]
    {
        call(world, &[command, &id]).succeeds();
        let bundle = collect(world, &[&id]);
        assert_eq!(entries(world, &bundle), ["add new"], "{expected}");
        assert_eq!(state(world, &id), expected);
        call(world, &["reject", &bundle]).succeeds();
    }
    call(world, &["snapshot", &id, "--as", "kept"]).succeeds();
    call(world, &["kill", &id]).succeeds();
    refused(&call(world, &["collect", &id]), 1, "SANDBOX_TERMINATED");
    let restored = call(world, &["restore", "kept"]);
    restored.succeeds();
    let bundle = collect(world, &[restored.stdout.trim()]);
    assert_eq!(entries(world, &bundle), ["add new"]);
}

fn what_the_host_changed_meanwhile_is_a_conflict(world: &World) {
    world.write("b.txt", "b\n");
    let id = busy_sandbox(world);
    sh(world, &id, "cd /project && echo in > a.txt && echo in > b.txt").succeeds();
    world.write("a.txt", "of the host\n");
    let bundle = collect(world, &[&id]);
    let report = call(world, &["diff", &bundle, "--json"]).json();
    let conflicts: Vec<_> = report["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["path"].as_str().unwrap(), entry["conflict"] == true))
        .collect();
    assert_eq!(conflicts, [("a.txt", true), ("b.txt", false)]);
    refused(&call(world, &["apply", &bundle]), 1, "BUNDLE_CONFLICT");
    assert_eq!((world.read("a.txt"), world.read("b.txt")), ("of the host\n".into(), "b\n".into()));
    call(world, &["apply", &bundle, "b.txt"]).succeeds();
    assert_eq!(world.read("b.txt"), "in\n");
}

fn what_the_sandbox_renamed_beside_files_of_the_host_is_no_conflict(world: &World) {
    world.write("old.py", "o\n");
    world.write("gone", "g\n");
    let id = busy_sandbox(world);
    let rename =
        "cd /project && mv old.py new.py && echo n >> new.py && echo n >> a.txt && ln a.txt g";
    sh(world, &id, rename).succeeds();
    world.write("of-host", "h\n");
    let first = collect(world, &[&id]);
    let expected = ["modify a.txt", "add g", "add new.py", "delete old.py"];
    assert_eq!(entries(world, &first), expected);
    call(world, &["apply", &first]).succeeds();
    let contents = ["a.txt", "g", "new.py"].map(|name| world.read(name));
    assert_eq!(contents, ["alpha\nn\n", "alpha\nn\n", "o\nn\n"]);
    assert!(!world.has("old.py") && world.has("of-host"));

    // It keeps running, also after a stop and start, and the host removes a file that it edits.
    for command in ["stop", "start"] {
        call(world, &[command, &id]).succeeds();
    }
    let again = "cd /project && mv new.py newer.py && echo m >> newer.py && echo m >> gone";
    sh(world, &id, again).succeeds();
    world.write("of-host-too", "h\n");
    let second = collect(world, &[&id]);
    assert_eq!(entries(world, &second), ["modify gone", "delete new.py", "add newer.py"]);
    fs::remove_file(world.project.join("gone")).unwrap();
    let third = collect(world, &[&id]);
    refused(&call(world, &["apply", &third]), 1, "BUNDLE_CONFLICT");
    call(world, &["apply", &second, "new.py", "newer.py"]).succeeds();
    assert_eq!(world.read("newer.py"), "o\nn\nm\n");
    assert!(!world.has("new.py") && !world.has("gone"));
}

fn nothing_that_is_hostile_leaves(world: &World) {
    world.plant(&world.outside().join("secret"), "TOKEN\n");
    let outside = world.outside();
    let id = busy_sandbox(world);
    let script = format!(
        "cd /project && mkdir -p .git/hooks sub/.git && echo evil > .git/hooks/pre-commit && \
         echo evil > sub/.git/config && ln -s {0}/secret link && ln -s {0} directory && \
         ln -s ../../../../../../etc/passwd up && mkfifo pipe && echo evil > .envrc && \
         echo fine > fine && chmod 4755 fine && mkdir closed && echo x > closed/x && \
         chmod 000 closed && ln fine second",
        outside.display()
    );
    sh(world, &id, &script).succeeds();
    let bundle = collect(world, &[&id]);
    let expected = [
        "add .envrc",
        "add .git/hooks/pre-commit git-directory",
        "add closed",
        "add closed/x",
        "add directory link-leaves",
        "add fine",
        "add link link-leaves",
        "add pipe special-file",
        "add second",
        "add sub",
        "add sub/.git git-directory",
        "add sub/.git/config git-directory",
        "add up link-leaves",
    ];
    let reported = entries(world, &bundle);
    for entry in expected {
        assert!(reported.contains(&entry.to_owned()), "{entry}: {reported:#?}");
    }
    // Reading the files of a sandbox does not change their modes.
    assert_eq!(sh(world, &id, "stat -c %a /project/closed /project/fine").stdout, "0\n4755\n");
    refused(&call(world, &["apply", &bundle]), 1, "EXECUTED_FILE");
    call(world, &["apply", &bundle, "--allow-executed"]).succeeds();
    for refused in ["link", "directory", "up", "pipe", "sub/.git", ".git/hooks/pre-commit"] {
        assert!(!world.has(refused), "{refused}");
    }
    assert_eq!(fs::metadata(world.project.join("fine")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "TOKEN\n");
    assert_eq!(
        world.files_with(&world.data().join("bundles"), "TOKEN"),
        Vec::<std::path::PathBuf>::new()
    );
    assert_eq!(fs::read_dir(world.data().join("views")).unwrap().count(), 0, "a copy is left");
}

fn what_cannot_be_collected_is_said(world: &World) {
    let plain = create(world, &[]);
    let none = call(world, &["collect", &plain]);
    refused(&none, 2, "INVALID_INPUT");
    assert!(none.stderr.contains("no workspace"), "{none}");
    refused(&call(world, &["collect", "nobody"]), 1, "NOT_FOUND");
    let id = busy_sandbox(world);
    sh(world, &id, "head -c 100000 /dev/zero > /project/large").succeeds();
    let large = call(world, &["collect", &id, "--max-bundle", "1k"]);
    refused(&large, 1, "BUNDLE_TOO_LARGE");
    let failed = call(world, &["collect", &id, "--json", "--exclude", "../x"]);
    assert_eq!(failed.json()["error"]["code"], "INVALID_INPUT", "{failed}");
    assert!(world.bundles().is_empty());
    for workspace in ["/nowhere:/project", "/nowhere", "src:work"] {
        refused(&call(world, &["create", "--workspace", workspace]), 2, "INVALID_INPUT");
    }
}

/// The name of a directory may contain a colon, with and without another mount point inside.
fn commands_start_where_the_caller_is(world: &World) {
    let at = |id: &str| sh(world, id, "pwd").stdout;
    let project = world.project.display().to_string();
    let root = create(world, &["--workspace", "."]);
    assert_eq!(at(&root), format!("{project}\n"));
    let shown = call(world, &["show", &root]);
    assert!(shown.stdout.contains(&format!("workspace  {project}\n")), "{shown}");
    let from = |directory: &str, workspace: &str| {
        let words = ["create", "--workspace", workspace];
        let made = world.stockade(&words).current_dir(&world.project.join(directory)).finish();
        made.succeeds();
        made.stdout.trim_end().to_owned()
    };
    assert_eq!(at(&from("src/deep", "../..:/project")), "/project/src/deep\n");
    assert_eq!(at(&from("src/deep", "er")), format!("{project}/src/deep/er\n"));
    let reported = create(world, &["--workspace", ".", "--cwd", "/usr"]);
    assert_eq!(at(&reported), "/usr\n");
}

fn a_workspace_may_have_any_name(world: &World) {
    for name in ["a:b", "a:/b"] {
        let file = world.write(&format!("{name}/file"), "f\n");
        let directory = file.parent().unwrap();
        let plain = directory.to_str().unwrap();
        let id = create(world, &["--workspace", plain]);
        assert_eq!(sh(world, &id, &format!("cat '{plain}/file'")).stdout, "f\n");
        let id = create(world, &["--workspace", &format!("{plain}:/project")]);
        assert_eq!(sh(world, &id, "cat /project/file").stdout, "f\n");
    }
}

as_root_and_as_user![
    changes_of_a_living_sandbox_are_shown_and_applied,
    it_does_not_matter_what_the_sandbox_does,
    what_the_host_changed_meanwhile_is_a_conflict,
    what_the_sandbox_renamed_beside_files_of_the_host_is_no_conflict,
    nothing_that_is_hostile_leaves,
    what_cannot_be_collected_is_said,
    commands_start_where_the_caller_is,
    a_workspace_may_have_any_name,
];
