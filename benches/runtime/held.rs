//! Many sandboxes at once: how fast they are made, what one takes that does nothing, and how fast
//! they go.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stockade_core::{SandboxId, SandboxSpec};
use stockade_runtime::Runtime as _;
use stockade_runtime_native::Native;
use tokio::task::JoinSet;

use crate::{Failure, open};

/// How many there are.
const SANDBOXES: u32 = 300;
/// How many are asked for at the same time.
const AT_ONCE: usize = 8;
/// How often they are made. Of each number the one in the middle counts: memory is what the whole
/// machine has less of, and so whatever else happens there counts with it.
const TIMES: usize = 5;
/// How long it is quiet before anything is looked at.
const QUIET: Duration = Duration::from_millis(500);

/// How many should be made in a second.
const CREATED_GOAL: f64 = 500.0;
/// How much memory one that does nothing may take.
const MEMORY_GOAL_KIB: u64 = 400;

/// What was measured.
pub(crate) struct Held {
    created: Duration,
    destroyed: Duration,
    /// Less memory that is available, per sandbox.
    memory_bytes: u64,
}

impl Held {
    pub(crate) fn table(&self) -> String {
        let judged = |reached| if reached { "reached" } else { "missed" };
        let (created, kib) = (self.per_second(self.created), self.memory_bytes / 1024);
        format!(
            "{SANDBOXES} held sandboxes, the median of {TIMES} times: {created:.0} created per second (goal {CREATED_GOAL:.0}: \
             {}), {:.0} destroyed per second, {kib} KiB each (goal {MEMORY_GOAL_KIB}: {})",
            judged(created >= CREATED_GOAL),
            self.per_second(self.destroyed),
            judged(kib <= MEMORY_GOAL_KIB),
        )
    }

    fn per_second(&self, time: Duration) -> f64 {
        f64::from(SANDBOXES) / time.as_secs_f64()
    }

    pub(crate) fn as_json(&self) -> Value {
        json!({
            "sandboxes": SANDBOXES,
            "times": TIMES,
            "createdPerSecond": self.per_second(self.created),
            "destroyedPerSecond": self.per_second(self.destroyed),
            "memoryBytesEach": self.memory_bytes,
        })
    }
}

/// Makes and destroys many sandboxes, without a pool, a few times.
pub(crate) async fn measure(program: &Path, data: &Path) -> Result<Held, Failure> {
    let native = open(program, data.to_owned(), 0)?;
    let mut all = Vec::new();
    for _ in 0..TIMES {
        all.push(once(&native).await?);
        // What was thrown away is removed, and no work of the next.
        tokio::time::sleep(QUIET).await;
    }
    Ok(Held {
        created: middle(all.iter().map(|held| held.created)),
        destroyed: middle(all.iter().map(|held| held.destroyed)),
        memory_bytes: middle(all.iter().map(|held| held.memory_bytes)),
    })
}

fn middle<T: Ord + Copy>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values[values.len() / 2]
}

async fn once(native: &Native) -> Result<Held, Failure> {
    let all = |verb: Verb| {
        let native = native.clone();
        async move {
            let begun = Instant::now();
            let mut waiting = JoinSet::new();
            for at in 0..SANDBOXES {
                if waiting.len() >= AT_ONCE
                    && let Some(done) = waiting.join_next().await
                {
                    done??;
                }
                let native = native.clone();
                let id = SandboxId::new(format!("held-{at}"))?;
                waiting.spawn(async move {
                    match verb {
                        Verb::Create => native.create(&id, &SandboxSpec::default()).await.map(drop),
                        Verb::Destroy => native.cleanup(&id).await,
                    }
                });
            }
            while let Some(done) = waiting.join_next().await {
                done??;
            }
            Ok::<_, Failure>(begun.elapsed())
        }
    };
    let before = available()?;
    let created = all(Verb::Create).await?;
    // What a launch leaves to be tidied up is no memory of the sandbox.
    tokio::time::sleep(QUIET).await;
    let memory_bytes = before.saturating_sub(available()?) / u64::from(SANDBOXES);
    let destroyed = all(Verb::Destroy).await?;
    Ok(Held { created, destroyed, memory_bytes })
}

#[derive(Clone, Copy)]
enum Verb {
    Create,
    Destroy,
}

/// The host's memory that is available, in bytes (`proc(5)`).
fn available() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes: u64 =
        line.and_then(|line| line.trim().strip_suffix(" kB")).unwrap_or("").parse()?;
    Ok(kilobytes * 1024)
}
