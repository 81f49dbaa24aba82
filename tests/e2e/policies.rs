//! Network policies in files: `--policy`, `stockade policy` and `--net learn`.

use serde_json::json;

use crate::credentials::{run_with, tls_server};
use crate::harness::World;

fn requests_are_checked_by_a_policy(world: &World) {
    let (server, authorities) = tls_server(world);
    let port = server.port;
    let file = world.path("policy.json");
    let rules = json!({
        "allow": [
            {"host": "service.test", "ports": [port], "methods": ["GET"], "paths": ["/allowed/*"]},
            {"host": "other.test", "ports": [port]},
            {"host": "127.0.0.1", "ports": [port]},
        ],
        "deny": [{"host": "service.test", "paths": ["/allowed/secret/*"]}],
    });
    world.plant(&file, &rules.to_string());
    let options = ["--policy", file.to_str().unwrap(), "--env", "API_KEY=x"];
    let hosts = [
        "service.test:PORT/allowed/a",
        "service.test:PORT/other",
        "service.test:PORT/allowed/secret/a",
        "service.test:PORT/allowed/../other",
        "other.test:PORT/any",
    ];
    let hosts = hosts.map(|host| host.replace("PORT", &port.to_string()));
    let mut fetch = vec!["./probe", "fetch-secured", "API_KEY"];
    fetch.extend(hosts.iter().map(String::as_str));
    let outcome = run_with(world, &authorities, "unused", &options, &fetch).finish();
    let answers: Vec<_> = outcome.stdout.split(" | ").collect();
    assert_eq!(answers.len(), hosts.len(), "{outcome}");
    for (answer, expected) in answers.iter().zip([
        "200 OK",
        "Stockade-Egress-Refused: request-not-allowed",
        "Stockade-Egress-Refused: denied",
        "Stockade-Egress-Refused: invalid-request",
        "200 OK",
    ]) {
        assert!(answer.contains(expected), "{expected}: {answer}");
    }
    let received = server.requests.lock().unwrap().clone();
    let lines: Vec<_> = received.iter().filter_map(|request| request.lines().next()).collect();
    assert_eq!(lines, ["GET /allowed/a HTTP/1.1", "GET /any HTTP/1.1"], "{received:?}");
    // The host without such a rule is connected to by itself: its own certificate is seen, and its
    // request is not changed.
    assert!(outcome.stderr.contains("request-not-allowed"), "{outcome}");
}

fn policies_are_checked_explained_and_compared(world: &World) {
    let (one, two) = (world.path("one.toml"), world.path("two.toml"));
    world.plant(
        &one,
        "[[allow]]\nhost = \"api.example\"\nports = [443]\nmethods = [\"GET\"]\npaths = [\"/v1/*\"]\n",
    );
    world.plant(&two, "presets = [\"model-providers\"]\n[[allow]]\nhost = \"api.example\"\n");
    let [one, two] = [&one, &two].map(|path| path.to_str().unwrap());
    let policy = |words: &[&str]| world.stockade(&[&["policy"], words].concat()).finish();
    let checked = policy(&["check", one]);
    checked.succeeds();
    assert!(checked.stdout.contains("allow api.example GET /v1/* :443\n"), "{checked}");
    for (words, code, told) in [
        (&["explain", one, "https://api.example/v1/models"][..], 0, "allowed"),
        (
            &["explain", one, "-X", "POST", "https://api.example/v1/models"],
            1,
            "request-not-allowed",
        ),
        (&["explain", one, "https://api.example/v1/../v2"], 1, "invalid-request"),
        (&["explain", one, "api.example:22"], 1, "port-not-allowed"),
        (&["explain", one, "https://other.example/"], 1, "not-allowed"),
        (&["explain", two, "api.anthropic.com:443"], 0, "allowed"),
        (&["diff", one, two], 1, "+ api.example\n"),
        (&["diff", one, two], 1, "+ api.anthropic.com, port 443\n"),
        (&["diff", two, one], 0, ""),
        (&["diff", one, one], 0, ""),
        (&["check", "package-registries"], 0, "allow pypi.org :443,80"),
    ] {
        let outcome = policy(words);
        outcome.ends_with(code);
        assert!(outcome.stdout.contains(told), "{words:?}: {outcome}");
    }
    let unknown = policy(&["check", "no-such-policy"]);
    unknown.ends_with(2);
    assert!(unknown.stderr.contains("code-hosts-read-only"), "{unknown}");
    world.plant(std::path::Path::new(one), "[[allow]]\nhosts = \"api.example\"\n");
    let invalid = policy(&["check", one]);
    assert!(invalid.stderr.contains("RULE_INVALID"), "{invalid}");
}

/// What was connected to is a policy that allows it again.
fn a_policy_is_learned(world: &World) {
    let file = world.outside().join("learned.toml");
    let name = file.to_str().unwrap();
    let learn = |more: &[&str]| {
        let words = [&["run", "--discard", "--net", "learn", "--learn-file", name], more].concat();
        world.stockade(&[&words[..], &["--", "true"]].concat()).finish()
    };
    let learned = learn(&[]);
    learned.succeeds();
    assert!(learned.stderr.contains(name), "{learned}");
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), "default = \"deny\"");
    let again = learn(&[]);
    assert!(again.stderr.contains("CONFLICT"), "a file that exists stays: {again}");
    world.run(&["--policy", name], &["true"]).succeeds();
    let both = learn(&["--allow", "a.example"]);
    assert!(both.stderr.contains("INVALID_INPUT"), "{both}");
}

as_root_and_as_user![
    requests_are_checked_by_a_policy,
    policies_are_checked_explained_and_compared,
    a_policy_is_learned
];
