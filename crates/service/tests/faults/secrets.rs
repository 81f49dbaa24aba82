//! Values that must be in no record: contents, inputs and variables of commands.

use serde_json::json;
use stockade_api::{CreateSandbox, OpenSession, Sandboxes as _, SessionEvent};
use stockade_core::Code;

use crate::call;
use crate::harness::{Harness, caller, program};

#[tokio::test]
async fn contents_are_nowhere_in_the_database() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    const SECRET: &str = "s3cr3t-canary";
    let never = |what: &str| assert!(!harness.database_holds(SECRET), "{what}");

    let mut execute = program(&id, &["true"]);
    execute.stdin = Some(SECRET.as_bytes().into());
    harness.run(|s| async move { s.execute(&caller("u1"), execute).await }).await.unwrap();
    never("what a command reads");
    harness.write(&id, "/w/f", SECRET).await.unwrap();
    assert_eq!(harness.read(&id, "/w/f").await.unwrap(), SECRET);
    never("what is written to a file and read");
    let edits = json!([{"path": "/w/f", "old": SECRET, "new": format!("{SECRET}!")}]);
    call(&harness, "replace_text", json!({"sandboxId": id, "edits": edits})).await.unwrap();
    never("what is replaced");
    for (tool, arguments) in [
        ("file_write", json!({"path": "/w/g", "content": SECRET})),
        ("file_read", json!({"path": "/w/g"})),
    ] {
        let request = json!({"sandboxId": id, "tool": tool, "arguments": arguments});
        let answer = call(&harness, "run_tool", request).await.unwrap();
        assert_eq!(answer["status"], "ok");
        never(tool);
    }
    let request = json!({
        "sandboxId": id, "port": 80, "method": "POST", "path": format!("/{SECRET}"),
        "headers": {"authorization": SECRET}, "body": SECRET,
    });
    assert_eq!(call(&harness, "http_request", request).await.unwrap_err().code, Code::Unreachable);
    never("what is sent to a port");
    assert!(harness.database_holds("sandbox.run_tool"), "there is something to be found");
}

/// The variables of a command are stored nowhere; those of a sandbox are in its row, as long as it
/// can be started.
#[tokio::test]
async fn variables_are_nowhere_else() {
    const SECRET: &str = "v4r14ble-canary";
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    harness.fake.program("env", |process| async move {
        let name = std::ffi::OsStr::new("TOKEN");
        let is_there = process.environment.get(name).is_some_and(|value| value == SECRET);
        stockade_runtime::Ending::Exited(u8::from(!is_there))
    });
    let mut execute = program(&id, &["env"]);
    execute.environment.insert("TOKEN".to_owned(), SECRET.into());
    let repeated = execute.clone();
    let done =
        harness.run(|s| async move { s.execute(&caller("u1").with_key("k"), repeated).await });
    assert_eq!(done.await.unwrap().end.exit_code, Some(0), "the command has it");
    // The comparison of requests includes variables, although they are not recorded.
    let mut other = execute.clone();
    other.environment.insert("TOKEN".to_owned(), "other".into());
    let refused =
        harness.run(|s| async move { s.execute(&caller("u1").with_key("k"), other).await });
    assert_eq!(refused.await.unwrap_err().code, Code::Conflict);
    let operation = harness.stream(execute.clone()).await;
    assert_eq!(harness.result(&operation).await.result.unwrap()["exitCode"], 0);
    let request = OpenSession { execute, terminal: None, input: false, survives: false };
    let opened = harness.run(|s| async move { s.open_session(&caller("u1"), request).await });
    let mut session = opened.await.unwrap();
    let mut ended = None;
    while let Some(event) = session.events.next().await {
        if let SessionEvent::Ended(end) = event.unwrap() {
            ended = end.exit_code;
        }
    }
    assert_eq!(ended, Some(0));
    assert!(!harness.database_holds(SECRET), "a variable of a command");

    let environment = [("TOKEN".to_owned(), SECRET.into())].into();
    let request = CreateSandbox { environment, ..CreateSandbox::default() };
    let id = harness.create(request).await.unwrap().id;
    let workflows = "SELECT coalesce(inputs, '') || coalesce(output, '') FROM workflow_status";
    let steps = "SELECT coalesce(output, '') || coalesce(error, '') FROM operation_outputs";
    let events = "SELECT data FROM sandbox_events";
    for sql in [workflows, steps, events] {
        let rows = harness.texts(sql).await;
        assert!(!rows.is_empty() && rows.iter().all(|row| !row.contains(SECRET)), "{sql}");
    }
    call(&harness, "stop", json!({"id": id})).await.unwrap();
    call(&harness, "start", json!({"id": id})).await.unwrap();
    call(&harness, "kill", json!({"id": id})).await.unwrap();
    let specs = harness.texts("SELECT spec FROM sandbox_instances").await;
    assert!(specs.iter().all(|spec| !spec.contains(SECRET)), "nothing is started with it any more");
}
