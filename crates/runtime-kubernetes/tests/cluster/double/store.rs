//! The objects of the double, their versions, and the events of watches.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::Agents;
use super::faults::Fault;
use super::kubelet::Process;

/// The kind in paths, the namespace, the name.
pub(crate) type Key = (String, String, String);

/// A change for watches.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) kind: String,
    pub(crate) what: &'static str,
    pub(crate) object: Value,
}

#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) objects: BTreeMap<Key, Value>,
    pub(crate) changes: Vec<Change>,
    version: u64,
}

/// Everything of a cluster.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) agents: Agents,
    pub(crate) directory: PathBuf,
    pub(crate) objects: Mutex<Objects>,
    pub(crate) news: Notify,
    pub(crate) faults: Mutex<Vec<Fault>>,
    pub(crate) processes: Mutex<BTreeMap<Key, Arc<Process>>>,
    /// Every request, as its method and path.
    pub(crate) requests: Mutex<Vec<String>>,
}

impl Store {
    pub(crate) fn new(agents: Agents, directory: PathBuf) -> Self {
        Self {
            agents,
            directory,
            objects: Mutex::default(),
            news: Notify::new(),
            faults: Mutex::default(),
            processes: Mutex::default(),
            requests: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Value> {
        self.objects.lock().unwrap().objects.get(key).cloned()
    }

    /// The objects of a kind, in a namespace if one is named.
    pub(crate) fn list(&self, kind: &str, namespace: Option<&str>) -> Vec<Value> {
        let objects = self.objects.lock().unwrap();
        let of_kind = objects.objects.iter().filter(|((other, place, _), _)| {
            other == kind && namespace.is_none_or(|namespace| namespace == place)
        });
        of_kind.map(|(_, object)| object.clone()).collect()
    }

    pub(crate) fn version(&self) -> u64 {
        self.objects.lock().unwrap().version
    }

    /// Stores a new object; `None` if there is one of that name.
    pub(crate) fn add(&self, key: &Key, mut object: Value) -> Option<Value> {
        let mut objects = self.objects.lock().unwrap();
        if objects.objects.contains_key(key) {
            return None;
        }
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(format!("uid-{}", objects.version + 1));
        metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        if !key.1.is_empty() {
            metadata["namespace"] = json!(key.1);
        }
        let object = objects.put(key, "ADDED", object);
        drop(objects);
        self.news.notify_waiters();
        Some(object)
    }

    /// Changes an object, if it exists.
    pub(crate) fn change(&self, key: &Key, change: impl FnOnce(&mut Value)) -> Option<Value> {
        let mut objects = self.objects.lock().unwrap();
        let mut object = objects.objects.get(key)?.clone();
        change(&mut object);
        let object = objects.put(key, "MODIFIED", object);
        drop(objects);
        self.news.notify_waiters();
        Some(object)
    }

    /// Removes an object, if it exists.
    pub(crate) fn remove(&self, key: &Key) -> Option<Value> {
        let mut objects = self.objects.lock().unwrap();
        let object = objects.objects.get(key)?.clone();
        let object = objects.put(key, "DELETED", object);
        objects.objects.remove(key);
        drop(objects);
        self.news.notify_waiters();
        Some(object)
    }

    /// Ends every process.
    pub(crate) fn end_all(&self) {
        for process in self.processes.lock().unwrap().values() {
            process.kill();
        }
    }
}

impl Objects {
    fn put(&mut self, key: &Key, what: &'static str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(key.clone(), object.clone());
        self.changes.push(Change {
            version: self.version,
            kind: key.0.clone(),
            what,
            object: object.clone(),
        });
        object
    }
}
