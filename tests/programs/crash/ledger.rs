//! What the clients record while they work: one line for each observation, so that the observations
//! of a killed client are not lost.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::Failure;

/// A record.
pub(crate) enum Line<'a> {
    /// A sandbox was created.
    Sandbox,
    /// A command ran once and its output was complete.
    Command,
    /// The end of a command was lost with its sandbox's init.
    Interrupted,
    /// A promise was broken.
    Fault(&'a str),
}

/// What all clients observed.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) sandboxes: u64,
    pub(crate) commands: u64,
    pub(crate) interrupted: u64,
    pub(crate) faults: Vec<String>,
}

fn directory(data: &Path) -> PathBuf {
    data.with_file_name("ledger")
}

/// Adds a line to a client's ledger.
pub(crate) fn write(data: &Path, name: &str, line: &Line<'_>) -> Result<(), Failure> {
    let directory = directory(data);
    std::fs::create_dir_all(&directory)?;
    let mut file = OpenOptions::new().create(true).append(true).open(directory.join(name))?;
    let text = match line {
        Line::Sandbox => "sandbox\n".to_owned(),
        Line::Command => "command\n".to_owned(),
        Line::Interrupted => "cut\n".to_owned(),
        Line::Fault(what) => format!("fault {name}: {}\n", what.replace('\n', " ")),
    };
    Ok(file.write_all(text.as_bytes())?)
}

/// Reads what all clients have written.
pub(crate) fn read_all(data: &Path) -> Result<Ledger, Failure> {
    let mut ledger = Ledger::default();
    for entry in std::fs::read_dir(directory(data))? {
        for line in std::fs::read_to_string(entry?.path())?.lines() {
            match line {
                "sandbox" => ledger.sandboxes += 1,
                "command" => ledger.commands += 1,
                "cut" => ledger.interrupted += 1,
                other => ledger.faults.extend(other.strip_prefix("fault ").map(str::to_owned)),
            }
        }
    }
    Ok(ledger)
}
