//! Renderings as a realm sends them. The first one is sent whole and stored as a tree; later ones are
//! sent as updates of the tree, so that unchanged parts are not read again. The realm is not trusted.
//!
//! An element has a number, which stays the same from one rendering to the next. Its *head* has its
//! kind and attributes; its child elements are a *list* of numbers.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::check::check;
use super::fault::Fault;
use super::model::{Graph, Group, Loop, Node};
use super::read::{Element, Part, Reader};

/// The maximum nesting depth of elements.
const MAX_DEPTH: usize = 64;

/// A rendering as a realm sends it: the whole, or the differences to the last one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RenderUpdate {
    /// Whether it is a whole rendering, not an update.
    is_whole: bool,
    /// The outermost element.
    root: u64,
    /// Heads as text, which is parsed when the tree is assembled.
    heads: Vec<(u64, Box<RawValue>)>,
    /// The lists of child elements.
    lists: Vec<(u64, Vec<u64>)>,
}

/// Why a rendering is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The workflow has errors.
    #[error("the workflow has {} errors", .0.len())]
    Faults(Vec<Fault>),
    /// The realm sent an invalid update.
    #[error("a rendering is inconsistent: {0}")]
    InvalidUpdate(String),
}

/// A rendering with the elements that it was read from.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    root: u64,
    name: String,
    /// Whether the outputs of tasks are cached by default.
    is_cached: bool,
    items: HashMap<u64, Item>,
    /// The number of renderings so far.
    round: u64,
    sent_bytes: usize,
    graph: Option<Arc<Graph>>,
}

/// An element.
#[derive(Debug, Default)]
struct Item {
    /// Its head, until it is read.
    head: Option<Box<RawValue>>,
    /// The result of reading the head.
    part: Option<Part>,
    list: Vec<u64>,
    /// The last round that contains the element.
    round: u64,
}

impl Tree {
    /// The graph. Tasks that did not change are the same values as before.
    pub(crate) fn graph(&self) -> Option<&Arc<Graph>> {
        self.graph.as_ref()
    }

    /// The number of bytes sent since the last whole rendering.
    pub(crate) const fn sent_bytes(&self) -> usize {
        self.sent_bytes
    }

    /// The rendering after `before`, or the first one. Outputs refer to `schemas` by their numbers.
    ///
    /// # Errors
    /// All errors of the workflow, or the error that the update is invalid.
    pub(crate) fn after(
        before: Option<Self>,
        update: RenderUpdate,
        schemas: &[Value],
    ) -> Result<Self, Error> {
        let RenderUpdate { is_whole, root, heads, lists } = update;
        let mut tree = match before {
            _ if is_whole => Self { root, ..Self::default() },
            Some(before) if before.root == root => before,
            _ => return Err(invalid_update("it refers to an unknown rendering")),
        };
        if !is_whole && heads.is_empty() && lists.is_empty() {
            return Ok(tree);
        }
        tree.round += 1;
        let numbers: Vec<u64> = heads.iter().map(|(number, _)| *number).collect();
        let is_rearranged = is_whole || !lists.is_empty();
        tree.store(heads, lists)?;
        tree.assemble(is_whole, is_rearranged, schemas)?;
        let is_lost = |number: &&u64| tree.items.get(number).is_none_or(|item| item.head.is_some());
        match numbers.iter().find(is_lost) {
            Some(number) => Err(invalid_update(format!("element {number} has no parent"))),
            None => Ok(tree),
        }
    }

    /// Stores heads and lists, without reading them.
    fn store(
        &mut self,
        heads: Vec<(u64, Box<RawValue>)>,
        lists: Vec<(u64, Vec<u64>)>,
    ) -> Result<(), Error> {
        for (number, head) in heads {
            self.sent_bytes += head.get().len();
            let item = self.items.entry(number).or_default();
            if item.head.replace(head).is_some() {
                return Err(invalid_update(format!("element {number} was sent twice")));
            }
        }
        let mut known = HashSet::new();
        for (number, list) in lists {
            self.sent_bytes += size_of_val(list.as_slice());
            if !known.insert(number) {
                return Err(invalid_update(format!(
                    "the children of element {number} were sent twice"
                )));
            }
            let item = self.items.get_mut(&number);
            item.ok_or_else(|| invalid_update(format!("element {number} was never sent")))?.list =
                list;
        }
        Ok(())
    }

    fn assemble(
        &mut self,
        is_whole: bool,
        is_rearranged: bool,
        schemas: &[Value],
    ) -> Result<(), Error> {
        let mut reader = Reader { schemas, is_cached: self.is_cached, faults: Vec::new() };
        let root = self.items.get_mut(&self.root);
        let root = root.ok_or_else(|| invalid_update("there is no root element"))?;
        root.round = self.round;
        if let Some(head) = root.head.take() {
            if !is_whole {
                return Err(invalid_update("its root element differs"));
            }
            let name = reader.workflow(element(&head)?).map_err(Error::Faults)?;
            (self.name, self.is_cached) = (name, reader.is_cached);
        }
        let list = std::mem::take(&mut root.list);
        let (items, round) = (&mut self.items, self.round);
        let mut assembly = Assembly { items, reader, round, is_rearranged };
        let body = assembly.nodes(&list, 1)?;
        let Assembly { reader, is_rearranged, .. } = assembly;
        if !reader.faults.is_empty() {
            return Err(Error::Faults(reader.faults));
        }
        if let Some(root) = self.items.get_mut(&self.root) {
            root.list = list;
        }
        let graph = Graph { name: self.name.clone(), body };
        if is_rearranged {
            self.items.retain(|_, item| item.round == round);
            check(&graph).map_err(Error::Faults)?;
        }
        self.graph = Some(Arc::new(graph));
        Ok(())
    }
}

/// Assembles the graph of one rendering.
struct Assembly<'a> {
    items: &'a mut HashMap<u64, Item>,
    reader: Reader<'a>,
    round: u64,
    /// Whether the order of tasks or their dependencies may have changed.
    is_rearranged: bool,
}

impl Assembly<'_> {
    fn nodes(&mut self, list: &[u64], depth: usize) -> Result<Vec<Node>, Error> {
        let mut nodes = Vec::with_capacity(list.len().min(self.items.len()));
        for number in list {
            nodes.extend(self.node(*number, depth)?);
        }
        Ok(nodes)
    }

    /// The node of an element; `None` if it has errors.
    fn node(&mut self, number: u64, depth: usize) -> Result<Option<Node>, Error> {
        let item = self.items.get_mut(&number);
        let item =
            item.ok_or_else(|| invalid_update(format!("element {number} was never sent")))?;
        if std::mem::replace(&mut item.round, self.round) == self.round {
            return Err(invalid_update(format!("element {number} has two parents")));
        }
        if let Some(head) = item.head.take() {
            let head = element(&head)?;
            if depth > MAX_DEPTH {
                let message = format!("elements are nested more than {MAX_DEPTH} levels deep");
                return Err(Error::Faults(vec![Fault { place: head.place, message }]));
            }
            let Some(part) = self.reader.part(head) else { return Ok(None) };
            let (part, is_rearranged) = replaced(item.part.take(), part);
            self.is_rearranged |= is_rearranged;
            item.part = Some(part);
        } else if depth > MAX_DEPTH {
            return Err(invalid_update(format!("element {number} is nested too deeply")));
        }
        let list = std::mem::take(&mut item.list);
        let mut node = match &item.part {
            Some(Part::Task(task)) if list.is_empty() => Node::Task(Arc::clone(task)),
            Some(Part::Group { order }) => {
                Node::Group(Group { order: *order, children: Vec::new() })
            }
            Some(Part::Loop(repeated)) => Node::Loop(repeated.clone()),
            Some(Part::Task(_)) => {
                return Err(invalid_update(format!("element {number} is not a group")));
            }
            None => return Ok(None),
        };
        match &mut node {
            Node::Task(_) => {}
            Node::Group(Group { children, .. }) | Node::Loop(Loop { children, .. }) => {
                *children = self.nodes(&list, depth + 1)?;
                if let Some(item) = self.items.get_mut(&number) {
                    item.list = list;
                }
            }
        }
        Ok(Some(node))
    }
}

/// The new part of an element, and whether the graph has to be checked again.
fn replaced(before: Option<Part>, now: Part) -> (Part, bool) {
    match (before, now) {
        (Some(Part::Task(before)), Part::Task(now)) => {
            let is_rearranged = before.id != now.id || before.after != now.after;
            (Part::Task(if before == now { before } else { now }), is_rearranged)
        }
        (Some(Part::Loop(before)), Part::Loop(now)) => {
            let is_rearranged = before.id != now.id;
            (Part::Loop(now), is_rearranged)
        }
        (before, now) => {
            let is_same = before.is_some_and(|before| before == now);
            (now, !is_same)
        }
    }
}

fn element(head: &RawValue) -> Result<Element, Error> {
    serde_json::from_str(head.get()).map_err(|error| invalid_update(error.to_string()))
}

fn invalid_update(why: impl Into<String>) -> Error {
    Error::InvalidUpdate(why.into())
}
