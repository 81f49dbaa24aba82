//! What looks after what nobody asks for: sandboxes of ours that have no live row are removed from
//! their runtime, and every live row has its watcher.

use std::collections::BTreeSet;
use std::time::Duration;

use stockade_core::{SandboxId, State};

use crate::row::{LABEL, SandboxRow};
use crate::service::{Inner, Service};
use crate::watcher;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(60);

/// Looks every minute, for as long as the service's engine runs.
pub(crate) fn spawn(service: &Service) {
    let service = service.clone();
    tokio::spawn(async move {
        let mut stopped = service.inner.stopped();
        loop {
            let ended = stopped.wait_for(|stopped| *stopped);
            if tokio::time::timeout(INTERVAL, ended).await.is_ok() {
                break;
            }
            sweep(&service).await;
        }
    });
}

/// Looks once. What cannot be done now is done the next time.
pub(crate) async fn sweep(service: &Service) {
    // The rows are read after the runtime, so that one that is being made is not taken for lost:
    // its row comes first.
    let mut held = Vec::new();
    for runtime in service.inner.runtimes.values() {
        if let Ok(all) = runtime.list(&std::collections::BTreeMap::new()).await {
            let ours = all.into_iter().filter(|status| status.labels.contains_key(LABEL));
            held.extend(ours.map(|status| (runtime.clone(), status.id)));
        }
    }
    let Ok(live) = live(&service.inner).await else { return };
    for (runtime, id) in held {
        if !live.contains(&id) {
            let _driver = service.inner.locks.lock(&id).await;
            let _ = runtime.cleanup(&id).await;
        }
    }
    for id in &live {
        let _ = watcher::ensure(&service.engine, id).await;
    }
}

/// The sandboxes that their runtime should have, or may come to have.
async fn live(inner: &Inner) -> stockade_api::Result<BTreeSet<SandboxId>> {
    let rows = SandboxRow::select(&*inner.store, "WHERE status <> 'terminated'", vec![]).await?;
    let kept = |row: &SandboxRow| !matches!(row.state, State::Error | State::Terminated);
    Ok(rows.into_iter().filter(kept).map(|row| row.id).collect())
}
