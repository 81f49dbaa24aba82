//! `stockade forward`: ports of this host that lead into a sandbox until this program is
//! interrupted. This process listens, so that nothing listens after it.

use std::net::SocketAddr;
use std::sync::Arc;

use stockade_api::{Connect, Problem};
use stockade_core::{Code, SandboxId};
use stockade_forward::{Error, Listener, Report, Stream, serve};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::attach::io_failure;
use super::find;
use crate::args::live::Forward;
use crate::args::ports::PortPair;
use crate::commands::print::{notify, print_line, print_text};
use crate::problem::Failure;
use crate::remote::{self, Remote};

/// Forwards connections until this program is interrupted or the sandbox ends.
pub(crate) fn run(arguments: Forward) -> Result<u8, Failure> {
    remote::with(arguments.server_mode, async |remote| {
        let id = find(&remote, &arguments.id).await?;
        let request = stockade_api::GetSandbox { id: id.clone(), metrics: false };
        let sandbox = remote.sandboxes.get_status(remote.caller(), request).await?;
        if sandbox.state.is_terminal() {
            let message = format!("the sandbox {id} has ended");
            return Err(Problem::new(Code::SandboxTerminated, message)
                .remedied_by("stockade ls")
                .into());
        }
        let mut listeners = Vec::new();
        for pair in &arguments.ports {
            let listener = Listener::bind(arguments.address, pair.host).await;
            listeners.push((*pair, listener.map_err(|error| problem(&error))?));
        }
        let mut signals = signals()?;
        for (pair, listener) in &listeners {
            print_forward(&id, *pair, listener.addresses(), arguments.json)?;
        }
        let (failures, mut failed) = mpsc::unbounded_channel();
        let remote = Arc::new(remote);
        let mut serving = JoinSet::new();
        for (pair, listener) in listeners {
            serving.spawn(forward(
                remote.clone(),
                id.clone(),
                pair.inside,
                listener,
                failures.clone(),
            ));
        }
        tokio::select! {
            _ = signals.recv() => Ok(0),
            Some(failure) = failed.recv() => Err(failure.into()),
        }
    })
}

fn problem(error: &Error) -> Problem {
    match error {
        Error::InUse(address) => Problem::new(Code::PortInUse, error.to_string())
            .because("another process or sandbox listens there")
            .remedied_by(format!("ss -ltnp 'sport = :{}'", address.port())),
        Error::Listen { source, .. } => {
            Problem::new(Code::InvalidInput, error.to_string()).because(source.to_string())
        }
    }
}

fn print_forward(
    id: &SandboxId,
    pair: PortPair,
    addresses: &[SocketAddr],
    json: bool,
) -> Result<(), Failure> {
    if json {
        return print_line(&serde_json::json!({
            "sandboxId": id, "addresses": addresses, "inside": pair.inside,
        }));
    }
    let Some(address) = addresses.first() else { return Ok(()) };
    print_text(&format!("{address} -> {id}:{}\n", pair.inside))
}

/// Forwards the connections of one port. A failure that no later connection can escape is sent.
async fn forward(
    remote: Arc<Remote>,
    id: SandboxId,
    inside: u16,
    listener: Listener,
    failures: mpsc::UnboundedSender<Problem>,
) {
    let uid = rustix::process::geteuid().as_raw();
    let request = Connect { sandbox_id: id.clone(), port: inside };
    let connect = move || {
        let (remote, request) = (remote.clone(), request.clone());
        async move {
            let connected = remote.sandboxes.connect(remote.caller(), request).await?;
            Ok::<_, Problem>(Box::new(connected) as Box<dyn Stream>)
        }
    };
    let report = move |report: Report<Problem>| match report {
        Report::Refused { uid: Some(uid) } => {
            notify(&format!("a connection of the user {uid} was refused"));
        }
        Report::Refused { uid: None } => {
            notify("a connection was refused: its process has exited, or is not of this host");
        }
        Report::NotConnected(problem)
            if matches!(problem.code, Code::SandboxTerminated | Code::NotFound) =>
        {
            let _ = failures.send(problem);
        }
        Report::NotConnected(problem) => {
            notify(&format!("a connection to port {inside} of {id} failed: {}", problem.message));
        }
    };
    serve(listener, move |peer| peer == uid, connect, report).await;
}

/// The signals that end this program.
fn signals() -> Result<mpsc::Receiver<()>, Failure> {
    let (to, receiver) = mpsc::channel(1);
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let (mut signals, to) = (signal(kind).map_err(io_failure)?, to.clone());
        tokio::spawn(async move {
            if signals.recv().await.is_some() {
                let _ = to.send(()).await;
            }
        });
    }
    Ok(receiver)
}
