//! `cargo xtask bench`: measures what SPECIFICATION.md promises, beside comparable programs. All
//! contenders take turns in one run, so that other load on the machine affects all of them equally.

pub(crate) mod clients;
mod contenders;
pub(crate) mod programs;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use stockade_measure::{Goal, Report, Series, Unit};

use crate::arguments::BenchOptions;
use crate::programs::release_programs;
use crate::workspace::Workspace;
use contenders::{BASE, Contender, Skipped};

/// The number of counted rounds, unless another number is given.
const ROUNDS: usize = 300;

/// Rounds that are run and not counted.
const WARM_UP_ROUNDS: usize = 10;

/// How many are started at once in a crowd, and for how many rounds there is one crowd.
const CROWD: usize = 20;
const ROUNDS_PER_CROWD: usize = 10;

/// Measures the start of a sandbox and prints the table; false when a contender failed.
pub(crate) fn start(workspace: &Workspace, options: &BenchOptions) -> anyhow::Result<bool> {
    let stockade = release_programs(workspace)?;
    let scene = contenders::Scene::create(&stockade)?;
    let (contenders, skipped) = scene.contenders(options);
    let rounds = options.rounds(ROUNDS);
    let series = measure(&contenders, rounds)?;
    scene.check_clean()?;

    let what = "start to exit of `true`";
    let report = Report { what, unit: Unit::Milliseconds, base: BASE, series };
    println!("{}", report.table());
    let crowds = measure_crowds(&contenders, rounds.div_ceil(ROUNDS_PER_CROWD))?;
    let what = "20 at once, start of the first to exit of the last";
    println!("{}", Report { what, unit: Unit::Milliseconds, base: BASE, series: crowds }.table());
    for Skipped { name, reason } in &skipped {
        println!("Skipped: {name}: {reason}");
    }
    if let Some(path) = &options.json {
        let more = details(rounds, &contenders, &skipped);
        let written = report.write(path, "start", &more);
        written.with_context(|| format!("write {}", path.display()))?;
    }
    Ok(true)
}

/// Lets all contenders take turns, in every other round from the last to the first, so that no
/// contender always follows the same one and benefits from the caches that it filled. A contender
/// that is not in every round pauses in the others; it takes so long that its predecessor does not
/// matter.
fn measure(contenders: &[Contender], rounds: usize) -> anyhow::Result<Vec<Series>> {
    let mut all: Vec<Series> = contenders.iter().map(series).collect();
    for round in 0..WARM_UP_ROUNDS + rounds {
        let mut turns: Vec<_> = contenders.iter().zip(&mut all).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for (contender, series) in turns {
            if round == WARM_UP_ROUNDS {
                series.clear();
            }
            if round % contender.every == 0 {
                series.push_time(time_once(contender)?);
            } else {
                series.pause();
            }
        }
    }
    Ok(all)
}

/// Lets all contenders take turns, each with many processes at once.
fn measure_crowds(contenders: &[Contender], rounds: usize) -> anyhow::Result<Vec<Series>> {
    let mut all: Vec<Series> =
        contenders.iter().map(|contender| Series::new(contender.name)).collect();
    for round in 0..rounds {
        for (contender, series) in contenders.iter().zip(&mut all) {
            if round % contender.every == 0 {
                series.push_time(time_crowd(contender)?);
            } else {
                series.pause();
            }
        }
    }
    Ok(all)
}

/// Starts the contender many times at once and waits until all have ended.
fn time_crowd(contender: &Contender) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let started = (0..CROWD).map(|_| contender.command().spawn());
    let mut running = started.collect::<Result<Vec<_>, _>>().context("start a crowd")?;
    for process in &mut running {
        let status = process.wait()?;
        ensure!(status.success(), "{}: {status} in a crowd", contender.name);
    }
    Ok(start.elapsed())
}

fn series(contender: &Contender) -> Series {
    let series = Series::new(contender.name);
    if contender.name == contenders::RUN {
        series.with_goal(Goal::RatioAtMost(1.1))
    } else {
        series
    }
}

/// Starts the contender and waits until it ends. A failure is an error: the time in which a sandbox
/// refuses to start is not a measurement.
fn time_once(contender: &Contender) -> anyhow::Result<Duration> {
    let mut command = contender.command();
    let start = Instant::now();
    let status = command.status().with_context(|| format!("start {}", contender.name))?;
    let time = start.elapsed();
    ensure!(status.success(), "{}: {status}: run {command:?} to see why", contender.name);
    Ok(time)
}

/// The data of the file besides the rows: the command lines of the contenders, and the skipped
/// ones.
fn details(rounds: usize, contenders: &[Contender], skipped: &[Skipped]) -> Value {
    let commands = contenders.iter().map(|contender| (contender.name, contender.line()));
    let skipped = skipped
        .iter()
        .map(|skipped| json!({"name": skipped.name, "reason": skipped.reason}))
        .collect::<Vec<_>>();
    let commands = commands.collect::<std::collections::BTreeMap<_, _>>();
    json!({ "rounds": rounds, "commands": commands, "skipped": skipped })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_take_turns_and_are_all_measured() {
        let contenders = [Contender::new(BASE, &["true"], 1), Contender::new("rare", &["true"], 3)];
        let series = measure(&contenders, 5).unwrap();
        assert_eq!(series[0].count(), 5);
        // Rounds 10 to 14 are counted: 12 is the only one divisible by three.
        assert_eq!(series[1].count(), 1);

        let skipped = [Skipped { name: "docker", reason: "none".to_owned() }];
        let more = details(5, &contenders, &skipped);
        assert_eq!(more["commands"]["rare"], "true");
        assert_eq!(more["skipped"][0]["reason"], "none");
    }

    #[test]
    fn a_contender_that_fails_is_no_measurement() {
        assert!(measure(&[Contender::new("false", &["false"], 1)], 1).is_err());
    }
}
