//! The resources of agent-sandbox: sandboxes, and claims to unused ones.

use std::time::Duration;

use stockade_core::SandboxSpec;
use stockade_runtime::{Runtime as _, State};

use crate::double::Agents;
use crate::doubled::{Fixture, id, sh, with_double};

#[test]
fn a_pod_belongs_to_a_sandbox_where_there_are_some() {
    with_double(Agents::Sandboxes, 3, async |fixture| {
        let (runtime, one) = (fixture.client(), id("one"));
        let spec = SandboxSpec { lease: Some(Duration::from_secs(600)), ..Fixture::spec() };
        let status = runtime.create(&one, &spec).await.unwrap();
        assert_eq!(status.state, State::Running);
        let [sandbox] = fixture.double.store.list("sandboxes", None).try_into().unwrap();
        assert_eq!(sandbox["spec"]["shutdownPolicy"], "Delete");
        let before = sandbox["spec"]["shutdownTime"].as_str().unwrap().to_owned();
        runtime.renew(&one, Some(Duration::from_secs(7200))).await.unwrap();
        let [sandbox] = fixture.double.store.list("sandboxes", None).try_into().unwrap();
        assert!(sandbox["spec"]["shutdownTime"].as_str().unwrap() > before.as_str());
        assert_eq!(sh(&runtime, &one, "e", "echo hello").await, "hello\n");
        runtime.cleanup(&one).await.unwrap();
        for kind in ["sandboxes", "pods"] {
            assert_eq!(fixture.names(kind), Vec::<String>::new());
        }
    });
}

#[test]
fn a_claim_takes_an_unused_pod() {
    with_double(Agents::All, 1, async |fixture| {
        let (runtime, one, two) = (fixture.client(), id("one"), id("two"));
        for (id, text) in [(&one, "1"), (&two, "2")] {
            runtime.create(id, &Fixture::spec()).await.unwrap();
            let wrote = sh(&runtime, id, "e", &format!("echo {text} | tee ~/file")).await;
            assert_eq!(wrote, format!("{text}\n"));
        }
        assert_eq!(sh(&runtime, &one, "f", "cat ~/file").await, "1\n");
        // Both are of the same kind: one template, one pool with one more pod.
        assert_eq!(fixture.names("sandboxtemplates").len(), 1);
        assert_eq!(fixture.names("sandboxwarmpools").len(), 1);
        assert_eq!(fixture.names("sandboxclaims").len(), 2);
        assert_eq!(fixture.names("pods").len(), 3);
        // The unused one is no sandbox.
        assert_eq!(runtime.list(&Default::default()).await.unwrap().len(), 2);
        for id in [&one, &two] {
            runtime.cleanup(id).await.unwrap();
        }
        assert_eq!(fixture.names("sandboxclaims"), Vec::<String>::new());
        assert_eq!(fixture.names("pods").len(), 1);
    });
}
