//! What clients expect of a machine: `python` where there is only `python3`, `sudo`, for which no set-user-id bit works, and
//! `adduser`, for which root has no capability. The system directories may belong to the host, so all are in the home of the user, whose login shells find them.

use std::sync::Arc;

use stockade_api::{Caller, FileContent, Sandbox};

use super::App;
use crate::failure::Failure;
use crate::inside::directories::create_as;
use crate::inside::write::{NewFile, write};
use crate::inside::{Identity, Target, stat};

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
/// The programs that add users, where the system has them, and what takes their place: root inside cannot give a home to its
/// user.
const ADD_USER: [(&str, &str); 2] = [
    ("/usr/sbin/adduser", "/home/user/.local/bin/adduser"),
    ("/usr/sbin/useradd", "/home/user/.local/bin/useradd"),
];
const ADD_USER_TEXT: &str = include_str!("adduser.py");
/// What `adduser` needs of the system.
const USERADD: &str = "/usr/sbin/useradd";
/// The files by which login shells of the user and of root find the programs.
const PROFILE: Addition = ("/home/user/.profile", 0o644, PATH);
const PROFILE_OF_ROOT: Addition = ("/root/.profile", 0o644, PATH);
const PATH: &str = "PATH=\"/home/user/.local/bin:$PATH\"\n";

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
    add(app, target, SUDO_FILE).await?;
    if !has_python(app, target).await {
        add(app, target, PYTHON_FILE).await?;
    }
    if stat(&app.sandboxes, target, USERADD, true).await.is_ok() {
        for (program, own) in ADD_USER {
            if stat(&app.sandboxes, target, program, true).await.is_ok() {
                add(app, target, (own, 0o755, ADD_USER_TEXT)).await?;
            }
        }
    }
    add(app, target, PROFILE).await?;
    // Where there is no other user than the ordinary one, this is refused.
    let root = Target { identity: Some(Identity { uid: 0, gid: 0 }), ..target.clone() };
    add(app, &root, PROFILE_OF_ROOT).await
}

/// Adds a file. One of the system is not replaced.
async fn add(app: &App, target: &Target, (path, mode, content): Addition) -> Result<(), Failure> {
    if stat(&app.sandboxes, target, path, false).await.is_ok() {
        return Ok(());
    }
    let file = NewFile { path, mode: Some(mode), uid: None, gid: None };
    let content = FileContent(Box::pin(content.as_bytes()));
    write(&app.sandboxes, target, file, content).await
}

async fn has_python(app: &App, target: &Target) -> bool {
    for path in PYTHON {
        if stat(&app.sandboxes, target, path, true).await.is_ok() {
            return true;
        }
    }
    false
}
