//! What can be killed: the keeper of a data directory, and the inits that it holds.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::random::Random;

/// The processes whose arguments are those of a keeper of this directory.
pub(crate) fn keepers(data: &Path) -> Vec<u32> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let data = data.to_string_lossy();
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|process| {
            let arguments = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let mut arguments = arguments.split(|byte| *byte == 0).skip(1);
            arguments.next() == Some(b"__keeper")
                && arguments.any(|argument| argument == data.as_bytes())
        })
        .collect()
}

/// The inits that are written down in the records of a data directory.
pub(crate) fn inits(data: &Path) -> Vec<u32> {
    let sandboxes = data.join("runtime/1/sandboxes");
    let Ok(sandboxes) = std::fs::read_dir(sandboxes) else { return Vec::new() };
    sandboxes
        .flatten()
        .filter_map(|entry| {
            let text = std::fs::read(entry.path().join("record.json")).ok()?;
            let record: Value = serde_json::from_slice(&text).ok()?;
            let init = record["stage"]["held"]["init"].as_u64()?;
            let init = u32::try_from(init).ok()?;
            // The number may have been given to somebody else.
            let name = std::fs::read_to_string(format!("/proc/{init}/comm")).ok()?;
            (name.trim() == "stockade-init").then_some(init)
        })
        .collect()
}

/// Kills the keeper; false when there is none.
pub(crate) fn kill_keeper(data: &Path) -> bool {
    keepers(data).first().is_some_and(|keeper| kill(*keeper))
}

/// Kills an init; false when there is none.
pub(crate) fn kill_init(data: &Path, random: &mut Random) -> bool {
    let inits = inits(data);
    let at = usize::try_from(random.below(inits.len() as u64)).unwrap_or(0);
    inits.get(at).is_some_and(|init| kill(*init))
}

fn kill(process: u32) -> bool {
    let status = Command::new("kill").args(["-9", &process.to_string()]).status();
    status.is_ok_and(|status| status.success())
}
