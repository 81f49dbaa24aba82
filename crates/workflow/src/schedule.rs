//! What is to be done next: from what a rendering says and what was done, without doing anything.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::graph::{Graph, Group, Loop, Node, Order, Task};

/// One doing of a task: in a loop, each iteration is another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The task's id; in a loop that is in a loop, with the iterations of those around.
    pub node: String,
    /// The iteration of the loop that it is in, else 0.
    pub iteration: u32,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.node, self.iteration)
    }
}

/// Where a task is in its life, when it has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is being done, or will be tried again.
    Running,
    /// It waits for something from outside.
    Waiting,
    /// It is done.
    Done,
    /// It has failed for good.
    Failed,
}

/// Where a loop is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn {
    /// The iteration that is being done.
    pub iteration: u32,
    /// Whether there are no more.
    pub has_ended: bool,
}

/// What a loop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Its next iteration.
    Again,
    /// Nothing: its condition holds.
    End,
    /// Nothing: it was done as often as it may be.
    Maximum {
        /// Whether that is a failure.
        fails: bool,
    },
}

/// What is to be done next.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// Tasks that can begin.
    pub ready: Vec<(Key, &'a Arc<Task>)>,
    /// Loops whose iteration is through.
    pub loops: Vec<(String, Next)>,
    /// Tasks that wait for others which no rendering has, with the ids of those.
    pub blocked: Vec<(&'a Task, Vec<&'a str>)>,
    /// Tasks that have failed for good, and with them the run.
    pub failed: Vec<Key>,
    /// Whether nothing is left to be done.
    pub is_through: bool,
}

/// Where each task of a graph is in it. It is made once for a graph, which is planned often.
#[derive(Debug, Default)]
pub struct Index {
    tasks: HashMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    task: Arc<Task>,
    /// The loops around it, the outermost first.
    loops: Vec<String>,
    /// What holds it, each by its children.
    groups: Vec<Place>,
}

/// Nodes that belong together, by where they are.
type Place = usize;

fn place(nodes: &[Node]) -> Place {
    nodes.as_ptr().addr()
}

impl Index {
    /// That of a graph.
    pub fn new(graph: &Graph) -> Self {
        let mut index = Self::default();
        index.add(&graph.body, &mut Vec::new(), &mut Vec::new());
        index
    }

    /// A task, by its id.
    pub fn task(&self, id: &str) -> Option<&Arc<Task>> {
        self.tasks.get(id).map(|entry| &entry.task)
    }

    /// Makes a graph of which this is the index what a later rendering has, without moving anything of
    /// it: what was planned in it holds. False, and nothing is done, where more is another than what
    /// single tasks and loops say of themselves.
    pub fn follow(&mut self, graph: &mut Graph, next: &Graph) -> bool {
        let is_alike = graph.name == next.name && are_alike(&graph.body, &next.body);
        if is_alike {
            self.replace(&mut graph.body, &next.body);
        }
        is_alike
    }

    fn replace(&mut self, nodes: &mut [Node], next: &[Node]) {
        for (node, next) in nodes.iter_mut().zip(next) {
            match (node, next) {
                (Node::Task(task), Node::Task(next)) if !Arc::ptr_eq(task, next) => {
                    *task = Arc::clone(next);
                    if let Some(entry) = self.tasks.get_mut(&next.id) {
                        entry.task = Arc::clone(next);
                    }
                }
                (Node::Group(group), Node::Group(next)) => {
                    self.replace(&mut group.children, &next.children);
                }
                (Node::Loop(repeated), Node::Loop(next)) => {
                    self.replace(&mut repeated.children, &next.children);
                    let Loop { id: _, children: _, until, max_iterations, fails_at_maximum, place } =
                        next;
                    repeated.until = *until;
                    repeated.max_iterations = *max_iterations;
                    repeated.fails_at_maximum = *fails_at_maximum;
                    repeated.place.clone_from(place);
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, nodes: &[Node], loops: &mut Vec<String>, groups: &mut Vec<Place>) {
        groups.push(place(nodes));
        for node in nodes {
            match node {
                Node::Task(task) => {
                    let (task, loops, groups) = (Arc::clone(task), loops.clone(), groups.clone());
                    self.tasks.insert(task.id.clone(), Entry { task, loops, groups });
                }
                Node::Group(group) => self.add(&group.children, loops, groups),
                Node::Loop(repeated) => {
                    loops.push(repeated.id.clone());
                    self.add(&repeated.children, loops, groups);
                    loops.pop();
                }
            }
        }
        groups.pop();
    }
}

/// Whether nodes are in the same order, and through when the others are.
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

/// What earlier plans of a graph found to be through for good.
#[derive(Debug, Default)]
pub struct Progress {
    /// How many of the first nodes of a sequence.
    first: HashMap<Place, usize>,
    /// Nodes that are done at once with others, by where they are.
    through: HashSet<usize>,
}

/// Plans what is next. `index` is that of the graph, `progress` what this left there the last time.
pub fn plan<'a>(
    graph: &'a Graph,
    index: &Index,
    progress: &mut Progress,
    phases: &HashMap<Key, Phase>,
    turns: &HashMap<String, Turn>,
    limit: Option<u32>,
) -> Plan<'a> {
    let mut planner = Planner {
        phases,
        turns,
        index,
        progress,
        running: Vec::new(),
        scope: Vec::new(),
        rooms: Vec::new(),
        plan: Plan::default(),
    };
    planner.find_running();
    planner.open_room(limit, &graph.body);
    planner.plan.is_through = planner.sequence(&graph.body, true);
    planner.plan
}

struct Planner<'a, 'b> {
    phases: &'b HashMap<Key, Phase>,
    turns: &'b HashMap<String, Turn>,
    index: &'b Index,
    progress: &'b mut Progress,
    /// The tasks of the rendering that are being done.
    running: Vec<&'b Entry>,
    /// The loops around, with their iterations.
    scope: Vec<(&'a str, u32)>,
    /// How many tasks may begin in each of the groups around that have a limit.
    rooms: Vec<u32>,
    plan: Plan<'a>,
}

impl<'a> Planner<'a, '_> {
    fn find_running(&mut self) {
        for (key, _) in self.phases.iter().filter(|(_, phase)| **phase == Phase::Running) {
            let id = key.node.split("@@").next().unwrap_or(&key.node);
            let found = self.index.tasks.get(id);
            self.running.extend(found.filter(|entry| self.current(entry) == *key));
        }
    }

    /// What a task is called now.
    fn current(&self, entry: &Entry) -> Key {
        let mut scope: Vec<(&str, u32)> = Vec::new();
        for name in &entry.loops {
            let turn = self.turns.get(&scoped(name, &scope)).copied().unwrap_or_default();
            scope.push((name, turn.iteration));
        }
        key(&entry.task.id, &scope)
    }

    fn turn(&self, repeated: &Loop) -> Turn {
        self.turns.get(&scoped(&repeated.id, &self.scope)).copied().unwrap_or_default()
    }

    /// Whether a node is through; what of it can begin does, when it may.
    fn node(&mut self, node: &'a Node, may_begin: bool) -> bool {
        match node {
            Node::Task(task) => self.task(task, may_begin),
            Node::Group(Group { order: Order::Sequence, children }) => {
                self.sequence(children, may_begin)
            }
            Node::Group(Group { order: Order::Parallel { limit }, children }) => {
                let rooms = self.rooms.len();
                self.open_room(*limit, children);
                let mut is_through = true;
                for child in children {
                    is_through &= self.one(child, may_begin);
                }
                self.close_rooms(rooms);
                is_through
            }
            Node::Loop(repeated) => self.repeated(repeated, may_begin),
        }
    }

    /// The same, of a node that is done at once with others.
    fn one(&mut self, node: &'a Node, may_begin: bool) -> bool {
        let place = std::ptr::from_ref(node).addr();
        if self.progress.through.contains(&place) {
            return true;
        }
        let is_through = self.node(node, may_begin);
        // In a loop, what is through is begun again.
        if is_through && self.scope.is_empty() {
            self.progress.through.insert(place);
        }
        is_through
    }

    fn sequence(&mut self, nodes: &'a [Node], may_begin: bool) -> bool {
        if !self.scope.is_empty() {
            return nodes.iter().all(|node| self.node(node, may_begin));
        }
        let mut first = self.progress.first.get(&place(nodes)).copied().unwrap_or_default();
        while let Some(node) = nodes.get(first) {
            if !self.node(node, may_begin) {
                break;
            }
            first += 1;
        }
        self.progress.first.insert(place(nodes), first);
        first == nodes.len()
    }

    fn repeated(&mut self, repeated: &'a Loop, may_begin: bool) -> bool {
        let name = scoped(&repeated.id, &self.scope);
        let turn = self.turn(repeated);
        if turn.has_ended {
            return true;
        }
        self.scope.push((&repeated.id, turn.iteration));
        let is_through = self.sequence(&repeated.children, may_begin && !repeated.until);
        let is_idle = self.running(&repeated.children) == 0;
        self.scope.pop();
        if may_begin && (is_through || (repeated.until && is_idle)) {
            let next = if repeated.until {
                Next::End
            } else if turn.iteration + 1 < repeated.max_iterations {
                Next::Again
            } else {
                Next::Maximum { fails: repeated.fails_at_maximum }
            };
            self.plan.loops.push((name, next));
        }
        false
    }

    fn task(&mut self, task: &'a Arc<Task>, may_begin: bool) -> bool {
        if task.is_skipped {
            return true;
        }
        let key = key(&task.id, &self.scope);
        match self.phases.get(&key) {
            Some(Phase::Done) => true,
            Some(Phase::Failed) => {
                if !task.continue_on_fail {
                    self.plan.failed.push(key);
                }
                task.continue_on_fail
            }
            Some(Phase::Running | Phase::Waiting) => false,
            None => {
                if may_begin {
                    self.begin(key, task);
                }
                false
            }
        }
    }

    /// Lets a task begin, unless it waits for others or there is no room.
    fn begin(&mut self, key: Key, task: &'a Arc<Task>) {
        let mut missing = Vec::new();
        let mut waits = false;
        for id in &task.after {
            match self.index.tasks.get(id) {
                Some(entry) => {
                    let phase = self.phases.get(&self.current(entry));
                    let has_failed = phase == Some(&Phase::Failed);
                    waits |= !(entry.task.is_skipped
                        || phase == Some(&Phase::Done)
                        || (has_failed && entry.task.continue_on_fail));
                }
                // One that an earlier rendering had.
                None if self.is_done_somewhere(id) => {}
                None => missing.push(id.as_str()),
            }
        }
        if !missing.is_empty() {
            self.plan.blocked.push((task, missing));
        } else if !waits && self.rooms.iter().all(|room| *room > 0) {
            self.rooms.iter_mut().for_each(|room| *room -= 1);
            self.plan.ready.push((key, task));
        }
    }

    fn is_done_somewhere(&self, id: &str) -> bool {
        self.phases.iter().any(|(key, phase)| key.node == id && *phase == Phase::Done)
    }

    fn open_room(&mut self, limit: Option<u32>, nodes: &'a [Node]) {
        if let Some(limit) = limit {
            let running = self.running(nodes);
            self.rooms.push(limit.saturating_sub(running));
        }
    }

    /// Closes the rooms that were opened since. What began in them began in those around as well.
    fn close_rooms(&mut self, count: usize) {
        self.rooms.truncate(count);
    }

    /// How many tasks below are being done.
    fn running(&self, nodes: &'a [Node]) -> u32 {
        let place = place(nodes);
        let below = self.running.iter().filter(|entry| entry.groups.contains(&place));
        u32::try_from(below.count()).unwrap_or(u32::MAX)
    }
}

/// What a task is called with these loops around it.
fn key(id: &str, scope: &[(&str, u32)]) -> Key {
    let (inner, around) = match scope.split_last() {
        Some((inner, around)) => (inner.1, around),
        None => (0, &[][..]),
    };
    Key { node: scoped(id, around), iteration: inner }
}

/// An id with the iterations of the loops around.
fn scoped(id: &str, around: &[(&str, u32)]) -> String {
    let mut name = id.to_owned();
    for (outer, iteration) in around {
        name.push_str(&format!("@@{outer}={iteration}"));
    }
    name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(id: &str, after: &[&str]) -> Node {
        Task::value(id, json!(1)).into_table("r", None).after(after).into()
    }

    fn plan<'a>(
        graph: &'a Graph,
        phases: &HashMap<Key, Phase>,
        turns: &HashMap<String, Turn>,
        limit: Option<u32>,
    ) -> Plan<'a> {
        super::plan(graph, &Index::new(graph), &mut Progress::default(), phases, turns, limit)
    }

    /// Does what is planned until nothing is, one thing after another; what began, in order.
    fn order(graph: &Graph, limit: Option<u32>, batch: usize) -> Vec<String> {
        let (mut phases, mut turns) = (HashMap::new(), HashMap::<String, Turn>::new());
        let mut began = Vec::new();
        let (index, mut progress) = (Index::new(graph), Progress::default());
        loop {
            let plan = super::plan(graph, &index, &mut progress, &phases, &turns, limit);
            // What is remembered changes nothing.
            let anew = self::plan(graph, &phases, &turns, limit);
            assert_eq!((&plan.ready, &plan.loops), (&anew.ready, &anew.loops));
            assert_eq!((&plan.failed, plan.is_through), (&anew.failed, anew.is_through));
            if plan.is_through {
                return began;
            }
            for (name, next) in &plan.loops {
                let turn = turns.entry(name.clone()).or_default();
                match next {
                    Next::Again => turn.iteration += 1,
                    Next::End | Next::Maximum { .. } => turn.has_ended = true,
                }
            }
            let ready: Vec<_> = plan.ready.iter().map(|(key, _)| key.clone()).collect();
            assert!(!ready.is_empty() || !plan.loops.is_empty(), "stuck after {began:?}");
            assert!(ready.len() <= batch, "{ready:?} at once");
            for key in ready {
                began.push(key.to_string());
                phases.insert(key, Phase::Done);
            }
        }
    }

    #[test]
    fn nodes_are_done_in_their_order() {
        let graph = Graph::new(
            "w",
            [
                step("a", &[]),
                Node::parallel(None, [step("b", &["c"]), step("c", &[])]),
                Node::repeated("l", false, 2, [step("d", &[]), step("e", &[])]),
                step("f", &[]),
            ],
        );
        let began = order(&graph, None, 1);
        assert_eq!(began, ["a::0", "c::0", "b::0", "d::0", "e::0", "d::1", "e::1", "f::0"]);
    }

    #[test]
    fn loops_in_loops_have_names_of_their_own() {
        let inner = Node::repeated("in", false, 2, [step("x", &[])]);
        let graph = Graph::new("w", [Node::repeated("out", false, 2, [inner])]);
        let began = order(&graph, None, 1);
        assert_eq!(began, ["x@@out=0::0", "x@@out=0::1", "x@@out=1::0", "x@@out=1::1"]);
    }

    #[test]
    fn limits_hold_for_all_that_is_below() {
        let four = || ["a", "b", "c", "d"].map(|id| step(id, &[]));
        let graph = |limit| Graph::new("w", [Node::parallel(limit, four())]);
        let ready = |graph: &Graph, running: &[&str], limit| {
            let key = |id: &&str| Key { node: (*id).to_owned(), iteration: 0 };
            let phases = running.iter().map(|id| (key(id), Phase::Running)).collect();
            plan(graph, &phases, &HashMap::new(), limit).ready.len()
        };
        assert_eq!(ready(&graph(None), &[], None), 4);
        assert_eq!(ready(&graph(Some(3)), &["b"], None), 2);
        assert_eq!(ready(&graph(Some(1)), &["b"], None), 0);
        assert_eq!(ready(&graph(None), &["b"], Some(2)), 1);
        let nested = Graph::new("w", [Node::parallel(Some(1), [Node::parallel(None, four())])]);
        assert_eq!(ready(&nested, &[], None), 1);
        assert_eq!(order(&graph(Some(2)), None, 2).len(), 4);
    }

    #[test]
    fn a_condition_ends_a_loop_before_it_begins() {
        let repeated = Node::repeated("l", true, 9, [step("a", &[])]);
        assert_eq!(order(&Graph::new("w", [repeated, step("b", &[])]), None, 1), ["b::0"]);
    }

    #[test]
    fn failures_stop_what_comes_after_unless_they_are_allowed() {
        let failing = |continue_on_fail| {
            let mut task = Task::value("a", json!(1)).into_table("r", None);
            task.continue_on_fail = continue_on_fail;
            Graph::new("w", [task.into(), step("b", &["a"])])
        };
        let phases = HashMap::from([(Key { node: "a".to_owned(), iteration: 0 }, Phase::Failed)]);
        let graph = failing(false);
        let halted = plan(&graph, &phases, &HashMap::new(), None);
        assert_eq!((halted.ready.len(), halted.failed.len()), (0, 1));
        let graph = failing(true);
        let going_on = plan(&graph, &phases, &HashMap::new(), None);
        assert_eq!((going_on.ready.len(), going_on.failed.len()), (1, 0));
    }

    #[test]
    fn what_waits_for_nobody_is_told() {
        let graph = Graph::new("w", [step("a", &["gone"])]);
        let stuck = plan(&graph, &HashMap::new(), &HashMap::new(), None);
        assert_eq!(stuck.blocked.len(), 1);
        assert_eq!(stuck.blocked[0].1, ["gone"]);
        let known = HashMap::from([(Key { node: "gone".to_owned(), iteration: 0 }, Phase::Done)]);
        assert_eq!(plan(&graph, &known, &HashMap::new(), None).ready.len(), 1);
    }

    /// The graph of a later rendering: nothing of it is the same value.
    fn later(label: &str, skips: bool, ids: [&str; 3]) -> Graph {
        let named = |id: &str| {
            let mut task = Task::value(id, json!(1)).into_table("r", None);
            task.label = Some(label.to_owned());
            task.is_skipped = skips && id == "c";
            Node::from(task)
        };
        let [a, b, c] = ids;
        let inner = Node::parallel(None, [named(b), Node::sequence([named(c)])]);
        let repeated = Node::repeated("l", label == "last", 2, [named("d")]);
        Graph::new("w", [named(a), inner, repeated])
    }

    #[test]
    fn a_plan_goes_on_with_a_later_rendering() {
        let ids = ["a", "b", "c"];
        let mut graph = later("first", false, ids);
        let (mut index, mut progress) = (Index::new(&graph), Progress::default());
        let (mut phases, turns) = (HashMap::new(), HashMap::new());
        for (done, label) in [("a", "second"), ("b", "third"), ("c", "last")] {
            phases.insert(Key { node: done.to_owned(), iteration: 0 }, Phase::Done);
            let next = later(label, false, ids);
            assert!(index.follow(&mut graph, &next));
            assert_eq!(graph, next);
            assert_eq!(index.task("c").map(|task| task.name()), Some(label));
            let plan = super::plan(&graph, &index, &mut progress, &phases, &turns, None);
            let anew = self::plan(&next, &phases, &turns, None);
            assert_eq!((&plan.ready, &plan.loops), (&anew.ready, &anew.loops));
        }
        let known = graph.clone();
        for other in [
            later("last", true, ids),
            later("last", false, ["b", "a", "c"]),
            later("last", false, ["a", "b", "x"]),
            Graph::new("w", []),
            Graph { name: "other".to_owned(), ..known.clone() },
        ] {
            assert!(!index.follow(&mut graph, &other));
            assert_eq!(graph, known);
        }
    }
}
