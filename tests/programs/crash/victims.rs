//! The processes that can be killed: the keeper of a data directory, its helpers, and the inits of
//! its jails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::random::Random;

/// The processes whose arguments are those of a keeper of this directory.
pub(crate) fn keepers(data: &Path) -> Vec<u32> {
    with_arguments("__keeper", |argument| argument == data.to_string_lossy())
}

/// The helpers of keepers of this directory: those with an argument that is a path in it, or one of
/// these inits.
pub(crate) fn helpers(data: &Path, inits: &BTreeSet<u32>) -> Vec<u32> {
    with_arguments("__keeper-helper", |argument| {
        argument.starts_with(&*data.to_string_lossy())
            || argument.parse().is_ok_and(|init| inits.contains(&init))
    })
}

/// The processes that have this argument, followed by one that matches, except for their own
/// children, which have the same arguments until they execute another program or become a sandbox's
/// init.
pub(crate) fn with_arguments(word: &str, is_meant: impl Fn(&str) -> bool) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let found: BTreeMap<u32, Option<u32>> = processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|process| {
            let arguments = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let arguments = String::from_utf8_lossy(&arguments);
            let mut arguments = arguments.split('\0').skip(1);
            arguments.next() == Some(word) && arguments.any(&is_meant)
        })
        .map(|process| (process, parent(process)))
        .collect();
    let is_child = |parent: &Option<u32>| parent.is_some_and(|parent| found.contains_key(&parent));
    found.iter().filter(|(_, parent)| !is_child(parent)).map(|(process, _)| *process).collect()
}

/// The parent of a process (`proc(5)`, `PPid`).
fn parent(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// The inits in the records of a data directory.
pub(crate) fn inits(data: &Path) -> Vec<u32> {
    sandbox_inits(data).into_iter().map(|(init, _)| init).collect()
}

/// Those inits with the sandbox of each; none for an init of the pool.
fn sandbox_inits(data: &Path) -> Vec<(u32, Option<String>)> {
    let sandboxes = data.join("runtime/1/sandboxes");
    let Ok(sandboxes) = std::fs::read_dir(sandboxes) else { return Vec::new() };
    sandboxes
        .flatten()
        .filter_map(|entry| {
            let text = std::fs::read(entry.path().join("record.json")).ok()?;
            let record: Value = serde_json::from_slice(&text).ok()?;
            let init = record["stage"]["held"]["init"].as_u64()?;
            let init = u32::try_from(init).ok()?;
            // The pid may have been reused.
            let name = std::fs::read_to_string(format!("/proc/{init}/comm")).ok()?;
            let sandbox = record["id"].as_str().map(str::to_owned);
            (name.trim() == "stockade-init").then_some((init, sandbox))
        })
        .collect()
}

/// Kills the keeper; false when there is none.
pub(crate) fn kill_keeper(data: &Path) -> bool {
    keepers(data).first().is_some_and(|keeper| kill(*keeper))
}

/// Kills a helper of the keeper, such as the one that empties its trash; false when there is none.
pub(crate) fn kill_helper(data: &Path) -> bool {
    let inits = inits(data).into_iter().collect();
    helpers(data, &inits).first().is_some_and(|helper| kill(*helper))
}

/// Kills an init, after it reported the init's sandbox to the caller; false when there is no init.
/// Unless it must be of a sandbox, it may be an init of the pool, and get a sandbox meanwhile.
pub(crate) fn kill_init(
    data: &Path,
    random: &mut Random,
    is_of_sandbox: bool,
    tell: impl FnOnce(Option<String>),
) -> bool {
    let mut inits = sandbox_inits(data);
    inits.retain(|(_, sandbox)| sandbox.is_some() || !is_of_sandbox);
    let at = usize::try_from(random.below(inits.len() as u64)).unwrap_or(0);
    if at >= inits.len() {
        return false;
    }
    let (init, sandbox) = inits.swap_remove(at);
    tell(sandbox);
    kill(init)
}

/// Kills a process as abruptly as a loss of power.
pub(crate) fn kill(process: u32) -> bool {
    // A process that has already ended is not an error.
    let kill = Command::new("kill").args(["-9", &process.to_string()]).output();
    kill.is_ok_and(|kill| kill.status.success())
}
