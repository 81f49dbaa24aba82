//! `cargo xtask bench`: what SPECIFICATION.md promises, measured beside its peers. All
//! contenders take turns in one run, so that whatever else the machine does hits them alike.

mod contenders;
pub(crate) mod durable;
pub(crate) mod runtime;
pub(crate) mod service;
mod statistics;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::arguments::BenchOptions;
use crate::workspace::Workspace;
use contenders::{Contender, Skipped};
use statistics::Row;

/// Rounds that are run and not counted.
const WARM_UP_ROUNDS: usize = 10;

/// The contender that ratios are taken to.
const BASE: &str = "bwrap";

/// Measures the start of a sandbox and prints the table; false when a contender failed.
pub(crate) fn start(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    let stockade = build(workspace)?;
    let scene = contenders::Scene::set(&stockade)?;
    let (contenders, skipped) = scene.contenders(options);
    let samples = measure(&contenders, options.rounds)?;
    scene.check_that_nothing_was_left()?;

    let rows = statistics::rows(&contenders, &samples, BASE);
    println!("{}", statistics::table(&rows, BASE));
    for Skipped { name, reason } in &skipped {
        println!("Skipped: {name}: {reason}");
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&as_json(options.rounds, &rows, &skipped))?;
        std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))?;
    }
    Ok(true)
}

/// Builds the binary as the first command of README does; its path.
fn build(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let arguments = ["build", "--quiet", "--release", "--package", "stockade-cli"];
    ensure!(workspace.cargo().args(arguments).status()?.success(), "stockade does not build");
    Ok(workspace.target_directory()?.join("release/stockade"))
}

/// Lets all contenders take turns; the times of each, in the order of rounds. A contender that
/// is not in every round has `None` where it paused.
fn measure(contenders: &[Contender], rounds: usize) -> anyhow::Result<Vec<Vec<Option<Duration>>>> {
    let mut samples = vec![Vec::with_capacity(rounds); contenders.len()];
    for round in 0..WARM_UP_ROUNDS + rounds {
        for (contender, samples) in contenders.iter().zip(&mut samples) {
            let time =
                if round % contender.every == 0 { Some(time_once(contender)?) } else { None };
            if round >= WARM_UP_ROUNDS {
                samples.push(time);
            }
        }
    }
    Ok(samples)
}

/// Starts the contender and waits for its end. One that fails is an error: the time in which a
/// sandbox refuses to start is no measurement.
fn time_once(contender: &Contender) -> anyhow::Result<Duration> {
    let mut command = contender.command();
    let start = Instant::now();
    let status = command.status().with_context(|| format!("start {}", contender.name))?;
    let time = start.elapsed();
    ensure!(status.success(), "{}: {status}: run {command:?} to see why", contender.name);
    Ok(time)
}

fn as_json(rounds: usize, rows: &[Row], skipped: &[Skipped]) -> Value {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let rows: Vec<Value> = rows.iter().map(|row| row.as_json(BASE)).collect();
    let skipped: Vec<Value> = skipped
        .iter()
        .map(|skipped| json!({"name": skipped.name, "reason": skipped.reason}))
        .collect();
    json!({
        "benchmark": "start",
        "unit": "milliseconds",
        "rounds": rounds,
        "kernel": kernel.trim(),
        "processors": processors,
        "rows": rows,
        "skipped": skipped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_take_turns_and_are_all_measured() {
        let contenders = [Contender::new(BASE, &["true"], 1), Contender::new("rare", &["true"], 3)];
        let samples = measure(&contenders, 5).unwrap();
        assert!(samples[0].iter().all(Option::is_some));
        // Rounds 10 to 14 are counted: 12 is the one that three divides.
        let measured: Vec<_> = samples[1].iter().map(Option::is_some).collect();
        assert_eq!(measured, [false, false, true, false, false]);

        let rows = statistics::rows(&contenders, &samples, BASE);
        let json = as_json(5, &rows, &[Skipped { name: "docker", reason: "none".to_owned() }]);
        assert_eq!(json["rows"][0]["samples"], 5);
        assert_eq!(json["rows"][0]["ratioOfMedians"], 1.0);
        assert_eq!(json["skipped"][0]["reason"], "none");
    }

    #[test]
    fn a_contender_that_fails_is_no_measurement() {
        assert!(measure(&[Contender::new("false", &["false"], 1)], 1).is_err());
    }
}
