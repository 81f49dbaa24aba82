//! The project changes while Stockade works on it: names are replaced by symbolic links between
//! check and write.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::harness::World;
use crate::host::Tree;

fn swap_for_link(world: &World, name: &str, target: &Path) {
    let path = world.project.join(name);
    fs::rename(&path, world.path(&format!("was-{}", name.replace('/', "-")))).unwrap();
    symlink(target, &path).unwrap();
}

/// Between review and apply, a directory becomes a symbolic link that leads outside.
fn directory_for_a_link_before_apply(world: &World) {
    world.plant(&world.outside().join("main.rs"), "fn main() {}\n");
    world.plant(&world.outside().join("deep/er/file.txt"), "deep\n");
    world.review("echo changed > src/main.rs; echo new > src/new; rm src/deep/er/file.txt");
    swap_for_link(world, "src", &world.outside());
    let outside = Tree::of(&world.outside());
    world.stockade(&["apply", "latest"]).finish().ends_with(1);
    outside.assert_same(&Tree::of(&world.outside()), "what is outside");
}

fn file_for_a_link_before_apply(world: &World) {
    let canary = world.outside().join("canary");
    world.plant(&canary, "alpha\n");
    world.review("echo changed > a.txt; chmod 777 src/main.rs");
    swap_for_link(world, "a.txt", &canary);
    swap_for_link(world, "src/main.rs", &canary);
    let outside = Tree::of(&world.outside());
    world.stockade(&["apply", "latest"]).finish().ends_with(1);
    outside.assert_same(&Tree::of(&world.outside()), "what is outside");
}

/// The project itself is moved and replaced by a symbolic link.
fn project_for_a_link_before_apply(world: &World) {
    world.plant(&world.outside().join("a.txt"), "alpha\n");
    world.review("echo changed > a.txt; echo new > new");
    let project = &world.project;
    fs::rename(project, world.path("moved")).unwrap();
    symlink(world.outside(), project).unwrap();
    let outside = Tree::of(&world.outside());
    let outcome = world.stockade(&["apply", "latest"]).current_dir(&world.path("moved")).finish();
    assert_ne!(outcome.code(), 0, "{outcome}");
    outside.assert_same(&Tree::of(&world.outside()), "what is outside");
}

/// A process exchanges a directory and a symbolic link while bundles are applied.
fn race_during_apply(world: &World) {
    let target = world.outside();
    world.plant(&target.join("main.rs"), "fn main() {}\n");
    let link = world.path("link");
    symlink(&target, &link).unwrap();
    let before = Tree::of(&target);
    let directory = world.project.join("src");
    let words = ["exchange", directory.to_str().unwrap(), link.to_str().unwrap(), "6000"];
    for round in 0..6 {
        world.review(&format!("echo {round} > src/main.rs; echo {round} > src/new-{round}"));
        let swapping = world.on_host(&world.probe(), &words).start();
        for _ in 0..5 {
            world.stockade(&["apply", "latest"]).finish();
        }
        drop(swapping);
        if fs::symlink_metadata(&directory).unwrap().is_symlink() {
            fs::rename(&directory, world.path("spare")).unwrap();
            fs::rename(&link, &directory).unwrap();
            fs::rename(world.path("spare"), &link).unwrap();
        }
        before.assert_same(&Tree::of(&target), "what is outside");
    }
}

/// The same while the view is created and the changes are read.
fn race_during_run(world: &World) {
    let target = world.outside();
    world.plant(&target.join("main.rs"), "a secret of the host\n");
    let link = world.path("link");
    symlink(&target, &link).unwrap();
    let before = Tree::of(&target);
    let directory = world.project.join("src");
    let words = ["exchange", directory.to_str().unwrap(), link.to_str().unwrap(), "20000"];
    let swapping = world.on_host(&world.probe(), &words).start();
    for _ in 0..15 {
        let outcome = world.run(
            &["--apply"],
            &[
                "sh",
                "-c",
                "cat src/main.rs; echo x >> src/main.rs; \
            echo new > src/made",
            ],
        );
        assert!(!outcome.stdout.contains("a secret"), "{outcome}");
    }
    drop(swapping);
    before.assert_same(&Tree::of(&target), "what is outside");
}

/// Symbolic links in a view that is discarded are not followed.
fn discarding_follows_no_link(world: &World) {
    world.plant(&world.outside().join("canary"), "host\n");
    let outside = Tree::of(&world.outside());
    let project = Tree::of(&world.project);
    let script = format!(
        "ln -s {0} out; rm -r src; ln -s {0} src; mkdir d; ln -s ../../outside d/up; \
         ln -s / root; chmod 000 d",
        world.outside().display()
    );
    world.shell(&script).succeeds();
    outside.assert_same(&Tree::of(&world.outside()), "what is outside");
    world.review(&script);
    world.stockade(&["reject", "latest", "--yes"]).finish().succeeds();
    outside.assert_same(&Tree::of(&world.outside()), "what is outside");
    project.assert_same(&Tree::of(&world.project), "the project");
    assert!(world.bundles().is_empty());
}

/// The data directory is a symbolic link that its owner has created: it is followed, what is
/// created in it is private, and none of its names is visible in a sandbox.
fn data_directory_is_a_link(world: &World) {
    let (data, real) = (world.data(), world.outside().join("data"));
    fs::remove_dir_all(&data).unwrap();
    fs::create_dir(&real).unwrap();
    world.chown(&real);
    symlink(&real, &data).unwrap();
    world.run(&["--review"], &["sh", "-c", "echo x > new"]).succeeds();
    for part in ["views", "bundles"] {
        let path = real.join(part);
        let mode = Tree::of(&path).entries[&path].mode;
        assert_eq!(mode & 0o077, 0, "{part} is open to others: {mode:o}");
    }
    assert_eq!(world.bundles().len(), 1);
    for shown in [&data, &real, &world.outside(), &real.join("bundles")] {
        let mount = format!("{}:/m", shown.display());
        let run = world.run(&["--discard", "--mount", &mount], &["sh", "-c", "rm -r /m/*"]);
        run.ends_with(125);
        assert!(run.stderr.contains("[PATH_REFUSED]"), "{run}");
    }
    assert_eq!(world.bundles().len(), 1, "the bundle that waits is still there");
}

/// What other users can read in the data directory: nothing.
fn data_directory_is_private(world: &World) {
    fs::remove_dir_all(world.data()).unwrap();
    world.plant(&world.path("x"), "");
    let parent = world.path("fresh");
    fs::create_dir(&parent).unwrap();
    world.chown(&parent);
    let data = parent.join("data");
    let outcome = world
        .stockade(&["run", "--review", "--", "sh", "-c", "echo x > new"])
        .env("STOCKADE_DATA_DIR", &data)
        .finish();
    outcome.succeeds();
    assert_eq!(Tree::of(&data).entries[&data].mode & 0o777, 0o700);
}

as_root_and_as_user![
    directory_for_a_link_before_apply,
    file_for_a_link_before_apply,
    project_for_a_link_before_apply,
    race_during_apply,
    race_during_run,
    discarding_follows_no_link,
    data_directory_is_a_link,
    data_directory_is_private,
];
