//! Many sandboxes and commands at the same time, none of which disturbs another.

use std::collections::BTreeSet;

use stockade_core::SandboxSpec;

use super::super::DEADLINE;
use super::super::harness::{Harness, within_long};
use super::super::sandbox::{Sandbox, command, script};
use crate::exec::Ending;

const SANDBOXES: usize = 20;
const COMMANDS: usize = 40;

pub(crate) async fn sandboxes_live_side_by_side(harness: &Harness) {
    let labels = [("case".to_owned(), harness.name())].into();
    let spec = SandboxSpec { labels, ..harness.spec() };
    let mut making = Vec::new();
    for _ in 0..SANDBOXES {
        let (runtime, spec, id) = (harness.runtime(), spec.clone(), harness.id());
        making.push(tokio::spawn(async move { runtime.create(&id, &spec).await.map(|_| id) }));
    }
    let mut sandboxes = Vec::new();
    for making in making {
        let id = within_long("sandboxes", 2 * DEADLINE, making).await.unwrap().unwrap();
        sandboxes.push(harness.existing(id).await);
    }
    let listed = harness.runtime().list(&spec.labels).await.unwrap();
    assert_eq!(listed.len(), SANDBOXES);
    for sandbox in &sandboxes {
        sandbox.write("/data/name", sandbox.id().as_str()).await;
    }
    for sandbox in &sandboxes {
        assert_eq!(sandbox.run(&["cat", "/data/name"]).await.output(), sandbox.id().as_str());
    }
    // Removing some of them does not affect the others.
    for sandbox in sandboxes.iter().step_by(2) {
        sandbox.cleanup().await;
    }
    for sandbox in sandboxes.iter().skip(1).step_by(2) {
        assert_eq!(sandbox.run(&["echo", "alive"]).await.output(), "alive\n");
    }
}

pub(crate) async fn commands_run_side_by_side(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let mut running = Vec::new();
    for number in 0..COMMANDS {
        let text = format!("command {number}");
        running.push((sandbox.start(&command(&["echo", &text])).await, text));
    }
    for (running, text) in running {
        let finished = running.finish().await;
        assert_eq!((finished.output(), finished.ending), (format!("{text}\n"), Ending::Exited(0)));
    }
}

/// All of them are alive at the same time: each waits for the last one.
pub(crate) async fn commands_wait_for_each_other(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let mut running = Vec::new();
    for number in 0..COMMANDS {
        let last = COMMANDS - 1;
        let text = format!(
            ": > /data/{number}; while [ ! -e /data/{last} ]; do sleep 0.2; done
             i=0; while [ $i -lt 100 ]; do echo {number} $i; i=$((i+1)); done; exit {number}"
        );
        running.push(sandbox.start(&script(&text)).await);
    }
    for (number, running) in running.into_iter().enumerate() {
        let finished = running.finish_within(2 * DEADLINE).await;
        let expected: String = (0..100).map(|line| format!("{number} {line}\n")).collect();
        assert_eq!(finished.output(), expected);
        assert_eq!(finished.ending, Ending::Exited(u8::try_from(number).unwrap()));
    }
}

async fn processes(sandbox: &Sandbox<'_>) -> BTreeSet<String> {
    let look = "for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $file; echo; done 2>/dev/null";
    sandbox.sh(look).await.output().lines().map(|line| line.trim().to_owned()).collect()
}

/// Neither the files nor the processes of one are visible in another.
pub(crate) async fn sandboxes_do_not_see_each_other(harness: &Harness) {
    let (one, two) = (harness.sandbox().await, harness.sandbox().await);
    one.good("echo secret > /data/secret; echo secret > /tmp/secret").await;
    let mark = "1000.0625";
    let sleeping = one.start(&command(&["sleep", mark])).await;
    let seen = two.sh("cat /data/secret /tmp/secret 2>/dev/null").await;
    assert_eq!(seen.output(), "");
    let foreign: Vec<_> =
        processes(&two).await.into_iter().filter(|line| line.contains(mark)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    two.sh("kill -9 -1").await;
    one.signal(&sleeping.exec, 15).await;
    assert_eq!(sleeping.finish().await.ending, Ending::Signaled(15));
}
