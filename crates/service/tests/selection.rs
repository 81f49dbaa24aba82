//! The choice of a runtime: the requested one or the requested fallback, and never another.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;

use stockade_api::{
    Caller, CreateSandbox, GetSandbox, ListSandboxes, Problem, Sandbox, Sandboxes as _,
};
use stockade_core::sandbox::Limits;
use stockade_core::{Code, OwnerId};
use stockade_durable::sqlite::{self, Sqlite, Synchronous};
use stockade_runtime::Runtime;
use stockade_runtime::fake::Fake;
use stockade_service::{MIGRATIONS, Options, Service};

/// A service with the runtimes `native` and `bwrap`, of which the second is not usable, and `docker`.
struct Scene {
    service: Service,
    bwrap: Fake,
    docker: Fake,
    directory: tempfile::TempDir,
}

fn caller(key: &str) -> Caller {
    Caller::new(OwnerId::new("u1").unwrap()).with_key(key.to_owned())
}

async fn launch(directory: &tempfile::TempDir, runtimes: &[&Fake]) -> Service {
    let path = directory.path().join("stockade.db");
    let options = sqlite::Options { path, synchronous: Synchronous::Off, migrations: MIGRATIONS };
    let store = Arc::new(Sqlite::open(options).await.unwrap());
    let shared = |fake: &&Fake| Arc::new((*fake).clone()) as Arc<dyn Runtime>;
    let runtimes = runtimes.iter().map(shared).collect();
    Service::launch(store, runtimes, Options::default()).await.unwrap()
}

impl Scene {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (native, bwrap) = (Fake::named("native"), Fake::named("bwrap"));
        let docker = Fake::named("docker");
        bwrap.make_unavailable("the program is missing", "apt-get install bubblewrap");
        let service = launch(&directory, &[&native, &bwrap, &docker]).await;
        Self { service, bwrap, docker, directory }
    }

    async fn create(&self, key: &str, request: CreateSandbox) -> Result<Sandbox, Problem> {
        self.service.create(&caller(key), request).await
    }

    async fn count(&self) -> usize {
        let list = self.service.list(&caller(""), ListSandboxes::default()).await.unwrap();
        list.sandboxes.len()
    }
}

fn of(runtime: &str, fallback: Option<&str>) -> CreateSandbox {
    CreateSandbox {
        runtime: Some(runtime.to_owned()),
        fallback_runtime: fallback.map(str::to_owned),
        ..CreateSandbox::default()
    }
}

#[tokio::test]
async fn the_words_of_the_seeds_select_the_runtime_of_this_host() {
    let scene = Scene::new().await;
    for (key, name) in [("a", "native"), ("b", "bubblewrap")] {
        let made = scene.create(key, of(name, None)).await.unwrap();
        assert_eq!(
            (made.runtime.as_str(), made.requested_runtime.as_deref()),
            ("native", Some(name))
        );
    }
    let made = scene.create("c", CreateSandbox::default()).await.unwrap();
    assert_eq!((made.runtime.as_str(), made.requested_runtime), ("native", None));
}

#[tokio::test]
async fn what_cannot_be_selected_is_refused_before_anything_is_made() {
    let scene = Scene::new().await;
    let image = || Some("node:20".to_owned());
    let rules = vec![serde_json::json!({"effect": "allow", "level": "read", "path": "/a"})];
    let docker = CreateSandbox { image: image(), ..of("docker", None) };
    for (request, code, text) in [
        (of("bwrap", None), Code::Unsupported, "`bwrap` is not usable"),
        (of("codeplane", None), Code::Unsupported, "`codeplane` is not part of this server"),
        (of("kubernetes", None), Code::Unsupported, "`kubernetes` is not part of this server"),
        (of("cloudflare", None), Code::Unsupported, "`cloudflare` is not supported"),
        (of("bublewrap", None), Code::InvalidInput, "bublewrap"),
        (of("", None), Code::InvalidInput, "no runtime"),
        (of("native", Some("podman")), Code::InvalidInput, "podman"),
        (of("docker", None), Code::InvalidInput, "needs an image"),
        (of("docker", Some("bwrap")), Code::InvalidInput, "`bwrap` is not usable"),
        (CreateSandbox { access_rules: rules, ..docker }, Code::InvalidInput, "`accessRules`"),
    ] {
        let refused = scene.create("k", request.clone()).await.unwrap_err();
        assert_eq!(refused.code, code, "{request:?}: {refused:?}");
        assert!(refused.message.contains(text), "{text}: {refused:?}");
        let selected = scene.service.select_runtime(&caller(""), request).await.unwrap_err();
        assert_eq!(selected, refused);
    }
    let refused = scene.create("k", of("bwrap", None)).await.unwrap_err();
    assert_eq!(refused.cause.as_deref(), Some("the program is missing"));
    assert_eq!(refused.remediation.as_deref(), Some("apt-get install bubblewrap"));
    assert_eq!(scene.count().await, 0);
    assert_eq!((scene.bwrap.calls("create"), scene.docker.calls("create")), (0, 0));
}

#[tokio::test]
async fn a_fallback_is_used_only_if_it_is_named_and_needed_and_is_recorded() {
    let scene = Scene::new().await;
    for (key, requested, expected) in
        [("a", "bwrap", "native"), ("b", "native", "native"), ("c", "codeplane", "native")]
    {
        let made = scene.create(key, of(requested, Some("native"))).await.unwrap();
        assert_eq!(made.runtime, expected, "{requested}");
        assert_eq!(made.requested_runtime.as_deref(), Some(requested));
    }
    // The fallback lacks nothing that is requested.
    let limits = Limits { memory_bytes: Some(1 << 30), ..Limits::default() };
    let request = CreateSandbox { limits, ..of("docker", Some("bubblewrap")) };
    assert_eq!(scene.create("d", request).await.unwrap().runtime, "native");
}

#[tokio::test]
async fn a_request_that_is_repeated_has_the_same_answer_wherever_its_runtime_went() {
    let scene = Scene::new().await;
    let request =
        CreateSandbox { image: Some("node:20".to_owned()), ..of("docker", Some("native")) };
    let made = scene.create("k", request.clone()).await.unwrap();
    scene.docker.make_unavailable("no engine", "start it");
    let again = scene.create("k", request).await.unwrap();
    assert_eq!((again.id, again.runtime), (made.id, made.runtime));
}

#[tokio::test]
async fn a_sandbox_of_a_runtime_that_is_missing_is_shown_and_not_lost() {
    let scene = Scene::new().await;
    let image = Some("node:20".to_owned());
    let made = scene.create("k", CreateSandbox { image, ..of("docker", None) }).await.unwrap();
    let Scene { service, docker, directory, .. } = scene;
    service.shutdown(std::time::Duration::from_secs(5)).await;
    drop(service);
    let native = Fake::named("native");
    let service = launch(&directory, &[&native]).await;
    service.sweep().await;
    let list = service.list(&caller(""), ListSandboxes::default()).await.unwrap();
    assert_eq!(list.sandboxes.len(), 1);
    assert_eq!(list.sandboxes[0].runtime, "docker");
    let request = GetSandbox { id: made.id.clone(), metrics: false };
    let shown = service.get_status(&caller(""), request).await.unwrap();
    assert_eq!(shown.runtime, "docker");
    let request = serde_json::from_value(serde_json::json!({"id": made.id})).unwrap();
    let refused = service.pause(&caller("p"), request).await.unwrap_err();
    assert_eq!(refused.code, Code::Unsupported, "{refused:?}");
    assert!(refused.message.contains("`docker`"), "{refused:?}");
    // The server that has the runtime again finds it as it was.
    service.shutdown(std::time::Duration::from_secs(5)).await;
    drop(service);
    let service = launch(&directory, &[&native, &docker]).await;
    let request = serde_json::from_value(serde_json::json!({"id": made.id})).unwrap();
    service.pause(&caller("q"), request).await.unwrap();
}
