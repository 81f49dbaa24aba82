//! The client half of the native backend: [`Native`] sends requests to the keeper of a data
//! directory, and uses the descriptors that it receives to do the rest itself.
//!
//! Reading order: `start` (finding the keeper), `channel` (a connection), `call` (a request and its
//! response), then the users of responses: `stream`, `input`, `port`, `files`, `subordinate`,
//! `snapshot`, `changes`, `usage`, and `full_copy` for hosts without overlays.

mod agent_socket;
mod call;
mod changes;
mod channel;
mod container;
mod files;
mod full_copy;
mod image_ids;
mod input;
mod port;
mod readiness;
mod snapshot;
mod start;
mod stream;
mod subordinate;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stockade_bundle::data::DataDir;
use stockade_core::network::TRUSTED_INSIDE;
use stockade_core::sandbox::{LimitChange, Root, User};
use stockade_core::{ExecId, SandboxId, SandboxSpec, SnapshotId, StoredImage};
use stockade_image::{Image, Record, Store};
use stockade_jail::network::Listeners;
use stockade_plan::{image_root, private_base};
use tokio::time::timeout;

use self::call::{Client, Exchange, unexpected_answer};
pub use self::container::{NewContainer, StagedContainer};
use self::image_ids::ImageIds;
use self::input::InputWriter;
use self::snapshot::Prepared;
use self::start::Starter;
use self::stream::StreamPosition;
use super::bubblewrap::Launcher;
use super::directory::Directory;
use super::failure::{RequestedName, base_error, image_error};
use super::input_file;
use super::wire::{
    Action, Answer, CommandHead, CommandStrings, Failure, Metrics, Request, TargetHead,
};
use stockade_runtime::{
    Capability, ChangesInPlace, Command, Connection, Content, EgressListeners, Error, Exec,
    FileInfo, Offsets, PackedTree, ReadRange, Result, Runtime, SandboxPath, SnapshotInfo,
    StandardInput, State, Status, Target, TreeSize, Unsupported, Usage, WindowSize,
    WorkspaceChanges, WriteOptions,
};

/// How long a server inside may take to accept a connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(30);

/// How the sandboxes of a data directory are run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data directory. It is created if it is missing.
    pub data: PathBuf,
    /// The keeper's program with its arguments. The path of the data directory and `pool` are
    /// appended as two more arguments.
    pub keeper: Vec<OsString>,
    /// How many unused sandboxes a keeper that this client starts keeps ready.
    pub pool: usize,
}

/// Sandboxes that are jails on this machine, supervised by the keeper of a data directory.
#[derive(Debug, Clone)]
pub struct Native(Arc<Client>);

/// Converts the listeners that a jail's init sent into the type of the trait.
fn egress_listeners(listeners: Listeners) -> EgressListeners {
    let Listeners { transparent: everything, proxy, resolver_datagrams, resolver_streams } =
        listeners;
    EgressListeners { everything, proxy, resolver_datagrams, resolver_streams }
}

impl Native {
    /// The request with its image's tar archive replaced by the directory of the unpacked image.
    /// The archive is unpacked into the data directory unless that directory already exists. The name
    /// of an image of the store is replaced by its digest, and the request is completed with what the
    /// image says. Returns also whether the sandbox has the caller's subordinate ids.
    async fn with_unpacked_image(&self, spec: SandboxSpec) -> Result<(SandboxSpec, bool)> {
        if matches!(spec.root, Root::Image(_) | Root::Snapshot(_)) {
            let client = self.0.clone();
            return files::blocking(move || {
                let root = match &spec.root {
                    Root::Snapshot(snapshot) => snapshot::root_of(&client.directory, snapshot)?,
                    root => Some(root.clone()),
                };
                let Some(Root::Image(name)) = root else { return Ok((spec, false)) };
                let image = find_image(&client, &name)?;
                let ids = image_ids::choose(&client, &spec)?;
                let subordinate = ids == ImageIds::Subordinate;
                if subordinate {
                    image_ids::unpack(&client, &image)?;
                }
                let asked = spec.root.clone();
                let (mut spec, _) = image_root::complete(spec, &image, ids == ImageIds::Own)
                    .map_err(|error| Failure::from(error).into_error(&CREATE))?;
                if matches!(asked, Root::Snapshot(_)) {
                    spec.root = asked;
                }
                Ok((spec, subordinate))
            })
            .await;
        }
        if spec.private_base && matches!(spec.root, Root::Host | Root::Snapshot(_)) {
            self.make_base().await?;
        }
        let archive = match &spec.root {
            Root::Directory(path) if path.is_file() => path.clone(),
            _ => return Ok((spec, false)),
        };
        let data = self.0.data().to_owned();
        let unpacked = files::blocking(move || {
            stockade_plan::image::directory(&archive, &data).map_err(image_error)
        });
        Ok((SandboxSpec { root: Root::Directory(unpacked.await?), ..spec }, false))
    }

    /// Makes the private base of the present state of the host, unless it exists.
    async fn make_base(&self) -> Result<()> {
        let client = self.0.clone();
        files::blocking(move || {
            let data = open_data(&client)?;
            private_base::ensure(&data, &mut |_| {}).map(drop).map_err(|error| base_error(&error))
        })
        .await
    }

    /// The sandboxes of a data directory. The first request finds the keeper or starts one.
    ///
    /// # Errors
    /// [`Error::Host`] when the data directory cannot be used: it belongs to another user, or
    /// others may write to it.
    pub fn open(options: Options) -> Result<Self> {
        Self::open_for(Launcher::Own, options)
    }

    /// The sandboxes of a data directory that this launcher makes. The keeper's program must be one
    /// for the same launcher.
    ///
    /// # Errors
    /// As [`Native::open`].
    pub fn open_for(launcher: Launcher, options: Options) -> Result<Self> {
        let Options { data, keeper, pool } = options;
        let failed = |source| Error::Host { path: data.display().to_string(), source };
        let directory =
            Directory::open(&data, launcher).map_err(|error| failed(io::Error::other(error)))?;
        // The keeper works in another directory.
        let absolute = data.canonicalize().map_err(failed)?;
        Ok(Self(Arc::new(Client::new(directory, launcher, Starter::new(absolute, keeper, pool)))))
    }

    /// Whether the data directory may contain a sandbox. Starts no keeper.
    pub fn may_have_sandboxes(&self) -> bool {
        let entries = self.0.directory.sandboxes().and_then(|sandboxes| sandboxes.entries());
        entries.map_or(true, |entries| !entries.is_empty())
    }

    /// Makes the keeper refuse new sandboxes, release the unused jails of its pool, and exit after
    /// its last sandbox.
    ///
    /// # Errors
    /// [`Error::Unreachable`] or [`Error::Deadline`].
    pub async fn drain(&self) -> Result<()> {
        self.0.request(&Request::Drain, &[]).await.map(drop)
    }

    /// The keeper's counters.
    ///
    /// # Errors
    /// [`Error::Unreachable`] or [`Error::Deadline`].
    pub async fn metrics(&self) -> Result<Metrics> {
        match self.0.request(&Request::Metrics, &[]).await?.head {
            Answer::Metrics(metrics) => Ok(metrics),
            _ => Err(unexpected_answer()),
        }
    }

    /// The reason why the keeper cannot give sandboxes a network, if it reports one.
    async fn why_no_network(&self) -> Option<Error> {
        let capability = Capability::Egress.as_str().to_owned();
        let answer = self.0.execute(&Request::Supports { capability }).await;
        answer.err().filter(|error| matches!(error, Error::Unsupported { .. }))
    }

    async fn command(&self, id: &SandboxId, exec: &ExecId, action: Action) -> Result<()> {
        let (id, exec) = (id.clone(), exec.clone());
        self.0.execute(&Request::Command { id, exec, action }).await
    }

    /// Follows the command that a request starts or attaches to.
    async fn follow(
        &self,
        request: Request,
        (body, input): (&[u8], Option<OwnedFd>),
        id: &SandboxId,
        exec: &ExecId,
        from: Offsets,
    ) -> Result<Exec> {
        let given: Vec<_> = input.iter().map(AsFd::as_fd).collect();
        let Exchange { message, channel } = self.0.call(&request, body, &given).await?;
        let Answer::Attached { input } = message.head else { return Err(unexpected_answer()) };
        let starts = matches!(request, Request::Execute { .. });
        let descriptor = message.descriptors.into_iter().next().filter(|_| starts);
        let (id, exec) = (id.clone(), exec.clone());
        let written = InputWriter { client: self.0.clone(), id: id.clone(), exec: exec.clone() };
        let input = input.then(|| written.open(descriptor));
        let position = StreamPosition { id, exec, received: from };
        Ok(Exec { events: stream::follow(self.0.clone(), position, channel), input })
    }
}

/// What an image is needed for.
const CREATE: RequestedName<'_> = RequestedName { operation: "create", sandbox: None, exec: None };

fn open_data(client: &Client) -> Result<DataDir> {
    let failed =
        |error: io::Error| Error::Host { path: "the data directory".to_owned(), source: error };
    DataDir::open(client.data()).map_err(|error| failed(io::Error::other(error)))
}

/// The image of a name in the store of the client's data directory.
fn find_image(client: &Client, name: &str) -> Result<Image> {
    let data = open_data(client)?;
    image_root::find(name, &data).map_err(|error| Failure::from(error).into_error(&CREATE))
}

#[async_trait]
impl Runtime for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    async fn supports(&self, capability: Capability) -> std::result::Result<(), Unsupported> {
        let request = Request::Supports { capability: capability.as_str().to_owned() };
        self.0.execute(&request).await.map_err(|error| match error {
            Error::Unsupported { reason, remedy, .. } => Unsupported { reason, remedy },
            error => Unsupported { reason: error.to_string(), remedy: None },
        })
    }

    fn has_stored_images(&self) -> bool {
        true
    }

    async fn resolve_image(&self, name: &str) -> Result<String> {
        let (client, name) = (self.0.clone(), name.to_owned());
        files::blocking(move || {
            let image = find_image(&client, &name)?;
            Ok(match image.reference {
                Some(reference) => reference.pinned(image.digest).familiar(),
                None => image.digest.to_string(),
            })
        })
        .await
    }

    async fn images(&self) -> Result<Vec<StoredImage>> {
        let client = self.0.clone();
        files::blocking(move || {
            let failed = |error| Error::Host {
                path: "the store of images".to_owned(),
                source: io::Error::other(error),
            };
            let store = Store::open(&open_data(&client)?).map_err(failed)?;
            Ok(store.list().map_err(failed)?.iter().map(Record::to_stored).collect())
        })
        .await
    }

    async fn create(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status> {
        let (spec, subordinate) = &self.with_unpacked_image(spec.clone()).await?;
        let mut attempts = call::ATTEMPTS;
        let mut without_overlay = None;
        loop {
            // Kept until the keeper has taken over the layers.
            let prepared = match (&spec.root, without_overlay.take()) {
                (Root::Snapshot(snapshot), _) => match self.inspect(id).await {
                    Err(Error::NoSandbox(_)) => Some(snapshot::prepare(&self.0, snapshot).await?),
                    _ => None,
                },
                (_, Some((below, why))) => {
                    Some(full_copy::prepare(&self.0, spec, below, why).await?)
                }
                (_, None) => None,
            };
            let layers = prepared.as_ref().map(|prepared| prepared.layers.clone());
            let request = Request::Create {
                id: id.clone(),
                spec: Box::new(spec.clone()),
                layers,
                subordinate: *subordinate,
                container: None,
            };
            let lock = prepared.as_ref().and_then(|prepared| prepared.lock.as_ref());
            let lock: Vec<_> = lock.iter().map(AsFd::as_fd).collect();
            let answer = self.0.request_with(&request, &[], &lock).await;
            let is_taken = prepared.as_ref().is_some_and(Prepared::is_adopted);
            if prepared.is_some() {
                // Layers that no keeper took over are removed. That may take long.
                tokio::task::spawn_blocking(move || drop(prepared));
            }
            attempts -= 1;
            match answer {
                // A keeper that died had taken the layers, so the next keeper received none.
                Err(Error::Invalid(_)) if is_taken && attempts > 0 => {}
                Err(error @ Error::Unreachable { .. }) if spec.network.is_some() => {
                    // A keeper of an older program closes the connection after a request that it
                    // does not know.
                    return Err(self.why_no_network().await.unwrap_or(error));
                }
                answer => match answer?.head {
                    Answer::Failed(Failure::Wall {
                        without_overlay: Some(below), reason, ..
                    }) if attempts > 0 && !matches!(spec.root, Root::Image(_)) => {
                        without_overlay = Some((below, reason));
                    }
                    // The host has changed since the base was made.
                    Answer::Failed(Failure::NoBase) if attempts > 0 => self.make_base().await?,
                    head => return status(head),
                },
            }
        }
    }

    async fn ship(&self, id: &SandboxId, from: &Path, to: &SandboxPath) -> Result<()> {
        let (from, to) = (from.to_owned(), to.clone());
        files::with_root(&self.0, id, move |root| root.ship(&from, &to)).await
    }

    async fn unpack(
        &self,
        id: &SandboxId,
        to: &SandboxPath,
        mode: u32,
        content: Content,
    ) -> Result<TreeSize> {
        files::unpack(&self.0, id, to.clone(), mode, content).await
    }

    async fn pack(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        mark: Option<Vec<u8>>,
    ) -> Result<PackedTree> {
        files::pack(&self.0, id, from.clone(), mark).await
    }

    async fn execute(&self, id: &SandboxId, exec: &ExecId, command: &Command) -> Result<Exec> {
        let body = encode_words(command)?;
        command.check_input()?;
        let given = match &command.input {
            StandardInput::Whole(bytes) => Some(input_file::file(bytes).map_err(exhausted)?),
            StandardInput::Empty | StandardInput::Streamed => None,
        };
        let head = CommandHead {
            working_directory: command.working_directory.as_ref().map(bytes),
            user: command.user,
            terminal: command.terminal,
            takes_input: command.input != StandardInput::Empty,
            input_is_given: given.is_some(),
            timeout: command.timeout,
            output_limit_bytes: command.output_limit_bytes,
        };
        let head = Box::new(head);
        let request = Request::Execute { id: id.clone(), exec: exec.clone(), command: head };
        let mut exec = self.follow(request, (&body, given), id, exec, Offsets::default()).await?;
        if let StandardInput::Whole(bytes) = &command.input
            && let Some(input) = exec.input.take()
        {
            // A keeper of an older program has ignored the file.
            input::write_all(input, bytes.clone());
        }
        Ok(exec)
    }

    async fn collect(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()> {
        let (from, to) = (from.clone(), to.to_owned());
        files::with_root(&self.0, id, move |root| root.collect(&from, &to, limit_bytes)).await
    }

    async fn end(&self, id: &SandboxId) -> Result<()> {
        self.0.execute(&Request::End { id: id.clone() }).await
    }

    async fn cleanup(&self, id: &SandboxId) -> Result<()> {
        self.0.execute(&Request::Destroy { id: id.clone() }).await
    }

    async fn attach(&self, id: &SandboxId, exec: &ExecId, from: Offsets) -> Result<Exec> {
        let request = Request::Attach { id: id.clone(), exec: exec.clone(), from };
        self.follow(request, (&[], None), id, exec, from).await
    }

    async fn signal(&self, id: &SandboxId, exec: &ExecId, signal: i32) -> Result<()> {
        self.command(id, exec, Action::Signal(signal)).await
    }

    async fn kill(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.command(id, exec, Action::Kill).await
    }

    async fn resize(&self, id: &SandboxId, exec: &ExecId, size: WindowSize) -> Result<()> {
        self.command(id, exec, Action::Resize(size)).await
    }

    async fn acknowledge(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.command(id, exec, Action::Acknowledge).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Status> {
        status(self.0.request(&Request::Inspect { id: id.clone() }, &[]).await?.head)
    }

    async fn usage(&self, id: &SandboxId) -> Result<Usage> {
        usage::measure(&self.0, id).await
    }

    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Status>> {
        match self.0.request(&Request::List { labels: labels.clone() }, &[]).await?.head {
            Answer::List(all) => Ok(all),
            _ => Err(unexpected_answer()),
        }
    }

    async fn renew(&self, id: &SandboxId, lease: Option<Duration>) -> Result<()> {
        self.0.execute(&Request::Renew { id: id.clone(), lease }).await
    }

    async fn change_limits(&self, id: &SandboxId, change: &LimitChange) -> Result<()> {
        self.0.execute(&Request::ChangeLimits { id: id.clone(), change: *change }).await
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        self.0.execute(&Request::Pause { id: id.clone() }).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        self.0.execute(&Request::Resume { id: id.clone() }).await
    }

    async fn changes(&self, id: &SandboxId, to: &Path) -> Result<WorkspaceChanges> {
        changes::of_sandbox(&self.0, id, to).await
    }

    async fn snapshot_changes(&self, snapshot: &SnapshotId, to: &Path) -> Result<WorkspaceChanges> {
        changes::of_snapshot(&self.0, snapshot, to).await
    }

    async fn changes_in_place(
        &self,
        id: &SandboxId,
        snapshot: Option<&SnapshotId>,
    ) -> Result<Option<ChangesInPlace>> {
        match snapshot {
            Some(snapshot) => changes::in_snapshot(&self.0, snapshot).await,
            None if self.inspect(id).await?.state == State::Ended => {
                changes::in_ended(&self.0, id).await
            }
            None => Ok(None),
        }
    }

    async fn snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<SnapshotInfo> {
        snapshot::take(&self.0, id, snapshot).await
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<()> {
        snapshot::remove(&self.0, snapshot).await
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        snapshot::list(&self.0).await
    }

    async fn connect(&self, id: &SandboxId, target: &Target) -> Result<Box<dyn Connection>> {
        let (head, body) = match target {
            Target::Tcp(port) => (TargetHead::Tcp(*port), Vec::new()),
            Target::Unix(path) => (TargetHead::Unix, bytes(path)),
        };
        let request = Request::Connect { id: id.clone(), target: head };
        let message = self.0.request(&request, &body).await?;
        let descriptors = <[OwnedFd; 1]>::try_from(message.descriptors);
        let (Answer::Connected, Ok([descriptor])) = (message.head, descriptors) else {
            return Err(unexpected_answer());
        };
        let established = timeout(CONNECT_DEADLINE, port::established(descriptor, target)).await;
        established
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|source| Error::Connect { target: target.to_string(), source })
    }

    async fn listeners(&self, id: &SandboxId) -> Result<EgressListeners> {
        let message = self.0.request(&Request::Listeners { id: id.clone() }, &[]).await?;
        match (message.head, Listeners::from_descriptors(message.descriptors)) {
            (Answer::Listeners, Ok(listeners)) => Ok(egress_listeners(listeners)),
            _ => Err(unexpected_answer()),
        }
    }

    async fn trust(&self, id: &SandboxId, certificates: &str) -> Result<()> {
        let message = self.0.request(&Request::Trusted { id: id.clone() }, &[]).await?;
        let file = <[OwnedFd; 1]>::try_from(message.descriptors);
        let (Answer::Trusted, Ok([file])) = (message.head, file) else {
            return Err(unexpected_answer());
        };
        let bytes = certificates.as_bytes().to_vec();
        let written = files::blocking(move || {
            // The file is mounted, so it cannot be replaced. It is never shorter than before for a
            // reader that comes in between, and its first certificates are always the same.
            let file = std::fs::File::from(file);
            let failed = |source| Error::Host { path: TRUSTED_INSIDE.to_owned(), source };
            file.write_all_at(&bytes, 0).map_err(failed)?;
            file.set_len(bytes.len() as u64).map_err(failed)
        });
        written.await
    }

    async fn agent_socket(&self, id: &SandboxId) -> Result<UnixListener> {
        self.inspect(id).await?;
        let (client, id) = (self.0.clone(), id.clone());
        files::blocking(move || agent_socket::make(&client.directory, &id)).await
    }

    async fn stat(&self, id: &SandboxId, path: &SandboxPath) -> Result<FileInfo> {
        let path = path.clone();
        files::with_root(&self.0, id, move |root| root.stat(&path)).await
    }

    async fn read_directory(&self, id: &SandboxId, path: &SandboxPath) -> Result<Vec<FileInfo>> {
        let path = path.clone();
        files::with_root(&self.0, id, move |root| root.read_directory(&path)).await
    }

    async fn read_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<Content> {
        files::read(&self.0, id, path.clone(), range).await
    }

    async fn write_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        content: Content,
        options: WriteOptions,
    ) -> Result<u64> {
        files::write(&self.0, id, path.clone(), content, options).await
    }

    async fn make_directory(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        options: WriteOptions,
    ) -> Result<()> {
        let path = path.clone();
        files::with_root(&self.0, id, move |root| root.make_directory(&path, options)).await
    }

    async fn set_attributes(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()> {
        let path = path.clone();
        files::with_root(&self.0, id, move |root| root.set_attributes(&path, mode, owner)).await
    }

    async fn rename(&self, id: &SandboxId, from: &SandboxPath, to: &SandboxPath) -> Result<()> {
        let (from, to) = (from.clone(), to.clone());
        files::with_root(&self.0, id, move |root| root.rename(&from, &to)).await
    }

    async fn remove(&self, id: &SandboxId, path: &SandboxPath) -> Result<()> {
        let path = path.clone();
        files::with_root(&self.0, id, move |root| root.remove(&path)).await
    }
}

fn status(answer: Answer) -> Result<Status> {
    match answer {
        Answer::Status(status) => Ok(*status),
        _ => Err(unexpected_answer()),
    }
}

fn exhausted(error: io::Error) -> Error {
    Error::Exhausted(format!("cannot create the memory file for a command's input: {error}"))
}

fn bytes(path: &SandboxPath) -> Vec<u8> {
    path.as_path().as_os_str().as_bytes().to_vec()
}

/// Encodes a command's arguments and its own environment. The keeper adds them to the sandbox's
/// environment.
fn encode_words(command: &Command) -> Result<Vec<u8>> {
    if command.arguments.is_empty() {
        return Err(Error::Invalid("the command has no program".to_owned()));
    }
    let invalid = |name: &OsString| name.is_empty() || name.as_bytes().contains(&b'=');
    if let Some(name) = command.environment.keys().find(|name| invalid(name)) {
        return Err(Error::Invalid(format!("{name:?} is not a valid variable name")));
    }
    let arguments = command.arguments.iter().cloned().map(OsString::into_vec).collect();
    let environment = command
        .environment
        .iter()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect();
    let words = CommandStrings { arguments, environment }.encode();
    words.ok_or_else(|| Error::Invalid("an argument of the command contains a NUL byte".to_owned()))
}
