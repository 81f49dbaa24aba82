//! `stockade run --runtime`: one command in a sandbox of another runtime.

use crate::harness::{World, skip};

fn a_command_runs_in_bubblewrap_and_leaves_a_bundle(world: &World) {
    let run =
        |words: &[&str]| world.stockade(&[&["run", "--runtime", "bwrap"], words].concat()).finish();
    let script = "pwd; echo more >> a.txt; echo err >&2; exit 4";
    let ran = run(&["--", "sh", "-c", script]);
    if ran.stderr.contains("[UNSUPPORTED]") {
        skip("run_held of bwrap", &ran.stderr);
        return;
    }
    ran.ends_with(4);
    assert_eq!(ran.stdout, format!("{}\n", world.project.display()), "{ran}");
    assert!(ran.stderr.contains("err\n") && ran.stderr.contains("stockade apply"), "{ran}");
    assert_eq!(world.read("a.txt"), "alpha\n");
    world.stockade(&["apply", "latest"]).finish().succeeds();
    assert_eq!(world.read("a.txt"), "alpha\nmore\n");
    run(&["--discard", "--", "touch", "new"]).succeeds();
    assert!(world.bundles().is_empty());
    // Nothing is left of either.
    assert_eq!(world.stockade(&["ls", "-q"]).finish().stdout, "");
    for flag in [&["--apply"][..], &["--json"], &["--view", "copy"], &["--max-bundle", "1M"]] {
        let refused = run(&[flag, &["--", "true"]].concat());
        assert!(refused.stderr.contains("[INVALID_INPUT]"), "{refused}");
        assert!(refused.stderr.contains(flag[0]), "{refused}");
    }
    let unknown = world.stockade(&["run", "--runtime", "podman", "--", "true"]).finish();
    assert!(unknown.stderr.contains("there is no runtime"), "{unknown}");
    let native = world.stockade(&["run", "--runtime", "native", "--", "true"]).finish();
    native.succeeds();
}

as_root_and_as_user! {
    a_command_runs_in_bubblewrap_and_leaves_a_bundle,
}
