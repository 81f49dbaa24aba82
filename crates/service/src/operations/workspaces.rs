//! Operations on workspaces: named trees of an owner, with staged writes and commits. Each is one
//! atomic change of the store, so none needs a record.

use std::io::Read as _;
use std::time::{Duration, SystemTime};

use stockade_api::{
    Bytes, Caller, ChangeWorkspace, CommitWorkspace, CommittedWorkspace, FileKind, ReadWorkspace,
    Result, WorkspaceBranch, WorkspaceByName, WorkspaceChange, WorkspaceCommit, WorkspaceFile,
    WorkspaceHistory, WorkspaceInfo, WorkspaceList, WorkspaceTree,
};
use stockade_bundle::RelativePath;
use stockade_bundle::data::DataDir;
use stockade_bundle::manifest::Node;
use stockade_bundle::workspace::{Change, MAIN, Workspace, Workspaces};
use stockade_core::{Code, Problem, VolumeName};

use crate::clock::{now_ms, timestamp};
use crate::failure::{caused, invalid, workspace_problem};
use crate::possession::Kind;
use crate::possessions;
use crate::service::Service;

/// The largest file that is returned in one answer.
const MAX_CONTENT_BYTES: u64 = 16 << 20;
/// How long contents stay that no branch leads to: a synchronization may be reading them.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Runs a function on the caller's workspaces, on a thread that may block.
async fn with<T: Send + 'static>(
    service: &Service,
    caller: &Caller,
    work: impl FnOnce(&Workspaces) -> Result<T> + Send + 'static,
) -> Result<T> {
    let home = service.inner.options.home.as_ref().ok_or_else(|| {
        Problem::new(Code::Unsupported, "this server has no data directory for workspaces")
    })?;
    let (path, owner) = (home.path.clone(), caller.owner.clone());
    let done = tokio::task::spawn_blocking(move || {
        let data = DataDir::open(&path).map_err(|error| caused(Code::Io, &error))?;
        work(&Workspaces::open(&data, &owner).map_err(|error| workspace_problem(&error))?)
    });
    done.await.unwrap_or_else(|error| {
        Err(Problem::new(Code::Io, "the workspace could not be used").because(error.to_string()))
    })
}

fn open(all: &Workspaces, name: &VolumeName) -> Result<Workspace> {
    all.workspace(name).map_err(|error| workspace_problem(&error))
}

fn info(workspace: &Workspace, name: &VolumeName) -> Result<WorkspaceInfo> {
    let failed = |error| workspace_problem(&error);
    let mut branches = Vec::new();
    for branch in workspace.branch_names().map_err(failed)? {
        let state = workspace.branch(&branch).map_err(failed)?.unwrap_or_default();
        branches.push(WorkspaceBranch {
            name: branch,
            head: state.head.map(|head| head.to_hex()),
            is_staged: state.staged.is_some(),
        });
    }
    Ok(WorkspaceInfo { name: name.clone(), branches })
}

/// Creates a workspace.
pub(crate) async fn create(
    service: &Service,
    caller: &Caller,
    request: WorkspaceByName,
) -> Result<WorkspaceInfo> {
    let (inner, owner) = (&service.inner, &caller.owner);
    let name = request.name.as_str().to_owned();
    let _lock = inner.possessions.locks.lock(owner).await;
    possessions::claim(inner, owner, Kind::Workspace, &name).await?;
    let created = with(service, caller, move |all| {
        all.create(&request.name).map_err(|error| workspace_problem(&error))?;
        info(&open(all, &request.name)?, &request.name)
    });
    let created = created.await;
    if created.as_ref().is_err_and(|problem| problem.code != Code::Conflict) {
        possessions::release(inner, owner, Kind::Workspace, &name).await?;
    }
    created
}

/// The caller's workspaces.
pub(crate) async fn list(service: &Service, caller: &Caller) -> Result<WorkspaceList> {
    possessions::publish(&service.inner, &caller.owner, Kind::Workspace).await?;
    with(service, caller, |all| {
        let names = all.list().map_err(|error| workspace_problem(&error))?;
        let workspaces = names.iter().map(|name| info(&open(all, name)?, name));
        let workspaces = workspaces.collect::<Result<_>>()?;
        Ok(WorkspaceList { workspaces, ..WorkspaceList::default() })
    })
    .await
}

/// Removes a workspace.
pub(crate) async fn remove(
    service: &Service,
    caller: &Caller,
    request: WorkspaceByName,
) -> Result<()> {
    let (inner, owner) = (&service.inner, &caller.owner);
    let name = request.name.as_str().to_owned();
    if let Some(host) = possessions::lost_host(inner, owner, Kind::Workspace, &name).await? {
        return possessions::remove_lost(inner, owner, Kind::Workspace, &name, &host).await;
    }
    let _lock = inner.possessions.locks.lock(owner).await;
    let removed = with(service, caller, move |all| {
        all.remove(&request.name).map_err(|error| workspace_problem(&error))
    });
    removed.await?;
    possessions::release(inner, owner, Kind::Workspace, &name).await
}

/// Files of a workspace, or the content of one.
pub(crate) async fn read(
    service: &Service,
    caller: &Caller,
    request: ReadWorkspace,
) -> Result<WorkspaceTree> {
    with(service, caller, move |all| {
        let workspace = open(all, &request.name)?;
        let tree = workspace.tree(request.reference.as_deref());
        let tree = tree.map_err(|error| workspace_problem(&error))?;
        let Some(path) = &request.path else {
            let files = tree.iter().map(|(path, node)| file(path, node)).collect();
            return Ok(WorkspaceTree { files, content: None });
        };
        let path = relative(path)?;
        let content = match tree.get(&path) {
            None => {
                let message =
                    format!("there is no {} in the workspace {}", path.quoted(), request.name);
                return Err(Problem::new(Code::FileNotFound, message)
                    .remedied_by(format!("stockade workspace files {}", request.name)));
            }
            Some(Node::File { size, .. }) if *size > MAX_CONTENT_BYTES => {
                return Err(invalid(format!(
                    "{} is larger than {MAX_CONTENT_BYTES} bytes",
                    path.quoted()
                ))
                .remedied_by("stockade sync workspace:NAME ID:PATH"));
            }
            Some(Node::File { hash, .. }) => {
                let mut content = Vec::new();
                let read = workspace.blobs().open(*hash);
                read.and_then(|mut file| file.read_to_end(&mut content))
                    .map_err(|error| workspace_problem(&error.into()))?;
                Some(Bytes(content))
            }
            Some(_) => None,
        };
        let files = tree.iter().filter(|(known, _)| known.is_within(&path));
        Ok(WorkspaceTree { files: files.map(|(path, node)| file(path, node)).collect(), content })
    })
    .await
}

/// Removes what no branch leads to any more. A failure is no failure of the change, and the next
/// change tries again.
fn collect(workspace: &Workspace) {
    let _ = workspace.collect_if_due(SystemTime::now(), KEPT);
}

/// Stages changes.
pub(crate) async fn change(
    service: &Service,
    caller: &Caller,
    request: ChangeWorkspace,
) -> Result<WorkspaceInfo> {
    with(service, caller, move |all| {
        let failed = |error| workspace_problem(&error);
        let workspace = open(all, &request.name)?;
        let branch = request.branch.as_deref().unwrap_or(MAIN);
        let mut changes = Vec::with_capacity(request.changes.len());
        for change in &request.changes {
            changes.push(match change {
                WorkspaceChange::DeleteFile { path } => Change::Delete(relative(path)?),
                WorkspaceChange::CreateFolder { path } => {
                    Change::Put(relative(path)?, Node::Directory { mode: 0o755 })
                }
                WorkspaceChange::WriteFile { path, content, mode } => {
                    let stored = workspace.blobs().put(&mut content.0.as_slice());
                    let (hash, size) = stored.map_err(|error| workspace_problem(&error.into()))?;
                    let mode = mode.unwrap_or(0o644) & 0o777;
                    Change::Put(relative(path)?, Node::File { hash, size, mode })
                }
            });
        }
        if request.discard {
            workspace.discard(branch).map_err(failed)?;
        }
        if !changes.is_empty() {
            workspace.stage(branch, &changes, None).map_err(failed)?;
        }
        if request.discard {
            collect(&workspace);
        }
        info(&workspace, &request.name)
    })
    .await
}

/// Commits what is staged.
pub(crate) async fn commit(
    service: &Service,
    caller: &Caller,
    request: CommitWorkspace,
) -> Result<CommittedWorkspace> {
    if request.message.trim().is_empty() {
        return Err(invalid("a commit needs a message"));
    }
    let author = caller.owner.clone();
    with(service, caller, move |all| {
        let workspace = open(all, &request.name)?;
        let branch = request.branch.as_deref().unwrap_or(MAIN);
        let at_ms = u64::try_from(now_ms()).unwrap_or(0);
        let made = workspace.commit(branch, &request.message, &author, at_ms);
        let made = made.map_err(|error| workspace_problem(&error))?;
        collect(&workspace);
        Ok(CommittedWorkspace { commit_id: made.map(|id| id.to_hex()) })
    })
    .await
}

/// The commits of a branch.
pub(crate) async fn history(
    service: &Service,
    caller: &Caller,
    request: ReadWorkspace,
) -> Result<WorkspaceHistory> {
    with(service, caller, move |all| {
        let workspace = open(all, &request.name)?;
        let history = workspace.history(request.reference.as_deref());
        let commits = history.map_err(|error| workspace_problem(&error))?.into_iter();
        let commits = commits.map(|(id, commit)| WorkspaceCommit {
            id: id.to_hex(),
            parent: commit.parent.map(|parent| parent.to_hex()),
            message: commit.message,
            author: commit.author,
            at: timestamp(i64::try_from(commit.at_ms).unwrap_or(0)),
        });
        Ok(WorkspaceHistory { commits: commits.collect() })
    })
    .await
}

fn file(path: &RelativePath, node: &Node) -> WorkspaceFile {
    let (kind, size_bytes, mode, hash, link) = match node {
        Node::File { hash, size, mode } => {
            (FileKind::File, *size, *mode, Some(hash.to_hex()), None)
        }
        Node::Directory { mode } => (FileKind::Directory, 0, *mode, None, None),
        Node::Symlink { target } => {
            let link = Some(Bytes(target.clone()));
            (FileKind::Link, target.len() as u64, 0o777, None, link)
        }
    };
    let path = Bytes(path.as_bytes().to_vec());
    WorkspaceFile { path, kind, size_bytes, mode, hash, link }
}

fn relative(path: &Bytes) -> Result<RelativePath> {
    let path = RelativePath::new(path.0.clone());
    path.map_err(|error| Problem::new(Code::PathInvalid, error.to_string()))
}
