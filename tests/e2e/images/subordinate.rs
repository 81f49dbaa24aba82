//! Images for an ordinary user with subordinate ids: all ids of the image, and files with their owners.
//! Which ranges a user has is decided in mounts that only the test sees.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Output};

use serde_json::json;

use super::sample::{Layer, base, busybox, import};
use crate::daemons::{self, wait_until};
use crate::harness::{Identity, World, skip, tests_run_as_root};

/// The first subordinate id on the host.
const FIRST: u32 = 600_000_000;

/// A directory of the image is renamed for its owner: a copy would change the owner of the file in it.
const RENAME: &str = "mv /mine/part /mine/whole && stat -c %u /mine/whole /mine/whole/file";

/// An image of the user 1234, with files of the user 33.
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
    let last =
        Layer::default().owner(65_534).file("data/nobody", b"").owner(1234).directory("mine");
    let last = last.directory("mine/part").owner(33).file("mine/part/file", b"");
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

/// The standard output of a command that must succeed.
#[track_caller]
fn succeeds(output: Output) -> String {
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
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
    prints(&run(&["--discard", "--user", "1234:1234"], RENAME), "1234\n33\n");
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

/// The owners on the host of everything below a directory.
fn owners(directory: &std::path::Path) -> std::collections::BTreeSet<u32> {
    let mut all = std::collections::BTreeSet::new();
    let mut ahead = vec![directory.to_owned()];
    while let Some(path) = ahead.pop() {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        all.insert(found.uid());
        if found.is_dir() {
            ahead.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
        }
    }
    all
}

fn a_sandbox_has_them_to_its_end(world: &World) {
    if !image(world, "images::subordinate::a_sandbox_has_them_to_its_end") {
        return;
    }
    let ranges = format!("{}:{FIRST}:65536\n", world.identity.uid());
    let call = |words: &[&str]| stockade(world, &ranges, words);
    let works = |words: &[&str]| succeeds(call(words));
    let create =
        ["create", "--id", "box", "--pull", "never", "--image", "many:1", "--workspace", "."];
    works(&create);
    let sh = |id: &str, script: &str| works(&["exec", id, "--", "sh", "-c", script]);
    let expected = "1234\n33\n0\n65534\n";
    assert_eq!(sh("box", "id -u; stat -c %u /data/file /etc /data/nobody"), expected);
    let other = works(&[
        "exec",
        "--user",
        "7",
        "box",
        "--",
        "sh",
        "-c",
        "mv /mine/part /tmp/ 2>&1 || echo denied",
    ]);
    assert!(other.ends_with("denied\n"), "{other}");
    let renamed = works(&["exec", "--user", "1234:1234", "box", "--", "sh", "-c", RENAME]);
    assert_eq!(renamed, "1234\n33\n");
    // Its output belongs to its user, and what the image protects is protected.
    assert_eq!(
        sh("box", "echo again > /dev/stdout; rm /data/file 2> /dev/null || echo denied"),
        "again\ndenied\n"
    );
    works(&[
        "exec",
        "--user",
        "33",
        "box",
        "--",
        "sh",
        "-c",
        "umask 077; mkdir /data/own; echo secret > /data/own/file",
    ]);
    works(&[
        "exec",
        "--user",
        "0",
        "box",
        "--",
        "sh",
        "-c",
        &format!("cd {}; echo new > made; chmod 600 made", world.project.display()),
    ]);
    // Its root is the caller without any capability, and reaches nothing of other users.
    let attack = "grep CapEff /proc/self/status; cat /data/own/file || echo denied";
    let seen = works(&["exec", "--user", "0", "box", "--", "sh", "-c", attack]);
    assert_eq!(seen, "CapEff:\t0000000000000000\ndenied\n");
    let map = sh("box", "cat /proc/self/uid_map");
    let numbers: Vec<_> = map.split_ascii_whitespace().collect();
    assert_eq!(numbers[..3], ["0", &world.identity.uid().to_string(), "1"], "{map}");
    let layers = world.data().join("runtime");
    assert!(owners(&layers).contains(&(FIRST + 32)), "{:?}", owners(&layers));

    // Files from outside: read, written and listed with their owners inside.
    fs::write(world.path("outer"), "outer\n").unwrap();
    world.chown(&world.path("outer"));
    works(&["cp", world.path("outer").to_str().unwrap(), "box:/mine/outer"]);
    assert_eq!(sh("box", "cat /mine/outer; stat -c %u /mine/outer"), "outer\n1234\n");
    let copied = world.path("copied");
    works(&["cp", "box:/data", copied.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(copied.join("own/file")).unwrap(), "secret\n");
    assert_eq!(owners(&copied), [world.identity.uid()].into());

    // A snapshot, and a sandbox from it, have the same owners.
    works(&["snapshot", "box", "--as", "snap"]);
    works(&["restore", "snap", "--id", "again", "--workspace", "."]);
    let script = "stat -c %u /data/own /data/file; id -u";
    assert_eq!(sh("again", script), "33\n33\n1234\n");
    works(&["pause", "box"]);
    works(&["resume", "box"]);
    works(&["stop", "box"]);
    works(&["start", "box"]);
    assert_eq!(works(&["exec", "--user", "33", "box", "--", "cat", "/data/own/file"]), "secret\n");

    // What it has changed in the workspace becomes a bundle; then nothing is left of it.
    works(&["kill", "box"]);
    works(&["kill", "again", "--discard"]);
    works(&["snapshots", "--remove", "snap"]);
    works(&["apply", "latest"]);
    let made = fs::metadata(world.project.join("made")).unwrap();
    assert_eq!((made.uid(), made.mode() & 0o777), (world.identity.uid(), 0o600));
    wait_until("no file of subordinate ids is left", || {
        owners(&layers) == [world.identity.uid()].into()
    });
    works(&["image", "rm", "many:1"]);
    assert_eq!(owners(&world.data()), [world.identity.uid()].into());
}

fn a_sandbox_without_them_is_refused_before_it_is_made(world: &World) {
    if !image(world, "images::subordinate::a_sandbox_without_them_is_refused_before_it_is_made") {
        return;
    }
    let create = ["create", "--pull", "never", "--image", "many:1", "--user", "33"];
    let refused = stockade(world, "nobody-else:1:65536\n", &create);
    let said = text(&refused);
    assert!(!refused.status.success() && said.contains("[UNSUPPORTED]"), "{said}");
    assert!(said.contains("/etc/subuid") && said.contains("usermod --add-subuids"), "{said}");
    let listed = stockade(world, "", &["ls", "--json"]);
    assert!(text(&listed).contains("\"sandboxes\": []"), "{}", text(&listed));
    // Its own user is no reason to fail.
    let made =
        stockade(world, "", &["create", "--id", "one", "--pull", "never", "--image", "many:1"]);
    assert!(made.status.success(), "{}", text(&made));
    assert!(text(&made).contains("usermod --add-subuids"), "{}", text(&made));
    let own = stockade(world, "", &["exec", "one", "--", "id", "-u"]);
    prints(&own, &format!("{}\n", world.identity.uid()));
}

fn a_killed_server_and_keeper_leave_none_of_their_files(world: &World) {
    if !image(world, "images::subordinate::a_killed_server_and_keeper_leave_none_of_their_files") {
        return;
    }
    let ranges = format!("{}:{FIRST}:65536\n", world.identity.uid());
    let works = |words: &[&str]| succeeds(stockade(world, &ranges, words));
    works(&["create", "--id", "box", "--pull", "never", "--image", "many:1"]);
    works(&["exec", "--user", "33", "box", "--", "sh", "-c", "umask 077; echo kept > /data/own"]);
    let data = world.data();
    let of_data = [daemons::servers(&data), daemons::keepers(&data)].concat();
    assert!(of_data.len() >= 2, "{of_data:?}");
    for process in of_data {
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    }
    assert_eq!(works(&["exec", "--user", "33", "box", "--", "cat", "/data/own"]), "kept\n");
    works(&["kill", "box"]);
    let runtime = data.join("runtime");
    wait_until("no file of subordinate ids is left", || {
        owners(&runtime) == [world.identity.uid()].into()
    });
}

/// A volume with files that its owner may not remove gives up its name, and disturbs no other volume.
fn a_volume_of_other_ids_disturbs_no_other_one(world: &World) {
    if !image(world, "images::subordinate::a_volume_of_other_ids_disturbs_no_other_one") {
        return;
    }
    let ranges = format!("{}:{FIRST}:65536\n", world.identity.uid());
    let works = |words: &[&str]| succeeds(stockade(world, &ranges, words));
    let fill = "umask 077; mkdir /kept/own; head -c 100000 /dev/zero > /kept/own/file; stat -c %u /kept/own";
    let run = ["run", "--discard", "--image", "many:1", "--user", "33", "-v", "data:/kept", "--"];
    assert_eq!(works(&[&run[..], &["sh", "-c", fill]].concat()), "33\n");
    let volumes = world.data().join("volumes");
    assert!(owners(&volumes).contains(&(FIRST + 32)), "{:?}", owners(&volumes));
    let refused = stockade(world, &ranges, &["volume", "rm", "data"]);
    assert!(text(&refused).contains("hint: as root, remove"), "{}", text(&refused));
    assert_eq!(works(&["volume", "ls", "-q"]), "");
    // What is left disturbs no other volume.
    works(&["volume", "create", "next"]);
    works(&["volume", "rm", "next"]);
    works(&["volume", "create", "data"]);
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

as_user![
    a_killed_server_and_keeper_leave_none_of_their_files,
    a_sandbox_has_them_to_its_end,
    a_sandbox_without_them_is_refused_before_it_is_made,
    a_volume_of_other_ids_disturbs_no_other_one,
    an_image_has_all_its_ids,
    what_is_missing_is_named_with_the_fix,
];
