//! FireFlow's lifecycle: create, pause, renew, the end of a life, the watcher, commands.

use stockade_api::{
    ById, CommandLine, CreateSandbox, Execute, Expiry, KillSandbox, OperationStatus, Renew,
    Result as Answer, Sandbox, Sandboxes as _, SyncFiles, Vfs,
};
use stockade_core::event::Kind;
use stockade_core::{Code, SandboxId, State};
use stockade_durable::{Filter, WorkflowId};
use stockade_runtime::Error;
use stockade_service::fireflow::Status;
use stockade_service::{Home, Options};

use crate::harness::{Harness, Side, caller, program};
use crate::support::{Case, no_driver, same};

pub(crate) async fn case(case: Case) -> Result<(), String> {
    match case.name.as_str() {
        "create writes the row" => row().await,
        "row exists before the container" => row_first().await,
        "pause / resume" => pause_resume().await,
        "pause of paused" => {
            let harness = Harness::new().await;
            let id = harness.sandbox().await;
            step(&harness, &id, "pause").await.unwrap();
            let refused = step(&harness, &id, "pause").await.unwrap_err();
            same(Code::InvalidState, refused.code)?;
            same(vec![Kind::SandboxCreated, Kind::SandboxPaused], harness.kinds().await)
        }
        "renew extends" => {
            let harness = Harness::new().await;
            let request =
                CreateSandbox { expiry: Expiry::Seconds(60.0), ..CreateSandbox::default() };
            let sandbox = harness.create(request).await.unwrap();
            let renewed = renew(&harness, &sandbox.id, 600.0).await.unwrap();
            let more = renewed.expires_at.unwrap().duration_since(sandbox.expires_at.unwrap());
            same(true, (539..=560).contains(&more.as_secs()))?;
            same(vec![Kind::SandboxCreated, Kind::SandboxRenewed], harness.kinds().await)
        }
        "renew never shortens unless asked" => {
            let harness = Harness::new().await;
            let before = harness.create(CreateSandbox::default()).await.unwrap();
            let answer = renew(&harness, &before.id, 60.0).await.unwrap();
            same(before.expires_at, answer.expires_at)?;
            let request = Renew { id: before.id.clone(), ttl_seconds: Some(60.0), shorten: true };
            let asked = harness.run(|s| async move { s.renew(&caller("u1"), request).await });
            same(true, asked.await.unwrap().expires_at < before.expires_at)
        }
        "ttl bounds" => {
            let harness = Harness::new().await;
            for seconds in [0.0, -1.0, f64::NAN, 1e12, f64::INFINITY] {
                let expiry = Expiry::Seconds(seconds);
                let request = CreateSandbox { expiry, ..CreateSandbox::default() };
                let refused = harness.create(request).await.unwrap_err();
                same(
                    (seconds.to_string(), Code::InvalidInput),
                    (seconds.to_string(), refused.code),
                )?;
            }
            same(0, harness.fake.calls("create"))
        }
        "watcher id" => watcher_id().await,
        "watcher sees outside death" => {
            let harness = Harness::watchful().await;
            let id = harness.sandbox().await;
            harness.fake.crash();
            let ended = harness.until(&id, State::Terminated).await;
            same((true, Some("gone".to_owned())), (ended.terminated_at.is_some(), ended.reason))?;
            let watcher = WorkflowId::new(id.watcher_id()).unwrap();
            let engine = harness.service.engine();
            harness
                .eventually(async || {
                    let info = engine.info(&watcher).await.unwrap().unwrap();
                    info.status.is_terminal().then_some(())
                })
                .await;
            Ok(())
        }
        "watcher tolerates errors" => {
            let harness = Harness::watchful().await;
            for _ in 0..3 {
                let source = std::io::ErrorKind::ConnectionRefused.into();
                let what = "the keeper".to_owned();
                harness.fake.fail_next("inspect", Error::Unreachable { what, source });
            }
            let id = harness.sandbox().await;
            harness.eventually(async || (harness.fake.calls("inspect") > 4).then_some(())).await;
            same(State::Running, harness.status(&id).await.state)
        }
        "nonzero exit is a result" => {
            let harness = Harness::new().await;
            let id = harness.sandbox().await;
            let line = Execute::new(id, CommandLine::Shell("exit 3".to_owned()));
            let done = harness.run(|s| async move { s.execute(&caller("u1"), line).await }).await;
            same(Some(3), done.unwrap().end.exit_code)?;
            same(vec![Kind::SandboxCreated, Kind::CommandCompleted], harness.kinds().await)
        }
        "event set" => event_set().await,
        "long operation handle" => {
            let harness = Harness::new().await;
            let id = harness.sandbox().await;
            let operation = harness.stream(program(&id, &["echo", "x"])).await;
            same(false, operation.0.is_empty())?;
            let ended = harness.result(&operation).await;
            same((OperationStatus::Succeeded, true), (ended.status, ended.result.is_some()))?;
            let polled = harness.service.operation(&caller("u1"), operation).await.unwrap();
            same(ended, polled)
        }
        "gid without uid" => {
            let harness = Harness::new().await;
            let id = harness.sandbox().await;
            let execute = Execute { gid: Some(1000), ..program(&id, &["true"]) };
            let refused = harness.run(|s| async move { s.execute(&caller("u1"), execute).await });
            same(Code::InvalidInput, refused.await.unwrap_err().code)
        }
        _ => no_driver(),
    }
}

/// One of each operation, with a directory of the host as the other side of both transfers.
async fn event_set() -> Result<(), String> {
    let place = tempfile::tempdir().unwrap();
    let home = Home { path: place.path().join("data"), owner: caller("u1").owner };
    let harness = Harness::with(Options { home: Some(home), ..Options::default() }).await;
    let id = harness.sandbox().await;
    let directory = place.path().join("files");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("a"), "1").unwrap();
    renew(&harness, &id, 7200.0).await.unwrap();
    for operation in ["pause", "resume"] {
        step(&harness, &id, operation).await.unwrap();
    }
    let execute = program(&id, &["true"]);
    harness.run(|s| async move { s.execute(&caller("u1"), execute).await }).await.unwrap();
    for into in [true, false] {
        let directory = directory.as_os_str().as_encoded_bytes().to_vec();
        let vfs = Vfs { directory: Some(directory.into()), ..Vfs::default() };
        let request = SyncFiles::new(id.clone(), b"/tmp/files".to_vec(), vfs);
        let started = harness.run(move |service| async move {
            match into {
                true => service.sync_from_vfs(&caller("u1"), request).await,
                false => service.sync_to_vfs(&caller("u1"), request).await,
            }
        });
        let ended = harness.result(&started.await.unwrap().workflow_id).await;
        same((OperationStatus::Succeeded, None), (ended.status, ended.error))?;
    }
    let kill = KillSandbox { id, discard: false };
    harness.run(|s| async move { s.kill(&caller("u1"), kill).await }).await.unwrap();
    let mut kinds = harness.kinds().await;
    kinds.sort_by_key(|kind| kind.as_str());
    let mut expected: Vec<_> = Kind::ALL[..8].to_vec();
    expected.sort_by_key(|kind| kind.as_str());
    same(expected, kinds)
}

async fn row() -> Result<(), String> {
    let harness = Harness::new().await;
    let image = Some("an-image".to_owned());
    let request =
        CreateSandbox { image, expiry: Expiry::Seconds(60.0), ..CreateSandbox::default() };
    let sandbox = harness.create(request).await.unwrap();
    let row = harness.status(&sandbox.id).await;
    let told = (row.owner_id.as_str(), row.image.as_str(), row.visibility.as_str());
    same(("u1", "an-image", "private"), told)?;
    same("running", Status::from_state(row.state).as_str())?;
    same(60, row.expires_at.unwrap().duration_since(row.created_at).as_secs())?;
    same(vec![Kind::SandboxCreated], harness.kinds().await)
}

async fn row_first() -> Result<(), String> {
    let mut harness = Harness::new().await;
    harness.gate.hold("create", Side::After);
    let _cut = harness.spawn(|service| async move {
        service.create(&caller("u1"), CreateSandbox::default()).await
    });
    harness.gate.wait_for_held(1).await;
    harness.kill().await;
    let list = harness
        .eventually(async || {
            let list = harness.service.list(&caller("u1"), Default::default()).await.unwrap();
            list.sandboxes.iter().all(|s| s.state == State::Running).then_some(list.sandboxes)
        })
        .await;
    same((1, 1), (list.len(), harness.sandbox_count().await))
}

async fn pause_resume() -> Result<(), String> {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    same(State::Paused, step(&harness, &id, "pause").await.unwrap().state)?;
    same(State::Running, step(&harness, &id, "resume").await.unwrap().state)?;
    let expected = vec![Kind::SandboxCreated, Kind::SandboxPaused, Kind::SandboxResumed];
    same(expected, harness.kinds().await)
}

async fn watcher_id() -> Result<(), String> {
    let harness = Harness::new().await;
    let id = Some(SandboxId::new("sb1").unwrap());
    harness.create(CreateSandbox { id, ..CreateSandbox::default() }).await.unwrap();
    harness.service.sweep().await;
    let filter = Filter { name: Some("sandbox.watch".to_owned()), ..Filter::default() };
    let watchers = harness.service.engine().list(filter).await.unwrap();
    let ids: Vec<_> = watchers.iter().map(|info| info.id.as_str()).collect();
    same(vec!["sandbox-watcher:sb1"], ids)
}

async fn step(harness: &Harness, id: &SandboxId, operation: &'static str) -> Answer<Sandbox> {
    let by_id = ById { id: id.clone() };
    let done = harness.run(move |service| async move {
        let me = caller("u1");
        if operation == "pause" {
            service.pause(&me, by_id).await
        } else {
            service.resume(&me, by_id).await
        }
    });
    done.await
}

async fn renew(harness: &Harness, id: &SandboxId, ttl_seconds: f64) -> Answer<Sandbox> {
    let request = Renew { id: id.clone(), ttl_seconds: Some(ttl_seconds), shorten: false };
    harness.run(|service| async move { service.renew(&caller("u1"), request).await }).await
}
