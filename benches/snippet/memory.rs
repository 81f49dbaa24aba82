//! What isolates take while they live: the memory of workers that they share with nobody.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stockade_script::LibraryModule;
use stockade_snippet::Runner;

use crate::{Failure, MAIN, snippet};

/// How long they may take to be there.
const PATIENCE: Duration = Duration::from_secs(8);

/// A package whose one function waits: a snippet itself has no timers.
pub(crate) fn waits() -> LibraryModule {
    LibraryModule {
        specifier: "@directive-run/scaffold".to_owned(),
        source: "export const wait = (ms) => new Promise((done) => setTimeout(done, ms));"
            .to_owned(),
        exported: true,
        ..LibraryModule::default()
    }
}

/// The mean of so many isolates that have run and wait, in KiB; `None` where it cannot be seen.
pub(crate) async fn of_isolates(
    runner: &Arc<Runner>,
    count: usize,
) -> Result<Option<u64>, Failure> {
    let before = runner.set_max_concurrent(count);
    let waiting =
        format!("import {{ wait }} from \"@directive-run/scaffold\";\n{MAIN}await wait(9000);");
    let mut isolates = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (runner, waiting) = (Arc::clone(runner), waiting.clone());
        isolates.spawn(async move { snippet(&runner, &waiting).await.map(drop) });
    }
    let end = Instant::now() + PATIENCE;
    let mut workers = Vec::new();
    // They have run when there are all of them and none works any more.
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if let Some(ended) = isolates.try_join_next() {
            ended??;
        }
        workers = of_zygote()?;
        if workers.len() == count && workers.iter().all(|worker| state(*worker) == Some('S')) {
            break;
        }
    }
    let private: Option<Vec<u64>> = workers.iter().map(|worker| private_kib(*worker)).collect();
    isolates.shutdown().await;
    runner.set_max_concurrent(before);
    if workers.len() != count {
        return Err(format!("{} isolates of {count} live", workers.len()).into());
    }
    Ok(private.map(|all| all.iter().sum::<u64>() / count as u64))
}

/// The workers: children of the child of the child of this process.
fn of_zygote() -> Result<Vec<u32>, Failure> {
    let mut processes = vec![std::process::id()];
    for _ in 0..3 {
        let children = processes.iter().map(|process| children(*process));
        processes = children.collect::<Result<Vec<_>, _>>()?.concat();
    }
    Ok(processes)
}

fn children(process: u32) -> Result<Vec<u32>, Failure> {
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let list = std::fs::read_to_string(task?.path().join("children"))?;
        for id in list.split_ascii_whitespace() {
            all.push(id.parse()?);
        }
    }
    Ok(all)
}

/// `S` for one that sleeps (`proc_pid_stat(5)`).
fn state(process: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The pages that a process has alone (`proc_pid_smaps(5)`).
fn private_kib(process: u32) -> Option<u64> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = std::fs::read_to_string(Path::new(&path)).ok()?;
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    let kib = lines.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok());
    Some(kib.sum())
}
