//! The commands that README shows, run as README shows them.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::call::Outcome;
use crate::harness::World;

as_root_and_as_user! {
    the_first_minute_ends_with_a_diff_that_is_applied_or_rejected,
    the_commands_for_a_project_of_ones_own_do_what_readme_says,
}

fn the_first_minute_ends_with_a_diff_that_is_applied_or_rejected(world: &World) {
    let [run, diff, apply, reject] = commands_below("The first minute")[..] else {
        panic!("README's first minute has other commands than run, diff, apply, reject")
    };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in ["agent.sh", "greet.sh", "notes.txt"] {
        let file = format!("examples/first-run/{file}");
        let content = std::fs::read(repository.join(&file)).unwrap();
        let path = world.write(&file, content);
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let greeting = || world.read("examples/first-run/greet.sh");
    let before = greeting();

    let outcome = documented(world, run);
    outcome.succeeds();
    for line in ["the test passes", "I see no ssh keys", "the interfaces are lo.", "a git hook"] {
        assert!(outcome.stdout.contains(line), "{line}: {outcome}");
    }
    for verb in ["diff", "apply", "reject"] {
        assert!(outcome.last_line().contains(verb), "{verb}: {outcome}");
    }
    assert_eq!(greeting(), before, "the run itself changed the host");

    let outcome = documented(world, diff);
    outcome.succeeds();
    for part in ["-echo \"Helo", "+echo \"Hello", "test.sh", "notes.txt", "pre-commit"] {
        assert!(outcome.stdout.contains(part), "{part}: {outcome}");
    }

    documented(world, reject).succeeds();
    assert_eq!(greeting(), before, "a rejected change was made");
    assert!(world.has("examples/first-run/notes.txt"));
    documented(world, diff).is_refused();

    documented(world, run).succeeds();
    documented(world, apply).succeeds();
    assert!(greeting().contains("Hello"), "an applied change was not made");
    assert!(!world.has("examples/first-run/notes.txt"));
    assert!(!world.has(".git/hooks/pre-commit"), "nothing in a .git is ever applied");
    let added = world.project.join("examples/first-run/test.sh");
    let added = std::fs::metadata(added).unwrap();
    assert_eq!(added.uid(), world.identity.uid(), "a new file belongs to the project's owner");
    assert_eq!(added.mode() & 0o111, 0o111, "the new test can be executed");
}

fn the_commands_for_a_project_of_ones_own_do_what_readme_says(world: &World) {
    let agent = world.write("agent.sh", "#!/bin/sh\necho changed >>a.txt\n");
    std::fs::set_permissions(agent, Permissions::from_mode(0o755)).unwrap();
    let commands = commands_below("Use it on your own project");
    assert!(commands.len() > 5, "{commands:?}");
    for command in commands {
        let outcome = documented(world, command);
        if command.contains("--memory") && outcome.code() == 125 {
            // Without control groups of its own the caller gets a refusal, never a weaker run.
            assert!(outcome.stderr.contains("LIMIT_UNAVAILABLE"), "{outcome}");
            continue;
        }
        outcome.succeeds();
        if command.contains("ls /docs") {
            assert!(!outcome.stdout.is_empty(), "the mount is empty: {outcome}");
        }
        if command.contains(" diff ") {
            assert!(outcome.stdout.contains("+changed"), "{outcome}");
        }
    }
    assert_eq!(world.read("a.txt"), "alpha\nchanged\n");
}

/// The commands in the `sh` blocks below a heading of README.
fn commands_below(heading: &str) -> Vec<&'static str> {
    let readme = include_str!("../../README.md");
    let (_, below) = readme.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = below.split("\n## ").next().unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.flat_map(str::lines).collect()
}

/// Runs a command line of a document with the binary that was built already. None of them needs
/// a shell.
fn documented(world: &World, line: &str) -> Outcome {
    let rest =
        line.strip_prefix("cargo run --release -- ").or_else(|| line.strip_prefix("stockade "));
    let words: Vec<&str> = rest.expect("a command of stockade").split_whitespace().collect();
    assert!(!line.contains(['"', '\'', '$', '|', '>', '&', ';']), "{line} needs a shell");
    world.stockade(&words).finish()
}
