//! The process that is the only way out of sandboxes, and its owner's side for one run: it is started,
//! given the sandbox's listeners, and heard to its end. What it lets through is not decided here.

use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stockade_core::network::{Policy, Refusals};
use stockade_core::{Code, Problem, SandboxId};
use stockade_egress::Event;
use stockade_egress::control::{Ask, Said};
use stockade_egress::owner::{self, Process, Program};
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
pub(crate) fn process() -> ExitCode {
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
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut text = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            // Whoever started it reads this.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// The process, seen by its owner. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct Egress {
    process: Process,
    policy: Policy,
}

/// The process at work. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct Serving {
    egress: Egress,
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
        Ok(Self { process: Process::start(&program()).map_err(failed)?, policy })
    }

    /// Has it serve a sandbox's listeners, and hears it from now on: on a thread of its own.
    ///
    /// # Errors
    /// Why it does not serve.
    pub(crate) fn serve(mut self, listeners: &Listeners) -> Result<Serving, Problem> {
        let sandbox = SandboxId::new("run").map_err(|error| caused(Code::Io, &error))?;
        let add = Ask::Add { sandbox, policy: self.policy.clone() };
        let asked = self.process.owner().ask(owner::NAMES + 1, add, &listeners.each());
        let mut heard = Refusals::default();
        asked.map_err(|error| error.to_string()).and_then(|()| self.answers(&mut heard)).map_err(
            |cause| {
                Problem::new(Code::WallUnavailable, "the sandbox's way out cannot be served")
                    .because(self.process.last_words().unwrap_or(cause))
                    .remedied_by("stockade doctor")
            },
        )?;
        let owner = Arc::clone(self.process.owner());
        let listening = std::thread::Builder::new().name("egress".to_owned()).spawn(move || {
            while let Ok(Some(said)) = owner.hear() {
                if let Said::Event(event) = said {
                    hear(&mut heard, &event);
                }
            }
            heard
        });
        let listening = listening.map_err(|error| caused(Code::Io, &error))?;
        Ok(Serving { egress: self, listening: Some(listening) })
    }

    /// Waits for the answers to both questions.
    fn answers(&self, heard: &mut Refusals) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        let mut missing = 2;
        while missing > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(|error| error.to_string())?;
            let mut waiting = [PollFd::new(&**self.process.owner(), PollFlags::IN)];
            match poll(&mut waiting, Some(&timeout)) {
                Ok(0) => return Err("it did not answer".to_owned()),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.to_string()),
            }
            match self.process.owner().hear().map_err(|error| error.to_string())? {
                None => return Err("it has ended".to_owned()),
                Some(Said::Event(event)) => hear(heard, &event),
                Some(Said::Answer { problem: None, .. }) => missing -= 1,
                Some(Said::Answer { problem: Some(problem), .. }) => {
                    let Problem { message, cause, .. } = problem;
                    return Err(match cause {
                        Some(cause) => format!("{message}: {cause}"),
                        None => message,
                    });
                }
            }
        }
        Ok(())
    }
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
        let process = &mut self.egress.process;
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
