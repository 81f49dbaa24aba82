//! The life cycle of a sandbox, from its owner's side: on a runtime in memory and a store on disk.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod harness;

use harness::{Harness, caller};
use stockade_api::{
    ById, ChangeLimits, CommandLine, CreateSandbox, Ending, Execute, Expiry, GetSandbox,
    ListSandboxes, ReadEvents, Renew, RunNode, Sandboxes as _,
};
use stockade_core::event::Kind;
use stockade_core::network::TrafficLimits;
use stockade_core::sandbox::{LimitChange, LimitName, Limits};
use stockade_core::{Code, State};

#[tokio::test]
async fn a_sandbox_is_made_used_and_ended_and_each_step_is_told() {
    let harness = Harness::new().await;
    let (service, me) = (&harness.service, caller("u1"));
    let sandbox = service.create(&me, CreateSandbox::default()).await.unwrap();
    assert_eq!(sandbox.state, State::Running);
    assert_eq!(sandbox.owner_id, me.owner);
    assert_eq!(sandbox.id.as_str().len(), 12);
    let id = sandbox.id.clone();

    let line = CommandLine::Program(vec!["echo".into(), "hello".into()]);
    let executed = service.execute(&me, Execute::new(id.clone(), line)).await.unwrap();
    assert_eq!((executed.end.ending, executed.end.exit_code), (Ending::Exited, Some(0)));
    assert_eq!(executed.stdout.lossy(), "hello\n");

    let by_id = ById { id: id.clone() };
    assert_eq!(service.pause(&me, by_id.clone()).await.unwrap().state, State::Paused);
    let again = service.pause(&me, by_id.clone()).await.unwrap_err();
    assert_eq!(again.code, Code::InvalidState);
    assert_eq!(service.resume(&me, by_id.clone()).await.unwrap().state, State::Running);
    let renew = Renew { id: id.clone(), ttl_seconds: Some(7200.0), shorten: false };
    let renewed = service.renew(&me, renew).await.unwrap();
    assert!(renewed.expires_at > sandbox.expires_at);
    assert_eq!(service.kill(&me, by_id.clone().into()).await.unwrap().state, State::Terminated);
    assert_eq!(service.kill(&me, by_id.clone().into()).await.unwrap().state, State::Terminated);
    let refused = service.resume(&me, by_id).await.unwrap_err();
    assert_eq!(refused.code, Code::SandboxTerminated);
    let status =
        service.get_status(&me, GetSandbox { id: id.clone(), metrics: true }).await.unwrap();
    assert!(status.terminated_at.is_some());
    assert_eq!(service.list(&me, ListSandboxes::default()).await.unwrap().sandboxes, []);

    let mut events = service.read_events(&me, ReadEvents::default()).await.unwrap();
    let mut kinds = Vec::new();
    while let Some(event) = events.next().await {
        kinds.push(event.unwrap().payload.kind());
    }
    let expected = [
        Kind::SandboxCreated,
        Kind::CommandCompleted,
        Kind::SandboxPaused,
        Kind::SandboxResumed,
        Kind::SandboxRenewed,
        Kind::SandboxKilled,
    ];
    assert_eq!(kinds, expected);
}

#[tokio::test]
async fn limits_are_changed_in_the_runtime_first_and_then_recorded() {
    let harness = Harness::new().await;
    let (service, me) = (&harness.service, caller("u1"));
    let limits = Limits { cpu_millis: Some(500), ..Limits::default() };
    let created = harness.create(CreateSandbox { limits, ..CreateSandbox::default() }).await;
    let id = created.unwrap().id;
    let change = |bytes| ChangeLimits {
        id: id.clone(),
        limits: LimitChange { memory_bytes: Some(bytes), ..LimitChange::default() },
        network_limits: TrafficLimits::default(),
    };
    let changed = service.change_limits(&me, change(7)).await.unwrap();
    assert_eq!(changed.limits, Limits { memory_bytes: Some(7), ..limits });
    let calls = || harness.fake.calls("change_limits");
    assert_eq!(calls(), 1);
    // What cannot change is not recorded, nor what is no change.
    let error = stockade_runtime::Error::Limit {
        limit: LimitName::Memory,
        reason: "more is in use".to_owned(),
        remedy: "choose a larger limit".to_owned(),
    };
    harness.fake.fail_next("change_limits", error);
    let refused = service.change_limits(&me, change(3)).await.unwrap_err();
    assert_eq!(refused.code, Code::LimitUnavailable);
    assert!(refused.message.contains("nothing was changed"), "{refused:?}");
    let nothing = ChangeLimits { limits: LimitChange::default(), ..change(1) };
    let invalid = [change(0), nothing.clone()];
    for request in invalid {
        let refused = service.change_limits(&me, request).await.unwrap_err();
        assert_eq!(refused.code, Code::InvalidInput);
    }
    let traffic = TrafficLimits { connections: Some(3), ..TrafficLimits::default() };
    let without = ChangeLimits { network_limits: traffic, ..nothing };
    let refused = service.change_limits(&me, without).await.unwrap_err();
    assert_eq!(refused.code, Code::Conflict);
    let seen = harness.status(&id).await;
    assert_eq!((seen.limits.memory_bytes, calls()), (Some(7), 2));
    let recorded = harness.texts("SELECT resource_spec FROM sandbox_instances").await;
    assert!(recorded[0].contains("\"memoryBytes\":7"), "{recorded:?}");
    // Without processes, the next start has them.
    service.stop(&me, ById { id: id.clone() }).await.unwrap();
    service.change_limits(&me, change(9)).await.unwrap();
    assert_eq!(calls(), 2);
    let started = service.start(&me, ById { id: id.clone() }).await.unwrap();
    assert_eq!(started.limits.memory_bytes, Some(9));
    let told = harness.kinds().await.into_iter().filter(|kind| *kind == Kind::LimitsChanged);
    assert_eq!(told.count(), 2);
    service.kill(&me, ById { id }.into()).await.unwrap();
}

#[tokio::test]
async fn a_stranger_is_told_that_there_is_nothing() {
    let harness = Harness::new().await;
    let service = &harness.service;
    let sandbox = service.create(&caller("u1"), CreateSandbox::default()).await.unwrap();
    let before = harness.runtime_calls();
    for stranger in ["u2", "U1"] {
        let by_id = ById { id: sandbox.id.clone() };
        let refused = service.kill(&caller(stranger), by_id.into()).await.unwrap_err();
        let none = ById { id: "nothing-here".to_owned().try_into().unwrap() };
        let unknown = service.kill(&caller(stranger), none.into()).await.unwrap_err();
        assert_eq!((refused.code, unknown.code), (Code::NotFound, Code::NotFound));
    }
    assert_eq!(harness.runtime_calls(), before);
}

#[tokio::test]
async fn the_same_name_does_it_once_and_other_words_under_it_are_refused() {
    let harness = Harness::new().await;
    let service = &harness.service;
    let once = caller("u1").with_key("k");
    let first = service.create(&once, CreateSandbox::default()).await.unwrap();
    let second = service.create(&once, CreateSandbox::default()).await.unwrap();
    assert_eq!(first.id, second.id);
    let other = CreateSandbox { expiry: Expiry::Never, ..CreateSandbox::default() };
    assert_eq!(service.create(&once, other).await.unwrap_err().code, Code::Conflict);
    let theirs =
        service.create(&caller("u2").with_key("k"), CreateSandbox::default()).await.unwrap();
    assert_ne!(theirs.id, first.id);
}

#[tokio::test]
async fn a_life_ends_when_its_time_is_over() {
    let harness = Harness::new().await;
    let (service, me) = (&harness.service, caller("u1"));
    let request = CreateSandbox { expiry: Expiry::Seconds(0.2), ..CreateSandbox::default() };
    let request = stockade_service::fireflow::request(request);
    let sandbox = service.create(&me, request).await.unwrap();
    let request = ReadEvents { follow: true, ..ReadEvents::default() };
    let mut events = service.read_events(&me, request).await.unwrap();
    loop {
        let event = events.next().await.unwrap().unwrap();
        if event.payload.kind() == Kind::SandboxKilled {
            break;
        }
    }
    let get = GetSandbox { id: sandbox.id, metrics: false };
    assert_eq!(service.get_status(&me, get).await.unwrap().state, State::Terminated);
}

#[tokio::test]
async fn what_was_done_is_told_again_whatever_became_of_the_sandbox_since() {
    let harness = Harness::new().await;
    let (service, me) = (&harness.service, caller("u1"));
    let id = service.create(&me, CreateSandbox::default()).await.unwrap().id;
    let by_id = ById { id: id.clone() };
    let pausing = me.clone().with_key("pause");
    let first = service.pause(&pausing, by_id.clone()).await.unwrap();
    assert_eq!(service.pause(&pausing, by_id.clone()).await.unwrap(), first);
    service.resume(&me, by_id.clone()).await.unwrap();
    let running = me.clone().with_key("run");
    let line = CommandLine::Program(vec!["echo".into(), "hello".into()]);
    let execute = Execute::new(id.clone(), line);
    let executed = service.execute(&running, execute.clone()).await.unwrap();
    service.kill(&me, by_id.clone().into()).await.unwrap();
    assert_eq!(service.execute(&running, execute.clone()).await.unwrap(), executed);
    assert_eq!(service.pause(&pausing, by_id).await.unwrap(), first);
    let refused = service.execute(&me.clone().with_key("another"), execute).await.unwrap_err();
    assert_eq!(refused.code, Code::SandboxTerminated);
}

#[tokio::test]
async fn what_came_along_a_chain_of_nodes_stays_narrow() {
    let harness = Harness::new().await;
    let (service, me) = (&harness.service, caller("u1"));
    let run = async |node: &str, inputs: serde_json::Value| {
        let inputs = inputs.as_object().unwrap().clone();
        service
            .run_node(&me, RunNode { node: node.to_owned(), inputs, server: None })
            .await
            .unwrap()
            .outputs
    };
    let mut inputs = run("SandboxCreateNode", serde_json::json!({})).await;
    let narrow = serde_json::json!([{ "path": "/tmp", "level": "read" }]);
    let proxy = serde_json::json!({ "exposedPorts": [8080] });
    inputs.retain(|name, _| name == "sandboxId");
    inputs.insert("accessRules".to_owned(), narrow.clone());
    inputs.insert("proxyConfig".to_owned(), proxy.clone());
    for node in ["SandboxStatusNode", "SandboxPauseNode", "SandboxResumeNode"] {
        let mut outputs = run(node, inputs.clone().into()).await;
        assert_eq!((&outputs["accessRules"], &outputs["proxyConfig"]), (&narrow, &proxy), "{node}");
        outputs.retain(|name, _| inputs.contains_key(name));
        inputs = outputs;
    }
}
