//! The mount table: read-only mounts stay read-only, nothing is added, and no host path is
//! revealed.

use std::fs;
use std::os::unix::fs::symlink;

use super::{Comparison, assert_blocked};
use crate::harness::World;
use crate::host::Tree;

fn mount_tmpfs(world: &World) {
    assert_blocked(world, Comparison::Unshared, &["mount-tmpfs"]);
}

fn bind_mount(world: &World) {
    assert_blocked(world, Comparison::Unshared, &["bind-mount"]);
}

fn new_mount_calls(world: &World) {
    assert_blocked(world, Comparison::Unshared, &["new-mount-calls"]);
}

fn mount_in_user_namespace(world: &World) {
    assert_blocked(world, Comparison::Anyone, &["mount-in-namespace"]);
}

fn unmount(world: &World) {
    world.attack(&["unmount"]).is_blocked();
}

fn change_root(world: &World) {
    assert_blocked(world, Comparison::Unshared, &["change-root"]);
}

/// CVE-2026-46695 (BoxLite): a read-only mount that a process inside can make writable.
fn read_only_mount_stays(world: &World) {
    let shared = world.path("shared");
    world.plant(&shared.join("file"), "untouched\n");
    world.chown(&shared);
    let before = Tree::of(&shared);
    let option = format!("{}:/given:ro", shared.display());
    world.attack_with(&["--mount", &option], &["make-writable", "/given"]).is_blocked();
    let write = "echo changed > /given/file; echo new > /given/new; rm -f /given/file; \
                 mv /given/file /given/moved; chmod 777 /given/file; cat /given/file";
    let outcome = world.run(&["--discard", "--mount", &option], &["sh", "-c", write]);
    assert_eq!(outcome.stdout, "untouched\n", "{outcome}");
    before.assert_same(&Tree::of(&shared), "the read-only mount");
    let writable = format!("{}:/given", shared.display());
    world.run(&["--discard", "--mount", &writable], &["sh", "-c", write]);
    assert_ne!(before, Tree::of(&shared), "the same commands do write where that is granted");
}

fn system_directories_stay_read_only(world: &World) {
    let places = ["/usr", "/usr/bin", "/etc", "/bin", "/lib", "/proc", "/dev", "/"];
    let mut words = vec!["make-writable"];
    words.extend(places);
    world.attack(&words).is_blocked();
    words[0] = "write-outside";
    world.attack(&words).is_blocked();
}

/// The overlay's options and the bind mounts' sources name host paths; none may be visible.
fn mount_table_tells_no_host_path(world: &World) {
    let data = world.data().display().to_string();
    let words = ["host-paths", &data, "/views/"];
    world.attack(&words).is_blocked();
    // The project's own path is visible inside: the same search finds it.
    let project = world.project.display().to_string();
    world.attack(&["host-paths", &project]).escaped();
}

fn no_mount_is_shared_with_the_host(world: &World) {
    world.attack(&["shared-mounts"]).is_blocked();
    let (first, second) = crate::host::token();
    let word = format!("{first}{second}");
    let running = world.stockade(&["run", "--discard", "--", "./probe", "linger", &word]).start();
    let pid = crate::host::wait_for_process(&word);
    let table = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    assert!(table.lines().count() > 3, "{table}");
    assert!(!table.contains(" shared:") && !table.contains(" master:"), "{table}");
    drop(running);
    crate::host::assert_none_survives(&word);
}

/// CVE-2021-30465: the mount point is behind symbolic links that the project contains.
fn mount_target_through_a_link(world: &World) {
    let given = world.path("given");
    world.plant(&given.join("file"), "given\n");
    symlink(world.outside(), world.project.join("link")).unwrap();
    symlink("/etc", world.project.join("etc-link")).unwrap();
    symlink("/proc/self/root", world.project.join("magic")).unwrap();
    fs::create_dir(world.project.join("target")).unwrap();
    let outside = Tree::of(&world.outside());
    for target in ["link/made", "link", "etc-link/made", "etc-link", "magic/tmp", "link/../made"] {
        let option = format!("{}:{}/{target}", given.display(), world.project.display());
        let outcome = world.run(&["--discard", "--mount", &option], &["true"]);
        assert!(matches!(outcome.code(), 0 | 2 | 125), "{outcome}");
        outside.assert_same(&Tree::of(&world.outside()), target);
    }
}

/// A mount must not cover files that the sandbox is built from.
fn mount_targets_that_cover_walls(world: &World) {
    let given = world.path("given");
    world.plant(&given.join("passwd"), "root::0:0::/:/bin/sh\n");
    for target in ["/", "/proc", "/proc/self", "/dev", "/sys", "relative", "/a/../../b", ""] {
        let option = format!("{}:{target}", given.display());
        world.run(&["--discard", "--mount", &option], &["true"]).is_refused();
    }
    for source in ["relative", "/does/not/exist", ""] {
        let option = format!("{source}:/given");
        world.run(&["--discard", "--mount", &option], &["true"]).is_refused();
    }
}

fn open_by_handle(world: &World) {
    assert_blocked(world, Comparison::Root, &["open-by-handle"]);
}

as_root_and_as_user![
    mount_tmpfs,
    bind_mount,
    new_mount_calls,
    mount_in_user_namespace,
    unmount,
    change_root,
    read_only_mount_stays,
    system_directories_stay_read_only,
    mount_table_tells_no_host_path,
    no_mount_is_shared_with_the_host,
    mount_target_through_a_link,
    mount_targets_that_cover_walls,
    open_by_handle,
];
