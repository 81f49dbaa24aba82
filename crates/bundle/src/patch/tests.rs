//! Tests of both directions: `git apply` accepts what is rendered, and what git writes can be
//! parsed.

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
