//! What each server of a cluster has among the files of its data directory: volumes, workspaces and bundles of
//! owners. It is recorded in the database, so that the other servers find it, and know whose it was when its
//! server is lost. Caches are not: each machine has its own.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use stockade_api::Result;
use stockade_bundle::data::DataDir;
use stockade_bundle::store::Store as BundleStore;
use stockade_bundle::workspace::Workspaces;
use stockade_core::{Code, OwnerId, Problem, VolumeName};
use stockade_review::Bundles;
use stockade_volume::Volumes;
use stockade_volume::problem::problem as volume_problem;

use crate::failure::{caused, store_problem, workspace_problem};
use crate::inner::Inner;
use crate::options::Home;
use crate::possession::{Kind, Possession};
use crate::store::{hosts, possessions};

/// Claims a name for this server, before something is created under it. The caller holds the owner's lock.
///
/// # Errors
/// [`Code::Unreachable`], which may be retried, if another server has it by now.
pub(crate) async fn claim(inner: &Inner, owner: &OwnerId, kind: Kind, name: &str) -> Result<()> {
    if inner.options.cluster.is_none() {
        return Ok(());
    }
    let (store, host) = (&*inner.store, inner.host());
    let claimed = possessions::add(owner, kind, name, host);
    store.execute(vec![claimed]).await.map_err(store_problem)?;
    match possessions::host_of(store, owner, kind, name).await? {
        Some(holder) if holder == host => Ok(()),
        holder => {
            let message = format!("another server has just created the {} {name}", kind.as_str());
            let why = format!("it is on the server {}", holder.as_deref().unwrap_or("that had it"));
            Err(Problem::new(Code::Unreachable, message).because(why).remedied_by("retry"))
        }
    }
}

/// Records that this server has something, unless another one has it under this name.
pub(crate) async fn record(inner: &Inner, owner: &OwnerId, kind: Kind, name: &str) -> Result<()> {
    let store = &*inner.store;
    if inner.options.cluster.is_none()
        || possessions::host_of(store, owner, kind, name).await?.is_some()
    {
        return Ok(());
    }
    let found = possessions::add(owner, kind, name, inner.host());
    store.execute(vec![found]).await.map_err(store_problem)
}

/// Records that this server has something no more. The caller holds the owner's lock.
pub(crate) async fn release(inner: &Inner, owner: &OwnerId, kind: Kind, name: &str) -> Result<()> {
    if inner.options.cluster.is_none() {
        return Ok(());
    }
    let gone = possessions::remove(owner, kind, name, inner.host());
    inner.store.execute(vec![gone]).await.map_err(store_problem)
}

/// The server that was given up and has something; none if a server has it that may answer, or nobody.
pub(crate) async fn lost_host(
    inner: &Inner,
    owner: &OwnerId,
    kind: Kind,
    name: &str,
) -> Result<Option<String>> {
    if inner.options.cluster.is_none() {
        return Ok(None);
    }
    let host = possessions::host_of(&*inner.store, owner, kind, name).await?;
    let Some(host) = host else { return Ok(None) };
    Ok(inner.is_given_up(&host).await?.then_some(host))
}

/// Removes the record of something on a server that was given up, which removes the files when it is back.
///
/// # Errors
/// [`Code::Conflict`] if it is back.
pub(crate) async fn remove_lost(
    inner: &Inner,
    owner: &OwnerId,
    kind: Kind,
    name: &str,
    host: &str,
) -> Result<()> {
    let statements = vec![
        hosts::expect_given_up(host),
        possessions::remove(owner, kind, name, host),
        possessions::add_removal(owner, kind, name, host),
    ];
    inner.store.execute(statements).await.map_err(store_problem)
}

/// Records what this server has of an owner now.
pub(crate) async fn publish(inner: &Inner, owner: &OwnerId, kind: Kind) -> Result<()> {
    let (Some(_), Some(home)) = (&inner.options.cluster, &inner.options.home) else {
        return Ok(());
    };
    let _lock = inner.possessions.locks.lock(owner).await;
    let here = names_here(home, owner, kind).await?;
    let (store, host) = (&*inner.store, inner.host());
    let recorded = possessions::names_at(store, owner, kind, host).await?;
    let recorded: BTreeSet<_> = recorded.into_iter().collect();
    let new = here.difference(&recorded).map(|name| possessions::add(owner, kind, name, host));
    let gone = recorded.difference(&here).map(|name| possessions::remove(owner, kind, name, host));
    let statements: Vec<_> = new.chain(gone).collect();
    if !statements.is_empty() {
        store.execute(statements).await.map_err(store_problem)?;
    }
    if *owner == home.owner {
        let mut recorded =
            inner.possessions.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.insert(kind, here);
    }
    Ok(())
}

/// Records, as long as the service runs, what commands without a server make in the data directory.
pub(crate) fn spawn(inner: &Arc<Inner>) {
    let (Some(cluster), Some(home)) = (inner.options.cluster.clone(), inner.options.home.clone())
    else {
        return;
    };
    let inner = Arc::clone(inner);
    tokio::spawn(async move {
        let mut stopped = inner.stopped();
        loop {
            for kind in Kind::ALL {
                if let Err(problem) = publish_if_changed(&inner, &home, kind).await {
                    // The next round tries it again.
                    let (kind, reason) = (kind.as_str(), problem.message);
                    tracing::warn!(kind, reason, "what this server has was not recorded");
                }
            }
            let ended = stopped.wait_for(|stopped| *stopped);
            if tokio::time::timeout(cluster.heartbeat, ended).await.is_ok() {
                return;
            }
        }
    });
}

async fn publish_if_changed(inner: &Inner, home: &Home, kind: Kind) -> Result<()> {
    let here = names_here(home, &home.owner, kind).await?;
    let is_recorded = {
        let recorded = inner.possessions.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.get(&kind) == Some(&here)
    };
    if is_recorded { Ok(()) } else { publish(inner, &home.owner, kind).await }
}

async fn names_here(home: &Home, owner: &OwnerId, kind: Kind) -> Result<BTreeSet<String>> {
    if kind == Kind::Bundle && *owner != home.owner {
        return Ok(BTreeSet::new());
    }
    let owner = owner.clone();
    on_files(home, move |data| {
        let text = |name: VolumeName| name.to_string();
        Ok(match kind {
            Kind::Volume => {
                let all = Volumes::open(data, &owner).and_then(|all| all.list());
                let all = all.map_err(|error| volume_problem(&error))?.into_iter();
                all.filter(|it| it.cache().is_none()).map(|it| text(it.name)).collect()
            }
            Kind::Workspace => {
                let all = Workspaces::open(data, &owner).and_then(|all| all.list());
                all.map_err(|error| workspace_problem(&error))?.into_iter().map(text).collect()
            }
            Kind::Bundle => {
                let all = BundleStore::open(data).and_then(|store| store.ids());
                all.map_err(|error| caused(Code::Io, &error))?.into_iter().collect()
            }
        })
    })
    .await
}

/// Removes what other servers have removed while this one was given up. What cannot be removed now is removed
/// by the next sweep.
pub(crate) async fn remove_given_up(inner: &Inner) {
    let (Some(_), Some(home)) = (&inner.options.cluster, &inner.options.home) else { return };
    let all = match possessions::removals(&*inner.store, inner.host()).await {
        Ok(all) => all,
        Err(problem) => {
            tracing::warn!(problem = problem.message, "what is to be removed is not known");
            return;
        }
    };
    for Possession { owner, kind, name } in all {
        let _lock = inner.possessions.locks.lock(&owner).await;
        if let Err(problem) = remove_here(home, &owner, kind, &name).await {
            let (kind, reason) = (kind.as_str(), problem.message);
            tracing::warn!(kind, name, reason, "not removed after it was given up");
            continue;
        }
        let done = possessions::end_removal(&owner, kind, &name, inner.host());
        // Its removal has no effect the next time.
        let _ = inner.store.execute(vec![done]).await;
    }
}

/// Removes files of this server; no effect if they are not there.
async fn remove_here(home: &Home, owner: &OwnerId, kind: Kind, name: &str) -> Result<()> {
    let (owner, name) = (owner.clone(), name.to_owned());
    let by_name = || VolumeName::new(&name).map_err(|error| caused(Code::DatabaseInvalid, &error));
    let removed = match kind {
        Kind::Volume => {
            let name = by_name()?;
            let removed = on_files(home, move |data| {
                let removed = Volumes::open(data, &owner).and_then(|all| all.remove(&name));
                removed.map_err(|error| volume_problem(&error))
            });
            removed.await
        }
        Kind::Workspace => {
            let name = by_name()?;
            let removed = on_files(home, move |data| {
                let removed = Workspaces::open(data, &owner).and_then(|all| all.remove(&name));
                removed.map_err(|error| workspace_problem(&error))
            });
            removed.await
        }
        Kind::Bundle if owner != home.owner => Ok(()),
        Kind::Bundle => {
            let path = home.path.clone();
            let removed = tokio::task::spawn_blocking(move || {
                Bundles::open(&path)?.reject_at_once(&name).map(drop)
            });
            removed.await.unwrap_or_else(|error| Err(caused(Code::Io, &error)))
        }
    };
    match removed {
        Err(problem) if matches!(problem.code, Code::NotFound | Code::BundleNotFound) => Ok(()),
        removed => removed,
    }
}

/// Runs a function on the data directory, on a thread that may block.
async fn on_files<T: Send + 'static>(
    home: &Home,
    work: impl FnOnce(&DataDir) -> Result<T> + Send + 'static,
) -> Result<T> {
    let path = home.path.clone();
    let done = tokio::task::spawn_blocking(move || {
        work(&DataDir::open(&path).map_err(|error| caused(Code::Io, &error))?)
    });
    done.await.unwrap_or_else(|error| Err(caused(Code::Io, &error)))
}
