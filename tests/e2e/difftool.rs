//! `diff --tool`: changed files in a program of the user.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::harness::World;

/// A program that appends its files to a log.
fn tool(world: &World) -> String {
    let path = world.outside().join("tool");
    let log = world.outside().join("log");
    let script = format!(
        "#!/bin/sh\nfor file; do echo \"$file:\"; cat \"$file\"; done >> {}\nexit 1\n",
        log.display()
    );
    world.plant(&path, &script);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn log(world: &World) -> String {
    let path = world.outside().join("log");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let _ = fs::remove_file(path);
    text
}

fn a_program_gets_both_contents(world: &World) {
    world
        .run(&[], &["sh", "-c", "echo beta > a.txt; echo new > './-new file.c'; rm src/main.rs"])
        .succeeds();
    let program = format!("--tool={}", tool(world));
    let outcome = world.stockade(&["diff", "latest", &program]).finish();
    outcome.succeeds();
    let seen = log(world);
    assert!(
        seen.contains("/old/a.txt:\nalpha\n") && seen.contains("/new/a.txt:\nbeta\n"),
        "{seen}"
    );
    assert!(
        seen.contains("/old/_-new_file.c:\n") && seen.contains("_-new_file.c:\nnew\n"),
        "{seen}"
    );
    assert!(seen.contains("/old/main.rs:\nfn main() {}\n"), "{seen}");
    let place = seen.lines().next().unwrap().split("/old/").next().unwrap().to_owned();
    assert!(!std::path::Path::new(&place).exists(), "{place} is left");
    // Only the named path, in the difftool of the user's git, whatever the project's says.
    let command = format!("{} \"$LOCAL\" \"$REMOTE\"", world.outside().join("tool").display());
    for (name, value) in [("diff.tool", "own"), ("difftool.own.cmd", &command)] {
        world.git(&["config", "--global", name, value]);
    }
    world.git(&["config", "difftool.own.cmd", "touch /tmp/stockade-difftool-of-the-project"]);
    let outcome = world.stockade(&["diff", "latest", "--tool", "a.txt"]).finish();
    outcome.succeeds();
    let seen = log(world);
    assert!(
        seen.contains("alpha\n") && seen.contains("beta\n") && !seen.contains("main"),
        "{seen}"
    );
    assert!(!std::path::Path::new("/tmp/stockade-difftool-of-the-project").exists());
    let missing = world.stockade(&["diff", "latest", "--tool=no-such-program"]).finish();
    missing.ends_with(2);
    assert!(missing.stderr.contains("no-such-program"), "{missing}");
}

as_root_and_as_user![a_program_gets_both_contents];
