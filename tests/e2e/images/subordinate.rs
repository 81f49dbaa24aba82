//! Images for an ordinary user with subordinate ids: all ids of the image, and files with their owners.
//! Which ranges a user has is decided in mounts that only the test sees.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Output};

use serde_json::json;

use super::sample::{Layer, base, busybox, import};
use crate::harness::{Identity, World, skip, tests_run_as_root};

/// The first subordinate id on the host.
const FIRST: u32 = 600_000_000;

/// An image of the user 1234, with a file of the user 33.
fn image(world: &World, test: &str) -> bool {
    if !tests_run_as_root() || !std::path::Path::new("/usr/bin/newuidmap").exists() {
        skip(
            test,
            "it needs root, to give an ordinary user ranges, and newuidmap (package uidmap)",
        );
        return false;
    }
    let Some(shell) = busybox(test) else { return false };
    let files = Layer::default().owner(33).directory("data").file("data/file", b"of 33\n");
    let last = Layer::default().owner(65_534).file("data/nobody", b"");
    import(world, "many:1", vec![base(&shell, "bin"), files, last], json!({ "User": "1234" }));
    true
}

/// Runs `stockade` as the ordinary user, with the content of `/etc/subuid` and `/etc/subgid`.
fn stockade(world: &World, ranges: &str, arguments: &[&str]) -> Output {
    let file = world.path("ranges");
    fs::write(&file, ranges).unwrap();
    let uid = world.identity.uid().to_string();
    // A host without such files gets a copy of its /etc with them, in this namespace only.
    let script = "set -e; if [ ! -e /etc/subuid ] || [ ! -e /etc/subgid ]; then \
            [ -e \"$1.etc\" ] || cp -a /etc \"$1.etc\"; \
            touch \"$1.etc/subuid\" \"$1.etc/subgid\"; mount --bind \"$1.etc\" /etc; \
        fi; mount --bind \"$1\" /etc/subuid; mount --bind \"$1\" /etc/subgid; user=$2; \
        shift 2; exec setpriv --reuid $user --regid $user --clear-groups \"$@\"";
    Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(&file)
        .arg(uid)
        .arg(world.binary())
        .args(arguments)
        .current_dir(&world.project)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("HOME", world.home())
        .env("STOCKADE_DATA_DIR", world.data())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Fails unless the command has succeeded and printed this.
#[track_caller]
fn prints(output: &Output, expected: &str) {
    assert!(output.status.success(), "{}", text(output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", text(output));
}

fn an_image_has_all_its_ids(world: &World) {
    if !image(world, "images::subordinate::an_image_has_all_its_ids") {
        return;
    }
    let ranges = format!("{}:{FIRST}:65536\n", world.identity.uid());
    let run = |options: &[&str], script: &str| {
        let words = [&["run", "--pull", "never", "--image", "many:1"], options].concat();
        stockade(world, &ranges, &[&words[..], &["--", "sh", "-c", script]].concat())
    };
    prints(
        &run(&["--discard"], "id -u; stat -c %u /data/file /etc /data/nobody"),
        "1234\n33\n0\n65534\n",
    );
    prints(&run(&["--discard", "--user", "33"], "rm /data/file && id -u"), "33\n");
    let denied = run(&["--discard"], "rm /data/file");
    assert!(!denied.status.success(), "{}", text(&denied));
    // The project belongs to the caller, who is root inside.
    prints(&run(&["--user", "0"], "echo new > made; stat -c %u a.txt made"), "0\n0\n");
    world.stockade(&["apply", "latest"]).finish().succeeds();
    let made = fs::metadata(world.project.join("made")).unwrap();
    assert_eq!((made.uid(), world.read("made").as_str()), (world.identity.uid(), "new\n"));
    // Nothing of the host beyond the caller's own ids can be reached.
    let map = run(&["--discard", "--user", "0"], "cat /proc/self/uid_map; cat /etc/shadow");
    assert!(!String::from_utf8_lossy(&map.stdout).contains("root:"), "{}", text(&map));
    // The layers have their owners on the host, and are removed with the image.
    let layers = world.data().join("images/owned-layers");
    assert_eq!(fs::read_dir(&layers).unwrap().count(), 3);
    let removed = stockade(world, &ranges, &["image", "rm", "many:1"]);
    assert!(removed.status.success(), "{}", text(&removed));
    assert_eq!(fs::read_dir(&layers).unwrap().count(), 0);
    assert_eq!(fs::read_dir(world.data().join("images/layers")).unwrap().count(), 0);
}

fn what_is_missing_is_named_with_the_fix(world: &World) {
    if !image(world, "images::subordinate::what_is_missing_is_named_with_the_fix") {
        return;
    }
    let run = |ranges: &str, options: &[&str]| {
        let words =
            [&["run", "--discard", "--pull", "never", "--image", "many:1"], options].concat();
        stockade(world, ranges, &[&words[..], &["--", "id", "-u"]].concat())
    };
    let small = format!("{}:{FIRST}:1000\n", world.identity.uid());
    for ranges in ["", small.as_str(), "nobody-else:1:65536\n"] {
        let refused = run(ranges, &["--user", "33"]);
        assert_eq!(refused.status.code(), Some(125), "{}", text(&refused));
        let said = text(&refused);
        assert!(said.contains("/etc/subuid") && said.contains("usermod --add-subuids"), "{said}");
        // Its own user is no reason to fail: the caller's id takes its place, as is said.
        let noted = run(ranges, &[]);
        prints(&noted, &format!("{}\n", world.identity.uid()));
        assert!(text(&noted).contains("usermod --add-subuids"), "{}", text(&noted));
    }
}

/// As an ordinary user only: root has ids anyway.
macro_rules! as_user {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn as_user() {
                super::Identity::User.runs(concat!(module_path!(), "::as_user"), super::$name);
            }
        }
    )+};
}

as_user![an_image_has_all_its_ids, what_is_missing_is_named_with_the_fix];
