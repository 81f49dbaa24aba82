//! What clients expect of a machine: `python` where there is only `python3`, and `sudo`, for which no set-user-id bit works.
//! The system directories may belong to the host, so both are in the home of the user, whose login shells find them.

use std::sync::Arc;

use stockade_api::{Caller, FileContent, Sandbox};

use super::App;
use crate::failure::Failure;
use crate::inside::directories::create_as;
use crate::inside::write::{NewFile, write};
use crate::inside::{Target, stat};

/// Where a program `python` may be.
const PYTHON: [&str; 2] = ["/usr/bin/python", "/usr/local/bin/python"];
/// The program that it means otherwise, and that runs `sudo`.
const PYTHON3: &str = "/usr/bin/python3";
/// The ordinary user, and where its programs are.
const OWNER: (u32, u32) = (1000, 1000);
const DIRECTORY: &str = "/home/user/.local/bin";

/// A file to write: the path, the mode and the content.
type Addition = (&'static str, u32, &'static str);

const PYTHON_FILE: Addition =
    ("/home/user/.local/bin/python", 0o755, "#!/bin/sh\nexec python3 \"$@\"\n");
const SUDO_FILE: Addition = ("/home/user/.local/bin/sudo", 0o755, include_str!("sudo.py"));
/// The files by which login shells of the user and of root find the programs.
const PROFILES: [Addition; 2] = [
    ("/home/user/.profile", 0o644, "PATH=\"/home/user/.local/bin:$PATH\"\n"),
    ("/root/.profile", 0o644, "PATH=\"/home/user/.local/bin:$PATH\"\n"),
];

/// Adds what a new sandbox lacks. One that refuses it stays as it is.
pub(super) async fn complete(app: &App, caller: &Caller, sandbox: &Sandbox) {
    let mut caller = caller.clone();
    caller.idempotency_key = None;
    let target = Target { caller, sandbox: Arc::new(sandbox.clone()), identity: None };
    if let Err(Failure(problem)) = add_programs(app, &target).await {
        let (id, reason) = (&sandbox.id, &problem.message);
        tracing::debug!(sandbox = %id, %reason, "not all programs that clients expect were added");
    }
}

async fn add_programs(app: &App, target: &Target) -> Result<(), Failure> {
    stat(&app.sandboxes, target, PYTHON3, true).await?;
    create_as(&app.sandboxes, target, OWNER, DIRECTORY, None).await?;
    let mut additions = vec![SUDO_FILE];
    if !has_python(app, target).await {
        additions.push(PYTHON_FILE);
    }
    for (path, mode, content) in additions.into_iter().chain(PROFILES) {
        // A file of the system is not replaced.
        if stat(&app.sandboxes, target, path, false).await.is_ok() {
            continue;
        }
        let file = NewFile { path, mode: Some(mode), uid: None, gid: None };
        let content = FileContent(Box::pin(content.as_bytes()));
        write(&app.sandboxes, target, file, content).await?;
    }
    Ok(())
}

async fn has_python(app: &App, target: &Target) -> bool {
    for path in PYTHON {
        if stat(&app.sandboxes, target, path, true).await.is_ok() {
            return true;
        }
    }
    false
}
