//! What the clients observed, and what was done to them.

use std::collections::BTreeSet;

use crate::workspace_client::WrittenFiles;

/// What all clients observed.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) sandboxes: u64,
    pub(crate) operations: u64,
    pub(crate) commands: u64,
    /// Commands that reached the allowed host, and no other.
    pub(crate) reached: u64,
    /// Operations that were requested again, because there was no response.
    pub(crate) repeated: u64,
    /// Operations that were interrupted with their sandbox's init.
    pub(crate) interrupted: u64,
    /// Sandboxes whose init was killed.
    pub(crate) lost: BTreeSet<String>,
    /// Those of them that no client has killed, so that the watcher must end them.
    pub(crate) abandoned: BTreeSet<String>,
    /// Files that were written in workspaces.
    pub(crate) files: u64,
    /// The same, by sandbox.
    pub(crate) written: Vec<WrittenFiles>,
    /// Promises that were broken.
    pub(crate) faults: Vec<String>,
}

/// A requested command, identified by the line that it adds to a file inside.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// Whether its end was reported; otherwise it may not have run at all.
    pub(crate) answered: bool,
}

/// Compares what commands have written with what was requested.
pub(crate) fn compare(written: &str, tokens: &[Token]) -> Result<(), String> {
    for line in written.lines() {
        if !tokens.iter().any(|token| token.text == line) {
            return Err(format!("{line:?} was written, and nothing that is known wrote it"));
        }
    }
    for Token { text, answered } in tokens {
        let times = written.lines().filter(|line| line == text).count();
        if times > 1 || (*answered && times == 0) {
            return Err(format!("the command {text} ran {times} times, answered: {answered}"));
        }
    }
    Ok(())
}
