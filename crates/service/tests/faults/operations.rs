//! Operations that are cancelled, interrupted and queued.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stockade_api::{OperationStatus, Sandboxes as _, dispatch};
use stockade_core::{Code, State};
use stockade_runtime::{Ending as Ended, Runtime as _};
use stockade_service::Options;
use tokio::sync::Semaphore;

use crate::harness::{Harness, Side, caller, program};
use crate::{by_id, call};

#[tokio::test]
async fn a_cancelled_operation_ends_its_command() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    let operation = harness.stream(program(&id, &["sleep", "1000"])).await;
    harness.eventually(async || (harness.fake.calls("execute") == 1).then_some(())).await;
    let cancelled = call(&harness, "cancel_operation", json!(operation)).await.unwrap();
    assert_eq!(cancelled["status"], "cancelled");
    harness
        .eventually(async || {
            let status = harness.fake.inspect(&id).await.unwrap();
            status.execs.iter().all(|exec| exec.ending == Some(Ended::Killed)).then_some(())
        })
        .await;
    // Its remains are removed.
    harness.service.sweep().await;
    assert_eq!(harness.fake.inspect(&id).await.unwrap().execs, []);
    // An operation that creates, changes or watches a sandbox cannot be cancelled.
    let workflow = harness.status(&id).await.workflow_id.unwrap();
    let ended = call(&harness, "cancel_operation", json!(workflow)).await.unwrap();
    assert_eq!(ended["status"], "succeeded");
    harness.gate.hold("pause", Side::Before);
    let pause = by_id(&id);
    let pausing =
        harness.spawn(|s| async move { s.pause(&caller("u1").with_key("k"), pause).await });
    harness.gate.wait_for_held(1).await;
    let key = harness.service.engine().list(stockade_durable::Filter {
        name: Some("sandbox.pause".to_owned()),
        ..Default::default()
    });
    let workflow = key.await.unwrap()[0].id.as_str().to_owned();
    let refused = call(&harness, "cancel_operation", json!(workflow)).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidState);
    harness.gate.open();
    assert_eq!(pausing.await.unwrap().unwrap().state, State::Paused);
}

#[tokio::test]
async fn a_cancelled_tool_ends_what_it_began() {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    let request = json!({"sandboxId": id, "tool": "shell", "arguments": {"command": "sleep 1000"}});
    let calling = harness.spawn(|s| async move {
        let request = serde_json::to_vec(&request).unwrap();
        dispatch(&s, &caller("u1"), "run_tool", &request).await
    });
    harness.eventually(async || (harness.fake.calls("execute") == 1).then_some(())).await;
    let filter = stockade_durable::Filter {
        name: Some("sandbox.run_tool".to_owned()),
        ..Default::default()
    };
    let workflow = harness.service.engine().list(filter).await.unwrap()[0].id.clone();
    call(&harness, "cancel_operation", json!(workflow)).await.unwrap();
    assert_eq!(calling.await.unwrap().unwrap_err().code, Code::Cancelled);
    harness
        .eventually(async || {
            let status = harness.fake.inspect(&id).await.unwrap();
            status.execs.iter().all(|exec| exec.ending.is_some()).then_some(())
        })
        .await;
}

#[tokio::test]
async fn an_orderly_end_leaves_commands_to_the_next_service() {
    let mut harness = Harness::new().await;
    let door = Arc::new(Semaphore::new(0));
    let waiting = door.clone();
    harness.fake.program("wait", move |process| {
        let waiting = waiting.clone();
        async move {
            drop(waiting.acquire().await);
            process.print("done");
            Ended::Exited(0)
        }
    });
    let id = harness.sandbox().await;
    let operation = harness.stream(program(&id, &["wait"])).await;
    harness.eventually(async || (harness.fake.calls("execute") == 1).then_some(())).await;
    harness.run(|s| async move { s.shutdown(Duration::from_millis(50)).await }).await;
    harness.kill().await;
    door.add_permits(1);
    let ended = harness.result(&operation).await;
    assert_eq!(ended.status, OperationStatus::Succeeded);
    assert_eq!(ended.result.unwrap()["exitCode"], 0);
    assert_eq!(harness.fake.calls("kill"), 0);
}

#[tokio::test]
async fn queued_commands_wait_for_their_turn_and_inline_ones_do_not() {
    let options = Options { worker_concurrency: 3, ..Options::default() };
    let harness = Harness::with(options).await;
    let (door, id) = (Arc::new(Semaphore::new(0)), harness.sandbox().await);
    let waiting = door.clone();
    harness.fake.program("wait", move |_| {
        let waiting = waiting.clone();
        async move {
            if let Ok(pass) = waiting.acquire().await {
                pass.forget();
            }
            Ended::Exited(0)
        }
    });
    let mut operations = Vec::new();
    for _ in 0..8 {
        let mut execute = program(&id, &["wait"]);
        execute.queued = true;
        operations.push(harness.stream(execute).await);
    }
    harness.eventually(async || (harness.fake.calls("execute") == 3).then_some(())).await;
    let execute = program(&id, &["true"]);
    harness.run(|s| async move { s.execute(&caller("u1"), execute).await }).await.unwrap();
    assert_eq!(harness.fake.calls("execute"), 4, "the queue lets three run");
    let waits = harness.service.operation(&caller("u1"), operations[7].clone()).await.unwrap();
    assert_eq!(waits.status, OperationStatus::Waiting);
    door.add_permits(8);
    for operation in &operations {
        assert_eq!(harness.result(operation).await.status, OperationStatus::Succeeded);
    }
    let mut execute = program(&id, &["true"]);
    execute.queued = true;
    let refused = harness.run(|s| async move { s.execute(&caller("u1"), execute).await }).await;
    assert_eq!(refused.unwrap_err().code, Code::InvalidInput);
}
