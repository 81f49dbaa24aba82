//! [`Kubernetes`], the implementation of the trait: what is opened once, and where each operation is.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stockade_core::runtime::RuntimeName;
use stockade_core::sandbox::User;
use stockade_core::{ExecId, SandboxId, SandboxSpec, SnapshotId};
use stockade_pod::{CommandForm, Request};
use stockade_runtime::{
    Capability, Command, Connection, Content, Error, Exec, FileInfo, Offsets, PackedTree,
    ReadRange, Result, Runtime, SandboxPath, SnapshotInfo, StandardInput, Status, Target, TreeSize,
    Unsupported, Usage, WindowSize, WorkspaceChanges, WriteOptions,
};
use tokio::sync::OnceCell;

use crate::cluster::{AGENTS, Cluster, EXTENSIONS};
use crate::events::follow;
use crate::failure::{CLUSTER, Failure};
use crate::names::Names;
use crate::observed::{Phase, Pod};
use crate::options::Options;
use crate::request::{missing, refused};
use crate::watch::Watch;
use crate::{port, tree};

/// The directory of the runtime, below the data directory, and the file with the name of the installation.
const DIRECTORY: &str = "runtime-kubernetes";
const INSTALLATION: &str = "installation";
/// What names the image of our own programs.
const NO_IMAGE: &str = "export STOCKADE_KUBERNETES_IMAGE=REGISTRY/stockade:TAG";
const NO_CLUSTER: &str = "export STOCKADE_KUBECONFIG=FILE";

/// Sandboxes that are pods of a cluster.
#[derive(Debug, Clone)]
pub struct Kubernetes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: Options,
    opened: OnceCell<Opened>,
}

/// What exists once the runtime was used.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) cluster: Cluster,
    pub(crate) names: Names,
    pub(crate) watch: Watch,
    agents: OnceCell<Agents>,
}

/// Which resources of agent-sandbox the API server has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agents {
    pub(crate) sandbox: bool,
    pub(crate) extensions: bool,
}

impl Opened {
    /// Which resources of agent-sandbox the API server has.
    pub(crate) async fn agents(&self) -> std::result::Result<Agents, Failure> {
        let found = self.agents.get_or_try_init(|| async {
            let sandbox = self.cluster.serves(AGENTS).await?;
            let extensions = sandbox && self.cluster.serves(EXTENSIONS).await?;
            Ok(Agents { sandbox, extensions })
        });
        found.await.copied()
    }

    /// The pods with these labels.
    pub(crate) async fn list(&self, selector: &str) -> std::result::Result<Vec<Pod>, Failure> {
        let listed = self.cluster.list(crate::cluster::Kind::Pod, None, selector).await?;
        Ok(listed.iter().filter_map(Pod::read).collect())
    }
}

impl Kubernetes {
    /// The sandboxes of an installation. Nothing is asked before there is a request.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self(Arc::new(Shared { options, opened: OnceCell::new() }))
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    /// The image with our own program.
    pub(crate) fn own_image(&self) -> Result<String> {
        self.options().image.clone().ok_or_else(|| Error::Unavailable {
            what: "the program of pods".to_owned(),
            reason: "no image is named that contains it".to_owned(),
            remedy: NO_IMAGE.to_owned(),
        })
    }

    /// The cluster, with its watch.
    pub(crate) async fn opened(&self) -> Result<&Opened> {
        let options = &self.0.options;
        if let Some(reason) = &options.invalid {
            return Err(Error::Unavailable {
                what: CLUSTER.to_owned(),
                reason: reason.clone(),
                remedy: "correct the variable".to_owned(),
            });
        }
        let open = || async {
            let cluster = Cluster::open(options.kubeconfig.as_deref()).await;
            let cluster = cluster.map_err(|reason| Error::Unavailable {
                what: CLUSTER.to_owned(),
                reason,
                remedy: NO_CLUSTER.to_owned(),
            })?;
            let names = Names { installation: installation(options)? };
            let watch = Watch::start(cluster.clone(), names.clone());
            Ok(Opened { cluster, names, watch, agents: OnceCell::new() })
        };
        self.0.opened.get_or_try_init(open).await
    }

    /// Whether no sandbox was ever created from this data directory. Then nothing has to be asked.
    fn is_unused(&self) -> bool {
        let options = self.options();
        options.installation.is_none() && !options.data.join(DIRECTORY).join(INSTALLATION).exists()
    }
}

/// The name of the installation: the one that was given, or the one of the data directory.
fn installation(options: &Options) -> Result<String> {
    if let Some(name) = &options.installation {
        return Ok(name.clone());
    }
    let directory = options.data.join(DIRECTORY);
    let path = directory.join(INSTALLATION);
    let failed = |source: io::Error| Error::Host { path: path.display().to_string(), source };
    std::fs::create_dir_all(&directory).map_err(failed)?;
    if !path.exists() {
        let name = uuid::Uuid::now_v7().simple().to_string();
        let new = directory.join(format!("{name}.new"));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
            .map_err(failed)?;
        file.write_all(name.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        // Another process may have been first: its name stays.
        let linked = std::fs::hard_link(&new, &path);
        std::fs::remove_file(&new).map_err(failed)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
    }
    let name = std::fs::read_to_string(&path).map_err(failed)?;
    if uuid::Uuid::parse_str(&name).is_err() {
        return Err(failed(io::ErrorKind::InvalidData.into()));
    }
    Ok(name)
}

fn unsupported(error: Error) -> Unsupported {
    match error {
        Error::Unavailable { reason, remedy, .. } => Unsupported { reason, remedy: Some(remedy) },
        other => Unsupported {
            reason: crate::failure::chain(&other),
            remedy: Some("kubectl version".to_owned()),
        },
    }
}

#[async_trait]
impl Runtime for Kubernetes {
    fn name(&self) -> &'static str {
        RuntimeName::Kubernetes.as_str()
    }

    async fn available(&self) -> std::result::Result<(), Unsupported> {
        let opened = self.opened().await.map_err(unsupported)?;
        self.own_image().map_err(unsupported)?;
        let agents = opened.agents().await;
        agents.map(drop).map_err(|failure| unsupported(failure.into_error("ask for resources")))
    }

    async fn supports(&self, capability: Capability) -> std::result::Result<(), Unsupported> {
        match missing(capability) {
            None => Ok(()),
            Some(reason) => Err(Unsupported {
                reason: reason.to_owned(),
                remedy: Some("--runtime native".to_owned()),
            }),
        }
    }

    async fn create(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status> {
        self.make(id, spec).await
    }

    async fn ship(&self, id: &SandboxId, from: &Path, to: &SandboxPath) -> Result<()> {
        tree::copy_in(self, id, from, to).await
    }

    async fn execute(&self, id: &SandboxId, exec: &ExecId, command: &Command) -> Result<Exec> {
        command.check_input()?;
        let form = Box::new(CommandForm::new(command));
        let request = Request::Execute { exec: exec.clone(), command: form };
        let content = match &command.input {
            StandardInput::Whole(bytes) => {
                Some(Box::pin(io::Cursor::new(bytes.clone())) as Content)
            }
            StandardInput::Empty | StandardInput::Streamed => None,
        };
        let (_, session) = self.begin(id, &request, content).await?;
        let has_input = command.input == StandardInput::Streamed;
        Ok(follow(self, (id, exec), Offsets::default(), session, has_input))
    }

    async fn collect(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        to: &Path,
        limit_bytes: u64,
    ) -> Result<()> {
        tree::copy_out(self, id, from, to, limit_bytes).await
    }

    async fn end(&self, id: &SandboxId) -> Result<()> {
        if matches!(self.pod(id).await?.phase, Phase::Ended(..)) {
            return Ok(());
        }
        self.ask(id, &Request::End).await
    }

    async fn cleanup(&self, id: &SandboxId) -> Result<()> {
        if self.is_unused() {
            return Ok(());
        }
        self.remove(self.opened().await?, id).await
    }

    async fn attach(&self, id: &SandboxId, exec: &ExecId, from: Offsets) -> Result<Exec> {
        let request = Request::Attach { exec: exec.clone(), from };
        let (_, session) = self.begin(id, &request, None).await?;
        Ok(follow(self, (id, exec), from, session, true))
    }

    async fn signal(&self, id: &SandboxId, exec: &ExecId, signal: i32) -> Result<()> {
        self.ask(id, &Request::Signal { exec: exec.clone(), signal }).await
    }

    async fn kill(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.ask(id, &Request::Kill { exec: exec.clone() }).await
    }

    async fn resize(&self, id: &SandboxId, exec: &ExecId, size: WindowSize) -> Result<()> {
        self.ask(id, &Request::Resize { exec: exec.clone(), size }).await
    }

    async fn acknowledge(&self, id: &SandboxId, exec: &ExecId) -> Result<()> {
        self.ask(id, &Request::Acknowledge { exec: exec.clone() }).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Status> {
        self.state(id).await
    }

    async fn usage(&self, id: &SandboxId) -> Result<Usage> {
        let (memory_bytes, cpu_time, processes, disk_bytes, reasons) =
            self.ask(id, &Request::Usage).await?;
        Ok(Usage { memory_bytes, cpu_time, processes, disk_bytes, reasons })
    }

    async fn list(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Status>> {
        if self.is_unused() {
            return Ok(Vec::new());
        }
        self.all(labels).await
    }

    async fn renew(&self, id: &SandboxId, lease: Option<Duration>) -> Result<()> {
        self.set_lease(id, lease).await
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        self.ask(id, &Request::Pause).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        self.ask(id, &Request::Resume).await
    }

    async fn changes(&self, id: &SandboxId, _to: &Path) -> Result<WorkspaceChanges> {
        self.inspect(id).await?;
        Err(Error::Invalid(format!("the sandbox {id} has no workspace")))
    }

    async fn snapshot_changes(
        &self,
        snapshot: &SnapshotId,
        _to: &Path,
    ) -> Result<WorkspaceChanges> {
        Err(Error::NoSnapshot(snapshot.clone()))
    }

    async fn snapshot(&self, id: &SandboxId, _snapshot: &SnapshotId) -> Result<SnapshotInfo> {
        self.inspect(id).await?;
        Err(refused(Capability::Snapshot))
    }

    async fn remove_snapshot(&self, _snapshot: &SnapshotId) -> Result<()> {
        // There never is one.
        Ok(())
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotInfo>> {
        Ok(Vec::new())
    }

    async fn connect(&self, id: &SandboxId, target: &Target) -> Result<Box<dyn Connection>> {
        port::connect(self, id, target).await
    }

    async fn stat(&self, id: &SandboxId, path: &SandboxPath) -> Result<FileInfo> {
        self.ask(id, &Request::Stat { path: path.clone() }).await
    }

    async fn read_directory(&self, id: &SandboxId, path: &SandboxPath) -> Result<Vec<FileInfo>> {
        self.ask(id, &Request::ReadDirectory { path: path.clone() }).await
    }

    async fn read_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        range: ReadRange,
    ) -> Result<Content> {
        let request = Request::ReadFile { path: path.clone(), range };
        let (_, session) = self.begin(id, &request, None).await?;
        Ok(tree::content(session))
    }

    async fn write_file(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        content: Content,
        options: WriteOptions,
    ) -> Result<u64> {
        self.send(id, &Request::WriteFile { path: path.clone(), options }, content).await
    }

    async fn unpack(
        &self,
        id: &SandboxId,
        to: &SandboxPath,
        mode: u32,
        content: Content,
    ) -> Result<TreeSize> {
        self.send(id, &Request::Unpack { to: to.clone(), mode }, content).await
    }

    async fn pack(
        &self,
        id: &SandboxId,
        from: &SandboxPath,
        mark: Option<Vec<u8>>,
    ) -> Result<PackedTree> {
        let request = Request::Pack { from: from.clone(), mark };
        let (_, session) = self.begin(id, &request, None).await?;
        Ok(PackedTree { content: tree::content(session), progress: Arc::default() })
    }

    async fn make_directory(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        options: WriteOptions,
    ) -> Result<()> {
        self.ask(id, &Request::MakeDirectory { path: path.clone(), options }).await
    }

    async fn set_attributes(
        &self,
        id: &SandboxId,
        path: &SandboxPath,
        mode: Option<u32>,
        owner: Option<User>,
    ) -> Result<()> {
        self.ask(id, &Request::SetAttributes { path: path.clone(), mode, owner }).await
    }

    async fn rename(&self, id: &SandboxId, from: &SandboxPath, to: &SandboxPath) -> Result<()> {
        self.ask(id, &Request::Rename { from: from.clone(), to: to.clone() }).await
    }

    async fn remove(&self, id: &SandboxId, path: &SandboxPath) -> Result<()> {
        self.ask(id, &Request::Remove { path: path.clone() }).await
    }
}
