//! What `--allow` and `--allow-internal` can name: the loopback of this machine, names that lead to a
//! private network, and every public host; and what they say about everything else.

use serde_json::Value;

use crate::harness::World;
use crate::network::{NAMES, Server, run_with_names};

/// `host.stockade.internal` is the host's loopback, at the ports that are named and no other.
fn the_loopback_of_the_host_has_a_name(world: &World) {
    let server = Server::start("127.0.0.1:0", "greetings").unwrap();
    let port = server.address.port();
    let (here, other) =
        (format!("host.stockade.internal:{port}"), format!("host.stockade.internal:{}", port ^ 1));
    for route in ["direct", "proxy"] {
        let outcome =
            world.run(&["--discard", "--allow", &here], &["./probe", "fetch", route, &here]);
        assert!(outcome.stdout.contains("greetings"), "{outcome}");
        assert_eq!(outcome.stderr, "", "{outcome}");
        let denied = ["./probe", "fetch", route, &other, &format!("127.0.0.1:{port}")];
        let outcome = world.run(&["--discard", "--allow", &here], &denied);
        assert!(!outcome.stdout.contains("greetings"), "{outcome}");
    }
    assert_eq!(server.connections(), 2);
    // What allows much does not allow it.
    for wide in ["*", "*.stockade.internal", "service.test"] {
        let fetch = ["./probe", "fetch", "proxy", &here];
        let outcome = run_with_names(world, NAMES, &["--allow", wide], &fetch);
        assert!(!outcome.stdout.contains("greetings"), "{outcome}");
        assert!(outcome.stderr.contains(&format!("hint: --allow {here}")), "{outcome}");
    }
    assert_eq!(server.connections(), 2);
}

/// A proxy on the loopback that a `<Sandbox>` names is reached after the user has allowed it once: that
/// port, and no other.
fn a_workflow_asks_for_the_loopback_proxy_that_it_names(world: &World) {
    let server = Server::start("127.0.0.1:0", "greetings").unwrap();
    let other = Server::start("127.0.0.1:0", "other").unwrap();
    let (port, closed) = (server.address.port(), other.address.port());
    let fetch = format!(
        "found=$(./probe fetch direct host.stockade.internal:{port} host.stockade.internal:{closed} 127.0.0.1:{port} 2>&1 | tr -cd a-z); \
         printf '{{\"proxy\": \"%s\", \"found\": \"%s\"}}' \"$HTTPS_PROXY\" \"$found\""
    );
    let sandbox = |id: &str| {
        format!(
            "<Sandbox id=\"{id}\" retries={{0}} allowNetwork egress={{{{ httpsProxy: \"http://127.0.0.1:{port}\" }}}} output={{outputs.output}} command={{ctx.input.command}} />"
        )
    };
    let source = format!(
        "import {{ Sandbox, createSmithers }} from \"smithers-orchestrator\";\n\
         const {{ Workflow, smithers, outputs }} = createSmithers({{ output: {{ type: \"object\" }} }});\n\
         export default smithers((ctx) => <Workflow name=\"w\">{}{}</Workflow>);\n",
        sandbox("one"),
        sandbox("two")
    );
    let file = world.write("proxy.tsx", source).to_str().unwrap().to_owned();
    let input = serde_json::json!({ "command": fetch }).to_string();
    let call = |words: &[&str]| world.stockade(words).finish();
    let graph = call(&["graph", &file, "--input", &input]);
    assert!(
        graph.stdout.contains(&format!("uses the proxy 127.0.0.1:{port} of this machine")),
        "{graph}"
    );
    let up = ["up", &file, "--input", &input, "--run-id"];
    let first = call(&[&up[..], &["denied"]].concat());
    first.ends_with(3);
    assert!(first.stderr.contains(&format!("127.0.0.1:{port} of this machine")), "{first}");
    call(&["deny", "denied", "one"]).succeeds();
    call(&["resume", "denied"]).ends_with(1);
    assert_eq!(server.connections(), 0);
    call(&[&up[..], &["allowed"]].concat()).ends_with(3);
    call(&["approve", "allowed", "one"]).succeeds();
    let end = call(&["resume", "allowed"]);
    end.succeeds();
    for row in end.json().as_array().unwrap() {
        let name = "host.stockade.internal";
        assert_eq!(row["proxy"], format!("http://{name}:{port}"), "{end}");
        assert!(row["found"].as_str().unwrap().contains("greetings"), "{end}");
        assert!(!row["found"].as_str().unwrap().contains("other"), "{end}");
    }
    assert_eq!((server.connections(), other.connections()), (2, 0));
}

fn the_loopback_of_the_sandbox_cannot_be_allowed(world: &World) {
    for (host, form) in [
        ("localhost:9801", "--allow host.stockade.internal:9801"),
        ("localhost", "--allow host.stockade.internal:PORT"),
        ("app.localhost:80", "--allow host.stockade.internal:80"),
        ("http://localhost:3000/", "--allow host.stockade.internal:3000"),
        ("127.0.0.1:9801", "--allow host.stockade.internal:9801"),
        ("[::1]:9801", "--allow host.stockade.internal:9801"),
        ("host.stockade.internal", "--allow host.stockade.internal:PORT"),
    ] {
        let outcome = world.run(&["--discard", "--allow", host], &["true"]);
        outcome.is_refused().ends_with(125);
        assert!(outcome.stderr.contains(form), "{host}: {outcome}");
    }
}

/// A name that leads to a private network: what was printed allows the name and nothing else.
fn a_name_in_a_private_network_has_a_flag(world: &World) {
    let names = "10.255.255.5 mirror.test\n169.254.169.254 meta.test\n127.0.0.1 here.test";
    let allow = ["--allow", "mirror.test:80", "--allow", "meta.test:80", "--allow", "here.test:80"];
    for (route, hint) in [("direct", "mirror.test"), ("proxy", "mirror.test:80")] {
        let fetch = ["./probe", "fetch", route, "mirror.test:80"];
        let outcome = run_with_names(world, names, &allow, &fetch);
        let line = format!("hint: --allow-internal {hint}\n");
        assert!(outcome.stderr.contains(&line), "{outcome}");
        assert!(outcome.stderr.contains("[internal-address] [EGRESS_INTERNAL]"), "{outcome}");
    }
    // The answer of the proxy and the JSON say the same.
    let fetch = ["./probe", "fetch", "proxy", "mirror.test:80", "meta.test:80", "here.test:80"];
    let json = run_with_names(world, names, &[&["--json"], &allow[..]].concat(), &fetch).json();
    assert!(json["stdout"].as_str().unwrap().contains("--allow-internal mirror.test:80"), "{json}");
    let refused = json["network"]["refused"].as_array().unwrap();
    let allow_of = |host: &str| {
        refused
            .iter()
            .find(|refused| refused["host"] == host)
            .map(|refused| refused["allow"].clone())
    };
    assert_eq!(allow_of("mirror.test"), Some("--allow-internal mirror.test:80".into()), "{json}");
    for host in ["meta.test", "here.test"] {
        assert_eq!(allow_of(host), Some(Value::Null), "{json}");
    }
    // Services that give credentials to machines, and this machine, stay closed.
    let internal = ["--allow-internal", "meta.test", "--allow-internal", "here.test"];
    let fetch = ["./probe", "fetch", "proxy", "meta.test:80", "here.test:80"];
    let outcome = run_with_names(world, names, &internal, &fetch);
    assert_eq!(outcome.stderr.matches("[internal-address]").count(), 2, "{outcome}");
    for (host, reason) in [
        ("10.0.0.5", "--allow 10.0.0.5"),
        ("*", "name the host"),
        ("host.stockade.internal:80", "host.stockade.internal"),
        ("https://mirror.example/", "mirror.example:443"),
    ] {
        let outcome = world.run(&["--discard", "--allow-internal", host], &["true"]);
        outcome.is_refused().ends_with(125);
        assert!(outcome.stderr.contains(reason), "{host}: {outcome}");
    }
}

fn an_asterisk_is_every_public_host(world: &World) {
    let server = Server::start("127.0.0.1:0", "greetings").unwrap();
    let port = server.address.port();
    let (name, here) = (format!("service.test:{port}"), format!("127.0.0.1:{port}"));
    let fetch = ["./probe", "fetch", "proxy", &name];
    let outcome = run_with_names(world, NAMES, &["--allow", "*", "--allow", &here], &fetch);
    assert!(outcome.stdout.contains("greetings"), "{outcome}");
    // An address of this machine is no public one.
    let outcome = run_with_names(world, NAMES, &["--allow", "*"], &fetch);
    assert!(outcome.stderr.contains("[internal-address]"), "{outcome}");
    assert_eq!(server.connections(), 1);
    world.run(&["--discard", "--allow", "*:443"], &["true"]).ends_with(0);
}

/// Each message names the form that is accepted.
fn each_shape_has_its_right_form(world: &World) {
    for (host, form) in [
        ("https://host.example/", "--allow host.example:443"),
        ("host.example/path", "--allow host.example"),
        ("host.example:80-90", "--allow host.example"),
        ("host.example:80,443", "--allow host.example:80 --allow host.example:443"),
        ("user@host.example", "--allow host.example"),
        ("git@host.example:owner/repository.git", "--allow host.example:22"),
        (".example.com", "--allow '*.example.com'"),
    ] {
        let outcome = world.run(&["--discard", "--allow", host], &["true"]);
        outcome.is_refused().ends_with(125);
        assert!(outcome.stderr.contains(&format!("write `{form}`")), "{host}: {outcome}");
    }
    for host in ["host.example.", "[2001:db8::1]:443", "HOST.example:443"] {
        world.run(&["--discard", "--allow", host], &["true"]).ends_with(0);
    }
}

/// A query for the name of an address that Stockade made up is not a wish.
fn own_addresses_have_no_hint(world: &World) {
    let ask = "import socket; print(socket.getfqdn('198.18.0.1'))";
    let outcome = world.run(&["--discard", "--allow", "host.example"], &["python3", "-c", ask]);
    assert!(!outcome.stderr.contains("hint: --allow 1."), "{outcome}");
}

as_root_and_as_user![
    the_loopback_of_the_host_has_a_name,
    a_workflow_asks_for_the_loopback_proxy_that_it_names,
    the_loopback_of_the_sandbox_cannot_be_allowed,
    a_name_in_a_private_network_has_a_flag,
    an_asterisk_is_every_public_host,
    each_shape_has_its_right_form,
    own_addresses_have_no_hint,
];
