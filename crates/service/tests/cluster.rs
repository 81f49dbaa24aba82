//! Several servers on one database: each holds its own sandboxes, and gives up those of a server that is
//! silent.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod harness;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stockade_api::{
    ById, CreateSandbox, GetSandbox, KillSandbox, ListSandboxes, OperationStatus, Sandbox,
    Sandboxes as _,
};
use stockade_core::{Code, SandboxId, State};
use stockade_durable::Store;
use stockade_runtime::Runtime as _;
use stockade_runtime::fake::Fake;
use stockade_service::{Cluster, Destination, MIGRATIONS, Options, Service};

use harness::{PATIENCE, caller, database, program};

const HEARTBEAT: Duration = Duration::from_millis(50);

/// A server of the cluster, which can be killed.
struct Server {
    service: Service,
    fake: Fake,
    process: Option<tokio::runtime::Runtime>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.shutdown_background();
        }
    }
}

impl Server {
    /// A server with this runtime, whose sandboxes outlive it.
    async fn start(store: &Arc<dyn Store>, id: &str, fake: &Fake) -> Self {
        let cluster = Cluster {
            address: format!("http://127.0.0.1/{id}"),
            holds_sandboxes: id != "front",
            heartbeat: HEARTBEAT,
            patience: Duration::from_millis(600),
        };
        let options = Options {
            executor_id: id.to_owned(),
            cluster: Some(cluster),
            watch_interval: Duration::from_millis(20),
            ..Options::default()
        };
        let mut process = tokio::runtime::Builder::new_multi_thread();
        let process = process.worker_threads(2).enable_all().build().unwrap();
        let (store, runtime) = (Arc::clone(store), Arc::new(fake.clone()));
        let launched =
            process.spawn(async move { Service::launch(store, vec![runtime], options).await });
        let service = launched.await.unwrap().unwrap();
        Self { service, fake: fake.clone(), process: Some(process) }
    }

    /// Kills it: its work is dropped at any point.
    async fn kill(mut self) {
        let process = self.process.take().unwrap();
        tokio::task::spawn_blocking(move || process.shutdown_timeout(PATIENCE)).await.unwrap();
    }

    async fn create(&self, request: CreateSandbox) -> Sandbox {
        self.service.create(&caller("u1"), request).await.unwrap()
    }

    async fn status(&self, id: &SandboxId) -> Sandbox {
        let request = GetSandbox { id: id.clone(), metrics: false };
        self.service.get_status(&caller("u1"), request).await.unwrap()
    }

    /// Where a request is executed.
    async fn destination(&self, operation: &str, request: serde_json::Value) -> Option<String> {
        let owner = caller("u1").owner;
        let found = self.service.destination(&owner, operation, &request).await.unwrap();
        found.map(|Destination { host, address }| {
            assert_eq!(address, format!("http://127.0.0.1/{host}"));
            host
        })
    }
}

async fn eventually(mut condition: impl AsyncFnMut() -> bool) {
    let seen = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, seen).await.unwrap();
}

struct World {
    _directory: tempfile::TempDir,
    store: Arc<dyn Store>,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = database::open(directory.path().join("stockade.db"), MIGRATIONS).await.unwrap();
        Self { _directory: directory, store }
    }

    async fn server(&self, id: &str) -> Server {
        Server::start(&self.store, id, &Fake::new()).await
    }
}

#[tokio::test]
async fn a_sandbox_is_held_by_the_server_that_created_it() {
    let world = World::new().await;
    let (a, b) = (world.server("a").await, world.server("b").await);
    let id = a.create(CreateSandbox::default()).await.id;
    assert_eq!(b.destination("execute", json!({ "sandboxId": id })).await.as_deref(), Some("a"));
    assert_eq!(a.destination("execute", json!({ "sandboxId": id })).await, None);
    assert_eq!(b.destination("create", json!({})).await, None);
    // Others learn nothing about it.
    let other = caller("u2").owner;
    let found = b.service.destination(&other, "stop", &json!({ "id": id })).await;
    assert_eq!(found, Ok(None));
    // What belongs to no server is answered by each.
    assert_eq!(b.status(&id).await.state, State::Running);
    let listed = b.service.list(&caller("u1"), ListSandboxes::default()).await.unwrap();
    assert_eq!(listed.sandboxes.len(), 1);
    // The other server touches it in no way, also if a request is not passed on.
    for refused in [
        b.service.execute(&caller("u1"), program(&id, &["true"])).await.err(),
        b.service.stop(&caller("u1"), ById { id: id.clone() }).await.err(),
        b.service.start(&caller("u1"), ById { id: id.clone() }).await.err(),
        b.service.kill(&caller("u1"), KillSandbox::new(id.clone())).await.err(),
    ] {
        let refused = refused.unwrap();
        assert!(refused.code == Code::Unreachable && refused.retryable, "{refused:?}");
    }
    b.service.sweep().await;
    assert_eq!(b.fake.calls("create"), 0);
    assert_eq!(a.status(&id).await.state, State::Running);
    assert!(a.service.execute(&caller("u1"), program(&id, &["true"])).await.is_ok());
}

#[tokio::test]
async fn a_server_without_sandboxes_passes_new_ones_to_the_emptiest() {
    let world = World::new().await;
    let front = world.server("front").await;
    let owner = caller("u1").owner;
    let none = front.service.destination(&owner, "create", &json!({})).await.unwrap_err();
    assert_eq!(none.code, Code::Unreachable);
    let (a, b) = (world.server("a").await, world.server("b").await);
    a.create(CreateSandbox::default()).await;
    assert_eq!(front.destination("create", json!({})).await.as_deref(), Some("b"));
    b.create(CreateSandbox::default()).await;
    b.create(CreateSandbox::default()).await;
    assert_eq!(front.destination("create", json!({})).await.as_deref(), Some("a"));
    // One that ends takes no new ones.
    a.service.shutdown(Duration::from_secs(1)).await;
    assert_eq!(front.destination("create", json!({})).await.as_deref(), Some("b"));
    let local = json!({ "workspace": { "host": "/" } });
    let refused = front.service.destination(&owner, "create", &local).await.unwrap_err();
    assert_eq!(refused.code, Code::Unsupported);
}

#[tokio::test]
async fn a_dead_server_is_given_up_and_nothing_runs_twice() {
    let world = World::new().await;
    let (a, b) = (world.server("a").await, world.server("b").await);
    let id = a.create(CreateSandbox::default()).await.id;
    let started = a.service.execute_stream(&caller("u1"), program(&id, &["sleep", "1000"])).await;
    let operation = started.unwrap().workflow_id;
    let fake = a.fake.clone();
    eventually(async || fake.calls("execute") > 0).await;
    a.kill().await;
    eventually(async || b.status(&id).await.state == State::Stopped).await;
    assert_eq!(b.status(&id).await.reason.as_deref(), Some("host_lost"));
    let info = b.service.operation(&caller("u1"), operation.clone()).await.unwrap();
    assert_eq!(info.status, OperationStatus::Failed);
    let problem = info.error.unwrap();
    assert!(problem.code == Code::Unreachable && problem.retryable, "{problem:?}");
    let owner = caller("u1").owner;
    let refused = b.service.destination(&owner, "start", &json!({ "id": id })).await.unwrap_err();
    assert_eq!(refused.code, Code::Unreachable);
    assert_eq!(b.fake.all_calls(), b.fake.calls("list") + b.fake.calls("snapshots"));
    // It is back: the processes that nobody waits for end, and the files are still there.
    let a = Server::start(&world.store, "a", &fake).await;
    let ended = async || {
        a.service.sweep().await;
        fake.inspect(&id).await.unwrap().state == stockade_runtime::State::Ended
    };
    eventually(ended).await;
    assert_eq!(b.destination("start", json!({ "id": id })).await.as_deref(), Some("a"));
    let started = a.service.start(&caller("u1"), ById { id: id.clone() }).await.unwrap();
    assert_eq!(started.state, State::Running);
    let info = a.service.operation(&caller("u1"), operation).await.unwrap();
    assert_eq!(info.status, OperationStatus::Failed);
}

#[tokio::test]
async fn a_restart_within_the_patience_loses_nothing() {
    let world = World::new().await;
    let (a, b) = (world.server("a").await, world.server("b").await);
    let id = a.create(CreateSandbox::default()).await.id;
    a.service.shutdown(Duration::from_secs(1)).await;
    let fake = a.fake.clone();
    a.kill().await;
    let owner = caller("u1").owner;
    let refused = b.service.destination(&owner, "stop", &json!({ "id": id })).await.unwrap_err();
    assert_eq!(refused.code, Code::Unreachable);
    let a = Server::start(&world.store, "a", &fake).await;
    tokio::time::sleep(HEARTBEAT * 3).await;
    assert_eq!(b.status(&id).await.state, State::Running);
    assert!(a.service.execute(&caller("u1"), program(&id, &["true"])).await.is_ok());
}

#[tokio::test]
async fn a_sandbox_of_a_lost_server_can_be_killed_and_its_id_used_again() {
    let world = World::new().await;
    let (a, b) = (world.server("a").await, world.server("b").await);
    let id = SandboxId::new("box").unwrap();
    let named = CreateSandbox { id: Some(id.clone()), ..CreateSandbox::default() };
    a.create(named.clone()).await;
    let fake = a.fake.clone();
    a.kill().await;
    let owner = caller("u1").owner;
    let kill = json!({ "id": id });
    // Not as long as it may be back.
    eventually(async || {
        let refused = b.service.destination(&owner, "kill", &kill).await.err();
        refused.is_some_and(|it| it.remediation.unwrap().contains("stockade kill"))
    })
    .await;
    eventually(async || b.status(&id).await.state == State::Stopped).await;
    assert_eq!(b.destination("kill", kill).await, None);
    let other = b.service.kill(&caller("u2"), KillSandbox::new(id.clone())).await.unwrap_err();
    assert_eq!(other.code, Code::NotFound);
    let killed = b.service.kill(&caller("u1"), KillSandbox::new(id.clone())).await.unwrap();
    assert_eq!(killed.state, State::Terminated);
    let reason = killed.reason.unwrap();
    assert!(reason.starts_with("host_lost; its server a does not answer"), "{reason}");
    assert!(
        b.service.list(&caller("u1"), ListSandboxes::default()).await.unwrap().sandboxes.is_empty()
    );
    assert_eq!(b.fake.calls("cleanup"), 0);
    // Its id is free, also while the server is away.
    assert_eq!(b.create(named).await.state, State::Running);
    // It is back: what it still has of it is removed, and the new one is left alone.
    assert!(fake.inspect(&id).await.is_ok());
    let a = Server::start(&world.store, "a", &fake).await;
    // Before it can create anything.
    assert!(fake.inspect(&id).await.is_err());
    a.service.sweep().await;
    assert_eq!(b.status(&id).await.state, State::Running);
    assert!(b.service.execute(&caller("u1"), program(&id, &["true"])).await.is_ok());
    let all = ListSandboxes { states: vec![State::Terminated], ..ListSandboxes::default() };
    let ended = b.service.list(&caller("u1"), all).await.unwrap().sandboxes;
    assert_eq!(ended[0].reason.as_deref(), Some("host_lost"));
}

#[tokio::test]
async fn what_a_lost_server_has_is_removed_when_it_creates_another_one_with_the_id() {
    let world = World::new().await;
    let (a, b) = (world.server("a").await, world.server("b").await);
    let id = SandboxId::new("box").unwrap();
    let named = CreateSandbox { id: Some(id.clone()), ..CreateSandbox::default() };
    a.create(named.clone()).await;
    let fake = a.fake.clone();
    a.kill().await;
    eventually(async || b.status(&id).await.state == State::Stopped).await;
    b.service.kill(&caller("u1"), KillSandbox::new(id.clone())).await.unwrap();
    let a = Server::start(&world.store, "a", &fake).await;
    assert_eq!(a.create(named).await.state, State::Running);
    a.service.sweep().await;
    assert!(a.service.execute(&caller("u1"), program(&id, &["true"])).await.is_ok());
    assert_eq!(a.status(&id).await.state, State::Running);
}

#[tokio::test]
async fn changes_on_a_lost_server_are_only_given_up_on_request() {
    let world = World::new().await;
    let (a, b) = (world.server("a").await, world.server("b").await);
    let project = tempfile::tempdir().unwrap();
    let workspace = json!({ "host": project.path(), "inside": "/project" });
    let workspace = serde_json::from_value(workspace).unwrap();
    let id = a.create(CreateSandbox { workspace, ..CreateSandbox::default() }).await.id;
    a.kill().await;
    eventually(async || b.status(&id).await.state == State::Stopped).await;
    let refused = b.service.kill(&caller("u1"), KillSandbox::new(id.clone())).await.unwrap_err();
    assert_eq!(refused.code, Code::Unreachable);
    assert!(refused.remediation.unwrap().contains("kill --discard"));
    assert_eq!(b.status(&id).await.state, State::Stopped);
    let discard = KillSandbox::discarding(id.clone());
    assert_eq!(b.service.kill(&caller("u1"), discard).await.unwrap().state, State::Terminated);
}
