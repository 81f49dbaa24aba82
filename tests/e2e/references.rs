//! What `latest` means, and what the commands that decide about bundles say: `latest` is of the current
//! project, means what was shown last, and is deleted only after a confirmation; the numbers are those of
//! what can be applied.

use std::path::PathBuf;

use crate::harness::World;

/// Another project beside the one of the world, with one bundle that waits.
fn another(world: &World, name: &str) -> PathBuf {
    let other = world.path(name);
    std::fs::create_dir_all(other.join(".git")).unwrap();
    world.chown(&other);
    world.chown(&other.join(".git"));
    let words = ["run", "--", "sh", "-c", "echo precious > work.txt"];
    world.stockade(&words).current_dir(&other).finish().succeeds();
    other
}

fn ids(world: &World, all: bool) -> Vec<String> {
    let words: &[&str] = if all { &["bundles", "--all", "--json"] } else { &["bundles", "--json"] };
    let listed = world.stockade(words).finish().json();
    let bundles = listed["bundles"].as_array().unwrap();
    bundles.iter().map(|bundle| bundle["id"].as_str().unwrap().to_owned()).collect()
}

fn latest_is_of_the_current_project(world: &World) {
    let other = another(world, "other");
    // A project inside this one is another one too.
    let nested = another(world, "project/nested");
    for words in [
        &["apply", "latest"][..],
        &["diff", "latest"],
        &["reject", "latest", "--yes"],
        &["reject", "--all"],
    ] {
        let outcome = world.stockade(words).finish();
        if words[1] == "latest" {
            outcome.ends_with(1);
            assert!(outcome.stderr.contains("[BUNDLE_NOT_FOUND]"), "{outcome}");
            assert!(outcome.stderr.contains("stockade bundles --all"), "{outcome}");
        }
        assert!(!other.join("work.txt").exists() && !nested.join("work.txt").exists(), "{outcome}");
    }
    assert!(ids(world, false).is_empty());
    assert_eq!(ids(world, true).len(), 2);
    let listed = world.stockade(&["bundles"]).finish();
    assert!(!listed.stdout.contains("precious"), "{listed}");
    assert!(listed.stderr.contains("2 bundles of other projects"), "{listed}");

    world.review("echo mine > mine.txt");
    assert_eq!(ids(world, false).len(), 1);
    let applied =
        world.stockade(&["apply", "latest"]).current_dir(&world.project.join("src")).finish();
    applied.succeeds();
    let project = world.project.to_str().unwrap();
    assert!(applied.stderr.contains(&format!("1 path applied to {project}")), "{applied}");
    assert!(world.has("mine.txt") && !other.join("work.txt").exists());
    // By its id, a bundle can be decided from anywhere.
    for id in ids(world, true) {
        let applied = world.stockade(&["apply", &id, "--json"]).finish();
        assert!(applied.json()["project"].is_string(), "{applied}");
    }
    assert!(other.join("work.txt").exists() && nested.join("work.txt").exists());
}

fn latest_is_what_was_shown_last(world: &World) {
    world.review("echo seen > seen.txt");
    for look in [&["diff", "latest"][..], &["bundles"], &["diff", "latest", "--stat"]] {
        world.stockade(look).finish().succeeds();
        world.review("echo $$ > unseen.txt");
        let all = ids_without_showing(world);
        for words in [&["apply", "latest"][..], &["reject", "latest", "--yes"]] {
            let refused = world.stockade(words).finish();
            refused.ends_with(1);
            assert!(refused.stderr.contains("[CONFLICT]"), "{refused}");
            for id in &all[..2] {
                assert!(refused.stderr.contains(&id[..12]), "{refused}");
            }
        }
        assert!(!world.has("unseen.txt") && !world.has("seen.txt"));
        // The hint helps.
        world.stockade(&["diff", &all[0][..12]]).finish().succeeds();
        world.stockade(&["reject", "latest", "--yes"]).finish().succeeds();
    }
    world.stockade(&["apply", "latest"]).finish().succeeds();
    assert!(world.has("seen.txt"));
    // What was decided is not what is shown any more.
    world.review("echo next > next.txt");
    world.stockade(&["apply", "latest"]).finish().succeeds();
}

/// The ids, newest first, as files: `stockade bundles` would count as shown.
fn ids_without_showing(world: &World) -> Vec<String> {
    let mut found: Vec<_> = std::fs::read_dir(world.data().join("bundles"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.metadata().unwrap().modified().unwrap(), entry.file_name()))
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, name)| name.into_string().unwrap()).collect()
}

fn a_deletion_needs_more_than_a_word(world: &World) {
    world.review("echo 1 > one");
    let refused = world.stockade(&["reject", "latest"]).finish();
    refused.ends_with(2);
    assert!(refused.stderr.contains("[INVALID_INPUT]"), "{refused}");
    let hint = refused.stderr.lines().find_map(|line| line.trim().strip_prefix("hint: stockade "));
    let hint: Vec<&str> = hint.unwrap().split(' ').collect();
    assert_eq!(ids(world, false).len(), 1);
    world.stockade(&hint).finish().succeeds();
    assert!(ids(world, false).is_empty());

    for number in 0..3 {
        world.review(&format!("echo {number} > n{number}"));
    }
    let mut some = ids(world, false);
    some.truncate(2);
    some.push("0123456789ab".to_owned());
    let words: Vec<&str> =
        ["reject", "--json"].into_iter().chain(some.iter().map(String::as_str)).collect();
    let rejected = world.stockade(&words).finish();
    rejected.ends_with(1);
    let answer = rejected.json();
    assert_eq!(answer["rejected"].as_array().unwrap().len(), 2, "{rejected}");
    assert_eq!(answer["failed"][0]["id"], "0123456789ab", "{rejected}");
    assert_eq!(answer["error"]["code"], "BUNDLE_NOT_FOUND", "{rejected}");
    world.stockade(&["reject", "--all"]).finish().succeeds();
    assert!(ids(world, false).is_empty());
    world.stockade(&["reject"]).finish().ends_with(2);
}

fn numbers_are_of_what_can_be_applied(world: &World) {
    world.write(".gitignore", "out\n*.log\n");
    // A directory counts by what is in it, in every view.
    let outcome = world.review(
        "mkdir -p out/a/b out/empty .git/x; for i in $(seq 38); do echo > out/$i; done; echo > out/a/b/1; \
         echo > .git/x/1; echo > .git/x/2; echo two > a.txt",
    );
    let numbers = "1 path changed (40 ignored, 2 refused)";
    assert!(outcome.stderr.contains(numbers), "{outcome}");
    let listed = world.stockade(&["bundles"]).finish();
    assert!(listed.stdout.starts_with("ID "), "{listed}");
    assert!(listed.stdout.contains(numbers), "{listed}");
    let json = world.stockade(&["bundles", "--json"]).finish().json();
    let changes = &json["bundles"][0]["changes"];
    assert_eq!((&changes["total"], &changes["ignored"]), (&1.into(), &40.into()), "{json}");
    let stat = world.stockade(&["diff", "latest", "--stat"]).finish();
    assert!(stat.stdout.contains(numbers), "{stat}");
    assert!(stat.stdout.contains("out/: 40 paths"), "{stat}");
    assert!(stat.stdout.contains(".git/: 2 paths"), "{stat}");
    assert!(stat.stdout.lines().count() < 8, "{stat}");
    let diff = world.stockade(&["diff", "latest"]).finish();
    assert!(diff.stdout.contains("out/: 40 paths"), "{diff}");
    let applied = world.stockade(&["apply", "latest"]).finish();
    applied.succeeds();
    assert!(applied.stderr.contains("out/: 40 paths, each is ignored by git"), "{applied}");
    assert!((applied.stdout.lines().count() + applied.stderr.lines().count()) < 6, "{applied}");
    let nothing = world.stockade(&["apply", "latest", "--json"]).finish();
    nothing.ends_with(1);
    let cause = nothing.json()["error"]["cause"].to_string();
    assert!(cause.contains("out/: 40 paths"), "{nothing}");
}

fn a_path_that_is_not_in_a_bundle_is_not_found(world: &World) {
    world.review("echo two > a.txt; mkdir -p deep/er; echo x > deep/er/file.rs");
    for words in [&["apply", "latest", "a.text"][..], &["diff", "latest", "a.text"]] {
        let refused = world.stockade(words).finish();
        refused.ends_with(1);
        assert!(refused.stderr.contains("[FILE_NOT_FOUND]"), "{refused}");
        assert!(refused.stderr.contains("the nearest path that it changes is a.txt"), "{refused}");
    }
    let refused = world.stockade(&["apply", "latest", "file.rs"]).finish();
    assert!(refused.stderr.contains("is deep/er/file.rs"), "{refused}");
    assert!(!world.has("deep"));
}

fn the_rest_is_applied_without_what_is_executed(world: &World) {
    world.review("echo x > .envrc; echo two > a.txt");
    let refused = world.stockade(&["apply", "latest"]).finish();
    assert!(refused.stderr.contains("[EXECUTED_FILE]"), "{refused}");
    let hint = refused.stderr.lines().find_map(|line| line.trim().strip_prefix("hint: stockade "));
    let hint: Vec<&str> = hint.unwrap().split(' ').collect();
    assert!(!hint.contains(&"--allow-executed"), "{refused}");
    world.stockade(&hint).finish().succeeds();
    assert!(world.read("a.txt") == "two\n" && !world.has(".envrc"));
    // The rest waits, and where there is no other, the hint is the way to take it.
    let refused = world.stockade(&["apply", "latest"]).finish();
    assert!(refused.stderr.contains("hint: stockade apply"), "{refused}");
    assert!(refused.stderr.contains("--allow-executed"), "{refused}");
}

fn reading_with_git_changes_nothing(world: &World) {
    if std::process::Command::new("git").arg("--version").output().is_err() {
        return;
    }
    for script in [
        "touch a.txt; git status",
        "touch a.txt; git diff; git log",
        "git update-index --refresh",
        "echo more > a.txt; git add a.txt; git reset -q --hard",
    ] {
        world.write("a.txt", "alpha\n");
        world.review(script);
        assert!(ids(world, true).is_empty(), "{script}");
    }
    let staged = world.review("echo more > new.txt; git add new.txt");
    assert!(staged.stderr.contains("1 path changed"), "{staged}");
}

fn two_decisions_at_once_wait_for_each_other(world: &World) {
    for _ in 0..3 {
        world.review("mkdir -p d; for i in $(seq 500); do echo $i$$ > d/$i; done");
        let both = [(); 2].map(|()| world.stockade(&["apply", "latest"]).start());
        for running in both {
            let outcome = running.finish();
            assert!(!outcome.stderr.contains("[IO]"), "{outcome}");
            assert!([0, 1].contains(&outcome.code()), "{outcome}");
        }
        assert!(ids(world, true).is_empty() && world.has("d/500"));
        std::fs::remove_dir_all(world.project.join("d")).unwrap();
    }
}

as_root_and_as_user![
    latest_is_of_the_current_project,
    latest_is_what_was_shown_last,
    a_deletion_needs_more_than_a_word,
    numbers_are_of_what_can_be_applied,
    a_path_that_is_not_in_a_bundle_is_not_found,
    the_rest_is_applied_without_what_is_executed,
    reading_with_git_changes_nothing,
    two_decisions_at_once_wait_for_each_other,
];
