//! Several servers on one database: the options of one of them, and passing on a request to the server that
//! holds its sandbox.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_user_timeout};
use serde_json::Value;
use stockade_api::{
    Caller, Duplex, Elsewhere, Empty, ListBundles, Route, Routing, Sandboxes as _, VolumeByName,
};
use stockade_client::{Client, Dial, Server, ServerUrl};
use stockade_core::{Code, Problem, SandboxId, VolumeName};
use stockade_server::Hosts;
use stockade_server::cluster::ClusterSecret;
use stockade_service::{
    Destination, Lookup, Placement, PossessionKind, QUEUE, Service, Unrecorded,
};
use stockade_workflow::engine::Workflows;
use tokio::net::TcpStream;
use tokio_rustls::rustls::ClientConfig;

use crate::connector;
use crate::serve_options::Values;

/// The variable with the common secret itself.
const SECRET: &str = "STOCKADE_CLUSTER_SECRET";
/// The variable with the file of the common secret.
const SECRET_FILE: &str = "STOCKADE_CLUSTER_SECRET_FILE";
/// The largest file of a secret, in bytes.
const SECRET_BYTES: u64 = 4096;
/// After how many seconds of silence a server is given up.
const PATIENCE_SECONDS: u64 = 120;
/// The longest time between two renewals of a lease.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How many renewals of a lease there are until a server is given up, at least.
const HEARTBEATS_OF_PATIENCE: u32 = 6;
/// A pipe in place of the file does not block.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
/// The word for no queue.
const NO_QUEUE: &str = "none";
/// How long a connection to another server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long sent bytes may stay unacknowledged, in milliseconds.
const UNACKNOWLEDGED_MS: u32 = 30_000;

/// How long the other servers may take to record what they have.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// What follows the id of a server in the name of the executor of its workflow runs.
pub(crate) const WORKFLOW_EXECUTOR: &str = "-workflows";

/// How a server takes part in a cluster.
#[derive(Debug, Clone)]
pub(crate) struct ClusterOptions {
    /// Where the other servers reach it; that of the listener if absent.
    url: Option<ServerUrl>,
    /// The common secret.
    pub(crate) secret: ClusterSecret,
    /// Whether it works on the queue of sandboxes.
    holds_sandboxes: bool,
    patience: Duration,
}

impl ClusterOptions {
    /// The options with these values; `None` for a server that is alone.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for an invalid value.
    pub(crate) fn new(
        values: &Values<impl Fn(&str) -> Option<OsString>>,
    ) -> Result<Option<Self>, Problem> {
        let text = |name: &str| values.get(name).map(|value| value.to_string_lossy().into_owned());
        let url = text("STOCKADE_CLUSTER_URL").map(|text| read_url(&text)).transpose()?;
        let queues = text("STOCKADE_QUEUES");
        let patience = text("STOCKADE_HOST_PATIENCE");
        let secret = match (values.get(SECRET), values.get(SECRET_FILE)) {
            (Some(text), _) => ClusterSecret::new(text.as_encoded_bytes())?,
            (None, Some(path)) => read_secret(Path::new(&path))?,
            (None, None) => {
                let alone = [
                    (url.is_some(), "--cluster-url"),
                    (queues.is_some(), "--queues"),
                    (patience.is_some(), "--host-patience"),
                ];
                return match alone.into_iter().find(|(is_given, _)| *is_given) {
                    None => Ok(None),
                    Some((_, name)) => Err(invalid(format!("{name} is for a cluster"))
                        .because("the server has no secret in common with others")
                        .remedied_by("stockade serve --cluster-secret-file FILE")),
                };
            }
        };
        if values.get("STOCKADE_DATABASE_URL").is_none() {
            return Err(invalid("the servers of a cluster have one PostgreSQL database")
                .because("without it the records are in a file of this host")
                .remedied_by("export STOCKADE_DATABASE_URL=postgres://USER@HOST:PORT/DATABASE"));
        }
        let patience = match patience {
            None => PATIENCE_SECONDS,
            Some(text) => text.parse().ok().filter(|seconds| *seconds > 0).ok_or_else(|| {
                invalid(format!("--host-patience is {text:?}, which is no number of seconds"))
            })?,
        };
        Ok(Some(Self {
            url,
            secret,
            holds_sandboxes: holds_sandboxes(queues.as_deref())?,
            patience: Duration::from_secs(patience),
        }))
    }

    /// The part of the service, for a listener at this address.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] if the other servers would not reach the listener.
    pub(crate) fn service(
        &self,
        scheme: &str,
        listener: Option<SocketAddr>,
    ) -> Result<stockade_service::Cluster, Problem> {
        let Some(listener) = listener else {
            return Err(Problem::new(Code::PortInUse, "a server of a cluster needs its listener")
                .remedied_by("stockade serve --listen 127.0.0.1:0"));
        };
        let address = match &self.url {
            Some(url) => url.to_string(),
            None if listener.ip().to_canonical().is_loopback() => format!("{scheme}://{listener}"),
            None => {
                return Err(invalid("a server that other hosts reach needs a --cluster-url")
                    .because("its certificate is for a name, which the other servers must use")
                    .remedied_by("stockade serve --cluster-url https://NAME:PORT"));
            }
        };
        Ok(stockade_service::Cluster {
            address,
            holds_sandboxes: self.holds_sandboxes,
            heartbeat: HEARTBEAT.min(self.patience / HEARTBEATS_OF_PATIENCE),
            patience: self.patience,
        })
    }

    /// The host name under which the other servers address this one.
    pub(crate) fn host_name(&self) -> Option<String> {
        let host = self.url.as_ref()?.host();
        Some(if host.contains(':') { format!("[{host}]") } else { host.to_owned() })
    }
}

fn invalid(message: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidInput, message)
}

fn read_url(text: &str) -> Result<ServerUrl, Problem> {
    let url: ServerUrl = text.parse().map_err(|error: stockade_client::InvalidUrl| {
        invalid(format!("--cluster-url is {text:?}")).because(error.to_string())
    })?;
    if !url.is_secure() && !url.is_loopback() {
        return Err(invalid("the servers of a cluster use TLS beyond the loopback")
            .because("files, and what identifies callers, would be sent in plain text")
            .remedied_by(format!("stockade serve --cluster-url https://{}", url.authority())));
    }
    Ok(url)
}

fn read_secret(path: &Path) -> Result<ClusterSecret, Problem> {
    let refused = |why: String| {
        invalid(format!("the secret in {} cannot be used", path.display())).because(why)
    };
    let failed = |error: std::io::Error| refused(error.to_string());
    let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let is_own = [rustix::process::geteuid().as_raw(), 0].contains(&metadata.uid());
    // A group may read it: that is how a secret is mounted into a pod.
    if !metadata.is_file() || !is_own || metadata.mode() & 0o027 != 0 {
        let why = "it is not a file of this user that no others can read and no group can change";
        return Err(refused(why.to_owned()).remedied_by(format!("chmod 600 '{}'", path.display())));
    }
    let mut text = Vec::new();
    file.take(SECRET_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > SECRET_BYTES {
        return Err(refused(format!("it is larger than {SECRET_BYTES} bytes")));
    }
    ClusterSecret::new(&text)
}

/// Whether a list of queues has that of sandboxes, which is the only one.
fn holds_sandboxes(queues: Option<&str>) -> Result<bool, Problem> {
    let names = queues.unwrap_or(QUEUE).split(',').map(str::trim);
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    match names.as_slice() {
        [NO_QUEUE] => Ok(false),
        [QUEUE] => Ok(true),
        _ => Err(invalid(format!("--queues is {:?}", names.join(",")))
            .because(format!("the queue of sandboxes is {QUEUE}, and {NO_QUEUE} means no queue"))
            .remedied_by(format!("stockade serve --queues {QUEUE}"))),
    }
}

/// Passes on requests to the servers that hold their sandboxes.
#[derive(Debug, Clone)]
pub(crate) struct Router {
    service: Service,
    secret: ClusterSecret,
    /// What certificates of other servers are verified against.
    trust: Result<Arc<ClientConfig>, Problem>,
}

impl Router {
    /// For a server with this service.
    pub(crate) fn new(service: Service, secret: ClusterSecret) -> Self {
        Self { service, secret, trust: connector::trust(None) }
    }
}

impl Router {
    /// The operations of another server, on behalf of a caller.
    fn elsewhere(
        &self,
        caller: &Caller,
        destination: Destination,
    ) -> Result<Elsewhere<Server>, Problem> {
        let Destination { host, address } = destination;
        let url = secure_url(&host, &address)?;
        let sealed = self.secret.seal(caller, &host)?;
        let dial = Arc::new(Connection { url: url.clone(), trust: self.trust.clone() });
        let operations = Server::from(Client::of_cluster(dial, &url, &sealed)?);
        let (service, watched) = (self.service.clone(), host.clone());
        let gone = Box::pin(async move { service.wait_until_silent(&watched).await });
        Ok(Elsewhere { host, operations, gone })
    }

    /// Makes the other servers record what they have under names that nobody has recorded. One that does not
    /// answer in time has recorded what it had before.
    async fn ask(&self, caller: &Caller, unrecorded: Unrecorded) {
        let Unrecorded { kind, names, others } = unrecorded;
        let ask = |destination| async {
            let Ok(Elsewhere { operations, .. }) = self.elsewhere(caller, destination) else {
                return;
            };
            match kind {
                PossessionKind::Volume => {
                    for name in names.iter().filter_map(|name| VolumeName::new(name).ok()) {
                        let _ = operations.find_volume(caller, VolumeByName { name }).await;
                    }
                }
                PossessionKind::Workspace => {
                    let _ = operations.workspaces(caller, Empty {}).await;
                }
                PossessionKind::Bundle => {
                    let request = ListBundles { stored_only: true, ..ListBundles::default() };
                    let _ = operations.bundles(caller, request).await;
                }
            }
        };
        let _ = tokio::time::timeout(ASK_TIMEOUT, join_all(others.into_iter().map(ask))).await;
    }

    fn routing(&self, caller: &Caller, placement: Placement) -> Result<Routing<Server>, Problem> {
        match placement {
            Placement::There(destination) => {
                self.elsewhere(caller, destination).map(Routing::There)
            }
            Placement::Everywhere { others, silent } => {
                let others = others.into_iter().map(|other| self.elsewhere(caller, other));
                Ok(Routing::Everywhere { others: others.collect::<Result<_, _>>()?, silent })
            }
            Placement::Here | Placement::Unrecorded(_) => Ok(Routing::Here),
        }
    }
}

#[async_trait]
impl Route for Router {
    type Operations = Server;

    async fn route(
        &self,
        caller: &Caller,
        operation: &str,
        request: &Value,
    ) -> Result<Routing<Server>, Problem> {
        let mut placement =
            self.service.placement(caller, operation, request, Lookup::Records).await?;
        if let Placement::Unrecorded(unrecorded) = placement {
            self.ask(caller, unrecorded).await;
            placement =
                self.service.placement(caller, operation, request, Lookup::AllServers).await?;
        }
        self.routing(caller, placement)
    }
}

#[async_trait]
impl Hosts for Router {
    async fn of_sandbox(&self, id: &SandboxId) -> Result<Option<String>, Problem> {
        self.service.other_holder(id).await
    }

    async fn connect(&self, host: &str) -> Result<Box<dyn Duplex>, Problem> {
        let Destination { host, address } = self.service.server(host).await?;
        let url = secure_url(&host, &address)?;
        Connection { url, trust: self.trust.clone() }.dial().await
    }
}

/// The address of another server, at which nothing is sent in plain text beyond the loopback.
fn secure_url(host: &str, address: &str) -> Result<ServerUrl, Problem> {
    let url: ServerUrl = address.parse().map_err(|error: stockade_client::InvalidUrl| {
        Problem::new(Code::DatabaseInvalid, format!("the server {host} has no valid address"))
            .because(error.to_string())
    })?;
    if !url.is_secure() && !url.is_loopback() {
        // The database may name any address; what identifies callers is sent to none in plain text.
        return Err(Problem::new(Code::Unreachable, format!("the server {host} has no TLS")));
    }
    Ok(url)
}

/// Passes on requests about workflow runs to the servers that execute them.
#[derive(Debug, Clone)]
pub(crate) struct RunRouter {
    pub(crate) router: Router,
    pub(crate) runs: Workflows,
}

#[async_trait]
impl Route for RunRouter {
    type Operations = Server;

    async fn route(
        &self,
        caller: &Caller,
        operation: &str,
        request: &Value,
    ) -> Result<Routing<Server>, Problem> {
        let Some(member) = run_member(operation) else { return Ok(Routing::Here) };
        let Some(run) = request.get(member).and_then(Value::as_str) else {
            return Ok(Routing::Here);
        };
        let place = self.runs.place_of(caller, run).await?;
        let host = place.as_deref().and_then(|place| place.strip_suffix(WORKFLOW_EXECUTOR));
        match self.router.service.placement_of_run(host).await {
            // What has happened is in the records.
            Err(_) if READS.contains(&operation) => Ok(Routing::Here),
            placement => self.router.routing(caller, placement?),
        }
    }
}

/// The operations that also have something to say about a run whose server does not answer.
const READS: [&str; 2] = ["workflows.inspect", "workflows.follow"];

/// The member of a request that names the run of which the server that executes it is needed.
fn run_member(operation: &str) -> Option<&'static str> {
    match operation.strip_prefix("workflows.")? {
        "inspect" | "follow" | "resume_run" | "cancel_run" | "decide" | "signal" => Some("id"),
        "fork" => Some("source"),
        _ => None,
    }
}

/// Connects to another server.
#[derive(Debug)]
struct Connection {
    url: ServerUrl,
    trust: Result<Arc<ClientConfig>, Problem>,
}

#[async_trait]
impl Dial for Connection {
    async fn dial(&self) -> Result<Box<dyn Duplex>, Problem> {
        let url = &self.url;
        let late = |_| {
            let why = format!("no connection in {} s", CONNECT_TIMEOUT.as_secs());
            connector::unreachable(url, why)
        };
        if url.is_secure() {
            let opened = connector::open(url, self.trust.clone()?);
            let stream = tokio::time::timeout(CONNECT_TIMEOUT, opened).await.map_err(late)??;
            return Ok(Box::new(stream));
        }
        let opened = TcpStream::connect((url.host(), url.port()));
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, opened).await.map_err(late)?;
        let stream = stream.map_err(|error| connector::unreachable(url, error.to_string()))?;
        let _ = stream.set_nodelay(true);
        let _ = set_socket_keepalive(&stream, true);
        let _ = set_tcp_user_timeout(&stream, UNACKNOWLEDGED_MS);
        Ok(Box::new(stream))
    }
}

#[cfg(test)]
mod tests {
    use stockade_cli::args::serve::Serve;

    use super::*;

    const DATABASE: (&str, &str) = ("STOCKADE_DATABASE_URL", "postgres://a@b/c");
    const GIVEN: (&str, &str) = (SECRET, "0123456789abcdef0123456789abcdef");

    fn options(variables: &[(&str, &str)]) -> Result<Option<ClusterOptions>, Code> {
        let variable = |asked: &str| {
            let found = variables.iter().find(|(name, _)| *name == asked);
            found.map(|(_, value)| OsString::from(value))
        };
        let values = Values::of(&Serve::default(), None, variable, "").unwrap();
        ClusterOptions::new(&values).map_err(|problem| problem.code)
    }

    #[test]
    fn a_secret_makes_a_cluster() {
        assert!(options(&[DATABASE]).unwrap().is_none());
        let alone = options(&[DATABASE, GIVEN]).unwrap().unwrap();
        assert!(alone.holds_sandboxes && alone.patience == Duration::from_secs(PATIENCE_SECONDS));
        let loopback = alone.service("http", Some("127.0.0.1:7".parse().unwrap())).unwrap();
        assert_eq!(loopback.address, "http://127.0.0.1:7");
        assert_eq!(loopback.heartbeat, HEARTBEAT);
        assert!(alone.service("https", Some("0.0.0.0:7".parse().unwrap())).is_err());
        assert!(alone.service("https", None).is_err());
        let front = [DATABASE, GIVEN, ("STOCKADE_QUEUES", "none"), ("STOCKADE_HOST_PATIENCE", "3")];
        let front = options(&front).unwrap().unwrap();
        assert!(!front.holds_sandboxes);
        let service = front.service("http", Some("[::1]:7".parse().unwrap())).unwrap();
        assert_eq!(service.heartbeat, Duration::from_millis(500));
    }

    #[test]
    fn a_file_that_others_can_read_is_no_secret() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, GIVEN.1).unwrap();
        let with_mode = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            options(&[DATABASE, (SECRET_FILE, path.to_str().unwrap())])
        };
        for mode in [0o644, 0o604, 0o660, 0o602] {
            assert_eq!(with_mode(mode).err(), Some(Code::InvalidInput), "{mode:o}");
        }
        for mode in [0o600, 0o400, 0o440] {
            assert!(with_mode(mode).unwrap().is_some(), "{mode:o}");
        }
    }

    #[test]
    fn what_makes_no_cluster_is_refused() {
        for refused in [
            &[GIVEN][..],
            &[DATABASE, (SECRET, "short")],
            &[DATABASE, (SECRET_FILE, "/nowhere")],
            &[DATABASE, ("STOCKADE_QUEUES", "none")],
            &[DATABASE, ("STOCKADE_CLUSTER_URL", "https://a")],
            &[DATABASE, GIVEN, ("STOCKADE_QUEUES", "other")],
            &[DATABASE, GIVEN, ("STOCKADE_HOST_PATIENCE", "0")],
            &[DATABASE, GIVEN, ("STOCKADE_CLUSTER_URL", "http://a.example")],
            &[DATABASE, GIVEN, ("STOCKADE_CLUSTER_URL", "a.example")],
        ] {
            assert_eq!(options(refused).err(), Some(Code::InvalidInput), "{refused:?}");
        }
    }
}
