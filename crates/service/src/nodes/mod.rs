//! The fifteen nodes of FireFlow, by their names, with named ports. A node translates its ports into
//! operations, each with a key of its own, so a node that is run again repeats nothing.
//!
//! Ports that pass through are input and output: `sandboxId`, the access rules and the endpoint
//! configuration go along a chain. Rules that come along a chain are checked in addition to those of
//! the sandbox.

mod commands;
mod files;
mod ports;
mod requests;
mod state;
mod table;

use serde_json::{Map, Value};
use stockade_api::{Caller, NodeOutputs, Problem, Result, RunNode, Sandboxes};
use stockade_core::Code;

use self::ports::{Call, Ports};
pub use self::table::{NODES, Node, PASSTHROUGH, STREAM, find, list};

/// Runs a node.
///
/// # Errors
/// Those of the operations, and [`Code::InvalidInput`] for an unknown node or port, or a value that a
/// port does not accept.
pub async fn run(
    sandboxes: &dyn Sandboxes,
    caller: &Caller,
    request: RunNode,
) -> Result<NodeOutputs> {
    let Some(node) = find(&request.node) else {
        let names = NODES.iter().map(|node| node.name).collect::<Vec<_>>().join(", ");
        let message = format!("there is no node {:?}", request.node);
        return Err(Problem::new(Code::InvalidInput, message).because(format!("there are {names}")));
    };
    let ports = Ports::new(node, request.inputs)?;
    let call = Call { sandboxes, caller, ports: &ports, server: request.server };
    let made: Result<Map<String, Value>> = match node.name {
        "SandboxCreateNode" => state::create(&call).await,
        "SandboxExecuteNode" => commands::execute(&call).await,
        "SandboxExecuteStreamNode" => commands::execute_stream(&call).await,
        "SandboxStreamSplitterNode" => commands::split(&call).await,
        "SandboxSyncFromVFSNode" => files::sync(&call, true).await,
        "SandboxSyncToVFSNode" => files::sync(&call, false).await,
        "SandboxWriteSecretFileNode" => files::write_secret(&call).await,
        "SandboxHttpRequestNode" => requests::http(&call).await,
        "SandboxHttpStreamNode" => requests::stream(&call).await,
        "SandboxWebSocketNode" => requests::web_socket(&call).await,
        name => state::change(&call, name).await,
    };
    let mut outputs = made?;
    for port in PASSTHROUGH {
        // What came along the chain may be narrower than what the sandbox has, and stays so.
        if let Some(value) = ports.value(port).filter(|value| !is_empty(value)) {
            outputs.insert(port.to_owned(), value.clone());
        }
    }
    Ok(NodeOutputs { outputs })
}

/// Whether a value of a port restricts nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}
