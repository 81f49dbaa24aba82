//! `kill -9` at random times: once the next command has run, a project is in its old or its new
//! state, never in between.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::World;
use crate::host::Tree;

/// How often `apply` is killed; `STOCKADE_CRASH_ROUNDS` sets another number.
fn rounds() -> u32 {
    std::env::var("STOCKADE_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(25)
}

/// Delays between zero and `longest`, spread without a random number generator.
fn kill_delay(round: u32, longest: Duration) -> Duration {
    longest.mul_f64(f64::from(round.wrapping_mul(2_654_435_761) >> 8 & 0xffff) / 65_536.0)
}

const CHANGES: &str = "for i in $(seq 60); do echo new-$i > new-$i; echo more >> old-$i; done; \
    for i in $(seq 61 90); do rm old-$i; done; mkdir -p d/e/f; echo x > d/e/f/x; rm -r gone; \
    rm turns; mkdir turns; echo x > turns/x; mv moves moved; chmod 755 bits; ln -s a.txt link";

fn prepare(world: &World) {
    for number in 1..=90 {
        world.write(&format!("old-{number}"), format!("old {number}\n"));
    }
    for name in ["gone/a", "gone/b/c", "turns", "moves", "bits"] {
        world.write(name, name);
    }
}

/// The project without the files that Stockade may store in it while it works.
fn recovered_tree(world: &World) -> Tree {
    let mut tree = Tree::of(&world.project);
    let git = world.project.join(".git");
    tree.entries.retain(|path, _| !path.starts_with(&git));
    tree
}

/// How long an undisturbed apply takes here, and the two states.
fn rehearse(world: &World) -> (Duration, Tree, Tree) {
    prepare(world);
    let old = recovered_tree(world);
    world.review(CHANGES);
    let start = Instant::now();
    world.stockade(&["apply", "latest"]).finish().succeeds();
    let took = start.elapsed();
    (took, old, recovered_tree(world))
}

fn restore(world: &World) {
    for entry in fs::read_dir(&world.project).unwrap().flatten() {
        let path = entry.path();
        if path.ends_with(".git") || path.ends_with("probe") {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
    world.write("a.txt", "alpha\n");
    world.write("src/main.rs", "fn main() {}\n");
    world.write("src/deep/er/file.txt", "deep\n");
    world.write(".gitignore", "*.log\nbuild/\n/probe\n");
    prepare(world);
}

#[expect(clippy::print_stdout, reason = "how many kills met what is the test's result")]
fn killed_apply(world: &World) {
    let (longest, old, new) = rehearse(world);
    assert_ne!(old, new);
    let (mut all_old, mut all_new) = (0, 0);
    for round in 0..rounds() {
        restore(world);
        world.review(CHANGES);
        let running = world.stockade(&["apply", "latest"]).start();
        std::thread::sleep(kill_delay(round, longest));
        running.signal(Signal::KILL);
        let killed = running.finish();
        // Any command finishes or undoes it.
        let recovery = world.stockade(&["bundles"]).finish();
        recovery.succeeds();
        let state = recovered_tree(world);
        if state == old {
            all_old += 1;
            world.stockade(&["apply", "latest"]).finish().succeeds();
            new.assert_same(&recovered_tree(world), "applied after an undo");
        } else {
            assert!(
                state == new,
                "round {round}: neither old nor new\n{killed}\n{recovery}\nthan old: {:#?}\nthan new: {:#?}",
                old.differences(&state),
                new.differences(&state),
            );
            all_new += 1;
        }
        for bundle in world.bundles() {
            world.stockade(&["reject", bundle["id"].as_str().unwrap()]).finish();
        }
        let journals = world.data().join("journals");
        let left: Vec<_> = fs::read_dir(journals).into_iter().flatten().flatten().collect();
        assert!(left.is_empty(), "journals are left: {left:?}");
    }
    assert!(all_old + all_new == rounds());
    println!("{} kills: {all_old} undone, {all_new} finished", rounds());
    assert!(all_old > 0 || rounds() < 10, "no kill came early enough to mean anything");
}

/// The recovery itself is also killed.
fn killed_recovery(world: &World) {
    let (longest, old, new) = rehearse(world);
    for round in 0..rounds() {
        restore(world);
        world.review(CHANGES);
        let running = world.stockade(&["apply", "latest"]).start();
        std::thread::sleep(kill_delay(round, longest));
        running.signal(Signal::KILL);
        running.finish();
        for again in 0..3 {
            let running = world.stockade(&["bundles"]).start();
            std::thread::sleep(kill_delay(round * 3 + again, longest / 4));
            running.signal(Signal::KILL);
            running.finish();
        }
        world.stockade(&["bundles"]).finish().succeeds();
        let state = recovered_tree(world);
        if state != old {
            new.assert_same(&state, &format!("round {round}"));
        }
        for bundle in world.bundles() {
            world.stockade(&["reject", bundle["id"].as_str().unwrap()]).finish();
        }
    }
}

/// After the kill the host edits a file that was being replaced: the edit is never lost.
fn edit_between_kill_and_recovery(world: &World) {
    let (longest, ..) = rehearse(world);
    for round in 0..rounds() {
        restore(world);
        world.review(CHANGES);
        let running = world.stockade(&["apply", "latest"]).start();
        std::thread::sleep(kill_delay(round, longest));
        running.signal(Signal::KILL);
        running.finish();
        for name in ["old-1", "new-1", "turns", "old-61"] {
            let path = world.project.join(name);
            if path.is_dir() {
                world.plant(&path.join("host"), "edited on the host\n");
            } else {
                world.write(name, "edited on the host\n");
            }
        }
        world.stockade(&["bundles"]).finish();
        for name in ["old-1", "new-1", "old-61"] {
            assert_eq!(world.read(name), "edited on the host\n", "round {round}: {name}");
        }
        let turns = if world.project.join("turns").is_dir() { "turns/host" } else { "turns" };
        assert_eq!(world.read(turns), "edited on the host\n", "round {round}");
        for journal in fs::read_dir(world.data().join("journals")).into_iter().flatten().flatten() {
            let _ = fs::remove_dir_all(journal.path());
            let _ = fs::remove_file(journal.path());
        }
        for bundle in world.bundles() {
            world.stockade(&["reject", bundle["id"].as_str().unwrap()]).finish();
        }
    }
}

/// A run that is killed while its bundle is created loses nothing and leaves no partial bundle.
fn killed_while_bundling(world: &World) {
    let script = "for i in $(seq 300); do echo $i > made-$i; done; echo written";
    for round in 0..rounds().min(20) {
        let mut running = world.stockade(&["run", "--review", "--", "sh", "-c", script]).start();
        running.wait_for_output("written");
        std::thread::sleep(kill_delay(round, Duration::from_millis(60)));
        if running.is_running() {
            running.signal(Signal::KILL);
        }
        running.finish();
        let bundles = world.bundles();
        if let Some(bundle) = bundles.first() {
            let id = bundle["id"].as_str().unwrap();
            let json = world.stockade(&["diff", id, "--json"]).finish().json();
            assert_eq!(json["entries"].as_array().unwrap().len(), 300, "round {round}");
            world.stockade(&["reject", id]).finish().succeeds();
        } else {
            let kept = world.files_with(&world.data(), "made-300");
            assert!(!kept.is_empty(), "round {round}: neither bundle nor view");
            fs::remove_dir_all(world.data().join("views")).unwrap();
        }
    }
}

/// Two concurrent applies of the same bundle, and of two bundles that touch the same file.
fn applies_at_the_same_time(world: &World) {
    for round in 0..5 {
        world.review(&format!("echo one-{round} > a.txt; echo 1 > first-{round}"));
        world.review(&format!("echo two-{round} > a.txt; echo 2 > second-{round}"));
        let ids: Vec<_> = world
            .bundles()
            .iter()
            .map(|bundle| bundle["id"].as_str().unwrap().to_owned())
            .collect();
        let running: Vec<_> = [&ids[0], &ids[1], &ids[0], &ids[1]]
            .map(|id| world.stockade(&["apply", id]).start())
            .into_iter()
            .map(crate::call::Running::finish)
            .collect();
        let applied = running.iter().filter(|outcome| outcome.code() == 0).count();
        assert_eq!(applied, 1, "{running:#?}");
        let (first, second) = (format!("first-{round}"), format!("second-{round}"));
        assert!(world.has(&first) != world.has(&second), "one and not the other");
        let winner = if world.has(&first) { "one" } else { "two" };
        assert_eq!(world.read("a.txt"), format!("{winner}-{round}\n"));
        for bundle in world.bundles() {
            world.stockade(&["reject", bundle["id"].as_str().unwrap()]).finish();
        }
    }
}

as_root_and_as_user![
    killed_apply,
    killed_recovery,
    edit_between_kill_and_recovery,
    killed_while_bundling,
    applies_at_the_same_time,
];
