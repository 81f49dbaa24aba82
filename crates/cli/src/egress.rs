//! The process that is the only way out of sandboxes, and its owner's side for one run: it is started,
//! given the sandbox's listeners, and heard to its end. What it lets through is not decided here.

use std::io::{Read as _, Seek as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stockade_core::network::{Policy, Refusals};
use stockade_core::{Code, Problem, SandboxId};
use stockade_egress::control::{Ask, Said};
use stockade_egress::owner::{self, Process, Program};
use stockade_egress::{Credential, Event};
use stockade_jail::network::Listeners;
use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::{confined, seccomp};

use crate::problem::caused;
use crate::processes::{EGRESS, OURSELVES};

/// How long it may take to answer, on a machine under heavy load.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take to tell what is left and to end.
const GRACE: Duration = Duration::from_secs(5);

/// How that process is started, for a run or a server.
pub(crate) fn program() -> Program {
    Program { path: OURSELVES.into(), arguments: vec![EGRESS.into()] }
}

/// Is that process. Its standard input is the socket of its owner.
pub(crate) fn process() -> u8 {
    let serve = || -> Result<(), Box<dyn std::error::Error>> {
        let owner = std::io::stdin().as_fd().try_clone_to_owned()?;
        // Made before the walls, behind which no thread can be started and no file opened.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Each connection needs two descriptors, and many systems give 1024 to begin with.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
        confined::confine(&ResourceLimits::default())?;
        seccomp::install(seccomp::traffic_program())?;
        Ok(runtime.block_on(stockade_egress::serve(owner))?)
    };
    match serve() {
        Ok(()) => 0,
        Err(error) => {
            let mut text = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            // Whoever started it reads this.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
            1
        }
    }
}

/// The process, seen by its owner. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct Egress {
    process: Process,
    sandbox: SandboxId,
    /// How many questions were asked, and how many of them are not answered yet.
    asked: u64,
    unanswered: u64,
    heard: Refusals,
}

/// The process at work. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct Serving {
    process: Process,
    listening: Option<JoinHandle<Refusals>>,
}

impl Egress {
    /// Starts the process, and does not wait for it.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub(crate) fn start(policy: Policy) -> Result<Self, Problem> {
        let failed = |error: std::io::Error| {
            Problem::new(Code::Io, "cannot start the sandbox's way out").because(error.to_string())
        };
        stockade_jail::inherit_nothing().map_err(failed)?;
        let process = Process::start(&program()).map_err(failed)?;
        let sandbox = SandboxId::new("run").map_err(|error| caused(Code::Io, &error))?;
        let (asked, heard) = (owner::NAMES, Refusals::default());
        let mut egress = Self { process, sandbox, asked, unanswered: 1, heard };
        let add = Ask::Add { sandbox: egress.sandbox.clone(), policy };
        egress.ask(add, &[]).map_err(failed)?;
        Ok(egress)
    }

    /// Gives it the credentials that it puts into requests. The certificates (PEM) that programs inside
    /// have to believe: those that this host believes, and the one of the authority that shows itself
    /// in the place of the hosts that the credentials are bound to.
    ///
    /// # Errors
    /// Why they are not taken.
    pub(crate) fn give(&mut self, credentials: Vec<Credential>) -> Result<String, Problem> {
        let unsupported = |error: std::io::Error| {
            Problem::new(
                Code::Unsupported,
                "secrets need the certificates of this host's authorities",
            )
            .because(error.to_string())
            .remedied_by("sudo apt-get install ca-certificates")
        };
        let mut file = stockade_egress::authorities().map_err(unsupported)?;
        let mut believed = Vec::new();
        file.read_to_end(&mut believed).map_err(unsupported)?;
        file.rewind().map_err(unsupported)?;
        // What is between the certificates is for people.
        let mut believed = String::from_utf8_lossy(&believed).into_owned();
        let give = Ask::Credentials { sandbox: self.sandbox.clone(), credentials };
        let asked = self.ask(give, &[file.as_fd()]);
        let authority = asked.map_err(|error| error.to_string()).map_err(Failure::Lost);
        let authority =
            authority.and_then(|()| self.answers()).map_err(|failure| match failure {
                Failure::Refused(problem) => problem,
                Failure::Lost(cause) => self.lost(cause),
            })?;
        if !believed.ends_with('\n') {
            believed.push('\n');
        }
        Ok(believed + &authority.unwrap_or_default())
    }

    /// Has it serve the sandbox's listeners, and hears it from now on: on a thread of its own.
    ///
    /// # Errors
    /// Why it does not serve.
    pub(crate) fn serve(mut self, listeners: &Listeners) -> Result<Serving, Problem> {
        let listen = Ask::Listen { sandbox: self.sandbox.clone() };
        let asked = self.ask(listen, &listeners.each());
        let asked = asked.map_err(|error| Failure::Lost(error.to_string()));
        asked.and_then(|()| self.answers()).map_err(|failure| {
            let cause = match failure {
                Failure::Lost(cause) => cause,
                Failure::Refused(Problem { message, cause: Some(cause), .. }) => {
                    format!("{message}: {cause}")
                }
                Failure::Refused(Problem { message, .. }) => message,
            };
            self.lost(cause)
        })?;
        let Self { process, mut heard, .. } = self;
        let owner = Arc::clone(process.owner());
        let listening = std::thread::Builder::new().name("egress".to_owned()).spawn(move || {
            while let Ok(Some(said)) = owner.hear() {
                if let Said::Event(event) = said {
                    hear(&mut heard, &event);
                }
            }
            heard
        });
        let listening = listening.map_err(|error| caused(Code::Io, &error))?;
        Ok(Serving { process, listening: Some(listening) })
    }

    fn lost(&mut self, cause: String) -> Problem {
        Problem::new(Code::WallUnavailable, "the sandbox's way out cannot be served")
            .because(self.process.last_words().unwrap_or(cause))
            .remedied_by("stockade doctor")
    }

    fn ask(&mut self, ask: Ask, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        self.asked += 1;
        self.process.owner().ask(self.asked, ask, descriptors)?;
        self.unanswered += 1;
        Ok(())
    }

    /// Waits for the answers to all that was asked, and gives the authority that one of them names.
    fn answers(&mut self) -> Result<Option<String>, Failure> {
        let lost = |error: &dyn std::fmt::Display| Failure::Lost(error.to_string());
        let deadline = Instant::now() + PATIENCE;
        let mut found = None;
        while self.unanswered > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(|error| lost(&error))?;
            let mut waiting = [PollFd::new(&**self.process.owner(), PollFlags::IN)];
            match poll(&mut waiting, Some(&timeout)) {
                Ok(0) => return Err(lost(&"it did not answer")),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(lost(&errno)),
            }
            match self.process.owner().hear().map_err(|error| lost(&error))? {
                None => return Err(lost(&"it has ended")),
                Some(Said::Event(event)) => hear(&mut self.heard, &event),
                Some(Said::Answer { problem, authority, .. }) => {
                    self.unanswered -= 1;
                    found = authority.or(found);
                    if let Some(problem) = problem {
                        return Err(Failure::Refused(problem));
                    }
                }
            }
        }
        Ok(found)
    }
}

/// Why something that was asked was not done.
enum Failure {
    /// It was refused.
    Refused(Problem),
    /// Nobody has answered.
    Lost(String),
}

/// Counts what an event tells.
fn hear(heard: &mut Refusals, event: &Event) {
    heard.lose(event.lost);
    if let Some(refused) = event.refused() {
        heard.add(refused);
    }
}

impl Serving {
    /// Ends it, and gives what it told.
    ///
    /// # Errors
    /// In words, when it had ended before.
    pub(crate) fn end(mut self) -> (Refusals, Option<String>) {
        let process = &mut self.process;
        let ended = process.has_ended();
        // It tells what is left to whoever asks no more. One that dies has let go of its sockets a
        // moment before it is dead, so that what it served may be over first.
        let farewell = process.end(GRACE).filter(|status| !status.success());
        let ended_early = ended.or(farewell).map(|status| {
            let words = process.last_words().unwrap_or_else(|| status.to_string());
            format!("the sandbox's way out ended early: {words}")
        });
        let heard = self.listening.take().and_then(|listening| listening.join().ok());
        (heard.unwrap_or_default(), ended_early)
    }
}
