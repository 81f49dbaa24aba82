//! Paths in a sandbox: relative ones are relative to its workspace, or else to where its commands start.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use stockade_api::{Bytes, Caller, CommandLine, Execute, Problem, Sandbox, Sandboxes};
use stockade_core::{Code, SandboxId};

use crate::mcp::untrusted::line;

/// The longest path, in bytes.
const PATH_BYTES: usize = 4096;

/// A sandbox, and the directory that paths are relative to.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: SandboxId,
    pub(super) base: Bytes,
}

impl Place {
    pub(super) async fn of(
        sandboxes: &dyn Sandboxes,
        caller: &Caller,
        sandbox: Sandbox,
    ) -> Result<Self, Problem> {
        let named = sandbox.workspace.as_ref().map(|workspace| workspace.inside.as_path());
        let named = named.or(sandbox.working_directory.as_deref());
        let base = match named {
            Some(path) => Bytes(path.as_os_str().as_bytes().to_vec()),
            None => home(sandboxes, caller, &sandbox.id).await?,
        };
        Ok(Self { id: sandbox.id, base })
    }

    /// The absolute path inside of an argument. An absolute one is left as it is.
    pub(super) fn path(&self, text: &str) -> Result<Bytes, Problem> {
        check(text)?;
        if text.starts_with('/') {
            return Ok(Bytes(text.as_bytes().to_vec()));
        }
        let names: Vec<_> = text.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        let mut path = self.base.0.clone();
        for name in names {
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
        }
        Ok(Bytes(path))
    }

    /// A path for the client: relative where that is possible.
    pub(super) fn show(&self, path: &Bytes) -> String {
        let below = Path::new(std::ffi::OsStr::from_bytes(&path.0))
            .strip_prefix(std::ffi::OsStr::from_bytes(&self.base.0));
        match below {
            Ok(below) if below.as_os_str().is_empty() => ".".to_owned(),
            Ok(below) => line(below.as_os_str().as_bytes()),
            Err(_) => line(&path.0),
        }
    }
}

/// Refuses what no path of a file is, and `..`, which means different things where links are.
fn check(text: &str) -> Result<(), Problem> {
    let refuse = |message: &str| Err(Problem::new(Code::PathInvalid, message));
    if text.is_empty() {
        return refuse("the path is empty");
    }
    if text.len() > PATH_BYTES {
        return refuse("the path is longer than 4096 bytes");
    }
    if text.contains('\0') {
        return refuse("the path contains a NUL byte");
    }
    if text.split('/').any(|name| name == "..") {
        return refuse("the path has a `..` component");
    }
    Ok(())
}

/// Where commands of a sandbox start that has no other directory: the home of their user.
async fn home(
    sandboxes: &dyn Sandboxes,
    caller: &Caller,
    id: &SandboxId,
) -> Result<Bytes, Problem> {
    let words = ["/bin/sh", "-c", "pwd"].map(str::to_owned);
    let execute = Execute {
        timeout_seconds: Some(10.0),
        ..Execute::new(id.clone(), CommandLine::Program(words.to_vec()))
    };
    let ended = sandboxes.execute(caller, execute).await?;
    let path = ended.stdout.0.strip_suffix(b"\n").unwrap_or(&ended.stdout.0);
    if ended.end.exit_code == Some(0) && path.starts_with(b"/") && path.len() <= PATH_BYTES {
        return Ok(Bytes(path.to_vec()));
    }
    Ok(Bytes(b"/".to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_without_one_meaning_are_refused() {
        for path in ["a", "a/b", "/a", "./a", "a..b", "...", "a/", "\u{202e}"] {
            assert!(check(path).is_ok(), "{path}");
        }
        for path in ["", "..", "../a", "a/..", "a/../b", "/..", "a\0b"] {
            assert!(check(path).is_err(), "{path}");
        }
        assert!(check(&"a".repeat(PATH_BYTES + 1)).is_err());
    }
}
