//! A rendering that is sent as an update equals the same rendering sent whole, and invalid updates are
//! rejected.

use std::collections::BTreeMap;

use serde_json::json;

use super::super::tests::update_of as whole;
use super::*;

/// Sends renderings as a realm does: a task is identified by its id, a group by its position.
#[derive(Default)]
struct UpdateBuilder {
    numbers: BTreeMap<String, u64>,
    last: u64,
    heads: BTreeMap<u64, Value>,
    lists: BTreeMap<u64, Vec<u64>>,
}

impl UpdateBuilder {
    /// The differences to the last rendering.
    fn update(&mut self, root: &Value) -> RenderUpdate {
        let mut now =
            Self { last: self.last, ..Self { numbers: self.numbers.clone(), ..Self::default() } };
        let mut names = BTreeMap::new();
        let root = now.add(root, "root", &mut names);
        let new = |number: &u64, head: &Value| self.heads.get(number) != Some(head);
        let heads: Vec<_> = now.heads.iter().filter(|(number, head)| new(number, head)).collect();
        let empty = Vec::new();
        let list_of = |number| self.lists.get(number).unwrap_or(&empty);
        let lists: Vec<_> =
            now.lists.iter().filter(|(number, list)| list_of(number) != *list).collect();
        let is_whole = heads.iter().any(|(number, _)| **number == root);
        let text = if is_whole {
            json!({ "isWhole": true, "root": root, "heads": now.heads.iter().collect::<Vec<_>>(),
                    "lists": now.lists.iter().collect::<Vec<_>>() })
        } else {
            json!({ "isWhole": false, "root": root, "heads": heads, "lists": lists })
        };
        let update = serde_json::from_str(&text.to_string()).unwrap();
        *self = Self { numbers: names, ..now };
        update
    }

    fn add(&mut self, element: &Value, path: &str, names: &mut BTreeMap<String, u64>) -> u64 {
        let mut head = element.clone();
        let children = head.as_object_mut().and_then(|head| head.remove("children"));
        let kind = element["kind"].as_str().unwrap();
        let id = element["props"]["id"].as_str().filter(|_| kind == "task");
        let name = id.map_or_else(|| format!("{path} {kind}"), str::to_owned);
        // Two elements with the same name have different numbers.
        let known = self.numbers.get(&name).filter(|_| !names.contains_key(&name)).copied();
        let number = known.unwrap_or_else(|| {
            self.last += 1;
            self.last
        });
        names.insert(name, number);
        self.heads.insert(number, head);
        if let Some(Value::Array(children)) = children {
            let path = |at| format!("{path}/{at}");
            let children = children.iter().enumerate();
            let list = children.map(|(at, child)| self.add(child, &path(at), names)).collect();
            self.lists.insert(number, list);
        }
        number
    }
}

/// Pseudo-random numbers, the same in each execution.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn task(&mut self, id: u64) -> Value {
        let mut props = json!({
            "id": format!("t{id}"), "output": "r",
            "children": { "$": "value", "value": self.below(3) },
        });
        if self.one_in(4) {
            props["label"] = json!(format!("label {}", self.below(3)));
        }
        if self.one_in(4) {
            props["dependsOn"] = json!([format!("t{}", self.below(24))]);
        }
        if self.one_in(200) {
            props["lable"] = json!("wrong");
        }
        json!({ "kind": "task", "place": { "file": "w.tsx", "line": id, "column": 1 }, "props": props })
    }

    /// Elements, most of which have unique ids.
    fn children(&mut self, depth: u64, next: &mut u64) -> Vec<Value> {
        let mut children = Vec::new();
        for _ in 0..self.below(5) {
            if depth < 3 && self.one_in(3) {
                let kinds = ["sequence", "parallel", "loop"];
                let kind = kinds[usize::try_from(self.below(3)).unwrap()];
                let mut props = json!({});
                if kind == "loop" {
                    props = json!({ "id": format!("l{next}"), "until": self.one_in(2) });
                }
                let inner = self.children(depth + 1, next);
                children.push(json!({ "kind": kind, "props": props, "children": inner }));
            } else {
                *next += if self.one_in(60) { 0 } else { 1 + self.below(2) };
                children.push(self.task(*next));
            }
        }
        if self.one_in(5) {
            children.reverse();
        }
        children
    }

    fn workflow(&mut self) -> Value {
        let children = self.children(0, &mut 0);
        let cache = self.one_in(5);
        json!({ "kind": "workflow", "props": { "name": "w", "cache": cache }, "children": children })
    }

    /// Changes something in the element.
    fn changed(&mut self, element: &mut Value) {
        let Some(children) = element["children"].as_array_mut() else { return };
        for child in children.iter_mut() {
            if self.one_in(4) && child["kind"] == "task" {
                let id = child["props"]["id"].as_str().unwrap()[1..].parse().unwrap();
                *child = self.task(id);
            }
            self.changed(child);
        }
        if self.one_in(6) {
            children.reverse();
        }
        if self.one_in(6) && !children.is_empty() {
            children.remove(0);
        }
    }
}

fn result(tree: Result<&Tree, &Error>) -> Result<Graph, Vec<Fault>> {
    match tree {
        Ok(tree) => Ok(Graph::clone(tree.graph().unwrap())),
        Err(Error::Faults(faults)) => Err(faults.clone()),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn differences_say_what_the_whole_says() {
    let mut random = Random(7);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..200 {
        let (mut teller, mut before) = (UpdateBuilder::default(), None);
        let mut workflow = random.workflow();
        for _ in 0..10 {
            let graph = |tree: &Option<Tree>| tree.as_ref().and_then(|tree| tree.graph().cloned());
            let last = graph(&before);
            let next = Tree::after(before.take(), teller.update(&workflow), &[]);
            let anew = Tree::after(None, whole(&workflow), &[]);
            assert_eq!(result(next.as_ref()), result(anew.as_ref()));
            match next {
                Ok(next) => {
                    before = Some(next);
                    let is_same =
                        last.is_some_and(|last| Arc::ptr_eq(&last, &graph(&before).unwrap()));
                    accepted += u32::from(is_same);
                }
                Err(_) => {
                    refused += 1;
                    teller = UpdateBuilder::default();
                }
            }
            match random.below(4) {
                0 => workflow = random.workflow(),
                1 => {}
                _ => random.changed(&mut workflow),
            }
        }
    }
    assert!(accepted > 100 && refused > 20, "{accepted} were the same, {refused} wrong");
}

fn task(id: &str, value: u64) -> Value {
    let props = json!({ "id": id, "output": "r", "children": { "$": "value", "value": value } });
    json!({ "kind": "task", "props": props })
}

/// `one` and `two` in a sequence in a workflow: the elements 0, 1, 2 and 3.
fn known() -> Tree {
    let inner = json!({ "kind": "sequence", "children": [task("one", 1), task("two", 2)] });
    let workflow = json!({ "kind": "workflow", "props": { "name": "w" }, "children": [inner, task("end", 0)] });
    Tree::after(None, whole(&workflow), &[]).unwrap()
}

fn differs(update: Value) -> RenderUpdate {
    let mut all = json!({ "isWhole": false, "root": 0, "heads": [], "lists": [] });
    all.as_object_mut().unwrap().extend(update.as_object().unwrap().clone());
    serde_json::from_str(&all.to_string()).unwrap()
}

#[test]
fn what_is_told_as_before_is_the_same_value() {
    let before = known();
    let tasks = |tree: &Tree| {
        let graph = Arc::clone(tree.graph().unwrap());
        let mut tasks = Vec::new();
        for node in &graph.body {
            node.visit(&mut |node| {
                if let Node::Task(task) = node {
                    tasks.push(Arc::clone(task));
                }
            });
        }
        tasks
    };
    let first = tasks(&before);
    let heads = json!([[2, task("one", 1)], [3, task("two", 7)]]);
    let next = Tree::after(Some(before), differs(json!({ "heads": heads })), &[]).unwrap();
    let second = tasks(&next);
    let is_same = |at: usize| Arc::ptr_eq(&first[at], &second[at]);
    assert_eq!([is_same(0), is_same(1), is_same(2)], [true, false, true]);
}

#[test]
fn what_no_realm_says_is_refused() {
    let cases = [
        (json!({ "root": 1 }), "it refers to an unknown rendering"),
        (
            json!({ "heads": [[0, { "kind": "workflow", "props": { "name": "x" } }]] }),
            "its root element differs",
        ),
        (json!({ "heads": [[9, task("new", 1)]] }), "element 9 has no parent"),
        (json!({ "heads": [[2, task("a", 1)], [2, task("b", 1)]] }), "element 2 was sent twice"),
        (json!({ "heads": [[2, { "kind": "task", "children": [] }]] }), "unknown field `children`"),
        (json!({ "heads": [[2, 5]] }), "invalid type"),
        (json!({ "lists": [[9, [2]]] }), "element 9 was never sent"),
        (json!({ "lists": [[1, [2, 9]]] }), "element 9 was never sent"),
        (json!({ "lists": [[1, [2]], [1, [3]]] }), "the children of element 1 were sent twice"),
        (json!({ "lists": [[1, [2, 2]]] }), "element 2 has two parents"),
        (json!({ "lists": [[1, [2, 4]]] }), "element 4 has two parents"),
        (json!({ "lists": [[1, [1]]] }), "element 1 has two parents"),
        (json!({ "lists": [[1, [0]]] }), "element 0 has two parents"),
        (json!({ "lists": [[2, [3]], [1, [2]]] }), "element 2 is not a group"),
        (json!({ "isWhole": true }), "there is no root element"),
    ];
    for (update, why) in cases {
        let found = Tree::after(Some(known()), differs(update.clone()), &[]).unwrap_err();
        assert!(matches!(found, Error::InvalidUpdate(_)), "{update}: {found:?}");
        assert!(found.to_string().contains(why), "{update}: {found}");
    }
    assert!(Tree::after(None, differs(json!({})), &[]).is_err(), "there is nothing to differ from");
    for update in [
        json!({ "lists": [[1, [-1]]] }),
        json!({ "heads": [[0.5, {}]] }),
        json!({ "lists": [[1, [1e300]]] }),
        json!({ "more": 1 }),
    ] {
        let mut all = json!({ "isWhole": false, "root": 0, "heads": [], "lists": [] });
        all.as_object_mut().unwrap().extend(update.as_object().unwrap().clone());
        assert!(serde_json::from_str::<RenderUpdate>(&all.to_string()).is_err(), "{update}");
    }
}

/// An element that was left out must be sent again.
#[test]
fn what_was_left_out_is_told_again() {
    let without = differs(json!({ "lists": [[1, [3]]] }));
    let next = Tree::after(Some(known()), without, &[]).unwrap();
    assert_eq!(next.items.len(), 4);
    let back = differs(json!({ "lists": [[1, [2, 3]]] }));
    let found = Tree::after(Some(next), back, &[]).unwrap_err();
    assert!(found.to_string().contains("element 2 was never sent"), "{found}");
}

#[test]
fn a_rendering_has_no_bottomless_depth() {
    let deep = |depth| {
        let nested = (0..depth)
            .fold(task("t", 1), |inner, _| json!({ "kind": "sequence", "children": [inner] }));
        json!({ "kind": "workflow", "props": { "name": "w" }, "children": [nested] })
    };
    assert!(Tree::after(None, whole(&deep(MAX_DEPTH - 1)), &[]).is_ok());
    let found = Tree::after(None, whole(&deep(MAX_DEPTH)), &[]).unwrap_err();
    let Error::Faults(faults) = found else { panic!("{found}") };
    assert_eq!(faults[0].message, "elements are nested more than 64 levels deep");
    // Nor by moving known elements.
    let mut tree = Tree::after(None, whole(&deep(60)), &[]).unwrap();
    let heads: Vec<_> = (100..110).map(|number| json!([number, { "kind": "sequence" }])).collect();
    let mut lists: Vec<_> = (100..109).map(|number| json!([number, [number + 1]])).collect();
    lists.extend([json!([0, [100]]), json!([109, [1]])]);
    let update = differs(json!({ "heads": heads, "lists": lists }));
    tree = Tree::after(Some(tree), differs(json!({})), &[]).unwrap();
    assert!(Tree::after(Some(tree), update, &[]).is_err());
}
