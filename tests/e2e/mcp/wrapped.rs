//! `stockade mcp wrap`: a server of another program, in a sandbox.

use rustix::process::Signal;

use crate::harness::World;

/// A server that answers each line with itself.
const ECHO: &str = "while IFS= read -r line; do printf '%s\\n' \"$line\"; done";

fn wrap<'a>(more: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let mut words = vec!["mcp", "wrap"];
    words.extend(more);
    words.extend(["--", "sh", "-c", script]);
    words
}

fn streams_are_the_servers(world: &World) {
    let mut server = world.stockade(&wrap(&[], &format!("echo hello >&2; {ECHO}; exit 7"))).start();
    server.send(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
    server.wait_for_output("\"ping\"}\n");
    server.send(b"\x1b[2J raw \xc3\xa9\n");
    server.wait_for_output("raw \u{e9}\n");
    let outcome = server.finish();
    outcome.ends_with(7);
    let expected = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\u{1b}[2J raw \u{e9}\n";
    assert_eq!(outcome.stdout, expected);
    assert_eq!(outcome.stderr, "hello\n", "nothing of ours is added");
}

fn large_messages_pass(world: &World) {
    let line = format!("{}\n", "x".repeat(20 << 20));
    let outcome = world.stockade(&wrap(&[], "cat")).input(line.clone()).finish();
    outcome.succeeds();
    assert!(outcome.stdout == line, "{} bytes of {}", outcome.stdout.len(), line.len());
}

fn the_server_ends_with_its_input(world: &World) {
    // It neither reads nor ends, and ignores the first request to end.
    let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let mut server = world.stockade(&wrap(&[], script)).deadline(120).start();
    server.wait_for_output("ready");
    server.send(b"unread\n");
    assert!(!server.finish().status.success());
    // The same for a server that ends when it gets the signal.
    let script = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.1; done";
    let mut server = world.stockade(&wrap(&[], script)).deadline(120).start();
    server.wait_for_output("ready");
    let outcome = server.finish();
    assert_eq!((outcome.code(), outcome.stdout.as_str()), (5, "ready\nbye\n"), "{outcome}");
}

fn signals_reach_the_server(world: &World) {
    let script = "trap 'echo term; exit 9' TERM; echo ready; while :; do sleep 0.1; done";
    let mut server = world.stockade(&wrap(&[], script)).start();
    server.wait_for_output("ready");
    server.signal(Signal::TERM);
    server.wait_for_output("term");
    server.finish().ends_with(9);
}

fn the_host_is_out_of_reach(world: &World) {
    let secret = world.outside().join("secret");
    world.plant(&secret, "top secret");
    world.write("f", "one\n");
    let script = format!(
        "cat {0} 2>&1; echo x > {0}; echo x > {1}/f; ls -A {1}; echo x > /workspace/own && cat own; \
         ls -A ~; exit 0",
        secret.display(),
        world.project.display()
    );
    let outcome = world.stockade(&wrap(&[], &script)).finish();
    outcome.succeeds();
    assert!(!outcome.stdout.contains("top secret"), "{outcome}");
    assert!(outcome.stdout.contains("x\n"), "it has a directory of its own: {outcome}");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "top secret");
    assert_eq!(world.read("f"), "one\n");
    assert!(world.bundles().is_empty(), "its own files are deleted");
    let left = std::fs::read_dir(std::env::temp_dir()).unwrap();
    let left: Vec<_> = left.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    let own = |name: &&String| name.starts_with("stockade-mcp-");
    // Directories of tests that run at the same time may be there for a moment.
    assert!(left.iter().filter(own).count() < 32, "{left:?}");

    let network = "cat < /dev/tcp/127.0.0.1/1 2>/dev/null || exec 3<>/dev/tcp/192.0.2.1/53";
    let words = ["mcp", "wrap", "--", "bash", "-c", network];
    assert!(!world.stockade(&words).finish().status.success());
}

fn mounts_and_variables_are_named(world: &World) {
    world.write("notes/n", "note\n");
    let script = "cat /notes/n; echo x > /notes/n; echo $GIVEN; echo $HIDDEN";
    let more = ["--mount", "./notes:/notes:ro", "--env", "GIVEN=yes"];
    let outcome = world.stockade(&wrap(&more, script)).env("HIDDEN", "no").finish();
    outcome.succeeds();
    assert_eq!(outcome.stdout, "note\nyes\n\n", "{outcome}");
    assert_eq!(world.read("notes/n"), "note\n");
    // With a workspace its changes become a bundle.
    let outcome = world.stockade(&wrap(&["--workspace", "."], "echo two > notes/n")).finish();
    outcome.succeeds();
    assert_eq!((outcome.stdout.as_str(), world.read("notes/n").as_str()), ("", "note\n"));
    assert_eq!(world.bundles().len(), 1);
}

fn a_missing_server_is_an_error(world: &World) {
    let outcome = world.stockade(&["mcp", "wrap", "--", "no-such-server"]).finish();
    outcome.ends_with(127);
    assert_eq!(outcome.stdout, "");
    assert!(outcome.stderr.contains("no-such-server"), "{outcome}");
    let outcome = world.stockade(&["mcp", "wrap"]).finish();
    outcome.ends_with(2);
    assert_eq!(outcome.stdout, "");
}

as_root_and_as_user![
    streams_are_the_servers,
    large_messages_pass,
    the_server_ends_with_its_input,
    signals_reach_the_server,
    the_host_is_out_of_reach,
    mounts_and_variables_are_named,
    a_missing_server_is_an_error,
];
