//! `stockade workspace`: named trees of files with staged writes, commits and a history.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde::Serialize;
use stockade_api::{
    Bytes, ChangeWorkspace, CommitWorkspace, Empty, FileKind, Problem, ReadWorkspace,
    WorkspaceByName, WorkspaceChange, WorkspaceInfo, WorkspaceTree,
};
use stockade_core::{Code, VolumeName};

use super::print::{escaped, notify, print, print_bytes, print_text};
use crate::args::sandbox::ServerMode;
use crate::args::sync::{Workspace, WorkspaceCommand};
use crate::problem::Failure;
use crate::remote;

/// Runs a command on workspaces.
pub(crate) fn run(arguments: Workspace) -> Result<u8, Failure> {
    match arguments.what {
        WorkspaceCommand::Create(one) => {
            let request = WorkspaceByName { name: name(&one.name)? };
            let made = remote::with(one.server_mode, async |remote| {
                Ok(remote.sandboxes.create_workspace(&remote.idempotent(), request).await?)
            })?;
            finish(one.json, &made, || format!("{}\n", made.name))
        }
        WorkspaceCommand::Ls(list) => {
            let found = remote::with(list.server_mode, async |remote| {
                Ok(remote.sandboxes.workspaces(remote.caller(), Empty {}).await?)
            })?;
            remote::report_unreachable("workspaces", &found.unreachable_servers);
            finish(list.json, &found, || found.workspaces.iter().map(line).collect())
        }
        WorkspaceCommand::Rm(one) => {
            let request = WorkspaceByName { name: name(&one.name)? };
            let removed = remote::with(one.server_mode, async |remote| {
                Ok(remote.sandboxes.remove_workspace(&remote.idempotent(), request).await?)
            })?;
            finish(one.json, &removed, String::new)
        }
        WorkspaceCommand::Files(files) => {
            let tree = read(files.server_mode, &files.name, files.reference, files.path)?;
            let listed = WorkspaceTree { content: None, ..tree };
            finish(files.json, &listed, || {
                let lines = listed.files.iter().map(|file| {
                    let end = if file.kind == FileKind::Directory { "/" } else { "" };
                    format!("{}{end}\n", escaped(&file.path.lossy()))
                });
                lines.collect()
            })
        }
        WorkspaceCommand::Cat(file) => {
            let tree = read(file.server_mode, &file.name, file.reference, file.path)?;
            if file.json {
                return finish(true, &tree, String::new);
            }
            match tree.content {
                Some(content) => print_bytes(&content.0).map(|()| 0),
                None => Err(Problem::new(Code::InvalidInput, "the path is not a file")
                    .remedied_by(format!("stockade workspace files {}", file.name))
                    .into()),
            }
        }
        WorkspaceCommand::Write(write) => {
            let (content, mode) = content(write.file.as_deref())?;
            let path = Bytes(write.path.into_vec());
            let changes = vec![WorkspaceChange::WriteFile { path, content, mode }];
            change(write.server_mode, &write.name, write.branch, changes, false, write.json)
        }
        WorkspaceCommand::Mkdir(paths) => {
            let make =
                |path: OsString| WorkspaceChange::CreateFolder { path: Bytes(path.into_vec()) };
            let changes = paths.path.into_iter().map(make).collect();
            change(paths.server_mode, &paths.name, paths.branch, changes, false, paths.json)
        }
        WorkspaceCommand::Delete(paths) => {
            let delete =
                |path: OsString| WorkspaceChange::DeleteFile { path: Bytes(path.into_vec()) };
            let changes = paths.path.into_iter().map(delete).collect();
            change(paths.server_mode, &paths.name, paths.branch, changes, false, paths.json)
        }
        WorkspaceCommand::Discard(one) => {
            change(one.server_mode, &one.name, one.branch, Vec::new(), true, one.json)
        }
        WorkspaceCommand::Commit(commit) => {
            let (name, message) = (name(&commit.name)?, commit.message);
            let request = CommitWorkspace { name, branch: commit.branch, message };
            let made = remote::with(commit.server_mode, async |remote| {
                Ok(remote.sandboxes.commit_workspace(&remote.idempotent(), request).await?)
            })?;
            if made.commit_id.is_none() && !commit.json {
                notify("nothing has changed");
            }
            finish(commit.json, &made, || match &made.commit_id {
                Some(id) => format!("{id}\n"),
                None => String::new(),
            })
        }
        WorkspaceCommand::Log(log) => {
            let request =
                ReadWorkspace { name: name(&log.name)?, reference: log.reference, path: None };
            let history = remote::with(log.server_mode, async |remote| {
                Ok(remote.sandboxes.workspace_history(remote.caller(), request).await?)
            })?;
            finish(log.json, &history, || {
                let lines = history.commits.iter().map(|commit| {
                    let short = commit.id.get(..12).unwrap_or(&commit.id);
                    format!("{short}  {}  {}\n", commit.at, escaped(&commit.message))
                });
                lines.collect()
            })
        }
    }
}

fn finish(
    json: bool,
    answer: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<u8, Failure> {
    match json {
        true => print(answer)?,
        false => print_text(&text())?,
    }
    Ok(0)
}

fn read(
    mode: ServerMode,
    workspace: &str,
    reference: Option<String>,
    path: Option<OsString>,
) -> Result<WorkspaceTree, Failure> {
    let path = path.map(|path| Bytes(path.into_vec()));
    let request = ReadWorkspace { name: name(workspace)?, reference, path };
    remote::with(mode, async |remote| {
        Ok(remote.sandboxes.read_workspace(remote.caller(), request).await?)
    })
}

fn change(
    mode: ServerMode,
    workspace: &str,
    branch: Option<String>,
    changes: Vec<WorkspaceChange>,
    discard: bool,
    json: bool,
) -> Result<u8, Failure> {
    let request = ChangeWorkspace { name: name(workspace)?, branch, changes, discard };
    let changed = remote::with(mode, async |remote| {
        Ok(remote.sandboxes.change_workspace(&remote.idempotent(), request).await?)
    })?;
    finish(json, &changed, String::new)
}

fn line(workspace: &WorkspaceInfo) -> String {
    let branches = workspace.branches.iter().map(|branch| {
        let head = branch.head.as_deref().map_or("empty", |head| head.get(..12).unwrap_or(head));
        let staged = if branch.is_staged { " (staged)" } else { "" };
        format!("{} {head}{staged}", branch.name)
    });
    format!("{}  {}\n", workspace.name, branches.collect::<Vec<_>>().join(", "))
}

/// The content of a file of the host with its permissions, or of standard input.
fn content(file: Option<&Path>) -> Result<(Bytes, Option<u32>), Failure> {
    let mut content = Vec::new();
    let (read, mode) = match file.filter(|file| *file != Path::new("-")) {
        None => (std::io::stdin().lock().read_to_end(&mut content).map(drop), None),
        Some(path) => {
            let mode = std::fs::metadata(path).ok().map(|found| found.permissions().mode() & 0o755);
            let read = std::fs::read(path).map(|bytes| content = bytes);
            (read, mode)
        }
    };
    read.map_err(|error| {
        let name = file.map_or_else(|| "standard input".into(), Path::to_string_lossy);
        Problem::new(Code::Io, format!("cannot read {name}")).because(error.to_string())
    })?;
    Ok((Bytes(content), mode))
}

fn name(text: &str) -> Result<VolumeName, Failure> {
    VolumeName::new(text)
        .map_err(|error| Problem::new(Code::InvalidInput, error.to_string()).into())
}
