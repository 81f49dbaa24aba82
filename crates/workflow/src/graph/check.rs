//! Detects errors that no run could survive: two tasks with the same id, and tasks that wait for each
//! other.

use std::collections::{HashMap, HashSet};

use super::fault::{Fault, SourceLocation};
use super::model::{Graph, Group, Node, Order};
use super::nearest::nearest;

/// Checks a whole workflow.
///
/// # Errors
/// Duplicate ids, and tasks that wait for themselves through other tasks.
pub fn check(graph: &Graph) -> Result<(), Vec<Fault>> {
    let mut faults = duplicates(graph);
    if faults.is_empty() {
        faults.extend(cycle(graph));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Finds tasks that wait for tasks that the workflow does not contain. A later rendering may contain
/// them.
///
/// # Errors
/// Each such task, with the id that was probably meant.
pub fn unknown(graph: &Graph) -> Result<(), Vec<Fault>> {
    let tasks = graph.tasks();
    let known: HashSet<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
    let mut faults = Vec::new();
    for task in tasks.iter().filter(|task| !task.is_skipped) {
        for id in task.after.iter().filter(|id| !known.contains(id.as_str())) {
            let others = known.iter().copied().filter(|other| *other != task.id);
            let hint =
                nearest(id, others).map(|suggestion| format!(" — did you mean \"{suggestion}\"?"));
            let hint = hint.unwrap_or_default();
            let message =
                format!("task \"{}\" waits for \"{id}\", which is not a task{hint}", task.id);
            faults.push(Fault { place: task.location.clone(), message });
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn duplicates(graph: &Graph) -> Vec<Fault> {
    let mut found = Vec::new();
    for node in &graph.body {
        node.visit(&mut |node| match node {
            Node::Task(task) => found.push(("tasks", task.id.as_str(), task.location.as_ref())),
            Node::Loop(repeated) => {
                found.push(("loops", repeated.id.as_str(), repeated.location.as_ref()));
            }
            Node::Group(_) => {}
        });
    }
    let mut known: HashMap<(&str, &str), Option<&SourceLocation>> = HashMap::new();
    let mut faults = Vec::new();
    for (what, id, location) in found {
        let Some(first) = known.get(&(what, id)) else {
            known.insert((what, id), location);
            continue;
        };
        let first = first.map(|first| format!(", the first at {first}")).unwrap_or_default();
        let message = format!("two {what} have the id \"{id}\"{first}");
        faults.push(Fault { place: location.cloned(), message });
    }
    faults
}

/// The dependency graph: its vertices are tasks, and the start and the end of each group.
#[derive(Default)]
struct Waits<'a> {
    /// The id of the task at each vertex, if the vertex is a task.
    names: Vec<Option<&'a str>>,
    locations: Vec<Option<&'a SourceLocation>>,
    /// The vertices that come before each vertex.
    before: Vec<Vec<usize>>,
    tasks: HashMap<&'a str, usize>,
}

impl<'a> Waits<'a> {
    fn point(&mut self, name: Option<&'a str>, location: Option<&'a SourceLocation>) -> usize {
        self.names.push(name);
        self.locations.push(location);
        self.before.push(Vec::new());
        self.names.len() - 1
    }

    /// Adds a node that comes after a vertex; returns the vertex that comes after the node.
    fn add(&mut self, node: &'a Node, after: usize) -> usize {
        match node {
            Node::Task(task) => {
                let point = self.point(Some(&task.id), task.location.as_ref());
                self.before[point].push(after);
                self.tasks.insert(&task.id, point);
                point
            }
            Node::Group(Group { order: Order::Sequence | Order::Boundary { .. }, children }) => {
                self.sequence(children, after)
            }
            Node::Group(group) => {
                let ends: Vec<_> =
                    group.children.iter().map(|child| self.add(child, after)).collect();
                let end = self.point(None, None);
                self.before[end] = ends;
                self.before[end].push(after);
                end
            }
            Node::Loop(repeated) => self.sequence(&repeated.children, after),
        }
    }

    fn sequence(&mut self, nodes: &'a [Node], after: usize) -> usize {
        nodes.iter().fold(after, |after, node| self.add(node, after))
    }
}

/// The first cycle of tasks that wait for each other.
fn cycle(graph: &Graph) -> Option<Fault> {
    let mut waits = Waits::default();
    let start = waits.point(None, None);
    waits.sequence(&graph.body, start);
    for task in graph.tasks() {
        let point = waits.tasks[task.id.as_str()];
        for id in &task.after {
            if let Some(other) = waits.tasks.get(id.as_str()) {
                waits.before[point].push(*other);
            }
        }
    }
    let path = find_cycle(&waits.before)?;
    let names: Vec<&str> = path.iter().filter_map(|point| waits.names[*point]).collect();
    let location = path.iter().find_map(|point| waits.locations[*point]).cloned();
    let message = match names.as_slice() {
        [only] => format!("task \"{only}\" waits for itself"),
        [first, .., last] => {
            let path_text = names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>();
            let path_text = path_text.join(" waits for ");
            let end = if first == last { "" } else { ", which waits for the first" };
            format!("tasks wait for each other: {path_text}{end}")
        }
        [] => "tasks wait for each other".to_owned(),
    };
    Some(Fault { place: location, message })
}

/// A path along the edges that returns to its start.
fn find_cycle(edges: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Never,
        InProgress,
        Done,
    }
    let mut seen = vec![Seen::Never; edges.len()];
    for start in 0..edges.len() {
        if seen[start] != Seen::Never {
            continue;
        }
        // The path from the start, with the next edge to follow from each vertex. It does not recurse,
        // because a sequence of many tasks is a long path.
        let mut stack = vec![(start, 0)];
        seen[start] = Seen::InProgress;
        while let Some((point, edge)) = stack.last_mut() {
            let Some(next) = edges[*point].get(*edge).copied() else {
                seen[*point] = Seen::Done;
                stack.pop();
                continue;
            };
            *edge += 1;
            match seen[next] {
                Seen::Done => {}
                Seen::Never => {
                    seen[next] = Seen::InProgress;
                    stack.push((next, 0));
                }
                Seen::InProgress => {
                    let begin = stack.iter().position(|(point, _)| *point == next)?;
                    let mut round: Vec<_> =
                        stack[begin..].iter().map(|(point, _)| *point).collect();
                    round.push(next);
                    return Some(round);
                }
            }
        }
    }
    None
}
