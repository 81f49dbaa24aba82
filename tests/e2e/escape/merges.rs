//! Hostile changes that are merged, taken to a branch, or undone: what one of these operations reads of a
//! bundle decides nothing outside of the project.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use crate::harness::World;
use crate::host::Tree;

const BASE: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n";

/// The directory of the only bundle.
fn bundle(world: &World) -> PathBuf {
    world.data().join("bundles").join(world.bundles()[0]["id"].as_str().unwrap())
}

/// A file that both sides have changed: the command by this script, the host in the first line.
fn both_changed(world: &World, script: &str) {
    for name in ["text", "other", "dir/file"] {
        world.write(name, BASE);
    }
    world.review(script);
    world.write("text", BASE.replace("one", "host"));
}

fn reject_all(world: &World) {
    world.stockade(&["reject", "--all", "--yes"]).finish();
}

/// Whatever stands at a path that both sides changed, a merge follows no link and writes nothing
/// elsewhere.
fn a_merge_follows_no_link(world: &World) {
    let outside = world.path("outside");
    world.plant(&outside.join("file"), "precious\n");
    let out = outside.display();
    for script in [
        format!("rm text; ln -s {out}/file text"),
        "rm text; ln -s /etc/passwd text".to_owned(),
        format!("rm text; mkdir text; ln -s {out} text/link; echo x > text/link2"),
        format!("rm -r dir; ln -s {out} dir; echo agent >> text"),
        "mv text dir/text; echo agent >> dir/text; ln -s dir text".to_owned(),
        "mv text .git/text; echo agent >> .git/text".to_owned(),
        "mv text .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit".to_owned(),
    ] {
        let before = Tree::of(&outside);
        let git = Tree::of(&world.project.join(".git"));
        for options in [&["--merge"][..], &["--theirs"], &["--ours"], &["--merge", "--markers"]] {
            both_changed(world, &script);
            let words = [&["apply", "latest", "--allow-executed"], options].concat();
            world.stockade(&words).finish();
            before.assert_same(&Tree::of(&outside), &script);
            git.assert_same(&Tree::of(&world.project.join(".git")), &script);
            let text = world.project.join("text");
            let target = fs::read_link(&text).unwrap_or_default();
            assert!(!target.is_absolute(), "{script} {options:?}: {target:?}");
            reject_all(world);
            for name in ["text", "dir"] {
                let path = world.project.join(name);
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
        }
    }
}

/// A file of the host whose directory is replaced by a link between the decision and the merge.
fn a_merge_in_a_directory_that_became_a_link_is_refused(world: &World) {
    let outside = world.path("outside");
    world.plant(&outside.join("file"), BASE);
    world.write("dir/file", BASE);
    world.review("sed -i s/nine/agent/ dir/file");
    fs::remove_dir_all(world.project.join("dir")).unwrap();
    symlink(&outside, world.project.join("dir")).unwrap();
    let before = Tree::of(&outside);
    for options in [&["--merge"][..], &["--theirs"], &["--merge", "--markers"]] {
        world.stockade(&[&["apply", "latest"], options].concat()).finish();
        before.assert_same(&Tree::of(&outside), "the other directory");
    }
}

/// Contents that are no text, or that look like what a merge writes, are never merged wrongly: the host's
/// line is there, or the merge is refused.
fn hostile_texts_lose_nothing(world: &World) {
    for script in [
        "printf 'one\\0two\\n' > text",
        "printf '<<<<<<< ours\\nfive\\n=======\\nsix\\n>>>>>>> theirs\\n' >> text",
        "printf '\\377\\376five\\n' >> text",
        "tr -d '\\n' < text > t && mv t text",
        "sed -i 's/$/\\r/' text",
        "head -c 3000000 /dev/zero | tr '\\0' '\\n' >> text",
        "seq 200000 >> text",
        "yes x | head -n 300000 > text",
        ": > text",
    ] {
        both_changed(world, script);
        let merged = world.stockade(&["apply", "latest", "--merge"]).finish();
        let text = fs::read(world.project.join("text")).unwrap();
        let has_own = text.windows(4).any(|part| part == b"host");
        assert!(has_own, "{script}: {merged}");
        reject_all(world);
    }
}

/// What is stored is checked against its hash before it is merged or shown.
fn an_altered_bundle_is_not_merged(world: &World) {
    for directory in ["base", "blobs"] {
        both_changed(world, "sed -i s/nine/agent/ text");
        for entry in fs::read_dir(bundle(world).join(directory)).unwrap() {
            let path = entry.unwrap().path();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let content = fs::read_to_string(&path).unwrap();
            fs::write(&path, content.replace("five", "FIVE")).unwrap();
        }
        let merged = world.stockade(&["apply", "latest", "--merge"]).finish();
        assert!(!world.read("text").contains("FIVE"), "{directory}: {merged}");
        assert!(world.read("text").contains("host"), "{directory}: {merged}");
        world.stockade(&["diff", "latest"]).finish();
        fs::remove_dir_all(bundle(world)).unwrap();
    }
}

/// A branch gets the changes and nothing else: no option, no reference elsewhere, no hook, no filter.
fn a_branch_is_a_name_only(world: &World) {
    let canary = world.path("canary");
    let evil = format!("#!/bin/sh\ntouch {}\n", canary.display());
    for hook in ["reference-transaction", "post-commit", "pre-commit", "post-index-change"] {
        let path = world.project.join(".git/hooks").join(hook);
        world.plant(&path, &evil);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let filter = format!("touch {}; cat", canary.display());
    for key in ["filter.evil.clean", "filter.evil.smudge", "core.fsmonitor", "diff.evil.textconv"] {
        world.git(&["config", key, &filter]);
    }
    let _ = fs::remove_file(&canary);
    world.review("echo '* filter=evil diff=evil' > .gitattributes; echo agent >> a.txt");
    let head = fs::read(world.project.join(".git/HEAD")).unwrap();
    for name in [
        "-f",
        "--delete",
        "HEAD",
        "../../x",
        "a..b",
        "refs/heads/../../config",
        "a b",
        "x.lock",
        "",
        "@{-1}",
    ] {
        let option = format!("--branch={name}");
        let refused = world.stockade(&["apply", "latest", "--allow-executed", &option]).finish();
        assert_ne!(refused.code(), 0, "{name:?}: {refused}");
    }
    let made = ["apply", "latest", "--allow-executed", "--branch", "taken"];
    world.stockade(&made).finish();
    assert!(!canary.exists(), "a program of the configuration ran");
    assert_eq!(fs::read(world.project.join(".git/HEAD")).unwrap(), head);
    assert_eq!(world.read("a.txt"), "alpha\n", "the work tree is as it was");
}

/// An undo restores what an apply replaced, through no link that was put there since.
fn an_undo_follows_no_link(world: &World) {
    let outside = world.path("outside");
    world.plant(&outside.join("file"), "precious\n");
    world.plant(&outside.join("added"), "precious\n");
    world.write("dir/file", BASE);
    world.review("echo agent >> dir/file; echo agent > dir/added");
    world.stockade(&["apply", "latest"]).finish().succeeds();
    fs::rename(world.project.join("dir"), world.path("was-dir")).unwrap();
    symlink(&outside, world.project.join("dir")).unwrap();
    let before = Tree::of(&outside);
    world.stockade(&["undo"]).finish();
    before.assert_same(&Tree::of(&outside), "the other directory");
    fs::remove_file(world.project.join("dir")).unwrap();
    fs::rename(world.path("was-dir"), world.project.join("dir")).unwrap();
    // A file that was replaced by a link since.
    fs::remove_file(world.project.join("dir/file")).unwrap();
    symlink(outside.join("file"), world.project.join("dir/file")).unwrap();
    world.stockade(&["undo"]).finish();
    before.assert_same(&Tree::of(&outside), "the other file");
    assert!(fs::symlink_metadata(world.project.join("dir/file")).unwrap().is_symlink());
}

as_root_and_as_user![
    a_merge_follows_no_link,
    a_merge_in_a_directory_that_became_a_link_is_refused,
    hostile_texts_lose_nothing,
    an_altered_bundle_is_not_merged,
    a_branch_is_a_name_only,
    an_undo_follows_no_link,
];
