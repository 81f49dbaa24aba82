//! [`Host`]: the crates of Stockade, combined on a data directory.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stockade_api::{
    KeyDirectory, Observed, PortAccess, PortSite, RecordRefusal, Remote, Routed, Sandboxes,
    Unavailable, Workflows,
};
use stockade_cli::data_dir::open_data_dir;
use stockade_client::ServerDirectory;
use stockade_core::{Code, Door, OwnerId, Problem};
use stockade_durable::Store;
use stockade_durable::sqlite::Synchronous;
use stockade_runtime::Runtime;
use stockade_runtime_bwrap::Bwrap;
use stockade_runtime_codeplane::{self as codeplane, Codeplane};
use stockade_runtime_docker::{self as docker, Docker};
use stockade_runtime_native::{self as native, Native};
use stockade_runtime_opensandbox::{self as opensandbox, OpenSandbox};
use stockade_server::cluster::{Cluster, ClusterSecret};
use stockade_server::local::Operations;
use stockade_service::{Home, Service};
use stockade_workflow::authoring::Processes;
use stockade_workflow::engine::{self, Workflows as Runs};

use crate::audit::{Audit, Observer};
use crate::cluster::{Router, RunRouter, WORKFLOW_EXECUTOR};
use crate::database::{self, Database};
use crate::images::{OwnPrograms, Registries};
use crate::options::{Options, Programs, Realms};
use crate::servers::RunServers;
use crate::settings::Settings;

/// How long operations may take to end when a host shuts down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The operations on a data directory. While it exists, no other process can use the directory.
#[derive(Debug)]
pub(crate) struct Host {
    /// `None` if sandboxes are unavailable.
    pub(crate) service: Option<Service>,
    pub(crate) workflows: Runs,
    pub(crate) directory: ServerDirectory,
    audit: Audit,
    store: Arc<dyn Store>,
    /// The id of this server among those on the same database.
    host: String,
    /// Passes on requests to the other servers of a cluster.
    router: Option<Router>,
    _lock: File,
}

impl Host {
    /// Opens the data directory and continues the work that the last host left in it; `None` if
    /// another process uses it.
    ///
    /// # Errors
    /// If the directory or its database cannot be used.
    pub(crate) async fn launch(options: Options) -> Result<Option<Self>, Problem> {
        let Options { data, programs, sandboxes, outer_sandbox: inside, realms } = options;
        let data_dir = open_data_dir(&data)?;
        let directory = ServerDirectory::open(data_dir.as_fd(), &data)?;
        let Some(lock) = directory.lock()? else { return Ok(None) };
        let first = (realms == Realms::Now).then(|| self::realms(&programs, realms));
        // A sandbox does not survive a power failure, so its own state need not either.
        let synchronous = if sandboxes.is_some() { Synchronous::Full } else { Synchronous::Off };
        let url = sandboxes.as_ref().and_then(|settings| settings.database_url.as_deref());
        let cluster = sandboxes.as_ref().and_then(|settings| settings.cluster_secret.clone());
        let database = database::open(&data_dir, url, cluster.is_some(), synchronous).await?;
        let Database { store, host } = database;
        let elsewhere = OpenSandbox::new(opensandbox::Options {
            data: data.clone(),
            address: opensandbox::Address::from_environment(|name| std::env::var_os(name)),
        });
        let service = match &sandboxes {
            Some(settings) => {
                let store = Arc::clone(&store);
                Some(service(&data, settings, &programs, store, (&host, &elsewhere)).await?)
            }
            None => None,
        };
        let audit = Audit::open(&data_dir, service.clone()).await?;
        let router = match (&service, &cluster) {
            (Some(service), Some(secret)) => Some(Router::new(service.clone(), secret.clone())),
            _ => None,
        };
        let image_programs = service
            .as_ref()
            .map(|_| Arc::new(OwnPrograms::new(data.clone(), programs.child.clone())) as _);
        let options = engine::Options {
            executor_id: format!("{host}{WORKFLOW_EXECUTOR}"),
            image_programs,
            realms: first.unwrap_or_else(|| self::realms(&programs, realms)),
            helper: programs.command,
            child_programs: programs.child,
            sandboxes: service
                .as_ref()
                .map(|service| sandboxes_of(service, &audit, Door::Workflow, router.as_ref())),
            servers: service.as_ref().map(|_| Arc::new(RunServers(elsewhere)) as _),
            outer_sandbox: inside,
            agents: Some(data.join("agents.json")),
            // Only the owner of a service may allow host programs: in this file, and nowhere else.
            providers: service.as_ref().map(|_| data.join("providers.json")),
            host_paths: sandboxes.as_ref().and_then(|settings| settings.host_paths.clone()),
            // In a sandbox, the files are those of the sandbox, and not kept.
            data: sandboxes.as_ref().map(|_| data.clone()),
            rust_workflows: Vec::new(),
        };
        let workflows = Runs::launch(Arc::clone(&store), options).await?;
        Ok(Some(Self { service, workflows, directory, audit, store, host, router, _lock: lock }))
    }

    /// The operations on sandboxes. If sandboxes are unavailable, each is refused.
    pub(crate) fn sandboxes(&self) -> Arc<dyn Sandboxes> {
        match &self.service {
            Some(service) => sandboxes_of(service, &self.audit, Door::Server, self.router.as_ref()),
            None => Arc::new(Remote(Unavailable(no_sandboxes()))),
        }
    }

    /// What the other servers of the cluster are served: the operations of this server, none of which is
    /// passed on.
    pub(crate) fn cluster(&self, secret: ClusterSecret) -> Option<Cluster> {
        let service = self.service.clone()?;
        let operations = Operations {
            sandboxes: observed(service, &self.audit, Door::Server),
            workflows: observed(self.workflows.clone(), &self.audit, Door::Server),
            is_on_demand: false,
        };
        let hosts = Arc::new(self.router.clone()?);
        Some(Cluster { hosts, operations, secret, host: self.host.clone() })
    }

    /// Waits until another server has given up this one: it runs nothing any more.
    pub(crate) async fn wait_until_given_up(&self) {
        match &self.service {
            Some(service) => service.engine().wait_until_ended().await,
            None => std::future::pending().await,
        }
    }

    /// The API keys.
    ///
    /// # Errors
    /// If sandboxes are unavailable.
    pub(crate) fn keys(&self) -> Result<Arc<dyn KeyDirectory>, Problem> {
        match &self.service {
            Some(service) => Ok(Arc::new(service.clone())),
            None => Err(no_sandboxes()),
        }
    }

    /// The decisions about ports of sandboxes, which browsers reach there from now on.
    ///
    /// # Errors
    /// If sandboxes are unavailable.
    pub(crate) fn ports(&self, site: PortSite) -> Result<Arc<dyn PortAccess>, Problem> {
        match &self.service {
            Some(service) => {
                service.set_port_site(site);
                Ok(Arc::new(service.clone()))
            }
            None => Err(no_sandboxes()),
        }
    }

    /// Records requests that are refused before they become an operation.
    pub(crate) fn refusals(&self) -> Arc<dyn RecordRefusal> {
        Arc::new(self.audit.clone())
    }

    /// The operations on workflow runs.
    pub(crate) fn workflows(&self) -> Arc<dyn Workflows> {
        let runs = self.workflows.clone();
        let inner = Observed {
            inner: runs.clone(),
            observer: Observer::new(self.audit.clone(), Door::Server),
        };
        match self.router.clone() {
            Some(router) => Arc::new(Routed { inner, router: RunRouter { router, runs } }),
            None => Arc::new(inner),
        }
    }

    /// Shuts the host down. The next host continues the work that has not ended.
    pub(crate) async fn end(self) {
        self.shut_down().await;
        // The next process finds a complete database file.
        let _ = self.store.close().await;
    }

    /// Accepts no new work, and waits a limited time for operations in progress.
    pub(crate) async fn shut_down(&self) {
        let service = async {
            if let Some(service) = &self.service {
                service.shutdown(SHUTDOWN_TIMEOUT).await;
            }
        };
        tokio::join!(service, self.workflows.shutdown(SHUTDOWN_TIMEOUT));
        self.audit.end().await;
    }
}

/// Operations that are recorded. `door` is that of callers that name none.
fn observed<T>(inner: T, audit: &Audit, door: Door) -> Arc<Observed<T, Observer>> {
    Arc::new(Observed { inner, observer: Observer::new(audit.clone(), door) })
}

/// The operations on sandboxes, of which another server executes those on its own sandboxes.
fn sandboxes_of(
    service: &Service,
    audit: &Audit,
    door: Door,
    router: Option<&Router>,
) -> Arc<dyn Sandboxes> {
    let inner = Observed { inner: service.clone(), observer: Observer::new(audit.clone(), door) };
    match router {
        Some(router) => Arc::new(Routed { inner, router: router.clone() }),
        None => Arc::new(inner),
    }
}

fn realms(programs: &Programs, realms: Realms) -> Processes {
    let realm = programs.realm.clone();
    match realms {
        Realms::OnDemand => Processes::new(realm),
        Realms::Now => {
            let processes = Processes::new(realm);
            processes.prepare();
            processes
        }
        Realms::Ready => Processes::with_one_ready(realm),
    }
}

/// The service of a data directory.
async fn service(
    data: &Path,
    settings: &Settings,
    programs: &Programs,
    store: Arc<dyn Store>,
    (host, elsewhere): (&str, &OpenSandbox),
) -> Result<Service, Problem> {
    let keeper = programs.keeper.clone();
    let options = native::Options { data: data.to_owned(), keeper, pool: settings.pool };
    let native = Native::open(options).map_err(|error| Problem::caused(Code::Io, &error))?;
    let bwrap = Bwrap::open(data.to_owned(), programs.bwrap_keeper.clone());
    let bwrap = bwrap.map_err(|error| Problem::caused(Code::Io, &error))?;
    let docker = Docker::new(docker::Options {
        data: data.to_owned(),
        keeper: programs.keeper.clone(),
        programs: programs.child.iter().map(|(_, path)| path.clone()).collect(),
        build: stockade_cli::programs::BUILD.to_owned(),
        deadline: docker::DEADLINE,
        address: docker::Address::from_environment(),
    });
    let codeplane = Codeplane::new(codeplane::Options {
        data: data.to_owned(),
        address: codeplane::Address::from_environment(|name| std::env::var_os(name)),
    });
    let owner = OwnerId::from_uid(rustix::process::geteuid().as_raw());
    // Processes that a service starts inherit no file descriptor of this one.
    stockade_jail::inherit_nothing().map_err(|error| Problem::caused(Code::Io, &error))?;
    let options = stockade_service::Options {
        executor_id: host.to_owned(),
        home: Some(Home { path: data.to_owned(), owner }),
        egress: Some(programs.egress.clone()),
        images: Some(Arc::new(Registries::new(data.to_owned()))),
        ..settings.service.clone()
    };
    let mut runtimes: Vec<Arc<dyn Runtime>> = vec![
        Arc::new(native),
        Arc::new(bwrap),
        Arc::new(docker),
        Arc::new(elsewhere.clone()),
        Arc::new(codeplane),
    ];
    runtimes.extend(kubernetes(data));
    Service::launch(store, runtimes, options).await
}

/// The runtime of pods, if this build contains it.
#[cfg(feature = "kubernetes")]
fn kubernetes(data: &Path) -> Option<Arc<dyn Runtime>> {
    use stockade_runtime_kubernetes::{Kubernetes, Options};
    let options = Options::from_environment(data.to_owned(), |name| std::env::var_os(name));
    Some(Arc::new(Kubernetes::new(options)))
}

#[cfg(not(feature = "kubernetes"))]
fn kubernetes(_data: &Path) -> Option<Arc<dyn Runtime>> {
    None
}

fn no_sandboxes() -> Problem {
    Problem::new(Code::Unsupported, "no sandbox can be created inside another sandbox")
        .because("this process is already confined, and cannot create namespaces")
        .remedied_by("run the command outside")
}
