//! `stockade mcp --server URL`: the tools on the sandboxes of another server, and a wrapped server there.

use serde_json::json;

use super::session::Session;
use crate::harness::World;
use crate::served::remote::{Client, url};
use crate::served::{Server, key};

fn tools_work_on_the_sandboxes_of_a_server(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, key_id) = key(world, &["--owner", "me"]);
    let me = Client::new(world, url(&server), &mine);
    let mut session = Session::of(me.call(&["mcp"]));
    let made = session.call("create", &json!({}));
    let id = made["structuredContent"]["sandbox"].as_str().unwrap_or_else(|| panic!("{made}"));
    let ran = session.call("exec", &json!({"sandbox": id, "command": "echo from-there"}));
    assert!(ran.to_string().contains("from-there"), "{ran}");
    assert!(me.run(&["ls", "-q"]).succeeds().stdout.contains(id));
    let link = session.call("playground_link", &json!({"source": "1"}));
    assert!(link.to_string().contains(&url(&server)), "{link}");
    // No directory of either machine is a workspace.
    let refused = session.call("create", &json!({"workspace": "/etc"}));
    assert_eq!(refused["isError"], true, "{refused}");
    // A key that is revoked meanwhile opens nothing any more.
    world.stockade(&["keys", "revoke", &key_id]).finish().succeeds();
    let refused = session.call("exec", &json!({"sandbox": id, "command": "echo from-there"}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(refused.to_string().contains("UNAUTHENTICATED"), "{refused}");
    drop(session);
    me.nothing_happened_here();
}

/// The wrapped server runs there, with the streams of this one, and ends with its input.
fn a_wrapped_server_runs_there(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let me = Client::new(world, url(&server), &mine);
    let script = "pwd; cat; echo bye; exit 7";
    let outcome = me.call(&["mcp", "wrap", "--", "sh", "-c", script]).input("line\n").finish();
    outcome.ends_with(7);
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("/workspace\nline\nbye\n", ""));
    assert_eq!(me.run(&["ls", "-q"]).succeeds().stdout, "", "nothing is left there");
    me.nothing_happened_here();
}

/// One that ignores the end of its input is asked to end.
fn a_wrapped_server_that_stays_is_asked_to_end(world: &World) {
    let server = Server::start(world, &[]);
    let (mine, _) = key(world, &["--owner", "me"]);
    let me = Client::new(world, url(&server), &mine);
    let script = "trap 'echo asked; exit 5' TERM; while :; do sleep 0.1; done";
    let outcome = me.call(&["mcp", "wrap", "--", "sh", "-c", script]).deadline(120).finish();
    assert_eq!((outcome.code(), outcome.stdout.as_str()), (5, "asked\n"), "{outcome}");
    assert_eq!(me.run(&["ls", "-q"]).succeeds().stdout, "", "nothing is left there");
}

as_root_and_as_user![
    tools_work_on_the_sandboxes_of_a_server,
    a_wrapped_server_runs_there,
    a_wrapped_server_that_stays_is_asked_to_end,
];
