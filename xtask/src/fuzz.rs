//! `cargo xtask fuzz`: runs the targets of `fuzz/` as separate processes, so that a target that
//! aborts, hangs or exhausts memory is detected together with the input that caused it.

use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};

use crate::arguments::FuzzOptions;
use crate::programs;
use crate::workspace::{Workspace, output};

/// How much longer than requested a target may run before it counts as hung.
const GRACE: Duration = Duration::from_secs(20);

/// Runs each target for the requested time; true when none failed.
pub(crate) fn run(workspace: &Workspace, options: &FuzzOptions) -> anyhow::Result<bool> {
    let program = programs::for_fuzzing(workspace)?;
    let findings = workspace.target_directory()?.join("fuzz");
    std::fs::create_dir_all(&findings).with_context(|| format!("make {}", findings.display()))?;

    let known = output(std::process::Command::new(&program).arg("list"))?;
    let targets: Vec<&str> = known
        .lines()
        .filter(|name| options.target.as_ref().is_none_or(|wanted| wanted == name))
        .collect();
    ensure!(!targets.is_empty(), "there is no such target; the targets are {}", known.trim());

    let seed = options.seed.map_or_else(seed_of_now, Ok)?;
    let mut all_good = true;
    for target in targets {
        let input = findings.join(format!("{target}-{seed}"));
        let mut command = std::process::Command::new(&program);
        command.current_dir(&workspace.root).arg(target).arg(&input);
        command.arg(seed.to_string()).arg(options.seconds.to_string());
        let duration = Duration::from_secs(options.seconds.get() as u64);
        let outcome = wait(&mut command, duration + GRACE)?;
        all_good &= outcome.is_some_and(|status| status.success());
        print_failure(target, seed, outcome, &input)?;
    }
    Ok(all_good)
}

fn seed_of_now() -> anyhow::Result<u64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(now.as_secs())
}

/// Runs a program for at most `limit`; `None` when it had to be killed.
fn wait(
    command: &mut std::process::Command,
    limit: Duration,
) -> anyhow::Result<Option<ExitStatus>> {
    let mut child = command.spawn().with_context(|| format!("start {command:?}"))?;
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reports how a target ended, and keeps the input only if it caused a failure.
fn print_failure(
    target: &str,
    seed: u64,
    ended: Option<ExitStatus>,
    input: &Path,
) -> anyhow::Result<()> {
    let how = match ended {
        Some(status) if status.success() => {
            std::fs::remove_file(input).with_context(|| format!("remove {}", input.display()))?;
            return Ok(());
        }
        Some(status) => status.to_string(),
        None => "it hangs".to_owned(),
    };
    println!("fuzz: {target}: {how}, on the input in {}", input.display());
    println!("fuzz: to repeat: cargo xtask fuzz --target {target} --seed {seed}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Option<ExitStatus> {
        let mut command = std::process::Command::new("sh");
        wait(command.args(["-c", script]), Duration::from_millis(500)).unwrap()
    }

    #[test]
    fn a_target_that_hangs_is_killed() {
        assert!(shell("exec sleep 100").is_none());
        assert!(shell("exit 0").unwrap().success());
        assert!(!shell("kill -ABRT $$").unwrap().success());
    }

    #[test]
    fn only_a_harmful_input_is_kept() {
        let input = std::env::temp_dir().join(format!("stockade-fuzz-{}", std::process::id()));
        std::fs::write(&input, "x").unwrap();
        print_failure("patch", 1, None, &input).unwrap();
        print_failure("patch", 1, shell("exit 101"), &input).unwrap();
        assert!(input.exists());
        print_failure("patch", 1, shell("exit 0"), &input).unwrap();
        assert!(!input.exists());
    }
}
