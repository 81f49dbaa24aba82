//! A `<Sandbox>` that a runtime of this host executes: it is made, given its request, and left to the
//! child's program or the author's command, and its result is copied out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use stockade_api::{CommandLine, CreateSandbox, Execute, Waiting};
use stockade_core::egress::Contract;
use stockade_core::sandbox::{HostMount, Workspace};

use tokio::sync::OwnedSemaphorePermit;

use super::held::{Ended, Held, Waited};
use super::nested::{Lineage, Next};
use super::place::{Place, sandbox_name};
use super::provider::Remote;
use super::{Collected, Given, Try, failed, is_stopped, request, result, waiting};
use crate::engine::clock::now_ms;
use crate::engine::commands::RUN_LABEL;
use crate::engine::timings::Operation;
use crate::engine::trouble::Trouble;
use crate::graph::{Sandbox, ToolLimits};
use crate::store::sandboxes::{self, Pause, SandboxRow, Stage};

/// How often a command is begun whose beginner was killed.
const MAX_BEGUN: u32 = 64;
/// Where our own program is inside.
const PROGRAMS: &str = "/opt/stockade/bin";

/// What came of a command.
enum Work {
    /// It gave a result.
    Collected(Box<Collected>),
    /// It waits.
    Waits(Waiting),
}

impl Try {
    /// Everything up to the review.
    pub(super) async fn execute(
        &self,
        sandbox: &Sandbox,
        kept: Option<SandboxRow>,
    ) -> Result<Given, Trouble> {
        if kept.is_none() {
            self.notes.keep(vec![self.notes.stage("initializing", 0)], Vec::new()).await?;
        }
        let held = self.held()?;
        let contract = request::contract(sandbox)?;
        let local = request::local(sandbox, contract.as_ref(), &self.environment)?;
        let pause = kept.as_ref().and_then(SandboxRow::pause);
        let place = self.place(sandbox, local.runtime, pause.is_some()).await?;
        let worked = Duration::from_millis(pause.map_or(0, |pause| pause.worked_ms));
        let rounds = self.rounds(sandbox, kept, &held, (&local, contract.as_ref()), place);
        let done = match self.in_time(worked, rounds).await {
            Ok(Round::Collected(collected)) => self.gathered(&held, *collected, true).await,
            Ok(Round::Waits(pause)) => match self.pause(&held, pause).await {
                Ok(given) => return Ok(given),
                Err(trouble) => Err(trouble),
            },
            Err(trouble) => Err(trouble),
        };
        // In every case: what it gave is on the host by now.
        let is_over = !is_stopped(&done);
        if is_over && sandbox.allow_nested {
            self.end_inner().await;
        }
        let end = async {
            if is_over {
                let ends = Instant::now();
                held.end().await;
                let runtime = request::runtime(sandbox);
                self.state.cleanup_times.count(&self.owner, runtime, ends.elapsed());
            }
        };
        tokio::join!(self.concluded(sandbox, done), end).0
    }

    /// Executes until there is a result, or somebody has to say something first. What a child waits
    /// for that the host can do is done in between; it has no place meanwhile, for nothing is under
    /// way in it, and what it asked for may need one.
    async fn rounds(
        &self,
        sandbox: &Sandbox,
        mut kept: Option<SandboxRow>,
        held: &Held,
        (local, contract): (&request::Local, Option<&Contract>),
        mut place: OwnedSemaphorePermit,
    ) -> Result<Round, Trouble> {
        let began = Instant::now();
        let before = kept.as_ref().and_then(SandboxRow::pause);
        let worked_before = before.as_ref().map_or(0, |pause| pause.worked_ms);
        let mut next = before;
        loop {
            if let Some(pause) = next {
                drop(place);
                match self.see_to_inner(sandbox, held, pause).await? {
                    Next::Wait(pause) => return Ok(Round::Waits(pause)),
                    Next::Resume(pause) => {
                        let is_kept = |kept: &SandboxRow| kept.pause().as_ref() == Some(&pause);
                        if !kept.as_ref().is_some_and(is_kept) {
                            let row = sandboxes::resume(&self.run, &self.key, &pause, now_ms());
                            self.notes.keep(Vec::new(), vec![row]).await?;
                            kept = self.kept().await?;
                        }
                    }
                }
                place = self.place(sandbox, local.runtime, true).await?;
            }
            let rounds = kept.as_ref().and_then(SandboxRow::pause).map_or(0, |pause| pause.rounds);
            let work = self.executed(sandbox, kept.take(), held, local, contract).await?;
            let Waiting { run: child, waits } = match work {
                Work::Collected(collected) => return Ok(Round::Collected(collected)),
                Work::Waits(waiting) => waiting,
            };
            let worked = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let worked_ms = worked_before.saturating_add(worked);
            let rounds = rounds.saturating_add(1);
            next = Some(Pause { rounds, child, waits, answers: Vec::new(), worked_ms });
            kept = self.kept().await?;
        }
    }

    /// What comes of the work, if it does in the time that it may take altogether: `timeoutMs` bounds
    /// what is done inside, and neither a wait for somebody nor a review.
    async fn in_time<T>(
        &self,
        worked: Duration,
        work: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        let Some(limit) = self.task.timeout else { return work.await };
        let left = limit.saturating_sub(worked);
        tokio::time::timeout(left, work).await.unwrap_or_else(|_| {
            let (id, limit) = (&self.key.node, limit.as_millis());
            let message = format!("sandbox \"{id}\" took longer than {limit} ms");
            Err(Trouble::new("TASK_TIMEOUT", message).retryable())
        })
    }

    /// Makes the sandbox, executes, and collects what it gave.
    async fn executed(
        &self,
        sandbox: &Sandbox,
        kept: Option<SandboxRow>,
        held: &Held,
        local: &request::Local,
        contract: Option<&Contract>,
    ) -> Result<Work, Trouble> {
        let (run, key, notes) = (&self.run, &self.key, &self.notes);
        let timings = &notes.timings;
        let runtime = request::runtime(sandbox);
        let place = self.directory()?;
        let child = child_id(held);
        let pause = kept.as_ref().and_then(SandboxRow::pause);
        let is_shipped = kept.as_ref().is_some_and(|kept| kept.stage == Stage::Shipped);
        let is_again = kept.is_some();
        let (began, base_ref) = self.begin(sandbox, kept, local.runtime).await?;
        let environment = self.inside(local.environment.clone());
        if !is_shipped {
            let request = self.request(sandbox, runtime, contract, (&place, is_again));
            let size = timings.measure(Operation::Ship, request).await?;
            let asked = self.asked(&place, local)?;
            let made = async {
                held.create(asked).await?;
                // The child's own program makes it by itself.
                match &sandbox.command {
                    Some(_) => held.make_directory("result", request::RESULT).await,
                    None => Ok(()),
                }
            };
            timings.measure(Operation::Create, made).await?;
            let shipped = notes
                .event("SandboxShipped", json!({ "runtime": runtime, "bundleSizeBytes": size }));
            let events = vec![shipped, notes.stage("shipped", 25), notes.stage("executing", 40)];
            notes.keep(events, vec![sandboxes::ship(run, key, now_ms())]).await?;
        }
        if let Some(pause) = &pause {
            held.wake().await.map_err(waiting::lost)?;
            self.hand_over(held, pause).await?;
        }
        let rounds = pause.map_or(0, |pause| pause.rounds);
        let (command_line, tools) = (sandbox.command.as_deref(), self.tools(sandbox));
        let command = result::command(command_line, &child, tools, sandbox.allow_nested);
        let executed = self.command(held, rounds, (&command, tools), &environment);
        let ended = timings.measure(Operation::Execute, executed).await?;
        if let Some(waits) = waiting::read(held, &ended).await? {
            return Ok(Work::Waits(waits));
        }
        let beat = notes.event("SandboxHeartbeat", json!({ "remoteRunId": child, "progress": 1 }));
        notes.keep(vec![notes.stage("child-finished", 70), beat], Vec::new()).await?;
        let into = place.fresh("result")?;
        let is_default = sandbox.command.is_none();
        let collected = result::collect(held, &into, &ended, (is_default, tools));
        let (bundle, unsynced) = timings.measure(Operation::Collect, collected).await?;
        let remote = Remote { run_id: bundle.manifest.run_id.clone(), ..Remote::default() };
        let path = place.path.join("result");
        let collected = Collected { into, path, bundle, unsynced, began, base_ref, remote };
        Ok(Work::Collected(Box::new(collected)))
    }

    /// Has a command executed, whatever becomes of who waits for it. `rounds` is how often it was
    /// executed to its end before.
    async fn command(
        &self,
        held: &Held,
        rounds: u32,
        (command, tools): (&CommandLine, ToolLimits),
        environment: &BTreeMap<String, String>,
    ) -> Result<Ended, Trouble> {
        // A workflow is no tool: its own commands are.
        let limit = tools.timeout.filter(|_| matches!(command, CommandLine::Shell(_)));
        let output_bytes = usize::try_from(request::output_bytes(tools)).unwrap_or(usize::MAX);
        for number in 1..=MAX_BEGUN {
            let number = rounds * MAX_BEGUN + number;
            let execute = Execute {
                environment: environment.clone(),
                working_directory: Some(request::WORKSPACE.to_owned()),
                timeout_seconds: limit.map(|limit| limit.as_secs_f64()),
                ..Execute::new(held.sandbox_id(), command.clone())
            };
            let operation = held.execute(number, execute).await?;
            loop {
                match held.wait(&operation, output_bytes).await? {
                    Waited::Ended(ended) => return Ok(ended),
                    Waited::NeverBegun => break,
                    Waited::On => {
                        let more = json!({ "remoteRunId": child_id(held) });
                        let beat = self.notes.event("SandboxHeartbeat", more);
                        let row = sandboxes::heartbeat(&self.run, &self.key, now_ms());
                        self.notes.keep(vec![beat], vec![row]).await?;
                    }
                }
            }
        }
        Err(failed("the command could not be begun").retryable())
    }

    fn inside(&self, mut environment: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let path = environment.remove("PATH");
        let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".to_owned());
        environment.insert("PATH".to_owned(), format!("{PROGRAMS}:{path}"));
        for (name, path) in [
            ("SMITHERS_SANDBOX_REQUEST_PATH", "/request/README.md"),
            ("SMITHERS_SANDBOX_RESULT_PATH", "/result/README.md"),
        ] {
            environment.insert(name.to_owned(), path.to_owned());
        }
        environment
    }

    /// What the sandbox can be found by.
    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([
            (RUN_LABEL.to_owned(), self.run.clone()),
            ("stockade.sandbox".to_owned(), sandbox_name(&self.key)),
        ]);
        if let Some(Lineage { root_run_id, parent_sandbox_id, depth, .. }) = &self.notes.lineage {
            labels.insert("stockade.root-run".to_owned(), root_run_id.clone());
            labels.insert("stockade.parent".to_owned(), parent_sandbox_id.clone());
            labels.insert("stockade.depth".to_owned(), depth.to_string());
        }
        labels
    }

    /// What the sandbox is made from.
    fn asked(&self, place: &Place, local: &request::Local) -> Result<CreateSandbox, Trouble> {
        let shown = |host: PathBuf, inside: &str| HostMount {
            host,
            inside: PathBuf::from(inside),
            writable: false,
        };
        let bundle = place.path.join("request-bundle");
        let mut mounts = vec![
            shown(bundle.join(".smithers"), &format!("{}/.smithers", request::WORKSPACE)),
            shown(bundle, request::REQUEST),
        ];
        let program = std::env::current_exe()
            .map_err(|error| failed(format!("cannot find our own program: {error}")))?;
        for name in ["stockade", "smithers"] {
            mounts.push(shown(program.clone(), &format!("{PROGRAMS}/{name}")));
        }
        mounts.extend(local.mounts.iter().cloned());
        let workspace = Workspace {
            host: self.project().to_owned(),
            inside: PathBuf::from(request::WORKSPACE),
        };
        Ok(CreateSandbox {
            workspace: Some(workspace),
            mounts,
            limits: local.limits,
            network: local.network.clone(),
            runtime: Some(local.runtime.to_owned()),
            working_directory: Some(PathBuf::from(request::WORKSPACE)),
            metadata: self.labels(),
            ..CreateSandbox::default()
        })
    }
}

/// What came of executing.
enum Round {
    /// A result.
    Collected(Box<Collected>),
    /// Somebody has to say something first.
    Waits(Pause),
}

/// The id of the child's run.
fn child_id(held: &Held) -> String {
    held.id().to_owned()
}
