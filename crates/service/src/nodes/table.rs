//! The fifteen nodes and their ports, in the order of the table of FireFlow.

use stockade_api::NodeType;

/// The ports that pass through every node.
pub const PASSTHROUGH: [&str; 3] = ["sandboxId", "accessRules", "proxyConfig"];
/// The port that names the stream of an earlier node.
pub const STREAM: &str = "workflowId";

/// A node.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub description: &'static str,
    /// Its input ports, besides those that pass through.
    pub inputs: &'static [&'static str],
    /// Its output ports, besides those that pass through.
    pub outputs: &'static [&'static str],
}

const COMMAND: &[&str] =
    &["command", "workingDirectory", "env", "uid", "gid", "user", "stdin", "timeoutSeconds"];
/// The inputs of the nodes that synchronize.
pub(super) const SYNC: &[&str] = &[
    "path",
    "vfs",
    "workspaceId",
    "directory",
    "vfsPath",
    "branch",
    "include",
    "exclude",
    "gitignore",
    "keepEmptyDirs",
    "mirror",
    "twoWay",
    "allowEmpty",
    "conflict",
    "commit",
    "message",
    "gitDirectories",
    "maxFileBytes",
    "largeFiles",
    "maxBytes",
    "maxFiles",
    "dryRun",
    "wait",
];
const SYNCED: &[&str] = &[
    "workflowId",
    "status",
    "copied",
    "unchanged",
    "skipped",
    "deleted",
    "bytes",
    "conflicts",
    "commitId",
    "report",
];

/// All nodes.
pub const NODES: [Node; 15] = [
    Node {
        name: "SandboxCreateNode",
        description: "Provision a container and return its sandboxId",
        inputs: &[
            "image",
            "resources",
            "users",
            "defaultUid",
            "env",
            "secrets",
            "networkPolicy",
            "metadata",
            "workspaceId",
            "timeoutSeconds",
            "runtime",
        ],
        outputs: &["status", "image", "createdAt", "expiresAt"],
    },
    Node {
        name: "SandboxExecuteNode",
        description: "Run a command and return stdout, stderr and exit code",
        inputs: COMMAND,
        outputs: &["stdout", "stderr", "exitCode", "timedOut", "durationMs", "workflowId"],
    },
    Node {
        name: "SandboxExecuteStreamNode",
        description: "Run a long-lived command, whose output is a stream",
        inputs: COMMAND,
        outputs: &["workflowId", "status"],
    },
    Node {
        name: "SandboxKillNode",
        description: "Terminate the container",
        inputs: &["discard"],
        outputs: &["status", "terminatedAt"],
    },
    Node {
        name: "SandboxPauseNode",
        description: "Pause a running container",
        inputs: &[],
        outputs: &["status", "expiresAt"],
    },
    Node {
        name: "SandboxResumeNode",
        description: "Resume a paused container",
        inputs: &[],
        outputs: &["status", "expiresAt"],
    },
    Node {
        name: "SandboxRenewNode",
        description: "Extend the time to live of the container",
        inputs: &["timeoutSeconds", "shorten"],
        outputs: &["status", "expiresAt"],
    },
    Node {
        name: "SandboxStatusNode",
        description: "Read the state and, on request, the metrics of a container, also of a \
                      terminated one",
        inputs: &["includeMetrics"],
        outputs: &["status", "isAlive", "sandbox", "rules", "metrics", "expiresAt"],
    },
    Node {
        name: "SandboxSyncFromVFSNode",
        description: "Transfer files from outside into the container",
        inputs: SYNC,
        outputs: SYNCED,
    },
    Node {
        name: "SandboxSyncToVFSNode",
        description: "Transfer files from the container to outside",
        inputs: SYNC,
        outputs: SYNCED,
    },
    Node {
        name: "SandboxWriteSecretFileNode",
        description: "Resolve a .ffsecret and write it as a file inside the container",
        inputs: &["secret", "field", "scope", "path", "uid"],
        outputs: &["path"],
    },
    Node {
        name: "SandboxHttpRequestNode",
        description: "Send an HTTP request to a port of the container",
        inputs: &[
            "port",
            "method",
            "path",
            "headers",
            "body",
            "markdown",
            "timeoutSeconds",
            "limitBytes",
        ],
        outputs: &["statusCode", "headers", "body", "truncated", "markdown"],
    },
    Node {
        name: "SandboxHttpStreamNode",
        description: "Stream an HTTP response from a port of the container",
        inputs: &["port", "method", "path", "headers", "body", "timeoutSeconds", "limitBytes"],
        outputs: &["statusCode", "headers", "chunks", "truncated"],
    },
    Node {
        name: "SandboxWebSocketNode",
        description: "Open a WebSocket to a port of the container, send and receive messages",
        inputs: &[
            "port",
            "path",
            "headers",
            "protocols",
            "messages",
            "receive",
            "timeoutSeconds",
            "limitBytes",
        ],
        outputs: &["protocol", "messages", "closeCode"],
    },
    Node {
        name: "SandboxStreamSplitterNode",
        description: "Split the output stream of a command into stdout, stderr and exit",
        inputs: &[STREAM],
        outputs: &["stdout", "stderr", "exit", "exitCode", "error"],
    },
];

/// The node of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Node> {
    NODES.iter().find(|node| node.name == name)
}

/// All nodes, for callers.
#[must_use]
pub fn list() -> Vec<NodeType> {
    let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let node = |node: &Node| NodeType {
        name: node.name.to_owned(),
        description: node.description.to_owned(),
        category: "sandbox".to_owned(),
        inputs: strings(node.inputs),
        outputs: strings(node.outputs),
        passthrough: strings(&PASSTHROUGH),
    };
    NODES.iter().map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_of_a_node_has_one_name() {
        for node in NODES {
            let mut inputs: Vec<_> = node.inputs.iter().chain(&PASSTHROUGH).collect();
            inputs.sort();
            let count = inputs.len();
            inputs.dedup();
            assert_eq!(inputs.len(), count, "{}", node.name);
            assert!(find(node.name).is_some() && node.name.ends_with("Node"));
        }
    }
}
