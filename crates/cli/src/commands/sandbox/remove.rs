//! `stockade rm`: removes files from a sandbox without starting anything in it.

use std::ffi::OsStr;

use serde_json::json;
use stockade_api::{Problem, RemoveFile};
use stockade_core::Code;

use super::find;
use super::path_argument::PathArgument;
use crate::args::sandbox::Remove;
use crate::commands::print::{escaped, print};
use crate::problem::Failure;
use crate::remote;

/// Removes every path that can be removed, even if others fail; reports the first failure.
pub(crate) fn run(arguments: Remove) -> Result<u8, Failure> {
    let wanted =
        arguments.path.iter().map(|text| parse_path(text)).collect::<Result<Vec<_>, _>>()?;
    let (removed, failure) = remote::with(arguments.server_mode, async |remote| {
        let (mut removed, mut failure) = (Vec::new(), None);
        for (name, path) in wanted {
            let shown = escaped(&String::from_utf8_lossy(&path));
            let ended = async {
                let sandbox_id = find(&remote, &name).await?;
                let request = RemoveFile { sandbox_id: sandbox_id.clone(), path: path.into() };
                remote.sandboxes.remove_file(&remote.idempotent(), request).await?;
                Ok::<_, Failure>(json!({ "sandboxId": sandbox_id, "path": shown }))
            };
            match ended.await {
                Ok(path) => removed.push(path),
                Err(problem) => failure = failure.or(Some(problem)),
            }
        }
        Ok((removed, failure))
    })?;
    if arguments.json {
        print(&json!({ "removed": removed }))?;
    }
    failure.map_or(Ok(0), Err)
}

/// Parses an argument into a sandbox and a path in it.
fn parse_path(text: &OsStr) -> Result<(String, Vec<u8>), Problem> {
    match PathArgument::parse(text) {
        PathArgument::Sandbox(name, path) => Ok((name, path)),
        PathArgument::Host(_) => {
            let shown = escaped(&text.to_string_lossy());
            let message = format!("{shown} is not a path in a sandbox");
            Err(Problem::new(Code::InvalidInput, message)
                .because("a path to remove is written as ID:/PATH")
                .remedied_by("stockade rm latest:/tmp/large"))
        }
    }
}
