//! The commands in documents, run exactly as documented.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::call::Outcome;
use crate::daemons::wait_until;
use crate::harness::World;

as_root_and_as_user! {
    the_first_minute_ends_with_a_diff_that_is_applied_or_rejected,
    the_commands_for_a_project_of_ones_own_do_what_readme_says,
    persistent_sandboxes_work_as_readme_says,
    snippets_are_run_as_readme_says,
    workflows_are_run_as_readme_says,
    what_is_measured_is_what_its_page_says,
    volumes_and_caches_work_as_their_page_says,
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

    let outcome = run_documented(world, run);
    outcome.succeeds();
    let [told, shown, taken] = quoted_below("The first minute")[..] else {
        panic!("README's first minute has other outputs than those of run, diff and apply")
    };
    assert_printed(&outcome, told);
    for verb in ["diff", "apply", "reject"] {
        assert!(outcome.last_line().contains(verb), "{verb}: {outcome}");
    }
    assert_eq!(greeting(), before, "the run itself changed the host");

    let outcome = run_documented(world, diff);
    outcome.succeeds();
    assert_printed(&outcome, shown);
    for part in ["test.sh", "notes.txt"] {
        assert!(outcome.stdout.contains(part), "{part}: {outcome}");
    }

    run_documented(world, reject).succeeds();
    assert_eq!(greeting(), before, "a rejected change was made");
    assert!(world.has("examples/first-run/notes.txt"));
    run_documented(world, diff).is_refused();

    run_documented(world, run).succeeds();
    let outcome = run_documented(world, apply);
    outcome.succeeds();
    assert_printed(&outcome, taken);
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
        let outcome = run_documented(world, command);
        if command.contains("--memory") && outcome.code() == 125 {
            // Without control groups of its own, the caller's run is refused and never has weaker
            // limits.
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

fn persistent_sandboxes_work_as_readme_says(world: &World) {
    let commands = commands_below("Persistent sandboxes");
    assert!(commands.len() > 5, "{commands:?}");
    for command in commands {
        let outcome = run_documented(world, command);
        outcome.succeeds();
        if command.contains("ls /tmp/src") {
            assert!(outcome.stdout.contains("main.rs"), "{outcome}");
        }
        if command.ends_with(" ls") {
            assert!(outcome.stdout.contains("demo"), "{outcome}");
        }
    }
}

fn snippets_are_run_as_readme_says(world: &World) {
    let examples = [
        ("counter.ts", include_str!("../../examples/snippets/counter.ts")),
        ("guide.md", include_str!("../../examples/snippets/guide.md")),
    ];
    for (name, content) in examples {
        world.write(&format!("examples/snippets/{name}"), content);
    }
    let commands = commands_below("Snippets");
    assert_eq!(commands.len(), 4, "{commands:?}");
    for command in commands {
        let outcome = run_documented(world, command);
        outcome.succeeds();
        if command.contains(" run ") {
            assert!(outcome.stdout.contains("[log] count = 2\n"), "{outcome}");
            assert!(outcome.stdout.contains("derived: {\"isPositive\":true}"), "{outcome}");
        }
        if command.contains(" gate ") {
            assert!(outcome.stdout.ends_with("2 passed, 0 failed, 1 skipped\n"), "{outcome}");
        }
    }
    assert!(world.read("report.xml").contains("tests=\"3\""));
}

fn workflows_are_run_as_readme_says(world: &World) {
    let examples = [
        ("child.tsx", include_str!("../../examples/workflows/sandbox/child.tsx")),
        ("command.tsx", include_str!("../../examples/workflows/sandbox/command.tsx")),
    ];
    for (name, content) in examples {
        world.write(&format!("examples/workflows/sandbox/{name}"), content);
    }
    world.write("notes.md", "notes\n");
    let commands = commands_below("Workflows");
    assert_eq!(commands.len(), 9, "{commands:?}");
    for command in commands {
        let outcome = run_documented(world, command);
        if command.contains("command.tsx") {
            outcome.ends_with(3);
            continue;
        }
        outcome.succeeds();
        if command.contains(" approve ") {
            wait_until("what was chosen is applied", || world.has("added.md"));
        }
        if command.contains("child.tsx") {
            assert!(outcome.stdout.contains("Processed: hello"), "{outcome}");
        }
        if command.contains(" diff ") {
            assert!(outcome.stdout.contains("+- reviewed"), "{outcome}");
        }
        if command.contains(" events ") {
            assert!(outcome.stdout.contains("SandboxDiffReviewRequested"), "{outcome}");
        }
    }
    assert_eq!(world.read("notes.md"), "notes\n");
}

fn volumes_and_caches_work_as_their_page_says(world: &World) {
    let page = include_str!("../../docs/volumes.md");
    let blocks =
        page.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    let commands: Vec<_> = blocks.flat_map(str::lines).collect();
    assert!(commands.len() > 12, "{commands:?}");
    for command in commands {
        let outcome = run_documented(world, command);
        outcome.succeeds();
        if command == "stockade volume ls" {
            assert!(outcome.stdout.contains("data") && outcome.stdout.contains("box"), "{outcome}");
        }
    }
}

fn what_is_measured_is_what_its_page_says(world: &World) {
    let page = include_str!("../../docs/metrics.md");
    let (_, block) = page.split_once("```sh\n").unwrap();
    let [text, json] = block.split("```").next().unwrap().lines().collect::<Vec<_>>()[..] else {
        panic!("the page shows other commands than two")
    };
    let (text, json) = (run_documented(world, text), run_documented(world, json));
    text.succeeds();
    json.succeeds();
    let measured = json.json();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    let words: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    let reported = measured.as_object().unwrap();
    assert!(words.len() == reported.len() && words.iter().all(|word| reported.contains_key(*word)));
    for row in rows {
        let [word, name, kind] = [row[0], row[1], row[2]];
        assert_eq!(
            (&measured[word]["name"], &measured[word]["type"]),
            (&name.into(), &kind.into())
        );
        assert!(text.stdout.contains(&format!("\n# TYPE {name} {kind}\n")), "{text}");
    }
}

/// The commands in the `sh` blocks below a heading of README.
fn commands_below(heading: &str) -> Vec<&'static str> {
    let commands = blocks_below(heading, "sh").into_iter().flat_map(str::lines);
    // The tested programs are already built.
    commands.filter(|command| !command.starts_with("cargo build ")).collect()
}

/// The outputs in the `text` blocks below a heading of README.
fn quoted_below(heading: &str) -> Vec<&'static str> {
    blocks_below(heading, "text")
}

fn blocks_below(heading: &str, kind: &str) -> Vec<&'static str> {
    let readme = include_str!("../../README.md");
    let (_, below) = readme.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = below.split("\n## ").next().unwrap();
    let blocks = section.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix(kind)?.strip_prefix('\n')).collect()
}

/// Each quoted line is one that the command printed, except for the ids of bundles.
fn assert_printed(outcome: &Outcome, quoted: &str) {
    let written: Vec<_> =
        outcome.stdout.lines().chain(outcome.stderr.lines()).map(without_ids).collect();
    assert!(!quoted.is_empty());
    for line in quoted.lines().map(without_ids) {
        assert!(written.contains(&line), "{line}: {outcome}");
    }
}

fn without_ids(line: &str) -> String {
    let is_id = |word: &str| word.len() == 12 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let words = line.split_inclusive([' ', '`']).map(|word| {
        let bare = word.trim_end_matches([' ', '`']);
        if is_id(bare) { word.replace(bare, "ID") } else { word.to_owned() }
    });
    words.collect()
}

/// Runs a command line of a document with the binary that is already built. None of them needs a
/// shell.
fn run_documented(world: &World, line: &str) -> Outcome {
    let rest =
        line.strip_prefix("cargo run --release -- ").or_else(|| line.strip_prefix("stockade "));
    let words: Vec<&str> = rest.expect("a command of stockade").split_whitespace().collect();
    assert!(!line.contains(['"', '\'', '$', '|', '>', '&', ';']), "{line} needs a shell");
    // What the documents expect the reader to have.
    world.stockade(&words).env("API_TOKEN", "sk-ZQ7xK2mPvL9wR4tYbN8c").finish()
}
