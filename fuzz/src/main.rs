//! Feeds mutated input to one parser until its time is over. `cargo xtask fuzz` starts this
//! program once for each target, notices when it dies, and keeps the input that did it.
//!
//! Each input follows from the seed and its number alone, so a run can be repeated. There is no
//! feedback from coverage: that needs a nightly compiler.
#![expect(clippy::print_stdout, reason = "a command-line tool speaks here")]

mod mutate;
mod random;
mod targets;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use mutate::Mutator;
use random::Random;
use targets::{TARGETS, Target};

/// Where the seeds of the targets are, below the workspace's root.
const CORPUS: &str = "fuzz/corpus";

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["list"] => {
            for target in TARGETS {
                println!("{}", target.name);
            }
            Ok(())
        }
        [name, input, seed, seconds] => {
            let target = TARGETS.iter().find(|target| target.name == *name);
            let target = target.with_context(|| format!("there is no target `{name}`"))?;
            let duration = Duration::from_secs(seconds.parse().context("SECONDS")?);
            fuzz(target, Path::new(input), seed.parse().context("SEED")?, duration)
        }
        _ => bail!("usage: stockade-fuzz list | TARGET INPUT-FILE SEED SECONDS"),
    }
}

/// Runs one target. The file holds the current input, for whoever finds this process dead.
fn fuzz(target: &Target, input: &Path, seed: u64, duration: Duration) -> anyhow::Result<()> {
    let corpus = targets::corpus(Path::new(CORPUS), target)?;
    let current = File::create(input).with_context(|| format!("make {}", input.display()))?;
    let end = Instant::now() + duration;
    let (mut tried, mut accepted) = (0_u64, 0_u64);
    while Instant::now() < end {
        let mut mutator = Mutator::new(Random::new(seed, tried), target.words, &corpus);
        let bytes = mutator.next_input();
        current.write_all_at(&bytes, 0)?;
        current.set_len(bytes.len() as u64)?;
        accepted += u64::from((target.run)(&bytes));
        tried += 1;
    }
    println!("fuzz: {}: seed {seed}, {tried} inputs, {accepted} accepted", target.name);
    ensure!(accepted > 0, "no input was accepted: the seeds are stale and nothing was tested");
    Ok(())
}
