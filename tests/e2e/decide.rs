//! Decisions about changes: merges, hunks, branches, undo and history.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use crate::harness::World;

/// A file of 200 lines in which the command changed line 150 and the host line 10.
fn both_changed_one_file(world: &World) -> Vec<String> {
    let mut lines: Vec<String> = (1..=200).map(|number| format!("line {number}\n")).collect();
    world.write("long.txt", lines.concat());
    world.review("sed -i '150s/.*/theirs/' long.txt");
    "mine\n".clone_into(&mut lines[9]);
    world.write("long.txt", lines.concat());
    "theirs\n".clone_into(&mut lines[149]);
    lines
}

fn separate_changes_are_merged(world: &World) {
    let merged = both_changed_one_file(world);
    let refused = world.stockade(&["apply", "latest"]).finish();
    refused.ends_with(1);
    assert!(refused.stderr.contains("--merge"), "{refused}");
    let shown = world.stockade(&["diff", "latest"]).finish();
    assert!(shown.stdout.contains("# +mine") && shown.stdout.contains("+theirs"), "{shown}");
    world.stockade(&["apply", "latest", "--merge"]).finish().succeeds();
    assert_eq!(world.read("long.txt"), merged.concat());
    assert!(world.bundles().is_empty());
}

fn the_same_lines_need_a_decision(world: &World) {
    for (flags, expected) in [
        (&["--ours"][..], "human\nsame\n"),
        (&["--theirs"], "agent\nsame\n"),
        (&["--merge", "--markers"], "<<<<<<< host\nhuman\n=======\nagent\n>>>>>>> bundle "),
    ] {
        world.write("f", "one\nsame\n");
        world.review("sed -i '1s/.*/agent/' f; echo other > other");
        world.write("f", "human\nsame\n");
        world.stockade(&["apply", "latest", "--merge"]).finish().ends_with(1);
        assert_eq!(world.read("f"), "human\nsame\n");
        let words = [&["apply", "latest"][..], flags].concat();
        world.stockade(&words).finish().succeeds();
        assert!(world.read("f").starts_with(expected), "{flags:?}: {}", world.read("f"));
        assert_eq!(world.read("other"), "other\n");
        fs::remove_file(world.project.join("other")).unwrap();
    }
}

/// A change of the host's during the run is a conflict, and never the command's base.
fn what_the_host_edits_during_a_run_is_a_conflict(world: &World) {
    let run = world.stockade(&[
        "run",
        "--review",
        "--",
        "sh",
        "-c",
        "echo ready; read line; echo agent > a.txt",
    ]);
    let mut run = run.start();
    run.wait_for_output("ready");
    world.write("a.txt", "human\n");
    run.send(b"go\n");
    run.finish().succeeds();
    let shown = world.stockade(&["diff", "latest"]).finish();
    assert!(shown.stdout.contains("conflict"), "{shown}");
    world.stockade(&["apply", "latest", "--merge"]).finish().ends_with(1);
    assert_eq!(world.read("a.txt"), "human\n");
    world.stockade(&["apply", "latest", "--theirs"]).finish().succeeds();
    assert_eq!(world.read("a.txt"), "agent\n");
}

fn undo_takes_the_last_apply_back(world: &World) {
    world.write("gone/x", "x\n");
    world.write("edited", "before\n");
    let mode = |name: &str| fs::metadata(world.project.join(name)).unwrap().mode() & 0o777;
    world.review("rm -r gone; echo after > edited; chmod 755 edited; mkdir new; echo n > new/n");
    world.stockade(&["apply", "latest"]).finish().succeeds();
    assert!(!world.has("gone") && world.has("new/n") && mode("edited") == 0o755);
    world.stockade(&["undo"]).finish().succeeds();
    assert_eq!((world.read("gone/x"), world.read("edited")), ("x\n".into(), "before\n".into()));
    assert!(!world.has("new") && mode("edited") == 0o644);
    // The bundle waits again, with all of its contents.
    world.stockade(&["apply", "latest"]).finish().succeeds();
    assert_eq!(world.read("new/n"), "n\n");
    world.write("edited", "changed since\n");
    world.stockade(&["undo"]).finish().ends_with(1);
    assert!(world.has("new/n") && world.read("edited") == "changed since\n");
    let history = world.stockade(&["history"]).finish();
    history.succeeds();
    let count = |word: &str| history.stdout.lines().filter(|line| line.contains(word)).count();
    assert_eq!((count("applied"), count("undone")), (2, 1), "{history}");
}

fn hunks_are_chosen_one_by_one(world: &World) {
    let lines: String = (0..100).map(|number| format!("{number}\n")).collect();
    world.write("many", &lines);
    world.review("sed -i '5s/.*/yes/; 90s/.*/no/' many; echo new > new");
    let chosen = world.stockade(&["apply", "latest", "-i"]).input("y\nn\nn\n").finish();
    chosen.succeeds();
    assert!(world.read("many").contains("yes") && !world.read("many").contains("no\n"));
    assert!(!world.has("new"), "{chosen}");
    // The rest waits, and starts from what was applied.
    world.stockade(&["apply", "latest"]).finish().succeeds();
    assert!(world.read("many").contains("no\n") && world.has("new"));
    assert!(world.bundles().is_empty());
}

fn a_branch_leaves_the_work_tree_alone(world: &World) {
    world.write("hook", "#!/bin/sh\ntouch \"$0.ran\"\n");
    let hooks = world.project.join(".git/hooks");
    for name in ["reference-transaction", "post-commit", "pre-commit", "post-checkout"] {
        fs::create_dir_all(&hooks).unwrap();
        fs::copy(world.project.join("hook"), hooks.join(name)).unwrap();
        fs::set_permissions(hooks.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    world.chown_tree(&world.project, |_| world.identity.uid());
    let before = world.read("a.txt");
    world.review("echo two > a.txt; mkdir new; printf 'a\\0b' > new/bin; ln -s a.txt link");
    world.stockade(&["apply", "latest", "--branch", "agent"]).finish().succeeds();
    assert_eq!(world.read("a.txt"), before);
    assert!(
        !fs::read_dir(&hooks)
            .unwrap()
            .any(|it| { it.unwrap().file_name().to_string_lossy().ends_with(".ran") })
    );
    assert_eq!(world.git(&["show", "agent:a.txt"]), "two\n");
    assert!(world.git(&["ls-tree", "-r", "agent"]).contains("120000 blob"));
    for name in ["agent", "a..b", "-x", "HEAD"] {
        let branch = format!("--branch={name}");
        assert_ne!(world.stockade(&["apply", "latest", &branch]).finish().code(), 0);
    }
}

fn a_moved_project_takes_its_bundles(world: &World) {
    world.review("echo two > a.txt");
    let [bundle] = <[_; 1]>::try_from(world.bundles()).unwrap();
    let id = bundle["id"].as_str().unwrap();
    let moved = world.path("moved");
    fs::rename(&world.project, &moved).unwrap();
    let refused = world.stockade(&["apply", id]).current_dir(&moved).finish();
    refused.ends_with(125);
    assert!(refused.stderr.contains("--project ."), "{refused}");
    // `latest` means the current project, which is another one as far as its path tells.
    let refused = world.stockade(&["apply", "latest"]).current_dir(&moved).finish();
    refused.ends_with(1);
    let remedy = format!("stockade apply {} --project .", &id[..12]);
    assert!(refused.stderr.contains(&remedy), "{refused}");
    let taken = world.stockade(&["apply", id, "--project", "."]).current_dir(&moved).finish();
    taken.succeeds();
    assert_eq!(fs::read_to_string(moved.join("a.txt")).unwrap(), "two\n");
}

/// A product that is older than its source in the sandbox is older after `apply`.
fn modification_times_keep_their_order(world: &World) {
    world.review("echo p > a-source; sleep 0.1; echo p > z-product; sleep 0.1; echo q >> a-source");
    world.stockade(&["apply", "latest"]).finish().succeeds();
    let time = |name: &str| fs::metadata(world.project.join(name)).unwrap().modified().unwrap();
    assert!(time("a-source") > time("z-product"));
}

/// What `git apply` makes of the diff is what `apply` makes.
fn the_diff_is_a_whole_patch(world: &World) {
    world.write("bin", b"a\0b".repeat(900));
    world.write("bin-gone", b"a\0b".repeat(900));
    world.write("moved", (0..50).map(|number| format!("line {number}\n")).collect::<String>());
    world.write("empty-gone", "");
    world.git(&["add", "-A"]);
    world.git(&["commit", "-q", "-m", "files"]);
    world.review(
        "head -c 3000 /dev/urandom > bin; rm bin-gone empty-gone; : > empty; mv moved to; \
         echo more >> to; printf end > no-newline; chmod 755 a.txt; ln -s a.txt link; \
         head -c 2000 /dev/urandom > 'odd \"name'; echo x > \"$(printf 'new\\nline')\"",
    );
    let diff = world.stockade(&["diff", "latest"]).finish();
    assert!(diff.stdout.contains("rename from moved"), "{diff}");
    fs::write(world.path("patch"), &diff.stdout).unwrap();
    world.git(&["apply", "--index", world.path("patch").to_str().unwrap()]);
    let by_git = world.git(&["write-tree"]);
    world.git(&["reset", "-q", "--hard"]);
    world.stockade(&["apply", "latest"]).finish().succeeds();
    world.git(&["add", "-A"]);
    assert_eq!(world.git(&["write-tree"]), by_git);
}

as_root_and_as_user!(
    separate_changes_are_merged,
    the_same_lines_need_a_decision,
    what_the_host_edits_during_a_run_is_a_conflict,
    undo_takes_the_last_apply_back,
    hunks_are_chosen_one_by_one,
    a_branch_leaves_the_work_tree_alone,
    a_moved_project_takes_its_bundles,
    modification_times_keep_their_order,
    the_diff_is_a_whole_patch,
);
