//! `stockade debug child`: the program that a sandbox receives for the child workflow of a
//! `<Sandbox>`.

use std::collections::BTreeMap;

use stockade_core::Code;
use stockade_workflow::engine::child_program;

use crate::programs::realms;
use stockade_cli::args::debug::Child;
use stockade_cli::problem::{Failure, caused};

/// Writes the program to a directory.
pub(super) async fn run(arguments: Child) -> Result<u8, Failure> {
    let Child { file, sandbox, directory, input } = arguments;
    let input = serde_json::from_str(&input).map_err(|e| caused(Code::InvalidInput, &e))?;
    let files = child_program(realms(), &file, &input, &BTreeMap::new(), &sandbox).await?;
    for (name, content) in files {
        std::fs::write(directory.join(name), content).map_err(|error| caused(Code::Io, &error))?;
    }
    Ok(0)
}
