//! The vault: secrets of owners, their delivery, and the cases of FireFlow's secrets.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod harness;
#[path = "../../../tests/cases/support.rs"]
mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::{Harness, Side, caller};
use serde_json::{Value, json};
use stockade_api::{Caller, Problem, Result, Sandboxes as _};
use stockade_core::{Code, OwnerId, SandboxId};
use stockade_runtime::{Ending, Error, ReadRange, Runtime as _, SandboxPath, TreeReader};
use stockade_service::{KeySource, Options};
use stockade_vault::MasterKey;
use support::{Case, drive, no_driver, same};
use zeroize::Zeroizing;

const TEST: &str = "crates/service/tests/vault.rs::cases";
const CANARY: &str = "canary-7f3a-Zq83hTnw04LxvUe7";

/// A fixed key, or a source that does not answer.
#[derive(Debug)]
enum TestKey {
    Fixed(u8),
    Silent,
    /// There is none until one is made, and it is lost with the server.
    Lost,
}

#[async_trait::async_trait]
impl KeySource for TestKey {
    async fn key(&self, create: bool) -> Result<MasterKey> {
        match self {
            Self::Lost if !create => {
                Err(Problem::new(Code::SecretBackendUnavailable, "there is no key"))
            }
            Self::Lost => Ok(MasterKey::new(Zeroizing::new([3; 32]))),
            Self::Fixed(byte) => Ok(MasterKey::new(Zeroizing::new([*byte; 32]))),
            Self::Silent => std::future::pending().await,
        }
    }
}

fn options(key: TestKey) -> Options {
    Options { vault_key: Some(Arc::new(key)), ..Options::default() }
}

async fn with_vault() -> Harness {
    Harness::with(options(TestKey::Fixed(1))).await
}

type Outcome = std::result::Result<(), String>;

#[test]
fn cases() {
    drive(TEST, "secrets.json", |case| {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(run(case.clone()))
    });
}

async fn run(case: Case) -> Outcome {
    let given = &case.given;
    match case.name.as_str() {
        "missing file" => missing_file().await,
        "bad file" => bad_file(given).await,
        "missing field" => missing_field().await,
        "one field and none named" => one_field().await,
        "scope caller" => scope(given, "caller", Some(Code::SecretForbidden)).await,
        "scope flowOwner" => scope(given, "flowOwner", None).await,
        "all or nothing" => all_or_nothing().await,
        "duplicate env name" => duplicate().await,
        "value with NUL" => nul().await,
        "plaintext never stored" => never_stored().await,
        "plaintext never in error text" => never_in_errors().await,
        "write secret file" => write_file(given).await,
        "write secret file obeys rules" => write_file_obeys_rules().await,
        "secret files not synced out" => not_copied_out().await,
        "secret files not in snapshots or pause images" => not_in_snapshots().await,
        "vault down" => vault_down().await,
        "deleted or rotated secret" => deleted_or_rotated().await,
        _ => no_driver(),
    }
}

/// Requests an operation as some caller.
async fn call(
    harness: &Harness,
    caller: Caller,
    operation: &'static str,
    request: Value,
) -> Result<Value> {
    let request = serde_json::to_vec(&request).unwrap();
    harness
        .run(move |service| async move {
            stockade_api::dispatch(&service, &caller, operation, &request).await
        })
        .await
}

async fn store(harness: &Harness, owner: &str, name: &str, value: &str) -> Value {
    let request = json!({"name": name, "values": {"value": value}});
    call(harness, caller(owner), "create_secret", request).await.unwrap()
}

/// A program that keeps the values of a variable that it is started with.
fn seen(harness: &Harness) -> Arc<Mutex<Vec<Option<String>>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let values = Arc::clone(&seen);
    harness.fake.program("look", move |process| {
        let value = process.environment.get(std::ffi::OsStr::new("TOKEN"));
        let value = value.map(|value| value.to_string_lossy().into_owned());
        values.lock().unwrap().push(value);
        async { Ending::Exited(0) }
    });
    seen
}

/// Runs that program with secrets.
async fn look(harness: &Harness, id: &SandboxId, caller: Caller, secrets: Value) -> Result<Value> {
    let request = json!({"sandboxId": id, "command": ["look"], "secrets": secrets});
    call(harness, caller, "execute", request).await
}

/// Whether a result is a refusal with a code, and nothing was started or changed meanwhile.
async fn refused(
    harness: &Harness,
    id: &SandboxId,
    secrets: Value,
    code: Code,
) -> std::result::Result<Problem, String> {
    let seen = seen(harness);
    let sandboxes = harness.sandbox_count().await;
    let problem = look(harness, id, caller("u1"), secrets).await.err();
    same(Some(code), problem.as_ref().map(|problem| problem.code))?;
    let count = harness.sandbox_count().await;
    same((0, sandboxes), (seen.lock().unwrap().len(), count))?;
    Ok(problem.unwrap())
}

async fn missing_file() -> Outcome {
    let harness = with_vault().await;
    let id = harness.sandbox().await;
    let secrets = json!([{"env": "TOKEN", "ref": "x.ffsecret"}]);
    let problem = refused(&harness, &id, secrets, Code::SecretRefNotFound).await?;
    same(true, problem.message.contains("x.ffsecret"))
}

async fn bad_file(given: &Value) -> Outcome {
    let harness = with_vault().await;
    let id = harness.sandbox().await;
    for form in given["content"].as_array().unwrap() {
        let content = match form.as_str().unwrap() {
            "2 MiB" => format!("{{\"name\": \"{}\"}}", "a".repeat(2 << 20)),
            "version 99" => {
                json!({"version": 99, "secretId": "a", "secretType": "string", "name": "a"})
                    .to_string()
            }
            text => text.to_owned(),
        };
        let secrets = json!([{"env": "TOKEN", "ref": "x.ffsecret", "content": content}]);
        refused(&harness, &id, secrets, Code::SecretRefInvalid).await?;
    }
    Ok(())
}

async fn missing_field() -> Outcome {
    let harness = with_vault().await;
    let id = harness.sandbox().await;
    let request = json!({"name": "a", "type": "openai", "values": {"apiKey": CANARY}});
    call(&harness, caller("u1"), "create_secret", request).await.unwrap();
    let secrets = json!([{"env": "TOKEN", "ref": "a", "field": "secretKey"}]);
    let problem = refused(&harness, &id, secrets, Code::SecretFieldNotFound).await?;
    let told = format!("{problem:?}");
    same((true, false), (told.contains("apiKey"), told.contains(CANARY)))
}

async fn one_field() -> Outcome {
    let harness = with_vault().await;
    let id = harness.sandbox().await;
    let stored = store(&harness, "u1", "a", CANARY).await;
    let seen = seen(&harness);
    let content = json!({
        "version": 1, "secretId": stored["id"], "secretType": "string", "name": "a"
    });
    for reference in [
        json!({"env": "TOKEN", "ref": "a"}),
        json!({"env": "TOKEN", "ref": stored["id"]}),
        json!({"env": "TOKEN", "ref": "x.ffsecret", "content": content.to_string()}),
        json!({"env": "TOKEN", "ref": "a", "field": "value"}),
    ] {
        let done = look(&harness, &id, caller("u1"), json!([reference])).await.unwrap();
        same(&json!(0), &done["exitCode"])?;
        same(Some(Some(CANARY.to_owned())), seen.lock().unwrap().pop())?;
    }
    // The next command does not have it.
    look(&harness, &id, caller("u1"), json!([])).await.unwrap();
    same(Some(None), seen.lock().unwrap().pop())
}

async fn scope(given: &Value, scope: &str, refusal: Option<Code>) -> Outcome {
    let harness = with_vault().await;
    let owner = given["secret owner"].as_str().unwrap().to_owned();
    store(&harness, &owner, "a", CANARY).await;
    let mut asking = caller(given["caller"].as_str().unwrap());
    asking.flow_owner = Some(OwnerId::new(given["flowOwner"].as_str().unwrap()).unwrap());
    let created = call(&harness, asking.clone(), "create", json!({})).await.unwrap();
    let id = SandboxId::new(created["id"].as_str().unwrap()).unwrap();
    let seen = seen(&harness);
    let secrets = json!([{"env": "TOKEN", "ref": "a", "scope": scope}]);
    let answer = look(&harness, &id, asking, secrets.clone()).await;
    same(refusal, answer.err().map(|problem| problem.code))?;
    let expected = refusal.is_none().then(|| Some(CANARY.to_owned()));
    same(expected, seen.lock().unwrap().pop())?;
    // Who is not of the flow is not told that there is one.
    let stranger = caller(given["caller"].as_str().unwrap());
    let answer = look(&harness, &id, stranger, secrets).await;
    same(Some(Code::SecretNotFound), answer.err().map(|problem| problem.code))
}

async fn all_or_nothing() -> Outcome {
    let harness = with_vault().await;
    let id = harness.sandbox().await;
    store(&harness, "u1", "a", CANARY).await;
    store(&harness, "u1", "b", CANARY).await;
    let secrets = json!([
        {"env": "TOKEN", "ref": "a"}, {"env": "B", "ref": "b"}, {"env": "C", "ref": "c"},
    ]);
    refused(&harness, &id, secrets, Code::SecretNotFound).await.map(drop)
}

async fn duplicate() -> Outcome {
    let harness = with_vault().await;
    let id = harness.sandbox().await;
    store(&harness, "u1", "a", CANARY).await;
    let secrets = json!([{"env": "A", "ref": "a"}, {"env": "A", "ref": "a"}]);
    refused(&harness, &id, secrets, Code::DuplicateEnv).await?;
    let request = json!({
        "sandboxId": id, "command": ["look"], "environment": {"A": "x"},
        "secrets": [{"env": "A", "ref": "a"}],
    });
    let answer = call(&harness, caller("u1"), "execute", request).await;
    same(Some(Code::DuplicateEnv), answer.err().map(|problem| problem.code))
}

async fn nul() -> Outcome {
    let harness = with_vault().await;
    let id = harness.sandbox().await;
    store(&harness, "u1", "a", &format!("{CANARY}\0rest")).await;
    let secrets = json!([{"env": "TOKEN", "ref": "a"}]);
    let problem = refused(&harness, &id, secrets, Code::SecretValueInvalid).await?;
    same(false, format!("{problem:?}").contains(CANARY))?;
    let request = json!({"sandboxId": id, "path": "/run/secrets/k", "secret": {"ref": "a"}});
    call(&harness, caller("u1"), "write_secret_file", request).await.unwrap();
    same(format!("{CANARY}\0rest"), look_inside(&harness, &id, "/run/secrets/k").await.unwrap())
}

/// What a file of the database or beside it contains.
fn is_on_disk(harness: &Harness, text: &str) -> bool {
    let mut pending = vec![harness.directory.path().to_owned()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(content) = std::fs::read(&path)
            && content.windows(text.len()).any(|window| window == text.as_bytes())
        {
            return true;
        }
    }
    false
}

async fn never_stored() -> Outcome {
    // A command is cut before and after its start, and another service continues it.
    for side in [Side::Before, Side::After] {
        let mut harness = with_vault().await;
        let id = harness.sandbox().await;
        store(&harness, "u1", "a", CANARY).await;
        let seen = seen(&harness);
        for (operation, gated, request) in [
            (
                "execute_stream",
                "execute",
                json!({"sandboxId": id, "command": ["look"], "secrets": [{"env": "TOKEN", "ref": "a"}]}),
            ),
            (
                "write_secret_file",
                "write_file",
                json!({"sandboxId": id, "path": "/run/secrets/k", "secret": {"ref": "a"}}),
            ),
        ] {
            harness.gate.hold(gated, side);
            let request = serde_json::to_vec(&request).unwrap();
            let cut = harness.spawn(move |service| async move {
                let caller = caller("u1").with_key(operation);
                stockade_api::dispatch(&service, &caller, operation, &request).await
            });
            harness.gate.wait_for_held(1).await;
            harness.kill().await;
            drop(cut.await);
            same(false, is_on_disk(&harness, CANARY))?;
        }
        harness.eventually(async || look_inside(&harness, &id, "/run/secrets/k").await.ok()).await;
        same(true, seen.lock().unwrap().iter().all(|value| value.as_deref() == Some(CANARY)))?;
        harness.eventually(async || (!seen.lock().unwrap().is_empty()).then_some(())).await;
        let events = format!("{:?}", harness.events().await);
        let listed = call(&harness, caller("u1"), "secrets", json!({})).await.unwrap().to_string();
        let records = harness
            .texts("SELECT coalesce(inputs, '') || coalesce(output, '') FROM workflow_status")
            .await;
        for text in [events, listed, records.concat()] {
            same(false, text.contains(CANARY))?;
        }
        harness.stop().await;
        same(false, is_on_disk(&harness, CANARY))?;
        harness.start().await;
    }
    Ok(())
}

async fn never_in_errors() -> Outcome {
    let harness = with_vault().await;
    let id = harness.sandbox().await;
    let secret = json!({"ref": "a"});
    let mut told = Vec::new();
    let mut fails = async |operation: &'static str, request: Value| {
        let failed = call(&harness, caller("u1"), operation, request).await;
        told.push(format!("{:?}", failed.err().unwrap_or_else(|| panic!("{operation}"))));
    };
    for values in [
        json!({"value": CANARY, "more": CANARY}),
        json!({"value": [CANARY]}),
        json!({CANARY: "x"}),
        json!(CANARY),
    ] {
        fails("create_secret", json!({"name": "b", "values": values})).await;
    }
    fails("create_secret", json!({"name": "0", "type": "0g", "values": {"privateKey": CANARY}}))
        .await;
    fails(
        "import_secret",
        json!({
            "name": "b", "type": "string", "recipientKey": CANARY, "envelope": CANARY,
        }),
    )
    .await;
    store(&harness, "u1", "a", CANARY).await;
    fails("create_secret", json!({"name": "a", "values": {"value": CANARY}})).await;
    fails("rotate_secret", json!({"id": "none", "values": {"value": CANARY}})).await;
    fails("rotate_secret", json!({"id": "a", "values": {"other": CANARY}})).await;
    for path in ["/etc/k", "relative", "/run/secrets", "/run/secrets/../k"] {
        fails("write_secret_file", json!({"sandboxId": id, "path": path, "secret": secret})).await;
    }
    harness.fake.fail_next("write_file", Error::Invalid("no".to_owned()));
    fails(
        "write_secret_file",
        json!({
            "sandboxId": id, "path": "/run/secrets/k", "secret": secret,
        }),
    )
    .await;
    harness.fake.fail_next("execute", Error::Invalid("no".to_owned()));
    let secrets = json!([{"env": "TOKEN", "ref": "a"}]);
    fails("execute", json!({"sandboxId": id, "command": ["x"], "secrets": secrets})).await;
    fails("execute", json!({"sandboxId": id, "command": [], "secrets": secrets})).await;
    same(Vec::<&String>::new(), told.iter().filter(|told| told.contains("7f3a")).collect())
}

async fn write_file(given: &Value) -> Outcome {
    let harness = with_vault().await;
    let id = harness.sandbox().await;
    store(&harness, "u1", "a", CANARY).await;
    let path = given["path"].as_str().unwrap();
    for (path, parent) in [(path, None), ("/run/secrets/app/k", Some("/run/secrets/app"))] {
        let request = json!({
            "sandboxId": id, "path": path, "mode": given["mode"], "uid": 1234,
            "secret": {"ref": "a"},
        });
        let written = call(&harness, caller("u1"), "write_secret_file", request).await.unwrap();
        same(&json!(CANARY.len()), &written["sizeBytes"])?;
        same(CANARY.to_owned(), look_inside(&harness, &id, path).await.unwrap())?;
        let stat = async |path: &str| {
            let request = json!({"sandboxId": id, "path": path});
            call(&harness, caller("u1"), "stat_file", request).await.unwrap()
        };
        let file = stat(path).await;
        same((&json!(0o600), &json!(1234)), (&file["mode"], &file["uid"]))?;
        if let Some(parent) = parent {
            same(&json!(0o700), &stat(parent).await["mode"])?;
        }
    }
    // A file with other permissions gets these before it has the value.
    let request = json!({"sandboxId": id, "path": path, "mode": 0o644});
    call(&harness, caller("u1"), "set_permissions", request).await.unwrap();
    let request = json!({"sandboxId": id, "path": path, "secret": {"ref": "a"}});
    call(&harness, caller("u1"), "write_secret_file", request).await.unwrap();
    let request = json!({"sandboxId": id, "path": path});
    let file = call(&harness, caller("u1"), "stat_file", request).await.unwrap();
    same(&json!(0o600), &file["mode"])
}

async fn write_file_obeys_rules() -> Outcome {
    // The vault would not answer, and is not asked.
    let harness = Harness::with(options(TestKey::Silent)).await;
    let rules = json!([{"effect": "allow", "level": "read", "path": "/"}]);
    let created = call(&harness, caller("u1"), "create", json!({"accessRules": rules}));
    let id = created.await.map_err(|problem| format!("{problem:?}"))?["id"].clone();
    let request = json!({"sandboxId": id, "path": "/run/secrets/k", "secret": {"ref": "none"}});
    let answer = call(&harness, caller("u1"), "write_secret_file", request).await;
    same(Some(Code::AccessDenied), answer.err().map(|problem| problem.code))
}

#[tokio::test]
async fn a_lost_key_is_not_replaced_while_there_are_secrets() {
    let mut harness = Harness::with(options(TestKey::Lost)).await;
    let create = async |harness: &Harness, name: &str| {
        let request = json!({"name": name, "values": {"value": CANARY}});
        let created = call(harness, caller("u1"), "create_secret", request).await;
        created.map(drop).map_err(|problem| problem.code)
    };
    assert_eq!(create(&harness, "a").await, Ok(()));
    harness.kill().await;
    assert_eq!(create(&harness, "b").await, Err(Code::SecretBackendUnavailable));
    let request = json!({"id": "a", "values": {"value": CANARY}});
    let rotated = call(&harness, caller("u1"), "rotate_secret", request).await;
    assert_eq!(rotated.unwrap_err().code, Code::SecretBackendUnavailable);
    // Without secrets there is nothing to lose.
    call(&harness, caller("u1"), "remove_secret", json!({"id": "a"})).await.unwrap();
    assert_eq!(create(&harness, "b").await, Ok(()));
}

/// The file with a secret, as a program inside has it.
async fn look_inside(
    harness: &Harness,
    id: &SandboxId,
    path: &str,
) -> std::result::Result<String, Error> {
    let path = SandboxPath::new(path).unwrap();
    let mut content = harness.fake.read_file(id, &path, ReadRange::default()).await?;
    let mut text = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut content, &mut text).await.unwrap();
    Ok(text)
}

async fn not_copied_out() -> Outcome {
    let harness = with_vault().await;
    let id = harness.sandbox().await;
    store(&harness, "u1", "a", CANARY).await;
    harness.write(&id, "/run/other", "plain").await.unwrap();
    let request = json!({"sandboxId": id, "path": "/run/secrets/k", "secret": {"ref": "a"}});
    call(&harness, caller("u1"), "write_secret_file", request).await.unwrap();
    let receive = async |path: &str| {
        let request = serde_json::from_value(json!({"sandboxId": id, "path": path})).unwrap();
        harness.service.receive_files(&caller("u1"), request).await
    };
    for path in ["/run/secrets", "/run/secrets/.", "/run/./secrets"] {
        let problem = receive(path).await.err().unwrap();
        same(Code::AccessDenied, problem.code)?;
        same(true, problem.cause.unwrap().contains("secret_file"))?;
    }
    // Nor one file alone, nor by another operation that reads.
    let read = harness.read(&id, "/run/secrets/k").await;
    same(Some(Code::AccessDenied), read.err().map(|problem| problem.code))?;
    let patch = "diff --git a/secrets/k b/other-k\nsimilarity index 100%\n\
                 rename from secrets/k\nrename to other-k\n";
    let patch = json!({"sandboxId": id, "path": "/run", "diff": patch});
    let moved = call(&harness, caller("u1"), "apply_patch", patch).await;
    same(Some(Code::AccessDenied), moved.err().map(|problem| problem.code))?;
    for path in ["/run", "/"] {
        let mut content = Vec::new();
        let mut stream = receive(path).await.map_err(|problem| format!("{problem:?}"))?;
        tokio::io::AsyncReadExt::read_to_end(&mut stream.0, &mut content).await.unwrap();
        let holds = |text: &str| content.windows(text.len()).any(|own| own == text.as_bytes());
        same((true, false), (holds("plain"), holds(CANARY)))?;
        let mut reader = TreeReader::new(content.as_slice());
        let mut reasons = Vec::new();
        while let Some(record) = reader.record().unwrap() {
            match record {
                stockade_runtime::Record::Skipped { reason, .. } => reasons.push(reason),
                stockade_runtime::Record::File { .. } => {
                    drop(reader.content(&mut std::io::sink()));
                }
                _ => {}
            }
        }
        same(vec![stockade_runtime::SkipReason::SecretFile], reasons)?;
    }
    Ok(())
}

async fn not_in_snapshots() -> Outcome {
    // The end-to-end test takes a snapshot; here, no other place is accepted.
    let harness = with_vault().await;
    let id = harness.sandbox().await;
    store(&harness, "u1", "a", CANARY).await;
    for path in ["/workspace/k", "/etc/k", "/tmp/k", "/run/secretsk", "/run/secrets/../x"] {
        let request = json!({"sandboxId": id, "path": path, "secret": {"ref": "a"}});
        let answer = call(&harness, caller("u1"), "write_secret_file", request).await;
        same(Some(Code::PathInvalid), answer.err().map(|problem| problem.code))?;
    }
    Ok(())
}

async fn vault_down() -> Outcome {
    let deadline = Duration::from_millis(200);
    let harness = Harness::with(Options { deadline, ..options(TestKey::Silent) }).await;
    let id = harness.sandbox().await;
    let request = json!({"name": "a", "values": {"value": CANARY}});
    let stored = call(&harness, caller("u1"), "create_secret", request).await.err().unwrap();
    same((Code::SecretBackendUnavailable, true), (stored.code, stored.retryable))?;
    let none = Harness::new().await;
    let request = json!({"name": "a", "values": {"value": CANARY}});
    let stored = call(&none, caller("u1"), "create_secret", request).await.err().unwrap();
    same((Code::SecretBackendUnavailable, true), (stored.code, stored.retryable))?;
    // A secret that is there, and a vault that does not answer any more.
    harness
        .tamper("INSERT INTO secrets VALUES ('sec-1', 'u1', 'a', 'string', 1, 'k', x'01', 0, 0)")
        .await;
    let secrets = json!([{"env": "TOKEN", "ref": "a"}]);
    let problem = refused(&harness, &id, secrets, Code::SecretBackendUnavailable).await?;
    same(true, problem.retryable)
}

async fn deleted_or_rotated() -> Outcome {
    let harness = with_vault().await;
    let id = harness.sandbox().await;
    store(&harness, "u1", "a", CANARY).await;
    let write = json!({"sandboxId": id, "path": "/run/secrets/k", "secret": {"ref": "a"}});
    call(&harness, caller("u1"), "write_secret_file", write.clone()).await.unwrap();
    let request = json!({"id": "a", "values": {"value": "another-value"}});
    let rotated = call(&harness, caller("u1"), "rotate_secret", request).await.unwrap();
    same(&json!(2), &rotated["version"])?;
    // What was delivered stays until it is delivered again.
    same(CANARY.to_owned(), look_inside(&harness, &id, "/run/secrets/k").await.unwrap())?;
    let seen = seen(&harness);
    let secrets = json!([{"env": "TOKEN", "ref": "a"}]);
    look(&harness, &id, caller("u1"), secrets.clone()).await.unwrap();
    same(Some(Some("another-value".to_owned())), seen.lock().unwrap().pop())?;
    call(&harness, caller("u1"), "write_secret_file", write).await.unwrap();
    same("another-value".to_owned(), look_inside(&harness, &id, "/run/secrets/k").await.unwrap())?;
    call(&harness, caller("u1"), "remove_secret", json!({"id": "a"})).await.unwrap();
    refused(&harness, &id, secrets, Code::SecretNotFound).await.map(drop)
}

#[tokio::test]
async fn secrets_are_ones_own() {
    let harness = with_vault().await;
    let stored = store(&harness, "u1", "a", CANARY).await;
    assert!(!stored.to_string().contains(CANARY));
    let id = stored["id"].clone();
    assert_eq!(
        call(&harness, caller("u2"), "secrets", json!({})).await.unwrap(),
        json!({"secrets": []})
    );
    for (operation, request) in [
        ("rotate_secret", json!({"id": id, "values": {"value": "x"}})),
        ("remove_secret", json!({"id": id})),
    ] {
        let answer = call(&harness, caller("u2"), operation, request).await;
        assert_eq!(answer.unwrap_err().code, Code::SecretNotFound, "{operation}");
    }
    // Two owners have secrets of one name, and a request that is repeated stores one.
    store(&harness, "u2", "a", CANARY).await;
    let request = json!({"name": "b", "values": {"value": CANARY}});
    let first = call(&harness, caller("u1").with_key("k"), "create_secret", request.clone()).await;
    let again = call(&harness, caller("u1").with_key("k"), "create_secret", request).await;
    assert_eq!(first.unwrap(), again.unwrap());
}

#[tokio::test]
async fn an_idempotency_key_is_for_one_request_about_a_secret() {
    let mut harness = with_vault().await;
    let id = harness.sandbox().await;
    let seen = seen(&harness);
    let secrets = json!([{"env": "TOKEN", "ref": "a"}]);
    let create = |name: &str, value: &str| json!({"name": name, "values": {"value": value}});
    let rotate = |value: &str| json!({"id": "a", "values": {"value": value}});
    let keyed = |key: &str| caller("u1").with_key(key);

    let made = call(&harness, keyed("k"), "create_secret", create("a", CANARY)).await.unwrap();
    let openai = json!({"name": "a", "type": "openai", "values": {"apiKey": CANARY}});
    for (operation, request) in [
        ("create_secret", create("a", "another-value")),
        ("create_secret", create("b", CANARY)),
        ("create_secret", openai),
        ("rotate_secret", rotate(CANARY)),
        ("remove_secret", json!({"id": "a"})),
    ] {
        let problem = call(&harness, keyed("k"), operation, request).await.unwrap_err();
        assert_eq!(problem.code, Code::Conflict, "{operation}");
        assert!(!format!("{problem:?}").contains("value-"), "{problem:?}");
    }
    // Another owner's keys are others.
    call(&harness, caller("u2").with_key("k"), "create_secret", create("a", "x")).await.unwrap();

    let first = call(&harness, keyed("r"), "rotate_secret", rotate("second")).await.unwrap();
    assert_eq!(first["version"], 2);
    harness.kill().await;
    let again = call(&harness, keyed("r"), "rotate_secret", rotate("second")).await.unwrap();
    assert_eq!(again, first, "the same request again, also after a crash");
    let other = call(&harness, keyed("r"), "rotate_secret", rotate("third")).await.unwrap_err();
    assert_eq!(other.code, Code::Conflict);
    look(&harness, &id, caller("u1"), secrets.clone()).await.unwrap();
    assert_eq!(seen.lock().unwrap().pop(), Some(Some("second".to_owned())));
    // The first request again has its own answer, and changes nothing.
    let again = call(&harness, keyed("k"), "create_secret", create("a", CANARY)).await.unwrap();
    assert_eq!(again, made);
    look(&harness, &id, caller("u1"), secrets).await.unwrap();
    assert_eq!(seen.lock().unwrap().pop(), Some(Some("second".to_owned())));

    for _ in 0..2 {
        let request = json!({"id": "a"});
        call(&harness, keyed("d"), "remove_secret", request).await.unwrap();
    }
    assert!(!is_on_disk(&harness, CANARY));
}

#[tokio::test]
async fn two_secrets_whose_rows_were_exchanged_do_not_open() {
    let harness = with_vault().await;
    let id = harness.sandbox().await;
    for (name, value) in [("a", "value-of-a"), ("b", "value-of-b")] {
        store(&harness, "u1", name, value).await;
    }
    for exchange in [
        // The names alone.
        "UPDATE secrets SET name = CASE name WHEN 'a' THEN 'b2' ELSE 'a2' END",
        "UPDATE secrets SET name = substr(name, 1, 1)",
    ] {
        harness.tamper(exchange).await;
    }
    for name in ["a", "b"] {
        let secrets = json!([{"env": "TOKEN", "ref": name}]);
        let refused = look(&harness, &id, caller("u1"), secrets).await.unwrap_err();
        assert_eq!(refused.code, Code::DecryptFailed, "{name}");
    }
}

#[tokio::test]
async fn a_secret_opens_under_its_key_only() {
    let mut harness = with_vault().await;
    let id = harness.sandbox().await;
    store(&harness, "u1", "a", CANARY).await;
    harness.tamper("UPDATE secrets SET name = 'b', owner_id = 'u2'").await;
    let created = call(&harness, caller("u2"), "create", json!({})).await.unwrap();
    let other = SandboxId::new(created["id"].as_str().unwrap()).unwrap();
    let secrets = json!([{"env": "TOKEN", "ref": "b"}]);
    let moved = look(&harness, &other, caller("u2"), secrets).await.unwrap_err();
    assert_eq!(moved.code, Code::DecryptFailed, "a row that was given to another owner");
    harness.tamper("UPDATE secrets SET owner_id = 'u1'").await;
    let secrets = json!([{"env": "TOKEN", "ref": "b"}]);
    let renamed = look(&harness, &id, caller("u1"), secrets).await.unwrap_err();
    assert_eq!(renamed.code, Code::DecryptFailed, "a row with another name");
    harness.tamper("UPDATE secrets SET name = 'a'").await;
    harness.kill().await;
    let secrets = json!([{"env": "TOKEN", "ref": "a"}]);
    let seen = seen(&harness);
    look(&harness, &id, caller("u1"), secrets).await.unwrap();
    assert_eq!(seen.lock().unwrap().pop(), Some(Some(CANARY.to_owned())), "after a restart");
}
