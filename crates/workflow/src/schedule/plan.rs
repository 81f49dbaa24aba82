//! Plans the next tasks and loop iterations of a graph.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::index::{Entry, Index, NodeId};
use super::key::{Key, key, scoped};
use crate::graph::{Graph, Group, Loop, Node, Order, Task};

/// The state of a task that has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is running, or will be retried.
    Running,
    /// It waits for an event from outside.
    Waiting,
    /// It has finished, or was skipped.
    Done,
    /// It has failed permanently.
    Failed,
}

/// The state of a loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoopState {
    /// The current iteration.
    pub iteration: u32,
    /// Whether it has ended.
    pub has_ended: bool,
}

/// What a loop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopStep {
    /// It starts its next iteration.
    Again,
    /// It ends: its condition holds.
    End,
    /// It ends: it has reached its maximum of iterations.
    Maximum {
        /// Whether the run fails because of that.
        fails: bool,
    },
}

/// The next steps.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// Tasks that can start.
    pub ready: Vec<(Key, &'a Arc<Task>)>,
    /// Loops whose iteration has finished.
    pub loops: Vec<(String, LoopStep)>,
    /// Tasks that depend on tasks that no rendering contains, with the ids of the missing tasks.
    pub blocked: Vec<(&'a Task, Vec<&'a str>)>,
    /// Tasks that have failed permanently, which fails the run.
    pub failed: Vec<Key>,
    /// Whether everything has finished.
    pub is_finished: bool,
}

/// What earlier plans with an index found to be permanently finished.
#[derive(Debug, Default)]
pub struct Progress {
    /// The number of leading children of a sequence that are finished.
    leading: HashMap<NodeId, usize>,
    /// Finished nodes that run in parallel with others.
    finished: HashSet<NodeId>,
}

/// Plans the next steps. `index` is the index of the graph, and `progress` belongs to that index.
pub fn plan<'a>(
    graph: &'a Graph,
    index: &Index,
    progress: &mut Progress,
    phases: &HashMap<Key, Phase>,
    loops: &HashMap<String, LoopState>,
    limit: Option<u32>,
) -> Plan<'a> {
    let mut planner = Planner {
        phases,
        loops,
        index,
        progress,
        running: Vec::new(),
        scope: Vec::new(),
        capacities: Vec::new(),
        is_answered: true,
        plan: Plan::default(),
    };
    planner.find_running();
    planner.push_capacity(limit, NodeId::ROOT);
    let is_through = planner.sequence(NodeId::ROOT, &graph.body, true);
    planner.plan.is_finished = is_through && planner.is_answered;
    planner.plan
}

struct Planner<'a, 'b> {
    phases: &'b HashMap<Key, Phase>,
    loops: &'b HashMap<String, LoopState>,
    index: &'b Index,
    progress: &'b mut Progress,
    /// The tasks of the rendering that are running.
    running: Vec<&'b Entry>,
    /// The enclosing loops with their iterations, the outermost first.
    scope: Vec<(&'a str, u32)>,
    /// How many tasks may still start in each enclosing group that has a limit.
    capacities: Vec<u32>,
    /// Whether no task waits for an answer that others do not wait for.
    is_answered: bool,
    plan: Plan<'a>,
}

impl<'a> Planner<'a, '_> {
    fn find_running(&mut self) {
        for (key, _) in self.phases.iter().filter(|(_, phase)| **phase == Phase::Running) {
            let id = key.node.split("@@").next().unwrap_or(&key.node);
            let found = self.index.entry(id);
            self.running.extend(found.filter(|entry| self.current(entry) == *key));
        }
    }

    /// The key of a task in the current iterations.
    fn current(&self, entry: &Entry) -> Key {
        let mut scope: Vec<(&str, u32)> = Vec::new();
        for name in &entry.loops {
            let state = self.loops.get(&scoped(name, &scope)).copied().unwrap_or_default();
            scope.push((name, state.iteration));
        }
        key(&entry.task.id, &scope)
    }

    fn state(&self, repeated: &Loop) -> LoopState {
        self.loops.get(&scoped(&repeated.id, &self.scope)).copied().unwrap_or_default()
    }

    /// Whether a node is finished; plans the tasks below it that can start, if `may_begin`.
    fn node(&mut self, id: NodeId, node: &'a Node, may_start: bool) -> bool {
        match node {
            Node::Task(task) => self.task(task, may_start),
            Node::Group(Group { order: Order::Sequence, children }) => {
                self.sequence(id, children, may_start)
            }
            Node::Group(Group { order: Order::Parallel { limit, subtrees }, children }) => {
                let rooms = self.capacities.len();
                self.push_capacity(*limit, id);
                let is_through = match subtrees {
                    Some(most) => self.subtrees(id, children, *most, may_start),
                    None => children.iter().enumerate().fold(true, |is_through, (at, child)| {
                        self.branch(self.index.child(id, at), child, may_start) && is_through
                    }),
                };
                self.reduce_capacities(rooms);
                is_through
            }
            Node::Group(Group { order: Order::Boundary { caught, rethrows }, children }) => {
                self.boundary(id, children, (*caught, *rethrows), may_start)
            }
            Node::Loop(repeated) => self.repeated(id, repeated, may_start),
        }
    }

    /// Like `node`, for a node that runs in parallel with others.
    fn branch(&mut self, id: NodeId, node: &'a Node, may_start: bool) -> bool {
        if self.progress.finished.contains(&id) {
            return true;
        }
        let is_through = self.node(id, node, may_start);
        // In a loop, finished nodes start again.
        if is_through && self.scope.is_empty() && self.is_answered {
            self.progress.finished.insert(id);
        }
        is_through
    }

    /// Nodes of which only so many may have begun without having ended. Those that have begun go on; the
    /// others begin in their order.
    fn subtrees(&mut self, id: NodeId, nodes: &'a [Node], most: u32, may_start: bool) -> bool {
        let mut is_through = true;
        let mut room = most;
        let (begun, others): (Vec<_>, Vec<_>) =
            nodes.iter().enumerate().partition(|(_, node)| self.has_begun(node));
        for (at, node) in begun {
            if !self.branch(self.index.child(id, at), node, may_start) {
                is_through = false;
                room = room.saturating_sub(1);
            }
        }
        for (at, node) in others {
            let planned = (self.plan.ready.len(), self.plan.loops.len());
            is_through &= self.branch(self.index.child(id, at), node, may_start && room > 0);
            if planned != (self.plan.ready.len(), self.plan.loops.len()) {
                room -= 1;
            }
        }
        is_through
    }

    /// Whether a task below a node has started, in the current iterations of the loops around it.
    fn has_begun(&self, node: &Node) -> bool {
        let mut has_begun = !self.phases_below(node).is_empty();
        node.visit(&mut |node| {
            if let Node::Loop(repeated) = node {
                has_begun |= self.state(repeated) != LoopState::default();
            }
        });
        has_begun
    }

    fn sequence(&mut self, id: NodeId, nodes: &'a [Node], may_start: bool) -> bool {
        // In a loop, finished nodes start again.
        let is_kept = self.scope.is_empty();
        let known = self.progress.leading.get(&id).copied().filter(|_| is_kept);
        let mut leading = known.unwrap_or_default();
        while let Some(node) = nodes.get(leading) {
            if !self.node(self.index.child(id, leading), node, may_start) {
                break;
            }
            leading += 1;
        }
        if is_kept && self.is_answered {
            self.progress.leading.insert(id, leading);
        }
        leading == nodes.len()
    }

    /// The work of a boundary, the reaction to its failure, and what follows in any case. Failures that
    /// remain count only after that.
    fn boundary(
        &mut self,
        id: NodeId,
        nodes: &'a [Node],
        (caught, rethrows): (bool, bool),
        may_start: bool,
    ) -> bool {
        let [work, reaction, last] = nodes else { return self.sequence(id, nodes, may_start) };
        let child = |position| self.index.child(id, position);
        let (first, second, third) = (child(0), child(1), child(2));
        let Some(mut failures) = self.guarded(first, work, may_start) else { return false };
        if !failures.is_empty() && caught {
            let Some(others) = self.guarded(second, reaction, may_start) else { return false };
            if rethrows {
                failures.extend(others);
            } else {
                failures = others;
            }
        }
        let is_through = self.node(third, last, may_start);
        if !is_through || failures.is_empty() {
            return is_through;
        }
        self.plan.failed.extend(failures);
        false
    }

    /// Plans a node whose failures do not fail the run at once; returns its failures when it has ended.
    /// After a failure, nothing more of it starts.
    fn guarded(&mut self, id: NodeId, node: &'a Node, may_start: bool) -> Option<Vec<Key>> {
        let has_failed = self.has_failed(node);
        let outer = std::mem::take(&mut self.plan.failed);
        let is_through = self.node(id, node, may_start && !has_failed);
        let failures = std::mem::replace(&mut self.plan.failed, outer);
        let has_ended = if failures.is_empty() { is_through } else { !self.is_active(node) };
        has_ended.then_some(failures)
    }

    /// The phases of the tasks below a node, in the current iterations.
    fn phases_below(&self, node: &Node) -> Vec<(bool, Phase)> {
        let mut found = Vec::new();
        node.visit(&mut |node| {
            let Node::Task(task) = node else { return };
            let key = self.index.entry(&task.id).map(|entry| self.current(entry));
            let phase = key.and_then(|key| self.phases.get(&key).copied());
            found.extend(phase.map(|phase| (task.continue_on_fail, phase)));
        });
        found
    }

    fn has_failed(&self, node: &Node) -> bool {
        self.phases_below(node).contains(&(false, Phase::Failed))
    }

    fn is_active(&self, node: &Node) -> bool {
        let is_active = |phase| matches!(phase, Phase::Running | Phase::Waiting);
        self.phases_below(node).into_iter().any(|(_, phase)| is_active(phase))
    }

    fn repeated(&mut self, id: NodeId, repeated: &'a Loop, may_start: bool) -> bool {
        let name = scoped(&repeated.id, &self.scope);
        let state = self.state(repeated);
        if state.has_ended {
            return true;
        }
        self.scope.push((&repeated.id, state.iteration));
        let is_through = self.sequence(id, &repeated.children, may_start && !repeated.until);
        let is_idle = self.running(id) == 0;
        self.scope.pop();
        if may_start && (is_through || (repeated.until && is_idle)) {
            let next = if repeated.until {
                LoopStep::End
            } else if state.iteration + 1 < repeated.max_iterations {
                LoopStep::Again
            } else {
                LoopStep::Maximum { fails: repeated.fails_at_maximum }
            };
            self.plan.loops.push((name, next));
        }
        false
    }

    fn task(&mut self, task: &'a Arc<Task>, may_start: bool) -> bool {
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
            Some(Phase::Waiting) if task.is_async => {
                self.is_answered = false;
                true
            }
            Some(Phase::Running | Phase::Waiting) => false,
            None => {
                if may_start {
                    self.start(key, task);
                }
                false
            }
        }
    }

    /// Plans a task, unless it depends on others or a limit is reached.
    fn start(&mut self, key: Key, task: &'a Arc<Task>) {
        let mut missing = Vec::new();
        let mut waits = false;
        for id in &task.after {
            match self.index.entry(id) {
                Some(entry) => {
                    let phase = self.phases.get(&self.current(entry));
                    let has_failed = phase == Some(&Phase::Failed);
                    waits |= !(entry.task.is_skipped
                        || phase == Some(&Phase::Done)
                        || (has_failed && entry.task.continue_on_fail));
                }
                // It was in an earlier rendering.
                None if self.is_done_somewhere(id) => {}
                None => missing.push(id.as_str()),
            }
        }
        if !missing.is_empty() {
            self.plan.blocked.push((task, missing));
        } else if !waits && self.capacities.iter().all(|room| *room > 0) {
            self.capacities.iter_mut().for_each(|room| *room -= 1);
            self.plan.ready.push((key, task));
        }
    }

    fn is_done_somewhere(&self, id: &str) -> bool {
        self.phases.iter().any(|(key, phase)| key.node == id && *phase == Phase::Done)
    }

    fn push_capacity(&mut self, limit: Option<u32>, id: NodeId) {
        if let Some(limit) = limit {
            let running = self.running(id);
            self.capacities.push(limit.saturating_sub(running));
        }
    }

    /// Removes the limits of groups that were left.
    fn reduce_capacities(&mut self, count: usize) {
        self.capacities.truncate(count);
    }

    /// How many tasks below a node are running.
    fn running(&self, id: NodeId) -> u32 {
        let below = self.running.iter().filter(|entry| entry.ancestors.contains(&id));
        u32::try_from(below.count()).unwrap_or(u32::MAX)
    }
}
