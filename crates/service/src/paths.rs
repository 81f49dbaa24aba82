//! Paths inside sandboxes: as bytes, and with their symbolic links resolved.

use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt as _;

use stockade_api::{Bytes, Result};
use stockade_core::{Code, Problem, SandboxId};
use stockade_runtime::{Error, Runtime, SandboxPath};

use crate::failure::{path_problem, runtime_problem};

/// The path that a name leads to, with its symbolic links resolved; `follow` determines whether
/// that includes one at its end. A name that does not exist stays as it is. A process inside can
/// change a symbolic link a moment later: only the runtime's own checks protect against that.
pub(crate) async fn resolve(
    runtime: &dyn Runtime,
    sandbox: &SandboxId,
    path: &SandboxPath,
    follow: bool,
) -> Result<SandboxPath> {
    let mut waiting: VecDeque<Vec<u8>> = components(as_bytes(path)).collect();
    let (mut at, mut links) = (Vec::new(), 0);
    while let Some(name) = waiting.pop_front() {
        if name == b".." {
            let parent = at.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            at.truncate(parent);
            continue;
        }
        let next = [&at[..], b"/", &name].concat();
        if follow || !waiting.is_empty() {
            let link = match runtime.stat(sandbox, &as_path(&Bytes(next.clone()))?).await {
                Ok(info) => info.link,
                // The operation that uses the path reports the error.
                Err(Error::File { .. }) => None,
                Err(error) => return Err(runtime_problem(&error)),
            };
            if let Some(link) = link {
                links += 1;
                if links > LINKS {
                    let message = format!("too many links on the way to {path}");
                    return Err(Problem::new(Code::PathInvalid, message));
                }
                if link.starts_with(b"/") {
                    at.clear();
                }
                for name in components(&link).collect::<Vec<_>>().into_iter().rev() {
                    waiting.push_front(name);
                }
                continue;
            }
        }
        at = next;
    }
    as_path(&Bytes(if at.is_empty() { b"/".to_vec() } else { at }))
}

/// How many symbolic links are followed in one path, as in Linux.
const LINKS: usize = 40;

fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let names = path.split(|byte| *byte == b'/');
    names.filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec)
}

pub(crate) fn as_bytes(path: &SandboxPath) -> &[u8] {
    path.as_path().as_os_str().as_bytes()
}

pub(crate) fn as_path(path: &Bytes) -> Result<SandboxPath> {
    SandboxPath::new(std::ffi::OsStr::from_bytes(&path.0)).map_err(|error| path_problem(&error))
}
