//! The local server: the process that does what `create`, `exec` and the like ask for. One for each
//! data directory; it alone opens the database, and it ends when it has nothing to hold.

mod egress;
mod place;
pub(crate) mod processes;
mod settings;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stockade_core::{Code, OwnerId, Problem};
use stockade_durable::Store;
use stockade_durable::sqlite::{self, Sqlite, Synchronous};
use stockade_runtime::native::{self, Native};
use stockade_server::local::{self, Connections, Owner};
use stockade_service::{Home, Options, Service};
use stockade_workflow::authoring::Processes;
use stockade_workflow::engine::{self, Inside, MIGRATIONS, Workflows};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

pub(crate) use place::Place;
pub(crate) use settings::Settings;

use self::processes::COMMAND;
use crate::problem::{Failure, caused};
use crate::processes::{KEEPER, OURSELVES};

/// How long what runs has to end when the server is told to.
pub(crate) const ENDING: Duration = Duration::from_secs(5);

/// How long until it is looked again whether the server is still needed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Who does runs of workflows, among those that share the database.
const WORKFLOW_EXECUTOR: &str = "local-workflows";

/// Whose request started a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Started {
    /// A command that needed one: it ends when it holds nothing.
    OnDemand,
    /// A person: it ends when it is told to.
    ByHand,
}

/// Serves as a process that was started on demand. What goes wrong is told on standard output, for
/// the one who started it.
pub(crate) fn process(data: PathBuf) -> u8 {
    // Nothing that happens to the starter's terminal is meant for a server.
    let _ = rustix::process::setsid();
    match run(data, Started::OnDemand) {
        Ok(()) => 0,
        Err(failure) => {
            let _ = failure.present(true);
            1
        }
    }
}

/// Serves until there is nothing to hold, or somebody says stop. When another one serves already,
/// and this one was started on demand, there is nothing to do.
pub(crate) fn run(data: PathBuf, started: Started) -> Result<(), Failure> {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| caused(Code::Io, &error))?;
    let served = tokio.block_on(serve(data, started));
    // What does not end in time is taken over by the next server.
    tokio.shutdown_timeout(Duration::from_secs(1));
    served
}

async fn serve(data: PathBuf, started: Started) -> Result<(), Failure> {
    let settings = Settings::from_environment()?;
    let place = Place::open(&data)?;
    let Some(_lock) = place.lock()? else {
        if started == Started::OnDemand {
            return Ok(());
        }
        return Err(Problem::new(Code::Conflict, "another server serves this data directory")
            .because(data.display().to_string())
            .remedied_by("use it: stockade ls")
            .into());
    };
    let mut interrupted = signals().map_err(|error| caused(Code::Io, &error))?;
    let store = store(&data, Synchronous::Full).await?;
    let service = launch(&data, &settings, Arc::clone(&store)).await?;
    let workflows =
        launch_workflows(&data, processes::ready_realms(), store, Some(&service), None).await?;
    let listener = place.listen()?;
    let (stop, stopped) = watch::channel(false);
    let connections = Connections::default();
    let serving = tokio::spawn(local::serve(
        listener,
        Arc::new(service.clone()),
        Arc::new(workflows.clone()),
        owner()?,
        connections.clone(),
        stopped,
    ));
    if started == Started::ByHand {
        tell(&data);
    }
    tokio::select! {
        () = nothing_to_hold(&service, &workflows, &connections, settings.idle), if started == Started::OnDemand => {}
        () = removed(&place) => {}
        _ = interrupted.recv() => {}
    }
    stop.send_replace(true);
    // Whoever comes from now on starts another one, which waits for the lock.
    place.leave();
    let _ = serving.await;
    tokio::join!(service.shutdown(ENDING), workflows.shutdown(ENDING));
    Ok(())
}

/// The database of a data directory.
pub(crate) async fn store(
    data: &std::path::Path,
    synchronous: Synchronous,
) -> Result<Arc<dyn Store>, Problem> {
    let path = data.join("stockade.db");
    let options = sqlite::Options { path, synchronous, migrations: MIGRATIONS };
    Ok(Arc::new(open(options).await.map_err(|error| database(data, &error))?))
}

/// What does runs of workflows, with the sandboxes of a service, or in the confinement that is
/// around this process. With neither, no command is executed.
pub(crate) async fn launch_workflows(
    data: &std::path::Path,
    realms: Processes,
    store: Arc<dyn Store>,
    service: Option<&Service>,
    inside: Option<Inside>,
) -> Result<Workflows, Problem> {
    let options = engine::Options {
        executor_id: WORKFLOW_EXECUTOR.to_owned(),
        realms,
        helper: vec![OURSELVES.into(), COMMAND.into()],
        sandboxes: service.map(|service| Arc::new(service.clone()) as _),
        inside,
        agents: Some(data.join("agents.json")),
        // Programs of a host are granted by whoever runs a service there, and by no directory else.
        providers: service.map(|_| data.join("providers.json")),
        built: Vec::new(),
    };
    Workflows::launch(store, options).await
}

/// The service of a data directory.
pub(crate) async fn launch(
    data: &std::path::Path,
    settings: &Settings,
    store: Arc<dyn Store>,
) -> Result<Service, Problem> {
    let keeper = vec![OURSELVES.into(), KEEPER.into()];
    let options = native::Options { data: data.to_owned(), keeper, pool: settings.pool };
    let native = Native::open(options).map_err(|error| caused(Code::Io, &error))?;
    let variable = |name: &str| std::env::var(name).ok();
    let home = Some(Home { path: data.to_owned(), owner: owner()?.id });
    // What there is by now is nothing for the processes that a service starts.
    stockade_jail::inherit_nothing().map_err(|error| caused(Code::Io, &error))?;
    let egress = Some(crate::egress::program());
    let quotas = settings.quotas;
    let options = Options { quotas, home, egress, ..Options::from_environment(variable)? };
    Service::launch(store, vec![Arc::new(native)], options).await
}

/// Opens the database. A server that was killed a moment ago may still have it.
async fn open(options: sqlite::Options) -> Result<Sqlite, stockade_durable::Error> {
    let deadline = Instant::now() + ENDING;
    loop {
        match Sqlite::open(options.clone()).await {
            Err(stockade_durable::Error::Locked { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            opened => return opened,
        }
    }
}

fn database(data: &std::path::Path, error: &stockade_durable::Error) -> Problem {
    use stockade_durable::Error;
    if !matches!(
        error,
        Error::NewerDatabase { .. } | Error::ForeignDatabase { .. } | Error::CorruptDatabase { .. }
    ) {
        // A full disk, or a process that has it open: nothing is wrong with the database.
        return caused(Code::Io, error);
    }
    caused(Code::DatabaseInvalid, error).remedied_by(format!(
        "move {} away, or use the version of stockade that wrote it",
        data.join("stockade.db").display()
    ))
}

/// The user who owns the data directory: who this process belongs to.
pub(crate) fn owner() -> Result<Owner, Problem> {
    let uid = rustix::process::geteuid().as_raw();
    let id = OwnerId::new(format!("uid:{uid}")).map_err(|error| caused(Code::Io, &error))?;
    Ok(Owner { uid, id })
}

/// Waits until there is no sandbox, no operation, no run and no client, for a while; but for runs
/// that wait, and the sandboxes that are kept for them.
async fn nothing_to_hold(
    service: &Service,
    workflows: &Workflows,
    connections: &Connections,
    idle: Duration,
) {
    let mut since = Instant::now();
    while since.elapsed() < idle {
        tokio::time::sleep(LOOK_AGAIN).await;
        // Sandboxes of children that wait are left to the keeper, which ends them in time. Each has
        // a workflow that watches it.
        let resting = workflows.resting().await.unwrap_or_default();
        let holds_sandboxes = service.live().await.map_or(true, |live| {
            let resting = live.iter().filter(|id| resting.contains(id)).count();
            live.len() > resting || service.engine().running() > resting as u64
        });
        let holds = connections.count() > 0
            || holds_sandboxes
            || workflows.is_needed().await.unwrap_or(true);
        if holds {
            since = Instant::now();
        }
    }
}

/// Waits until the server's directory is removed. The keeper sees the same of its own, and ends what
/// it holds.
async fn removed(place: &Place) {
    while !place.is_removed() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Hears SIGINT and SIGTERM.
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

fn tell(data: &std::path::Path) {
    say!("stockade: serving {} (Ctrl-C ends it)", data.display());
}
