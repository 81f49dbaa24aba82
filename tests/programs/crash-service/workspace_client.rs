//! Sandboxes with a workspace that expire, stop, are killed or lose their processes at random
//! moments. Each file that one has written is found afterwards: in a bundle, or in the sandbox, unless
//! it was discarded by request.

use std::path::PathBuf;

use stockade_api::{
    ApplyBundle, ById, CollectChanges, CommandLine, CreateSandbox, Execute, Expiry, ExpiryAction,
    GetSandbox, KillSandbox, ListBundles, ListedBundle, Sandboxes as _,
};
use stockade_core::sandbox::Workspace;
use stockade_core::{Code, SandboxId, State};

use crate::Failure;
use crate::random::Random;
use crate::world::World;

/// What a sandbox has written in its workspace.
#[derive(Debug)]
pub(crate) struct WrittenFiles {
    id: SandboxId,
    project: PathBuf,
    /// The names of the files whose commands have ended well. Each file contains its name.
    names: Vec<String>,
}

/// Runs one sandbox. Any request may fail, because it may have expired or lost its processes; only
/// what was reported as written counts.
pub(crate) async fn run(world: &World, random: &mut Random) -> Result<WrittenFiles, Failure> {
    let id = SandboxId::new(world.unique_name("worker"))?;
    let project = world.projects.join(id.as_str());
    std::fs::create_dir_all(project.join(".git"))?;
    let mut written = WrittenFiles { id: id.clone(), project: project.clone(), names: Vec::new() };
    let is_terminated = random.below(2) == 0;
    let request = CreateSandbox {
        id: Some(id.clone()),
        workspace: Some(Workspace { host: project.clone(), inside: project.clone() }),
        expiry: match random.below(3) {
            0 => Expiry::Never,
            _ => Expiry::Seconds(f64::from(u32::try_from(1 + random.below(4))?)),
        },
        on_expiry: is_terminated.then_some(ExpiryAction::Terminate),
        keep: !is_terminated && random.below(2) == 0,
        ..CreateSandbox::default()
    };
    let server = &world.server;
    if world.call(async |me| server.create(me, request.clone()).await).await.is_err() {
        return Ok(written);
    }
    world.update_ledger(|ledger| ledger.sandboxes += 1);
    let by_id = ById { id: id.clone() };
    for _ in 0..2 + random.below(6) {
        match random.below(8) {
            0 => {
                let _ = world.call(async |me| server.stop(me, by_id.clone()).await).await;
                let _ = world.call(async |me| server.start(me, by_id.clone()).await).await;
            }
            1 => drop(world.call(async |me| server.start(me, by_id.clone()).await).await),
            2 => {
                let request = CollectChanges {
                    sandbox_id: id.clone(),
                    exclude: Vec::new(),
                    limit_bytes: None,
                    limit_paths: None,
                };
                let collect = async |me: &_| server.collect_changes(me, request.clone()).await;
                let _ = world.call(collect).await;
            }
            3 => tokio::time::sleep(std::time::Duration::from_millis(random.below(1500))).await,
            _ => written.write(world).await?,
        }
    }
    match random.below(4) {
        0 => {
            // Whether it was discarded is not known if the request fails.
            written.names.clear();
            let request = KillSandbox { id: id.clone(), discard: true };
            let _ = world.call(async |me| server.kill(me, request.clone()).await).await;
        }
        1 => drop(world.call(async |me| server.kill(me, by_id.clone().into()).await).await),
        2 => drop(world.call(async |me| server.stop(me, by_id.clone()).await).await),
        _ => {}
    }
    Ok(written)
}

impl WrittenFiles {
    async fn write(&mut self, world: &World) -> Result<(), Failure> {
        let name = world.unique_name("file");
        let path = self.project.join(&name);
        let line = format!("mkdir -p '{0}' && echo {name} > '{0}/text'", path.display());
        let request = Execute::new(self.id.clone(), CommandLine::Shell(line));
        let done = world.call(async |me| world.server.execute(me, request.clone()).await).await;
        if done.is_ok_and(|done| done.end.exit_code == Some(0)) {
            world.update_ledger(|ledger| ledger.files += 1);
            self.names.push(name);
        }
        Ok(())
    }

    /// Ends the sandbox, applies all bundles of its project, and looks for each file.
    async fn check(&self, world: &World) -> Result<Vec<String>, Failure> {
        let server = &world.server;
        let request = GetSandbox { id: self.id.clone(), metrics: false };
        match world.call(async |me| server.get_status(me, request.clone()).await).await {
            Ok(found) if found.state == State::Terminated => {}
            Ok(_) => {
                let by_id = ById { id: self.id.clone() };
                world.call(async |me| server.kill(me, by_id.clone().into()).await).await?;
            }
            // It was not created.
            Err(error) if error.0.code == Code::NotFound || self.names.is_empty() => {}
            Err(error) => return Err(error.into()),
        }
        let list = ListBundles::default();
        let bundles = world.call(async |me| server.bundles(me, list.clone()).await).await?.bundles;
        // The newest comes first.
        for listed in bundles.into_iter().rev() {
            let bundle = match listed {
                ListedBundle::Bundle(bundle) => bundle,
                ListedBundle::Unreadable { id, error } => {
                    return Ok(vec![format!("the bundle {id} cannot be read: {error:?}")]);
                }
            };
            if bundle.project.lossy() != self.project.to_string_lossy() {
                continue;
            }
            let request = ApplyBundle {
                id: bundle.id,
                include_ignored: true,
                allow_executed: true,
                allow_unseen: true,
                ..ApplyBundle::default()
            };
            match world.call(async |me| server.apply_bundle(me, request.clone()).await).await {
                // The project may have all of its changes, from another bundle: the files decide.
                Err(error) if error.0.code == Code::BundleConflict => {}
                applied => drop(applied?),
            }
        }
        let is_lost = |name: &&String| {
            let text = std::fs::read_to_string(self.project.join(name).join("text"));
            text.ok() != Some(format!("{name}\n"))
        };
        let lost = self.names.iter().filter(is_lost);
        Ok(lost.map(|name| format!("{}: {name} was written and is lost", self.id)).collect())
    }
}

/// Looks for all that was written; returns what is lost.
pub(crate) async fn check(world: &World) -> Result<Vec<String>, Failure> {
    let mut faults = Vec::new();
    for written in world.update_ledger(|ledger| std::mem::take(&mut ledger.written)) {
        match written.check(world).await {
            Ok(lost) => faults.extend(lost),
            Err(fault) => faults.push(format!("{}: {fault}", written.id)),
        }
    }
    Ok(faults)
}
