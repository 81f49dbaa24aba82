//! What is written to a command's standard input comes to it, and only that.

use super::super::harness::{Harness, within};
use super::super::sandbox::{command, script};
use crate::error::Error;
use crate::exec::{Command, Ending, Offsets};

fn taking_input(command: Command) -> Command {
    Command { takes_input: true, ..command }
}

/// Bytes without a pattern that a lost or doubled block could hide in.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

pub(crate) async fn a_mebibyte_comes_back(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&taking_input(command(&["cat"]))).await;
    let bytes = noise(1 << 20);
    let (input, parts) = (running.input(), bytes.clone());
    let writing = tokio::spawn(async move {
        for part in parts.chunks(100_000) {
            input.write(part.to_vec()).await.unwrap();
        }
        input.close().await.unwrap();
    });
    let finished = running.finish().await;
    within("the writer", writing).await.unwrap();
    assert_eq!(finished.ending, Ending::Exited(0));
    assert!(finished.output == bytes, "{} bytes came back", finished.output.len());
}

pub(crate) async fn without_input_it_is_at_its_end(harness: &Harness) {
    let running = harness.sandbox().await.start(&command(&["cat"])).await;
    assert!(!running.has_input());
    let finished = running.finish().await;
    assert_eq!(finished.ending, Ending::Exited(0));
    assert_eq!(finished.length(), 0);
}

pub(crate) async fn it_comes_piece_by_piece(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let mut running = sandbox.start(&taking_input(command(&["cat"]))).await;
    for text in ["one", "two", "three"] {
        running.write(text).await;
        running.hears(text).await;
    }
    running.close().await;
    assert_eq!(running.finish().await.output(), "onetwothree");
}

pub(crate) async fn closed_and_empty_it_ends(harness: &Harness) {
    let running = harness.sandbox().await.start(&taking_input(command(&["cat"]))).await;
    running.close().await;
    let finished = running.finish().await;
    assert_eq!((finished.ending, finished.output), (Ending::Exited(0), Vec::new()));
}

/// Who lets go of the input does not end it for those who come after.
pub(crate) async fn dropped_it_stays_open(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let mut first = sandbox.start(&taking_input(command(&["cat"]))).await;
    first.write("first ").await;
    first.hears("first ").await;
    let exec = first.exec.clone();
    drop(first);
    let second = sandbox.attach(&exec, Offsets::default()).await;
    second.write("second").await;
    second.close().await;
    let finished = second.finish().await;
    assert_eq!(finished.output(), "first second");
    assert_eq!(finished.ending, Ending::Exited(0));
}

/// What nobody reads waits, and is let go when the command ends.
pub(crate) async fn never_read_it_does_no_harm(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&taking_input(command(&["sleep", "1000"]))).await;
    let input = running.input();
    let writing =
        tokio::spawn(async move { while input.write(vec![b'x'; 1 << 20]).await.is_ok() {} });
    assert_eq!(sandbox.run(&["echo", "meanwhile"]).await.output(), "meanwhile\n");
    assert!(!writing.is_finished());
    sandbox.kill(&running.exec).await;
    assert_eq!(running.finish().await.ending, Ending::Killed);
    within("the writer's end", writing).await.unwrap();
}

pub(crate) async fn read_in_part_it_does_no_harm(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&taking_input(script("head -c 5; exit 7"))).await;
    let input = running.input();
    let writing =
        tokio::spawn(async move { while input.write(b"12345678".to_vec()).await.is_ok() {} });
    let finished = running.finish().await;
    assert_eq!((finished.ending, finished.output.as_slice()), (Ending::Exited(7), &b"12345"[..]));
    within("the writer's end", writing).await.unwrap();
}

pub(crate) async fn after_the_end_it_is_refused(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&taking_input(command(&["true"]))).await;
    let input = running.input();
    running.finish().await;
    // What is on its way when the command ends may still be taken.
    let refused = within("a refusal", async {
        loop {
            if let Err(error) = input.write(b"late".to_vec()).await {
                return error;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
}

/// A command reads to its end, and has all that was said to be written.
pub(crate) async fn after_its_close_it_is_refused(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    for _ in 0..20 {
        let running = sandbox.start(&taking_input(command(&["cat"]))).await;
        let other = running.input();
        running.write("all").await;
        running.close().await;
        for input in [running.input(), other] {
            let refused = within("a refusal", input.write(b"late".to_vec())).await;
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
        assert_eq!(running.finish().await.output(), "all");
    }
}
