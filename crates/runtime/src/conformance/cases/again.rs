//! A command that is requested twice with the same id runs once; a client that reconnects finds the
//! existing state.

use super::super::harness::{Harness, within};
use super::super::sandbox::{command, script};
use crate::error::Error;
use crate::exec::{Ending, Offsets};

pub(crate) async fn executed_twice_it_is_one(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let exec = harness.exec_id();
    let first = sandbox.start_as(&exec, &command(&["echo", "first"])).await.finish().await;
    // The id counts, not the arguments.
    let second = sandbox.start_as(&exec, &command(&["echo", "second"])).await.finish().await;
    for finished in [first, second] {
        assert_eq!(finished.output(), "first\n");
        assert_eq!(finished.ending, Ending::Exited(0));
    }
}

pub(crate) async fn executed_at_once_it_runs_once(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let exec = harness.exec_id();
    let command = script("echo ran >> /data/runs; echo ran; sleep 0.2; exit 8");
    let start = || sandbox.start_as(&exec, &command);
    let (a, b, c, d) = tokio::join!(start(), start(), start(), start());
    for running in [a, b, c, d] {
        let finished = running.finish().await;
        assert_eq!(finished.output(), "ran\n");
        assert_eq!(finished.ending, Ending::Exited(8));
    }
    sandbox.start_as(&exec, &command).await.finish().await;
    assert_eq!(sandbox.read("/data/runs").await, "ran\n");
}

/// The same id in another sandbox denotes another command.
pub(crate) async fn ids_belong_to_their_sandbox(harness: &Harness) {
    let exec = harness.exec_id();
    for text in ["one", "two"] {
        let sandbox = harness.sandbox().await;
        let finished = sandbox.start_as(&exec, &command(&["echo", text])).await.finish().await;
        assert_eq!(finished.output(), format!("{text}\n"));
    }
}

pub(crate) async fn attached_from_an_offset_the_rest_comes(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&command(&["echo", "0123456789"])).await;
    let exec = running.exec.clone();
    running.finish().await;
    for (output, rest) in [(0, "0123456789\n"), (4, "456789\n"), (10, "\n"), (11, "")] {
        let attached = sandbox.attach(&exec, Offsets { output, error: 0 }).await;
        let finished = attached.finish().await;
        assert_eq!(finished.output(), rest);
        assert_eq!(finished.ending, Ending::Exited(0));
    }
}

pub(crate) async fn attached_while_it_runs_nothing_is_doubled(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "echo one; echo uno >&2; while [ ! -e /data/go ]; do sleep 0.05; done;
                echo two; echo due >&2";
    let mut running = sandbox.start(&script(text)).await;
    running.wait_for_output("one\n").await;
    let (exec, offsets) = (running.exec.clone(), running.offsets());
    let attached = sandbox.attach(&exec, offsets).await;
    sandbox.write("/data/go", "").await;
    let rest = attached.finish().await;
    assert_eq!(rest.output(), "two\n");
    let whole = running.finish().await;
    assert_eq!((whole.output(), whole.error()), ("one\ntwo\n".into(), "uno\ndue\n".into()));
}

pub(crate) async fn what_was_never_started_is_told(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let (runtime, id, exec) = (sandbox.runtime(), sandbox.id(), harness.exec_id());
    let none = |what: &str, error: Option<Error>| {
        let error = error.unwrap_or_else(|| panic!("{what} of a command that does not exist"));
        assert!(matches!(error, Error::NoExec { .. }), "{what}: {error:?}");
    };
    within("answers", async {
        none("attach", runtime.attach(id, &exec, Offsets::default()).await.err());
        none("kill", runtime.kill(id, &exec).await.err());
        none("signal", runtime.signal(id, &exec, 15).await.err());
    })
    .await;
}

pub(crate) async fn acknowledged_its_id_is_free(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let (runtime, id, exec) = (sandbox.runtime(), sandbox.id(), harness.exec_id());
    sandbox.start_as(&exec, &command(&["echo", "first"])).await.finish().await;
    within("an acknowledgement", runtime.acknowledge(id, &exec)).await.unwrap();
    let attached = within("attaching", runtime.attach(id, &exec, Offsets::default())).await;
    assert!(matches!(attached, Err(Error::NoExec { .. })), "{attached:?}");
    assert!(sandbox.inspect().await.unwrap().execs.is_empty());
    // Repeated after a crash, an acknowledgement is accepted or finds no command.
    let again = within("an acknowledgement", runtime.acknowledge(id, &exec)).await;
    assert!(matches!(again, Ok(()) | Err(Error::NoExec { .. })), "{again:?}");
    let second = sandbox.start_as(&exec, &command(&["echo", "second"])).await.finish().await;
    assert_eq!(second.output(), "second\n");
}

/// Even if a child of the first command is still running.
pub(crate) async fn acknowledged_with_children_its_id_is_free(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let exec = harness.exec_id();
    let text = "sleep 1000 > /dev/null 2>&1 & echo first";
    sandbox.start_as(&exec, &script(text)).await.finish().await;
    let runtime = sandbox.runtime();
    let let_go = runtime.acknowledge(sandbox.id(), &exec);
    within("an acknowledgement", let_go).await.unwrap();
    let second = sandbox.start_as(&exec, &command(&["echo", "second"])).await.finish().await;
    assert_eq!((second.output(), second.ending), ("second\n".into(), Ending::Exited(0)));
}

/// A running command cannot be acknowledged by accident.
pub(crate) async fn what_runs_is_not_acknowledged(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&command(&["sleep", "1000"])).await;
    let runtime = sandbox.runtime();
    let let_go = runtime.acknowledge(sandbox.id(), &running.exec);
    assert!(within("an acknowledgement", let_go).await.is_err());
    sandbox.kill(&running.exec).await;
    assert_eq!(running.finish().await.ending, Ending::Killed);
}
