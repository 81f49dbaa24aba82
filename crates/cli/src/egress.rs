//! The process that is the only way out of the sandbox of a run: started, given the sandbox's
//! listeners, and heard to its end. What it lets through is not decided here.

use std::collections::HashMap;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};
use serde::Serialize;
use stockade_core::network::{Host, Policy, Reason};
use stockade_core::{Code, Problem, SandboxId};
use stockade_egress::control::{Ask, Owner, Said};
use stockade_egress::{Event, Outcome, Way};
use stockade_jail::network::Listeners;
use stockade_jail::rlimits::ResourceLimits;
use stockade_jail::{confined, seccomp};

use crate::problem::caused;
use crate::processes::{EGRESS, OURSELVES};

/// How long it may take to answer, on a machine under heavy load.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take to tell what is left and to end.
const GRACE: Duration = Duration::from_secs(5);
/// How many refusals are told apart. What is more is counted.
const REFUSALS: usize = 256;
/// Where the host finds names.
const NAME_SERVERS: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";

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

/// One kind of refusal, and how often there was one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Refused {
    /// Who was asked for, where that could be understood.
    pub(crate) host: Option<Host>,
    /// At which port; none for a name that was looked up.
    pub(crate) port: Option<u16>,
    /// By which way it was asked first.
    pub(crate) way: Way,
    pub(crate) reason: Reason,
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) times: u64,
    /// The argument that lets it through, where there is one.
    pub(crate) allow: Option<String>,
}

/// What was told of a sandbox's traffic.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// In the order in which they came first.
    pub(crate) refused: Vec<Refused>,
    /// How many events were too many to be told.
    pub(crate) lost: u64,
    places: HashMap<(Option<Host>, Option<u16>, Reason), usize>,
}

impl Heard {
    fn hear(&mut self, event: Event) {
        let Event { way, host, port, outcome, lost, .. } = event;
        self.lost = self.lost.saturating_add(lost);
        let Outcome::Refused { reason, code, message } = outcome else { return };
        let known = self.places.get(&(host.clone(), port, reason)).copied();
        if let Some(refused) = known.and_then(|place| self.refused.get_mut(place)) {
            refused.times += 1;
        } else if self.refused.len() < REFUSALS {
            let allow = host.as_ref().and_then(|host| allowing(host, port, reason));
            self.places.insert((host.clone(), port, reason), self.refused.len());
            self.refused.push(Refused { host, port, way, reason, code, message, times: 1, allow });
        } else {
            self.lost += 1;
        }
    }
}

/// The argument of `stockade run` that would have let it through.
fn allowing(host: &Host, port: Option<u16>, reason: Reason) -> Option<String> {
    let is_to_be_named =
        matches!(reason, Reason::NotAllowed | Reason::PortNotAllowed | Reason::AddressNotAllowed);
    let target = match (host, port) {
        (host, None) => host.to_string(),
        (Host::Address(std::net::IpAddr::V6(address)), Some(port)) => format!("[{address}]:{port}"),
        (host, Some(port)) => format!("{host}:{port}"),
    };
    is_to_be_named.then(|| format!("--allow {target}"))
}

/// The process, seen by its owner. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct Egress {
    owner: Arc<Owner>,
    process: Child,
    policy: Policy,
}

/// The process at work. Dropping this ends it.
#[derive(Debug)]
pub(crate) struct Serving {
    egress: Egress,
    listening: Option<JoinHandle<Heard>>,
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
        let (owner, theirs) = Owner::pair().map_err(failed)?;
        stockade_jail::inherit_nothing().map_err(failed)?;
        let process = Command::new(OURSELVES)
            .arg(EGRESS)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // What is typed to end the command is for the command.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let egress = Self { owner: Arc::new(owner), process, policy };
        // Without them it asks this machine, and knows no name of its own.
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        let ask = Ask::Names { resolv_conf: text(NAME_SERVERS), hosts: text(HOSTS) };
        egress.owner.ask(0, ask, &[]).map_err(failed)?;
        Ok(egress)
    }

    /// Has it serve a sandbox's listeners, and hears it from now on: on a thread of its own.
    ///
    /// # Errors
    /// Why it does not serve.
    pub(crate) fn serve(mut self, listeners: &Listeners) -> Result<Serving, Problem> {
        let sandbox = SandboxId::new("run").map_err(|error| caused(Code::Io, &error))?;
        let add = Ask::Add { sandbox, policy: self.policy.clone() };
        let asked = self.owner.ask(1, add, &listeners.each());
        let mut heard = Heard::default();
        asked.map_err(|error| error.to_string()).and_then(|()| self.answers(&mut heard)).map_err(
            |cause| {
                Problem::new(Code::WallUnavailable, "the sandbox's way out cannot be served")
                    .because(self.last_words().unwrap_or(cause))
                    .remedied_by("stockade doctor")
            },
        )?;
        let owner = Arc::clone(&self.owner);
        let listening = std::thread::Builder::new().name("egress".to_owned()).spawn(move || {
            while let Ok(Some(said)) = owner.hear() {
                if let Said::Event(event) = said {
                    heard.hear(*event);
                }
            }
            heard
        });
        let listening = listening.map_err(|error| caused(Code::Io, &error))?;
        Ok(Serving { egress: self, listening: Some(listening) })
    }

    /// Waits for the answers to both questions.
    fn answers(&self, heard: &mut Heard) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        let mut missing = 2;
        while missing > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(|error| error.to_string())?;
            let mut waiting = [PollFd::new(&*self.owner, PollFlags::IN)];
            match poll(&mut waiting, Some(&timeout)) {
                Ok(0) => return Err("it did not answer".to_owned()),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.to_string()),
            }
            match self.owner.hear().map_err(|error| error.to_string())? {
                None => return Err("it has ended".to_owned()),
                Some(Said::Event(event)) => heard.hear(*event),
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

    /// What it said before it ended, where it did.
    fn last_words(&mut self) -> Option<String> {
        let _ = self.process.kill();
        let mut text = String::new();
        self.process.stderr.take()?.take(4096).read_to_string(&mut text).ok()?;
        Some(text).filter(|text| !text.is_empty())
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Serving {
    /// Ends it, and gives what it told.
    ///
    /// # Errors
    /// In words, when it had ended before.
    pub(crate) fn end(mut self) -> (Heard, Option<String>) {
        let ended_early = self.egress.process.try_wait().ok().flatten().map(|status| {
            let words = self.egress.last_words();
            format!(
                "the sandbox's way out ended early: {}",
                words.unwrap_or_else(|| status.to_string())
            )
        });
        // It tells what is left to whoever asks no more.
        let _ = shutdown(self.egress.owner.as_fd(), Shutdown::Write);
        let id = Pid::from_child(&self.egress.process);
        if let Ok(process) = pidfd_open(id, PidfdFlags::empty()) {
            let grace = Timespec { tv_sec: GRACE.as_secs().cast_signed(), tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&grace));
        }
        let _ = self.egress.process.kill();
        let heard = self.listening.take().and_then(|listening| listening.join().ok());
        (heard.unwrap_or_default(), ended_early)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_once_with_how_to_allow_them() {
        let event = |host: &str, port, reason| Event {
            at: "2026-11-22T00:00:00Z".parse().unwrap(),
            sandbox_id: SandboxId::new("run").unwrap(),
            way: Way::Direct,
            host: Some(host.parse().unwrap()),
            port,
            outcome: Outcome::Refused { reason, code: Code::EgressDenied, message: "no".into() },
            lost: 1,
        };
        let mut heard = Heard::default();
        for _ in 0..3 {
            heard.hear(event("a.example", None, Reason::NotAllowed));
        }
        heard.hear(event("a.example", Some(443), Reason::NotAllowed));
        heard.hear(event("2001:db8::1", Some(80), Reason::AddressNotAllowed));
        heard.hear(event("b.example", Some(80), Reason::InternalAddress));
        let told: Vec<_> =
            heard.refused.iter().map(|refused| (refused.times, refused.allow.as_deref())).collect();
        let expected = [
            (3, Some("--allow a.example")),
            (1, Some("--allow a.example:443")),
            (1, Some("--allow [2001:db8::1]:80")),
            (1, None),
        ];
        assert_eq!(told, expected);
        assert_eq!(heard.lost, 6);
        for number in 0..1000 {
            heard.hear(event(&format!("n{number}.example"), None, Reason::NotAllowed));
        }
        assert_eq!((heard.refused.len(), heard.lost), (REFUSALS, 6 + 1000 + 1000 - 252));
    }
}
