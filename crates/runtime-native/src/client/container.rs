//! Sandboxes in containers that another engine makes: the layers that such a container mounts, the
//! socket on which its init is awaited, and the keeper's takeover of it.
//!
//! ```text
//!   staging/NAME/upper        what its mounts outside of the workspace hold, by name
//!               /workspace    the copy of the workspace, if it has one
//!               /control      the socket of the launch; the container sees it read-only
//!               /authorities.pem
//! ```
//!
//! The keeper moves all of it but `control` to the directory of the sandbox. A bind mount follows
//! its directory.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stockade_bundle::RelativePath;
use stockade_bundle::beneath::{Dir, FileKind};
use stockade_bundle::layer::{self, Owners};
use stockade_bundle::view;
use stockade_core::sandbox::{Root, User};
use stockade_core::{Isolation, SandboxId, SandboxSpec, SnapshotId};
use stockade_jail::container::WaitingInit;
use stockade_jail::control;
use stockade_plan::TRUSTED_FILE;
use tokio::io::Interest;

use super::files::blocking;
use super::readiness::watched;
use super::snapshot::{self, Prepared, StoredSnapshot, UPPER, WORKSPACE, make_dir};
use super::{Native, status};
use crate::directory::name;
use crate::wire::{Container, InitialState, Layers, Request};
use crate::workspace_layer::{host, not_copied};
use stockade_runtime::{Error, Result, Status};

/// The socket of the launch, in the directory that the container sees.
const LAUNCH: &str = "launch";
/// The directory that the container sees read-only while it is launched.
const CONTROL: &str = "control";
/// Why the workspace of a container is a copy.
const COPIED: &str = "a container of another engine has no overlay of a directory of the host";

/// The files of a container that does not exist yet. Dropping this value removes them, unless the
/// keeper has taken them over.
#[derive(Debug)]
pub struct StagedContainer {
    prepared: Prepared,
    path: PathBuf,
    listener: OwnedFd,
}

/// A container whose init has connected.
#[derive(Debug)]
pub struct NewContainer {
    /// The only user of its commands.
    pub user: User,
    /// The isolation that the engine and init put in force.
    pub isolation: Isolation,
    /// Its init.
    pub init: WaitingInit,
}

impl StagedContainer {
    /// The directory that the container is to see read-only, with the socket to which its init
    /// connects.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.path.join(CONTROL)
    }

    /// The name of the socket in that directory.
    #[must_use]
    pub const fn socket() -> &'static str {
        LAUNCH
    }

    /// The copy of the workspace, if there is one.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.path.join(WORKSPACE)
    }

    /// The file of the certificates that programs inside trust.
    #[must_use]
    pub fn trusted(&self) -> PathBuf {
        self.path.join(TRUSTED_FILE)
    }

    /// A directory that the container mounts, which snapshots contain. It is created for this user
    /// unless the snapshot has it.
    ///
    /// # Errors
    /// [`Error::Host`].
    pub fn directory(&self, entry: &str, user: User, mode: u32) -> Result<PathBuf> {
        let upper = self.prepared.directory().open_dir(&name(UPPER).map_err(host)?);
        let (upper, entry_name) = (upper.map_err(host)?, name(entry).map_err(host)?);
        if !upper.exists(&entry_name).map_err(host)? {
            upper.mkdir(&entry_name, 0o700).map_err(host)?;
            if rustix::process::geteuid().is_root() {
                upper.chown(&entry_name, user.user, user.group).map_err(host)?;
            }
            upper.chmod(&entry_name, mode).map_err(host)?;
        }
        Ok(self.path.join(UPPER).join(entry))
    }

    /// Waits until the init of the container connects.
    ///
    /// # Errors
    /// [`Error::Deadline`]; [`Error::Unreachable`] for an init that is not visible on this host.
    pub async fn accept(&self, timeout: Duration) -> Result<WaitingInit> {
        let unreachable =
            |source| Error::Unreachable { what: "the init of the container".to_owned(), source };
        let listener = self.listener.try_clone().map_err(unreachable)?;
        let listener = watched(listener, Interest::READABLE).map_err(unreachable)?;
        let accepted = tokio::time::timeout(timeout, async {
            loop {
                let mut ready = listener.readable().await?;
                match WaitingInit::accept(listener.get_ref()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                    other => return other,
                }
            }
        });
        let accepted = accepted.await.map_err(|_| Error::Deadline("start the container's init"))?;
        accepted.map_err(unreachable)
    }
}

impl Native {
    /// The status of the sandbox with this id, if it exists and was created from the same
    /// specification.
    ///
    /// # Errors
    /// [`Error::Conflict`] for another specification.
    pub async fn find(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Option<Status>> {
        use stockade_runtime::Runtime as _;
        match self.inspect(id).await {
            Err(Error::NoSandbox(_)) => return Ok(None),
            other => other?,
        };
        let request = Request::Create {
            id: id.clone(),
            spec: Box::new(spec.clone()),
            layers: None,
            subordinate: false,
            container: None,
        };
        status(self.0.request(&request, &[]).await?.head).map(Some)
    }

    /// Prepares the files of a container: those of a snapshot, or a copy of the workspace, which is
    /// made for this user. `image` names exactly what the container is made from.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`]; [`Error::Host`] for files that cannot be copied.
    pub async fn stage(
        &self,
        spec: &SandboxSpec,
        user: User,
        image: Root,
    ) -> Result<StagedContainer> {
        let (client, spec) = (self.0.clone(), spec.clone());
        blocking(move || {
            let staged = client.directory.stage().map_err(host)?;
            let path = client.directory.path().join("staging").join(&staged.name);
            let (root, begun, whole) = match &spec.root {
                Root::Snapshot(snapshot) => {
                    let stored = StoredSnapshot::open(&client.directory, snapshot)?;
                    copy_snapshot(&stored, &staged.dir, spec.workspace.is_some())?
                }
                _ => {
                    make_dir(&staged.dir, UPPER)?;
                    let begun = copy_workspace(&spec, &staged.dir, user)?;
                    let whole = begun.is_some().then(|| COPIED.to_owned());
                    (image, begun, whole)
                }
            };
            let control = make_dir(&staged.dir, CONTROL)?;
            let listener = control::listen(control.as_fd(), LAUNCH)
                .map_err(|error| Error::Exhausted(format!("cannot make a socket: {error}")))?;
            // Only the container reaches them: the directories above are private.
            allow(&path.join(CONTROL), 0o755)?;
            allow(&path.join(CONTROL).join(LAUNCH), 0o666)?;
            let trusted = path.join(TRUSTED_FILE);
            std::fs::write(&trusted, "").map_err(|source| of_host(&trusted, source))?;
            allow(&trusted, 0o644)?;
            let layers =
                Layers { staged: staged.name.clone(), root, range_start: None, begun, whole };
            Ok(StagedContainer { prepared: Prepared::new(layers, None, staged), path, listener })
        })
        .await
    }

    /// Lets the keeper take over a container: from now on it is a sandbox.
    ///
    /// # Errors
    /// As [`Runtime::create`](stockade_runtime::Runtime::create). The container must be removed
    /// then.
    pub async fn take_over(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
        staged: &StagedContainer,
        container: NewContainer,
    ) -> Result<Status> {
        let NewContainer { user, isolation, init } = container;
        let request = Request::Create {
            id: id.clone(),
            spec: Box::new(spec.clone()),
            layers: Some(staged.prepared.layers.clone()),
            subordinate: false,
            container: Some(Box::new(Container { user, isolation })),
        };
        let connection = init.into_descriptor();
        status(self.0.request_with(&request, &[], &[connection.as_fd()]).await?.head)
    }

    /// What a sandbox was made from.
    ///
    /// # Errors
    /// [`Error::NoSandbox`].
    pub async fn root_of(&self, id: &SandboxId) -> Result<Root> {
        Ok(snapshot::pause(&self.0, id).await?.root())
    }

    /// What the sandbox of a snapshot was made from.
    ///
    /// # Errors
    /// [`Error::NoSnapshot`].
    pub async fn root_of_snapshot(&self, snapshot: &SnapshotId) -> Result<Root> {
        let (client, id) = (self.0.clone(), snapshot.clone());
        blocking(move || Ok(StoredSnapshot::open(&client.directory, &id)?.root())).await
    }
}

/// Copies the layers of a snapshot for a container.
fn copy_snapshot(
    stored: &StoredSnapshot,
    staged: &Dir,
    has_workspace: bool,
) -> Result<(Root, Option<InitialState>, Option<String>)> {
    stored.copy(UPPER, &make_dir(staged, UPPER)?, Owners::Same)?;
    let mut begun = None;
    if stored.has_workspace() && has_workspace {
        let copy = make_dir(staged, WORKSPACE)?;
        stored.copy(WORKSPACE, &copy, Owners::Same)?;
        begun = stored.copied_again(&copy, staged)?;
    }
    stored.is_still_there()?;
    Ok((stored.root(), begun, stored.full_copy_reason()))
}

/// Copies the workspace, so that the user may change all of it.
fn copy_workspace(spec: &SandboxSpec, staged: &Dir, user: User) -> Result<Option<InitialState>> {
    let Some(workspace) = &spec.workspace else { return Ok(None) };
    let path = &workspace.host;
    let copy_failed = |error: view::Error| of_host(path, io::Error::other(error));
    let real = std::fs::canonicalize(path).map_err(|source| of_host(path, source))?;
    let source = Dir::open(&real).map_err(|error| of_host(path, error.into()))?;
    let mode = staged.stat_self().map_err(host)?.mode;
    let since = view::boundary_time(staged, mode).map_err(copy_failed)?;
    let copy = make_dir(staged, WORKSPACE)?;
    view::copy_whole(&source, &copy, None).map_err(copy_failed)?;
    if rustix::process::geteuid().is_root() {
        give_to(&copy, user).map_err(|error| of_host(path, error.into()))?;
    }
    let copied = Some(view::later_stamp(staged).map_err(copy_failed)?);
    Ok(Some(InitialState { host: path.clone(), since, copied }))
}

/// Makes a user the owner of a directory and everything in it.
fn give_to(top: &Dir, user: User) -> std::result::Result<(), stockade_bundle::beneath::Error> {
    let mut pending: Vec<Option<RelativePath>> = vec![None];
    while let Some(path) = pending.pop() {
        let directory = match &path {
            None => top.reopen()?,
            Some(path) => top.open_dir(path)?,
        };
        for (entry, kind) in directory.entries()? {
            let entry = name(&entry)?;
            directory.chown(&entry, user.user, user.group)?;
            if kind == FileKind::Directory {
                let below = match &path {
                    None => entry,
                    Some(path) => name([path.as_bytes(), b"/", entry.as_bytes()].concat())?,
                };
                pending.push(Some(below));
            }
        }
    }
    top.chown_self(user.user, user.group)
}

fn allow(path: &Path, mode: u32) -> Result<()> {
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).map_err(|source| of_host(path, source))
}

fn of_host(path: &Path, source: io::Error) -> Error {
    Error::Host { path: path.display().to_string(), source }
}

impl StoredSnapshot {
    /// Copies one of its layers to an empty directory.
    fn copy(&self, entry: &str, to: &Dir, owners: Owners) -> Result<()> {
        let from = self.layer(entry)?;
        layer::copy(&from, to, u64::MAX, owners).map(drop).map_err(not_copied)
    }
}
