//! File descriptors: those that the caller left open, and attacks through the three standard ones.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};

use crate::harness::World;
use crate::host::Tree;

/// A file of the host that is accessible only through a descriptor from outside.
fn canary(world: &World) -> String {
    let path = world.outside().join("canary");
    world.plant(&path, "a secret of the host\n");
    path.to_str().unwrap().to_owned()
}

/// CVE-2024-21626: the caller left a directory of the host open.
fn inherited_directory(world: &World) {
    let canary = canary(world);
    for number in ["7", "9", "200", "900"] {
        let helper = ["with-open", "/", number];
        world
            .on_host(
                &world.probe(),
                &[
                    "with-open",
                    "/",
                    number,
                    world.probe().to_str().unwrap(),
                    "walk-descriptors",
                    &canary,
                ],
            )
            .finish()
            .escaped();
        let run = ["run", "--discard", "--", "./probe"];
        world
            .stockade_by(&helper, &[&run[..], &["walk-descriptors", &canary]].concat())
            .finish()
            .is_blocked();
        world
            .stockade_by(&helper, &[&run[..], &["inherited-descriptors"]].concat())
            .finish()
            .is_blocked();
    }
}

/// The same through the working directory: `--cwd /proc/self/fd/N`.
fn working_directory_by_descriptor(world: &World) {
    let canary = canary(world);
    for directory in [
        "/proc/self/fd/9",
        "/proc/self/fd/3",
        "/proc/1/fd/9",
        "/dev/fd/9",
        "/proc/self/cwd/../../..",
        "/proc/thread-self/root",
    ] {
        let run = ["run", "--discard", "--cwd", directory, "--"];
        let read = ["sh", "-c", "pwd -P; cat \".$0\" \"../../../..$0\" 2>&1", &canary];
        let outcome =
            world.stockade_by(&["with-open", "/", "9"], &[&run[..], &read[..]].concat()).finish();
        assert!(!outcome.stdout.contains("a secret of the host"), "{outcome}");
    }
}

/// Standard input is a directory of the host: `stockade run -- … < /`.
fn directory_as_standard_input(world: &World) {
    let canary = canary(world);
    for number in ["0", "1", "2"] {
        let run = ["run", "--discard", "--", "./probe", "walk-descriptors", &canary];
        let outcome = world.stockade_by(&["with-open", "/", number], &run).finish();
        assert!(!outcome.stdout.contains("ESCAPED"), "{outcome}");
        if number == "0" {
            // Either the run is refused, or the command has no directory to enter.
            assert!(outcome.code() == 125 || outcome.stdout.contains("held"), "{outcome}");
        }
    }
    let list = ["run", "--discard", "--", "sh", "-c", "ls /proc/self/fd/0/ /dev/stdin/ 2>&1"];
    let outcome = world.stockade_by(&["with-open", "/", "0"], &list).finish();
    assert!(!outcome.stdout.contains("proc") || outcome.stdout.contains("cannot"), "{outcome}");
}

/// Standard output is a file of the host: its previous content can be neither read nor removed.
fn file_as_standard_output(world: &World) {
    let path = world.outside().join("log");
    world.plant(&path, "what was there before\n");
    let open = || fs::OpenOptions::new().append(true).open(&path).unwrap();
    let probe = ["run", "--discard", "--", "./probe"];
    world
        .stockade(&[&probe[..], &["reopen-standard"]].concat())
        .output_to(open())
        .finish()
        .ends_with(0);
    world
        .stockade(&[&probe[..], &["truncate-standard"]].concat())
        .output_to(open())
        .finish()
        .ends_with(0);
    let script =
        "cat /proc/self/fd/1 >&2 < /dev/null; : > /proc/self/fd/1; : > /dev/stdout; echo end";
    let outcome = world
        .stockade(&["run", "--discard", "--", "timeout", "5", "sh", "-c", script])
        .output_to(open())
        .finish();
    assert!(!outcome.stderr.contains("what was there before"), "{outcome}");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("what was there before\n"), "{text:?}");
    assert!(!text.contains("ESCAPED"), "{text:?}");
}

/// Standard input is a file of the host, also opened for writing.
fn file_as_standard_input(world: &World) {
    let path = world.outside().join("input");
    world.plant(&path, "line\n");
    let before = Tree::of(&path);
    let script = "echo overwritten >&0; : > /proc/self/fd/0; chmod 777 /proc/self/fd/0; cat";
    let run = ["run", "--discard", "--", "sh", "-c", script];
    let outcome = world.stockade_by(&["with-open", path.to_str().unwrap(), "0"], &run).finish();
    before.assert_same(&Tree::of(&path), "standard input");
    drop(outcome);
}

/// A file as standard input is read as far as the command consumed it, or further, and its offset
/// is never that of a writer.
fn standard_output_keeps_its_order(world: &World) {
    let path = world.outside().join("order");
    let mut file = fs::File::create(&path).unwrap();
    world.chown(&path);
    file.write_all(b"first\n").unwrap();
    world
        .stockade(&["run", "--discard", "--", "echo", "second"])
        .output_to(file.try_clone().unwrap())
        .finish();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b"third\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "first\nsecond\nthird\n");
}

as_root_and_as_user![
    inherited_directory,
    working_directory_by_descriptor,
    directory_as_standard_input,
    file_as_standard_output,
    file_as_standard_input,
    standard_output_keeps_its_order,
];
