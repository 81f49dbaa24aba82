//! Reads the nodes of FireFlow: elements whose attributes are the ports of an operation.

use serde_json::{Map, Number, Value};
use stockade_service::nodes::{NODES, Node, PASSTHROUGH};

use super::props::Props;
use crate::graph::node::PortNode;

/// The largest number below which every whole number has a form of its own.
const MAX_WHOLE: f64 = 9_007_199_254_740_991.0;

/// The node of that name, which is also the name of the element as a realm renders it.
pub(super) fn find(kind: &str) -> Option<&'static Node> {
    NODES.iter().find(|node| node.name == kind)
}

/// The node of an element.
pub(super) fn read(kind: &str, props: &mut Props<'_>) -> Option<PortNode> {
    let node = find(kind)?;
    let from = props.texts("from");
    let mut inputs = Map::new();
    for port in node.inputs.iter().copied().chain(PASSTHROUGH) {
        if let Some(value) = props.take(port) {
            inputs.insert(port.to_owned(), whole(value));
        }
    }
    Some(PortNode { name: node.name.to_owned(), inputs, from })
}

/// The same value, in which whole numbers are integers: the JavaScript engine may write 1.0.
fn whole(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= MAX_WHOLE => {
                #[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
                let integer = float as i64;
                Value::Number(Number::from(integer))
            }
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(whole).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, whole(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_numbers_are_integers() {
        let value = json!({ "port": 3000.0, "list": [1.0, 1.5, "1.0"], "large": 1e300 });
        let expected = json!({ "port": 3000, "list": [1, 1.5, "1.0"], "large": 1e300 });
        assert_eq!(whole(value), expected);
    }
}
