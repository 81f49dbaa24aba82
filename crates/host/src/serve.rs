//! The local server: a host whose operations are served on the socket of its data directory, until
//! it is idle or stopped.

use std::time::{Duration, Instant};

use stockade_cli::programs::BUILD;
use stockade_core::{Code, OwnerId, Problem};
use stockade_server::auth::SingleUser;
use stockade_server::local::{self, Connections};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::host::Host;
use crate::options::Options;

/// How often a server checks whether it is still needed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// When a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// When it has been idle for a while: it was started by a command that needed it.
    WhileNeeded,
    /// When it is stopped: a user started it.
    UntilStopped,
}

/// Serves until it is idle, or a signal stops it. `ready` is called once it listens. If another
/// process uses the data directory, a server that was started on demand exits successfully.
///
/// # Errors
/// If the data directory cannot be used, or another process uses it.
pub(crate) fn run(
    options: Options,
    lifetime: Lifetime,
    ready: impl FnOnce(),
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

async fn serve(options: Options, lifetime: Lifetime, ready: impl FnOnce()) -> Result<(), Problem> {
    let data = options.data.clone();
    let idle = options.sandboxes.as_ref().map_or(Duration::ZERO, |settings| settings.idle);
    let mut interrupted = signals().map_err(|error| Problem::caused(Code::Io, &error))?;
    let Some(host) = Host::launch(options).await? else {
        if lifetime == Lifetime::WhileNeeded {
            return Ok(());
        }
        return Err(Problem::new(Code::Conflict, "another server uses this data directory")
            .because(data.display().to_string())
            .remedied_by("the other server is ready to use: stockade ls"));
    };
    let listener = host.directory.listen(BUILD)?;
    let (stop, stopped) = watch::channel(false);
    let connections = Connections::default();
    let uid = rustix::process::geteuid().as_raw();
    let serving = tokio::spawn(local::serve(
        listener,
        host.sandboxes(),
        host.workflows(),
        std::sync::Arc::new(SingleUser::new(uid, OwnerId::from_uid(uid))),
        connections.clone(),
        stopped,
    ));
    ready();
    let is_needed = async {
        match lifetime {
            Lifetime::WhileNeeded => wait_until_idle(&host, &connections, idle).await,
            Lifetime::UntilStopped => std::future::pending().await,
        }
    };
    tokio::select! {
        () = is_needed => {}
        () = wait_until_removed(&host) => {}
        _ = interrupted.recv() => {}
    }
    stop.send_replace(true);
    // A client that connects from now on starts another server, which waits for the lock.
    host.directory.remove_socket();
    let _ = serving.await;
    host.shut_down().await;
    Ok(())
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
