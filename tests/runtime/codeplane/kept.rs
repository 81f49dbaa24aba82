//! Workspaces that are kept, that are made of a snapshot, that are suspended, and what cannot be had.

use stockade_core::SandboxSpec;
use stockade_core::sandbox::{Limits, RemoteWorkspace};
use stockade_runtime::{Error, Runtime as _, State, Target};
use stockade_runtime_codeplane::{Codeplane, Options};
use tokio::io::AsyncReadExt as _;

use super::faults::{exec, finish, id, script, with_double};

fn named(name: &str, snapshot: Option<&str>, keep: bool) -> SandboxSpec {
    let snapshot = snapshot.map(str::to_owned);
    let workspace = RemoteWorkspace { name: name.to_owned(), snapshot, keep };
    SandboxSpec { remote_workspace: Some(workspace), ..SandboxSpec::default() }
}

async fn run(client: &Codeplane, sandbox: &str, text: &str) -> String {
    let started = client.execute(&id(sandbox), &exec("one"), &script(text)).await.unwrap();
    finish(started).await.0
}

#[test]
fn a_workspace_that_is_kept_is_suspended_and_used_again() {
    with_double(async |elsewhere, client| {
        client.create(&id("one"), &named("runner", None, true)).await.unwrap();
        run(client, "one", "echo kept > ~/file; (setsid sleep 1000 &)").await;
        // Only one sandbox uses it at a time.
        let used = client.create(&id("two"), &named("runner", None, true)).await.unwrap_err();
        assert!(matches!(&used, Error::Invalid(text) if text.contains("one")), "{used:?}");
        client.cleanup(&id("one")).await.unwrap();
        assert_eq!(elsewhere.double.workspaces(), [("runner".to_owned(), "suspended")]);
        client.create(&id("two"), &named("runner", None, true)).await.unwrap();
        let found = run(client, "two", "cat ~/file; ls -A /tmp").await;
        assert_eq!(found, "kept\n.stockade-two\n");
        client.cleanup(&id("two")).await.unwrap();
        // One that is not kept never is the user's of that name.
        client.create(&id("three"), &named("runner", None, false)).await.unwrap();
        assert_eq!(run(client, "three", "cat ~/file 2>/dev/null; echo none").await, "none\n");
        assert_eq!(elsewhere.double.workspaces().len(), 2);
        client.cleanup(&id("three")).await.unwrap();
        assert_eq!(elsewhere.double.workspaces(), [("runner".to_owned(), "suspended")]);
    });
}

#[test]
fn a_workspace_starts_from_a_snapshot_of_the_service() {
    with_double(async |elsewhere, client| {
        client.create(&id("one"), &named("first", None, true)).await.unwrap();
        run(client, "one", "echo stored > ~/file").await;
        elsewhere.double.take_snapshots();
        client.create(&id("two"), &named("second", Some("snap_1"), false)).await.unwrap();
        assert_eq!(run(client, "two", "cat ~/file").await, "stored\n");
        let none = client.create(&id("three"), &named("third", Some("snap_9"), false)).await;
        assert!(matches!(&none, Err(Error::Invalid(text)) if text.contains("snap_9")), "{none:?}");
        client.create(&id("four"), &named("fourth", Some("snap_1"), true)).await.unwrap();
        client.cleanup(&id("four")).await.unwrap();
        let other = client.create(&id("five"), &named("fourth", Some("snap_9"), true)).await;
        assert!(
            matches!(&other, Err(Error::Invalid(text)) if text.contains("snap_1")),
            "{other:?}"
        );
        assert_eq!(client.list(&Default::default()).await.unwrap().len(), 2);
    });
}

#[test]
fn a_suspended_workspace_says_so_and_goes_on() {
    with_double(async |_, client| {
        client.create(&id("box"), &SandboxSpec::default()).await.unwrap();
        let command = script("n=0; while [ $n -lt 20 ]; do n=$((n+1)); sleep 0.05; done; echo $n");
        let running = client.execute(&id("box"), &exec("one"), &command).await.unwrap();
        client.pause(&id("box")).await.unwrap();
        assert_eq!(client.inspect(&id("box")).await.unwrap().state, State::Paused);
        let path = stockade_runtime::SandboxPath::new("/tmp").unwrap();
        let refused = client.stat(&id("box"), &path).await.unwrap_err();
        assert!(matches!(refused, Error::WrongState { state: State::Paused, .. }), "{refused:?}");
        client.resume(&id("box")).await.unwrap();
        assert_eq!(finish(running).await.0, "20\n");
        client.cleanup(&id("box")).await.unwrap();
    });
}

#[test]
fn a_port_inside_is_reached() {
    with_double(async |elsewhere, client| {
        client.create(&id("box"), &SandboxSpec::default()).await.unwrap();
        // The server of OpenSSH itself listens there.
        let known = elsewhere.double.known_hosts();
        let (_, port) = known.split(' ').next().unwrap().rsplit_once(':').unwrap();
        let target = Target::Tcp(port.parse().unwrap());
        let mut connection = client.connect(&id("box"), &target).await.unwrap();
        let mut banner = [0; 8];
        connection.read_exact(&mut banner).await.unwrap();
        assert_eq!(&banner, b"SSH-2.0-");
        client.cleanup(&id("box")).await.unwrap();
    });
}

#[test]
fn what_cannot_be_had_is_refused_before_anything_is_made() {
    with_double(async |elsewhere, client| {
        let limits = Limits { memory_bytes: Some(1 << 30), ..Limits::default() };
        for spec in [
            SandboxSpec { limits, ..SandboxSpec::default() },
            SandboxSpec { network: Some(Default::default()), ..SandboxSpec::default() },
            SandboxSpec { ssh_agent: true, ..SandboxSpec::default() },
            named("", None, false),
            named("a/b", None, true),
            named("a", Some("../x"), true),
        ] {
            client.create(&id("box"), &spec).await.unwrap_err();
        }
        let reason = "the runtime `codeplane` needs CODEPLANE_API_KEY".to_owned();
        let unset = Codeplane::new(Options { data: elsewhere.data(), address: Err(reason) });
        assert!(unset.configured().is_err());
        let refused = unset.create(&id("box"), &SandboxSpec::default()).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid(text) if text.contains("CODEPLANE_API_KEY")));
        assert_eq!(elsewhere.double.requests(), Vec::<String>::new());
    });
}
