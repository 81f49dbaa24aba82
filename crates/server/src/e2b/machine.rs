//! What clients expect of a machine: `python` where there is only `python3`. The system directories may belong to
//! the host, so it is in the home of the user, whose login shells find it.

use std::sync::Arc;

use stockade_api::{Caller, FileContent, Sandbox};

use super::App;
use crate::failure::Failure;
use crate::inside::directories::create_as;
use crate::inside::write::{NewFile, write};
use crate::inside::{Target, stat};

/// Where a program `python` may be.
const PYTHON: [&str; 2] = ["/usr/bin/python", "/usr/local/bin/python"];
/// The program that it means otherwise.
const PYTHON3: &str = "/usr/bin/python3";
/// The ordinary user, and where its programs are.
const OWNER: (u32, u32) = (1000, 1000);
const DIRECTORY: &str = "/home/user/.local/bin";
/// The files to write: the path, the mode and the content.
const FILES: [(&str, u32, &str); 2] = [
    ("/home/user/.local/bin/python", 0o755, "#!/bin/sh\nexec python3 \"$@\"\n"),
    ("/home/user/.profile", 0o644, "PATH=\"$HOME/.local/bin:$PATH\"\n"),
];

/// Adds what a new sandbox lacks. One that refuses it stays as it is.
pub(super) async fn complete(app: &App, caller: &Caller, sandbox: &Sandbox) {
    let mut caller = caller.clone();
    caller.idempotency_key = None;
    let target = Target { caller, sandbox: Arc::new(sandbox.clone()), identity: None };
    if let Err(Failure(problem)) = add_python(app, &target).await {
        let (id, reason) = (&sandbox.id, &problem.message);
        tracing::debug!(sandbox = %id, %reason, "no program `python` was added");
    }
}

async fn add_python(app: &App, target: &Target) -> Result<(), Failure> {
    for path in PYTHON {
        if stat(&app.sandboxes, target, path, true).await.is_ok() {
            return Ok(());
        }
    }
    stat(&app.sandboxes, target, PYTHON3, true).await?;
    create_as(&app.sandboxes, target, OWNER, DIRECTORY, None).await?;
    for (path, mode, content) in FILES {
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
