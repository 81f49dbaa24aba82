//! `stockade up FILE --server URL`: the run is on this machine, and its sandboxes are on a server that has a
//! data directory of its own and wants a key. Clients and servers are killed meanwhile.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use super::remote::{Client, url};
use super::{Server, key};
use crate::call::Outcome;
use crate::daemons::{kill_server, servers, wait_until};
use crate::harness::World;

/// A run on this machine, with a server elsewhere.
struct Machine<'w> {
    world: &'w World,
    client: Client<'w>,
    url: String,
    key: String,
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        if !servers(&self.data()).is_empty() {
            kill_server(&self.data());
        }
    }
}

impl<'w> Machine<'w> {
    fn new(world: &'w World, server: &Server) -> Self {
        let (key, _) = key(world, &["--owner", "me"]);
        let url = url(server);
        Self { world, client: Client::new(world, &url, &key), url, key }
    }

    /// The data directory of this machine.
    fn data(&self) -> PathBuf {
        self.world.path("elsewhere")
    }

    /// A command that names neither the server nor its key.
    fn without_server(&self, words: &[&str]) -> Outcome {
        self.world.stockade(words).env("STOCKADE_DATA_DIR", self.data()).finish()
    }

    fn inspect(&self, run: &str) -> Value {
        let found = self.without_server(&["inspect", run, "--json"]);
        found.succeeds();
        found.json()
    }

    /// The sandboxes on the server.
    fn on_the_server(&self) -> Vec<Value> {
        self.client.json(&["ls", "--json"])["sandboxes"].as_array().unwrap().clone()
    }

    /// Whether a command on the server has written this file of the project.
    fn has_started(&self, file: &str) -> bool {
        let Some(there) = self.on_the_server().first().cloned() else { return false };
        let (id, file) = (there["id"].as_str().unwrap(), format!("/workspace/{file}"));
        self.client.run(&["exec", id, "--", "cat", &file]).stdout == "started\n"
    }

    /// The key is in no file of this machine.
    fn has_no_key(&self) {
        assert_eq!(self.world.files_with(&self.data(), &self.key), Vec::<PathBuf>::new());
    }
}

/// A workflow file with these elements.
fn flow(world: &World, name: &str, elements: &str) -> String {
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers, Sandbox, Sequence, Task }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, smithers, outputs }} = createSmithers({{ output: {{}} }});\n\
         export default smithers((ctx) => (\n  <Workflow name=\"{name}\"><Sequence>\n    \
           {elements}\n  \
         </Sequence></Workflow>\n));\n"
    );
    world.write(&format!("{name}.tsx"), source).to_str().unwrap().to_owned()
}

/// A sandbox that executes a script.
fn sandbox(id: &str, script: &str, attributes: &str) -> String {
    let script = serde_json::json!(script);
    format!(
        "<Sandbox id=\"{id}\" output={{outputs.output}} retries={{0}} command={{{script}}} {attributes} />"
    )
}

/// The second sandbox sees what the first has changed, and its changes wait for a decision, which is made
/// here; nothing of either is left on the server.
fn changes_of_sandboxes_on_a_server_are_decided_here(world: &World) {
    let server = Server::start(world, &[]);
    let here = Machine::new(world, &server);
    world.write("kept", "of this machine\n");
    world.write("gone", "");
    let first = sandbox(
        "first",
        "echo more >> kept; rm gone; mkdir -p sub; echo new > sub/new; test ! -e /proc/1/root/etc/shadow; echo '{}'",
        "autoAcceptDiffs",
    );
    let second = sandbox("second", "cat kept sub/new > seen; echo '{}'", "");
    let file = flow(world, "two", &format!("{first}\n{second}"));
    let up = here.client.run(&["up", &file, "--run-id", "two"]);
    up.ends_with(3);
    assert_eq!(world.read("kept"), "of this machine\nmore\n");
    assert_eq!(world.read("sub/new"), "new\n");
    assert!(!world.has("gone") && !world.has("seen"));
    let run = here.inspect("two");
    assert_eq!(run["run"]["server"], here.url.as_str(), "{run}");
    assert_eq!(run["sandboxes"][0]["config"]["selectedRuntime"], "opensandbox", "{run}");
    // The run is found here although a server is named, and the decision is made here.
    assert_eq!(here.client.json(&["inspect", "two", "--json"])["run"]["id"], "two");
    let listed = here.client.json(&["runs", "--json"]);
    assert_eq!(listed["runs"][0]["id"], "two", "{listed}");
    assert!(here.client.run(&["logs", "two"]).succeeds().stderr.is_empty());
    here.client.run(&["approve", "two", "second"]).succeeds();
    wait_until("the run ends", || here.inspect("two")["run"]["status"] == "finished");
    assert_eq!(world.read("seen"), "of this machine\nmore\nnew\n");
    wait_until("nothing is left there", || here.on_the_server().is_empty());
    here.has_no_key();
    assert!(!run.to_string().contains(&here.key) && !up.stderr.contains(&here.key), "{up}");
}

/// A child workflow and a node of FireFlow: Stockade's own programs are copied to the server.
fn children_and_nodes_are_on_the_server(world: &World) {
    let server = Server::start(world, &[]);
    let here = Machine::new(world, &server);
    let example =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workflows/sandbox/child.tsx");
    let child = world.write("child.tsx", std::fs::read_to_string(example).unwrap());
    let up = here.client.call(&["up", child.to_str().unwrap(), "--run-id", "child"]);
    let up = up.deadline(110).finish();
    up.succeeds();
    assert_eq!(up.json()["summary"], "Processed: hello");
    assert_eq!(here.inspect("child")["sandboxes"][0]["config"]["selectedRuntime"], "opensandbox");
    let nodes = world.write(
        "nodes.tsx",
        "/** @jsxImportSource smithers-orchestrator */\n\
         import { createSmithers, SandboxCreateNode } from \"smithers-orchestrator\";\n\
         const { Workflow, smithers } = createSmithers({});\n\n\
         export default smithers(() => (\n  <Workflow name=\"nodes\">\n    \
           <SandboxCreateNode id=\"create\" runtime=\"native\" />\n  \
         </Workflow>\n));\n",
    );
    let nodes = nodes.to_str().unwrap();
    let refused = here.client.run(&["up", nodes]);
    assert!(
        refused.stderr.contains("nodes.tsx:7") && refused.stderr.contains("`native`"),
        "{refused}"
    );
    let source = world.read("nodes.tsx").replace(" runtime=\"native\"", "");
    world.write("nodes.tsx", source);
    here.client.run(&["up", nodes, "--run-id", "nodes"]).succeeds();
    assert_eq!(here.on_the_server().len(), 1);
    here.has_no_key();
}

/// A command that goes on while every process of this machine is killed has been executed once.
fn a_killed_client_continues_with_the_key(world: &World) {
    let server = Server::start(world, &[]);
    let here = Machine::new(world, &server);
    let script = "echo started >> ran; for n in $(seq 600); do test -e /tmp/go && break; sleep 0.1; done; echo '{}'";
    let file = flow(world, "slow", &sandbox("box", script, "autoAcceptDiffs"));
    let up = here.client.call(&["up", &file, "--run-id", "slow"]).start();
    let there = || here.on_the_server();
    wait_until("the command runs there", || here.has_started("ran"));
    up.signal(Signal::KILL);
    up.finish();
    kill_server(&here.data());
    // Without the key nothing continues, and the refusal names the variable.
    let refused = here.without_server(&["resume", "slow", "--json"]);
    assert_eq!(refused.json()["error"]["code"], "UNAUTHENTICATED", "{refused}");
    assert!(refused.json()["error"]["remediation"].as_str().unwrap().contains("STOCKADE_API_KEY"));
    assert_eq!(here.inspect("slow")["problem"]["code"], "UNAUTHENTICATED");
    let wrong = world
        .stockade(&["resume", "slow", "--json"])
        .env("STOCKADE_DATA_DIR", here.data())
        .env("STOCKADE_API_KEY", "e2b_0000000000000000000000000000000000000000")
        .finish();
    assert_eq!(wrong.json()["error"]["code"], "UNAUTHENTICATED", "{wrong}");
    let other = world
        .stockade(&["--server", "http://localhost:1", "resume", "slow", "--json"])
        .env("STOCKADE_DATA_DIR", here.data())
        .finish();
    assert_eq!(other.json()["error"]["code"], "INVALID_INPUT", "{other}");
    let id = there()[0]["id"].as_str().unwrap().to_owned();
    here.client.run(&["exec", &id, "--", "touch", "/tmp/go"]).succeeds();
    let resumed = world
        .stockade(&["resume", "slow"])
        .env("STOCKADE_DATA_DIR", here.data())
        .env("STOCKADE_API_KEY", &here.key)
        .finish();
    resumed.succeeds();
    assert_eq!(world.read("ran"), "started\n");
    assert_eq!(here.inspect("slow")["tasks"][0]["attempts"], 1);
    wait_until("nothing is left there", || there().is_empty());
    here.has_no_key();
}

/// A client that is followed gives the key to the next process of this machine by itself; a server elsewhere
/// that ends and comes back is waited for, and one that does not come back fails the task.
fn an_end_of_either_server_is_survived_or_reported(world: &World) {
    let server = Server::start(world, &[]);
    let port = server.port;
    let here = Machine::new(world, &server);
    let script = "echo started > ran; for n in $(seq 600); do test -e /tmp/go && break; sleep 0.1; done; echo done > end; echo '{}'";
    let file = flow(world, "slow", &sandbox("box", script, "autoAcceptDiffs"));
    let up = here.client.call(&["up", &file, "--run-id", "slow"]).start();
    wait_until("the command runs there", || here.has_started("ran"));
    kill_server(&here.data());
    drop(server);
    let server = Server::start_at(world, &format!("127.0.0.1:{port}"), &[]);
    let id = here.on_the_server()[0]["id"].as_str().unwrap().to_owned();
    here.client.run(&["exec", &id, "--", "touch", "/tmp/go"]).succeeds();
    let up = up.finish();
    up.succeeds();
    assert_eq!(world.read("end"), "done\n");
    drop(server);
    let gone = here.client.run(&["up", &file, "--run-id", "gone", "--json"]);
    assert_eq!(gone.json()["error"]["code"], "UNREACHABLE", "{gone}");
    assert_eq!(gone.json()["error"]["retryable"], true, "{gone}");
    let missing = here.without_server(&["inspect", "gone", "--json"]);
    assert_eq!(missing.json()["error"]["code"], "NOT_FOUND", "{missing}");
}

/// What names something of this machine is refused before anything is made, with its place in the file.
fn what_is_of_this_machine_is_refused_at_load(world: &World) {
    let server = Server::start(world, &[]);
    let here = Machine::new(world, &server);
    for (number, (attributes, word)) in [
        (r#"volumes={[{ host: "/srv", container: "/v" }]}"#, "/srv"),
        (r#"runtime="bubblewrap""#, "bubblewrap"),
        (r#"image="/srv/root.tar""#, "/srv/root.tar"),
        (r#"ports={[{ host: 8080, container: 80 }]}"#, "ports"),
        ("allowNetwork", "allowNetwork"),
    ]
    .into_iter()
    .enumerate()
    {
        let file = flow(world, &format!("flow{number}"), &sandbox("box", "true", attributes));
        let refused = here.client.run(&["up", &file, "--run-id", "refused"]);
        assert_ne!(refused.code(), 0, "{refused}");
        let has = |text: &str| refused.stderr.contains(text);
        assert!(has("[INVALID_INPUT]") && has(word) && has(&here.url), "{refused}");
        assert!(has(&format!("flow{number}.tsx:6")) && has("--server local"), "{refused}");
    }
    let file = flow(world, "plain", &sandbox("box", "echo '{}'", "autoAcceptDiffs"));
    let without = Client::new(world, url(&server), "").run(&["up", &file, "--json"]);
    assert_eq!(without.json()["error"]["code"], "UNAUTHENTICATED", "{without}");
    let set = here.client.run(&["up", &file, "--json", "-e", "STOCKADE_RUN_SERVER=http://a"]);
    assert_eq!(set.json()["error"]["code"], "INVALID_INPUT", "{set}");
    // A former login does not send a project elsewhere.
    let login = world.stockade(&["login", &here.url]).input(here.key.clone()).finish();
    login.succeeds();
    let local = here.without_server(&["up", &file, "--run-id", "local"]);
    local.succeeds();
    assert_eq!(here.inspect("local")["run"]["server"], Value::Null);
    assert!(here.on_the_server().is_empty());
}

as_root_and_as_user![
    changes_of_sandboxes_on_a_server_are_decided_here,
    children_and_nodes_are_on_the_server,
    a_killed_client_continues_with_the_key,
    an_end_of_either_server_is_survived_or_reported,
    what_is_of_this_machine_is_refused_at_load,
];
