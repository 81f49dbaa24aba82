//! A command that is killed or timed out is killed with everything that it has started: processes
//! that have left its process group, its session and its parents, that ignore signals, or that are
//! stopped.

use std::time::{Duration, Instant};

use super::super::DEADLINE;
use super::super::harness::{Harness, eventually};
use super::super::sandbox::{Sandbox, command, script};
use crate::exec::{Command, Ending};

/// Starts processes that try to survive, each of which writes its id into a file below
/// `/data/tough`, and then continues to run itself.
const TOUGH: &str = r#"
mkdir -p /data/tough
cat > /data/tough.sh <<'END'
trap '' HUP INT TERM QUIT USR1
echo $$ > /data/tough/$1.new
mv /data/tough/$1.new /data/tough/$1
[ "$2" = stop ] && kill -STOP $$
while :; do sleep 0.1; done
END
sh /data/tough.sh child &
(sh /data/tough.sh orphan &)
((setsid sh /data/tough.sh daemon > /dev/null 2>&1 < /dev/null &) &)
setsid sh -c 'sh /data/tough.sh session & sh /data/tough.sh sibling' &
sh /data/tough.sh stopped stop &
(setsid sh /data/tough.sh away stop &)
sh /data/tough.sh itself
"#;

const NAMES: [&str; 8] =
    ["away", "child", "daemon", "itself", "orphan", "session", "sibling", "stopped"];

/// The timeout of a command that must have started its processes before it expires.
const LONG_ENOUGH: Duration = Duration::from_secs(5);

async fn are_there(sandbox: &Sandbox<'_>) -> bool {
    for name in NAMES {
        if !sandbox.exists(&format!("/data/tough/{name}")).await {
            return false;
        }
    }
    true
}

/// Lists which of the processes whose ids are in files are alive. A command may be forbidden to
/// signal the processes of another one, but this still detects them. A zombie counts as dead where
/// that is visible.
async fn living(sandbox: &Sandbox<'_>, files: &str) -> Vec<String> {
    let look = format!(
        "for file in {files}; do
             read process < $file
             case $(kill -0 $process 2>&1) in *'No such process'*) continue ;; esac
             case $(cut -d ')' -f 2 /proc/$process/stat 2>/dev/null) in ' Z '*) continue ;; esac
             echo ${{file##*/}}
         done"
    );
    sandbox.good(&look).await.lines().map(str::to_owned).collect()
}

/// The processes of [`TOUGH`] that are alive.
async fn alive(sandbox: &Sandbox<'_>) -> Vec<String> {
    living(sandbox, "/data/tough/*").await
}

async fn are_gone(sandbox: &Sandbox<'_>) {
    assert!(are_there(sandbox).await, "not all of them were started in time");
    let end = Instant::now() + DEADLINE;
    let mut left = alive(sandbox).await;
    while !left.is_empty() && Instant::now() < end {
        left = alive(sandbox).await;
    }
    assert!(left.is_empty(), "still alive: {left:?}");
}

pub(crate) async fn a_kill_leaves_none(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let running = sandbox.start(&script(TOUGH)).await;
    eventually("the processes", async || are_there(&sandbox).await).await;
    assert_eq!(alive(&sandbox).await, NAMES);
    sandbox.kill(&running.exec).await;
    assert_eq!(running.finish().await.ending, Ending::Killed);
    are_gone(&sandbox).await;
}

pub(crate) async fn a_timeout_leaves_none(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let command = Command { timeout: Some(LONG_ENOUGH), ..script(TOUGH) };
    let running = sandbox.start(&command).await;
    assert_eq!(running.finish().await.ending, Ending::TimedOut);
    are_gone(&sandbox).await;
}

pub(crate) async fn too_much_output_leaves_none(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = format!("({TOUGH}) & while [ ! -e /data/go ]; do sleep 0.05; done; cat /dev/zero");
    let command = Command { output_limit_bytes: Some(1 << 20), ..script(&text) };
    let running = sandbox.start(&command).await;
    eventually("the processes", async || are_there(&sandbox).await).await;
    sandbox.write("/data/go", "").await;
    assert_eq!(running.finish().await.ending, Ending::OutputExceeded);
    are_gone(&sandbox).await;
}

/// Only the processes of the command are killed, no others.
pub(crate) async fn others_survive(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let mut other = sandbox.start(&script("echo ready; exec sleep 1000")).await;
    other.wait_for_output("ready").await;
    sandbox.good("setsid sleep 1000 > /dev/null & echo $! > /data/left").await;
    let running = sandbox.start(&script(TOUGH)).await;
    eventually("the processes", async || are_there(&sandbox).await).await;
    sandbox.kill(&running.exec).await;
    are_gone(&sandbox).await;
    assert_eq!(living(&sandbox, "/data/left").await, ["left"]);
    sandbox.signal(&other.exec, 15).await;
    assert_eq!(other.finish().await.ending, Ending::Signaled(15));
}

pub(crate) async fn the_time_is_up_for_one_that_is_stopped(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let text = "trap '' TERM INT HUP; echo begun; kill -STOP $$; echo on";
    let timeout = Some(LONG_ENOUGH);
    let running = sandbox.start(&Command { timeout, ..script(text) }).await;
    let finished = running.finish().await;
    assert_eq!((finished.ending, finished.output.as_slice()), (Ending::TimedOut, &b"begun\n"[..]));
}

pub(crate) async fn the_time_is_up(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let command = command(&["sleep", "1000"]);
    let command = Command { timeout: Some(Duration::from_millis(300)), ..command };
    let running = sandbox.start(&command).await;
    let exec = running.exec.clone();
    assert_eq!(running.finish().await.ending, Ending::TimedOut);
    // Killing an ended command has no effect.
    sandbox.kill(&exec).await;
    let again = sandbox.start_as(&exec, &command).await.finish().await;
    assert_eq!(again.ending, Ending::TimedOut);
}

pub(crate) async fn who_is_in_time_is_left_alone(harness: &Harness) {
    let sandbox = harness.sandbox().await;
    let command = command(&["echo", "done"]);
    let hour = Some(Duration::from_secs(3600));
    let command = Command { timeout: hour, output_limit_bytes: Some(5), ..command };
    let finished = sandbox.start(&command).await.finish().await;
    assert_eq!((finished.ending, finished.output.as_slice()), (Ending::Exited(0), &b"done\n"[..]));
}

/// Both streams count, and output before the limit is received.
pub(crate) async fn output_has_its_limit(harness: &Harness) {
    const LIMIT: u64 = 1 << 20;
    let sandbox = harness.sandbox().await;
    let flood = script("while :; do echo flood; echo flood >&2; done");
    let running = sandbox.start(&Command { output_limit_bytes: Some(LIMIT), ..flood }).await;
    let finished = running.finish().await;
    assert_eq!(finished.ending, Ending::OutputExceeded);
    assert!(finished.length() >= LIMIT, "only {} bytes came", finished.length());
    assert!(finished.length() <= 64 * LIMIT, "{} bytes came", finished.length());
}
