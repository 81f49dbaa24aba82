//! The local server: a host whose operations are served on the socket of its data directory, until
//! it is idle or stopped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stockade_cli::programs::BUILD;
use stockade_core::{Code, OwnerId, Problem};
use stockade_server::auth::{HttpAuth, Reach, SingleUser};
use stockade_server::local::{self, Connections};
use stockade_server::mcp::{Grants, Snippets, use_playground_of};
use stockade_server::tcp::{self, Listener};
use stockade_server::{Backend, Pool, Watch, web};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::agents::{self, Workers};
use crate::host::Host;
use crate::listener::ListenOptions;
use crate::log;
use crate::options::Options;
use crate::settings::Settings;
use crate::takeover::end_server_on_demand;
use crate::traces;

/// How often a server checks whether it is still needed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How often a server that stops checks whether its connections have ended.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);
/// How long connections may take to end when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// When a server ends.
#[derive(Debug, Clone)]
pub(crate) enum Lifetime {
    /// When it has been idle for a while: it was started by a command that needed it.
    WhileNeeded,
    /// When it is stopped: a user started it, with a listener over TCP.
    UntilStopped(Box<ListenOptions>),
}

/// Serves until it is idle, or a signal stops it. `ready` is called once it listens, with the URL of the
/// listener over TCP. If another
/// process uses the data directory, a server that was started on demand exits successfully.
///
/// # Errors
/// If the data directory cannot be used, or another process uses it.
pub(crate) fn run(
    options: Options,
    lifetime: Lifetime,
    ready: impl FnOnce(Option<String>),
) -> Result<(), Problem> {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Problem::caused(Code::Io, &error))?;
    let served = tokio.block_on(serve(options, lifetime, ready));
    // The next server takes over the work that does not end in time.
    tokio.shutdown_timeout(Duration::from_secs(1));
    served
}

async fn serve(
    mut options: Options,
    lifetime: Lifetime,
    ready: impl FnOnce(Option<String>),
) -> Result<(), Problem> {
    let data = options.data.clone();
    let idle = options.sandboxes.as_ref().map_or(Duration::ZERO, |settings| settings.idle);
    let mut interrupted = signals().map_err(|error| Problem::caused(Code::Io, &error))?;
    if let Lifetime::UntilStopped(listen) = &lifetime
        && listen.is_public()
    {
        options.sandboxes = options.sandboxes.map(Settings::for_exposed_server);
    }
    let listener = match &lifetime {
        Lifetime::WhileNeeded => None,
        Lifetime::UntilStopped(listen) => listen.bind().await?.map(|socket| (listen, socket)),
    };
    if let Lifetime::UntilStopped(listen) = &lifetime {
        log::start(listen.log(), listen.otlp())?;
    }
    if let (Lifetime::UntilStopped(listen), Some(settings)) = (&lifetime, &mut options.sandboxes)
        && let Some(cluster) = listen.cluster()
    {
        let socket = listener.as_ref().map(|(_, socket)| socket.address()).transpose();
        let socket = socket.map_err(|error| Problem::caused(Code::Io, &error))?;
        settings.cluster_secret = Some(cluster.secret.clone());
        settings.service.cluster = Some(cluster.service(listen.scheme(), socket)?);
    }
    let pool = pool(&options);
    let mut launched = Host::launch(options.clone()).await?;
    let is_on_demand = matches!(lifetime, Lifetime::WhileNeeded);
    if launched.is_none() && !is_on_demand && end_server_on_demand(&data).await? {
        launched = Host::launch(options).await?;
    }
    let Some(host) = launched else {
        if is_on_demand {
            return Ok(());
        }
        return Err(Problem::new(Code::Conflict, "another server uses this data directory")
            .because(data.display().to_string())
            .remedied_by("the other server is ready to use: stockade ls"));
    };
    let (stop, stopped) = watch::channel(false);
    let tcp = match listener {
        Some((listen, socket)) => {
            Some(prepare(&host, listen, socket, pool, stopped.clone()).await?)
        }
        None => {
            host.directory.write_address("")?;
            None
        }
    };
    let listener = host.directory.listen(BUILD)?;
    let (connections, remote_connections) = (Connections::default(), Connections::default());
    let remaining = remote_connections.clone();
    let uid = rustix::process::geteuid().as_raw();
    let serving = tokio::spawn(local::serve(
        listener,
        local::Operations {
            sandboxes: host.sandboxes(),
            workflows: host.workflows(),
            is_on_demand,
        },
        Arc::new(SingleUser::new(uid, OwnerId::from_uid(uid))),
        connections.clone(),
        stopped.clone(),
    ));
    let url = tcp.as_ref().map(|tcp| tcp.url.clone());
    let serving_tcp = tokio::spawn(async move {
        if let Some(Tcp { socket, routes, tls, .. }) = tcp {
            tcp::serve(socket, routes, tls, remote_connections, stopped).await;
        }
    });
    ready(url);
    let is_needed = async {
        match lifetime {
            Lifetime::WhileNeeded => wait_until_idle(&host, &connections, idle).await,
            Lifetime::UntilStopped(_) => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        () = is_needed => Ok(()),
        () = wait_until_removed(&host) => Ok(()),
        _ = interrupted.recv() => Ok(()),
        () = host.wait_until_given_up() => Err(given_up()),
    };
    stop.send_replace(true);
    // A client that connects from now on starts another server, which waits for the lock.
    host.directory.remove_socket();
    let _ = serving.await;
    let _ = serving_tcp.await;
    // It ends the streams of commands, each with a last event.
    host.shut_down().await;
    let drained = async {
        while remaining.count() + connections.count() > 0 {
            tokio::time::sleep(DRAIN_INTERVAL).await;
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, drained).await;
    let _ = tokio::task::spawn_blocking(traces::end).await;
    ended
}

/// Why a server ends whose lease another one has ended.
fn given_up() -> Problem {
    Problem::new(Code::Unreachable, "another server has given up this one")
        .because(
            "it did not renew its lease in time: it was stopped, or did not reach the database",
        )
        .remedied_by("start it again: it ends what was given up, and its sandboxes can be started")
}

/// The pool of sandboxes that are started in advance, as clients see it.
fn pool(options: &Options) -> Pool {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let settings = options.sandboxes.as_ref();
    Pool {
        size: settings.map_or(0, |settings| count(settings.pool)),
        sandboxes: settings.map_or(0, |settings| settings.service.quotas.sandboxes),
    }
}

/// A listener over TCP that is ready to serve.
struct Tcp {
    socket: Listener,
    routes: axum::Router,
    tls: Option<tcp::Acceptor>,
    url: String,
}

/// Checks what a listener requires, and combines it with the operations of a host.
async fn prepare(
    host: &Host,
    listen: &ListenOptions,
    socket: Listener,
    pool: Pool,
    stopped: watch::Receiver<bool>,
) -> Result<Tcp, Problem> {
    let tls = listen.acceptor()?;
    let keys = host.keys()?;
    listen.check_keys(&*keys).await?;
    let uid = rustix::process::geteuid().as_raw();
    let reach = if listen.is_public() { Reach::Network } else { Reach::Loopback };
    let user = SingleUser::new(uid, OwnerId::from_uid(uid));
    let auth = HttpAuth::new(keys, user, reach).await?;
    let auth = Arc::new(auth);
    let address = socket.address().map_err(|error| Problem::caused(Code::Io, &error))?;
    let options = listen.web(address)?;
    let (sandboxes, ports) = (host.sandboxes(), host.ports(options.site.clone())?);
    let snippets: Arc<dyn Snippets> = Arc::new(Workers::for_server());
    let offer = agents::offer(&sandboxes, Grants::default(), Arc::clone(&snippets));
    let watch = Watch::new(listen.limits(), Some(host.refusals()));
    let operations = local::Operations {
        sandboxes: Arc::clone(&sandboxes),
        workflows: host.workflows(),
        is_on_demand: false,
    };
    let main = stockade_server::routes(Backend {
        operations,
        ports: Arc::clone(&ports),
        offer,
        snippets,
        auth: Arc::clone(&auth),
        hosts: listen.allowed_hosts(),
        origins: listen.allowed_origins(),
        site: options.site.clone(),
        has_public_ports: listen.has_public_ports(),
        watch: watch.clone(),
        cluster: listen.cluster().and_then(|options| host.cluster(options.secret.clone())),
        pool,
        stop: stopped,
    });
    host.directory.write_address(&options.public_origin)?;
    use_playground_of(options.public_origin.clone());
    // The host name of a request decides first: none of a port reaches `main`.
    let routes = web::routes(main, options, sandboxes, ports, auth, watch)?;
    let url = format!("{}://{address}", listen.scheme());
    Ok(Tcp { socket, routes, tls, url })
}

/// Waits until there has been no sandbox, operation, run or client for a while. Runs that wait, and
/// the sandboxes that are kept for them, do not count.
async fn wait_until_idle(host: &Host, connections: &Connections, idle: Duration) {
    let mut since = Instant::now();
    while since.elapsed() < idle {
        tokio::time::sleep(POLL_INTERVAL).await;
        if connections.count() > 0 || is_busy(host).await {
            since = Instant::now();
        }
    }
}

/// Whether a host has work. If that cannot be determined, it has.
async fn is_busy(host: &Host) -> bool {
    // The keeper supervises the sandboxes of waiting children, and ends them in time. Each has a
    // watcher workflow.
    let resting = host.workflows.waiting_sandboxes().await.unwrap_or_default();
    let holds_sandboxes = match &host.service {
        None => false,
        Some(service) => service.live().await.map_or(true, |live| {
            let resting = live.iter().filter(|id| resting.contains(id)).count();
            live.len() > resting || service.engine().running() > resting as u64
        }),
    };
    holds_sandboxes || host.workflows.is_needed().await.unwrap_or(true)
}

/// Waits until the server's directory is removed. The keeper detects the same for its own
/// directory, and ends the sandboxes.
async fn wait_until_removed(host: &Host) {
    while !host.directory.is_removed() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Receives SIGINT and SIGTERM.
fn signals() -> std::io::Result<tokio::sync::mpsc::Receiver<()>> {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let (mut signals, sender) = (signal(kind)?, sender.clone());
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if sender.send(()).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}
