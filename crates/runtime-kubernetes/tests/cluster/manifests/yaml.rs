//! Reads the part of YAML that the manifests use: maps, lists, lists of texts in brackets, and scalars.

use serde_json::{Map, Value};

/// A line: its depth and its text.
type Line = (usize, String);

/// The documents of a text.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let mut documents = vec![Vec::new()];
    for line in text.lines() {
        let content = line.trim_start();
        if line.trim_end() == "---" {
            documents.push(Vec::new());
        } else if !content.is_empty() && !content.starts_with('#') {
            let depth = line.len() - content.len();
            documents.last_mut().unwrap().push((depth, content.trim_end().to_owned()));
        }
    }
    let filled = documents.into_iter().filter(|lines| !lines.is_empty());
    filled.map(|lines| block(&lines)).collect()
}

/// The value of lines that start at the depth of the first one.
fn block(lines: &[Line]) -> Value {
    let (depth, first) = &lines[0];
    let starts: Vec<_> =
        (0..lines.len()).filter(|at| is_start(&lines[*at], *depth, first)).collect();
    let parts = starts.iter().enumerate().map(|(number, start)| {
        let end = starts.get(number + 1).copied().unwrap_or(lines.len());
        &lines[*start..end]
    });
    if first.starts_with("- ") {
        return parts.map(item).collect();
    }
    Value::Object(parts.map(entry).collect::<Map<_, _>>())
}

fn is_start((depth, text): &Line, of: usize, first: &str) -> bool {
    *depth == of && text.starts_with("- ") == first.starts_with("- ")
}

fn item(lines: &[Line]) -> Value {
    let (depth, text) = &lines[0];
    let rest = text.trim_start_matches("- ");
    if !is_entry(rest) {
        return scalar(rest);
    }
    let mut inner = vec![(depth + 2, rest.to_owned())];
    inner.extend_from_slice(&lines[1..]);
    block(&inner)
}

fn is_entry(text: &str) -> bool {
    text.ends_with(':') || text.contains(": ")
}

fn entry(lines: &[Line]) -> (String, Value) {
    let (name, value) = lines[0].1.split_once(':').unwrap_or_else(|| panic!("{:?}", lines[0]));
    let value = match value.trim() {
        "" => block(&lines[1..]),
        text => scalar(text),
    };
    (name.to_owned(), value)
}

fn scalar(text: &str) -> Value {
    match text {
        "{}" => return Value::Object(Map::new()),
        "true" | "false" => return Value::Bool(text == "true"),
        _ => {}
    }
    // Lists in brackets have only quoted texts.
    if text.starts_with('[') || text.starts_with('"') {
        return serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
}

#[test]
fn the_forms_of_the_manifests_are_read() {
    let text = "# a\nkind: A\nlist:\n  - a: 1\n    b: [\"x\", \"y\"]\n  - a: \"2\"\nmap:\n  c: {}\n  d: true\n---\nkind: B\n";
    let [one, two] = documents(text).try_into().unwrap();
    let expected = serde_json::json!({ "kind": "A", "list": [{ "a": 1, "b": ["x", "y"] }, { "a": "2" }],
        "map": { "c": {}, "d": true } });
    assert_eq!(one, expected);
    assert_eq!(two["kind"], "B");
}
