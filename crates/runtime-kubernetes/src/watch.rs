//! The pods of an installation, as a watch of the API server tells them. A watch that is lost, refused or too old
//! is taken up again: from where it was, or from a new list.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use kube::api::{ListParams, WatchParams};
use kube::core::{DynamicObject, WatchEvent};
use stockade_core::SandboxId;
use tokio::sync::Notify;

use crate::cluster::{Cluster, Kind};
use crate::failure::Failure;
use crate::names::Names;
use crate::observed::Pod;

/// How long a watch is open until the server ends it.
const WATCH_SECONDS: u32 = 290;
/// After how long without an event it is taken for lost.
const SILENCE: Duration = Duration::from_secs(300);
/// The pauses before a watch is taken up again: the first and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];

/// The watch. It ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
    _task: Arc<Task>,
}

#[derive(Debug, Default)]
struct Shared {
    pods: Mutex<BTreeMap<(String, String), Pod>>,
    news: Notify,
}

#[derive(Debug)]
struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Pod>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, object: &DynamicObject) {
        if let Some(pod) = Pod::read(object) {
            self.lock().insert((pod.namespace.clone(), pod.name.clone()), pod);
        }
    }

    fn remove(&self, object: &DynamicObject) {
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let name = object.metadata.name.clone().unwrap_or_default();
        self.lock().remove(&(namespace, name));
    }
}

impl Watch {
    /// Starts to watch.
    pub(crate) fn start(cluster: Cluster, names: Names) -> Self {
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(run(cluster, names, Arc::clone(&shared)));
        Self { shared, _task: Arc::new(Task(task)) }
    }

    /// The pod of a sandbox, if the watch has told of one.
    pub(crate) fn find(&self, id: &SandboxId) -> Option<Pod> {
        self.shared.lock().values().find(|pod| pod.id == *id).cloned()
    }

    /// Forgets a pod that is known to be gone.
    pub(crate) fn forget(&self, id: &SandboxId) {
        self.shared.lock().retain(|_, pod| pod.id != *id);
    }

    /// Waits for news of any pod, but no longer than this: news may be late.
    pub(crate) async fn news(&self, longest: Duration) {
        let _ = tokio::time::timeout(longest, self.shared.news.notified()).await;
    }
}

async fn run(cluster: Cluster, names: Names, shared: Arc<Shared>) {
    let [mut pause, longest] = PAUSES;
    let mut version = None;
    loop {
        match follow(&cluster, &names, &shared, &mut version).await {
            // The server has ended it at its time.
            Ok(()) => pause = PAUSES[0],
            Err(failure) => {
                // What it has told is no longer followed by anything: a new list is needed.
                if !matches!(failure, Failure::Lost(_) | Failure::TimedOut) {
                    version = None;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
        }
    }
}

/// Lists, unless a version is known to continue from, and watches until the watch ends.
async fn follow(
    cluster: &Cluster,
    names: &Names,
    shared: &Shared,
    version: &mut Option<String>,
) -> Result<(), Failure> {
    let api = cluster.api(Kind::Pod, None);
    let selector = names.all();
    let from = match version.clone() {
        Some(version) => version,
        None => {
            let listed = api.list(&ListParams::default().labels(&selector)).await?;
            let pods: HashMap<_, _> = listed
                .items
                .iter()
                .filter_map(Pod::read)
                .map(|pod| ((pod.namespace.clone(), pod.name.clone()), pod))
                .collect();
            *shared.lock() = pods.into_iter().collect();
            shared.news.notify_waiters();
            version.insert(listed.metadata.resource_version.unwrap_or_default()).clone()
        }
    };
    let options = WatchParams::default().labels(&selector).timeout(WATCH_SECONDS);
    let events = api.watch(&options, &from).await?;
    let mut events = std::pin::pin!(events);
    loop {
        let event = tokio::time::timeout(SILENCE, events.try_next()).await;
        let event = event.map_err(|_| Failure::TimedOut)??;
        let Some(event) = event else { return Ok(()) };
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                shared.put(&object);
                *version = object.metadata.resource_version.or_else(|| version.take());
            }
            WatchEvent::Deleted(object) => {
                shared.remove(&object);
                *version = object.metadata.resource_version.or_else(|| version.take());
            }
            WatchEvent::Bookmark(mark) => *version = Some(mark.metadata.resource_version),
            // 410: the version is too old.
            WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
        }
        shared.news.notify_waiters();
    }
}
