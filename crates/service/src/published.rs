//! The published ports of all sandboxes: whether each is served, and whether it is listened on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stockade_api::{Publication, PublishedPort};
use stockade_core::SandboxId;
use tokio::sync::watch;

/// How long the end of a sandbox waits for its ports.
const FREE: Duration = Duration::from_secs(5);

/// The published ports of all sandboxes.
#[derive(Debug, Default)]
pub(crate) struct Published(Mutex<HashMap<SandboxId, Entry>>);

/// The ports of one sandbox, in the order of its request: why each is not served.
pub(crate) type Problems = Arc<Mutex<Vec<Option<String>>>>;

#[derive(Debug)]
struct Entry {
    problems: Problems,
    /// Whether a port is listened on.
    listens: watch::Receiver<bool>,
}

impl Published {
    /// The status of a sandbox's ports.
    pub(crate) fn status(&self, id: &SandboxId, ports: &[PublishedPort]) -> Vec<Publication> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let problems = entries.get(id).map(|entry| entry.problems.clone());
        drop(entries);
        let problems = problems
            .map(|known| known.lock().unwrap_or_else(PoisonError::into_inner).clone())
            .unwrap_or_default();
        let unknown = || Some("the sandbox does not run".to_owned());
        let problem = |number: usize| problems.get(number).cloned().unwrap_or_else(unknown);
        ports
            .iter()
            .enumerate()
            .map(|(number, port)| Publication { port: *port, problem: problem(number) })
            .collect()
    }
}

impl Published {
    /// Adds a sandbox whose ports a task serves from now on; `None` if another task does. The task
    /// holds the sender, and removes the sandbox when it ends.
    pub(crate) fn start(
        &self,
        id: &SandboxId,
        ports: usize,
        listens: bool,
    ) -> Option<(Problems, watch::Sender<bool>)> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.get(id).is_some_and(|entry| entry.listens.has_changed().is_ok()) {
            return None;
        }
        let problems = Problems::new(Mutex::new(vec![None; ports]));
        let (sender, listens) = watch::channel(listens);
        entries.insert(id.clone(), Entry { problems: problems.clone(), listens });
        Some((problems, sender))
    }

    /// Removes a sandbox that has ended.
    pub(crate) fn remove(&self, id: &SandboxId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Waits until the ports of a sandbox that does not run any more are free.
    pub(crate) async fn wait_until_free(&self, id: &SandboxId) {
        let listens = {
            let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            entries.get(id).map(|entry| entry.listens.clone())
        };
        if let Some(mut listens) = listens {
            // Later they are free all the same.
            let free = listens.wait_for(|listens| !*listens);
            let _ = tokio::time::timeout(FREE, free).await;
        }
    }
}
