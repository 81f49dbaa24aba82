//! Compares the last server's responses, once everything is idle, with the runtime and with what
//! the clients recorded; then ends everything through it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use stockade_api::{
    ById, CommandLine, Empty, Execute, GetSandbox, ListSandboxes, ReadEvents, RecordedEvent,
    Sandboxes as _,
};
use stockade_core::event::Kind;
use stockade_core::{SandboxId, State};
use stockade_runtime::Runtime as _;

use crate::socket_client::SocketClient;
use crate::world::{ProblemError, World};
use crate::{Failure, SandboxTokens, open, servers, victims, workspace_client};

/// How long started operations may take to finish.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Checks, and ends everything; returns what is wrong.
pub(crate) fn check(world: &World, surviving: Vec<SandboxTokens>) -> Result<Vec<String>, Failure> {
    for server in servers(&world.data) {
        victims::kill(server);
    }
    world.start_server()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let faults = runtime.block_on(async {
        let mut faults = abandoned(world).await?;
        faults.extend(rows_and_runtime(world).await?);
        faults.extend(workspace_client::check(world).await?);
        for (id, tokens) in surviving {
            let mut turn = SocketClient::new(world, "kept")?;
            (turn.id, turn.tokens) = (SandboxId::new(id)?, tokens);
            let found = turn.status().await?;
            if world.is_lost(&turn.id) {
                continue;
            }
            if found.0 != State::Running {
                faults.push(format!("{} was left running and is {found:?}", turn.id));
            } else if let Err(fault) = turn.check().await {
                faults.push(format!("{}: {fault}", turn.id));
            }
        }
        end_all(world).await?;
        faults.extend(events(world).await?);
        Ok::<_, Failure>(faults)
    })?;
    end_server(world)?;
    Ok(faults)
}

/// Sandboxes whose init was killed, and that no client ended, were stopped by their watchers.
async fn abandoned(world: &World) -> Result<Vec<String>, Failure> {
    let mut faults = Vec::new();
    let until = Instant::now() + TIMEOUT;
    for id in world.update_ledger(|ledger| ledger.abandoned.clone()) {
        let id = SandboxId::new(id)?;
        loop {
            let request = GetSandbox { id: id.clone(), metrics: false };
            let ask = world.call(async |me| world.server.get_status(me, request.clone()).await);
            let (state, reason) = match ask.await {
                Ok(found) => (found.state, found.reason.unwrap_or_default()),
                // The command was interrupted before the sandbox was created.
                Err(_) => break,
            };
            // One that could not be created waits to be started again; the others have stopped with
            // their files.
            if matches!(state, State::Error | State::Stopped) {
                break;
            }
            if Instant::now() > until {
                if !runs(world, &id).await {
                    faults.push(format!("{id} lost its init and is {state}: {reason}"));
                }
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(faults)
}

/// Whether commands run in it: it may have been stopped just when its init was to be killed, and
/// may have got another init since.
async fn runs(world: &World, id: &SandboxId) -> bool {
    let request = Execute::new(id.clone(), CommandLine::Shell("true".to_owned()));
    let ask = world.call(async |me| world.server.execute(me, request.clone()).await);
    ask.await.is_ok_and(|done| done.end.exit_code == Some(0))
}

/// Each live row has a sandbox, and each sandbox a live row.
async fn rows_and_runtime(world: &World) -> Result<Vec<String>, Failure> {
    let until = Instant::now() + TIMEOUT;
    loop {
        let native = open(&world.program, &world.data)?;
        let held = native.list(&BTreeMap::new()).await?;
        let held: BTreeSet<_> = held.into_iter().map(|status| status.id.to_string()).collect();
        let request = ListSandboxes::default();
        let rows = world.call(async |me| world.server.list(me, request.clone()).await).await?;
        let alive = [State::Creating, State::Running, State::Paused];
        // A sandbox that stopped by itself has left its files in its runtime.
        let stopped = rows.sandboxes.iter().filter(|row| row.state == State::Stopped);
        let stopped: BTreeSet<_> = stopped.map(|row| row.id.to_string()).collect();
        let rows: BTreeSet<_> = rows
            .sandboxes
            .into_iter()
            .filter(|row| alive.contains(&row.state))
            .map(|row| row.id.to_string())
            .collect();
        let without_row = held.iter().filter(|id| !rows.contains(*id) && !stopped.contains(*id));
        let without_row = without_row.map(|id| format!("{id} has no row"));
        let without = rows.difference(&held).map(|id| format!("{id} has no sandbox"));
        let faults: Vec<_> = without_row.chain(without).collect();
        if faults.is_empty() || Instant::now() > until {
            return Ok(faults);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Kills every sandbox, and removes every snapshot.
async fn end_all(world: &World) -> Result<(), Failure> {
    let server = &world.server;
    let request = ListSandboxes::default();
    let rows = world.call(async |me| server.list(me, request.clone()).await).await?;
    for row in rows.sandboxes {
        let by_id = ById { id: row.id };
        world.call(async |me| server.kill(me, by_id.clone().into()).await).await?;
    }
    for snapshot in world.call(async |me| server.snapshots(me, Empty {}).await).await? {
        let ask = world.call(async |me| server.remove_snapshot(me, snapshot.id.clone()).await);
        ask.await?;
    }
    Ok(())
}

/// The events of each sandbox form a life cycle: created once, ended once, and all in the right
/// order.
async fn events(world: &World) -> Result<Vec<String>, Failure> {
    let request = ReadEvents::default();
    let ask = world.call(async |me| world.server.read_events(me, request.clone()).await);
    let mut items = ask.await?;
    let mut lives: BTreeMap<SandboxId, Vec<Kind>> = BTreeMap::new();
    let (mut faults, mut ids, mut last) = (Vec::new(), BTreeSet::new(), 0);
    while let Some(event) = items.next().await {
        let RecordedEvent { seq, id, sandbox_id, payload, .. } = event.map_err(ProblemError)?;
        if seq <= last || !ids.insert(id.clone()) {
            faults.push(format!("the event {id} came twice, or out of its turn"));
        }
        last = seq;
        lives.entry(sandbox_id).or_default().push(payload.kind());
    }
    for (id, life) in lives {
        if let Err(fault) = check_lifecycle(&life) {
            faults.push(format!("the events of {id}: {fault}: {life:?}"));
        }
    }
    Ok(faults)
}

fn check_lifecycle(life: &[Kind]) -> Result<(), &'static str> {
    let count = |kind| life.iter().filter(|known| **known == kind).count();
    let made = count(Kind::SandboxCreated);
    if made > 1 || count(Kind::SandboxKilled) != 1 {
        return Err("it is not made and ended once");
    }
    let (mut paused, mut ended) = (false, false);
    for (place, kind) in life.iter().enumerate() {
        match kind {
            Kind::SandboxCreated if place == 0 => {}
            // The completion of a command that ended with its sandbox may be recorded after the
            // sandbox's end.
            Kind::CommandCompleted => {}
            // Denied connections are recorded independently of the life cycle.
            Kind::NetworkRefused
            | Kind::SecretMisdirected
            | Kind::FilesCopied
            | Kind::SshAgentUsed => {}
            _ if ended => return Err("something happens after its end"),
            Kind::SandboxKilled => ended = true,
            // A sandbox that could not be created has no start event, and does nothing.
            _ if made == 0 => return Err("something happens and it was not made"),
            Kind::SandboxPaused if !paused => paused = true,
            Kind::SandboxStopped => paused = true,
            Kind::SandboxResumed | Kind::SandboxStarted if paused => paused = false,
            Kind::SandboxRenewed => {}
            _ => return Err("something is out of its turn"),
        }
    }
    Ok(())
}

/// Makes the server end, and waits for it.
fn end_server(world: &World) -> Result<(), Failure> {
    let until = Instant::now() + TIMEOUT;
    loop {
        let servers = servers(&world.data);
        if servers.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            return Err("the server does not end when it is told to".into());
        }
        for server in servers {
            Command::new("kill").arg(server.to_string()).status()?;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
