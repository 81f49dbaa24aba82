//! `stockade create --image`.

use serde_json::json;

use super::sample::{Layer, base, busybox, import};
use crate::harness::World;

fn a_sandbox_of_an_image_keeps_its_files_and_its_image(world: &World) {
    let Some(shell) = busybox("images::persistent") else { return };
    let config = json!({
        "Entrypoint": ["/never-started"],
        "Env": ["OF=image"],
        "WorkingDir": "/srv",
        "Volumes": { "/data": {} },
    });
    let layers = vec![base(&shell, "bin"), Layer::default().file("file", b"first\n")];
    import(world, "app:1", layers, config.clone());
    let stockade = |words: &[&str]| world.stockade(words).finish();
    stockade(&["create", "--id", "box", "--image", "app:1"]).succeeds();
    let script = "pwd; echo $OF; cat /file; ls -d /data; echo mine > /srv/mine; cat /etc/hosts";
    let outcome = stockade(&["exec", "box", "--", "sh", "-c", script]);
    assert!(outcome.stdout.starts_with("/srv\nimage\nfirst\n/data\n127.0.0.1"), "{outcome}");
    let maps = stockade(&["exec", "box", "--", "cat", "/proc/self/maps"]);
    let mut files = maps.stdout.lines().filter_map(|line| line.split_once('/'));
    assert!(files.all(|(_, file)| file == "bin/busybox"), "{maps}");
    let shown = stockade(&["show", "box", "--json"]);
    let image = shown.json()["image"].as_str().unwrap().to_owned();
    assert!(image.starts_with("app:1@sha256:"), "{shown}");

    // The name moves on; the sandbox stays.
    let layers = vec![base(&shell, "bin"), Layer::default().file("file", b"second\n")];
    import(world, "app:1", layers, config);
    stockade(&["image", "prune", "--all"]).succeeds();
    stockade(&["stop", "box"]).succeeds();
    stockade(&["image", "prune", "--all"]).succeeds();
    stockade(&["start", "box"]).succeeds();
    let outcome = stockade(&["exec", "box", "--", "cat", "/file", "/srv/mine"]);
    assert_eq!(outcome.stdout, "first\nmine\n", "{outcome}");

    stockade(&["snapshot", "box", "--as", "snap"]).succeeds();
    stockade(&["kill", "box"]).succeeds();
    stockade(&["image", "prune", "--all"]).succeeds();
    stockade(&["restore", "snap", "--id", "again"]).succeeds();
    let outcome = stockade(&["exec", "again", "--", "cat", "/file", "/srv/mine"]);
    assert_eq!(outcome.stdout, "first\nmine\n", "{outcome}");
    stockade(&["image", "prune", "--all"]).succeeds();
    stockade(&["exec", "again", "--", "cat", "/file"]).succeeds();
    stockade(&["kill", "again"]).succeeds();
}

fn an_image_that_a_sandbox_uses_is_not_removed(world: &World) {
    let Some(shell) = busybox("images::persistent::in_use") else { return };
    import(world, "app:1", vec![base(&shell, "bin")], json!({}));
    let stockade = |words: &[&str]| world.stockade(words).finish();
    stockade(&["create", "--id", "box", "--image", "app:1"]).succeeds();
    let refused = stockade(&["image", "rm", "app:1"]);
    assert!(refused.code() != 0 && refused.stderr.contains("box"), "{refused}");
    stockade(&["exec", "box", "--", "true"]).succeeds();
    stockade(&["kill", "box"]).succeeds();
    stockade(&["image", "rm", "app:1"]).succeeds();
    let missing = stockade(&["create", "--pull", "never", "--image", "app:1"]);
    assert!(missing.stderr.contains("IMAGE_NOT_FOUND"), "{missing}");
}

fn bubblewrap_refuses_an_image_in_which_its_init_cannot_run(world: &World) {
    let Some(shell) = busybox("images::persistent::bubblewrap") else { return };
    import(world, "app:1", vec![base(&shell, "bin")], json!({}));
    let words = ["create", "--runtime", "bwrap", "--image", "app:1", "--pull", "never"];
    let refused = world.stockade(&words).finish();
    assert!(refused.code() != 0 && refused.stderr.contains("[UNSUPPORTED]"), "{refused}");
    let words = [&words[..], &["--fallback-runtime", "native", "--id", "box"]].concat();
    let made = world.stockade(&words).finish();
    // What an image has is known only when it is opened: no fallback is chosen then.
    assert!(
        made.stderr.contains("--runtime native") || made.stderr.contains("not usable"),
        "{made}"
    );
}

as_root_and_as_user! {
    bubblewrap_refuses_an_image_in_which_its_init_cannot_run,
    a_sandbox_of_an_image_keeps_its_files_and_its_image,
    an_image_that_a_sandbox_uses_is_not_removed,
}
