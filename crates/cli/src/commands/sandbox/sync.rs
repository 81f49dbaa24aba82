//! `stockade sync`: a directory of a sandbox and one outside become equal, by a durable operation of the
//! server.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use stockade_api::{
    Bytes, ConflictPolicy, LargeFiles, OperationInfo, OperationStatus, Problem, SyncFiles,
    SyncReport, Vfs,
};
use stockade_core::{Code, VolumeName};

use super::path_argument::PathArgument;
use super::{absolute, find, with_files};
use crate::args::sync::{Conflict, Large, Sync};
use crate::commands::print::{escaped, notify, print};
use crate::problem::Failure;
use crate::remote::{self, Remote};
use crate::request::no_limit;

/// What stands for a sandbox in the name of a workspace.
const WORKSPACE: &str = "workspace";

/// The two directories.
struct Pair {
    sandbox: String,
    path: Vec<u8>,
    vfs: Vfs,
    into_sandbox: bool,
}

/// Synchronizes.
pub(crate) fn run(arguments: Sync) -> Result<u8, Failure> {
    let pair = Pair::parse(&arguments)?;
    let mode = arguments.server_mode;
    let report = remote::with(mode, async |remote| {
        let sandbox_id = find(&remote, &pair.sandbox).await?;
        let work = async {
            let path = absolute(&remote, &sandbox_id, None, pair.path.clone()).await?;
            let request = request(&arguments, SyncFiles::new(sandbox_id.clone(), path, pair.vfs));
            let caller = remote.idempotent();
            let started = match pair.into_sandbox {
                true => remote.sandboxes.sync_from_vfs(&caller, request).await?,
                false => remote.sandboxes.sync_to_vfs(&caller, request).await?,
            };
            wait(&remote, started).await
        };
        with_files(&remote, &sandbox_id, work).await
    })?;
    let failure = conflict(&report);
    if arguments.json {
        print(&report)?;
        return Ok(u8::from(failure.is_some()));
    }
    show(&report, arguments.dry_run);
    failure.map_or(Ok(0), |problem| Err(problem.into()))
}

/// Waits for the end of the operation.
async fn wait(remote: &Remote, mut info: OperationInfo) -> Result<SyncReport, Failure> {
    while matches!(info.status, OperationStatus::Waiting | OperationStatus::Running) {
        let id = info.workflow_id.clone();
        info = remote.sandboxes.wait_operation(remote.caller(), id).await?;
    }
    if let Some(problem) = info.error {
        return Err(problem.into());
    }
    let report = info.result.and_then(|result| serde_json::from_value(result).ok());
    report.ok_or_else(|| {
        let message = format!("the synchronization {} was cancelled", info.workflow_id);
        Problem::new(Code::Cancelled, message).into()
    })
}

impl Pair {
    fn parse(arguments: &Sync) -> Result<Self, Failure> {
        let branch = arguments.branch.as_deref();
        let (from, to) =
            (Side::parse(&arguments.from, branch)?, Side::parse(&arguments.to, branch)?);
        match (from, to) {
            (Side::Vfs(vfs), Side::Sandbox(sandbox, path)) => {
                Ok(Self { sandbox, path, vfs, into_sandbox: true })
            }
            (Side::Sandbox(sandbox, path), Side::Vfs(vfs)) => {
                Ok(Self { sandbox, path, vfs, into_sandbox: false })
            }
            _ => {
                Err(Problem::new(Code::InvalidInput, "one of the two directories is in a sandbox")
                    .remedied_by("stockade sync src latest:/tmp/src")
                    .into())
            }
        }
    }
}

enum Side {
    Vfs(Vfs),
    Sandbox(String, Vec<u8>),
}

impl Side {
    fn parse(text: &OsStr, branch: Option<&str>) -> Result<Self, Failure> {
        let branch = branch.map(str::to_owned);
        match PathArgument::parse(text) {
            PathArgument::Sandbox(name, path) if name == WORKSPACE => {
                let (name, path) = match path.iter().position(|byte| *byte == b'/') {
                    Some(at) => (&path[..at], Some(path[at + 1..].to_vec())),
                    None => (&path[..], None),
                };
                let name = VolumeName::new(String::from_utf8_lossy(name).into_owned());
                let name =
                    name.map_err(|error| Problem::new(Code::InvalidInput, error.to_string()))?;
                let path = path.map(|path| Bytes(path.trim_ascii_end().to_vec()));
                let path = path.filter(|path| !path.0.is_empty());
                Ok(Self::Vfs(Vfs { workspace: Some(name), path, branch, directory: None }))
            }
            PathArgument::Sandbox(name, path) => Ok(Self::Sandbox(name, path)),
            PathArgument::Host(path) => {
                if remote::chosen::chosen().is_some() {
                    let message = format!(
                        "{} is a directory of this machine",
                        escaped(&path.to_string_lossy())
                    );
                    return Err(Problem::new(Code::VfsForbidden, message)
                        .because("the server at a URL cannot read or write it")
                        .remedied_by("use `stockade cp`, or a workspace: workspace:NAME")
                        .into());
                }
                let path = full(&path)?;
                let directory = Some(Bytes(path.as_os_str().as_bytes().to_vec()));
                Ok(Self::Vfs(Vfs { directory, branch, ..Vfs::default() }))
            }
        }
    }
}

/// The absolute path of a directory, without links, if it exists.
fn full(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: &std::io::Error| -> Failure {
        Problem::new(Code::Io, format!("cannot find {}", path.display()))
            .because(error.to_string())
            .into()
    };
    if let Ok(real) = path.canonicalize() {
        return Ok(real);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed(&std::io::ErrorKind::InvalidInput.into()));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match parent.canonicalize() {
        Ok(parent) => Ok(parent.join(name)),
        Err(error) => Err(Problem::new(
            Code::FileNotFound,
            format!("there is no directory {}", parent.display()),
        )
        .because(error.to_string())
        .into()),
    }
}

fn request(arguments: &Sync, request: SyncFiles) -> SyncFiles {
    SyncFiles {
        include: arguments.include.clone(),
        exclude: arguments.exclude.clone(),
        gitignore: !arguments.no_gitignore,
        keep_empty_dirs: arguments.empty_dirs,
        mirror: arguments.mirror,
        two_way: arguments.two_way,
        allow_empty: arguments.allow_empty,
        conflict: match arguments.conflict {
            Conflict::Fail => ConflictPolicy::Fail,
            Conflict::Skip => ConflictPolicy::Skip,
            Conflict::VfsWins => ConflictPolicy::VfsWins,
            Conflict::ContainerWins => ConflictPolicy::ContainerWins,
        },
        commit: arguments.commit,
        message: arguments.message.clone(),
        git_directories: arguments.git_dirs,
        max_file_bytes: arguments.max_file.map(no_limit),
        large_files: match arguments.large_files {
            Large::Skip => LargeFiles::Skip,
            Large::Fail => LargeFiles::Fail,
        },
        max_bytes: arguments.max_size.map(no_limit),
        max_files: arguments.max_files,
        dry_run: arguments.dry_run,
        ..request
    }
}

/// The problem of a synchronization that conflicts have prevented.
fn conflict(report: &SyncReport) -> Option<Problem> {
    if report.completed {
        return None;
    }
    let open = report.conflict_paths.iter().find(|conflict| !conflict.settled);
    let path = open.map(|conflict| escaped(&conflict.path.lossy())).unwrap_or_default();
    let message =
        format!("both sides have changed {} files, and nothing was copied", report.conflicts);
    let problem = Problem::new(Code::SyncConflict, message).because(format!("such as {path}"));
    Some(problem.remedied_by("--conflict skip, --conflict vfs-wins or --conflict container-wins"))
}

fn show(report: &SyncReport, dry_run: bool) {
    let would = if dry_run { "would be " } else { "" };
    if report.completed {
        notify(&format!(
            "{} files, {} bytes {would}copied; {} unchanged, {} skipped, {} {would}deleted",
            report.copied, report.bytes, report.unchanged, report.skipped, report.deleted
        ));
    }
    for path in &report.replaced_paths {
        notify(&format!("note: {} differed and was replaced", escaped(&path.lossy())));
    }
    let mut reasons = std::collections::BTreeMap::<&str, (usize, &Bytes)>::new();
    for skipped in &report.skipped_paths {
        reasons.entry(&skipped.reason).or_insert((0, &skipped.path)).0 += 1;
    }
    for (reason, (count, path)) in reasons {
        let path = escaped(&path.lossy());
        notify(&format!("{count} skipped: {reason}, such as {path}"));
    }
    for conflict in &report.conflict_paths {
        let hash = |hash: &Option<String>| {
            hash.as_deref().map_or("-", |hash| hash.get(..12).unwrap_or(hash)).to_owned()
        };
        notify(&format!(
            "conflict: {} (outside {}, in the sandbox {}, before {})",
            escaped(&conflict.path.lossy()),
            hash(&conflict.vfs),
            hash(&conflict.container),
            hash(&conflict.base)
        ));
    }
    if let Some(commit) = &report.commit_id {
        notify(&format!("commit {commit}"));
    }
}
