//! The task that has the process: starts it when somebody is to be served, asks it, hears it, and
//! starts it again when it ends or is silent. It waits for no runtime and no disk.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net;
use std::sync::Arc;
use std::time::Duration;

use stockade_api::Result;
use stockade_core::network::Policy;
use stockade_core::{Problem, SandboxId};
use stockade_egress::control::{Ask, Said};
use stockade_egress::owner::{NAMES, Process, Program, names};
use stockade_runtime::Listeners;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::ledger::{Ledger, Member};
use super::record::First;
use super::{PATIENCE, closed, gone, told};

/// How often it is told anew how names are found. One that does not answer then has ended.
const NAMES_INTERVAL: Duration = Duration::from_secs(30);
/// How long a process must live so that its end is nothing that repeats itself.
const STEADY: Duration = Duration::from_secs(10);
/// How long is waited before one that does not live is started again: each time twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Whoever asked that a sandbox be served.
pub(super) type Asker = Option<oneshot::Sender<Result<()>>>;

/// What the task is told.
#[derive(Debug)]
pub(super) enum Command {
    /// Serve a sandbox with these listeners.
    Serve {
        member: Member,
        listeners: Listeners,
        /// Who is told how that went; those that are served again have nobody.
        answer: Asker,
    },
    /// Have another policy hold for one that is served.
    Change { id: SandboxId, policy: Policy, answer: Asker },
    /// Serve it no more.
    Leave { id: SandboxId },
}

/// A question that has no answer yet.
#[derive(Debug)]
struct Asked {
    /// Who is to be served, where that is the question.
    id: Option<SandboxId>,
    until: Instant,
    answer: Asker,
}

/// The process.
#[derive(Debug)]
struct Living {
    process: Process,
    socket: UnixDatagram,
    since: Instant,
    /// When it is told next how names are found.
    names_at: Instant,
}

/// Everything that the task has.
#[derive(Debug)]
pub(super) struct Supervisor {
    program: Program,
    ledger: Arc<Ledger>,
    /// Where refusals go that were not heard before.
    first: mpsc::Sender<First>,
    /// The way back to this task.
    again: mpsc::WeakSender<Command>,
    living: Option<Living>,
    /// The number of the last question.
    number: u64,
    asked: BTreeMap<u64, Asked>,
    /// How often in a row it did not live, and when it is started again.
    failures: u32,
    start_at: Option<Instant>,
    restoring: Option<JoinHandle<()>>,
}

impl Supervisor {
    pub(super) const fn new(
        program: Program,
        ledger: Arc<Ledger>,
        first: mpsc::Sender<First>,
        again: mpsc::WeakSender<Command>,
    ) -> Self {
        Self {
            program,
            ledger,
            first,
            again,
            living: None,
            number: NAMES,
            asked: BTreeMap::new(),
            failures: 0,
            start_at: None,
            restoring: None,
        }
    }

    /// Works until nobody can ask any more, or the service stops; the process ends with it.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut stopped: watch::Receiver<bool>,
    ) {
        loop {
            let silent = self.asked.values().map(|asked| asked.until).min();
            let names_at = self.living.as_ref().map(|living| living.names_at);
            tokio::select! {
                () = over(&mut stopped) => return,
                command = commands.recv() => match command {
                    Some(command) => self.obey(command).await,
                    None => return,
                },
                said = hear(self.living.as_ref()) => match said {
                    Ok(Some(Said::Answer { number, problem, .. })) => self.answered(number, problem),
                    Ok(Some(Said::Event(event))) => {
                        if let Some(first) = self.ledger.hear(&event) {
                            // What does not fit is in the ledger.
                            let _ = self.first.try_send(first);
                        }
                    }
                    Ok(None) => self.ended("it has ended"),
                    Err(error) => self.ended(&error.to_string()),
                },
                () = at(silent) => self.ended("it did not answer"),
                () = at(names_at) => self.tell_names().await,
                () = at(self.start_at) => self.start_again(),
            }
        }
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Serve { member, listeners, answer } => {
                let id = &member.id;
                let is_asked = self.asked.values().any(|asked| asked.id.as_ref() == Some(id));
                let is_again = answer.is_none() && (is_asked || self.ledger.is_served(id));
                // It may have left while its listeners were asked for.
                if is_again || !self.ledger.is_member(id) {
                    return;
                }
                match self.serve(&member, &listeners).await {
                    Ok(number) => {
                        let until = Instant::now() + PATIENCE;
                        self.asked.insert(number, Asked { id: Some(member.id), until, answer });
                    }
                    Err(problem) => {
                        self.ledger.close(&member.id, &told(&problem));
                        tell(answer, Err(problem));
                    }
                }
            }
            Command::Change { id, answer, .. } if !self.ledger.is_served(&id) => {
                tell(answer, Err(closed("it is not served")));
            }
            Command::Change { id, policy, answer } => {
                match self.ask(Ask::Change { sandbox: id.clone(), policy }, None).await {
                    Some(number) => {
                        let until = Instant::now() + PATIENCE;
                        self.asked.insert(number, Asked { id: Some(id), until, answer });
                    }
                    None => tell(answer, Err(gone("it was not told"))),
                }
            }
            Command::Leave { id } if !self.ledger.is_member(&id) => {
                self.ask(Ask::Remove { sandbox: id }, None).await;
            }
            // It is served again already.
            Command::Leave { .. } => {}
        }
    }

    /// Asks that a sandbox be served; the number of the question.
    async fn serve(&mut self, member: &Member, listeners: &Listeners) -> Result<u64> {
        if self.living.is_none() {
            self.start()?;
            self.restore();
        }
        // Whoever was served under the name is another one.
        self.ask(Ask::Remove { sandbox: member.id.clone() }, None).await;
        let add = Ask::Add { sandbox: member.id.clone(), policy: member.policy.clone() };
        let asked = self.ask(add, Some(listeners)).await;
        asked.ok_or_else(|| match &self.living {
            Some(_) => closed("its policy is too long to be told"),
            None => gone("it has ended"),
        })
    }

    /// Tells it how names are found, which changes with the networks of this machine.
    async fn tell_names(&mut self) {
        if let Some(living) = &mut self.living {
            living.names_at = Instant::now() + NAMES_INTERVAL;
        }
        if let Some(number) = self.ask(names(), None).await {
            let until = Instant::now() + PATIENCE;
            self.asked.insert(number, Asked { id: None, until, answer: None });
        }
    }

    /// Asks for something; the number of the question. One that cannot be asked has ended.
    async fn ask(&mut self, ask: Ask, listeners: Option<&Listeners>) -> Option<u64> {
        let living = self.living.as_ref()?;
        self.number += 1;
        let number = self.number;
        let asked = living.socket.async_io(Interest::WRITABLE, || {
            let descriptors = listeners.map(Listeners::each);
            living.process.owner().ask(
                number,
                ask.clone(),
                descriptors.as_ref().map_or(&[], |each| &each[..]),
            )
        });
        match timeout(PATIENCE, asked).await {
            Ok(Ok(())) => Some(number),
            // It is too long, which is not the process's fault.
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => None,
            Ok(Err(error)) => {
                self.ended(&error.to_string());
                None
            }
            Err(_) => {
                self.ended("it takes no questions");
                None
            }
        }
    }

    fn answered(&mut self, number: u64, problem: Option<Problem>) {
        let Some(asked) = self.asked.remove(&number) else { return };
        let Asked { id: Some(id), answer, .. } = asked else { return };
        let outcome = match problem {
            None => {
                self.ledger.open(&id);
                Ok(())
            }
            Some(problem) => {
                let problem = closed(told(&problem));
                self.ledger.close(&id, &told(&problem));
                Err(problem)
            }
        };
        tell(answer, outcome);
    }

    fn start(&mut self) -> Result<()> {
        self.start_at = None;
        let started = Process::start(&self.program).and_then(|process| {
            // The runtime asks of it only when it is ready; messages are read and sent by the owner.
            let socket = net::UnixDatagram::from(process.owner().as_fd().try_clone_to_owned()?);
            socket.set_nonblocking(true)?;
            let socket = UnixDatagram::from_std(socket)?;
            let since = Instant::now();
            Ok(Living { process, socket, since, names_at: since + NAMES_INTERVAL })
        });
        match started {
            Ok(living) => {
                self.number = NAMES;
                self.living = Some(living);
                Ok(())
            }
            Err(error) => {
                let problem = closed(format!("it cannot be started: {error}"));
                self.ledger.close_all(&told(&problem));
                self.start_later();
                Err(problem)
            }
        }
    }

    /// Starts it again, unless nobody needs it any more.
    fn start_again(&mut self) {
        self.start_at = None;
        if !self.ledger.members().is_empty() && self.start().is_ok() {
            self.restore();
        }
    }

    /// Has everybody served who was served by the last one. Their runtimes are asked beside this task.
    fn restore(&mut self) {
        let members = self.ledger.members();
        let again = self.again.clone();
        let restoring = tokio::spawn(async move {
            for member in members {
                // One whose listeners cannot be had now is looked after by its watcher.
                let asked = timeout(PATIENCE, member.runtime.listeners(&member.id));
                let Ok(Ok(listeners)) = asked.await else { continue };
                let Some(commands) = again.upgrade() else { return };
                let command = Command::Serve { member, listeners, answer: None };
                if commands.send(command).await.is_err() {
                    return;
                }
            }
        });
        if let Some(before) = self.restoring.replace(restoring) {
            before.abort();
        }
    }

    /// The process has ended, or is ended now: nobody is served, until it is started again.
    fn ended(&mut self, how: &str) {
        let Some(mut living) = self.living.take() else { return };
        let words = living.process.last_words();
        let problem = gone(words.as_deref().unwrap_or(how));
        self.ledger.close_all(&told(&problem));
        for asked in std::mem::take(&mut self.asked).into_values() {
            tell(asked.answer, Err(problem.clone()));
        }
        if living.since.elapsed() >= STEADY {
            self.failures = 0;
        }
        self.start_later();
    }

    /// Starts it again: at once after a steady life, else after a pause that grows.
    fn start_later(&mut self) {
        let pause = match self.failures {
            0 => Duration::ZERO,
            failures => FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(LONGEST_PAUSE),
        };
        self.failures = self.failures.saturating_add(1);
        self.start_at = Some(Instant::now() + pause);
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(restoring) = self.restoring.take() {
            restoring.abort();
        }
    }
}

fn tell(asker: Asker, outcome: Result<()>) {
    if let Some(asker) = asker {
        // Who does not wait any more need not be told.
        let _ = asker.send(outcome);
    }
}

/// What the process says next; waits for ever where there is none.
async fn hear(living: Option<&Living>) -> io::Result<Option<Said>> {
    let Some(living) = living else { return std::future::pending().await };
    living.socket.async_io(Interest::READABLE, || living.process.owner().hear()).await
}

/// Waits until the service stops.
async fn over(stopped: &mut watch::Receiver<bool>) {
    // One that is gone has stopped.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Waits until then; for ever where that is never.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
