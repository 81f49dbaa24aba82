//! Reading of elements, and the errors that are found in them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;

/// A whole rendering, as a realm sends it.
pub(super) fn update_of(root: &Value) -> RenderUpdate {
    fn add(element: &Value, heads: &mut Vec<Value>, lists: &mut Vec<Value>) -> usize {
        let number = heads.len();
        let mut head = element.clone();
        let children = head.as_object_mut().and_then(|head| head.remove("children"));
        heads.push(json!([number, head]));
        let children = children.as_ref().and_then(Value::as_array).into_iter().flatten();
        let list: Vec<usize> = children.map(|child| add(child, heads, lists)).collect();
        if !list.is_empty() {
            lists.push(json!([number, list]));
        }
        number
    }
    let (mut heads, mut lists) = (Vec::new(), Vec::new());
    let root = add(root, &mut heads, &mut lists);
    let text = json!({ "isWhole": true, "root": root, "heads": heads, "lists": lists }).to_string();
    serde_json::from_str(&text).unwrap()
}

fn read(root: Value, schemas: &[Value]) -> Result<Graph, Vec<Fault>> {
    match Tree::after(None, update_of(&root), schemas) {
        Ok(tree) => Ok(Graph::clone(tree.graph().unwrap())),
        Err(Error::Faults(faults)) => Err(faults),
        Err(error) => panic!("{error}"),
    }
}

fn task_of(props: Value) -> Value {
    json!({"kind": "task", "place": {"file": "w.tsx", "line": 5, "column": 3}, "props": props})
}

fn workflow(children: Value) -> Value {
    json!({"kind": "workflow", "props": {"name": "w"}, "children": children})
}

fn read_one(props: Value) -> Result<Task, String> {
    match read(workflow(json!([task_of(props)])), &[json!({"type": "object"})]) {
        Ok(graph) => Ok(graph.tasks()[0].clone()),
        Err(faults) => Err(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")),
    }
}

fn value(value: Value) -> Value {
    json!({"$": "value", "value": value})
}

#[test]
fn a_task_is_what_its_attributes_say() {
    let task = read_one(json!({
        "id": "a", "output": {"$": "table", "key": "result", "schema": 0},
        "children": {"$": "function", "ref": 4}, "dependsOn": ["x", "y"], "needs": {"plan": "z"},
        "retries": {"$": "number", "value": "Infinity"}, "timeoutMs": 1500,
        "heartbeatTimeout": 20, "retryPolicy": {"backoff": "linear", "initialDelayMs": 10},
        "continueOnFail": true, "label": "A", "meta": {"k": 1}, "skipIf": false,
    }));
    let task = task.unwrap();
    let inputs = Some(BTreeMap::from([("plan".to_owned(), "z".to_owned())]));
    assert_eq!(task.work, Work::Compute { function: Function(4), inputs });
    assert_eq!(task.after, ["x", "y", "z"]);
    assert_eq!(
        task.output,
        Some(Output {
            table: "result".to_owned(),
            schema: Some(json!({"type": "object"})),
            parse: None
        })
    );
    assert_eq!((task.retry.limit, task.retry.growth), (None, Growth::Linear));
    assert_eq!(task.retry.pause(3), Some(Duration::from_millis(30)));
    assert_eq!(task.timeout, Some(Duration::from_millis(1500)));
    assert_eq!(task.heartbeat_timeout, Some(Duration::from_millis(20)));
    assert!(task.continue_on_fail && !task.is_skipped);
    assert_eq!((task.name(), &task.meta["k"]), ("A", &json!(1)));
    assert_eq!(task.location.unwrap().to_string(), "w.tsx:5:3");
}

#[test]
fn what_is_wrong_has_its_place_and_the_name_that_was_meant() {
    let good = json!({"id": "a", "output": "r", "children": value(json!(1))});
    assert!(read_one(good.clone()).is_ok());
    let with = |name: &str, value: Value| {
        let mut props = good.clone();
        props[name] = value;
        read_one(props).unwrap_err()
    };
    for (name, attributes, expected) in [
        ("id", json!(null), "w.tsx:5:3 — <Task> needs `id`"),
        ("id", json!(7), "w.tsx:5:3 — <Task> `id` must be a string, not 7"),
        (
            "timeout",
            json!(5),
            "w.tsx:5:3 — <Task> has no attribute `timeout` — did you mean `timeoutMs`?",
        ),
        (
            "timeoutMs",
            json!("5"),
            "w.tsx:5:3 — <Task> `timeoutMs` must be a number of milliseconds above 0, not \"5\"",
        ),
        ("retries", json!(-1), "`retries` must be a whole number of at least 0, not -1"),
        ("dependsOn", json!([1]), "`dependsOn` must be a list of ids, not [1]"),
        ("output", json!(null), "w.tsx:5:3 — <Task> needs `output`"),
        ("agent", json!("codex"), ", as in { command: \"…\" }, not \"codex\""),
        ("children", json!(null), "<Task> has no work"),
        ("retryPolicy", json!({"backoff": "random"}), "`retryPolicy.backoff` must be"),
        ("volumes", json!([]), "has no attribute `volumes` — it has agent, async, cache, children"),
    ] {
        let found = with(name, attributes);
        assert!(found.contains(expected), "{name}: {found}");
    }
}

#[test]
fn unknown_elements_are_refused() {
    let expected =
        |kind: &str| read(workflow(json!([{"kind": kind}])), &[]).unwrap_err()[0].message.clone();
    assert_eq!(expected("Sequense"), "there is no element <Sequense> — did you mean <Sequence>?");
    assert!(
        expected("saga-thing").contains("there are Workflow, Task, Sequence"),
        "{}",
        expected("x")
    );
    assert!(expected("workflow").contains("cannot be nested"));
    let root = read(json!({"kind": "task"}), &[]).unwrap_err();
    assert_eq!(root[0].message, "the outermost element must be <Workflow>, not <Task>");
}

#[test]
fn every_element_is_read() {
    let graph = read(
        workflow(json!([
            {"kind": "sequence", "children": [{"kind": "parallel", "props": {"maxConcurrency": 2}}]},
            {"kind": "merge-queue"},
            {"kind": "branch", "props": {"if": true}},
            {"kind": "loop", "props": {"id": "l", "until": true, "maxIterations": 3,
                "onMaxReached": "fail"}},
            {"kind": "approval", "props": {"id": "ok", "output": "d", "onDeny": "skip",
                "request": {"title": "T", "summary": "S"}}},
            {"kind": "timer", "props": {"id": "t", "duration": "30s"}},
            {"kind": "timer", "props": {"id": "u", "until": {"$": "date", "value": "1970-01-01T00:00:01Z"}}},
            {"kind": "wait-for-event", "props": {"id": "e", "event": "go", "correlationId": "7",
                "output": "x", "timeoutMs": 5, "onTimeout": "continue"}},
            {"kind": "signal", "props": {"id": "s", "schema": "x"}},
            {"kind": "subflow", "props": {"id": "f", "output": "o", "input": {"a": 1},
                "workflow": {"$": "function", "ref": 1}}},
            {"kind": "sandbox", "props": {"id": "b", "output": "o", "runtime": "bubblewrap", "command": "true"}},
        ])),
        &[],
    )
    .unwrap();
    let parallel = Node::parallel(Some(2), []);
    assert_eq!(graph.body[0], Node::sequence([parallel]));
    assert_eq!(graph.body[1], Node::parallel(Some(1), []));
    let kinds: Vec<_> = graph.tasks().iter().map(|task| task.work.kind()).collect();
    assert_eq!(kinds, ["approval", "timer", "timer", "event", "event", "subflow", "sandbox"]);
    assert_eq!(graph.tasks()[2].work, Work::Timer(Timer::Until(1_000)));
    let Node::Loop(repeated) = &graph.body[3] else { panic!("{graph:?}") };
    assert!(repeated.until && repeated.fails_at_maximum && repeated.max_iterations == 3);
}

#[test]
fn rust_builds_the_same_graph() {
    let read = read(
        workflow(json!([
            {"kind": "task", "props": {"id": "a", "output": "r", "children": value(json!(1))}},
            {"kind": "task", "props": {"id": "b", "output": "r", "dependsOn": ["a"],
                "children": {"$": "function", "ref": 2}}},
            {"kind": "timer", "props": {"id": "t", "duration": 30}},
        ])),
        &[],
    );
    let built = Graph::new(
        "w",
        [
            Task::value("a", json!(1)).into_table("r", None).into(),
            Task::compute("b", Function(2)).into_table("r", None).after(&["a"]).into(),
            Task::timer("t", Duration::from_millis(30)).into(),
        ],
    );
    assert_eq!(read, Ok(built));
}

fn step(id: &str, after: &[&str]) -> Node {
    Task::value(id, json!(1)).into_table("r", None).after(after).into()
}

fn faults(body: Vec<Node>) -> Option<String> {
    let found = check(&Graph::new("w", body)).err()?;
    Some(found.iter().map(|fault| fault.message.clone()).collect::<Vec<_>>().join("; "))
}

#[test]
fn ids_are_given_once() {
    assert_eq!(faults(vec![step("a", &[]), step("b", &[])]), None);
    let twice = faults(vec![step("a", &[]), Node::parallel(None, [step("a", &[])])]);
    assert_eq!(twice.as_deref(), Some("two tasks have the id \"a\""));
    let inner = Node::repeated("l", false, 2, []);
    let loops = faults(vec![Node::repeated("l", false, 2, [inner])]);
    assert_eq!(loops.as_deref(), Some("two loops have the id \"l\""));
    // A loop and a task can have the same id.
    assert_eq!(faults(vec![Node::repeated("l", false, 2, [step("l", &[])])]), None);
}

#[test]
fn nothing_waits_for_itself() {
    let cases = [
        (vec![step("a", &["a"])], "\"a\" waits for"),
        (
            vec![Node::parallel(None, [step("a", &["b"]), step("b", &["a"])])],
            "\"a\" waits for \"b\" waits for \"a\"",
        ),
        // An earlier node of a sequence cannot wait for a later one.
        (vec![step("a", &["b"]), step("b", &[])], "\"a\" waits for \"b\" waits for \"a\""),
        (
            vec![
                Node::sequence([Node::parallel(None, [step("a", &["c"])])]),
                Node::repeated("l", false, 2, [step("c", &[])]),
            ],
            "waits for",
        ),
    ];
    for (body, expected) in cases {
        let found = faults(body).unwrap();
        assert!(found.contains(expected), "{found}");
    }
    assert_eq!(
        faults(vec![Node::parallel(None, [step("a", &[]), step("b", &["a", "unknown"])])]),
        None
    );
    let long = (0..100_000).map(|number| step(&number.to_string(), &[])).collect();
    assert_eq!(faults(long), None);
}
