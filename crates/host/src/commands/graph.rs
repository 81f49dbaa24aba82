//! `stockade graph`: the tasks of a workflow file, from its first rendering.

use serde_json::{Value, json};
use stockade_core::Code;
use stockade_workflow::engine::preview;
use stockade_workflow::graph::{Graph, Node, Order, Task, Work};

use super::graph_svg;
use crate::programs::realms;
use stockade_cli::args;
use stockade_cli::commands::print::{escaped, print, print_text};
use stockade_cli::commands::workflow::{environment, value};
use stockade_cli::problem::{Failure, caused};

/// Prints the graph. No task is executed.
pub(crate) fn run(arguments: &args::workflow::Graph) -> Result<u8, Failure> {
    let input = value(&arguments.input, "input")?;
    let environment = environment(&arguments.env, &arguments.env_file)?;
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| caused(Code::Io, &error))?;
    let graph = tokio.block_on(preview(realms(), &arguments.file, &input, &environment))?;
    if arguments.svg {
        print_text(&graph_svg::svg(&graph))?;
    } else if arguments.json {
        print(&json!({ "name": graph.name, "nodes": nodes(&graph.body) }))?;
    } else {
        print_text(&text(&graph))?;
    }
    Ok(0)
}

fn nodes(nodes: &[Node]) -> Vec<Value> {
    let node = |node: &Node| match node {
        Node::Task(task) => {
            let mut node = json!({
                "kind": task.work.kind(), "id": task.id, "label": task.name(), "after": task.after,
                "table": task.output.as_ref().map(|output| &output.table),
                "skipped": task.is_skipped,
            });
            let ports = host_ports(task);
            if !ports.is_empty() {
                node["hostPorts"] = json!(ports);
            }
            node
        }
        Node::Group(group) => match group.order {
            Order::Sequence => json!({ "kind": "sequence", "nodes": self::nodes(&group.children) }),
            Order::Parallel { limit, subtrees } => {
                let nodes = self::nodes(&group.children);
                let mut node = json!({ "kind": "parallel", "limit": limit, "nodes": nodes });
                if let Some(subtrees) = subtrees {
                    node["subtreeLimit"] = subtrees.into();
                }
                node
            }
            Order::Boundary { caught, .. } => json!({
                "kind": "boundary", "caught": caught, "nodes": self::nodes(&group.children),
            }),
        },
        Node::Loop(repeated) => json!({
            "kind": "loop", "id": repeated.id, "maxIterations": repeated.limit(),
            "nodes": self::nodes(&repeated.children),
        }),
    };
    nodes.iter().map(node).collect()
}

/// The ports of this machine that a sandbox uses as proxies.
fn host_ports(task: &Task) -> Vec<u16> {
    match &task.work {
        Work::Sandbox(sandbox) if !task.is_skipped => sandbox.host_ports().into_iter().collect(),
        _ => Vec::new(),
    }
}

fn text(graph: &Graph) -> String {
    let mut text = format!("{}\n", escaped(&graph.name));
    lines(&graph.body, 1, &mut text);
    text
}

fn lines(nodes: &[Node], depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    for node in nodes {
        match node {
            Node::Task(task) => {
                let after = task.after.iter().map(|id| escaped(id)).collect::<Vec<_>>();
                let after = match after.as_slice() {
                    [] => String::new(),
                    ids => format!(", after {}", ids.join(", ")),
                };
                let kind = if task.is_skipped { "skipped" } else { task.work.kind() };
                text.push_str(&format!("{indent}{} ({kind}{after})\n", escaped(&task.id)));
                for port in host_ports(task) {
                    text.push_str(&format!(
                        "{indent}  uses the proxy 127.0.0.1:{port} of this machine, if you approve it\n"
                    ));
                }
            }
            Node::Group(group) => {
                let name = match group.order {
                    Order::Sequence => "in sequence".to_owned(),
                    Order::Parallel { .. } => {
                        group.order.limits().unwrap_or_else(|| "at once".to_owned())
                    }
                    Order::Boundary { .. } => {
                        "work, reaction to its failure, and what follows in any case".to_owned()
                    }
                };
                text.push_str(&format!("{indent}{name}:\n"));
                lines(&group.children, depth + 1, text);
            }
            Node::Loop(repeated) => {
                text.push_str(&format!("{indent}{}:\n", escaped(&graph_svg::loop_title(repeated))));
                lines(&repeated.children, depth + 1, text);
            }
        }
    }
}
