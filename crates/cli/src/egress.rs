//! The egress process of one run: it is started in parallel with the jail, receives the run's
//! policy, secrets and listeners, and ends with the run. This module does not decide which
//! connections are allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use stockade_core::network::{DeniedConnections, Host, Policy, Upstream};
use stockade_core::{Code, Problem, SandboxId};
use stockade_egress_control::{
    Credential, Error, Event, Installed, Message, Outcome, Owner, Process, Program, Report, Source,
};
use stockade_jail::network::Listeners;

use crate::problem::caused;
use crate::processes::EGRESS;
use crate::programs::{SERVER, build_argument, sibling_program};

/// How many hosts with their ports are remembered.
const MAX_OPENED: usize = 512;

/// How long the process may take to send its remaining reports and to end.
const GRACE: Duration = Duration::from_secs(5);

/// The program and arguments of the process.
fn program() -> Result<Program, Problem> {
    let arguments = vec![EGRESS.into(), build_argument()];
    Ok(Program { path: sibling_program(SERVER)?, arguments })
}

/// The only sandbox of a run.
#[derive(Debug)]
struct RunSource {
    id: SandboxId,
    policy: Policy,
    upstream: Option<Upstream>,
    reports_requests: bool,
    credentials: OnceLock<Vec<Credential>>,
}

impl Source for RunSource {
    fn sandboxes(&self) -> Vec<SandboxId> {
        vec![self.id.clone()]
    }

    fn policy(&self, sandbox: &SandboxId) -> Option<Policy> {
        (*sandbox == self.id).then(|| self.policy.clone())
    }

    fn upstream(&self, _: &SandboxId) -> Option<Upstream> {
        self.upstream.clone()
    }

    fn reports_requests(&self, _: &SandboxId) -> bool {
        self.reports_requests
    }

    fn credentials(&self, _: &SandboxId) -> Result<Vec<Credential>, Problem> {
        Ok(self.credentials.get().cloned().unwrap_or_default())
    }
}

/// The egress process before the sandbox has listeners. Dropping this ends the process.
#[derive(Debug)]
pub(crate) struct Egress {
    owner: Owner<()>,
    sandbox: Arc<RunSource>,
    traffic: Traffic,
}

/// What the process reported.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// The denied connections.
    pub(crate) refusals: DeniedConnections,
    /// The hosts and ports that were connected to, with the requests if all of them were reported.
    pub(crate) opened: BTreeMap<(Host, u16), Requested>,
}

/// The requests to a port of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Requested {
    /// The methods and paths, as far as they were reported.
    pub(crate) requests: BTreeSet<(String, String)>,
    /// Whether there was something that no rule about requests could allow.
    pub(crate) has_unread: bool,
}

/// The egress process while it serves the sandbox. Dropping this ends the process.
#[derive(Debug)]
pub(crate) struct RunningEgress {
    process: Process,
    receiver: Option<JoinHandle<Traffic>>,
}

impl Egress {
    /// Starts the process without waiting for it. It reports requests if a policy is learned.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub(crate) fn start(
        policy: Policy,
        upstream: Option<Upstream>,
        reports_requests: bool,
    ) -> Result<Self, Problem> {
        let failed = |cause: String| {
            Problem::new(Code::Io, "cannot start the egress process").because(cause)
        };
        stockade_jail::inherit_nothing().map_err(|error| failed(error.to_string()))?;
        let id = SandboxId::new("run").map_err(|error| caused(Code::Io, &error))?;
        let sandbox = Arc::new(RunSource {
            id,
            policy,
            upstream,
            reports_requests,
            credentials: OnceLock::new(),
        });
        let source = Arc::<RunSource>::clone(&sandbox);
        let mut owner = Owner::new(program()?, source);
        owner.add(sandbox.id.clone(), ());
        // The socket is blocking, and the end of the process is reported.
        let _ = owner.flush();
        let mut egress = Self { owner, sandbox, traffic: Traffic::default() };
        egress.drain_reports().map_err(|error| failed(reason(&error)))?;
        Ok(egress)
    }

    /// Sends the process the credentials that it must insert into requests. Returns the certificates
    /// (PEM) that programs inside must trust: those that this host trusts, and that of the authority
    /// which impersonates the hosts that the credentials are bound to.
    ///
    /// # Errors
    /// Why they are refused.
    pub(crate) fn set_credentials(
        &mut self,
        credentials: Vec<Credential>,
    ) -> Result<String, Problem> {
        // They are set only once.
        let _ = self.sandbox.credentials.set(credentials);
        self.owner.change_credentials(self.sandbox.id.clone(), ());
        match self.outcome() {
            Ok(installed) => Ok(installed.unwrap_or_default().authorities),
            Err(Error::Refused(problem)) => Err(problem),
            Err(error) => Err(not_served(&error)),
        }
    }

    /// Lets the process serve the sandbox's listeners, and starts a thread that receives its
    /// events.
    ///
    /// # Errors
    /// Why it does not serve.
    pub(crate) fn serve(mut self, listeners: &Listeners) -> Result<RunningEgress, Problem> {
        let owned = listeners.each().map(|listener| listener.try_clone_to_owned());
        let owned = owned.into_iter().collect::<Result<_, _>>();
        let owned = owned.map_err(|error| caused(Code::Io, &error))?;
        self.owner.listen(self.sandbox.id.clone(), owned, ());
        self.outcome().map_err(|error| not_served(&error))?;
        let Self { owner, mut traffic, .. } = self;
        let ended = || not_served(&Error::Ended("it closed its socket".to_owned()));
        let process = owner.into_process().ok_or_else(ended)?;
        let socket = Arc::clone(process.socket());
        let receiving = std::thread::Builder::new().name("egress".to_owned()).spawn(move || {
            while let Ok(Some(message)) = socket.receive() {
                if let Message::Event(event) = message {
                    count(&mut traffic, &event);
                }
            }
            traffic
        });
        let receiving = receiving.map_err(|error| caused(Code::Io, &error))?;
        Ok(RunningEgress { process, receiver: Some(receiving) })
    }

    /// Waits for the outcomes of all requests: the first failure, else the state of the credentials
    /// that one returned.
    fn outcome(&mut self) -> Result<Option<Installed>, Error> {
        self.owner.wait();
        self.drain_reports()
    }

    fn drain_reports(&mut self) -> Result<Option<Installed>, Error> {
        let mut found = Ok(None);
        while let Some(report) = self.owner.next_report() {
            match report {
                Report::Event(event) => count(&mut self.traffic, &event),
                Report::Answered { outcome: Ok(installed), .. } => {
                    found = found.map(|found| installed.or(found));
                }
                Report::Answered { outcome: Err(error), .. } => found = found.and(Err(error)),
                Report::Started | Report::Ended(_) => {}
            }
        }
        found
    }
}

/// The problem of a run whose sandbox is not served.
fn not_served(error: &Error) -> Problem {
    match error {
        Error::Authorities(_) => error.problem(),
        error => stockade_egress_control::not_served(reason(error)),
    }
}

/// The reason of an error, for a message that already names the process.
fn reason(error: &Error) -> String {
    match error {
        Error::Start(reason) | Error::Ended(reason) => reason.clone(),
        error => error.to_string(),
    }
}

/// Counts denied connections, and secrets whose placeholder was sent elsewhere.
fn count(traffic: &mut Traffic, event: &Event) {
    let Traffic { refusals, opened } = traffic;
    if let (Some(host), Some(port)) = (&event.host, event.port) {
        let place = (host.clone(), port);
        let has_room = opened.len() < MAX_OPENED;
        match &event.outcome {
            Outcome::Opened { .. } if has_room => {
                opened.entry(place).or_default();
            }
            Outcome::Requested { method, path } => {
                if let Some(of_host) = opened.get_mut(&place) {
                    of_host.requests.insert((method.clone(), path.clone()));
                }
            }
            Outcome::Unread => {
                if let Some(of_host) = opened.get_mut(&place) {
                    of_host.has_unread = true;
                }
            }
            _ => {}
        }
    }
    refusals.add_lost(event.lost);
    if let Some(refused) = event.denied_connection() {
        refusals.add(refused);
    }
    if let Some(misdirection) = event.misdirection() {
        refusals.add_misdirection(misdirection);
    }
}

impl RunningEgress {
    /// Ends the process. Returns what it reported, and why the process ended early, if it
    /// did.
    pub(crate) fn end(mut self) -> (Traffic, Option<String>) {
        let process = &mut self.process;
        let ended = process.has_ended();
        // The process sends its remaining reports once its owner makes no more requests. A process
        // that dies closes its sockets a moment before it is dead, so the connections that it served
        // may end first.
        let ended = ended.or_else(|| process.end(GRACE).filter(|status| !status.success()));
        let ended_early = ended.map(|status| {
            let reason = process.kill().unwrap_or_else(|| status.to_string());
            format!("the egress process exited early: {reason}")
        });
        let traffic = self.receiver.take().and_then(|receiving| receiving.join().ok());
        (traffic.unwrap_or_default(), ended_early)
    }
}
