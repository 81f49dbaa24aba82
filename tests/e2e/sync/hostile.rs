//! Attacks on a synchronization, and accidents: kinds that change, special files, negations, changes
//! meanwhile, a full disk, paths that leave the directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::{Scene, list, read, reason};
use crate::harness::World;

fn kinds_change_only_without_loss(world: &World) {
    let scene = Scene::new(world, &[]);
    let vfs = scene.directory("kinds", &[("was-file", "1"), ("was-dir/x", "1"), ("plain", "1")]);
    scene.copy_in(&[], &vfs, "/tmp/k");
    scene.sh("cd /tmp/k && rm -r was-file was-dir && mkdir was-file && echo 2 > was-file/y && echo 2 > was-dir");
    let report = scene.out(&[], "/tmp/k", &vfs);
    assert_eq!(report["conflicts"], 0, "{report}");
    assert_eq!(list(&vfs), ["plain", "was-dir", "was-file", "was-file/y"]);
    // The same back, where the other side has changed meanwhile: nothing is lost.
    fs::remove_file(vfs.join("was-dir")).unwrap();
    world.plant(&vfs.join("was-dir/z"), "3");
    scene.sh("echo 4 > /tmp/k/was-dir");
    let outcome = scene.sync(&["--mirror"], vfs.to_str().unwrap(), &scene.inside("/tmp/k"));
    outcome.ends_with(1);
    assert_eq!(outcome.json()["conflictPaths"][0]["path"], "was-dir", "{outcome}");
    assert_eq!(scene.sh("cat /tmp/k/was-dir"), "4\n");
}

fn special_files_and_negations_are_as_git_has_them(world: &World) {
    let scene = Scene::new(world, &[]);
    let ignored = "build/\n!build/kept\n*.o\n!sub/keep.o\n";
    let files = [
        (".gitignore", ignored),
        ("build/kept", "1"),
        ("a.o", "1"),
        ("sub/keep.o", "1"),
        ("sub/.gitignore", "!b.o\n/local\n"),
        ("sub/b.o", "1"),
        ("sub/local", "1"),
        ("sub/deep/local", "1"),
    ];
    let from = scene.directory("negations", &files);
    scene.copy_in(&[], &from, "/tmp/n");
    let expected = [
        ".gitignore",
        "sub",
        "sub/.gitignore",
        "sub/b.o",
        "sub/deep",
        "sub/deep/local",
        "sub/keep.o",
    ];
    assert_eq!(scene.list("/tmp/n"), expected);
    scene.sh("cd /tmp/n && mkfifo p && mkdir build && echo 1 > build/kept && echo 1 > c.o");
    let to = scene.directory("negations-out", &[]);
    let report = scene.out(&[], "/tmp/n", &to);
    assert_eq!(list(&to), expected, "{report}");
    assert_eq!(reason(&report, "p").as_deref(), Some("special_file"), "{report}");
    assert_eq!(reason(&report, "build").as_deref(), Some("ignored"), "{report}");
    let examined =
        ["copied", "unchanged", "skipped", "deleted"].map(|it| report[it].as_u64().unwrap());
    assert_eq!(examined.iter().sum::<u64>(), 5 + 3, "{report}");
}

fn modes_are_kept_and_never_dangerous(world: &World) {
    let scene = Scene::new(world, &[]);
    let from = scene.directory("modes", &[("r", "1"), ("x", "1"), ("p", "1")]);
    let mode = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (name, bits) in [("r", 0o440), ("x", 0o755), ("p", 0o600)] {
        mode(&from.join(name), bits);
    }
    scene.copy_in(&[], &from, "/tmp/m");
    let modes = "cd /tmp/m && stat -c %a r x p | tr '\\n' ' '";
    assert_eq!(scene.sh(modes), "440 755 600 ");
    // Only the permissions change.
    mode(&from.join("p"), 0o700);
    let report = scene.copy_in(&[], &from, "/tmp/m");
    assert_eq!((&report["copied"], &report["bytes"]), (&1.into(), &0.into()), "{report}");
    assert_eq!(scene.sh(modes), "440 755 700 ");
    scene.sh("cd /tmp/m && echo 1 > s && chmod 6777 s && echo 1 > w && chmod 666 w");
    let to = scene.directory("modes-out", &[]);
    scene.out(&[], "/tmp/m", &to);
    let bits = |name: &str| fs::metadata(to.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(["s", "w", "p", "r"].map(bits), [0o755, 0o644, 0o700, 0o440]);
    let again = scene.out(&[], "/tmp/m", &to);
    assert_eq!((&again["copied"], &again["unchanged"]), (&0.into(), &5.into()), "{again}");
}

fn nothing_outside_of_the_directory_is_touched(world: &World) {
    let scene = Scene::new(world, &[]);
    let vfs = scene.directory("paths", &[("d/f", "1")]);
    let secret = scene.directory("paths-secret", &[("f", "own")]);
    scene.sh("mkdir -p /tmp/p/d && echo 2 > /tmp/p/d/f");
    // A directory of the host that has become a link.
    fs::remove_dir_all(vfs.join("d")).unwrap();
    symlink(&secret, vfs.join("d")).unwrap();
    for options in [&[][..], &["--mirror"]] {
        scene.sync(options, &scene.inside("/tmp/p"), vfs.to_str().unwrap()).ends_with(1);
        assert_eq!(read(&secret.join("f")), "own");
    }
    for path in ["/tmp/../etc", "/tmp/p/../../etc"] {
        let refused = scene.sync(&[], vfs.to_str().unwrap(), &scene.inside(path));
        refused.ends_with(2);
    }
    // What exists only during a copy is never one of the files.
    scene.sh("mkdir /tmp/q; cd /tmp/q; echo x > .stockade-sync-1; echo y > .stockade-0123456789abcdef; echo z > z");
    let to = scene.directory("paths-out", &[]);
    scene.out(&[], "/tmp/q", &to);
    assert_eq!(list(&to), ["z"]);
}

fn an_empty_source_is_no_mirror_by_accident(world: &World) {
    let scene = Scene::new(world, &[]);
    let (from, to) = (scene.directory("none", &[]), scene.directory("all", &[("a", "1")]));
    scene.sh("mkdir /tmp/e && echo 1 > /tmp/e/a");
    let refused = scene.sync(&["--mirror"], from.to_str().unwrap(), &scene.inside("/tmp/e"));
    refused.ends_with(2);
    assert_eq!(scene.list("/tmp/e"), ["a"]);
    scene.copy_in(&["--mirror", "--allow-empty"], &from, "/tmp/e");
    assert_eq!(scene.list("/tmp/e"), Vec::<String>::new());
    let dry = scene.out(&["--dry-run", "--mirror", "--allow-empty"], "/tmp/e", &to);
    assert_eq!((&dry["deleted"], list(&to)), (&1.into(), vec!["a".to_owned()]));
    let missing = scene.sync(&[], &scene.inside("/tmp/nowhere"), to.to_str().unwrap());
    assert!(missing.stdout.contains("FILE_NOT_FOUND"), "{missing}");
}

fn files_never_become_a_repository(world: &World) {
    let scene = Scene::new(world, &[]);
    let script = "mkdir -p /tmp/b/sub/objects /tmp/b/sub/refs && cd /tmp/b/sub && \
        echo 'ref: refs/heads/main' > HEAD && echo '[core]' > config && echo 1 > ../HEAD && echo 1 > objects/o";
    scene.sh(script);
    let to = scene.directory("bare-out", &[]);
    let report = scene.out(&["--empty-dirs"], "/tmp/b", &to);
    assert_eq!(reason(&report, "sub/HEAD").as_deref(), Some("git_directory"), "{report}");
    assert_eq!(list(&to), ["HEAD", "sub"]);
}

as_root_and_as_user!(
    files_never_become_a_repository,
    kinds_change_only_without_loss,
    special_files_and_negations_are_as_git_has_them,
    modes_are_kept_and_never_dangerous,
    nothing_outside_of_the_directory_is_touched,
    an_empty_source_is_no_mirror_by_accident,
);
