//! Plans for example graphs.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::graph::{Graph, Group, Node, Order, Task};

fn step(id: &str, after: &[&str]) -> Node {
    Task::value(id, json!(1)).into_table("r", None).after(after).into()
}

fn plan<'a>(
    graph: &'a Graph,
    phases: &HashMap<Key, Phase>,
    loops: &HashMap<String, LoopState>,
    limit: Option<u32>,
) -> Plan<'a> {
    super::plan(graph, &Index::new(graph), &mut Progress::default(), phases, loops, limit)
}

/// Executes the planned tasks one after another until none is planned; returns the tasks that started,
/// in order.
fn order(graph: &Graph, limit: Option<u32>, batch: usize) -> Vec<String> {
    let (mut phases, mut loops) = (HashMap::new(), HashMap::<String, LoopState>::new());
    let mut began = Vec::new();
    let (index, mut progress) = (Index::new(graph), Progress::default());
    loop {
        let plan = super::plan(graph, &index, &mut progress, &phases, &loops, limit);
        // The stored progress does not change the result.
        let anew = self::plan(graph, &phases, &loops, limit);
        assert_eq!((&plan.ready, &plan.loops), (&anew.ready, &anew.loops));
        assert_eq!((&plan.failed, plan.is_finished), (&anew.failed, anew.is_finished));
        if plan.is_finished {
            return began;
        }
        for (name, next) in &plan.loops {
            let state = loops.entry(name.clone()).or_default();
            match next {
                LoopStep::Again => state.iteration += 1,
                LoopStep::End | LoopStep::Maximum { .. } => state.has_ended = true,
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
fn nodes_that_have_begun_end_before_others_begin() {
    let pair = |one: &str, two: &str| Node::sequence([step(one, &[]), step(two, &[])]);
    let three = || [pair("a", "b"), pair("c", "d"), pair("e", "f")];
    let graph = |most| {
        let order = Order::Parallel { limit: None, subtrees: Some(most) };
        Graph::new("w", [Node::Group(Group { order, children: three().into() })])
    };
    let expected = ["a::0", "b::0", "c::0", "d::0", "e::0", "f::0"];
    assert_eq!(order(&graph(1), None, 1), expected);
    let expected = ["a::0", "c::0", "b::0", "d::0", "e::0", "f::0"];
    assert_eq!(order(&graph(2), None, 2), expected);
    // A node that waits for another one takes no place.
    let again = Node::repeated("l", false, 2, [step("x", &[])]);
    let children = vec![pair("a", "b"), again, step("c", &["a"]), step("d", &["c"])];
    let limited = Order::Parallel { limit: None, subtrees: Some(1) };
    let graph = Graph::new("w", [Node::Group(Group { order: limited, children })]);
    let expected = ["a::0", "b::0", "x::0", "x::1", "c::0", "d::0"];
    assert_eq!(order(&graph, None, 1), expected);
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

/// The graph of a later rendering, which shares no value with the first.
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
    let (mut phases, loops) = (HashMap::new(), HashMap::new());
    for (done, label) in [("a", "second"), ("b", "third"), ("c", "last")] {
        phases.insert(Key { node: done.to_owned(), iteration: 0 }, Phase::Done);
        let next = later(label, false, ids);
        assert!(index.follow(&graph, &next));
        graph = next;
        assert_eq!(index.task("c").map(|task| task.name()), Some(label));
        let plan = super::plan(&graph, &index, &mut progress, &phases, &loops, None);
        let anew = self::plan(&graph, &phases, &loops, None);
        assert_eq!((&plan.ready, &plan.loops), (&anew.ready, &anew.loops));
    }
    let known: HashMap<_, _> =
        ids.map(|id| (id, Arc::clone(index.task(id).unwrap()))).into_iter().collect();
    for other in [
        later("last", true, ids),
        later("last", false, ["b", "a", "c"]),
        later("last", false, ["a", "b", "x"]),
        Graph::new("w", []),
        Graph { name: "other".to_owned(), ..graph.clone() },
    ] {
        assert!(!index.follow(&graph, &other));
        assert!(known.iter().all(|(id, task)| Arc::ptr_eq(task, index.task(id).unwrap())));
    }
}
