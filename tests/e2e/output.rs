//! Standard streams that are unavailable: a full disk is reported, a closed reader is not, and no
//! other file gets the number of a closed descriptor.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use crate::call::Outcome;
use crate::harness::World;

/// Commands that print data, or an error as data.
const COMMANDS: [&[&str]; 12] = [
    &["--help"],
    &["doctor"],
    &["doctor", "--json"],
    &["run", "--json", "--discard", "--", "true"],
    &["bundles", "--json"],
    &["ls"],
    &["ls", "--json"],
    &["events", "--json"],
    &["runs", "--json"],
    &["show", "nothing", "--json"],
    &["completions", "bash"],
    &["man"],
];

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// A pipe without a reader.
fn closed() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

fn run_into(world: &World, output: Stdio, words: &[&str]) -> Outcome {
    world.stockade(words).output_to(output).finish()
}

fn lost_output_is_reported(world: &World) {
    world.stockade(&["create", "--id", "box"]).finish().succeeds();
    let commands: [&[&str]; 3] = [
        &["run", "--discard", "--", "echo", "lost"],
        &["exec", "box", "--", "echo", "lost"],
        &["exec", "box", "--", "yes"],
    ];
    for words in commands.iter().chain(&COMMANDS) {
        let outcome = run_into(world, full(), words);
        outcome.ends_with(125);
        assert!(outcome.stderr.contains("cannot write the output [IO]"), "{outcome}");
        assert!(outcome.stderr.contains("No space left on device"), "{outcome}");
    }
}

fn a_reader_that_has_gone_is_not(world: &World) {
    world.stockade(&["create", "--id", "box"]).finish().succeeds();
    for words in [&["run", "--discard", "--", "yes"][..], &["exec", "box", "--", "yes"]] {
        let outcome = run_into(world, closed(), words);
        outcome.ends_with(141);
        assert!(!outcome.stderr.contains("cannot write"), "{outcome}");
    }
    // A command that writes nothing more ends with its own exit code.
    run_into(world, closed(), &["exec", "box", "--", "sh", "-c", "echo once; exit 3"]).ends_with(3);
    for words in COMMANDS {
        let outcome = run_into(world, closed(), words);
        assert!([0, 1, 141].contains(&outcome.code()), "{outcome}");
        for reported in ["panicked", "Broken pipe", "cannot write"] {
            assert!(!outcome.stderr.contains(reported), "{outcome}");
        }
    }
}

/// The next opened file gets the lowest free descriptor: output would be written into that file.
fn what_is_closed_is_taken_by_nothing(world: &World) {
    let binary = world.binary();
    for closed in ["<&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"] {
        let script = format!("exec \"$0\" run -- sh -c 'cat; echo new > made; echo told' {closed}");
        let words = ["-c".as_ref(), script.as_ref(), binary.as_os_str()];
        let outcome = world.on_host(Path::new("/bin/sh"), &words).finish();
        outcome.succeeds();
        assert_eq!(
            outcome.stdout,
            if closed.contains(" >&-") { "" } else { "told\n" },
            "{outcome}"
        );
        let diff = world.stockade(&["diff", "latest"]).finish();
        assert!(diff.stdout.ends_with("@@ -0,0 +1 @@\n+new\n"), "{diff}");
        world.stockade(&["reject", "latest", "--yes"]).finish().succeeds();
    }
}

/// Each line of a command that prints lines is JSON, also that of an error.
fn an_error_among_lines_is_a_line(world: &World) {
    for command in ["events", "logs", "up", "resume"] {
        let outcome = world.stockade(&[command, "nothing", "--json"]).finish();
        assert_ne!(outcome.code(), 0, "{outcome}");
        let lines: Vec<serde_json::Value> =
            outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 1, "{outcome}");
        assert!(lines[0]["error"]["code"].is_string(), "{outcome}");
    }
}

as_root_and_as_user![
    lost_output_is_reported,
    a_reader_that_has_gone_is_not,
    what_is_closed_is_taken_by_nothing,
    an_error_among_lines_is_a_line
];
