//! The two commands that start a sandbox, `run` and `create`: both mount, refuse and print the
//! same. Whether both make the same request of a flag is tested beside the flags
//! (`crates/cli/src/request/tests.rs`); here they are executed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::call::Outcome;
use crate::harness::{Identity, World, skip};

/// The output of a script in a run, and in a new sandbox with the project as its workspace; both
/// were started with these options.
fn both(world: &World, options: &[&str], script: &str) -> [Outcome; 2] {
    let run = world.run(&[&["--discard"], options].concat(), &["sh", "-c", script]);
    let created = create(world, options);
    if created.code() != 0 {
        return [run, created];
    }
    let id = created.stdout.trim_end();
    [run, world.stockade(&["exec", id, "--", "sh", "-c", script]).finish()]
}

fn create(world: &World, options: &[&str]) -> Outcome {
    world.stockade(&[&["create", "--workspace", "."], options].concat()).finish()
}

/// The error code in an outcome.
fn code(outcome: &Outcome) -> String {
    let rest = outcome.stderr.split_once('[').map(|(_, rest)| rest).unwrap_or_default();
    rest.split_once(']').map(|(code, _)| code.to_owned()).unwrap_or_default()
}

/// The line of an error with the message.
fn message(outcome: &Outcome) -> String {
    let line = outcome.stderr.lines().find(|line| line.ends_with(']'));
    line.unwrap_or_default().to_owned()
}

/// Every option that makes a host path visible inside, with a path that must not be.
fn commands(path: &Path) -> Vec<Vec<String>> {
    let shown = path.display();
    let mut doors = vec![
        vec!["--mount".to_owned(), format!("{shown}:/m")],
        vec!["--mount".to_owned(), format!("{shown}:/m:ro")],
    ];
    doors.push(vec!["--image".to_owned(), shown.to_string()]);
    doors
}

/// No option makes the data directory visible, under any name, or through a symbolic link in any
/// part of a path.
fn own_data_is_never_shown(world: &World) {
    world.review("echo two > new");
    let top = world.data().parent().unwrap().to_owned();
    let link = world.path("link");
    symlink(&top, &link).unwrap();
    let (data, name) = (world.data(), world.data().file_name().unwrap().to_owned());
    symlink(data.join("bundles"), world.path("bundles")).unwrap();
    let archive = data.join("own.tar");
    world.plant(&archive, "no archive, and not looked into");
    let places: [PathBuf; 8] = [
        archive,
        data.clone(),
        top,
        link.clone(),
        link.join(&name),
        data.join("bundles"),
        world.path("bundles"),
        PathBuf::from("/"),
    ];
    for named_by in [&data, &link.join(&name)] {
        for door in places.iter().flat_map(|place| commands(place)) {
            let door: Vec<&str> = door.iter().map(String::as_str).collect();
            let run = [&["run", "--discard"], &door[..], &["--", "/bin/ls", "-R", "/"]].concat();
            let create = [&["create"], &door[..]].concat();
            let [run, create] = [run, create]
                .map(|words| world.stockade(&words).env("STOCKADE_DATA_DIR", named_by).finish());
            for outcome in [&run, &create] {
                assert_eq!(code(outcome), "PATH_REFUSED", "{door:?}: {outcome}");
                assert!(!outcome.stdout.contains("manifest.json"), "{door:?}: {outcome}");
            }
            assert_eq!(message(&run), message(&create), "{door:?}");
        }
    }
    assert_eq!(world.bundles().len(), 1);
}

/// A bind mount is another name, too: of a directory that contains the data directory, of a
/// directory in it, and of a part of it below the mounted directory.
fn own_data_behind_a_bind_mount(world: &World) {
    const NAME: &str = "run_and_create::own_data_behind_a_bind_mount";
    if world.identity != Identity::Root {
        return skip(NAME, "only root can make a bind mount that is not in a namespace of its own");
    }
    world.review("echo two > new");
    let (data, alias, tree) = (world.data(), world.path("alias"), world.path("tree"));
    fs::create_dir_all(tree.join("deep")).unwrap();
    fs::create_dir(&alias).unwrap();
    let top = data.parent().unwrap();
    for (from, to, shown) in [
        (top, &alias, alias.clone()),
        (top, &alias, alias.join(data.file_name().unwrap()).join("bundles")),
        (&data.join("bundles"), &alias, alias.clone()),
        (&data.join("bundles"), &tree.join("deep"), tree.clone()),
    ] {
        // Only this one command has the mount in its mount namespace.
        let script = format!(
            "mount --bind {} {} && exec {} run --discard --mount {}:/m:ro -- ls -R /m",
            from.display(),
            to.display(),
            world.binary().display(),
            shown.display()
        );
        let words = ["--mount", "sh", "-c", &script];
        let outcome = world.on_host(Path::new("/usr/bin/unshare"), &words).finish();
        assert_eq!(code(&outcome), "PATH_REFUSED", "{outcome}");
        assert!(outcome.stdout.is_empty(), "{outcome}");
    }
}

/// A home directory behind a symbolic link, as `/home` often is, is the same home directory.
fn own_data_in_a_home_behind_a_link(world: &World) {
    let real = world.path("real");
    fs::create_dir_all(real.join("user")).unwrap();
    for path in [&real, &real.join("user")] {
        world.chown(path);
    }
    let link = world.path("linked");
    symlink(&real, &link).unwrap();
    let call = |words: &[&str]| {
        let home = link.join("user");
        world.stockade(words).env("HOME", home).env("STOCKADE_DATA_DIR", "").finish()
    };
    call(&["run", "--", "sh", "-c", "echo two > new"]).succeeds();
    for home in [&link, &real] {
        let mount = format!("{}/user/.local/share:/s", home.display());
        let script = "echo x > /s/stockade/journals/evil; rm -r /s/stockade/bundles/*";
        let refused = call(&["run", "--discard", "--mount", &mount, "--", "sh", "-c", script]);
        assert_eq!(code(&refused), "PATH_REFUSED", "{refused}");
    }
    assert!(!real.join("user/.local/share/stockade/journals/evil").exists());
    let bundles = call(&["bundles", "--json"]).json();
    assert_eq!(bundles["bundles"].as_array().map(Vec::len), Some(1), "{bundles}");
}

/// A project in the data directory would also make it visible.
fn a_project_in_the_data_directory_is_refused(world: &World) {
    world.review("echo two > new");
    let refused = world
        .stockade(&["run", "--discard", "--", "ls"])
        .current_dir(&world.data().join("bundles"))
        .finish();
    assert_eq!(code(&refused), "PROJECT_REFUSED", "{refused}");
}

/// User, home and environment are the same for both commands, but for the proxy of a run, which
/// records what is refused.
fn who_commands_are(world: &World) {
    let script = "id -u; id -un; echo $HOME; echo ~; touch $HOME/x && ls $HOME; env | cut -d= -f1 | sort | \
        grep -vE '^(LANG|OLDPWD|PWD|SHLVL|_)$' | grep -viE '^(all|http|https|no)_proxy$'; pwd";
    let [run, held] = both(world, &[], script);
    run.succeeds();
    held.succeeds();
    assert_eq!(run.stdout, held.stdout);
    assert!(run.stdout.contains("/home/user"), "{run}");
    // The home of a sandbox without a workspace has the same path.
    world.stockade(&["create", "--id", "bare"]).finish().succeeds();
    let bare = world.stockade(&["exec", "bare", "--", "sh", "-c", "echo $HOME"]).finish();
    assert_eq!(bare.stdout, "/home/user\n", "{bare}");
}

/// `--user`: root may use any id, an ordinary user only their own.
fn users(world: &World) {
    let own = world.identity.uid().to_string();
    for outcome in both(world, &["--user", &own], "id -u; touch $HOME/x") {
        outcome.succeeds();
        assert_eq!(outcome.stdout, format!("{own}\n"));
    }
    let other = both(world, &["--user", "1234"], "id -u; touch $HOME/x");
    if own == "0" {
        for outcome in other {
            outcome.succeeds();
            assert_eq!(outcome.stdout, "1234\n");
        }
    } else {
        let [run, create] = other;
        assert_eq!((code(&run), message(&run)), ("UNSUPPORTED".to_owned(), message(&create)));
    }
}

/// `--access` hides a file of the project; a rule for a missing path is enforced, and makes no
/// change.
fn access_rules(world: &World) {
    world.write(".env", "TOKEN=secret\n");
    let hidden = format!("deny:read:{}/.env", world.project.display());
    let options = ["--access", "allow:readwrite:/", "--access", &hidden];
    for outcome in both(world, &options, "cat a.txt; cat .env; ls -a | grep -c env") {
        assert!(outcome.stdout.starts_with(&world.read("a.txt")), "{outcome}");
        assert!(!outcome.stdout.contains("secret"), "{outcome}");
    }
    let missing = format!("deny:read:{}/missing", world.project.display());
    let options = ["--access", "allow:readwrite:/", "--access", &missing];
    for outcome in
        both(world, &options, "echo x > missing/file || echo held; rmdir missing || echo held")
    {
        assert_eq!(outcome.stdout, "held\nheld\n", "{outcome}");
    }
    world.run(&options, &["true"]).succeeds();
    assert!(world.bundles().is_empty(), "what a rule has made is no change of the command's");
    let bad = both(world, &["--access", "deny:read:relative"], "ls");
    for outcome in &bad {
        assert_eq!(code(outcome), "RULE_INVALID", "{outcome}");
    }
}

/// Both commands accept a tar archive as an image.
fn tar_images(world: &World) {
    let root = world.path("root");
    for directory in ["bin", "proc", "dev", "tmp", "sys", "etc"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    // The probe is the only program here that needs no library of an image.
    crate::harness::copy_program(&world.probe(), &root.join("bin/probe"));
    let archive = world.path("image.tar");
    let tar = ["-C", root.to_str().unwrap(), "-cf", archive.to_str().unwrap(), "."];
    world.on_host(Path::new("/bin/tar"), &tar).finish().succeeds();
    let image = archive.to_str().unwrap();
    let run = world.run(&["--discard", "--image", image, "--json"], &["/bin/none"]).json();
    let id = create(world, &["--image", image]);
    id.succeeds();
    let exec =
        world.stockade(&["exec", id.stdout.trim_end(), "--json", "--", "/bin/none"]).finish();
    let exec = exec.json();
    for field in ["ending", "exitCode", "reason"] {
        assert_eq!(run[field], exec[field], "{field}: {run} {exec}");
    }
    assert_eq!((&run["ending"], &run["exitCode"]), (&Value::from("notRun"), &Value::from(127)));
}

/// The end of a command has one JSON form, with the same values.
fn answers(world: &World) {
    create(world, &["--id", "box"]).succeeds();
    let about = |answer: &Value| -> BTreeSet<String> {
        let begins = ["std", "end", "exit", "reason", "signal", "duration", "trunc", "outcome"];
        let names = answer.as_object().unwrap().keys();
        names.filter(|name| begins.iter().any(|begin| name.starts_with(begin))).cloned().collect()
    };
    for (script, options) in [
        ("true", &[][..]),
        ("echo out; echo err >&2; exit 3", &[]),
        ("kill -9 $$", &[]),
        ("sleep 60", &["--timeout", "200ms"]),
        ("yes", &["--max-output", "10K"]),
        ("head -c 1100000 /dev/zero | tr '\\0' 'x'; echo end", &[]),
    ] {
        let command = ["--json", "--", "sh", "-c", script];
        let run = world.stockade(&[&["run", "--discard"], options, &command].concat()).finish();
        let exec = world.stockade(&[&["exec", "box"], options, &command].concat()).finish();
        assert_eq!(run.code(), exec.code(), "{script}");
        let (run, exec) = (run.json(), exec.json());
        assert_eq!(about(&run), about(&exec), "{script}");
        for name in about(&run) {
            let varies =
                name.starts_with("duration") || (script == "yes" && name.starts_with("std"));
            assert!(varies || run[&name] == exec[&name], "{script}: {name}");
        }
    }
}

/// Limits: one flag for each, and one message where a host cannot enforce it.
fn limits(world: &World) {
    for options in [
        &["--pids", "64"][..],
        &["--best-effort", "pids"],
        &["--best-effort", "processes"],
        &["--best-effort", "landlock"],
        &["--best-effort", "disk"],
    ] {
        for outcome in both(world, options, "true") {
            outcome.succeeds();
        }
    }
    for options in [&["--memory", "64M"][..], &["--cpus", "1"]] {
        let [run, create] = both(world, options, "true");
        assert_eq!(message(&run), message(&create), "{options:?}");
    }
}

/// `create --max-output` limits each command that sets no limit itself.
fn output_limits(world: &World) {
    create(world, &["--id", "box", "--max-output", "1K"]).succeeds();
    let exec = |options: &[&str]| {
        world.stockade(&[&["exec", "box"], options, &["--", "yes"]].concat()).finish().code()
    };
    assert_eq!((exec(&[]), exec(&["--max-output", "2K"])), (137, 137));
}

/// Bundles of runs and sandboxes can both be found by their labels.
fn labels(world: &World) {
    world.run(&["--label", "team=x", "--label", "n=1"], &["sh", "-c", "echo 1 > one"]).succeeds();
    world.run(&[], &["sh", "-c", "echo 2 > two"]).succeeds();
    let found = |label: &str| {
        let outcome = world.stockade(&["bundles", "--json", "--label", label]).finish();
        outcome.json()["bundles"].as_array().unwrap().clone()
    };
    assert_eq!((found("team=x").len(), found("team=y").len(), world.bundles().len()), (1, 0, 2));
    assert_eq!(found("n=1")[0]["labels"]["team"], "x");
}

as_root_and_as_user![
    own_data_is_never_shown,
    own_data_behind_a_bind_mount,
    own_data_in_a_home_behind_a_link,
    a_project_in_the_data_directory_is_refused,
    who_commands_are,
    users,
    access_rules,
    tar_images,
    answers,
    limits,
    output_limits,
    labels,
];
