//! `stockade rm`: removes files from a sandbox without starting anything in it.

use std::ffi::OsStr;

use serde_json::json;
use stockade_api::{Problem, RemoveFile};
use stockade_core::Code;

use super::path_argument::PathArgument;
use super::{absolute, find, with_files};
use crate::args::sandbox::Remove;
use crate::commands::print::escaped;
use crate::problem::Failure;
use crate::remote;

/// Removes every path that can be removed, even if others fail.
pub(crate) fn run(arguments: Remove) -> Result<u8, Failure> {
    let wanted =
        arguments.path.iter().map(|text| parse_path(text)).collect::<Result<Vec<_>, _>>()?;
    let (removed, failed) = remote::with(arguments.server_mode, async |remote| {
        let (mut removed, mut failed) = (Vec::new(), Vec::new());
        for (name, path) in wanted {
            let shown = escaped(&String::from_utf8_lossy(&path));
            let argument = format!("{}:{shown}", escaped(&name));
            let ended = async {
                let sandbox_id = find(&remote, &name).await?;
                let remove = async {
                    let path = absolute(&remote, &sandbox_id, None, path).await?;
                    let shown = escaped(&String::from_utf8_lossy(&path));
                    let request = RemoveFile { sandbox_id: sandbox_id.clone(), path: path.into() };
                    remote.sandboxes.remove_file(&remote.idempotent(), request).await?;
                    Ok(shown)
                };
                let shown = with_files(&remote, &sandbox_id, remove).await?;
                Ok::<_, Failure>(json!({ "sandboxId": sandbox_id, "path": shown }))
            };
            match ended.await {
                Ok(path) => removed.push(path),
                Err(failure) => failed.push((argument, failure)),
            }
        }
        Ok((removed, failed))
    })?;
    Failure::report(failed, arguments.json.then(|| json!({ "removed": removed })))
}

/// Parses an argument into a sandbox and a path in it.
fn parse_path(text: &OsStr) -> Result<(String, Vec<u8>), Problem> {
    match PathArgument::parse(text) {
        PathArgument::Sandbox(name, path) => Ok((name, path)),
        PathArgument::Host(_) => {
            let shown = escaped(&text.to_string_lossy());
            let message = format!("{shown} is not a path in a sandbox");
            Err(Problem::new(Code::InvalidInput, message)
                .because("a path to remove is written as ID:PATH")
                .remedied_by("stockade rm latest:/tmp/large"))
        }
    }
}
