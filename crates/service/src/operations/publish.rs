//! Published ports: each listens as long as its sandbox runs or is paused, also in the next service.
//!
//! One task for each sandbox that has some. It reads the sandbox's row after each event; a port that
//! another process has taken meanwhile is tried again.

use std::sync::PoisonError;
use std::time::Duration;

use stockade_api::{Caller, Connect, PublishedPort, Result};
use stockade_core::{Code, OwnerId, Problem, SandboxId, State};
use stockade_forward::{Error, Listener, Stream, serve};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::endpoint;
use crate::published::Problems;
use crate::service::Service;
use crate::store::{events, sandboxes};

/// The pause before a port is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Listens on the ports of a request, or on none of them.
///
/// # Errors
/// [`Code::PortInUse`]; [`Code::InvalidInput`] for an address or port that cannot be used.
pub(crate) async fn bind(ports: &[PublishedPort]) -> Result<Vec<Listener>> {
    let mut listeners = Vec::with_capacity(ports.len());
    for port in ports {
        let bound = Listener::bind(port.address, port.host).await;
        listeners.push(bound.map_err(|error| port_problem(&error))?);
    }
    Ok(listeners)
}

fn port_problem(error: &Error) -> Problem {
    match error {
        Error::InUse(address) => Problem::new(Code::PortInUse, error.to_string())
            .because("another process or sandbox listens there")
            .remedied_by(format!("ss -ltnp 'sport = :{}'", address.port())),
        Error::Listen { source, .. } => {
            Problem::new(Code::InvalidInput, error.to_string()).because(source.to_string())
        }
    }
}

/// Serves the published ports of a sandbox until it ends, first with sockets that listen already.
pub(crate) fn publish(
    service: &Service,
    id: &SandboxId,
    owner: &OwnerId,
    ports: Vec<PublishedPort>,
    listeners: Vec<Listener>,
) {
    let published = &service.inner.published;
    let started = published.start(id, ports.len(), !listeners.is_empty());
    let Some((problems, listens)) = started else { return };
    let (service, id, owner) = (service.clone(), id.clone(), owner.clone());
    let served = ServedSandbox { service, id, owner, ports, problems };
    tokio::spawn(served.run(listeners, listens));
}

/// Serves the published ports of all sandboxes of an earlier service.
pub(crate) async fn resume(service: &Service) -> Result<()> {
    for id in sandboxes::published(&*service.inner.store, service.inner.host()).await? {
        if let Some(row) = sandboxes::find(&*service.inner.store, &id).await?
            && !row.damaged
            && !row.request.publish.is_empty()
        {
            publish(service, &row.id, &row.owner, row.request.publish.clone(), Vec::new());
        }
    }
    Ok(())
}

/// A sandbox whose ports are served.
struct ServedSandbox {
    service: Service,
    id: SandboxId,
    owner: OwnerId,
    ports: Vec<PublishedPort>,
    problems: Problems,
}

impl ServedSandbox {
    async fn run(self, listeners: Vec<Listener>, listens: watch::Sender<bool>) {
        let mut changed = self.service.engine.subscribe(events::TOPIC);
        let mut stopped = self.service.inner.stopped();
        let mut given = listeners.into_iter().map(Some).collect::<Vec<_>>();
        given.resize_with(self.ports.len(), || None);
        // Dropping a set closes its connections and sockets.
        let mut serving: Vec<Option<JoinSet<()>>> = Vec::new();
        serving.resize_with(self.ports.len(), || None);
        loop {
            let row = sandboxes::find(&*self.service.inner.store, &self.id).await;
            let state = match row {
                Ok(Some(row)) if row.owner == self.owner => row.state,
                // The store may be unavailable for a moment.
                Err(_) => State::Running,
                Ok(_) => State::Terminated,
            };
            if state.is_terminal() {
                break;
            }
            let is_up = matches!(state, State::Running | State::Paused);
            let mut is_missing = false;
            for (number, port) in self.ports.iter().enumerate() {
                if !is_up {
                    if let Some(mut old) = serving[number].take() {
                        old.shutdown().await;
                    }
                    if state != State::Creating {
                        given[number] = None;
                    }
                    self.set_problem(number, Some(format!("the sandbox is {state}")));
                } else if serving[number].is_none() {
                    match self.listener(given[number].take(), port).await {
                        Ok(listener) => {
                            serving[number] = Some(self.serve(listener, port.inside));
                            self.set_problem(number, None);
                        }
                        Err(error) => {
                            is_missing = true;
                            self.set_problem(number, Some(error.to_string()));
                        }
                    }
                }
            }
            let is_listening =
                serving.iter().any(Option::is_some) || given.iter().any(Option::is_some);
            listens.send_replace(is_listening);
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep(PAUSE), if is_missing => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
        }
        drop(given);
        for mut old in serving.into_iter().flatten() {
            old.shutdown().await;
        }
        // Before the channel is closed, so that a sandbox of the same id finds no entry.
        self.service.inner.published.remove(&self.id);
        listens.send_replace(false);
    }

    async fn listener(
        &self,
        given: Option<Listener>,
        port: &PublishedPort,
    ) -> std::result::Result<Listener, Error> {
        match given {
            Some(listener) => Ok(listener),
            None => Listener::bind(port.address, port.host).await,
        }
    }

    fn set_problem(&self, number: usize, problem: Option<String>) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = problems.get_mut(number) {
            *known = problem;
        }
    }

    /// Serves one port, for processes of the sandbox's owner.
    fn serve(&self, listener: Listener, inside: u16) -> JoinSet<()> {
        let owner = self.owner.clone();
        let admits = move |uid| OwnerId::from_uid(uid) == owner;
        let (service, caller) = (self.service.clone(), Caller::new(self.owner.clone()));
        let request = Connect { sandbox_id: self.id.clone(), port: inside };
        let connect = move || {
            let (service, caller, request) = (service.clone(), caller.clone(), request.clone());
            async move {
                let connected = endpoint::connect(&service, &caller, request).await?;
                Ok::<_, Problem>(Box::new(connected) as Box<dyn Stream>)
            }
        };
        let mut serving = JoinSet::new();
        // The peer sees that its connection was reset.
        serving.spawn(serve(listener, admits, connect, |_| {}));
        serving
    }
}
