//! Numbers for the nodes of a graph, by which plans identify nodes from one rendering to the next.

use std::collections::HashMap;
use std::sync::Arc;

use crate::graph::{Graph, Node, Task};

/// Numbers the nodes of a graph. It is created once for a graph, which is planned many times, and stays
/// valid for later renderings whose nodes have the same order.
#[derive(Debug, Default)]
pub struct Index {
    tasks: HashMap<String, Entry>,
    /// The number of the first child of each node, by the node's number. The other children have the
    /// numbers that follow.
    first_children: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) task: Arc<Task>,
    /// The loops that enclose it, the outermost first.
    pub(super) loops: Vec<String>,
    /// Its ancestors, the outermost first.
    pub(super) ancestors: Vec<NodeId>,
}

/// The number of a node in its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NodeId(usize);

impl NodeId {
    /// The graph itself, whose children are the nodes of its body.
    pub(super) const ROOT: Self = Self(0);
}

impl Index {
    /// The index of a graph.
    pub fn new(graph: &Graph) -> Self {
        let mut index = Self { tasks: HashMap::new(), first_children: vec![0] };
        index.add(NodeId::ROOT, &graph.body, &mut Vec::new(), &mut Vec::new());
        index
    }

    /// The entry of a task, by its id.
    pub(super) fn entry(&self, id: &str) -> Option<&Entry> {
        self.tasks.get(id)
    }

    /// A task, by its id.
    pub fn task(&self, id: &str) -> Option<&Arc<Task>> {
        self.tasks.get(id).map(|entry| &entry.task)
    }

    /// Turns this index of `graph` into the index of `next`, a later rendering of it. Returns false and
    /// changes nothing if they differ in more than the content of single tasks and loops: the later
    /// rendering then needs its own index.
    pub fn follow(&mut self, graph: &Graph, next: &Graph) -> bool {
        let is_alike = graph.name == next.name && are_alike(&graph.body, &next.body);
        if is_alike {
            self.replace_tasks(&graph.body, &next.body);
        }
        is_alike
    }

    fn replace_tasks(&mut self, nodes: &[Node], next: &[Node]) {
        for (node, next) in nodes.iter().zip(next) {
            match (node, next) {
                (Node::Task(task), Node::Task(next)) if !Arc::ptr_eq(task, next) => {
                    if let Some(entry) = self.tasks.get_mut(&next.id) {
                        entry.task = Arc::clone(next);
                    }
                }
                (Node::Group(group), Node::Group(next)) => {
                    self.replace_tasks(&group.children, &next.children);
                }
                (Node::Loop(repeated), Node::Loop(next)) => {
                    self.replace_tasks(&repeated.children, &next.children);
                }
                _ => {}
            }
        }
    }

    fn add(
        &mut self,
        parent: NodeId,
        nodes: &[Node],
        loops: &mut Vec<String>,
        ancestors: &mut Vec<NodeId>,
    ) {
        let first = self.first_children.len();
        self.first_children[parent.0] = first;
        self.first_children.resize(first + nodes.len(), 0);
        ancestors.push(parent);
        for (node, id) in nodes.iter().zip(first..) {
            match node {
                Node::Task(task) => {
                    let (loops, ancestors) = (loops.clone(), ancestors.clone());
                    let entry = Entry { task: Arc::clone(task), loops, ancestors };
                    self.tasks.insert(task.id.clone(), entry);
                }
                Node::Group(group) => self.add(NodeId(id), &group.children, loops, ancestors),
                Node::Loop(repeated) => {
                    loops.push(repeated.id.clone());
                    self.add(NodeId(id), &repeated.children, loops, ancestors);
                    loops.pop();
                }
            }
        }
        ancestors.pop();
    }

    /// The child of a node at this position, from 0.
    pub(super) fn child(&self, parent: NodeId, position: usize) -> NodeId {
        NodeId(self.first_children.get(parent.0).copied().unwrap_or_default() + position)
    }
}

/// Whether nodes have the same order, and finish under the same conditions.
fn are_alike(some: &[Node], others: &[Node]) -> bool {
    let is_alike = |(one, other): (&Node, &Node)| match (one, other) {
        (Node::Task(one), Node::Task(other)) => {
            let said = |task: &Task| (task.is_skipped, task.continue_on_fail);
            Arc::ptr_eq(one, other) || (one.id == other.id && said(one) == said(other))
        }
        (Node::Group(one), Node::Group(other)) => {
            one.order == other.order && are_alike(&one.children, &other.children)
        }
        (Node::Loop(one), Node::Loop(other)) => {
            one.id == other.id && are_alike(&one.children, &other.children)
        }
        _ => false,
    };
    some.len() == others.len() && some.iter().zip(others).all(is_alike)
}
