//! A server that is busy, fails, is silent or loses its connections: each is a typed error or no error at
//! all, nothing happens twice, and nothing is left at the server.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use stockade_core::{ExecId, SandboxId, SandboxSpec};
use stockade_runtime::{Command, Ending, Error, Event, Exec, Runtime as _};

use super::proxy::{Fault, Proxy};
use super::{Elsewhere, OpenSandbox};

fn with_proxy(test: impl AsyncFnOnce(&Elsewhere, &Proxy, &OpenSandbox)) {
    stockade_test_support::require_nextest();
    let elsewhere = Elsewhere::start();
    let proxy = Proxy::start(&elsewhere.domain);
    let client = elsewhere.client_at(&proxy.domain, Duration::from_secs(3));
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    tokio.block_on(test(&elsewhere, &proxy, &client));
    tokio.shutdown_timeout(Duration::from_secs(1));
}

fn id(text: &str) -> SandboxId {
    SandboxId::new(text).unwrap()
}

fn script(text: &str) -> Command {
    let arguments = ["sh", "-c", text].map(OsString::from).into();
    Command { arguments, ..Command::default() }
}

async fn finish(exec: Exec) -> (String, Ending) {
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
fn a_busy_server_is_asked_again_and_the_key_reaches_no_sandbox() {
    with_proxy(async |elsewhere, proxy, client| {
        proxy.fail("POST /v1/sandboxes ", Fault::Status(429));
        proxy.fail("POST /v1/sandboxes ", Fault::Status(503));
        proxy.fail("GET /v1/sandboxes?", Fault::Status(500));
        client.create(&id("box"), &SandboxSpec::default()).await.unwrap();
        assert!(proxy.is_done());
        assert_eq!(elsewhere.at_the_server().len(), 1);
        proxy.fail("/files/download", Fault::LoseAnswer);
        proxy.fail("/command/status/", Fault::Status(502));
        let command = script("env; sleep 0.2; cat /proc/1/environ 2>/dev/null; echo end");
        let exec = ExecId::new("one").unwrap();
        let (output, ending) =
            finish(client.execute(&id("box"), &exec, &command).await.unwrap()).await;
        assert_eq!(ending, Ending::Exited(0), "{output}");
        assert!(output.ends_with("end\n") && !output.contains(&elsewhere.key), "{output}");
        let of_sandboxes: Vec<_> =
            proxy.requests().into_iter().filter(|head| head.contains("/proxy/")).collect();
        assert!(!of_sandboxes.is_empty());
        assert!(of_sandboxes.iter().all(|head| !head.contains(&elsewhere.key)));
        client.cleanup(&id("box")).await.unwrap();
        assert!(elsewhere.at_the_server().is_empty());
    });
}

#[test]
fn a_lost_answer_creates_one_sandbox_and_starts_one_command() {
    with_proxy(async |elsewhere, proxy, client| {
        proxy.fail("POST /v1/sandboxes ", Fault::LoseAnswer);
        client.create(&id("box"), &SandboxSpec::default()).await.unwrap();
        assert!(proxy.is_done());
        assert_eq!(elsewhere.at_the_server().len(), 1);
        let exec = ExecId::new("one").unwrap();
        let command = script("echo run >> /tmp/runs; sleep 0.3; cat /tmp/runs");
        proxy.fail("/proxy/44772/command ", Fault::LoseAnswer);
        let lost = client.execute(&id("box"), &exec, &command).await.unwrap_err();
        assert!(matches!(lost, Error::OutcomeUnknown(_)), "{lost:?}");
        // The same id again: it is the same command.
        let (output, ending) =
            finish(client.execute(&id("box"), &exec, &command).await.unwrap()).await;
        assert_eq!((output.as_str(), ending), ("run\n", Ending::Exited(0)));
        // The first script is ended, too, although the server tells the id of the second one only.
        let exec = ExecId::new("two").unwrap();
        let command = script("echo $$ > /tmp/pid; exec sleep 1000");
        proxy.fail("/proxy/44772/command ", Fault::LoseAnswer);
        client.execute(&id("box"), &exec, &command).await.unwrap_err();
        let running = client.execute(&id("box"), &exec, &command).await.unwrap();
        let look = script(
            "while [ ! -s /tmp/pid ]; do sleep 0.01; done; kill -0 $(cat /tmp/pid) 2>/dev/null && echo runs",
        );
        let three = ExecId::new("three").unwrap();
        let (output, _) = finish(client.execute(&id("box"), &three, &look).await.unwrap()).await;
        assert_eq!(output, "runs\n");
        client.kill(&id("box"), &exec).await.unwrap();
        assert_eq!(finish(running).await.1, Ending::Killed);
        let four = ExecId::new("four").unwrap();
        let (output, _) = finish(client.execute(&id("box"), &four, &look).await.unwrap()).await;
        assert_eq!(output, "");
        client.cleanup(&id("box")).await.unwrap();
    });
}

#[test]
fn what_a_killed_client_has_left_is_found_and_removed() {
    with_proxy(async |elsewhere, proxy, client| {
        // Neither the answer nor the search for it comes back: as if the process had been killed.
        proxy.fail("POST /v1/sandboxes ", Fault::LoseAnswer);
        for _ in 0..4 {
            proxy.fail("metadata=", Fault::Status(500));
        }
        // The first search is before the creation.
        let created = client.create(&id("box"), &SandboxSpec::default()).await;
        if created.is_err() && elsewhere.at_the_server().is_empty() {
            // All faults hit the first search; the creation itself is still to come.
            client.create(&id("box"), &SandboxSpec::default()).await.unwrap();
        }
        assert_eq!(elsewhere.at_the_server().len(), 1);
        let next = elsewhere.client();
        let listed = next.list(&Default::default()).await.unwrap();
        assert_eq!(listed.len(), 1, "it is known here: {listed:?}");
        next.cleanup(&id("box")).await.unwrap();
        assert!(elsewhere.at_the_server().is_empty());
        assert!(next.list(&Default::default()).await.unwrap().is_empty());
    });
}

#[test]
fn a_server_that_does_not_answer_is_told_in_time() {
    with_proxy(async |elsewhere, proxy, client| {
        client.create(&id("box"), &SandboxSpec::default()).await.unwrap();
        for _ in 0..4 {
            proxy.fail("GET /v1/sandboxes/", Fault::Silence);
        }
        let since = Instant::now();
        let silent = client.inspect(&id("box")).await.unwrap_err();
        assert!(matches!(silent, Error::Unreachable { .. }), "{silent:?}");
        assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
        // Somebody else has removed it there.
        elsewhere.client().cleanup(&id("box")).await.unwrap();
        let gone = client.inspect(&id("box")).await.unwrap_err();
        assert!(matches!(gone, Error::NoSandbox(_)), "{gone:?}");
        let other = elsewhere.client_with_key("e2b_0000000000000000000000000000000000000000");
        let refused = other.create(&id("two"), &SandboxSpec::default()).await.unwrap_err();
        assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
        assert!(!refused.to_string().contains("e2b_0000"));
    });
}
