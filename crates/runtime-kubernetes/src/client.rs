//! [`Kubernetes`], the client: its options, and what is opened by the first use of the cluster.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;

use stockade_runtime::{Error, Result};
use tokio::sync::OnceCell;

use crate::cluster::{AGENTS, Cluster, EXTENSIONS, Kind};
use crate::failure::{CLUSTER, Failure};
use crate::names::Names;
use crate::observed::Pod;
use crate::options::Options;
use crate::watch::Watch;

/// The directory of the runtime, below the data directory, and the file with the name of the installation.
pub(crate) const DIRECTORY: &str = "runtime-kubernetes";
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
        let listed = self.cluster.list(Kind::Pod, None, selector).await?;
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
    pub(crate) fn is_unused(&self) -> bool {
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
