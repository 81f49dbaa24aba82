//! `cp` of several files, of what a pattern in a sandbox matches, and with `--delete`.

use std::fs;
use std::os::unix::fs::symlink;

use super::{call, create, refused, sh};
use crate::harness::World;

/// The paths below a directory, as `find` prints them.
fn listing(world: &World, id: &str, path: &str) -> Vec<String> {
    let listed = sh(world, id, &format!("cd {path} && find . -mindepth 1 | sort"));
    listed.succeeds();
    listed.stdout.lines().map(str::to_owned).collect()
}

fn several_files_are_copied_to_a_directory(world: &World) {
    let id = create(world, &[]);
    let (one, two) = (world.write("one.txt", "1"), world.write("two.txt", "2"));
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let into = format!("{id}:/tmp/into");
    refused(&call(world, &["cp", one, two, &into]), 2, "INVALID_INPUT");
    sh(world, &id, "mkdir /tmp/into; touch /tmp/into/.hidden.txt").succeeds();
    let copied = call(world, &["cp", "--json", one, two, &into]);
    copied.succeeds();
    assert_eq!(copied.json()["files"], 2, "{copied}");
    assert_eq!(listing(world, &id, "/tmp/into"), ["./.hidden.txt", "./one.txt", "./two.txt"]);
    let out = world.outside().join("out");
    fs::create_dir(&out).unwrap();
    world.chown(&out);
    let out = out.to_str().unwrap();
    call(world, &["cp", &format!("{into}/*.txt"), out]).succeeds();
    let read = |name: &str| fs::read_to_string(format!("{out}/{name}"));
    assert_eq!((read("one.txt").unwrap(), read("two.txt").unwrap()), ("1".into(), "2".into()));
    assert!(read(".hidden.txt").is_err());
    refused(&call(world, &["cp", &format!("{into}/*.none"), out]), 1, "FILE_NOT_FOUND");
    // A file of that name is no pattern.
    sh(world, &id, "echo star > '/tmp/into/*.txt'").succeeds();
    let printed = call(world, &["cp", &format!("{into}/*.txt"), "-"]);
    printed.succeeds();
    assert_eq!(printed.stdout, "star\n");
    refused(&call(world, &["cp", one, &into, out]), 2, "INVALID_INPUT");
}

fn a_mirrored_directory_has_nothing_else(world: &World) {
    let id = create(world, &[]);
    world.write("tree/a/kept", "1");
    world.write("tree/b", "2");
    let from = world.project.join("tree");
    let from = from.to_str().unwrap();
    let to = format!("{id}:/tmp/tree");
    call(world, &["cp", from, &to]).succeeds();
    let more =
        "cd /tmp/tree && mkdir -p old/deep && touch old/deep/x a/gone a/log.log && ln -s / all";
    sh(world, &id, more).succeeds();
    let parent = format!("{id}:/tmp");
    let words = ["cp", "--delete", "--exclude", "*.log", "--json", from, &parent];
    let copied = call(world, &words);
    copied.succeeds();
    assert_eq!(copied.json()["deleted"], 3, "{copied}");
    assert_eq!(listing(world, &id, "/tmp/tree"), ["./a", "./a/kept", "./a/log.log", "./b"]);
    assert_eq!(listing(world, &id, "/tmp").first().map(String::as_str), Some("./tree"));
    refused(&call(world, &["cp", "--delete", &format!("{from}/b"), &to]), 2, "INVALID_INPUT");

    // Out of the sandbox: a link of the destination is removed, and never followed.
    let out = world.outside().join("mirror");
    world.plant(&out.join("stale/file"), "old");
    world.plant(&world.outside().join("precious"), "kept");
    symlink(world.outside(), out.join("link")).unwrap();
    world.chown_tree(&world.outside(), |_| world.identity.uid());
    let from = format!("{id}:/tmp/tree");
    // The copy of a directory lies in an existing one, which keeps everything else.
    call(world, &["cp", "--delete", &from, out.to_str().unwrap()]).succeeds();
    assert!(out.join("stale/file").exists() && out.join("tree/a/kept").exists());
    sh(world, &id, "rm -r /tmp/tree/a; cd /tmp && mv tree mirror").succeeds();
    let from = format!("{id}:/tmp/mirror");
    let outside = world.outside();
    let copied = call(world, &["cp", "--delete", &from, outside.to_str().unwrap()]);
    copied.succeeds();
    let left: Vec<_> = fs::read_dir(&out).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["b"], "{copied}");
    assert_eq!(fs::read_to_string(outside.join("precious")).unwrap(), "kept");
}

as_root_and_as_user![
    several_files_are_copied_to_a_directory,
    a_mirrored_directory_has_nothing_else
];
