//! What persistent sandboxes and those of workflows can connect to: the allowed hosts and no
//! others, whichever process is killed in between.

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::{call, refused, show};
use crate::call::Outcome;
use crate::daemons::{egresses, keepers, kill_egress, kill_server, wait_until};
use crate::harness::World;
use crate::network::{NAMES, Server, with_names};

/// `stockade WORDS` on a host that resolves these names: the server may have to be started.
fn call_with_names(world: &World, words: &[&str]) -> Outcome {
    with_names(world, NAMES, words)
}

/// Creates a sandbox on the project that may connect to these hosts; its id.
fn create(world: &World, hosts: &[&str]) -> String {
    let project = world.project.to_str().unwrap();
    let mut words = vec!["create", "--workspace", project];
    words.extend(hosts.iter().flat_map(|host| ["--allow", *host]));
    let made = call_with_names(world, &words);
    made.succeeds();
    made.stdout.trim_end().to_owned()
}

/// The output of a request from the sandbox to a host.
fn fetch(world: &World, id: &str, route: &str, host: &str) -> String {
    let probe = world.project.join("probe");
    let outcome =
        call_with_names(world, &["exec", id, "--", probe.to_str().unwrap(), "fetch", route, host]);
    outcome.is_blocked();
    outcome.stdout
}

/// A server on the host's loopback, its name and port, and rules that allow both the name and the
/// address that it resolves to.
struct Outside {
    server: Server,
    name: String,
    local_name: String,
}

impl Outside {
    fn new() -> Self {
        let server = Server::start("127.0.0.1:0", "greetings").unwrap();
        let port = server.address.port();
        Self {
            server,
            name: format!("service.test:{port}"),
            local_name: format!("127.0.0.1:{port}"),
        }
    }

    fn hosts(&self) -> [&str; 2] {
        [&self.name, &self.local_name]
    }
}

fn what_is_allowed_is_reached_and_the_rest_is_told(world: &World) {
    let outside = Outside::new();
    let id = create(world, &outside.hosts());
    for route in ["direct", "proxy"] {
        let received = fetch(world, &id, route, &outside.name);
        assert!(received.contains("greetings"), "{route}: {received}");
    }
    let came = outside.server.connections();
    let other = outside.name.replace("service", "other");
    for route in ["direct", "proxy"] {
        let received = fetch(world, &id, route, &other);
        assert!(!received.contains("greetings"), "{route}: {received}");
    }
    assert_eq!(outside.server.connections(), came, "somebody was reached");
    let network = || show(world, &id)["network"].clone();
    wait_until("it is told", || network()["refused"].as_array().unwrap().len() == 2);
    let network = network();
    assert_eq!(network["policy"]["rules"].as_array().unwrap().len(), 2, "{network}");
    assert_eq!((&network["lost"], &network["closed"]), (&json!(0), &Value::Null), "{network}");
    let hint = format!("--allow {other}");
    let is_told = |refused: &Value| refused["allow"] == hint.as_str();
    assert!(network["refused"].as_array().unwrap().iter().any(is_told), "{network}");
    let shown = call(world, &["show", &id]);
    let to_paste = format!("stockade allow {id} {other}");
    assert!(shown.stdout.contains(&to_paste) && shown.stdout.contains("not-allowed"), "{shown}");
    let script = format!("{} fetch proxy {other}; exit 3", world.project.join("probe").display());
    let failed = call_with_names(world, &["exec", &id, "--", "sh", "-c", &script]);
    failed.ends_with(3);
    assert!(failed.stderr.contains(&to_paste) && failed.stderr.contains("other.test"), "{failed}");
    // A command reports only what was denied to itself.
    let quiet = call(world, &["exec", &id, "--", "sh", "-c", "exit 7"]);
    quiet.ends_with(7);
    assert_eq!(quiet.stderr, "", "{quiet}");
    let recorded = || call(world, &["events", &id, "--type", "NETWORK_REFUSED", "--json"]);
    wait_until("it is recorded", || recorded().stdout.lines().count() == 2);
    assert!(recorded().stdout.contains("other.test"));

    let outcome = call(world, &["exec", &id, "--", "sh", "-c", "env; cat /etc/resolv.conf"]);
    for expected in ["http_proxy=http://127.0.0.1:", "nameserver 127.0.0.1"] {
        assert!(outcome.stdout.contains(expected), "{outcome}");
    }
    let wall = |sandbox: &Value| {
        let walls = sandbox["isolation"]["walls"].as_array().unwrap().clone();
        walls.into_iter().find(|wall| wall["name"] == "network").unwrap()
    };
    let wall = wall(&show(world, &id));
    assert_eq!(wall["raised"], true, "{wall}");
    call(world, &["kill", &id]).succeeds();
    assert_eq!(show(world, &id)["network"]["refused"].as_array().unwrap().len(), 2);
}

fn without_a_network_nothing_is_reached(world: &World) {
    let id = create(world, &[]);
    assert_eq!(show(world, &id)["network"], Value::Null);
    assert!(egresses(&world.data()).is_empty());
    let env = call(world, &["exec", &id, "--", "env"]);
    assert!(!env.stdout.to_lowercase().contains("proxy"), "{env}");
    refused(
        &call(world, &["create", "--net", "off", "--allow", "host.example"]),
        2,
        "INVALID_INPUT",
    );
    for host in ["localhost:80", "https://host.example", "host.example:0"] {
        call(world, &["create", "--allow", host]).ends_with(2);
    }
    let alone = call(world, &["create", "--net", "policy", "--json"]);
    alone.succeeds();
    assert_eq!(alone.json()["network"]["policy"], json!({ "default": "deny", "rules": [] }));
    assert_eq!(egresses(&world.data()).len(), 1);
}

fn the_egress_process_is_restarted(world: &World) {
    let outside = Outside::new();
    let (one, two) = (create(world, &outside.hosts()), create(world, &outside.hosts()));
    let other = outside.name.replace("service", "other");
    let all_is_well = |who: &str| {
        for id in [&one, &two] {
            let received = fetch(world, id, "direct", &outside.name);
            assert!(received.contains("greetings"), "after {who}: {received}");
            let received = fetch(world, id, "proxy", &other);
            assert!(!received.contains("greetings"), "after {who}: {received}");
        }
    };
    all_is_well("nobody");
    for _ in 0..3 {
        kill_egress(&world.data());
        all_is_well("the egress proxy");
    }
    // Before a server is killed: each one that `named` starts as an ordinary user runs in separate
    // namespaces, and so would its keeper.
    for keeper in keepers(&world.data()) {
        let _ = kill_process(keeper, Signal::KILL);
    }
    all_is_well("the keeper");
    kill_egress(&world.data());
    all_is_well("the egress proxy after the keeper");
    kill_server(&world.data());
    all_is_well("the server");
    kill_egress(&world.data());
    kill_server(&world.data());
    all_is_well("both");
}

fn what_it_reaches_can_be_changed(world: &World) {
    let outside = Outside::new();
    let id = create(world, &[&outside.local_name]);
    let receives = |what: &str| {
        let received = fetch(world, &id, "direct", &outside.name);
        assert_eq!(received.contains("greetings"), what == "allowed", "{what}: {received}");
    };
    receives("not yet");
    let allowed = call_with_names(world, &["allow", &id, &outside.name]);
    allowed.succeeds();
    assert!(allowed.stderr.contains("service.test on port"), "{allowed}");
    receives("allowed");
    kill_egress(&world.data());
    receives("allowed");
    kill_server(&world.data());
    receives("allowed");
    let none =
        call_with_names(world, &["refuse", &id, &outside.name, &outside.local_name, "--json"]);
    assert_eq!(none.json()["network"]["policy"]["rules"], json!([]), "{none}");
    receives("not any more");
    refused(&call(world, &["refuse", &id, "service.test"]), 2, "INVALID_INPUT");
    let without = create(world, &[]);
    let problem = call(world, &["allow", &without, "service.test"]);
    refused(&problem, 1, "CONFLICT");
    assert!(problem.stderr.contains("stockade create --net policy"), "{problem}");
    let recorded = call(world, &["events", &id, "--type", "NETWORK_CHANGED", "--json"]);
    assert_eq!(recorded.stdout.lines().count(), 2, "{recorded}");
}

/// The egress process is killed while a change is on its way, at different moments: afterwards the new
/// policy is in force, and never the old one.
fn a_change_outlives_a_killed_egress_process(world: &World) {
    let outside = Outside::new();
    let id = create(world, &[&outside.local_name]);
    let [hosts, resolver] = crate::network::name_files(world, NAMES);
    for delay in [0, 5, 20, 60] {
        for (change, is_reached) in [("allow", true), ("refuse", false)] {
            let words = [change, &id, &outside.name];
            let changing = world.stockade_by(&["with-names", &hosts, &resolver], &words).start();
            std::thread::sleep(std::time::Duration::from_millis(delay));
            kill_egress(&world.data());
            changing.finish().succeeds();
            let received = fetch(world, &id, "direct", &outside.name);
            let is_there = received.contains("greetings");
            assert_eq!(is_there, is_reached, "{change} after {delay} ms: {received}");
        }
    }
}

fn the_network_works_after_a_pause_and_a_stop(world: &World) {
    let outside = Outside::new();
    let id = create(world, &outside.hosts());
    for (down, up) in [("pause", "resume"), ("stop", "start")] {
        call(world, &[down, &id]).succeeds();
        assert_eq!(show(world, &id)["network"]["closed"], Value::Null, "{down}");
        call(world, &[up, &id]).succeeds();
        let received = fetch(world, &id, "direct", &outside.name);
        assert!(received.contains("greetings"), "{up}: {received}");
    }
    call(world, &["snapshot", &id, "--as", "kept"]).succeeds();
    // A restored sandbox gets no network unless it is requested.
    let restored = call_with_names(world, &["restore", "kept"]);
    let without = restored.stdout.trim_end();
    assert_eq!(show(world, without)["network"], Value::Null);
    let received = fetch(world, without, "direct", &outside.local_name);
    assert!(!received.contains("greetings"), "{received}");
    let [name, here] = outside.hosts();
    let restored = call_with_names(world, &["restore", "kept", "--allow", name, "--allow", here]);
    let received = fetch(world, restored.stdout.trim_end(), "direct", name);
    assert!(received.contains("greetings"), "{received}");
}

/// Every address of a server on the host's loopback, also if all public addresses are allowed.
fn the_host_itself_is_not_reached(world: &World) {
    let outside = Outside::new();
    let id = create(world, &["0.0.0.0/0", "::/0", &outside.name]);
    let port = outside.server.address.port();
    let names = ["127.0.0.1", "127.1.2.3", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "localhost"];
    let mut words = vec!["exec", &id, "--", "./probe", "reach", "greetings"];
    let addresses: Vec<_> = names.iter().map(|name| format!("{name}:{port}")).collect();
    words.extend(addresses.iter().map(String::as_str));
    words.extend([outside.name.as_str(), "169.254.169.254:80", "10.0.0.1:80"]);
    call_with_names(world, &words).is_blocked();
    assert_eq!(outside.server.connections(), 0, "somebody was reached");
}

/// A workflow whose only task is a sandbox with these attributes, and what is between its tags.
fn flow(world: &World, name: &str, attributes: &str, children: &str) -> String {
    let source = format!(
        "/** @jsxImportSource smithers-orchestrator */\n\
         import {{ createSmithers }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, Task, Sandbox, smithers, outputs }} = createSmithers({{ output: {{}} }});\n\
         export default smithers((ctx) => (\n  <Workflow name=\"{name}\">\n    \
           <Sandbox id=\"box\" output={{outputs.output}} retries={{0}} reviewDiffs={{false}} {attributes}>\
             {children}</Sandbox>\n  </Workflow>\n));\n"
    );
    world.write(&format!("{name}.tsx"), source).to_str().unwrap().to_owned()
}

/// A shell script that requests a host and prints the response as the output of a task.
fn fetch_script(host: &str) -> String {
    format!(
        "for way in direct proxy; do ./probe fetch $way {host}; done > /tmp/heard; \
         printf '{{\"heard\": %s}}' $(grep -c greetings /tmp/heard)"
    )
}

fn a_sandbox_of_a_workflow_reaches_whom_its_contract_names(world: &World) {
    let outside = Outside::new();
    let other = outside.name.replace("service", "other");
    let hosts = json!({ "allowHosts": outside.hosts() });
    let command = |host: &str| format!("command={{{}}}", json!(fetch_script(host)));
    let network = format!("allowNetwork egress={{{hosts}}}");
    for (name, attributes, heard) in [
        ("named", format!("{network} {}", command(&outside.name)), 2),
        ("other", format!("{network} {}", command(&other)), 0),
        // Allowing all public addresses does not allow those of this machine.
        ("public", format!("allowNetwork {}", command(&outside.name)), 0),
        ("off", command(&outside.name), 0),
    ] {
        let file = flow(world, name, &attributes, "");
        let done = call_with_names(world, &["up", &file, "--run-id", name]);
        done.ends_with(0);
        assert_eq!(done.json(), json!({ "heard": heard }), "{name}: {done}");
    }
}

/// The command of an agent inside: it learns of the network if there is one, and is refused
/// otherwise.
fn an_agent_in_such_a_sandbox_has_its_network(world: &World) {
    let outside = Outside::new();
    let command = json!(fetch_script(&outside.name));
    let task = format!(
        "<Task id=\"ask\" output={{outputs.output}} noRetry agent={{{{ command: {command}, network: true }}}}>Ask</Task>"
    );
    let hosts = json!({ "allowHosts": outside.hosts() });
    let file = flow(world, "agent", &format!("allowNetwork egress={{{hosts}}}"), &task);
    let done = call_with_names(world, &["up", &file, "--run-id", "agent"]);
    done.ends_with(0);
    assert_eq!(done.json(), json!({ "heard": 2 }), "{done}");
    let file = flow(world, "without", "", &task);
    let failed = call_with_names(world, &["up", &file, "--run-id", "without"]);
    failed.ends_with(1);
    assert!(failed.stderr.contains("<Sandbox allowNetwork>"), "{failed}");
}

/// A nested sandbox can connect to no more than the outer one.
fn a_nested_sandbox_narrows(world: &World) {
    let outside = Outside::new();
    let command = json!(fetch_script(&outside.name));
    let inner = |attributes: &str| {
        format!(
            "<Sandbox id=\"inner\" output={{outputs.output}} retries={{0}} allowNested allowNetwork {attributes} command={{{command}}} />"
        )
    };
    let hosts = json!({ "allowHosts": outside.hosts() });
    let more = json!({ "allowHosts": ["127.0.0.2"] });
    for (name, attributes, told) in
        [("same", String::new(), None), ("more", format!("egress={{{more}}}"), Some("127.0.0.2"))]
    {
        let outer = format!("allowNested allowNetwork egress={{{hosts}}}");
        let file = flow(world, name, &outer, &inner(&attributes));
        let done = call_with_names(world, &["up", &file, "--run-id", name]);
        match told {
            None => {
                done.ends_with(0);
                assert_eq!(done.json(), json!({ "heard": 2 }), "{name}: {done}");
            }
            Some(reported) => {
                done.ends_with(1);
                assert!(done.stderr.contains(reported), "{name}: {done}");
            }
        }
    }
}

as_root_and_as_user![
    what_is_allowed_is_reached_and_the_rest_is_told,
    without_a_network_nothing_is_reached,
    the_egress_process_is_restarted,
    what_it_reaches_can_be_changed,
    a_change_outlives_a_killed_egress_process,
    the_network_works_after_a_pause_and_a_stop,
    the_host_itself_is_not_reached,
    a_sandbox_of_a_workflow_reaches_whom_its_contract_names,
    an_agent_in_such_a_sandbox_has_its_network,
    a_nested_sandbox_narrows,
];
