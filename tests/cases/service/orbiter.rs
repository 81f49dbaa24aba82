//! Orbiter's object: its states, its scope and its builder.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use stockade_api::{GetSandbox, Problem, Sandboxes as _};
use stockade_core::{Code, State};
use stockade_runtime::Error;
use stockade_service::orbiter::{Builder, ScopedSandbox, Settings, Status};

use crate::harness::{Harness, Side, caller};
use crate::support::{Case, no_driver, same};

pub(crate) async fn case(case: Case) -> Result<(), String> {
    let harness = Harness::new().await;
    match case.name.as_str() {
        "getters return copies, also nested" => copies(&harness, &case),
        "scope guard cleans up" => scope(&harness).await,
        "start that fails moves to error and frees what it made" => start_fails(&harness).await,
        "status is never running before the runtime is ready" => not_ready(&harness).await,
        "failed delete is retried later, id not forgotten" => failed_delete(&harness).await,
        "run_tool needs running" => needs_running(&harness).await,
        "unknown tool is an error, not ok" => {
            let scoped = started(&harness).await;
            let refused =
                harness.run(|_| async move { scoped.run_tool("no_such", Map::new()).await });
            same(Code::ToolUnknown, refused.await.unwrap_err().code)
        }
        name if name.starts_with("builder: ") => builder(&harness, name).await,
        _ => no_driver(),
    }
}

fn scoped(harness: &Harness, settings: Settings) -> ScopedSandbox {
    ScopedSandbox::new(Arc::new(harness.service.clone()), caller("u1"), settings).unwrap()
}

async fn started(harness: &Harness) -> Arc<ScopedSandbox> {
    let scoped = Arc::new(scoped(harness, Settings::default()));
    let starting = scoped.clone();
    harness.run(|_| async move { starting.start().await }).await.unwrap();
    scoped
}

fn copies(harness: &Harness, case: &Case) -> Result<(), String> {
    let scoped = scoped(harness, serde_json::from_value(case.given.clone()).unwrap());
    scoped.workspace().push("/b".to_owned());
    scoped.describe().workspace.push("/b".to_owned());
    scoped.mcp_config()["m"]["nested"] = json!(1);
    scoped.agents().insert("a".to_owned(), json!(1));
    same(vec!["/a".to_owned()], scoped.workspace())?;
    same(vec!["/a".to_owned()], scoped.describe().workspace)?;
    same(json!({"m": {}}), Value::Object(scoped.mcp_config()))?;
    same(Map::new(), scoped.agents())
}

async fn scope(harness: &Harness) -> Result<(), String> {
    // It runs inside and is closed after.
    let (first, second, third) = (
        scoped(harness, Settings::default()),
        scoped(harness, Settings::default()),
        scoped(harness, Settings::default()),
    );
    let id = first.sandbox_id().clone();
    let inside =
        first.scope(async |sandbox: &ScopedSandbox| Ok::<_, Problem>(sandbox.status())).await;
    same(Ok(Status::Running), inside)?;
    same(State::Terminated, harness.status(&id).await.state)?;
    // A user who cleans up and then fails hears of the own error, and it is cleaned up once.
    let own = || Problem::new(Code::InvalidInput, "the user's own");
    let calls = harness.fake.calls("cleanup");
    let failed = second
        .scope(async |sandbox: &ScopedSandbox| {
            sandbox.cleanup().await?;
            Err::<(), _>(own())
        })
        .await;
    same((Err(own()), calls + 1), (failed, harness.fake.calls("cleanup")))?;
    // A use that is dropped is cleaned up behind.
    let id = third.sandbox_id().clone();
    let dropped = tokio::time::timeout(
        std::time::Duration::from_millis(300),
        third.scope(async |_: &ScopedSandbox| {
            std::future::pending::<()>().await;
            Ok::<_, Problem>(())
        }),
    );
    same(true, dropped.await.is_err())?;
    harness.until(&id, State::Terminated).await;
    Ok(())
}

async fn start_fails(harness: &Harness) -> Result<(), String> {
    harness.fake.fail_next("create", Error::Deadline("become ready"));
    let scoped = Arc::new(scoped(harness, Settings::default()));
    let starting = scoped.clone();
    let failed = harness.run(|_| async move { starting.start().await }).await;
    same((true, Status::Error), (failed.is_err(), scoped.status()))?;
    // Nothing remains of it, not even a record.
    let request = GetSandbox { id: scoped.sandbox_id().clone(), metrics: false };
    let found = harness.service.get_status(&caller("u1"), request).await;
    same(
        (0, Some(Code::NotFound)),
        (harness.sandbox_count().await, found.err().map(|it| it.code)),
    )?;
    // It can be started again.
    let starting = scoped.clone();
    harness.run(|_| async move { starting.start().await }).await.unwrap();
    same((1, Status::Running), (harness.sandbox_count().await, scoped.status()))
}

async fn not_ready(harness: &Harness) -> Result<(), String> {
    harness.gate.hold("create", Side::After);
    let scoped = Arc::new(scoped(harness, Settings::default()));
    let starting = scoped.clone();
    let started = harness.spawn(|_| async move { starting.start().await });
    harness.gate.wait_for_held(1).await;
    same(Status::Init, scoped.status())?;
    same(State::Creating, harness.status(scoped.sandbox_id()).await.state)?;
    harness.gate.open();
    started.await.unwrap().unwrap();
    same(Status::Running, scoped.status())
}

async fn failed_delete(harness: &Harness) -> Result<(), String> {
    let scoped = started(harness).await;
    harness.fake.fail_next("cleanup", Error::Deadline("be removed"));
    let closing = scoped.clone();
    harness.run(|_| async move { closing.cleanup().await }).await.unwrap();
    same(Status::Closed, scoped.status())?;
    let row = harness.status(scoped.sandbox_id()).await;
    same(
        (1, true),
        (
            harness.sandbox_count().await,
            row.reason.unwrap().contains("still to be removed from its runtime"),
        ),
    )?;
    harness.service.sweep().await;
    same(0, harness.sandbox_count().await)
}

async fn needs_running(harness: &Harness) -> Result<(), String> {
    let scoped = Arc::new(scoped(harness, Settings::default()));
    let refused = async |status: Status| {
        same(status, scoped.status())?;
        let refused = scoped.run_tool("echo", Map::new()).await.unwrap_err();
        same(
            (Code::InvalidState, true),
            (refused.code, refused.message.contains("must be running")),
        )
    };
    refused(Status::Init).await?;
    harness.fake.fail_next("create", Error::Deadline("start"));
    scoped.start().await.unwrap_err();
    refused(Status::Error).await?;
    scoped.start().await.unwrap();
    scoped.stop().await.unwrap();
    refused(Status::Idle).await?;
    scoped.cleanup().await.unwrap();
    refused(Status::Closed).await?;
    // The service says the same of its own.
    let get = GetSandbox { id: scoped.sandbox_id().clone(), metrics: false };
    let kept = harness.service.get_status(&caller("u1"), get).await.unwrap();
    same(State::Terminated, kept.state)?;
    for call in [scoped.start().await, scoped.stop().await, scoped.cleanup().await] {
        same(true, call.unwrap_err().message.starts_with("Cannot transition from closed"))?;
    }
    Ok(())
}

async fn builder(harness: &Harness, name: &str) -> Result<(), String> {
    let mut builder = Builder::new(Arc::new(harness.service.clone()), caller("u1"));
    match name {
        // The runtime of this host, as for everybody who asks for none.
        "builder: default class" => {
            let id = builder.start().await.unwrap().sandbox_id().clone();
            let row = harness.status(&id).await;
            same((None, "fake"), (row.requested_runtime, row.runtime.as_str()))
        }
        "builder: build is memoised" => {
            same(true, Arc::ptr_eq(&builder.build().unwrap(), &builder.build().unwrap()))
        }
        "builder: repr" => {
            same("Builder(pending)", &*format!("{builder:?}"))?;
            same("Builder(pending)", &*format!("{builder:?}"))?;
            builder.build().unwrap();
            same("Builder(built)", &*format!("{builder:?}"))
        }
        "builder: chaining" => {
            let before = std::ptr::from_ref(&builder);
            let after: *const Builder = builder
                .with_sandbox_id("sb1")
                .with_workspace(vec!["/w".to_owned()])
                .with_mcp_config(Map::new())
                .with_agents(Map::new())
                .with_timeout(10.0)
                .with_extra(Map::new());
            same(before, after)?;
            let described = builder.build().unwrap().describe();
            same(("sb1", 10.0), (described.sandbox_id.as_str(), described.timeout))
        }
        "builder: extra wins" => {
            let extra = json!({"timeout": 999.0}).as_object().unwrap().clone();
            builder.with_timeout(10.0).with_extra(extra).with_timeout(20.0);
            same(999.0, builder.build().unwrap().timeout())?;
            let mut other = Builder::new(Arc::new(harness.service.clone()), caller("u1"));
            other.with_extra(json!({"no_such": 1}).as_object().unwrap().clone());
            same(Code::InvalidInput, other.build().unwrap_err().code)
        }
        "builder: lazy" => {
            same(0, harness.fake.calls("create"))?;
            let started = builder.start().await.unwrap();
            same((1, Status::Running), (harness.fake.calls("create"), started.status()))
        }
        _ => no_driver(),
    }
}
