//! The data directory: one that another user owns or can change is refused by every command and
//! stays as it is, whatever links are in it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};

use crate::harness::{Identity, World, skip, tests_run_as_root};
use crate::host::Tree;

/// Commands of both programs that open the data directory.
const COMMANDS: &[&[&str]] = &[
    &["ls"],
    &["ls", "--in-process"],
    &["run", "--discard", "--", "true"],
    &["run", "--review", "--", "true"],
    &["bundles"],
    &["diff", "latest"],
    &["apply", "latest"],
    &["reject", "latest", "--yes"],
    &["create"],
    &["show", "nosuch"],
    &["kill", "nosuch"],
    &["prune"],
    &["exec", "nosuch", "--", "true"],
    &["cp", "nosuch:/etc/hosts", "-"],
    &["snapshots"],
    &["runs"],
    &["tool", "ls"],
    &["serve"],
    &["debug", "runtime", "list"],
];

/// A user who is not this world's.
const OTHER: u32 = 4242;

/// The names in a data directory that was used, up to the third level.
fn names(world: &World) -> Vec<PathBuf> {
    world.review("echo two > new");
    world.stockade(&["create", "--id", "one"]).finish().succeeds();
    world.stockade(&["kill", "one"]).finish().succeeds();
    let data = world.data();
    let names: Vec<_> = Tree::of(&data)
        .entries
        .into_keys()
        .filter_map(|path| path.strip_prefix(&data).ok().map(Path::to_owned))
        .filter(|name| (1..=3).contains(&name.components().count()))
        .collect();
    for known in ["bundles", "runtime", "server/lock", "stockade.db", "stockade.db.lock"] {
        assert!(names.iter().any(|name| name == Path::new(known)), "{known}: {names:?}");
    }
    names
}

/// A directory in which one name is a link to a file or directory elsewhere.
fn trap(world: &World, number: usize, name: &Path, owner: u32) -> (PathBuf, PathBuf) {
    let top = world.path(&format!("trap-{number}"));
    let directory = top.join("data");
    let victim = top.join("victim");
    let parent = directory.join(name).parent().unwrap().to_owned();
    fs::create_dir_all(&parent).unwrap();
    if world.data().join(name).is_dir() {
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("file"), "precious\n").unwrap();
    } else {
        fs::write(&victim, "precious\n").unwrap();
    }
    symlink(&victim, directory.join(name)).unwrap();
    for path in parent.ancestors().take_while(|path| path.starts_with(&directory)) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        lchown(path, Some(owner), Some(owner)).unwrap();
    }
    lchown(directory.join(name), Some(owner), Some(owner)).unwrap();
    (directory, victim)
}

#[test]
fn a_directory_of_another_user_stays_as_it_is() {
    if !tests_run_as_root() {
        skip("data_directory::a_directory_of_another_user_stays_as_it_is", "needs root");
        return;
    }
    let world = World::new(Identity::Root);
    for (number, name) in names(&world).iter().enumerate() {
        let (directory, victim) = trap(&world, number, name, OTHER);
        let before = Tree::of(victim.parent().unwrap());
        // Every command for the names at the top, some for the many below.
        let count = if name.components().count() == 1 { COMMANDS.len() } else { 3 };
        for command in COMMANDS.iter().take(count) {
            let call = world.stockade(command).env("STOCKADE_DATA_DIR", &directory);
            let outcome = call.deadline(20).finish();
            assert_ne!(outcome.code(), 0, "{command:?}: {outcome}");
            assert!(outcome.stderr.contains("belongs to user 4242"), "{command:?}: {outcome}");
            let after = Tree::of(victim.parent().unwrap());
            before.assert_same(&after, &format!("{command:?} with {}", name.display()));
        }
    }
}

#[test]
fn a_link_in_an_own_directory_leads_nowhere() {
    if !tests_run_as_root() {
        skip("data_directory::a_link_in_an_own_directory_leads_nowhere", "needs root");
        return;
    }
    let world = World::new(Identity::Root);
    for (number, name) in names(&world).iter().enumerate() {
        let (directory, victim) = trap(&world, number, name, 0);
        let before = Tree::of(&victim);
        for command in COMMANDS.iter().take(5) {
            let call = world.stockade(command).env("STOCKADE_DATA_DIR", &directory);
            let _ = call.deadline(40).finish();
            let after = Tree::of(&victim);
            before.assert_same(&after, &format!("{command:?} with {}", name.display()));
        }
    }
}

#[test]
fn nothing_is_created_in_a_home_of_another_user() {
    if !tests_run_as_root() {
        skip("data_directory::nothing_is_created_in_a_home_of_another_user", "needs root");
        return;
    }
    let world = World::new(Identity::Root);
    let home = world.path("their-home");
    fs::create_dir(&home).unwrap();
    lchown(&home, Some(OTHER), Some(OTHER)).unwrap();
    for command in COMMANDS {
        let call = world.stockade(command).env("STOCKADE_DATA_DIR", "").env("HOME", &home);
        let outcome = call.deadline(20).finish();
        assert!(outcome.stderr.contains("user 4242"), "{command:?}: {outcome}");
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0, "{command:?}");
    }
}

fn what_others_can_change_is_refused(world: &World) {
    fs::set_permissions(world.data(), fs::Permissions::from_mode(0o770)).unwrap();
    for command in COMMANDS {
        let outcome = world.stockade(command).deadline(20).finish();
        assert!(outcome.stderr.contains("can be written by others"), "{command:?}: {outcome}");
        assert!(outcome.stderr.contains("chmod go-w"), "{command:?}: {outcome}");
        assert_eq!(fs::read_dir(world.data()).unwrap().count(), 0, "{command:?}");
    }
    fs::set_permissions(world.data(), fs::Permissions::from_mode(0o750)).unwrap();
    world.stockade(&["ls"]).finish().succeeds();
}

as_root_and_as_user![what_others_can_change_is_refused];
