//! The sandbox in which a request for the content of a volume is executed. Its files are hostile, and have the ids of
//! users inside: so they are used only where commands use them, behind the walls of a sandbox that has nothing else.

use std::sync::Arc;

use stockade_api::{
    Caller, CreateSandbox, Expiry, FileEntry, FileKind, KillSandbox, ListSandboxes, VolumeMount,
};
use stockade_core::{Code, Problem, SandboxId, VolumeName};

use super::super::App;
use super::super::failure::Refused;
use super::access::Admitted;
use crate::failure::{Failure, invalid};
use crate::inside::{Target, stat};

/// The metadata of such a sandbox: the name of the volume.
pub(in super::super) const SERVED_VOLUME: &str = "e2b.dev/volume";
/// Where the volume is.
const ROOT: &str = "/volume";
/// How long one request may take, in seconds.
const SECONDS: f64 = 3600.0;

/// A sandbox with a volume, for one request. It ends when this is dropped.
pub(super) struct VolumeSandbox {
    app: App,
    pub(super) target: Target,
}

impl VolumeSandbox {
    /// Starts the sandbox of a request.
    pub(super) async fn start(app: &App, request: Admitted) -> Result<Self, Refused> {
        let Admitted { mut caller, volume } = request;
        caller.idempotency_key = None;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let id = SandboxId::new(format!("v{id}")).map_err(|error| invalid(error.to_string()))?;
        let create = CreateSandbox {
            id: Some(id),
            metadata: [(SERVED_VOLUME.to_owned(), volume.to_string())].into(),
            volumes: vec![VolumeMount {
                name: volume,
                inside: ROOT.into(),
                read_only: false,
                sub_path: None,
            }],
            expiry: Expiry::Seconds(SECONDS),
            ..CreateSandbox::default()
        };
        let sandbox = Arc::new(app.sandboxes.create(&caller, create).await?);
        Ok(Self { app: app.clone(), target: Target { caller, sandbox, identity: None } })
    }

    /// What is at a path inside. A link at its end is followed on request, but never out of the volume.
    pub(super) async fn stat(&self, inside: &str, follow: bool) -> Result<FileEntry, Problem> {
        let found = stat(&self.app.sandboxes, &self.target, inside, follow).await;
        let found = found.map_err(|Failure(problem)| problem)?;
        let is_within = std::path::Path::new(&*found.path.lossy()).starts_with(ROOT);
        if follow && !is_within {
            return Err(Problem::new(Code::FileNotFound, "the link leads out of the volume"));
        }
        Ok(found)
    }

    /// Where a path of the volume is inside, without links above its last name.
    pub(super) async fn place(&self, path: &str) -> Result<String, Refused> {
        let Some((parent, name)) = path.rsplit_once('/').filter(|(_, name)| !name.is_empty())
        else {
            return Ok(ROOT.to_owned());
        };
        match self.stat(&format!("{ROOT}{parent}"), true).await {
            Ok(found) if found.kind == FileKind::Directory => {
                Ok(format!("{}/{name}", found.path.lossy()))
            }
            Ok(_) => Err(absent(path).into()),
            Err(problem) => Err(of_path(problem, path).into()),
        }
    }
}

impl Drop for VolumeSandbox {
    fn drop(&mut self) {
        let sandboxes = Arc::clone(&self.app.sandboxes);
        let Target { caller, sandbox, .. } = self.target.clone();
        // Without the runtime the server ends, and the sandbox expires.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let kill = KillSandbox::discarding(sandbox.id.clone());
            if let Err(problem) = sandboxes.kill(&caller, kill).await {
                let (id, reason) = (&sandbox.id, &problem.message);
                tracing::warn!(sandbox = %id, %reason, "a sandbox for a volume ends only with its time to live");
            }
        });
    }
}

/// Ends the sandboxes that requests for the content of a volume have left, which would keep it from being removed.
pub(super) async fn end_all(
    app: &App,
    caller: &Caller,
    volume: &VolumeName,
) -> Result<(), Problem> {
    let metadata = [(SERVED_VOLUME.to_owned(), volume.to_string())].into();
    let request = ListSandboxes { metadata, ..ListSandboxes::default() };
    for sandbox in app.sandboxes.list(caller, request).await?.sandboxes {
        let kill = KillSandbox::discarding(sandbox.id);
        match app.sandboxes.kill(caller, kill).await {
            Err(problem) if problem.code != Code::SandboxTerminated => return Err(problem),
            _ => {}
        }
    }
    Ok(())
}

/// The problem of a path of the volume that leads to nothing.
pub(super) fn absent(path: &str) -> Problem {
    Problem::new(Code::FileNotFound, format!("path '{path}' does not exist"))
}

/// A problem about a path inside, as one about the path of the volume.
pub(super) fn of_path(problem: Problem, path: &str) -> Problem {
    if problem.code == Code::FileNotFound { absent(path) } else { problem }
}
