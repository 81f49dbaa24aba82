//! Requests and responses: connections that are used again, keepers that die, deadlines.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stockade_core::SandboxSpec;

use super::{Fixture, exec, sandbox, status};
use crate::wire::{Action, Answer, CommandHead, CommandStrings, Failure, Metrics, Request};
use stockade_runtime::{
    Capability, Command, Error, Runtime as _, SandboxPath, StandardInput, State, Status,
    Unsupported, WindowSize,
};

#[tokio::test]
async fn connections_are_used_again() {
    let fixture = Fixture::new();
    let both_asked = std::sync::Barrier::new(2);
    let _keeper = fixture.keeper(move |peer, message| {
        if message.head != Request::Metrics {
            both_asked.wait();
            let created_at_ms = peer.number as u64;
            return peer.answer(&Answer::Status(Status { created_at_ms, ..status() }.into()));
        }
        let metrics = Metrics { commands: peer.number as u64, ..Metrics::default() };
        peer.answer(&Answer::Metrics(metrics))
    });
    for _ in 0..3 {
        assert_eq!(fixture.native.metrics().await.unwrap().commands, 0);
    }
    let id = sandbox();
    let both = tokio::join!(fixture.native.inspect(&id), fixture.native.inspect(&id));
    let mut connections = [both.0.unwrap().created_at_ms, both.1.unwrap().created_at_ms];
    connections.sort_unstable();
    assert_eq!(connections, [0, 1]);
}

#[tokio::test]
async fn each_operation_asks_for_itself() {
    let fixture = Fixture::new();
    let (sender, asked) = std::sync::mpsc::channel();
    let _keeper = fixture.keeper(move |peer, message| {
        let answer = match &message.head {
            Request::Create { .. } | Request::Inspect { .. } => Answer::Status(status().into()),
            Request::List { .. } => Answer::List(vec![status(); 3]),
            _ => Answer::Done,
        };
        sender.send(message.head).unwrap();
        peer.answer(&answer)
    });
    let (native, id) = (&fixture.native, sandbox());
    assert_eq!(native.name(), "native");
    let spec = SandboxSpec { labels: status().labels, ..SandboxSpec::default() };
    assert_eq!(native.create(&id, &spec).await.unwrap(), status());
    let create = Request::Create {
        id: id.clone(),
        spec: spec.clone().into(),
        layers: None,
        subordinate: false,
        container: None,
    };
    assert_eq!(asked.recv().unwrap(), create);
    assert_eq!(native.inspect(&id).await.unwrap(), status());
    assert_eq!(asked.recv().unwrap(), Request::Inspect { id: id.clone() });
    assert_eq!(native.list(&spec.labels).await.unwrap().len(), 3);
    assert_eq!(asked.recv().unwrap(), Request::List { labels: spec.labels });
    let lease = Some(Duration::from_millis(1500));
    native.renew(&id, lease).await.unwrap();
    assert_eq!(asked.recv().unwrap(), Request::Renew { id: id.clone(), lease });
    native.pause(&id).await.unwrap();
    assert_eq!(asked.recv().unwrap(), Request::Pause { id: id.clone() });
    native.resume(&id).await.unwrap();
    assert_eq!(asked.recv().unwrap(), Request::Resume { id: id.clone() });
    native.cleanup(&id).await.unwrap();
    assert_eq!(asked.recv().unwrap(), Request::Destroy { id: id.clone() });
    native.supports(Capability::DiskLimit).await.unwrap();
    assert_eq!(asked.recv().unwrap(), Request::Supports { capability: "disk-limit".to_owned() });

    let exec = exec();
    let size = WindowSize { rows: 2, columns: 3 };
    native.signal(&id, &exec, 15).await.unwrap();
    native.kill(&id, &exec).await.unwrap();
    native.resize(&id, &exec, size).await.unwrap();
    native.acknowledge(&id, &exec).await.unwrap();
    for action in [Action::Signal(15), Action::Kill, Action::Resize(size), Action::Acknowledge] {
        let (id, exec) = (id.clone(), exec.clone());
        assert_eq!(asked.recv().unwrap(), Request::Command { id, exec, action });
    }
}

#[tokio::test]
async fn what_the_keeper_refuses_is_a_typed_error() {
    let fixture = Fixture::new();
    let _keeper = fixture.keeper(|peer, message| {
        let failure = match message.head {
            Request::Inspect { .. } => Failure::NoSandbox,
            Request::Pause { .. } => Failure::WrongState(State::Ended),
            Request::Command { .. } => Failure::NoExec,
            Request::Supports { .. } => Failure::Unsupported {
                capability: "terminal".to_owned(),
                reason: "no".to_owned(),
                remedy: None,
            },
            _ => return peer.answer(&Answer::Done),
        };
        assert_eq!(peer.number, 0);
        peer.answer(&Answer::Failed(failure))
    });
    let (native, id) = (&fixture.native, sandbox());
    let text = |error: Error| error.to_string();
    assert_eq!(text(native.inspect(&id).await.unwrap_err()), "there is no sandbox box");
    let refused = "the sandbox box is ended, so it cannot pause";
    assert_eq!(text(native.pause(&id).await.unwrap_err()), refused);
    let refused = native.acknowledge(&id, &exec()).await.unwrap_err();
    assert!(matches!(refused, Error::NoExec { exec: id, .. } if id == exec()));
    let refused = Unsupported { reason: "no".to_owned(), remedy: None };
    assert_eq!(native.supports(Capability::Terminal).await.unwrap_err(), refused);
    // A response to another request.
    let refused = native.create(&id, &SandboxSpec::default()).await.unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused}");
}

#[tokio::test]
async fn a_successor_is_asked_when_the_keeper_has_gone() {
    // A keeper that is started finds the lock taken.
    let fixture = Fixture::with(&["/bin/true"]);
    let serve = |peer: &super::keeper::Peer, _| peer.answer(&Answer::Status(status().into()));
    let first = fixture.keeper(serve);
    // Several connections to the first keeper remain.
    let (native, id) = (&fixture.native, sandbox());
    let three = tokio::join!(native.inspect(&id), native.inspect(&id), native.inspect(&id));
    for answer in <[_; 3]>::from(three) {
        answer.unwrap();
    }
    drop(first);
    let directory = fixture.directory();
    let next = std::thread::spawn(move || super::Keeper::start(&directory, serve));
    assert_eq!(native.inspect(&id).await.unwrap(), status());
    drop(next.join().unwrap());
}

#[tokio::test]
async fn a_request_is_repeated_when_the_keeper_dies_of_it() {
    let fixture = Fixture::new();
    let deaths = Arc::new(AtomicUsize::new(0));
    let count = deaths.clone();
    let _keeper = fixture.keeper(move |peer, message| {
        if matches!(message.head, Request::Resume { .. }) {
            count.fetch_add(1, Ordering::SeqCst);
            return false;
        }
        if peer.number == 0 {
            return false;
        }
        peer.answer(&match message.head {
            Request::Create { .. } => Answer::Status(status().into()),
            // An earlier attempt succeeded.
            Request::Command { action: Action::Acknowledge, .. } => Answer::Failed(Failure::NoExec),
            _ => Answer::Done,
        })
    });
    let (native, id) = (&fixture.native, sandbox());
    assert_eq!(native.create(&id, &SandboxSpec::default()).await.unwrap(), status());
    let unreachable = native.resume(&id).await.unwrap_err();
    assert!(matches!(unreachable, Error::Unreachable { .. }), "{unreachable}");
    assert_eq!(deaths.load(Ordering::SeqCst), super::super::call::ATTEMPTS);
    // It is not repeated, so the caller receives this error.
    let refused = native.acknowledge(&id, &exec()).await.unwrap_err();
    assert!(matches!(refused, Error::NoExec { .. }), "{refused}");
}

#[tokio::test]
async fn what_was_done_before_the_keeper_died_is_not_reported_as_missing() {
    let fixture = Fixture::new();
    let _keeper =
        fixture.keeper(|peer, _| peer.number > 0 && peer.answer(&Answer::Failed(Failure::NoExec)));
    fixture.native.acknowledge(&sandbox(), &exec()).await.unwrap();
}

#[tokio::test]
async fn a_signal_is_not_sent_twice() {
    let fixture = Fixture::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let _keeper = fixture.keeper(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        false
    });
    let unknown = fixture.native.signal(&sandbox(), &exec(), 15).await.unwrap_err();
    assert!(matches!(unknown, Error::OutcomeUnknown(_)), "{unknown}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_keeper_that_does_not_answer_is_waited_for_until_the_deadline() {
    let fixture = Fixture::new();
    let _keeper = fixture.keeper(|peer, message| match message.head {
        Request::Metrics => peer.answer(&Answer::Metrics(Metrics::default())),
        _ => true,
    });
    fixture.native.metrics().await.unwrap();
    // From here on the clock runs as fast as it can.
    tokio::time::pause();
    let before = tokio::time::Instant::now();
    let late = fixture.native.inspect(&sandbox()).await.unwrap_err();
    assert_eq!(late.to_string(), "it took too long to inspect the sandbox");
    assert_eq!(before.elapsed().as_secs(), 30);
    tokio::time::resume();
    // A late response reaches no caller: its connection is not used again.
    fixture.native.metrics().await.unwrap();
}

#[tokio::test]
async fn a_request_that_was_given_up_leaves_nothing_behind() {
    let fixture = Fixture::new();
    let (sender, mut asked) = tokio::sync::mpsc::channel(1);
    let (gone, mut heard) = tokio::sync::mpsc::channel(1);
    let _keeper = fixture.keeper(move |peer, message| {
        if message.head == Request::Metrics {
            return peer.answer(&Answer::Metrics(Metrics::default()));
        }
        sender.blocking_send(()).unwrap();
        assert!(peer.request().is_none());
        gone.blocking_send(()).unwrap();
        false
    });
    let id = sandbox();
    tokio::select! {
        _ = fixture.native.inspect(&id) => panic!("nobody answered"),
        asked = asked.recv() => asked.unwrap(),
    }
    heard.recv().await.unwrap();
    fixture.native.metrics().await.unwrap();
}

#[tokio::test]
async fn words_of_any_length_and_many_statuses_arrive() {
    let fixture = Fixture::new();
    let (sender, received) = std::sync::mpsc::channel();
    let _keeper = fixture.keeper(move |peer, message| match message.head {
        Request::Execute { command, .. } => {
            sender.send((command, message.body)).unwrap();
            peer.answer(&Answer::Failed(Failure::Exhausted("enough".to_owned())))
        }
        _ => peer.answer(&Answer::List(vec![status(); 5000])),
    });
    let long = "x".repeat(100_000);
    let command = Command {
        arguments: vec!["sh".into(), "".into()],
        environment: (0..20).map(|n| (format!("N{n}").into(), long.clone().into())).collect(),
        working_directory: Some(SandboxPath::new("/a b").unwrap()),
        timeout: Some(Duration::from_millis(1)),
        input: StandardInput::Streamed,
        ..Command::default()
    };
    let refused = fixture.native.execute(&sandbox(), &exec(), &command).await.unwrap_err();
    assert!(matches!(refused, Error::Exhausted(_)), "{refused}");
    let (head, body) = received.recv().unwrap();
    let expected = CommandHead {
        working_directory: Some(b"/a b".to_vec()),
        user: None,
        terminal: None,
        takes_input: true,
        input_is_given: false,
        timeout: Some(Duration::from_millis(1)),
        output_limit_bytes: None,
    };
    assert_eq!(*head, expected);
    let words = CommandStrings::decode(&body).unwrap();
    assert_eq!(words.arguments, [b"sh".to_vec(), b"".to_vec()]);
    assert_eq!(words.environment.len(), 20);
    assert_eq!(words.environment[0], format!("N0={long}").as_bytes());
    assert_eq!(fixture.native.list(&status().labels).await.unwrap().len(), 5000);
}

#[tokio::test]
async fn a_command_that_is_none_is_refused_without_a_keeper() {
    let fixture = Fixture::new();
    let command = |argument: &str, name: &str| Command {
        arguments: vec![argument.into()],
        environment: [(name.into(), "".into())].into(),
        ..Command::default()
    };
    let tall = "x".repeat(65 * 1024 * 1024);
    for command in [
        Command::default(),
        command("a", ""),
        command("a", "A=B"),
        command("a\0", "A"),
        command(&tall, "A"),
    ] {
        let refused = fixture.native.execute(&sandbox(), &exec(), &command).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    }
}
