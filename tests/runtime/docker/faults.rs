//! Faults: an engine that is missing, slow or killed, an image that is missing, and what a killed process
//! leaves behind.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use stockade_core::sandbox::Root;
use stockade_core::{SandboxId, SandboxSpec};
use stockade_runtime::conformance::Backend as _;
use stockade_runtime::{Error, Runtime as _, State};
use stockade_runtime_docker::{Address, Docker, Options};
use stockade_test_support::Engine;

use super::{DockerFixture, with_engine};

fn spec(image: &str) -> SandboxSpec {
    SandboxSpec { root: Root::Image(image.to_owned()), ..SandboxSpec::default() }
}

fn id(name: &str) -> SandboxId {
    SandboxId::new(name).unwrap()
}

/// A client for an engine at this socket.
fn client_for(fixture: &DockerFixture, socket: &std::path::Path) -> Docker {
    let address = Ok(Address { socket: socket.to_owned() });
    Docker::new(Options { address, deadline: Duration::from_millis(300), ..fixture.options() })
}

#[test]
fn an_engine_that_is_missing_or_silent_is_reported_with_a_remedy() {
    with_engine(Engine::start(), async |fixture| {
        let place = tempfile::tempdir().unwrap();
        let missing = client_for(fixture, &place.path().join("none"));
        let refused = missing.create(&id("box"), &spec("t:1")).await.unwrap_err();
        let Error::Unavailable { what, remedy, .. } = &refused else { panic!("{refused:?}") };
        assert!(what.contains("none"), "{refused:?}");
        assert_eq!(remedy, "sudo systemctl start docker");
        assert!(missing.available().await.is_err());
        let silent = place.path().join("silent");
        let _listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
        let slow = client_for(fixture, &silent);
        let refused = slow.create(&id("box"), &spec("t:1")).await.unwrap_err();
        assert!(matches!(refused, Error::Deadline(_) | Error::Unavailable { .. }), "{refused:?}");
    });
}

#[test]
fn an_image_that_is_missing_is_never_pulled() {
    with_engine(Engine::start(), async |fixture| {
        let runtime = fixture.client();
        let refused = runtime.create(&id("box"), &spec("none:1")).await.unwrap_err();
        let Error::NoImage { image, remedy } = &refused else { panic!("{refused:?}") };
        assert_eq!((image.as_str(), remedy.as_str()), ("none:1", "docker pull none:1"));
        for name in ["", "a b", "-x", "A:B:C", "../x"] {
            let refused = runtime.create(&id("box"), &spec(name)).await.unwrap_err();
            let is_typed = matches!(refused, Error::NoImage { .. } | Error::Invalid(_));
            assert!(is_typed, "{name:?}: {refused:?}");
        }
        assert_eq!(fixture.objects("container"), Vec::<String>::new());
    });
}

#[test]
fn what_a_killed_process_has_left_is_removed() {
    with_engine(Engine::start(), async |fixture| {
        let runtime = fixture.client();
        let known = fixture.sandbox(&runtime, |_| {}).await;
        let owner =
            std::fs::read_to_string(fixture.data().join("runtime-docker/engine-id")).unwrap();
        let label = format!("dev.stockade.data={owner}");
        let name = format!("stockade-{owner}-lost");
        let create = ["create", "--name", &name, "--network", "none", "--label", &label];
        let create =
            [&create[..], &["--label", "dev.stockade.sandbox=lost", "t:1", "true"]].concat();
        fixture.engine.docker(&create);
        fixture.engine.docker(&["volume", "create", "--label", &label]);
        // One of another data directory.
        let other = format!("stockade-other-{}", std::process::id());
        let create =
            ["create", "--name", &other, "--network", "none", "--label", "dev.stockade.data=x"];
        fixture.engine.docker(&[&create[..], &["t:1", "true"]].concat());
        let listed = runtime.list(&std::collections::BTreeMap::new()).await.unwrap();
        assert_eq!(listed.iter().map(|status| &status.id).collect::<Vec<_>>(), [&known]);
        assert_eq!(fixture.objects("container").len(), 1);
        fixture.engine.docker(&["inspect", &other]);
        fixture.engine.docker(&["rm", "-fv", &other]);
        assert_eq!(fixture.sh(&runtime, &known, "echo alive").await, "alive\n");
        // A client that finds a container of its own name without a sandbox replaces it.
        let create =
            ["create", "--name", &name, "--network", "none", "--label", &label, "t:1", "true"];
        fixture.engine.docker(&create);
        runtime.create(&id("lost"), &fixture.spec()).await.unwrap();
        runtime.cleanup(&id("lost")).await.unwrap();
        runtime.cleanup(&known).await.unwrap();
        for kind in ["container", "volume", "image"] {
            assert_eq!(fixture.objects(kind), Vec::<String>::new());
        }
    });
}

#[test]
fn an_engine_killed_in_the_middle_ends_nothing_silently() {
    with_engine(Engine::start_for("-kill"), async |fixture| {
        let runtime = fixture.client();
        let sandbox = fixture.sandbox(&runtime, |_| {}).await;
        assert_eq!(fixture.sh(&runtime, &sandbox, "echo 1").await, "1\n");
        kill_process(Pid::from_raw(fixture.engine.process()).unwrap(), Signal::KILL).unwrap();
        let refused = runtime.create(&id("second"), &fixture.spec()).await.unwrap_err();
        assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
        // Its status is known without the engine, whether the container still runs or not.
        let status = runtime.inspect(&sandbox).await.unwrap();
        assert!(matches!(status.state, State::Running | State::Ended), "{status:?}");
        let removed = runtime.cleanup(&sandbox).await;
        assert!(matches!(removed, Ok(()) | Err(Error::Unavailable { .. })), "{removed:?}");
        // The engine returns, and the removal is repeated.
        let _again = Engine::start_for("-kill").unwrap();
        runtime.cleanup(&sandbox).await.unwrap();
        let third = fixture.sandbox(&runtime, |_| {}).await;
        assert_eq!(fixture.sh(&runtime, &third, "echo 3").await, "3\n");
        runtime.cleanup(&third).await.unwrap();
        assert_eq!(
            fixture.leftovers().await.iter().filter(|left| !left.starts_with("trash")).count(),
            0
        );
    });
}
