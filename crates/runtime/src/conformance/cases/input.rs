//! What a client writes to a command's standard input reaches the command, and nothing else does.

use super::super::harness::{Harness, within};
use super::super::sandbox::{command, script};
use crate::error::Error;
use crate::exec::{Command, Ending, Offsets, StandardInput, WHOLE_INPUT_BYTES, WindowSize};

fn taking_input(command: Command) -> Command {
    Command { input: StandardInput::Streamed, ..command }
}

/// Bytes without a pattern, so that a lost or doubled block is noticed.
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
        running.wait_for_output(text).await;
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

/// Dropping the input does not end it for later clients.
pub(crate) async fn dropped_it_stays_open(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let mut first = sandbox.start(&taking_input(command(&["cat"]))).await;
    first.write("first ").await;
    first.wait_for_output("first ").await;
    let exec = first.exec.clone();
    drop(first);
    let second = sandbox.attach(&exec, Offsets::default()).await;
    second.write("second").await;
    second.close().await;
    let finished = second.finish().await;
    assert_eq!(finished.output(), "first second");
    assert_eq!(finished.ending, Ending::Exited(0));
}

/// Input that the command does not read waits, and is discarded when the command ends.
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
    // Input that is in transit when the command ends may still be accepted.
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

/// A command reads to the end of its input, and gets all bytes whose writing succeeded.
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

fn with_input(command: Command, bytes: impl Into<Vec<u8>>) -> Command {
    Command { input: StandardInput::Whole(bytes.into()), ..command }
}

/// No client needs to write it, and none can.
pub(crate) async fn given_whole_it_is_whole(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    for length in [0, 1, 70_000, 1 << 20] {
        let bytes = noise(length);
        let running = sandbox.start(&with_input(command(&["cat"]), bytes.clone())).await;
        assert!(!running.has_input());
        let (exec, finished) = (running.exec.clone(), running.finish().await);
        assert_eq!(finished.ending, Ending::Exited(0));
        assert!(finished.output == bytes, "{} of {length} bytes came", finished.output.len());
        assert!(!sandbox.attach(&exec, Offsets::default()).await.has_input());
    }
}

/// What one command has read, another one can still read, even if the bytes are the same.
pub(crate) async fn given_whole_it_is_the_commands_own(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "head -n 1; while [ ! -e /data/go ]; do sleep 0.05; done; cat";
    let both = with_input(script(text), "first\nsecond\n");
    let mut one = sandbox.start(&both).await;
    one.wait_for_output("first\n").await;
    let mut other = sandbox.start(&both).await;
    other.wait_for_output("first\n").await;
    sandbox.write("/data/go", "").await;
    for running in [one, other] {
        assert_eq!(running.finish().await.ending, Ending::Exited(0));
    }
}

/// It is available before any client is notified of the command, so that no client needs to stay
/// alive for it.
pub(crate) async fn given_whole_it_needs_nobody(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let bytes = noise(1 << 20);
    let text = "while [ ! -e /data/go ]; do sleep 0.05; done; exec cat";
    let running = sandbox.start(&with_input(script(text), bytes.clone())).await;
    let exec = running.exec.clone();
    drop(running);
    harness.reopen().await;
    sandbox.write("/data/go", "").await;
    let finished = sandbox.attach(&exec, Offsets::default()).await.finish().await;
    assert_eq!(finished.ending, Ending::Exited(0));
    assert!(finished.output == bytes, "{} bytes came", finished.output.len());
}

pub(crate) async fn too_long_it_is_not_given_whole(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let long = with_input(command(&["true"]), vec![0; WHOLE_INPUT_BYTES + 1]);
    let exec = harness.exec_id();
    let refused = sandbox.try_start(&exec, &long).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert!(sandbox.inspect().await.unwrap().execs.is_empty());
}

pub(crate) async fn with_a_terminal_it_is_not_given_whole(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let terminal = Some(WindowSize { rows: 24, columns: 80 });
    let both = Command { terminal, ..with_input(command(&["cat"]), "text") };
    let refused = sandbox.try_start(&harness.exec_id(), &both).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}
