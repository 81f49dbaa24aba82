//! Who may do what: every operation with the same answer.

use serde_json::{Value, json};
use stockade_api::{
    ById, Connect, Execute, FileContent, GetSandbox, OpenSession, Problem, ReadEvents, ReadFile,
    Sandboxes as _, WriteFile, dispatch,
};
use stockade_core::event::Kind;
use stockade_core::{Code, SandboxId, State};
use stockade_service::Service;

use crate::harness::{Harness, caller, program};
use crate::support::{Case, no_driver, same};

pub(crate) async fn case(case: Case) -> Result<(), String> {
    let harness = Harness::new().await;
    let id = harness.sandbox().await;
    match case.name.as_str() {
        "owner may act" => {
            for (name, refused) in every(&harness, "u1", &id).await {
                let denied = refused.filter(|problem| {
                    matches!(problem.code, Code::NotFound | Code::SandboxTerminated)
                });
                same((name, None), (name, denied))?;
            }
            Ok(())
        }
        "non-owner rejected first" => {
            let calls = harness.runtime_calls();
            let unknown: SandboxId = "nothing-here".to_owned().try_into().unwrap();
            let refused = every(&harness, "u2", &id).await;
            for ((name, own), (_, none)) in
                refused.into_iter().zip(every(&harness, "u2", &unknown).await)
            {
                let describe = |problem: Option<Problem>, id: &SandboxId| {
                    problem.map(|p| (p.code, p.message.replace(id.as_str(), "ID"), p.remediation))
                };
                same((name, describe(none, &unknown)), (name, describe(own.clone(), &id)))?;
                same((name, Some(Code::NotFound)), (name, own.map(|problem| problem.code)))?;
            }
            same(calls, harness.runtime_calls())?;
            same(State::Running, harness.status(&id).await.state)
        }
        "terminated sandbox rejected" => {
            kill(&harness, &id).await?;
            let calls = harness.runtime_calls();
            for (name, refused) in every(&harness, "u1", &id).await {
                let expected = match name {
                    // It may be looked at, and killed again.
                    "get_status" | "read_events" | "kill" => None,
                    _ => Some(Code::SandboxTerminated),
                };
                same((name, expected), (name, refused.map(|problem| problem.code)))?;
            }
            same(calls, harness.runtime_calls())
        }
        "kill of terminated is idempotent for the owner" => {
            kill(&harness, &id).await?;
            kill(&harness, &id).await?;
            same(vec![Kind::SandboxCreated, Kind::SandboxKilled], harness.kinds().await)
        }
        "owner id is exact" => {
            let request = GetSandbox { id, metrics: false };
            let refused = harness.service.get_status(&caller("U1"), request).await.unwrap_err();
            same(Code::NotFound, refused.code)
        }
        _ => no_driver(),
    }
}

async fn kill(harness: &Harness, id: &SandboxId) -> Result<(), String> {
    let by_id = ById { id: id.clone() };
    let killed =
        harness.run(|service| async move { service.kill(&caller("u1"), by_id.into()).await });
    same(State::Terminated, killed.await.unwrap().state)
}

/// Asks for every operation on a sandbox, and says which were refused.
async fn every(
    harness: &Harness,
    owner: &'static str,
    id: &SandboxId,
) -> Vec<(&'static str, Option<Problem>)> {
    let id = id.clone();
    harness.run(move |service| async move { call(&service, owner, &id).await }).await
}

async fn call(
    service: &Service,
    owner: &str,
    id: &SandboxId,
) -> Vec<(&'static str, Option<Problem>)> {
    let me = caller(owner);
    let dir = json!({"sandboxId": id, "path": "/w/f"});
    let with = |fields: Value| {
        let mut all = dir.clone();
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        all
    };
    let by_id = json!({"id": id});
    let port = json!({"sandboxId": id, "port": 1, "path": "/"});
    let command = json!({"sandboxId": id, "command": ["true"]});
    let plain = [
        ("get_status", by_id.clone()),
        ("execute", command.clone()),
        ("execute_stream", command),
        ("make_directory", with(json!({"path": "/w"}))),
        ("stat_file", dir.clone()),
        ("list_directory", dir.clone()),
        ("set_permissions", with(json!({"mode": 0o600}))),
        ("search_files", with(json!({"pattern": "*"}))),
        (
            "replace_text",
            json!({"sandboxId": id, "edits": [{"path": "/w/f", "old": "a", "new": "b"}]}),
        ),
        (
            "apply_patch",
            json!({"sandboxId": id, "path": "/w", "diff": "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"}),
        ),
        ("move_file", json!({"sandboxId": id, "from": "/w/f", "to": "/w/g"})),
        ("remove_file", dir.clone()),
        ("resolve_endpoint", json!({"id": id, "port": 1})),
        ("http_request", port),
        ("snapshot", json!({"sandboxId": id})),
        ("collect_changes", json!({"sandboxId": id})),
        ("collect_directory", with(json!({"to": "/nowhere/at/all", "limitBytes": 1}))),
        ("run_tool", json!({"sandboxId": id, "tool": "echo", "arguments": {}})),
        ("renew", json!({"id": id, "ttlSeconds": 9000})),
        ("change_network", json!({"id": id, "allow": ["host.example"]})),
        ("set_secrets", json!({"id": id, "values": {"API_KEY": "sk-Zq83hTnw04LxvUe7"}})),
        ("pause", by_id.clone()),
        ("resume", by_id.clone()),
        ("stop", by_id.clone()),
        ("start", by_id.clone()),
    ];
    let mut answers = Vec::new();
    for (name, request) in plain {
        let request = serde_json::to_vec(&request).unwrap();
        answers.push((name, dispatch(service, &me, name, &request).await.err()));
    }
    let execute: Execute = program(id, &["true"]);
    let session = OpenSession { execute, terminal: None, input: false, survives: false };
    answers.push(("open_session", service.open_session(&me, session).await.err()));
    let events = ReadEvents { sandbox_id: Some(id.clone()), ..ReadEvents::default() };
    answers.push(("read_events", service.read_events(&me, events).await.err()));
    let path = || "/w/f".into();
    let read = ReadFile { sandbox_id: id.clone(), path: path(), offset: 0, length: None };
    answers.push(("read_file", service.read_file(&me, read).await.err()));
    let write =
        WriteFile { sandbox_id: id.clone(), path: path(), mode: None, uid: None, gid: None };
    let content = FileContent(Box::pin(std::io::Cursor::new(b"x".to_vec())));
    answers.push(("write_file", service.write_file(&me, write, content).await.err()));
    let connect = Connect { sandbox_id: id.clone(), port: 1 };
    answers.push(("connect", service.connect(&me, connect).await.err()));
    let kill = serde_json::to_vec(&by_id).unwrap();
    answers.push(("kill", dispatch(service, &me, "kill", &kill).await.err()));
    answers
}
