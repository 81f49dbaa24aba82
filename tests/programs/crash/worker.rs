//! A client that does what clients do, and checks every response. It may be killed at any time, and
//! so may the keeper and the inits of its sandboxes.
//!
//! Each command adds a line to its own file inside before it does anything else, so that a command
//! that ran twice is found; and writes numbered lines, so that lost or doubled output is found.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::sockopt;
use stockade_core::network::Policy;
use stockade_core::sandbox::{LimitName, Limits};
use stockade_core::{ExecId, SandboxId, SandboxSpec, SnapshotId};
use stockade_runtime::{
    Capability, Command, Ending, Error, Event, ReadRange, Runtime as _, SandboxPath, StandardInput,
    State,
};
use stockade_runtime_native::Native;
use tokio::io::AsyncReadExt as _;

use crate::ledger::{self, Line};
use crate::random::Random;
use crate::{Failure, open};

/// How long any single operation may take, including restarts of keepers.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a sandbox lives that its client no longer renews: a killed client cannot end it.
const LEASE: Duration = Duration::from_secs(30);

/// Works until the end of standard input.
pub(crate) fn run(program: &Path, data: &Path, name: &str, seed: u64) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0; 1]);
        flag.store(true, Ordering::Relaxed);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let native = open(program, data)?;
        let has_network = native.supports(Capability::Egress).await.is_ok();
        let random = Random::new(seed);
        let mut worker = Worker { native, data, name, random, seed, created: 0, has_network };
        while !stop.load(Ordering::Relaxed) {
            let turn = tokio::time::timeout(TIMEOUT, worker.run_round()).await;
            let fault = match turn {
                Ok(Ok(())) => continue,
                Ok(Err(fault)) => fault.to_string(),
                Err(_) => "something took too long".to_owned(),
            };
            ledger::write(data, name, &Line::Fault(&fault))?;
        }
        Ok(())
    })
}

struct Worker<'a> {
    native: Native,
    data: &'a Path,
    name: &'a str,
    random: Random,
    seed: u64,
    created: u64,
    /// Whether this host can give sandboxes a network by policy.
    has_network: bool,
}

/// How an operation ended without a fault.
enum WorkOutcome {
    Done,
    /// The sandbox's init was killed, and everything in the sandbox with it.
    SandboxLost,
}

fn numbered(count: u64) -> String {
    (0..count).map(|line| format!("line {line}\n")).collect()
}

impl Worker<'_> {
    /// The life cycle of one sandbox.
    async fn run_round(&mut self) -> Result<(), Failure> {
        self.created += 1;
        let id =
            SandboxId::new(format!("{}-{:x}-{}", self.name, self.seed & 0xff_ffff, self.created))?;
        // Some have a limit that a helper of the keeper measures.
        let memory_bytes = (self.random.below(4) == 0).then_some(1 << 30);
        let network = (self.has_network && self.random.below(3) == 0).then(Policy::default);
        let spec = SandboxSpec {
            network,
            limits: Limits { memory_bytes, ..Limits::default() },
            best_effort: [LimitName::Memory.into()].into(),
            labels: [("worker".to_owned(), self.name.to_owned())].into(),
            environment: [("WORKER".to_owned(), self.name.into())].into(),
            lease: Some(LEASE),
            ..SandboxSpec::default()
        };
        let status = self.native.create(&id, &spec).await?;
        ledger::write(self.data, self.name, &Line::Sandbox)?;
        if status.id != id || status.labels != spec.labels {
            return Err(format!("{id} was made otherwise: {status:?}").into());
        }
        let mut ways_out = None;
        for at in 0..1 + self.random.below(4) {
            let worked = match self.request_egress(&id, &spec, &mut ways_out).await {
                Ok(()) => self.work(&id, at).await,
                Err(error) => Err(error),
            };
            match worked {
                Ok(WorkOutcome::Done) => {}
                Ok(WorkOutcome::SandboxLost) => {
                    ledger::write(self.data, self.name, &Line::Interrupted)?;
                    break;
                }
                Err(error) => {
                    // With its init, a sandbox loses its processes, and reports that.
                    let lost = self.native.inspect(&id).await;
                    if !lost.is_ok_and(|status| status.state == State::Ended) {
                        return Err(format!("{id}: {error}").into());
                    }
                    ledger::write(self.data, self.name, &Line::Interrupted)?;
                    break;
                }
            }
        }
        self.native.cleanup(&id).await?;
        match self.native.inspect(&id).await {
            Err(Error::NoSandbox(_)) => Ok(()),
            other => Err(format!("{id} is there after its end: {other:?}").into()),
        }
    }

    /// The listeners of a network stay the same, whichever process was killed meanwhile.
    async fn request_egress(
        &self,
        id: &SandboxId,
        spec: &SandboxSpec,
        known: &mut Option<[u64; 4]>,
    ) -> Result<(), Failure> {
        match (self.native.listeners(id).await, &spec.network) {
            (Err(Error::Invalid(_)), None) => Ok(()),
            (Ok(listeners), Some(_)) => {
                let mut found = [0; 4];
                for (found, socket) in found.iter_mut().zip(listeners.each()) {
                    *found = sockopt::socket_cookie(socket)?;
                }
                if *known.get_or_insert(found) == found {
                    return Ok(());
                }
                Err(format!("the ways out were {known:?}, and are {found:?}").into())
            }
            (Ok(_), None) => Err("there are ways out of no network".into()),
            (Err(error), _) => Err(error.into()),
        }
    }

    async fn work(&mut self, id: &SandboxId, at: u64) -> Result<WorkOutcome, Failure> {
        let exec = ExecId::new(format!("e{at}"))?;
        match self.random.below(8) {
            0 => {
                self.native.pause(id).await?;
                self.native.resume(id).await?;
            }
            1 => {
                let snapshot = SnapshotId::new(id.as_str())?;
                self.native.snapshot(id, &snapshot).await?;
                self.native.remove_snapshot(&snapshot).await?;
            }
            2 => self.native.renew(id, Some(LEASE)).await?,
            _ => {}
        }
        let pause = if self.random.below(2) == 0 { "sleep 0.05;" } else { "" };
        // The command itself writes the lines, or its input contains them.
        let (input, writes, lines) = if self.random.below(3) == 0 {
            let text = numbered(self.random.below(20_000));
            let input = StandardInput::Whole(text.clone().into_bytes());
            (input, "cat".to_owned(), text)
        } else {
            let count = 1 + self.random.below(200);
            let writes =
                format!("i=0; while [ $i -lt {count} ]; do echo line $i; i=$((i+1)); done");
            (StandardInput::Empty, writes, numbered(count))
        };
        let script = format!("echo once >>/tmp/{exec}; {writes}; {pause} echo end; exit 7");
        let command = Command {
            arguments: vec!["sh".into(), "-c".into(), script.into()],
            input,
            timeout: Some(Duration::from_secs(30)),
            ..Command::default()
        };
        let mut running = self.native.execute(id, &exec, &command).await?;
        let (mut seen, mut expected, mut lost) = (Vec::new(), 0, false);
        let ending = loop {
            match running.events.next().await {
                Some(Event::Output { offset, bytes, .. }) => {
                    if offset != expected {
                        return Err(format!("output at {offset} instead of {expected}").into());
                    }
                    expected += bytes.len() as u64;
                    seen.extend(bytes);
                }
                Some(Event::Lost { .. }) => lost = true,
                Some(Event::RefusedCalls(_)) => {}
                Some(Event::Ended(ending)) => break ending,
                None => return Err("the events ended without an end".into()),
            }
        };
        match ending {
            Ending::Exited(7) if !lost => {}
            Ending::SandboxEnded => return Ok(WorkOutcome::SandboxLost),
            other => return Err(format!("{exec} ended as {other:?}, lost {lost}").into()),
        }
        let whole = lines + "end\n";
        if seen != whole.as_bytes() {
            return Err(format!("{exec} wrote {} bytes of {}", seen.len(), whole.len()).into());
        }
        let path = SandboxPath::new(format!("/tmp/{exec}"))?;
        let mut content = self.native.read_file(id, &path, ReadRange::default()).await?;
        let mut count = String::new();
        content.read_to_string(&mut count).await?;
        if count != "once\n" {
            return Err(format!("{exec} ran {} times", count.lines().count()).into());
        }
        self.native.acknowledge(id, &exec).await?;
        ledger::write(self.data, self.name, &Line::Command)?;
        Ok(WorkOutcome::Done)
    }
}
