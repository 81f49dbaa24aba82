//! Tests of both directions: what is rendered is what git takes, and what is read is what git
//! wrote.

mod read;
mod write;

use std::path::Path;
use std::process::{Command, Output};

use crate::testing::skipped;

/// Runs git; `None` where it is not installed.
fn git(root: &Path, arguments: &[&str]) -> Option<Output> {
    let output = Command::new("git")
        .args(["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "core.quotePath=true"])
        .args(arguments)
        .current_dir(root)
        .output();
    match output {
        Ok(output) => Some(output),
        Err(_) => {
            skipped("git is not installed");
            None
        }
    }
}
