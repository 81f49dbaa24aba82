//! Creating, finding and removing sandboxes.

use std::collections::BTreeMap;

use stockade_core::sandbox::LimitChange;
use stockade_core::{ExecId, SandboxSpec};

use super::super::harness::{Harness, path, within};
use super::super::sandbox::{Sandbox, command};
use crate::error::Error;
use crate::exec::{Ending, Offsets};
use crate::state::State;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(crate) async fn a_new_sandbox_runs(harness: &Harness) {
    let (runtime, id) = (harness.runtime(), harness.id());
    let spec = SandboxSpec { labels: labels(&[("colour", "red")]), ..harness.spec() };
    let made = within("a sandbox", runtime.create(&id, &spec)).await.unwrap();
    assert_eq!(made.id, id);
    assert_eq!(made.state, State::Running);
    assert_eq!(made.labels, spec.labels);
    assert_eq!(made.lease_left, None);
    assert_eq!(made.reason, None);
    assert!(made.execs.is_empty(), "{:?}", made.execs);
    assert!(made.created_at_ms > 0);
    let seen = within("inspecting", runtime.inspect(&id)).await.unwrap();
    assert_eq!(seen, made);
    let finished = Sandbox::new(harness, id).run(&["echo", "hello"]).await;
    assert_eq!(finished.ending, Ending::Exited(0));
    assert_eq!(finished.output(), "hello\n");
}

pub(crate) async fn created_again_it_is_the_same(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/kept", "kept").await;
    let again = within("a sandbox", harness.runtime().create(sandbox.id(), &harness.spec())).await;
    let created = again.unwrap().created_at_ms;
    assert_eq!(sandbox.read("/data/kept").await, "kept");
    assert_eq!(sandbox.inspect().await.unwrap().created_at_ms, created);
}

pub(crate) async fn created_again_differently_it_conflicts(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let spec = SandboxSpec { labels: labels(&[("colour", "blue")]), ..harness.spec() };
    let again = within("a sandbox", harness.runtime().create(sandbox.id(), &spec)).await;
    assert!(matches!(again, Err(Error::Conflict(_))), "{again:?}");
    assert!(sandbox.inspect().await.unwrap().labels.is_empty());
    assert_eq!(sandbox.run(&["true"]).await.ending, Ending::Exited(0));
}

pub(crate) async fn created_many_times_at_once_it_is_one(harness: &Harness) {
    let (runtime, id, name) = (harness.runtime(), harness.id(), harness.name());
    let spec = SandboxSpec { labels: labels(&[("case", &name)]), ..harness.spec() };
    let creating = (0..8).map(|_| {
        let (runtime, id, spec) = (runtime.clone(), id.clone(), spec.clone());
        tokio::spawn(async move { runtime.create(&id, &spec).await })
    });
    let creating: Vec<_> = creating.collect();
    for created in creating {
        let created = within("a sandbox", created).await.unwrap();
        assert_eq!(created.unwrap().id, id);
    }
    let all = within("a list", runtime.list(&spec.labels)).await.unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
}

pub(crate) async fn what_does_not_exist_is_told(harness: &Harness) {
    let (runtime, id) = (harness.runtime(), harness.id());
    let exec = ExecId::new("none").unwrap();
    let (words, file) = (command(&["true"]), path("/etc"));
    let none = |what: &str, error: Option<Error>| {
        let error = error.unwrap_or_else(|| panic!("{what} of a sandbox that does not exist"));
        assert!(matches!(&error, Error::NoSandbox(other) if *other == id), "{what}: {error:?}");
    };
    within("answers", async {
        none("inspect", runtime.inspect(&id).await.err());
        none("execute", runtime.execute(&id, &exec, &words).await.err());
        none("attach", runtime.attach(&id, &exec, Offsets::default()).await.err());
        none("kill", runtime.kill(&id, &exec).await.err());
        none("renew", runtime.renew(&id, None).await.err());
        let change = LimitChange { processes: Some(9), ..LimitChange::default() };
        none("change_limits", runtime.change_limits(&id, &change).await.err());
        none("stat", runtime.stat(&id, &file).await.err());
        none("read_directory", runtime.read_directory(&id, &file).await.err());
        none("ship", runtime.ship(&id, harness.host(), &file).await.err());
        let to = harness.host().join("collected");
        none("collect", runtime.collect(&id, &file, &to, 1 << 20).await.err());
        assert!(!to.exists());
    })
    .await;
}

pub(crate) async fn they_are_listed_by_their_labels(harness: &Harness) {
    let case = harness.name();
    let mut ids = Vec::new();
    for colour in ["red", "green"] {
        let labels = labels(&[("case", &case), ("colour", colour)]);
        let spec = SandboxSpec { labels, ..harness.spec() };
        ids.push(harness.sandbox_with(&spec).await.id().clone());
    }
    let runtime = harness.runtime();
    let listed = async |pairs: &[(&str, &str)]| -> Vec<_> {
        let all = within("a list", runtime.list(&labels(pairs))).await.unwrap();
        all.into_iter().map(|status| status.id).collect()
    };
    assert_eq!(listed(&[("case", &case)]).await, ids);
    assert_eq!(listed(&[("case", &case), ("colour", "red")]).await, ids[..1]);
    assert_eq!(listed(&[("case", &case), ("colour", "blue")]).await, []);
    assert_eq!(listed(&[("case", "another")]).await, []);
    let all = listed(&[]).await;
    assert!(ids.iter().all(|id| all.contains(id)), "{all:?}");
}

pub(crate) async fn cleaned_up_twice_it_is_gone(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    sandbox.write("/data/old", "old").await;
    let (one, two) = (sandbox.clone(), sandbox.clone());
    tokio::join!(one.cleanup(), two.cleanup());
    sandbox.cleanup().await;
    let gone = sandbox.inspect().await;
    assert!(matches!(gone, Err(Error::NoSandbox(_))), "{gone:?}");

    // The id is free for any request.
    let spec = SandboxSpec { labels: labels(&[("life", "second")]), ..harness.spec() };
    let id = sandbox.id().clone();
    within("a sandbox", harness.runtime().create(&id, &spec)).await.unwrap();
    let second = harness.existing(id).await;
    assert!(!second.exists("/data/old").await);
    assert_eq!(second.inspect().await.unwrap().labels, spec.labels);
}

pub(crate) async fn cleanup_ends_what_runs(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&command(&["sleep", "1000"])).await;
    sandbox.cleanup().await;
    assert_eq!(running.finish().await.ending, Ending::SandboxEnded);
}
