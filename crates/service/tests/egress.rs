//! The network of sandboxes, from their owner's side: the allowed hosts, the reports of denied
//! connections, and the recovery when the egress process or the service is killed. The sandboxes
//! are in memory, their listeners and the process are real.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]

mod harness;
#[path = "../../../tests/cases/support.rs"]
mod support;

use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;

use harness::{Harness, caller};
use serde_json::{Value, json};
use stockade_api::{
    ById, ChangeNetwork, CreateSandbox, GetSandbox, KillSandbox, Network, NetworkStatus,
    ReadEvents, Restore, Sandbox, Sandboxes as _, TakeSnapshot,
};
use stockade_core::access::Effect;
use stockade_core::event::{Kind, Payload};
use stockade_core::network::Reason;
use stockade_core::{Code, SandboxId};
use stockade_egress_control::Program;
use stockade_runtime::{Capability, Error, Runtime as _};
use stockade_service::Options;
use support::{drive, no_driver, same};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The argument with which this program runs as the egress process.
const MARK: &str = "STOCKADE_TEST_EGRESS";

/// Runs the egress process, if this program was started as such.
#[test]
fn the_process() {
    if !std::env::args().any(|argument| argument == MARK) {
        return;
    }
    let owner = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(stockade_egress::serve(owner)).unwrap();
}

/// One mark for each test, so that no test kills another's process.
fn options(test: &str) -> Options {
    let arguments = ["the_process", "--exact", "--nocapture", MARK, test];
    let program = Program {
        path: std::env::current_exe().unwrap(),
        arguments: arguments.map(Into::into).into(),
    };
    let watch_interval = Duration::from_millis(50);
    Options { egress: Some(program), watch_interval, ..Options::default() }
}

/// The processes that were started for a test.
fn processes(test: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one = |id: &u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).collect();
        words.contains(&MARK.as_bytes()) && words.contains(&test.as_bytes())
    };
    ids.filter(is_one).collect()
}

fn kill(processes: &[u32]) {
    assert!(!processes.is_empty());
    let ids = processes.iter().map(u32::to_string);
    assert!(Command::new("kill").arg("-9").args(ids).status().unwrap().success());
}

/// A server outside.
fn server() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

fn network_to(hosts: &[&str]) -> CreateSandbox {
    let allow = hosts.iter().map(|host| host.parse().unwrap()).collect();
    let network = Network { allow, default: Effect::Deny, ..Network::default() };
    CreateSandbox { network: Some(network), ..CreateSandbox::default() }
}

/// The address of a sandbox's proxy.
async fn proxy(harness: &Harness, id: &SandboxId) -> SocketAddr {
    let listeners = harness.fake.listeners(id).await.unwrap();
    TcpListener::from(listeners.proxy).local_addr().unwrap()
}

/// The response of a sandbox's proxy to a client inside that wants to connect to a host.
async fn answer(harness: &Harness, id: &SandboxId, host: &str) -> String {
    answer_at(proxy(harness, id).await, host).await
}

/// The same for the proxy at an address.
async fn answer_at(proxy: SocketAddr, host: &str) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(proxy).await.ok()?;
        stream.write_all(format!("CONNECT {host} HTTP/1.1\r\n\r\n").as_bytes()).await.ok()?;
        let mut bytes = [0; 12];
        stream.read_exact(&mut bytes).await.ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    tokio::time::timeout(harness::PATIENCE, exchange).await.unwrap().unwrap_or_default()
}

fn network_status(sandbox: Sandbox) -> NetworkStatus {
    sandbox.network.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_allowed_is_reached_and_the_rest_is_told_to_the_owner_alone() {
    let harness = Harness::with(options("owner")).await;
    let (_server, here) = server();
    let sandbox = harness.create(network_to(&[&here, "*.b.example:443"])).await.unwrap();
    let id = &sandbox.id;
    let rules = network_status(sandbox.clone()).policy.rules().len();
    assert_eq!(rules, 2);
    assert_eq!(answer(&harness, id, &here).await, "HTTP/1.1 200");
    for _ in 0..3 {
        assert_eq!(answer(&harness, id, "a.example:443").await, "HTTP/1.1 403");
    }
    let network = harness
        .eventually(async || {
            let network = network_status(harness.status(id).await);
            let is_whole = network.refused.first().is_some_and(|it| it.times == 3);
            (is_whole && network.connections == 1).then_some(network)
        })
        .await;
    let [refused] = network.refused.as_slice() else { panic!("{network:?}") };
    assert_eq!(refused.reason, Reason::NotAllowed);
    assert_eq!(refused.allow.as_deref(), Some("--allow a.example:443"));
    assert_eq!((network.lost, network.closed), (0, None));
    let recorded = harness
        .eventually(async || {
            let events = harness.events().await;
            let is_told = |kind| kind == Kind::NetworkRefused;
            events.into_iter().find(|event| is_told(event.payload.kind()))
        })
        .await;
    let Payload::NetworkRefused(recorded) = recorded.payload else { panic!("{recorded:?}") };
    assert_eq!(recorded.host, refused.host);

    let other = caller("u2");
    let request = GetSandbox { id: id.clone(), metrics: false };
    let hidden = harness.service.get_status(&other, request).await.unwrap_err();
    assert_eq!(hidden.code, Code::NotFound);
    let mut events = harness.service.read_events(&other, ReadEvents::default()).await.unwrap();
    assert!(events.next().await.is_none());

    // The reports outlive the sandbox, whose traffic is blocked now.
    let proxy = proxy(&harness, id).await;
    harness.service.kill(&caller("u1"), KillSandbox::new(id.clone())).await.unwrap();
    let left = network_status(harness.status(id).await);
    assert_eq!((left.refused.len(), left.closed), (1, None));
    let is_closed = async || {
        // Another program may listen there by now, which does not answer.
        let response = tokio::time::timeout(Duration::from_secs(1), answer_at(proxy, &here)).await;
        (response.as_deref() != Ok("HTTP/1.1 200")).then_some(())
    };
    harness.eventually(is_closed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_network_there_is_no_process() {
    let harness = Harness::with(options("without")).await;
    let sandbox = harness.create(CreateSandbox::default()).await.unwrap();
    assert_eq!(sandbox.network, None);
    assert!(processes("without").is_empty());
    assert_eq!(harness.fake.calls("listeners"), 0);
    harness.create(network_to(&[])).await.unwrap();
    harness.create(network_to(&[])).await.unwrap();
    assert_eq!(processes("without").len(), 1, "one for all");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_is_started_again_for_everybody() {
    let harness = Harness::with(options("killed")).await;
    let (_server, here) = server();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(harness.create(network_to(&[&here])).await.unwrap().id);
    }
    for _ in 0..3 {
        let before = processes("killed");
        kill(&before);
        for id in &ids {
            // A client that connects meanwhile waits.
            let reached = async || {
                let answer = answer(&harness, id, &here).await;
                (answer == "HTTP/1.1 200").then_some(())
            };
            harness.eventually(reached).await;
        }
        let after = processes("killed");
        assert!(after.len() == 1 && after != before, "{before:?} {after:?}");
    }
    // A sandbox that is created meanwhile is served too.
    kill(&processes("killed"));
    let id = harness.create(network_to(&[&here])).await.unwrap().id;
    assert_eq!(answer(&harness, &id, &here).await, "HTTP/1.1 200");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_service_serves_what_the_last_one_left() {
    let mut harness = Harness::with(options("next")).await;
    let (_server, here) = server();
    let id = harness.create(network_to(&[&here])).await.unwrap().id;
    assert_eq!(answer(&harness, &id, "a.example:1").await, "HTTP/1.1 403");
    let recorded = async || harness.kinds().await.contains(&Kind::NetworkRefused).then_some(());
    harness.eventually(recorded).await;
    harness.kill().await;
    let reached_again = async || {
        let answer = answer(&harness, &id, &here).await;
        (answer == "HTTP/1.1 200").then_some(())
    };
    harness.eventually(reached_again).await;
    assert_eq!(answer(&harness, &id, "a.example:1").await, "HTTP/1.1 403");
    let network = harness
        .eventually(async || {
            let network = network_status(harness.status(&id).await);
            (network.closed.is_none() && network.connections > 0).then_some(network)
        })
        .await;
    assert_eq!(network.refused.len(), 1, "{network:?}");
    let refusals = harness.kinds().await;
    let refusals = refusals.iter().filter(|kind| **kind == Kind::NetworkRefused).count();
    assert_eq!(refusals, 1, "it is recorded once");
}

/// A connection through the proxy of a sandbox to an allowed host.
async fn connected(harness: &Harness, id: &SandboxId, host: &str) -> TcpStream {
    let mut stream = TcpStream::connect(proxy(harness, id).await).await.unwrap();
    stream.write_all(format!("CONNECT {host} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{head:?}");
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sandbox_reaches_is_changed_without_ending_the_rest() {
    let mut harness = Harness::with(options("changed")).await;
    let ((_one, kept), (_other, gone)) = (server(), server());
    let id = harness.create(network_to(&[&kept])).await.unwrap().id;
    let change = |allow: &[&str], refuse: &[&str]| {
        let hosts = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        ChangeNetwork {
            allow: hosts(allow),
            refuse: hosts(refuse),
            ..ChangeNetwork::new(id.clone())
        }
    };
    let me = caller("u1");
    let rules = |sandbox: Sandbox| network_status(sandbox).policy.rules().len();
    assert_eq!(answer(&harness, &id, &gone).await, "HTTP/1.1 403");
    let changed = harness.service.change_network(&me, change(&[&gone], &[])).await.unwrap();
    assert_eq!(rules(changed), 2);
    let (mut continues, mut is_cut) =
        (connected(&harness, &id, &kept).await, connected(&harness, &id, &gone).await);

    let changed = harness.service.change_network(&me, change(&[], &[&gone])).await.unwrap();
    assert_eq!(rules(changed), 1);
    assert_eq!(answer(&harness, &id, &gone).await, "HTTP/1.1 403");
    let read = tokio::time::timeout(harness::PATIENCE, is_cut.read(&mut [0])).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)), "it is not cut off: {read:?}");
    let read = tokio::time::timeout(Duration::from_millis(200), continues.read(&mut [0])).await;
    assert!(read.is_err(), "it was cut off: {read:?}");

    // Also for the next process, and for the next service.
    harness.service.change_network(&me, change(&[&gone], &[&kept])).await.unwrap();
    kill(&processes("changed"));
    let holds = async |harness: &Harness| {
        let is_told = async || {
            let answers = [answer(harness, &id, &gone).await, answer(harness, &id, &kept).await];
            (answers == ["HTTP/1.1 200", "HTTP/1.1 403"]).then_some(())
        };
        harness.eventually(is_told).await;
    };
    holds(&harness).await;
    harness.kill().await;
    holds(&harness).await;
    let kinds = harness.kinds().await;
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::NetworkChanged).count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_cannot_be_changed_stays_as_it_is() {
    let harness = Harness::with(options("refused")).await;
    let id = harness.create(network_to(&["a.example"])).await.unwrap().id;
    let me = caller("u1");
    let change = async |id: &SandboxId, refuse: &str| {
        let refuse = vec![refuse.parse().unwrap()];
        let request = ChangeNetwork { refuse, ..ChangeNetwork::new(id.clone()) };
        harness
            .service
            .change_network(&me, request)
            .await
            .map(|_| ())
            .map_err(|problem| problem.code)
    };
    assert_eq!(change(&id, "b.example").await, Err(Code::InvalidInput));
    let without = harness.create(CreateSandbox::default()).await.unwrap().id;
    assert_eq!(change(&without, "a.example").await, Err(Code::Conflict));
    assert_eq!(network_status(harness.status(&id).await).policy.rules().len(), 1);
    // A stopped sandbox uses the change later.
    harness.service.stop(&me, ById { id: id.clone() }).await.unwrap();
    assert_eq!(change(&id, "a.example").await, Ok(()));
    harness.service.start(&me, ById { id: id.clone() }).await.unwrap();
    assert_eq!(network_status(harness.status(&id).await).policy.rules().len(), 0);
    harness.service.kill(&me, KillSandbox::new(id.clone())).await.unwrap();
    assert_eq!(change(&id, "a.example").await, Err(Code::SandboxTerminated));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_let_out_again_after_a_pause_a_stop_and_from_a_snapshot() {
    let harness = Harness::with(options("again")).await;
    let (me, (_server, here)) = (caller("u1"), server());
    let id = harness.create(network_to(&[&here])).await.unwrap().id;
    let by_id = || ById { id: id.clone() };
    harness.service.pause(&me, by_id()).await.unwrap();
    harness.service.resume(&me, by_id()).await.unwrap();
    assert_eq!(answer(&harness, &id, &here).await, "HTTP/1.1 200");
    let take = TakeSnapshot { sandbox_id: id.clone(), id: None, name: None };
    let snapshot = harness.service.snapshot(&me, take).await.unwrap();
    harness.service.stop(&me, by_id()).await.unwrap();
    assert_eq!(network_status(harness.status(&id).await).closed, None);
    harness
        .run({
            let (me, by_id) = (me.clone(), by_id());
            |service| async move { service.start(&me, by_id).await }
        })
        .await
        .unwrap();
    assert_eq!(answer(&harness, &id, &here).await, "HTTP/1.1 200");
    // A restored sandbox has the network of its own request.
    for (network, expected) in
        [(None, None), (network_to(&["a.example"]).network, Some("HTTP/1.1 403"))]
    {
        let sandbox = CreateSandbox { network, ..CreateSandbox::default() };
        let request = Restore { snapshot_id: snapshot.id.clone(), sandbox };
        let me = me.clone();
        let restored = harness.run(|service| async move { service.restore(&me, request).await });
        let restored = restored.await.unwrap();
        assert_eq!(restored.network.is_some(), expected.is_some());
        if let Some(expected) = expected {
            assert_eq!(answer(&harness, &restored.id, &here).await, expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_let_out_is_refused_with_the_reason() {
    let harness = Harness::new().await;
    let refused = harness.create(network_to(&[])).await.unwrap_err();
    assert_eq!(refused.code, Code::Unsupported);
    assert!(refused.remediation.is_some(), "{refused:?}");
    assert_eq!(harness.service.live().await.unwrap(), []);

    let harness = Harness::with(options("refused")).await;
    harness.fake.refuse(Capability::Egress, "no rules");
    let refused = harness.create(network_to(&[])).await.unwrap_err();
    assert_eq!(refused.code, Code::Unsupported);
    assert!(format!("{refused:?}").contains("no rules"), "{refused:?}");
    let many = vec!["a.example"; 513];
    let refused = harness.create(network_to(&many)).await.unwrap_err();
    assert_eq!(refused.code, Code::RuleInvalid);

    let harness = Harness::with(options("closed")).await;
    harness.fake.fail_next("listeners", Error::Invalid("they are lost".to_owned()));
    let id = SandboxId::new("closed").unwrap();
    let request = CreateSandbox { id: Some(id.clone()), ..network_to(&[]) };
    let refused = harness.create(request).await.unwrap_err();
    assert_eq!(refused.code, Code::WallUnavailable);
    assert!(refused.cause.as_ref().unwrap().contains("they are lost"), "{refused:?}");
    // Nothing remains, so the id is free.
    let request = GetSandbox { id: id.clone(), metrics: false };
    let left = harness.service.get_status(&caller("u1"), request).await.unwrap_err();
    assert_eq!(left.code, Code::NotFound);
    assert_eq!(harness.sandbox_count().await, 0);

    // A program that is not an egress process.
    let program = Program { path: "/bin/false".into(), arguments: Vec::new() };
    let harness = Harness::with(Options { egress: Some(program), ..Options::default() }).await;
    let refused = harness.create(network_to(&[])).await.unwrap_err();
    assert_eq!(refused.code, Code::WallUnavailable, "{refused:?}");
    assert_eq!(harness.sandbox_count().await, 0);
}

const CANARY: &str = "sk-canary-7f3a-Zq83hTnw04LxvUe7";

/// A sandbox with a credential and a binding that uses it, in the first revision.
async fn with_credential(test: &str) -> (Harness, SandboxId) {
    let harness = Harness::with(options(test)).await;
    let id = harness.create(network_to(&["api.example"])).await.unwrap().id;
    let request = json!({
        "id": id, "addCredentials": {"token": CANARY},
        "addBindings": [{
            "name": "api", "hosts": ["api.example"], "ports": [443],
            "place": {"type": "bearer", "credential": "token"},
        }],
    });
    let made = change_injections(&harness, request).await.unwrap();
    assert_eq!(made["network"]["injections"]["revision"], 1);
    (harness, id)
}

async fn change_injections(harness: &Harness, request: Value) -> stockade_api::Result<Value> {
    harness.call("u1", "", "change_injections", request).await
}

#[test]
fn cases() {
    drive("crates/service/tests/egress.rs::cases", "egress_credentials.json", |case| {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        let request = match case.name.as_str() {
            "delete referenced credential" => json!({"removeCredentials": ["token"]}),
            "stale revision" => {
                json!({"expectedRevision": case.given["expectedRevision"], "removeBindings": ["api"]})
            }
            _ => return no_driver(),
        };
        runtime.block_on(async {
            let (harness, id) = with_credential("the-cases").await;
            if let Some(current) = case.given["current"].as_u64() {
                for _ in 1..current {
                    change_injections(&harness, json!({"id": id})).await.unwrap();
                }
            }
            let before = network_status(harness.status(&id).await).injections;
            let mut whole = json!({"id": id});
            whole.as_object_mut().unwrap().extend(request.as_object().unwrap().clone());
            let problem = change_injections(&harness, whole).await.unwrap_err();
            let expected = match case.name.as_str() {
                "stale revision" => Code::Conflict,
                _ => Code::InvalidInput,
            };
            same(expected, problem.code)?;
            same(before, network_status(harness.status(&id).await).injections)
        })
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_bound_by_name_and_recorded_without_their_values() {
    let (harness, id) = with_credential("credentials").await;
    for (refused, code) in [
        (
            json!({"addCredentials": {"short": "x"}, "addBindings": [{
                "name": "b", "hosts": ["api.example"], "ports": [443],
                "place": {"type": "apiKey", "name": "X-Key", "credential": "short"},
            }]}),
            Code::InvalidInput,
        ),
        (
            json!({"addBindings": [{
                "name": "b", "hosts": ["other.example"], "ports": [443],
                "place": {"type": "apiKey", "name": "X-Key", "credential": "token"},
            }]}),
            Code::InvalidInput,
        ),
        (
            json!({"addBindings": [{
                "name": "b", "hosts": ["api.example"], "ports": [443],
                "place": {"type": "apiKey", "name": "Host", "credential": "token"},
            }]}),
            Code::InvalidInput,
        ),
        (
            json!({"addBindings": [{
                "name": "b", "hosts": ["api.example"], "ports": [443],
                "place": {"type": "basic", "credential": "token"},
            }]}),
            Code::InvalidInput,
        ),
    ] {
        let mut whole = json!({"id": id});
        whole.as_object_mut().unwrap().extend(refused.as_object().unwrap().clone());
        let problem = change_injections(&harness, whole).await.unwrap_err();
        assert_eq!(problem.code, code, "{refused}: {problem:?}");
        assert!(!format!("{problem:?}").contains("canary"));
        let status = network_status(harness.status(&id).await);
        assert_eq!(status.injections.unwrap().revision, 1, "{refused}");
    }
    // The same credential for requests of another kind needs no value again.
    let request = json!({"id": id, "addBindings": [{
        "name": "query", "hosts": ["api.example"], "ports": [443],
        "requests": {"methods": ["GET"], "paths": ["/v1/*"]},
        "place": {"type": "query", "name": "key", "credential": "token"},
    }]});
    change_injections(&harness, request).await.unwrap();
    assert!(!harness.database_holds(CANARY));
    // The rule that a binding needs cannot be removed.
    let change = ChangeNetwork {
        refuse: vec!["api.example".parse().unwrap()],
        ..ChangeNetwork::new(id.clone())
    };
    let refused =
        harness.run(|s| async move { s.change_network(&caller("u1"), change).await }).await;
    assert_eq!(refused.unwrap_err().code, Code::InvalidInput);
    let cleared = change_injections(&harness, json!({"id": id, "clear": true})).await.unwrap();
    assert_eq!(cleared["network"].get("injections"), None);
    let again = change_injections(&harness, json!({"id": id, "clear": true})).await;
    assert_eq!(again.unwrap_err().code, Code::NotFound);
}
