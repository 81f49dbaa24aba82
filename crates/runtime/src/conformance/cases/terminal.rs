//! A command with a terminal.

use std::time::Duration;

use super::super::harness::{Harness, within};
use super::super::sandbox::{command, script};
use crate::error::Error;
use crate::exec::{Command, Ending, StandardInput, WindowSize};

const SIZE: WindowSize = WindowSize { rows: 40, columns: 100 };

fn on_terminal(command: Command) -> Command {
    Command { terminal: Some(SIZE), input: StandardInput::Streamed, ..command }
}

/// Both streams are the terminal, and are received as one, with the terminal's line endings.
pub(crate) async fn it_is_one_of_this_size(harness: &Harness) {
    let text = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && stty size && echo error >&2";
    let finished = harness.sandbox().await.start(&on_terminal(script(text))).await.finish().await;
    assert_eq!(finished.ending, Ending::Exited(0));
    assert_eq!(finished.output(), "40 100\r\nerror\r\n");
    assert_eq!(finished.error(), "");
}

pub(crate) async fn without_one_there_is_none(harness: &Harness) {
    let text = "for n in 0 1 2; do [ -t $n ] && echo $n; done
                (: < /dev/tty) 2> /dev/null && echo tty; true";
    assert_eq!(harness.sandbox().await.sh(text).await.output(), "");
}

pub(crate) async fn it_is_the_controlling_one(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let finished = sandbox.start(&on_terminal(script("echo here > /dev/tty"))).await.finish().await;
    assert_eq!(
        (finished.ending, finished.output.as_slice()),
        (Ending::Exited(0), &b"here\r\n"[..])
    );
}

pub(crate) async fn its_size_changes(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05; done";
    let mut running = sandbox.start(&on_terminal(script(text))).await;
    running.wait_for_output("ready").await;
    let (runtime, size) = (sandbox.runtime(), WindowSize { rows: 50, columns: 132 });
    within("another size", runtime.resize(sandbox.id(), &running.exec, size)).await.unwrap();
    let finished = running.finish().await;
    assert_eq!(finished.output(), "ready\r\n50 132\r\n");
    assert_eq!(finished.ending, Ending::Exited(3));
}

pub(crate) async fn what_has_none_cannot_be_resized(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&command(&["sleep", "1000"])).await;
    let runtime = sandbox.runtime();
    let resized = within("a refusal", runtime.resize(sandbox.id(), &running.exec, SIZE)).await;
    assert!(matches!(resized, Err(Error::Invalid(_))), "{resized:?}");
    sandbox.kill(&running.exec).await;
}

/// Byte 3 is Ctrl-C.
pub(crate) async fn it_interrupts(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = script("stty -echo; echo ready; exec sleep 1000");
    let mut running = sandbox.start(&on_terminal(text)).await;
    running.wait_for_output("ready").await;
    running.write([3]).await;
    let finished = running.finish().await;
    assert_eq!(finished.ending, Ending::Signaled(2));
}

/// Byte 4 is Ctrl-D.
pub(crate) async fn it_ends_input(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "stty -echo; echo ready; read line; echo \"got $line\"; cat; echo over";
    let mut running = sandbox.start(&on_terminal(script(text))).await;
    running.wait_for_output("ready").await;
    running.write("a line\n").await;
    running.wait_for_output("got a line").await;
    running.write([4]).await;
    let finished = running.finish().await;
    assert_eq!(finished.output(), "ready\r\ngot a line\r\nover\r\n");
    assert_eq!(finished.ending, Ending::Exited(0));
}

pub(crate) async fn it_echoes(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let mut running = sandbox.start(&on_terminal(script("echo ready; read line; exit 5"))).await;
    running.wait_for_output("ready").await;
    running.write("typed\n").await;
    let finished = running.finish().await;
    assert_eq!(finished.output(), "ready\r\ntyped\r\n");
    assert_eq!(finished.ending, Ending::Exited(5));
}

pub(crate) async fn children_that_stay_are_no_reason_to_wait(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "trap '' HUP; sleep 1000 & echo left; exit 6";
    let finished = sandbox.start(&on_terminal(script(text))).await.finish().await;
    assert_eq!(finished.output(), "left\r\n");
    assert_eq!(finished.ending, Ending::Exited(6));
}

pub(crate) async fn much_comes_through(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done";
    let finished = sandbox.start(&on_terminal(script(text))).await.finish().await;
    let expected: String = (0..5000).map(|number| format!("line {number}\r\n")).collect();
    assert!(finished.output() == expected, "{} bytes came", finished.output.len());
}

/// Output to a terminal waits for its reader too.
pub(crate) async fn a_slow_reader_misses_nothing(harness: &Harness) {
    const FLOOD_BYTES: u64 = 24 << 20;
    let sandbox = harness.sandbox().await;
    let text = format!("head -c {FLOOD_BYTES} /dev/zero; exit 4");
    let mut running = sandbox.start(&on_terminal(script(&text))).await.count_only();
    within("the first events", async {
        for _ in 0..20 {
            assert!(running.step().await, "24 MiB in 20 events");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let finished = running.finish().await;
    assert_eq!(
        (finished.ending, finished.offsets.output, finished.lost),
        (Ending::Exited(4), FLOOD_BYTES, 0)
    );
}
