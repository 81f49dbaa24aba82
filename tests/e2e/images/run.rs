//! `stockade run --image`.

use rustix::process::Signal;
use serde_json::json;

use super::sample::{Layer, base, busybox, import};
use crate::call::Outcome;
use crate::harness::World;

/// Runs the command of an image that is in the store.
fn run(world: &World, options: &[&str], command: &[&str]) -> Outcome {
    let mut words = vec!["run", "--discard", "--pull", "never"];
    words.extend(options);
    if !command.is_empty() {
        words.push("--");
        words.extend(command);
    }
    world.stockade(&words).finish()
}

fn the_entrypoint_gets_the_arguments_of_the_image_or_those_of_the_run(world: &World) {
    let Some(shell) = busybox("images::run::entrypoint") else { return };
    let script = b"#!/bin/sh\necho entry \"$@\"\nexec \"$@\"\n";
    let layers = vec![base(&shell, "bin"), Layer::default().program("entry.sh", script)];
    let config = json!({ "Entrypoint": ["/entry.sh"], "Cmd": ["echo", "of the image"] });
    import(world, "postgres-like:1", layers, config);
    let image = ["--image", "postgres-like:1"];
    assert_eq!(run(world, &image, &[]).stdout, "entry echo of the image\nof the image\n");
    assert_eq!(run(world, &image, &["echo", "own"]).stdout, "entry echo own\nown\n");
    let replaced = run(world, &[image[0], image[1], "--entrypoint", "/bin/echo"], &[]);
    assert_eq!(replaced.stdout, "\n");
    let replaced = run(world, &[image[0], image[1], "--entrypoint", "/bin/echo"], &["a", "b"]);
    assert_eq!(replaced.stdout, "a b\n");
    assert_eq!(run(world, &image, &["false-program"]).code(), 127);
}

fn nothing_of_the_host_is_there(world: &World) {
    let Some(shell) = busybox("images::run::nothing_of_the_host_is_there") else { return };
    import(world, "alpine-like:3", vec![base(&shell, "bin")], json!({ "Cmd": ["sh"] }));
    let script = "ls /; echo; cat /proc/self/maps; echo; cat /proc/self/mountinfo; echo; \
        cat /etc/hosts; ls /etc; test ! -e /usr && test ! -e /lib && test ! -e /home/user";
    let outcome = run(world, &["--image", "alpine-like:3"], &["sh", "-c", script]);
    outcome.succeeds();
    let parts: Vec<_> = outcome.stdout.split("\n\n").collect();
    let mapped = parts[1].lines().filter_map(|line| line.split_once('/').map(|(_, file)| file));
    assert!(mapped.clone().count() > 0 && mapped.clone().all(|file| file == "bin/busybox"));
    for mount in parts[2].lines() {
        let fields: Vec<_> = mount.split(' ').collect();
        let (point, kind) = (fields[4], fields[fields.iter().position(|f| *f == "-").unwrap() + 1]);
        let is_own = matches!(kind, "overlay" | "tmpfs" | "proc" | "devpts" | "mqueue" | "sysfs");
        // Device nodes and what masks a file of /proc.
        assert!(
            is_own
                || (kind == "devtmpfs"
                    && (point.starts_with("/dev/") || point.starts_with("/proc/"))),
            "{mount}"
        );
    }
    assert!(parts[3].starts_with("127.0.0.1 localhost"), "{outcome}");
    assert!(!parts[3].contains("ssl") && !parts[3].contains("ld.so"), "{outcome}");
    let wrote =
        run(world, &["--image", "alpine-like:3"], &["sh", "-c", "touch /tmp/a && cat /tmp/a"]);
    wrote.succeeds();
}

fn the_user_environment_and_directory_are_those_of_the_image(world: &World) {
    let Some(shell) = busybox("images::run::user") else { return };
    let home = Layer::default().directory("home").owner(1000).directory("home/node");
    let config = json!({
        "User": "node",
        "Env": ["PATH=/usr/bin:/bin", "NODE_VERSION=20", "EMPTY"],
        "WorkingDir": "/srv/app",
        "Volumes": { "/data/files": {} },
    });
    let debian = base(&shell, "usr/bin").link("bin", "usr/bin");
    // The link is followed within the image.
    let tools = Layer::default().program("bin/tool", b"#!/bin/sh\necho tool\n");
    import(world, "node-like:20", vec![debian, tools, home], config);
    let image = ["--image", "node-like:20", "--env", "NODE_VERSION=own"];
    let script = "id -u; echo $HOME $NODE_VERSION [$EMPTY] $USER; tool; ls -d /srv/app /data/files";
    let outcome = run(world, &image, &["sh", "-c", script]);
    let uid = if world.identity.uid() == 0 { 1000 } else { world.identity.uid() };
    let expected = format!("{uid}\n/home/node own [] node\ntool\n/data/files\n/srv/app\n");
    assert_eq!(outcome.stdout, expected, "{outcome}");
    let has_other_id = ![0, 1000].contains(&world.identity.uid());
    assert_eq!(outcome.stderr.contains("the user node"), has_other_id, "{outcome}");
    let there = run(world, &["--image", "node-like:20", "--cwd", "/new/place"], &["pwd"]);
    assert_eq!(there.stdout, "/new/place\n", "{there}");
    if world.identity.uid() == 0 {
        for (user, expected) in [("0", "0 0\n"), ("1000", "1000 1000\n"), ("7:8", "7 8\n")] {
            let words = ["--image", "node-like:20", "--user", user];
            let outcome = run(world, &words, &["sh", "-c", "echo $(id -u) $(id -g)"]);
            assert_eq!(outcome.stdout, expected, "{outcome}");
        }
    }
}

fn a_program_without_a_shell_is_enough(world: &World) {
    let Some(shell) = busybox("images::run::scratch") else { return };
    let scratch = Layer::default().program("busybox", &shell);
    let config = json!({ "Entrypoint": ["/busybox", "echo"], "Cmd": ["hello"], "User": "65532" });
    import(world, "scratch-like", vec![scratch], config);
    let outcome = run(world, &["--image", "scratch-like:latest"], &[]);
    assert_eq!(outcome.stdout, "hello\n", "{outcome}");
    let warned = run(world, &["--image", "scratch-like"], &[]);
    assert!(warned.stderr.contains("neither a tag nor a digest"), "{warned}");
}

fn upper_layers_hide_what_they_delete_and_layers_are_shared(world: &World) {
    let Some(shell) = busybox("images::run::whiteouts") else { return };
    let low = |shell: &[u8]| {
        base(shell, "bin").file("a/gone", b"x").file("a/kept", b"k").file("b/old", b"o")
    };
    let high =
        Layer::default().file("a/.wh.gone", b"").file("b/.wh..wh..opq", b"").file("b/new", b"n");
    import(world, "one:1", vec![low(&shell), high], json!({}));
    import(world, "two:1", vec![low(&shell)], json!({}));
    let layers = std::fs::read_dir(world.data().join("images/layers")).unwrap().count();
    assert_eq!(layers, 2);
    let seen = run(world, &["--image", "one:1"], &["sh", "-c", "ls /a /b; cat /a/gone"]);
    assert_eq!(seen.stdout, "/a:\nkept\n\n/b:\nnew\n", "{seen}");
    let seen = run(world, &["--image", "two:1"], &["ls", "/a", "/b"]);
    assert_eq!(seen.stdout, "/a:\ngone\nkept\n\n/b:\nold\n", "{seen}");
    // What a run changes ends with it.
    run(world, &["--image", "two:1"], &["sh", "-c", "rm -r /a /b; test ! -e /a"]).succeeds();
    run(world, &["--image", "two:1"], &["cat", "/a/gone"]).succeeds();
}

fn the_stop_signal_of_the_image_asks_the_command_to_end(world: &World) {
    let Some(shell) = busybox("images::run::stop_signal") else { return };
    let script = b"#!/bin/sh\ntrap 'echo quit; exit 7' QUIT\ntrap 'echo term; exit 8' TERM\n\
        echo ready\nwhile :; do sleep 0.1; done\n";
    let layers = vec![base(&shell, "bin").program("serve", script)];
    import(world, "nginx-like:1", layers, json!({ "Cmd": ["/serve"], "StopSignal": "SIGQUIT" }));
    let mut running =
        world.stockade(&["run", "--discard", "--pull", "never", "--image", "nginx-like:1"]).start();
    running.wait_for_output("ready");
    running.signal(Signal::TERM);
    let ended = running.finish();
    ended.ends_with(7);
    assert!(ended.stdout.contains("quit"), "{ended}");
}

fn a_name_that_is_nowhere_is_told_with_the_remedy(world: &World) {
    let missing = run(world, &["--image", "nowhere:1"], &["true"]);
    assert!(missing.stderr.contains("IMAGE_NOT_FOUND"), "{missing}");
    assert!(missing.stderr.contains("stockade image pull nowhere:1"), "{missing}");
    assert_eq!(missing.code(), 125);
    let path = world.stockade(&["run", "--image", "./nowhere", "--", "true"]).finish();
    assert!(!path.stderr.contains("IMAGE_NOT_FOUND") && path.code() != 0, "{path}");
    let wrong = run(world, &["--image", "No:Such:Name"], &["true"]);
    assert!(wrong.stderr.contains("INVALID_INPUT"), "{wrong}");
    let user = world.stockade(&["run", "--entrypoint", "/bin/sh", "--", "x"]).finish();
    assert_ne!(user.code(), 0, "{user}");
}

fn a_bare_name_that_is_also_a_file_is_ambiguous(world: &World) {
    let Some(shell) = busybox("images::run::ambiguous") else { return };
    import(world, "twice", vec![base(&shell, "bin")], json!({}));
    world.write("twice/etc/passwd", "");
    let refused = world.stockade(&["run", "--image", "twice", "--", "true"]).finish();
    assert!(
        refused.stderr.contains("ambiguous") && refused.stderr.contains("./twice"),
        "{refused}"
    );
    run(world, &["--image", "twice:latest"], &["true"]).succeeds();
}

fn a_run_records_the_digest(world: &World) {
    let Some(shell) = busybox("images::run::digest") else { return };
    import(world, "app:1", vec![base(&shell, "bin")], json!({}));
    let listed = world.stockade(&["image", "ls", "--json"]).finish().json();
    let digest = listed["images"][0]["digest"].as_str().unwrap().to_owned();
    let outcome = world
        .stockade(&["run", "--json", "--pull", "never", "--image", "app:1", "--", "touch", "new"])
        .finish();
    assert_eq!(outcome.json()["image"]["digest"], digest, "{outcome}");
    let bundle = outcome.json()["bundle"]["id"].as_str().unwrap().to_owned();
    let manifest = world.data().join("bundles").join(bundle).join("manifest.json");
    assert!(std::fs::read_to_string(manifest).unwrap().contains(&digest));
    // The digest alone names it too.
    run(world, &["--image", &digest], &["true"]).succeeds();
    run(world, &["--image", &format!("app@{digest}")], &["true"]).succeeds();
}

as_root_and_as_user! {
    the_entrypoint_gets_the_arguments_of_the_image_or_those_of_the_run,
    nothing_of_the_host_is_there,
    the_user_environment_and_directory_are_those_of_the_image,
    a_program_without_a_shell_is_enough,
    upper_layers_hide_what_they_delete_and_layers_are_shared,
    the_stop_signal_of_the_image_asks_the_command_to_end,
    a_name_that_is_nowhere_is_told_with_the_remedy,
    a_bare_name_that_is_also_a_file_is_ambiguous,
    a_run_records_the_digest,
}
