//! The JSON of the commands for workspaces, synchronization, the vault and network policies.

use super::Calls;
use crate::harness::World;

as_user! {
    of_workspaces,
    of_secrets,
    of_policies,
}

fn of_workspaces(world: &World) {
    let mut calls = Calls::new(world, "json/workspaces");
    world.write("plan.md", "first\n");
    let mut call = |name: &str, words: &[&str]| calls.call(name, words);
    call("create", &["workspace", "create", "notes", "--json"]);
    call("write", &["workspace", "write", "notes", "plan.md", "plan.md", "--json"]);
    call("mkdir", &["workspace", "mkdir", "notes", "empty", "--json"]);
    call("files", &["workspace", "files", "notes", "--json"]);
    call("commit", &["workspace", "commit", "notes", "-m", "First plan", "--json"]);
    call("log", &["workspace", "log", "notes", "--json"]);
    call("cat", &["workspace", "cat", "notes", "plan.md", "--json"]);
    call("delete", &["workspace", "delete", "notes", "plan.md", "--json"]);
    call("discard", &["workspace", "discard", "notes", "--json"]);
    world.stockade(&["create", "--id", "box"]).finish().succeeds();
    call("sync", &["sync", "workspace:notes", "box:/tmp/notes", "--json"]);
    call("ls", &["workspace", "ls", "--json"]);
    call("rm", &["workspace", "rm", "notes", "--json"]);
    calls.finish();
}

fn of_secrets(world: &World) {
    let mut calls = Calls::new(world, "json/secrets");
    for (name, verb, value) in
        [("set", "set", "value-one-7f3a\n"), ("rotate", "rotate", "value-two-9c1b\n")]
    {
        let words = ["secrets", verb, "github", "--json"];
        calls.prepared(name, &words, world.stockade(&words).input(value.to_owned()));
    }
    world.stockade(&["create", "--id", "box"]).finish().succeeds();
    let write = ["secrets", "write", "github", "box", "/run/secrets/token", "--json"];
    calls.call("write", &write);
    calls.call("list", &["secrets", "list", "--json"]);
    calls.call("remove", &["secrets", "remove", "github", "--json"]);
    calls.finish();
}

fn of_policies(world: &World) {
    let mut calls = Calls::new(world, "json/policies");
    world.write("one.toml", "[[allow]]\nhost = \"api.example\"\n");
    world.write(
        "two.toml",
        "[[allow]]\nhost = \"api.example\"\n[[allow]]\nhost = \"other.example\"\n",
    );
    calls.call("check", &["policy", "check", "one.toml", "--json"]);
    calls.call("explain", &["policy", "explain", "one.toml", "https://api.example/", "--json"]);
    calls.call("diff", &["policy", "diff", "one.toml", "two.toml", "--json"]);
    calls.finish();
}
