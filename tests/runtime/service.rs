//! The operations on files, against processes inside that change what names refer to, through all
//! layers: the service with its rules, the native runtime, a keeper and a jail.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stockade_api::{Caller, FileContent, Problem, ReadFile, Sandboxes as _, WriteFile, dispatch};
use stockade_core::{OwnerId, SandboxId};
use stockade_durable::Store;
use stockade_durable::sqlite::{self, Sqlite, Synchronous};
use stockade_runtime_native::{Native, Options};
use stockade_service::{MIGRATIONS, Options as Configured, Service};
use tokio::io::AsyncReadExt as _;

use crate::support;
use stockade_test_support::program;

/// How often something is read and written while names change: the total is the number of the case,
/// because there are two directories that are written to.
const READS: u64 = 4_000;
const WRITES: u64 = 3_000;
/// How long the race may continue until both outcomes were observed.
const TIMEOUT: Duration = Duration::from_secs(60);

const SECRET: &str = "what-nobody-may-read";
const OPEN: &str = "what-anybody-may-read";

/// A service on the native runtime, and a sandbox in which two names are exchanged all the time: a
/// directory of its own, and a symbolic link to files that the rules deny.
struct Race {
    service: Service,
    native: Native,
    store: Arc<dyn Store>,
    id: SandboxId,
    directory: tempfile::TempDir,
}

fn caller() -> Caller {
    Caller::new(OwnerId::new("me").unwrap())
}

impl Race {
    async fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("stockade-race-").tempdir().unwrap();
        let project = dir.path().join("project");
        let write = |name: &str, content: &str| {
            let path = project.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        for name in ["secret/key", "secret/unseen"] {
            write(name, SECRET);
        }
        std::fs::create_dir(project.join("programs")).unwrap();
        std::fs::copy(program("probe"), project.join("programs/probe")).unwrap();
        // All file modes allow access: every refusal comes from a rule.
        open_to_all(dir.path());
        symlink("/w/secret", project.join("to-secret")).unwrap();
        symlink("/etc", project.join("to-etc")).unwrap();

        let keeper = vec![program("stockade").into(), "__keeper".into()];
        let data = dir.path().join("data");
        let native = Native::open(Options { data, keeper, pool: 0 }).unwrap();
        let path = dir.path().join("stockade.db");
        let opened =
            sqlite::Options { path, synchronous: Synchronous::Normal, migrations: MIGRATIONS };
        let store: Arc<dyn Store> = Arc::new(Sqlite::open(opened).await.unwrap());
        let runtime = Arc::new(native.clone());
        let configured = Configured::default();
        let service = Service::launch(store.clone(), vec![runtime], configured).await.unwrap();
        let rule = |effect: &str, level: &str, path: &str| json!({"effect": effect, "level": level, "path": path});
        let request = json!({
            "workspace": {"host": project, "inside": "/w"},
            "accessRules": [
                rule("allow", "readwrite", "/w"),
                rule("allow", "execute", "/w/programs"),
                rule("deny", "read", "/w/secret"),
            ],
        });
        let made = call(&service, "create", request).await.unwrap();
        let id = serde_json::from_value(made["id"].clone()).unwrap();
        let race = Self { service, native, store, id, directory: dir };
        for directory in ["d", "e"] {
            // A directory of the project itself could not be renamed in a view of it.
            let path = format!("/w/{directory}");
            race.call("make_directory", json!({"path": path})).await.unwrap();
            race.write(&format!("{path}/key"), OPEN).await.unwrap();
        }
        race
    }

    /// Starts to exchange two names repeatedly; returns the operation that does.
    async fn swap(&self, one: &str, other: &str) -> Value {
        let command = ["/w/programs/probe", "exchange", one, other, "600000"];
        let started = self.call("execute_stream", json!({"command": command})).await;
        started.unwrap()["workflowId"].clone()
    }

    /// Ends the exchange of names.
    async fn stop_swapping(&self, swapping: Value) {
        call(&self.service, "cancel_operation", swapping.clone()).await.unwrap();
        call(&self.service, "wait_operation", swapping).await.unwrap();
    }

    async fn call(&self, operation: &str, mut request: Value) -> Result<Value, Problem> {
        request["sandboxId"] = json!(self.id);
        call(&self.service, operation, request).await
    }

    async fn read(&self, path: &str) -> Result<String, Problem> {
        let request =
            ReadFile { sandbox_id: self.id.clone(), path: path.into(), offset: 0, length: None };
        let mut content = self.service.read_file(&caller(), request).await?;
        let mut text = String::new();
        content.0.read_to_string(&mut text).await.unwrap();
        Ok(text)
    }

    async fn write(&self, path: &str, text: &'static str) -> Result<(), Problem> {
        let sandbox_id = self.id.clone();
        let request = WriteFile { sandbox_id, path: path.into(), mode: None, uid: None, gid: None };
        let content = FileContent(Box::pin(std::io::Cursor::new(text)));
        self.service.write_file(&caller(), request, content).await.map(drop)
    }

    /// Every host path of a file with this name that belongs to the sandbox or its project.
    fn files_with(&self, name: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut pending = vec![self.directory.path().to_owned()];
        while let Some(directory) = pending.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    pending.push(entry.path());
                } else if entry.file_name() == name {
                    found.push(entry.path());
                }
            }
        }
        found
    }

    async fn end(self) {
        call(&self.service, "kill", json!({"id": self.id})).await.unwrap();
        self.service.shutdown(Duration::from_secs(20)).await;
        self.store.close().await.unwrap();
        self.native.drain().await.unwrap();
    }
}

async fn call(service: &Service, operation: &str, request: Value) -> Result<Value, Problem> {
    dispatch(service, &caller(), operation, &serde_json::to_vec(&request).unwrap()).await
}

fn open_to_all(path: &Path) {
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(path, open).unwrap();
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        open_to_all(&entry.path());
    }
}

/// How often each outcome of the race was observed.
#[derive(Default)]
struct Counts {
    done: AtomicU64,
    allowed: AtomicU64,
    refused: AtomicU64,
}

impl Counts {
    fn count<T>(&self, result: &Result<T, Problem>) {
        let side = if result.is_ok() { &self.allowed } else { &self.refused };
        side.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether to continue: there are rounds left, or one outcome was not observed yet.
    fn should_continue(&self, rounds: u64, started: Instant) -> bool {
        let both = [&self.allowed, &self.refused].map(|side| side.load(Ordering::Relaxed) > 0);
        let has_rounds = self.done.fetch_add(1, Ordering::Relaxed) < rounds;
        has_rounds || (both.contains(&false) && started.elapsed() < TIMEOUT)
    }

    fn has_both(&self) -> bool {
        [&self.allowed, &self.refused].iter().all(|side| side.load(Ordering::Relaxed) > 0)
    }
}

/// Repeats something with several concurrent futures.
async fn repeat(rounds: u64, work: impl AsyncFn(&Counts)) -> Counts {
    let (met, started) = (Counts::default(), Instant::now());
    let hand = async || {
        while met.should_continue(rounds, started) {
            work(&met).await;
        }
    };
    tokio::join!(hand(), hand(), hand(), hand());
    met
}

/// No read returns what the rules deny, or the name of a denied file.
async fn reads_are_held(race: &Race) {
    let swapping = race.swap("/w/d", "/w/to-secret").await;
    let met = repeat(READS, async |met: &Counts| {
        let read = race.read("/w/d/key").await;
        met.count(&read);
        if let Ok(text) = read {
            assert_eq!(text, OPEN, "a read got through");
        }
    });
    assert!(met.await.has_both(), "nothing was swapped");
    let search = json!({"path": "/w", "pattern": "**/unseen"});
    for _ in 0..READS / 50 {
        let unseen = race.call("stat_file", json!({"path": "/w/d/unseen"})).await;
        assert!(unseen.is_err(), "{unseen:?}");
        if let Ok(listing) = race.call("list_directory", json!({"path": "/w/d", "depth": 2})).await
        {
            assert!(!listing.to_string().contains("unseen"), "{listing}");
        }
        if let Ok(found) = race.call("search_files", search.clone()).await {
            assert_eq!(found["entries"], json!([]), "{found}");
        }
    }
    race.stop_swapping(swapping).await;
}

/// Files are created and changed only in the sandbox's own directory.
async fn writes_are_held(race: &Race) {
    for (directory, link) in [("/w/d", "/w/to-secret"), ("/w/e", "/w/to-etc")] {
        let swapping = race.swap(directory, link).await;
        let path = format!("{directory}/f");
        let met =
            repeat(WRITES, async |met: &Counts| met.count(&race.write(&path, "written").await));
        assert!(met.await.has_both(), "nothing was swapped");
        let edit = json!({"path": format!("{directory}/key"), "old": SECRET, "new": "changed"});
        for _ in 0..WRITES / 50 {
            let replaced = race.call("replace_text", json!({"edits": [edit]})).await;
            // In the sandbox's own directory the text did not occur.
            assert!(replaced.is_err() || replaced == Ok(json!({"counts": [0]})), "{replaced:?}");
        }
        race.stop_swapping(swapping).await;
    }
    let written = race.files_with("f");
    assert!(!written.is_empty());
    for path in written {
        let parent = path.parent().and_then(Path::file_name).unwrap().to_string_lossy();
        let own = ["d", "e", "to-secret", "to-etc"].contains(&&*parent);
        assert!(own && path.to_string_lossy().contains("/workspace/upper/"), "{path:?}");
    }
    for path in race.files_with("key").iter().chain(&race.files_with("unseen")) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        assert!([OPEN, SECRET, ""].contains(&&*text), "{path:?}: {text}");
    }
}

fn race() {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    tokio.unwrap().block_on(async {
        let race = Race::start().await;
        reads_are_held(&race).await;
        writes_are_held(&race).await;
        race.end().await;
    });
}

/// The case from its file, as root.
#[test]
fn names_that_are_swapped() {
    crate::identity::do_as_root(|| {
        support::drive(
            "tests/runtime/service.rs::names_that_are_swapped",
            "access_rules.json",
            |case| {
                if !case.name.starts_with("symlink swapped between check and open") {
                    return support::no_driver();
                }

                race();
                Ok(())
            },
        );
    });
}

#[test]
fn names_that_are_swapped_by_an_ordinary_user() {
    crate::identity::do_as_user(race);
}
