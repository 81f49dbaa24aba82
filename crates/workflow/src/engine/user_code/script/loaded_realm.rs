//! A realm in which a program is loaded.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::authoring::Realm;
use crate::graph::Tree;

/// A realm, and the data that was sent to it.
pub(super) struct LoadedRealm {
    pub(super) realm: Arc<Realm>,
    /// How many rows of the journal of each run were sent to it.
    pub(super) sent_rows: HashMap<String, usize>,
    /// The tables that the last rendering of each run depends on.
    pub(super) read: HashMap<String, Vec<String>>,
    pub(super) schemas: Vec<Value>,
    /// The last rendering of each run, with its number.
    pub(super) trees: HashMap<String, (u64, Tree)>,
    /// The number of the last rendering.
    pub(super) last_tree: u64,
}

impl LoadedRealm {
    pub(super) fn new(realm: Realm) -> Self {
        Self {
            realm: Arc::new(realm),
            sent_rows: HashMap::new(),
            read: HashMap::new(),
            schemas: Vec::new(),
            trees: HashMap::new(),
            last_tree: 0,
        }
    }
}

/// Aborts a call of a realm when it is dropped, unless the call has already ended.
pub(super) struct AbortGuard<'a> {
    pub(super) realm: &'a Realm,
    pub(super) id: u64,
}

impl Drop for AbortGuard<'_> {
    fn drop(&mut self) {
        self.realm.abort(self.id);
    }
}
