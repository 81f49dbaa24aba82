//! A running egress process with its state: messages that wait to be sent, messages without a
//! response, and the requests of the caller that they belong to.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use stockade_core::{Problem, SandboxId};
use zeroize::Zeroizing;

use crate::authorities::{self, Authorities};
use crate::credential::{Credential, Values};
use crate::error::Error;
use crate::message::{Envelope, Installed, Request, VERSION};
use crate::process::Process;
use crate::report::Report;
use crate::socket::{encode, send_bytes};
use crate::source::Source;

/// How long the process may take to answer, on a machine under heavy load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// How often the process receives the files for name resolution. A process that does not respond to
/// them is dead.
const NAMES_INTERVAL: Duration = Duration::from_secs(30);

/// The files with the name servers and host names of this machine.
const NAME_SERVERS: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";

/// A running process.
#[derive(Debug)]
pub(crate) struct Running<T> {
    pub(crate) process: Process,
    pub(crate) since: Instant,
    /// When the process receives the name resolution files next.
    names_at: Instant,
    /// The number of the last message.
    last_number: u64,
    outbox: VecDeque<Outgoing>,
    /// Messages without a response, by their numbers.
    unanswered: BTreeMap<u64, Unanswered>,
    /// Requests of the caller without an outcome, by the number of their last message.
    pending: BTreeMap<u64, Pending<T>>,
}

/// A message that was not sent yet.
#[derive(Debug)]
struct Outgoing {
    bytes: Zeroizing<Vec<u8>>,
    descriptors: Vec<OwnedFd>,
}

#[derive(Debug)]
struct Unanswered {
    /// When the process is considered dead.
    until: Instant,
    /// The request of the caller that the message belongs to, if there is one.
    pending: Option<u64>,
}

/// A request of the caller, which takes one message or several.
#[derive(Debug)]
struct Pending<T> {
    token: T,
    sandbox: SandboxId,
    /// How many of its messages have no response.
    unanswered: usize,
    /// The first refusal of one of them.
    problem: Option<Problem>,
    /// The certificates that this host trusts, if the request contains credentials.
    host_authorities: Option<String>,
    /// The state of the credentials.
    installed: Option<Installed>,
}

/// One message of a request.
#[derive(Debug)]
pub(crate) struct Step {
    request: Request,
    descriptors: Vec<OwnedFd>,
    host_authorities: Option<String>,
}

impl Step {
    pub(crate) const fn new(request: Request, descriptors: Vec<OwnedFd>) -> Self {
        Self { request, descriptors, host_authorities: None }
    }

    pub(crate) fn credentials(
        sandbox: &SandboxId,
        source: &dyn Source,
        credentials: Vec<Credential>,
    ) -> Result<Self, Error> {
        let policy = source.policy(sandbox).ok_or(Error::Withdrawn)?;
        let authorities = Authorities::of_caller();
        let file = authorities.file().map_err(|error| Error::Authorities(error.to_string()))?;
        Ok(Self {
            request: Request::Credentials { sandbox: sandbox.clone(), policy, credentials },
            descriptors: vec![file.into()],
            host_authorities: Some(authorities.text),
        })
    }
}

/// The messages that add a sandbox without listeners.
pub(crate) fn add_steps(
    sandbox: &SandboxId,
    source: &dyn Source,
    values: Values,
) -> Result<Vec<Step>, Error> {
    let policy = source.policy(sandbox).ok_or(Error::Withdrawn)?;
    let mut credentials = source.credentials(sandbox).map_err(Error::Credentials)?;
    values.give(&mut credentials);
    // Requests are read by the authority that comes with credentials, also with none.
    let reads = policy.has_request_rules();
    let mut steps = vec![Step::new(Request::Add { sandbox: sandbox.clone(), policy }, Vec::new())];
    if let Some(proxy) = source.upstream(sandbox) {
        let request = Request::UseUpstream { sandbox: sandbox.clone(), proxy };
        steps.push(Step::new(request, Vec::new()));
    }
    if source.reports_requests(sandbox) {
        let request = Request::ReportRequests { sandbox: sandbox.clone() };
        steps.push(Step::new(request, Vec::new()));
    }
    if reads || !credentials.is_empty() {
        steps.push(Step::credentials(sandbox, source, credentials)?);
    }
    Ok(steps)
}

/// The current files for name resolution. A missing file is empty: the process then queries the
/// name server of this machine, and knows no host names.
fn names() -> Request {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    Request::Names { resolv_conf: text(NAME_SERVERS), hosts: text(HOSTS) }
}

impl<T> Running<T> {
    /// A process that was just started. Its first message is the name resolution files.
    pub(crate) fn new(process: Process) -> io::Result<Self> {
        let since = Instant::now();
        let mut running = Self {
            process,
            since,
            names_at: since + NAMES_INTERVAL,
            last_number: 0,
            outbox: VecDeque::new(),
            unanswered: BTreeMap::new(),
            pending: BTreeMap::new(),
        };
        running.send_names()?;
        Ok(running)
    }

    /// When something is due next.
    pub(crate) fn deadline(&self) -> Instant {
        self.answer_deadline().map_or(self.names_at, |deadline| deadline.min(self.names_at))
    }

    /// When the process is considered dead, if it owes a response.
    pub(crate) fn answer_deadline(&self) -> Option<Instant> {
        self.unanswered.values().map(|unanswered| unanswered.until).min()
    }

    pub(crate) fn wants_to_send(&self) -> bool {
        !self.outbox.is_empty()
    }

    pub(crate) fn is_pending(&self, sandbox: &SandboxId) -> bool {
        self.pending.values().any(|pending| pending.sandbox == *sandbox)
    }

    /// Sends the name resolution files to the process if that is due: they change with the networks
    /// of this machine.
    pub(crate) fn refresh_names(&mut self, now: Instant) {
        if self.names_at <= now {
            self.names_at = now + NAMES_INTERVAL;
            // If the files have become too long, the process keeps the old ones.
            let _ = self.send_names();
        }
    }

    fn send_names(&mut self) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        let number = self.send(names())?;
        self.unanswered.insert(number, Unanswered { until, pending: None });
        Ok(())
    }

    /// Puts a message into the outbox, and returns its number. Its response is ignored.
    ///
    /// # Errors
    /// It is too long.
    pub(crate) fn send(&mut self, request: Request) -> io::Result<u64> {
        let number = self.last_number + 1;
        let bytes = encode(&Envelope { version: VERSION, number, request })?;
        self.last_number = number;
        self.outbox.push_back(Outgoing { bytes, descriptors: Vec::new() });
        Ok(number)
    }

    /// Puts all messages of a request into the outbox, or returns the request if one of them is too
    /// long.
    pub(crate) fn request(
        &mut self,
        sandbox: SandboxId,
        token: T,
        steps: Vec<Step>,
    ) -> Result<(), (SandboxId, T)> {
        let count = steps.len();
        let first = self.last_number + 1;
        let mut messages = Vec::with_capacity(count);
        let mut host_authorities = None;
        for (number, step) in (first..).zip(steps) {
            let envelope = Envelope { version: VERSION, number, request: step.request };
            let Ok(bytes) = encode(&envelope) else { return Err((sandbox, token)) };
            messages.push((number, Outgoing { bytes, descriptors: step.descriptors }));
            host_authorities = step.host_authorities.or(host_authorities);
        }
        let until = Instant::now() + PATIENCE;
        for (number, message) in messages {
            self.last_number = number;
            self.outbox.push_back(message);
            self.unanswered.insert(number, Unanswered { until, pending: Some(first) });
        }
        let pending = Pending {
            token,
            sandbox,
            unanswered: count,
            problem: None,
            host_authorities,
            installed: None,
        };
        self.pending.insert(first, pending);
        Ok(())
    }

    /// Sends the messages that wait, in their order.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(Outgoing { bytes, descriptors }) = self.outbox.front() {
            let descriptors: Vec<BorrowedFd<'_>> =
                descriptors.iter().map(|fd| fd.as_fd()).collect();
            send_bytes(self.process.socket(), bytes, &descriptors)?;
            self.outbox.pop_front();
        }
        Ok(())
    }

    /// Takes a response. A request that has all of its responses has an outcome, which is reported.
    pub(crate) fn handle_response(
        &mut self,
        number: u64,
        problem: Option<Problem>,
        installed: Option<Installed>,
    ) -> Option<Report<T>> {
        let first = self.unanswered.remove(&number)?.pending?;
        let pending = self.pending.get_mut(&first)?;
        pending.unanswered -= 1;
        // Later refusals are consequences of the first one.
        pending.problem = pending.problem.take().or(problem);
        if let Some(installed) = installed {
            let host = pending.host_authorities.take().unwrap_or_default();
            let authorities = authorities::append(host, &installed.authorities);
            pending.installed = Some(Installed { authorities, ..installed });
        }
        if pending.unanswered > 0 {
            return None;
        }
        let Pending { token, sandbox, problem: refused, installed, .. } =
            self.pending.remove(&first)?;
        let outcome = refused.map_or(Ok(installed), |problem| Err(Error::Refused(problem)));
        Some(Report::Answered { token, sandbox, outcome })
    }

    /// The outcomes of all requests when the process has ended.
    pub(crate) fn fail_all(self, error: &Error) -> impl Iterator<Item = Report<T>> {
        self.pending.into_values().map(|Pending { token, sandbox, .. }| {
            let outcome = Err(error.clone());
            Report::Answered { token, sandbox, outcome }
        })
    }
}
