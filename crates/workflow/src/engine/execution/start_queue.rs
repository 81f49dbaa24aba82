//! The tasks that are about to start.

use std::collections::HashMap;
use std::sync::Arc;

use crate::graph::{Cache, Task};
use crate::schedule::Key;
use crate::store::cached_outputs::CachedOutput;

/// The state of the lookup of a task's cached output.
#[derive(Debug)]
pub(super) enum Lookup {
    Found(CachedOutput),
    /// There is no cached output. The output of the task is to be cached under this key.
    Missing(String, Cache),
    /// The output of the task is not to be cached.
    Uncacheable,
}

/// The tasks that are about to start.
#[derive(Default)]
pub(super) struct StartQueue {
    /// Tasks that start when the commit of their start is on disk.
    starts: Vec<(Key, Arc<Task>)>,
    /// Tasks whose cached outputs are looked up first.
    to_look_up: Vec<(Key, Arc<Task>)>,
    /// The lookups of tasks that have not ended.
    lookups: HashMap<Key, Lookup>,
}

impl StartQueue {
    pub(super) fn start(&mut self, key: &Key, task: &Arc<Task>) {
        self.starts.push((key.clone(), Arc::clone(task)));
    }

    /// The tasks that start next.
    pub(super) fn starts(&self) -> impl Iterator<Item = &(Key, Arc<Task>)> {
        self.starts.iter()
    }

    pub(super) const fn has_starts(&self) -> bool {
        !self.starts.is_empty()
    }

    pub(super) fn take_starts(&mut self) -> Vec<(Key, Arc<Task>)> {
        std::mem::take(&mut self.starts)
    }

    /// Queues the lookup of a task's cached output, unless it was queued before; returns whether it was
    /// queued now.
    pub(super) fn look_up(&mut self, key: &Key, task: &Arc<Task>) -> bool {
        let is_new = task.cache.is_some() && !self.lookups.contains_key(key);
        if is_new {
            self.to_look_up.push((key.clone(), Arc::clone(task)));
        }
        is_new
    }

    pub(super) fn take_lookups(&mut self) -> Vec<(Key, Arc<Task>)> {
        std::mem::take(&mut self.to_look_up)
    }

    pub(super) fn set_lookup(&mut self, key: Key, lookup: Lookup) {
        self.lookups.insert(key, lookup);
    }

    pub(super) fn lookup(&self, key: &Key) -> Option<&Lookup> {
        self.lookups.get(key)
    }

    pub(super) fn remove_lookup(&mut self, key: &Key) -> Option<Lookup> {
        self.lookups.remove(key)
    }
}
