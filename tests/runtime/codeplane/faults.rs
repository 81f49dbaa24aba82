//! A service that is busy, fails, is silent or loses answers, connections that end, and hosts with other
//! keys: each is a typed error or no error at all, nothing happens twice, and nothing is left there.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use stockade_core::{ExecId, SandboxId, SandboxSpec};
use stockade_runtime::{
    Command, Ending, Error, Event, Exec, ReadRange, Runtime as _, SandboxPath, State,
};
use stockade_runtime_codeplane::Codeplane;
use tokio::io::AsyncReadExt as _;

use super::double::{Fault, KEY};
use super::machine::TOKEN;
use super::{Elsewhere, skipped};

pub(super) fn with_double(test: impl AsyncFnOnce(&Elsewhere, &Codeplane)) {
    stockade_test_support::require_nextest();
    let elsewhere = match Elsewhere::start() {
        Ok(elsewhere) => elsewhere,
        Err(reason) => return skipped(&reason),
    };
    let client = elsewhere.client();
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    tokio.block_on(test(&elsewhere, &client));
    tokio.shutdown_timeout(Duration::from_secs(1));
}

pub(super) fn id(text: &str) -> SandboxId {
    SandboxId::new(text).unwrap()
}

pub(super) fn exec(text: &str) -> ExecId {
    ExecId::new(text).unwrap()
}

pub(super) fn script(text: &str) -> Command {
    let arguments = ["sh", "-c", text].map(OsString::from).into();
    Command { arguments, ..Command::default() }
}

pub(super) async fn finish(exec: Exec) -> (String, Ending) {
    let (mut events, mut output) = (exec.events, Vec::new());
    while let Some(event) = events.next().await {
        match event {
            Event::Output { bytes, .. } => output.extend(bytes),
            Event::Ended(ending) => return (String::from_utf8(output).unwrap(), ending),
            _ => {}
        }
    }
    panic!("a command without an end");
}

#[test]
fn a_busy_service_is_asked_again_and_its_secrets_reach_no_workspace() {
    with_double(async |elsewhere, client| {
        let double = &elsewhere.double;
        double.fail("POST /api/repos/org/repo/workspaces ", Fault::Busy(0));
        double.fail("POST /api/repos/org/repo/workspaces ", Fault::Status(503));
        double.fail("GET /api/repos/org/repo/workspaces?", Fault::Status(500));
        client.create(&id("box"), &SandboxSpec::default()).await.unwrap();
        assert!(double.is_done());
        assert_eq!(double.workspaces().len(), 1);
        let command = script(
            "env | grep ^SSH_; cat /proc/*/environ /proc/*/cmdline /tmp/.stockade-*/* 2>/dev/null; echo end",
        );
        let started = client.execute(&id("box"), &exec("one"), &command).await.unwrap();
        let (output, ending) = finish(started).await;
        assert_eq!(ending, Ending::Exited(0), "{output}");
        assert!(output.ends_with("end\n"), "{output}");
        assert!(!output.contains(KEY) && !output.contains(TOKEN), "{output}");
        assert!(!output.starts_with("SSH_"), "{output}");
        // Nor any file of ours.
        let kept = std::process::Command::new("grep")
            .args(["-rlE", &format!("{KEY}|{TOKEN}")])
            .arg(elsewhere.data())
            .output()
            .unwrap();
        assert!(kept.stdout.is_empty(), "{kept:?}");
        client.cleanup(&id("box")).await.unwrap();
        assert!(double.workspaces().is_empty());
    });
}

#[test]
fn a_service_that_asks_to_wait_long_is_not_asked_again() {
    with_double(async |elsewhere, client| {
        elsewhere.double.fail("GET /api/repos/org/repo/workspaces?", Fault::Busy(3600));
        let before = elsewhere.double.requests().len();
        let busy = client.create(&id("box"), &SandboxSpec::default()).await.unwrap_err();
        assert!(matches!(&busy, Error::Exhausted(text) if text.contains("3600 s")), "{busy:?}");
        // One for the creation, and one that looks for what it may have left.
        assert!(elsewhere.double.requests().len() - before <= 2);
        assert!(client.list(&Default::default()).await.unwrap().is_empty());
    });
}

#[test]
fn a_lost_answer_creates_one_workspace() {
    with_double(async |elsewhere, client| {
        elsewhere.double.fail("POST /api/repos/org/repo/workspaces ", Fault::LoseAnswer);
        client.create(&id("box"), &SandboxSpec::default()).await.unwrap();
        assert!(elsewhere.double.is_done());
        assert_eq!(elsewhere.double.workspaces().len(), 1);
        client.cleanup(&id("box")).await.unwrap();
        assert!(elsewhere.double.workspaces().is_empty());
    });
}

#[test]
fn what_a_killed_client_has_left_is_found_and_deleted() {
    with_double(async |elsewhere, client| {
        let double = &elsewhere.double;
        double.fail("POST /api/repos/org/repo/workspaces ", Fault::LoseAnswer);
        let (sandbox, spec) = (id("box"), SandboxSpec::default());
        let is_made = async {
            while double.workspaces().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // Nothing of the creation goes on: as if the process had been killed.
        tokio::select! {
            () = is_made => {}
            created = client.create(&sandbox, &spec) => panic!("too early: {created:?}"),
        }
        let next = elsewhere.client();
        let known = next.list(&Default::default()).await.unwrap();
        let [status] = &known[..] else { panic!("{known:?}") };
        assert_eq!(status.state, State::Creating);
        next.cleanup(&status.id).await.unwrap();
        assert!(double.workspaces().is_empty());
        assert!(next.list(&Default::default()).await.unwrap().is_empty());
    });
}

#[test]
fn a_connection_that_ends_is_made_again() {
    with_double(async |elsewhere, client| {
        client.create(&id("box"), &SandboxSpec::default()).await.unwrap();
        let command = script("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.2; done; exit 3");
        let running = client.execute(&id("box"), &exec("one"), &command).await.unwrap();
        let breaking = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(400)).await;
                elsewhere.double.drop_connections();
            }
        };
        let ((output, ending), ()) = tokio::join!(finish(running), breaking);
        assert_eq!((output.as_str(), ending), ("1\n2\n3\n4\n5\n6\n7\n8\n", Ending::Exited(3)));
        client.cleanup(&id("box")).await.unwrap();
    });
}

#[test]
fn a_host_with_another_key_gets_neither_token_nor_command() {
    with_double(async |elsewhere, client| {
        let double = &elsewhere.double;
        double.name_host_keys(false);
        // Nothing is known of the host.
        let refused = client.create(&id("box"), &SandboxSpec::default()).await.unwrap_err();
        let Error::Unavailable { reason, remedy, .. } = &refused else { panic!("{refused:?}") };
        assert!(reason.contains("CODEPLANE_KNOWN_HOSTS"), "{reason}");
        assert!(remedy.contains("ssh-keyscan"), "{remedy}");
        assert!(double.workspaces().is_empty(), "it is deleted again");
        // A file names it.
        double.name_host_keys(true);
        client.create(&id("two"), &SandboxSpec::default()).await.unwrap();
        double.name_host_keys(false);
        let known = elsewhere.double.directory.path().join("known_hosts");
        std::fs::write(&known, double.known_hosts()).unwrap();
        let mut address = elsewhere.address();
        address.known_hosts = Some(known);
        let careful = elsewhere.client_of(address);
        let path = SandboxPath::new("/etc/passwd").unwrap();
        let mut content = careful.read_file(&id("two"), &path, ReadRange::default()).await.unwrap();
        let mut text = String::new();
        content.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("developer"));
        // The host has another key since.
        double.change_host_keys();
        let refused = careful.stat(&id("two"), &path).await.unwrap_err();
        let Error::Unavailable { reason, .. } = &refused else { panic!("{refused:?}") };
        assert!(reason.contains("none of those in"), "{reason}");
        client.cleanup(&id("two")).await.unwrap();
    });
}

#[test]
fn a_service_that_does_not_answer_is_told_in_time_and_a_wrong_key_without_it() {
    with_double(async |elsewhere, client| {
        client.create(&id("box"), &SandboxSpec::default()).await.unwrap();
        let mut address = elsewhere.address();
        address.timeout = Duration::from_millis(300);
        let hasty = elsewhere.client_of(address);
        for _ in 0..4 {
            elsewhere.double.fail("GET /api/repos/org/repo/workspaces/", Fault::Silence);
        }
        let since = Instant::now();
        let silent = hasty.inspect(&id("box")).await.unwrap_err();
        assert!(matches!(silent, Error::Unreachable { .. }), "{silent:?}");
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
        let mut address = elsewhere.address();
        address.key = "another_key".to_owned();
        let other = elsewhere.client_of(address);
        let refused = other.create(&id("two"), &SandboxSpec::default()).await.unwrap_err();
        assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
        assert!(!format!("{refused:?} {refused}").contains("another_key"), "{refused:?}");
        let told = other.available().await.unwrap_err();
        assert!(!format!("{told:?}").contains("another_key"), "{told:?}");
        client.cleanup(&id("box")).await.unwrap();
        assert!(elsewhere.double.workspaces().is_empty());
    });
}
