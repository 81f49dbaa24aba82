//! What a view has from its start besides the project as it is: files with several names as one file, and
//! the ignored directories that earlier runs have kept.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::harness::{Identity, World};
use crate::host::Tree;

fn call(world: &World, words: &[&str]) -> crate::call::Outcome {
    world.stockade(words).finish()
}

/// Two names of one file in different directories, and two of another in one that git ignores.
fn link(world: &World) {
    world.write("one", "old\n");
    world.write("src/other", "x\n");
    fs::hard_link(world.project.join("one"), world.project.join("src/two")).unwrap();
    world.write("build/large", "product\n");
    fs::hard_link(world.project.join("build/large"), world.project.join("build/copy")).unwrap();
}

fn hard_links_of_a_project_stay_together(world: &World) {
    link(world);
    let before = Tree::of(&world.project);
    let script = "echo new > one; cat src/two; echo more >> src/two; cat one; stat -c %h one";
    for flags in [&["--review"][..], &["--review", "--view", "copy"]] {
        let outcome = world.run(flags, &["sh", "-c", script]);
        assert_eq!(outcome.succeeds().stdout, "new\nnew\nmore\n2\n", "{outcome}");
        assert!(outcome.stderr.contains("2 paths changed"), "{outcome}");
        before.assert_same(&Tree::of(&world.project), "the project");
        let names = call(world, &["diff", "latest", "--name-only"]);
        assert_eq!(names.stdout, "one\nsrc/two\n", "{names}");
    }
    call(world, &["apply", "latest"]).succeeds();
    let at = |name: &str| fs::metadata(world.project.join(name)).unwrap();
    assert_eq!(
        (world.read("one"), world.read("src/two")),
        ("new\nmore\n".into(), "new\nmore\n".into())
    );
    assert_eq!((at("one").ino(), at("one").nlink()), (at("src/two").ino(), 2));
    call(world, &["undo"]).succeeds();
    assert_eq!((world.read("one"), world.read("src/two")), ("old\n".into(), "old\n".into()));
}

fn hard_links_that_nothing_changes_are_no_change(world: &World) {
    link(world);
    for script in
        ["cat one > /dev/null", "touch -d @1 one", "ln one three && rm three", "cat build/copy"]
    {
        let outcome = world.review(script);
        assert!(!outcome.stderr.contains("changed"), "{script}: {outcome}");
    }
    // A name can go, and another one can come.
    world.review("rm one; mv src/two src/last; ln src/last src/linked");
    let names = call(world, &["diff", "latest", "--name-only"]);
    assert!(names.stdout.contains("src/last") && names.stdout.contains("src/linked"), "{names}");
    assert!(!names.stdout.contains("other"), "{names}");
    call(world, &["apply", "latest"]).succeeds();
    assert!(!world.has("one") && !world.has("src/two"));
    assert_eq!(
        (world.read("src/last"), world.read("src/linked")),
        ("old\n".into(), "old\n".into())
    );
    // What the host does meanwhile to a file that the command leaves alone stays the host's.
    fs::remove_file(world.project.join("build/copy")).unwrap();
    link(world);
    let wait = "sleep 2; echo x > new";
    let running = world.stockade(&["run", "--", "sh", "-c", wait]).start();
    std::thread::sleep(std::time::Duration::from_millis(500));
    fs::write(world.project.join("one"), "of the host\n").unwrap();
    running.finish().succeeds();
    let names = call(world, &["diff", "latest", "--name-only"]);
    assert_eq!(names.stdout, "new\n", "{names}");
}

fn a_persistent_sandbox_has_them_too(world: &World) {
    link(world);
    call(world, &["create", "--id", "box", "--workspace", "."]).succeeds();
    let exec = |script: &str| call(world, &["exec", "box", "--", "sh", "-c", script]);
    assert_eq!(exec("echo new > one; cat src/two").succeeds().stdout, "new\n");
    call(world, &["stop", "box"]).succeeds();
    call(world, &["start", "box"]).succeeds();
    assert_eq!(exec("echo more >> src/two; cat one").succeeds().stdout, "new\nmore\n");
    call(world, &["snapshot", "box", "--as", "linked"]).succeeds();
    call(world, &["restore", "linked", "--id", "again"]).succeeds();
    let again = ["exec", "again", "--", "sh", "-c", "echo end >> one; tail -n1 src/two"];
    assert_eq!(call(world, &again).succeeds().stdout, "end\n");
    call(world, &["kill", "--discard", "again"]).succeeds();
    call(world, &["collect", "box"]).succeeds();
    let names = call(world, &["diff", "latest", "--name-only"]);
    assert_eq!(names.stdout, "one\nsrc/two\n", "{names}");
    call(world, &["apply", "latest"]).succeeds();
    assert_eq!(
        (world.read("one"), world.read("src/two")),
        ("new\nmore\n".into(), "new\nmore\n".into())
    );
    call(world, &["kill", "--discard", "box"]).succeeds();
}

/// Names of a file that the command could not read outside, or that lead out of the project, are no way
/// to it.
fn a_planted_hard_link_shows_nothing(world: &World) {
    let secret = world.outside().join("secret");
    fs::write(&secret, "canary").unwrap();
    // Both names of the file are in the project, but only its owner may read it.
    fs::hard_link(&secret, world.project.join("first")).unwrap();
    fs::hard_link(&secret, world.project.join("second")).unwrap();
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let outcome = world.run(&["--discard"], &["sh", "-c", "cat first second; echo evil > first"]);
    // Its owner is another user than that of the project, or this user.
    let is_own = fs::metadata(&secret).unwrap().uid() == world.identity.uid();
    let expected = is_own && world.identity == Identity::User;
    assert_eq!(outcome.stdout.contains("canary"), expected, "{outcome}");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "canary");
}

fn ignored_directories_are_kept_for_the_next_run(world: &World) {
    let keep = |script: &str| world.run(&["--keep-ignored"], &["sh", "-c", script]);
    let before = Tree::of(&world.project);
    let outcome = keep(
        "mkdir -p build/deep && echo product > build/deep/file && ln build/deep/file build/two && echo x > x.log",
    );
    assert!(
        outcome.succeeds().stderr.contains("kept for the next run with --keep-ignored"),
        "{outcome}"
    );
    assert!(outcome.stderr.contains(": build ("), "{outcome}");
    before.assert_same(&Tree::of(&world.project), "the project");
    // A file that is ignored by itself is in the bundle, as ever.
    let diff = call(world, &["diff", "latest", "--json"]).json();
    let paths: Vec<_> =
        diff["entries"].as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
    assert_eq!(paths, ["x.log"], "{diff}");
    let seen = keep("cat build/deep/file && echo more >> build/two && stat -c %h build/two");
    assert_eq!(seen.succeeds().stdout, "product\n2\n", "{seen}");
    assert!(!seen.stderr.contains("changed"), "{seen}");
    // Without the flag, and in another project, nothing of it is there.
    assert_eq!(world.shell("ls build 2>/dev/null; true").stdout, "");
    let discarded =
        world.run(&["--keep-ignored", "--discard"], &["sh", "-c", "cat build/deep/file; exit 3"]);
    assert_eq!(
        (discarded.code(), discarded.stdout.as_str()),
        (3, "product\nmore\n"),
        "{discarded}"
    );
    // It is one thing in the list.
    let listed = call(world, &["cache", "ls"]);
    assert_eq!(
        listed.stdout.lines().filter(|line| line.starts_with("ignored ")).count(),
        1,
        "{listed}"
    );
    // What the project tracks or does not ignore any more is not kept.
    world.write(".gitignore", "*.log\n/probe\n");
    assert_eq!(keep("ls build 2>/dev/null; true").stdout, "");
    world.write(".gitignore", "*.log\nbuild/\n/probe\n");
    assert_eq!(keep("ls build 2>/dev/null; true").stdout, "", "nothing was left to keep");
    call(world, &["apply", "latest"]);
    assert!(!world.has("build"));
    call(world, &["cache", "rm", "ignored"]).succeeds();
    assert!(!call(world, &["cache", "ls"]).stdout.contains("ignored"));
}

fn what_the_host_has_is_below_what_is_kept(world: &World) {
    world.write("build/host", "host\n");
    let keep = |script: &str| world.run(&["--keep-ignored"], &["sh", "-c", script]);
    keep("rm build/host; mkdir build/d; echo a > build/a; mv build/d build/e").succeeds();
    world.write("build/later", "later\n");
    assert_eq!(keep("ls build").succeeds().stdout, "a\ne\nlater\n");
    // A command cannot have something kept that is no directory inside, or is a way out.
    keep("rm -rf build; ln -s /etc build").succeeds();
    assert_eq!(keep("ls build").succeeds().stdout, "host\nlater\n");
    assert_eq!(world.read("build/host"), "host\n");
}

fn what_cannot_be_kept_is_refused(world: &World) {
    for (flags, part) in [
        (&["--keep-ignored", "--view", "copy"][..], "`--view copy`"),
        (&["--keep-ignored", "--disk", "10M"], "`--disk`"),
        (&["--cache", "ignored:/x"], "--keep-ignored"),
    ] {
        let outcome = world.run(flags, &["true"]);
        assert!(outcome.code() == 125 && outcome.stderr.contains(part), "{outcome}");
        assert!(outcome.stderr.contains("[INVALID_INPUT]"), "{outcome}");
    }
    // What takes too much room is not kept, and not lost.
    let flags = ["--keep-ignored", "--max-bundle", "2M"];
    let large = "mkdir build; head -c 1M /dev/urandom > build/one; cp build/one build/two";
    let outcome = world.run(&flags, &["sh", "-c", large]);
    assert!(outcome.succeeds().stderr.contains("are not kept"), "{outcome}");
    let diff = call(world, &["diff", "latest", "--json"]);
    assert!(diff.stdout.contains("build/one") && diff.stdout.contains("build/two"), "{diff}");
}

as_root_and_as_user! {
    hard_links_of_a_project_stay_together,
    hard_links_that_nothing_changes_are_no_change,
    a_persistent_sandbox_has_them_too,
    a_planted_hard_link_shows_nothing,
    ignored_directories_are_kept_for_the_next_run,
    what_the_host_has_is_below_what_is_kept,
    what_cannot_be_kept_is_refused,
}
