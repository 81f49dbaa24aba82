//! The owner of the egress process: one state machine for a run and for a server. It numbers requests,
//! matches responses, watches deadlines, and starts the process again when it ends.
//!
//! ```text
//!            serve, add, start_at            add, listen, change …
//!   stopped ───────────────────────► running ──► waiting requests ──► responses ──► Report::Answered
//!      ▲                                │  end of the socket, or a deadline
//!      └── Report::Ended, then a pause ─┘
//! ```
//!
//! It never blocks. Its driver sends when the socket is writable ([`Owner::flush`]), receives when
//! it is readable ([`Owner::receive`]), calls [`Owner::tick`] at its [deadline](Owner::deadline),
//! and takes its [reports](Owner::next_report).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stockade_core::SandboxId;

use crate::credential::Values;
use crate::error::Error;
use crate::message::{Message, Request};
use crate::process::{Process, Program};
use crate::report::Report;
use crate::restart::Backoff;
use crate::running::{Running, Step, add_steps};
use crate::socket::OwnerSocket;
use crate::source::Source;

/// The owner. Dropping this ends the process.
#[derive(Debug)]
pub struct Owner<T> {
    program: Program,
    source: Arc<dyn Source>,
    running: Option<Running<T>>,
    /// Why no process runs, if none does.
    not_running: Error,
    backoff: Backoff,
    start_at: Option<Instant>,
    reports: VecDeque<Report<T>>,
}

impl<T> Owner<T> {
    /// An owner whose process is started by the first request that needs it.
    pub fn new(program: Program, source: Arc<dyn Source>) -> Self {
        Self {
            program,
            source,
            running: None,
            not_running: Error::Ended("it was not started".to_owned()),
            backoff: Backoff::default(),
            start_at: None,
            reports: VecDeque::new(),
        }
    }

    /// Serves a sandbox from the beginning, with the policy and the credentials of the source, and
    /// with values for some of them: the process has these before its first request arrives. A
    /// sandbox that was served under this id before is removed.
    pub fn serve(&mut self, sandbox: SandboxId, listeners: Vec<OwnedFd>, values: Values, token: T) {
        self.remove(sandbox.clone());
        self.start();
        self.request(sandbox, token, |sandbox, source| {
            let mut steps = add_steps(sandbox, source, values)?;
            steps.push(Step::new(Request::Listen { sandbox: sandbox.clone() }, listeners));
            Ok(steps)
        });
    }

    /// Adds a sandbox, with the policy and the credentials of the source. It has no network access
    /// before [`Owner::listen`].
    pub fn add(&mut self, sandbox: SandboxId, token: T) {
        self.start();
        self.request(sandbox, token, |sandbox, source| {
            add_steps(sandbox, source, Values::default())
        });
    }

    /// Serves a sandbox that was added.
    pub fn listen(&mut self, sandbox: SandboxId, listeners: Vec<OwnedFd>, token: T) {
        self.request(sandbox, token, |sandbox, _| {
            Ok(vec![Step::new(Request::Listen { sandbox: sandbox.clone() }, listeners)])
        });
    }

    /// Replaces the policy of a sandbox by that of the source. Connections that it allows continue.
    pub fn change_policy(&mut self, sandbox: SandboxId, token: T) {
        self.request(sandbox, token, |sandbox, source| {
            let policy = source.policy(sandbox).ok_or(Error::Withdrawn)?;
            Ok(vec![Step::new(Request::Change { sandbox: sandbox.clone(), policy }, Vec::new())])
        });
    }

    /// Replaces the policy and the credentials of a sandbox by those of the source.
    pub fn change_credentials(&mut self, sandbox: SandboxId, token: T) {
        self.give_values(sandbox, Values::default(), token);
    }

    /// The same, with values for some of the credentials. They are not kept here: a process that
    /// dies has the only copy.
    pub fn give_values(&mut self, sandbox: SandboxId, values: Values, token: T) {
        self.request(sandbox, token, |sandbox, source| {
            let mut credentials = source.credentials(sandbox).map_err(Error::Credentials)?;
            values.give(&mut credentials);
            Ok(vec![Step::credentials(sandbox, source, credentials)?])
        });
    }

    /// Stops serving a sandbox. No outcome is reported: a sandbox that is not served is no failure.
    pub fn remove(&mut self, sandbox: SandboxId) {
        if let Some(running) = &mut self.running {
            // A removal is never too long.
            let _ = running.send(Request::Remove { sandbox });
        }
    }

    /// Whether a request about a sandbox has no outcome yet.
    pub fn is_pending(&self, sandbox: &SandboxId) -> bool {
        self.running.as_ref().is_some_and(|running| running.is_pending(sandbox))
    }

    /// The socket of the running process. Each process has another one.
    pub fn socket(&self) -> Option<&Arc<OwnerSocket>> {
        self.running.as_ref().map(|running| running.process.socket())
    }

    /// The running process, for an owner that makes no more requests.
    pub fn into_process(self) -> Option<Process> {
        self.running.map(|running| running.process)
    }

    /// Whether a message waits for the socket to be writable.
    pub fn wants_to_send(&self) -> bool {
        self.running.as_ref().is_some_and(Running::wants_to_send)
    }

    /// Sends the messages that wait.
    ///
    /// # Errors
    /// `WouldBlock` if the socket is not writable now, and nothing else: a process that cannot be
    /// reached has ended, which is reported.
    pub fn flush(&mut self) -> io::Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        match running.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            Err(error) => self.end(&error.to_string()),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Receives one message.
    ///
    /// # Errors
    /// `WouldBlock` if there is none now, and nothing else: a process that sends an invalid message
    /// is killed, which is reported.
    pub fn receive(&mut self) -> io::Result<()> {
        let Some(running) = &mut self.running else { return Ok(()) };
        match running.process.socket().receive() {
            Ok(Some(Message::Event(event))) => self.reports.push_back(Report::Event(event)),
            Ok(Some(Message::Response { number, problem, installed })) => {
                self.reports.extend(running.handle_response(number, problem, installed));
            }
            Ok(None) => self.end("it closed its socket"),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            Err(error) => self.end(&error.to_string()),
        }
        Ok(())
    }

    /// What happened next, if anything did.
    pub fn next_report(&mut self) -> Option<Report<T>> {
        self.reports.pop_front()
    }

    /// When [`Owner::tick`] is to be called next.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.running {
            Some(running) => Some(running.deadline()),
            None => self.start_at,
        }
    }

    /// Does the work that is due: kills a process that did not answer, sends the name resolution
    /// files to a running one, and starts the next one.
    pub fn tick(&mut self, now: Instant) {
        self.expire(now);
        if let Some(running) = &mut self.running {
            running.refresh_names(now);
        } else if self.start_at.is_some_and(|at| at <= now) {
            self.start_at = None;
            if !self.source.sandboxes().is_empty() {
                self.start();
            }
        }
    }

    /// Ends a process that did not answer in time.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.answer_deadline().is_some_and(|deadline| deadline <= now) {
            self.end("it did not answer");
        }
    }

    /// When the process must have answered, if a request has no response.
    pub(crate) fn answer_deadline(&self) -> Option<Instant> {
        self.running.as_ref().and_then(Running::answer_deadline)
    }

    /// Makes the messages of a request, and puts them into the outbox. A failure is reported.
    fn request(
        &mut self,
        sandbox: SandboxId,
        token: T,
        steps: impl FnOnce(&SandboxId, &dyn Source) -> Result<Vec<Step>, Error>,
    ) {
        let (sandbox, token, error) = match &mut self.running {
            None => (sandbox, token, self.not_running.clone()),
            Some(running) => match steps(&sandbox, &*self.source) {
                Err(error) => (sandbox, token, error),
                Ok(steps) => match running.request(sandbox, token, steps) {
                    Ok(()) => return,
                    Err((sandbox, token)) => (sandbox, token, Error::TooLong),
                },
            },
        };
        self.reports.push_back(Report::Answered { token, sandbox, outcome: Err(error) });
    }

    /// Starts the process, unless it runs. A failure is reported, and the next start is later.
    fn start(&mut self) {
        if self.running.is_some() {
            return;
        }
        self.start_at = None;
        match Process::start(&self.program).and_then(Running::new) {
            Ok(running) => {
                self.running = Some(running);
                self.reports.push_back(Report::Started);
            }
            Err(error) => self.process_ended(Error::Start(error.to_string()), Duration::ZERO),
        }
    }

    /// Ends the process, for this reason unless it wrote another one.
    pub fn end(&mut self, reason: &str) {
        let Some(mut running) = self.running.take() else { return };
        let written = running.process.kill();
        let error = Error::Ended(written.unwrap_or_else(|| reason.to_owned()));
        self.process_ended(error.clone(), running.since.elapsed());
        self.reports.extend(running.fail_all(&error));
    }

    fn process_ended(&mut self, error: Error, ran: Duration) {
        self.not_running = error.clone();
        self.reports.push_back(Report::Ended(error));
        self.start_at = Some(Instant::now() + self.backoff.pause(ran));
    }
}

#[cfg(test)]
mod tests;
