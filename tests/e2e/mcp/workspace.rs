//! `stockade mcp --workspace`: one sandbox on a project.

use serde_json::json;

use super::session::Session;
use crate::harness::World;

const YES: &str = r#"{"action": "accept", "content": {"confirm": true}}"#;
const NO: &str = r#"{"action": "decline"}"#;

fn answering(world: &World, answer: &str, more: &[&str]) -> Session {
    let words: Vec<_> = ["mcp", "--workspace", "."].iter().chain(more).copied().collect();
    Session::answering(world, &words, Some(serde_json::from_str(answer).unwrap()))
}

fn changes_stay_until_they_are_applied(world: &World) {
    world.write("f", "one\n");
    let mut session = answering(world, YES, &[]);
    assert_eq!(
        session.tools(),
        [
            "apply", "collect", "diff", "exec", "list", "patch", "ports", "read", "reject",
            "search", "write"
        ]
    );
    let listed = world.stockade(&["ls", "--json"]).finish().json();
    assert_eq!(listed["sandboxes"], json!([]), "nothing is created before it is used: {listed}");
    let named = session.failure("exec", &json!({"sandbox": "x", "command": "true"}));
    assert!(named.contains("unknown field `sandbox`"), "{named}");
    let ran = session.value("exec", &json!({"command": "pwd; echo two > f; echo new > g"}));
    assert_eq!(ran["stdout"], format!("{}\n", world.project.display()), "{ran}");
    assert_eq!(session.value("read", &json!({"path": "f"}))["content"], "two\n");
    assert_eq!(world.read("f"), "one\n");
    let diff = session.value("diff", &json!({}));
    let text = diff["diff"].as_str().unwrap();
    assert!(text.contains("-one\n+two\n") && text.contains("+new\n"), "{diff}");
    let one = session.value("diff", &json!({"paths": ["g"]}));
    assert!(!one["diff"].as_str().unwrap().contains("two"), "{one}");
    let uri = format!("stockade://bundles/{}/diff", diff["bundle"].as_str().unwrap());
    let listed = session.request("resources/list", &json!({})).to_string();
    assert!(listed.contains(&uri), "{listed}");
    let read = session.request("resources/read", &json!({"uri": uri}));
    assert!(read["contents"][0]["text"].as_str().unwrap().contains("+two"), "{read}");

    let applied = session.value("apply", &json!({}));
    assert_eq!(applied["applied"], json!(["f", "g"]), "{applied}");
    assert_eq!((world.read("f"), world.read("g")), ("two\n".to_owned(), "new\n".to_owned()));
    let [question] = session.questions.as_slice() else { panic!("{:?}", session.questions) };
    assert!(question.contains(world.project.to_str().unwrap()), "{question}");
    assert!(question.contains("modify f"), "{question}");
    session.end();
    world.stockade(&["kill", "--discard", "latest"]).finish().succeeds();
}

fn the_user_decides(world: &World) {
    world.write("f", "one\n");
    world.write(".git/keep", "");
    let mut session = answering(world, NO, &[]);
    session.value("write", &json!({"path": "f", "content": "two\n"}));
    let refused = session.failure("apply", &json!({}));
    assert!(refused.starts_with("apply failed — FORBIDDEN"), "{refused}");
    let bundle = session.value("collect", &json!({}))["bundle"].clone();
    let refused = session.failure("reject", &json!({"bundle": bundle}));
    assert!(refused.starts_with("reject failed — FORBIDDEN"), "{refused}");
    assert_eq!(session.questions.len(), 2);
    assert_eq!(world.read("f"), "one\n");
    session.end();

    let mut session = Session::start(world, &["mcp", "--workspace", "."]);
    let refused = session.failure("apply", &json!({}));
    assert!(refused.contains("--allow-apply"), "{refused}");
    assert_eq!(world.read("f"), "one\n");
    session.end();

    let mut session = Session::start(world, &["mcp", "--workspace", ".", "--allow-apply", "--end"]);
    assert_eq!(session.value("apply", &json!({}))["applied"], json!(["f"]));
    assert_eq!(world.read("f"), "two\n");
    session.end();
}

fn a_later_session_finds_the_sandbox(world: &World) {
    world.write("f", "one\n");
    let mut first = answering(world, NO, &[]);
    first.value("exec", &json!({"command": "echo two > f; echo state > /tmp/state"}));
    // A second session at the same time has a sandbox of its own.
    let mut beside = answering(world, NO, &["--end"]);
    assert_eq!(beside.value("read", &json!({"path": "f"}))["content"], "one\n");
    beside.end();
    let ended = first.end();
    assert!(ended.stderr.contains("stockade diff"), "the changes are a bundle: {ended}");
    let mut second = answering(world, NO, &["--end"]);
    assert_eq!(second.value("read", &json!({"path": "f"}))["content"], "two\n");
    assert_eq!(second.value("exec", &json!({"command": "cat /tmp/state"}))["stdout"], "state\n");
    second.end();
    let listed = world.stockade(&["ls", "--json"]).finish().json();
    assert_eq!(listed["sandboxes"], json!([]), "{listed}");
    assert_eq!(world.read("f"), "one\n");
}

fn bundles_of_other_projects_do_not_exist(world: &World) {
    world.write("f", "one\n");
    let other = world.outside().join("other");
    std::fs::create_dir(&other).unwrap();
    world.plant(&other.join("g"), "g\n");
    world.chown_tree(&other, |_| world.identity.uid());
    let made = world
        .stockade(&["run", "--json", "--", "sh", "-c", "echo x > g"])
        .current_dir(&other)
        .finish();
    made.succeeds();
    let bundle = made.json()["bundle"]["id"].clone();
    let mut session = answering(world, YES, &["--end"]);
    for (tool, arguments) in [
        ("apply", json!({"bundle": bundle})),
        ("reject", json!({"bundle": bundle})),
        ("diff", json!({"bundle": bundle})),
    ] {
        let refused = session.failure(tool, &arguments);
        assert!(refused.contains("BUNDLE_NOT_FOUND"), "{tool}: {refused}");
    }
    let uri = format!("stockade://bundles/{}", bundle.as_str().unwrap());
    assert!(session.request("resources/read", &json!({"uri": uri})).get("error").is_some());
    assert!(!session.request("resources/list", &json!({})).to_string().contains(&uri));
    session.end();
}

as_root_and_as_user![
    changes_stay_until_they_are_applied,
    the_user_decides,
    a_later_session_finds_the_sandbox,
    bundles_of_other_projects_do_not_exist,
];
