//! The promises of the fake runtime beyond the trait.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use stockade_core::network::Policy;
use stockade_core::sandbox::{LimitName, Limits};
use stockade_core::{ExecId, SandboxId, SandboxSpec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Fake;
use crate::capability::Capability;
use crate::error::Error;
use crate::exec::{Command, Ending, Event, Exec, Stream};
use crate::runtime::{Runtime as _, Target};
use crate::state::State;

fn id(text: &str) -> SandboxId {
    SandboxId::new(text).unwrap()
}

fn exec(text: &str) -> ExecId {
    ExecId::new(text).unwrap()
}

fn command(words: &[&str]) -> Command {
    Command { arguments: words.iter().map(Into::into).collect(), ..Command::default() }
}

async fn with_sandbox(spec: &SandboxSpec) -> Fake {
    let fake = Fake::new();
    fake.create(&id("a"), spec).await.unwrap();
    fake
}

/// The standard output of a command, and how it ended.
async fn finish(mut exec: Exec) -> (String, Ending) {
    let mut text = Vec::new();
    loop {
        match exec.events.next().await.unwrap() {
            Event::Output { stream: Stream::Output, bytes, .. } => text.extend(bytes),
            Event::Ended(ending) => return (String::from_utf8(text).unwrap(), ending),
            _ => {}
        }
    }
}

async fn run(fake: &Fake, name: &str, words: &[&str]) -> (String, Ending) {
    finish(fake.execute(&id("a"), &exec(name), &command(words)).await.unwrap()).await
}

#[tokio::test]
async fn programs_are_functions_and_some_are_there() {
    let fake = with_sandbox(&SandboxSpec::default()).await;
    fake.program("npm test", |process| async move {
        process.print("all passed\n");
        process.write_file("report.txt", "good");
        Ending::Exited(3)
    });
    let passed = ("all passed\n".to_owned(), Ending::Exited(3));
    assert_eq!(run(&fake, "1", &["sh", "-c", "npm test"]).await, passed);
    assert_eq!(run(&fake, "2", &["cat", "report.txt"]).await.0, "good");
    assert_eq!(run(&fake, "3", &["/bin/sh", "-c", "echo a  b"]).await.0, "a b\n");
    assert_eq!(run(&fake, "4", &["exit", "9"]).await.1, Ending::Exited(9));
    assert_eq!(run(&fake, "5", &["pwd"]).await.0, "/home/user\n");
    assert_eq!(run(&fake, "6", &["sleep", "0"]).await.1, Ending::Exited(0));
    let (_, ending) = run(&fake, "7", &["npm"]).await;
    assert!(matches!(ending, Ending::NotRun { errno: 2, .. }), "{ending:?}");
}

#[tokio::test(start_paused = true)]
async fn time_is_tokios() {
    let hour = Duration::from_secs(3600);
    let lease = Some(24 * hour);
    let fake = with_sandbox(&SandboxSpec { lease, ..SandboxSpec::default() }).await;
    let sleep = Command { timeout: Some(hour), ..command(&["sleep", "86400"]) };
    let first = fake.execute(&id("a"), &exec("1"), &sleep).await.unwrap();
    assert_eq!(finish(first).await.1, Ending::TimedOut);
    assert_eq!(fake.inspect(&id("a")).await.unwrap().lease_left, Some(23 * hour));

    let long = fake.execute(&id("a"), &exec("2"), &command(&["sleep", "90000"])).await.unwrap();
    fake.pause(&id("a")).await.unwrap();
    assert_eq!(finish(long).await.1, Ending::SandboxEnded);
    let status = fake.inspect(&id("a")).await.unwrap();
    assert_eq!((status.state, status.reason.as_deref()), (State::Ended, Some("its lease ended")));
    let late = fake.execute(&id("a"), &exec("3"), &command(&["true"])).await;
    assert!(matches!(late, Err(Error::WrongState { state: State::Ended, .. })), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_paused_does_not_run() {
    let fake = with_sandbox(&SandboxSpec::default()).await;
    fake.program("count", |process| async move {
        loop {
            process.print(".");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let mut counting = fake.execute(&id("a"), &exec("1"), &command(&["count"])).await.unwrap();
    assert!(counting.events.next().await.is_some());
    fake.pause(&id("a")).await.unwrap();
    assert_eq!(fake.inspect(&id("a")).await.unwrap().state, State::Paused);
    let minute = Duration::from_secs(60);
    assert!(tokio::time::timeout(minute, counting.events.next()).await.is_err());
    fake.resume(&id("a")).await.unwrap();
    assert!(counting.events.next().await.is_some());
}

#[tokio::test]
async fn the_next_call_fails_when_told_to() {
    let fake = with_sandbox(&SandboxSpec::default()).await;
    fake.fail_next("execute", Error::Deadline("the start"));
    fake.inspect(&id("a")).await.unwrap();
    let failed = fake.execute(&id("a"), &exec("1"), &command(&["true"])).await;
    assert!(matches!(failed, Err(Error::Deadline("the start"))));
    assert_eq!(run(&fake, "1", &["true"]).await.1, Ending::Exited(0));
    assert_eq!(fake.calls("execute"), 2);
    assert_eq!(fake.calls("cleanup"), 0);
}

#[tokio::test]
async fn a_crash_loses_everything() {
    let fake = with_sandbox(&SandboxSpec::default()).await;
    let lost = fake.execute(&id("a"), &exec("1"), &command(&["sleep", "1000"])).await.unwrap();
    fake.crash();
    assert_eq!(finish(lost).await.1, Ending::Unknown);
    assert!(matches!(fake.inspect(&id("a")).await, Err(Error::NoSandbox(_))));
}

#[tokio::test]
async fn what_was_refused_cannot_be_had() {
    let fake = Fake::new();
    fake.refuse(Capability::MemoryLimit, "not today");
    fake.refuse(Capability::Pause, "no brakes");
    let limits = Limits { memory_bytes: Some(1), cpu_millis: Some(1), ..Limits::default() };
    let spec = SandboxSpec { limits, ..SandboxSpec::default() };
    let refused = fake.create(&id("a"), &spec).await;
    assert!(matches!(refused, Err(Error::Limit { limit: LimitName::Memory, .. })), "{refused:?}");

    let spec = SandboxSpec { best_effort: [LimitName::Memory.into()].into(), ..spec };
    let status = fake.create(&id("a"), &spec).await.unwrap();
    assert_eq!(status.isolation.limits.len(), 2);
    assert!(matches!(
        fake.pause(&id("a")).await,
        Err(Error::Unsupported { capability: Capability::Pause, .. })
    ));
}

#[tokio::test]
async fn connections_reach_the_one_who_listens() {
    let fake = with_sandbox(&SandboxSpec::default()).await;
    let mut listener = fake.listen(&id("a"), Target::Tcp(80)).unwrap();
    let mut outer = fake.connect(&id("a"), &Target::Tcp(80)).await.unwrap();
    let mut inner = listener.accept().await.unwrap();
    outer.write_all(b"question").await.unwrap();
    outer.shutdown().await.unwrap();
    let mut received = String::new();
    inner.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "question");
    inner.write_all(b"answer").await.unwrap();
    drop(inner);
    outer.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "questionanswer");

    assert!(fake.connect(&id("a"), &Target::Tcp(81)).await.is_err());
    fake.cleanup(&id("a")).await.unwrap();
    assert!(listener.accept().await.is_none());
}

#[tokio::test]
async fn a_network_has_the_same_ways_out_each_time() {
    let network = Some(Policy::default());
    let spec = SandboxSpec { network: network.clone(), ..SandboxSpec::default() };
    let fake = with_sandbox(&spec).await;
    let first = fake.listeners(&id("a")).await.unwrap();
    let second = fake.listeners(&id("a")).await.unwrap();
    let proxy = TcpListener::from(first.proxy);
    let address = proxy.local_addr().unwrap();
    assert_eq!(TcpListener::from(second.proxy).local_addr().unwrap(), address);
    TcpStream::connect(address).unwrap();
    proxy.accept().unwrap();

    fake.create(&id("b"), &SandboxSpec::default()).await.unwrap();
    assert!(matches!(fake.listeners(&id("b")).await, Err(Error::Invalid(_))));
    assert!(matches!(fake.listeners(&id("c")).await, Err(Error::NoSandbox(_))));
    fake.refuse(Capability::Egress, "no way out");
    let spec = SandboxSpec { network, ..SandboxSpec::default() };
    let refused = fake.create(&id("c"), &spec).await;
    let capability = Capability::Egress;
    assert!(matches!(refused, Err(Error::Unsupported { capability: of, .. }) if of == capability));
}

#[tokio::test(start_paused = true)]
async fn ways_out_end_with_their_sandbox() {
    let (network, lease) = (Some(Policy::default()), Some(Duration::from_secs(9)));
    let fake = with_sandbox(&SandboxSpec { network, lease, ..SandboxSpec::default() }).await;
    let listeners = fake.listeners(&id("a")).await.unwrap();
    let address = TcpListener::from(listeners.proxy).local_addr().unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let ended = fake.listeners(&id("a")).await;
    assert!(matches!(ended, Err(Error::WrongState { state: State::Ended, .. })), "{ended:?}");
    assert!(TcpStream::connect(address).is_err());
}
