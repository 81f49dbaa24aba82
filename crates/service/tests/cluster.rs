//! Several servers on one database: each holds its own sandboxes, and gives up those of a server that is
//! silent.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod harness;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stockade_api::{
    ById, CreateSandbox, CreateVolume, Empty, GetSandbox, KillSandbox, ListSandboxes,
    OperationStatus, Sandbox, Sandboxes as _, TakeSnapshot, VolumeByName, WorkspaceByName,
};
use stockade_core::{Code, Problem, SandboxId, SnapshotId, State, VolumeName};
use stockade_durable::Store;
use stockade_runtime::Runtime as _;
use stockade_runtime::fake::Fake;
use stockade_service::{
    Cluster, Destination, Home, Lookup, MIGRATIONS, Options, Placement, Service,
};

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
    async fn start(world: &World, id: &str, fake: &Fake) -> Self {
        let cluster = Cluster {
            address: format!("http://127.0.0.1/{id}"),
            holds_sandboxes: id != "front",
            heartbeat: HEARTBEAT,
            patience: Duration::from_millis(600),
        };
        let options = Options {
            executor_id: id.to_owned(),
            cluster: Some(cluster),
            home: Some(world.home(id)),
            watch_interval: Duration::from_millis(20),
            ..Options::default()
        };
        let mut process = tokio::runtime::Builder::new_multi_thread();
        let process = process.worker_threads(2).enable_all().build().unwrap();
        let (store, runtime) = (Arc::clone(&world.store), Arc::new(fake.clone()));
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
        match self.placement("u1", operation, request).await.unwrap() {
            Placement::Here => None,
            Placement::There(Destination { host, address }) => {
                assert_eq!(address, format!("http://127.0.0.1/{host}"));
                Some(host)
            }
            other => {
                assert_eq!(other, Placement::Here, "{operation}");
                None
            }
        }
    }

    async fn placement(
        &self,
        owner: &str,
        operation: &str,
        request: serde_json::Value,
    ) -> Result<Placement, Problem> {
        self.service.placement(&caller(owner), operation, &request, Lookup::Records).await
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
    directory: tempfile::TempDir,
    store: Arc<dyn Store>,
}

impl World {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = database::open(directory.path().join("stockade.db"), MIGRATIONS).await.unwrap();
        Self { directory, store }
    }

    /// The data directory of a server.
    fn home(&self, id: &str) -> Home {
        Home { path: self.directory.path().join(id), owner: caller("u1").owner }
    }

    async fn server(&self, id: &str) -> Server {
        Server::start(self, id, &Fake::new()).await
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
    let found = b.placement("u2", "stop", json!({ "id": id })).await;
    assert_eq!(found, Ok(Placement::Here));
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
    let none = front.placement("u1", "create", json!({})).await.unwrap_err();
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
    let refused = front.placement("u1", "create", local).await.unwrap_err();
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
    let refused = b.placement("u1", "start", json!({ "id": id })).await.unwrap_err();
    assert_eq!(refused.code, Code::Unreachable);
    assert_eq!(b.fake.all_calls(), b.fake.calls("list") + b.fake.calls("snapshots"));
    // It is back: the processes that nobody waits for end, and the files are still there.
    let a = Server::start(&world, "a", &fake).await;
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
    let refused = b.placement("u1", "stop", json!({ "id": id })).await.unwrap_err();
    assert_eq!(refused.code, Code::Unreachable);
    let a = Server::start(&world, "a", &fake).await;
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
    let kill = json!({ "id": id });
    // Not as long as it may be back.
    eventually(async || {
        let refused = b.placement("u1", "kill", kill.clone()).await.err();
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
    let a = Server::start(&world, "a", &fake).await;
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
    let a = Server::start(&world, "a", &fake).await;
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

fn volume(name: &str) -> CreateVolume {
    CreateVolume { name: Some(VolumeName::new(name).unwrap()), ..CreateVolume::default() }
}

fn workspace(name: &str) -> WorkspaceByName {
    WorkspaceByName { name: VolumeName::new(name).unwrap() }
}

#[tokio::test]
async fn volumes_and_workspaces_are_found_on_their_server_and_names_are_taken_once() {
    let world = World::new().await;
    let (a, b) = (world.server("a").await, world.server("b").await);
    let me = caller("u1");
    a.service.create_volume(&me, volume("data")).await.unwrap();
    a.service.create_workspace(&me, workspace("notes")).await.unwrap();
    let named = json!({ "name": "data" });
    assert_eq!(b.destination("find_volume", named.clone()).await.as_deref(), Some("a"));
    assert_eq!(b.destination("create_volume", named.clone()).await.as_deref(), Some("a"));
    assert_eq!(a.destination("remove_volume", named.clone()).await, None);
    let notes = json!({ "name": "notes" });
    assert_eq!(b.destination("commit_workspace", notes).await.as_deref(), Some("a"));
    // Also if both are asked at the same time: one of them has it.
    let taken = b.service.create_volume(&me, volume("data")).await.unwrap_err();
    assert!(taken.code == Code::Unreachable && taken.retryable, "{taken:?}");
    assert!(b.service.volumes(&me, Empty {}).await.unwrap().volumes.is_empty());
    // A sandbox with it is created there; one with two of different servers nowhere.
    let with = |names: &[&str]| {
        let mounts = names.iter().map(|name| json!({ "name": name, "inside": "/v" }));
        json!({ "volumes": mounts.collect::<Vec<_>>() })
    };
    assert_eq!(b.destination("create", with(&["data"])).await.as_deref(), Some("a"));
    b.service.create_volume(&me, volume("other")).await.unwrap();
    let apart = b.placement("u1", "create", with(&["data", "other"])).await.unwrap_err();
    assert_eq!(apart.code, Code::Unsupported);
    // Those of another owner are not those.
    let found = b.placement("u2", "create", with(&["data"])).await.unwrap();
    assert!(matches!(found, Placement::Unrecorded(_)), "{found:?}");
    // A list is one of all servers.
    let listed = b.placement("u1", "volumes", json!({})).await.unwrap();
    let Placement::Everywhere { others, silent } = listed else { panic!("{listed:?}") };
    assert_eq!((others.len(), silent.len()), (1, 0));
    // A name is free again once it was removed.
    a.service
        .remove_volume(&me, VolumeByName { name: VolumeName::new("data").unwrap() })
        .await
        .unwrap();
    b.service.create_volume(&me, volume("data")).await.unwrap();
    assert_eq!(a.destination("find_volume", named).await.as_deref(), Some("b"));
}

#[tokio::test]
async fn what_a_lost_server_has_is_named_and_can_be_given_up() {
    let world = World::new().await;
    let (a, b) = (world.server("a").await, world.server("b").await);
    let me = caller("u1");
    a.service.create_volume(&me, volume("data")).await.unwrap();
    a.service.create_workspace(&me, workspace("notes")).await.unwrap();
    let id = a.create(CreateSandbox::default()).await.id;
    let kept = SnapshotId::new("kept").unwrap();
    let take = |id: SandboxId| TakeSnapshot { sandbox_id: id, id: Some(kept.clone()), name: None };
    a.service.snapshot(&me, take(id)).await.unwrap();
    let fake = a.fake.clone();
    a.kill().await;
    let named = json!({ "name": "data" });
    for (operation, request) in [
        ("find_volume", named.clone()),
        ("create_volume", named),
        ("read_workspace", json!({ "name": "notes" })),
        ("restore", json!({ "snapshotId": "kept" })),
        ("create", json!({ "volumes": [{ "name": "data", "inside": "/v" }] })),
    ] {
        eventually(async || b.placement("u1", operation, request.clone()).await.is_err()).await;
        let refused = b.placement("u1", operation, request).await.unwrap_err();
        assert!(refused.code == Code::Unreachable && refused.retryable, "{refused:?}");
        assert!(refused.cause.as_ref().unwrap().contains("the server a"), "{refused:?}");
    }
    let listed = b.placement("u1", "workspaces", json!({})).await.unwrap();
    assert_eq!(listed, Placement::Everywhere { others: vec![], silent: vec!["a".to_owned()] });
    // Once it was given up, another server ends the records, and the names are free.
    let given_up =
        async || b.placement("u1", "remove_snapshot", json!("kept")).await == Ok(Placement::Here);
    eventually(given_up).await;
    b.service.remove_snapshot(&me, kept.clone()).await.unwrap();
    b.service.remove_workspace(&me, workspace("notes")).await.unwrap();
    let data = || VolumeByName { name: VolumeName::new("data").unwrap() };
    b.service.remove_volume(&me, data()).await.unwrap();
    assert_eq!(b.service.snapshots(&me, Empty {}).await.unwrap(), []);
    b.service.create_volume(&me, volume("data")).await.unwrap();
    let other = b.create(CreateSandbox::default()).await.id;
    b.service.snapshot(&me, take(other)).await.unwrap();
    // When it is back, it removes what it has, and nothing of the others.
    assert_eq!(fake.snapshots().await.unwrap().len(), 1);
    let a = Server::start(&world, "a", &fake).await;
    a.service.sweep().await;
    assert_eq!(fake.snapshots().await.unwrap(), []);
    assert!(a.service.find_volume(&me, data()).await.is_err());
    assert!(a.service.volumes(&me, Empty {}).await.unwrap().volumes.is_empty());
    assert!(a.service.workspaces(&me, Empty {}).await.unwrap().workspaces.is_empty());
    assert_eq!(a.destination("find_volume", json!({ "name": "data" })).await.as_deref(), Some("b"));
    assert_eq!(b.service.snapshots(&me, Empty {}).await.unwrap().len(), 1);
    assert_eq!(b.fake.snapshots().await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_was_made_without_a_server_is_recorded() {
    let world = World::new().await;
    let (a, b) = (world.server("a").await, world.server("b").await);
    let data = stockade_bundle::data::DataDir::open(&world.home("a").path).unwrap();
    let volumes = stockade_volume::Volumes::open(&data, &caller("u1").owner).unwrap();
    let now = stockade_core::Time::from_ms(0);
    volumes.create(&VolumeName::new("local").unwrap(), &[].into(), false, now).unwrap();
    let named = json!({ "name": "local" });
    // By the server itself after a while, and at once if it is asked.
    eventually(async || {
        matches!(b.placement("u1", "find_volume", named.clone()).await, Ok(Placement::There(_)))
    })
    .await;
    assert_eq!(a.destination("find_volume", named).await, None);
}
