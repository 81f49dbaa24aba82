//! The events of commands: in order, complete, from one keeper to the next, for readers of any
//! speed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::keeper::Peer;
use super::{Fixture, exec, sandbox};
use crate::wire::{Answer, Failure, Metrics, Request};
use stockade_runtime::{Command, Ending, Event, Events, Offsets, Runtime as _, Stream};

fn command() -> Command {
    Command { arguments: vec!["true".into()], ..Command::default() }
}

fn output(peer: &Peer, offset: u64, bytes: &[u8]) -> bool {
    peer.answer_with(&Answer::Output { stream: Stream::Output, offset }, bytes, &[])
}

fn attached(peer: &Peer) -> bool {
    peer.answer(&Answer::Attached { input: false })
}

fn ended(peer: &Peer) -> bool {
    peer.answer(&Answer::Ended(Ending::Exited(7)))
}

/// All output without gap or overlap, and the ending.
async fn whole(events: &mut Events) -> (Vec<u8>, Ending) {
    let mut text = Vec::new();
    loop {
        match events.next().await.unwrap() {
            Event::Output { offset, bytes, .. } => {
                assert_eq!(offset, text.len() as u64);
                text.extend(bytes);
            }
            Event::Lost { .. } | Event::RefusedCalls(_) => panic!("something is lost"),
            Event::Ended(ending) => {
                assert!(events.next().await.is_none());
                return (text, ending);
            }
        }
    }
}

#[tokio::test]
async fn a_command_is_heard_to_its_end_and_its_connection_is_used_again() {
    let fixture = Fixture::new();
    let _keeper = fixture.keeper(|peer, message| {
        if message.head == Request::Metrics {
            let metrics = Metrics { commands: peer.number as u64, ..Metrics::default() };
            return peer.answer(&Answer::Metrics(metrics));
        }
        let lost = Answer::Lost { stream: Stream::Error, offset: 0, length: 9 };
        attached(peer) && output(peer, 0, b"a\0") && peer.answer(&lost) && ended(peer)
    });
    let mut exec = fixture.native.execute(&sandbox(), &exec(), &command()).await.unwrap();
    assert!(exec.input.is_none());
    let mut received = Vec::new();
    while let Some(event) = exec.events.next().await {
        received.push(event);
    }
    assert_eq!(
        received,
        [
            Event::Output { stream: Stream::Output, offset: 0, bytes: b"a\0".to_vec() },
            Event::Lost { stream: Stream::Error, offset: 0, length: 9 },
            Event::Ended(Ending::Exited(7)),
        ]
    );
    // The task that carried the events returns the connection after the last one.
    while fixture.native.0.has_no_idle() {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.native.metrics().await.unwrap().commands, 0);
}

#[tokio::test]
async fn a_stream_goes_on_with_the_next_keeper_where_it_stopped() {
    let fixture = Fixture::with(&["/bin/true"]);
    let (sender, mut told) = tokio::sync::mpsc::channel(1);
    let first = fixture.keeper(move |peer, _| {
        attached(peer) && output(peer, 0, b"01") && output(peer, 2, b"234") && {
            sender.blocking_send(()).unwrap();
            // Until it is killed.
            peer.request().is_some()
        }
    });
    let mut exec = fixture.native.execute(&sandbox(), &exec(), &command()).await.unwrap();
    told.recv().await.unwrap();
    let mut text = Vec::new();
    while text != b"01234" {
        let Some(Event::Output { bytes, .. }) = exec.events.next().await else { panic!() };
        text.extend(bytes);
    }
    tokio::task::spawn_blocking(move || drop(first)).await.unwrap();

    // The second keeper dies during the first request, the third one restarts from an offset that
    // is too low.
    let _next = fixture.keeper(|peer, message| {
        let Request::Attach { from, .. } = message.head else { panic!("{message:?}") };
        assert_eq!(from, Offsets { output: 5, error: 0 });
        peer.number > 0
            && attached(peer)
            && output(peer, 3, b"34")
            && output(peer, 3, b"345")
            && output(peer, 6, b"6789")
            && ended(peer)
    });
    let mut rest = Vec::new();
    let ending = loop {
        match exec.events.next().await.unwrap() {
            Event::Output { offset, bytes, .. } => {
                assert_eq!(offset, (text.len() + rest.len()) as u64);
                rest.extend(bytes);
            }
            Event::Ended(ending) => break ending,
            Event::Lost { .. } | Event::RefusedCalls(_) => panic!("something is lost"),
        }
    };
    assert_eq!((&rest[..], ending), (&b"56789"[..], Ending::Exited(7)));
}

#[tokio::test]
async fn the_end_is_told_also_when_nobody_knows_it() {
    for (failure, ending) in
        [(Failure::NoSandbox, Ending::SandboxEnded), (Failure::NoExec, Ending::Unknown)]
    {
        let fixture = Fixture::new();
        let _keeper = fixture.keeper(move |peer, message| match message.head {
            Request::Execute { .. } => {
                assert!(attached(peer) && output(peer, 0, b"a"));
                false
            }
            _ => peer.answer(&Answer::Failed(failure.clone())),
        });
        let mut exec = fixture.native.execute(&sandbox(), &exec(), &command()).await.unwrap();
        assert_eq!(whole(&mut exec.events).await, (b"a".to_vec(), ending));
    }
}

#[tokio::test]
async fn attaching_begins_where_it_is_asked_to() {
    let fixture = Fixture::new();
    let _keeper = fixture.keeper(|peer, message| {
        let Request::Attach { from, .. } = message.head else { panic!("{message:?}") };
        attached(peer) && output(peer, from.output, b"later") && ended(peer)
    });
    let from = Offsets { output: 100, error: 5 };
    let mut exec = fixture.native.attach(&sandbox(), &exec(), from).await.unwrap();
    let later = Event::Output { stream: Stream::Output, offset: 100, bytes: b"later".to_vec() };
    assert_eq!(exec.events.next().await, Some(later));
}

#[tokio::test]
async fn a_slow_reader_holds_up_the_keeper_and_costs_no_memory() {
    const MESSAGES: u64 = 2000;
    const BYTES: usize = 32 * 1024;
    let fixture = Fixture::new();
    let sent = Arc::new(AtomicUsize::new(0));
    let (sender, mut blocked) = tokio::sync::mpsc::channel(1);
    let count = sent.clone();
    let _keeper = fixture.keeper(move |peer, _| {
        let mut is_sent = false;
        attached(peer)
            && (0..MESSAGES).all(|number| {
                if !is_sent && peer.is_blocked() {
                    is_sent = true;
                    sender.blocking_send(()).unwrap();
                }
                let body = vec![number.to_le_bytes()[0]; BYTES];
                let went = output(peer, number * BYTES as u64, &body);
                count.fetch_add(1, Ordering::SeqCst);
                went
            })
            && ended(peer)
    });
    let mut exec = fixture.native.execute(&sandbox(), &exec(), &command()).await.unwrap();
    blocked.recv().await.unwrap();
    let mut read = 0;
    while let Some(event) = exec.events.next().await {
        let waiting = sent.load(Ordering::SeqCst).saturating_sub(read);
        assert!(waiting < 100, "{waiting} messages wait for the reader");
        if let Event::Output { offset, bytes, .. } = event {
            assert_eq!(offset, (read * BYTES) as u64);
            assert_eq!(bytes, vec![read.to_le_bytes()[0]; BYTES]);
            read += 1;
        }
    }
    assert_eq!(read as u64, MESSAGES);
}

#[tokio::test]
async fn nobody_is_told_when_nobody_listens() {
    let fixture = Fixture::new();
    let (sender, mut gone) = tokio::sync::mpsc::channel(1);
    let _keeper = fixture.keeper(move |peer, _| {
        let goes_on = attached(peer) && peer.request().is_some();
        sender.blocking_send(goes_on).unwrap();
        false
    });
    let exec = fixture.native.execute(&sandbox(), &exec(), &command()).await.unwrap();
    drop(exec);
    assert!(!gone.recv().await.unwrap());
}
