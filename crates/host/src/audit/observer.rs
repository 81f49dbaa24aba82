//! Sees each operation, and records it.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use stockade_api::{Caller, Observe, Problem, Result, StartRecord};
use stockade_audit::{Actor, Decision, Entry};
use stockade_core::{Code, Door};

use super::{Audit, details, parse, reason};

/// The operations that change nothing. Every other one is a change, also one that is added later.
const READS: [&str; 40] = [
    "select_runtime",
    "get_status",
    "list",
    "operation",
    "wait_operation",
    "commands",
    "get_command",
    "stat_file",
    "list_directory",
    "search_files",
    "resolve_endpoint",
    "snapshots",
    "images",
    "volumes",
    "find_volume",
    "wait_download",
    "tools",
    "bundles",
    "show_bundle",
    "keys",
    "secrets",
    "read_output",
    "read_events",
    "read_file",
    "receive_files",
    "workspaces",
    "nodes",
    "read_workspace",
    "workspace_history",
    "diff_bundle",
    // What passes through a port is not an operation on the sandbox.
    "connect",
    "http_request",
    "http_stream",
    "web_socket",
    "workflows.run",
    "workflows.find",
    "workflows.runs",
    "workflows.inspect",
    "workflows.follow",
    "workflows.measure",
];
/// Changes whose start is not committed with a row.
const WITHOUT_ROW: [&str; 11] = [
    "run_node",
    "attach_command",
    "open_port",
    "create_workspace",
    "remove_workspace",
    "change_workspace",
    "commit_workspace",
    "pull_image",
    "remove_image",
    "create_volume",
    "remove_volume",
];
/// The operations that free space. They are allowed also if no record can be stored.
const FREEING: [&str; 9] = [
    "kill",
    "remove_snapshot",
    "reject_bundle",
    "remove_file",
    "stop",
    "kill_command",
    "remove_workspace",
    "remove_image",
    "remove_volume",
];
/// The operations whose answers name what they have made.
const ANSWERS: [&str; 11] = [
    "create",
    "restore",
    "snapshot",
    "collect_changes",
    "propose_changes",
    "create_key",
    "create_secret",
    "import_secret",
    "workflows.up",
    "workflows.fork",
    "workflows.resume_run",
];

/// Records the operations that it sees.
#[derive(Debug, Clone)]
pub(crate) struct Observer {
    audit: Audit,
    /// The door of callers that name none.
    door: Door,
}

impl Observer {
    pub(crate) const fn new(audit: Audit, door: Door) -> Self {
        Self { audit, door }
    }

    fn entry(&self, caller: &Caller, operation: &str, request: &Value) -> Entry {
        let origin = &caller.origin;
        let actor = Actor {
            owner: Some(caller.owner.clone()),
            uid: origin.uid,
            key_id: origin.key_id.clone(),
            address: origin.address.clone(),
            door: if origin.door == Door::Server { self.door } else { origin.door },
            request_id: origin.request_id.clone(),
        };
        let mut entry = Entry::new(operation, actor);
        entry.details = details::of_request(request);
        entry
    }
}

#[async_trait]
impl Observe for Observer {
    fn is_change(&self, operation: &str) -> bool {
        !READS.contains(&operation)
    }

    fn needs_answer(&self, operation: &str) -> bool {
        ANSWERS.contains(&operation)
    }

    async fn before(&self, caller: &Caller, operation: &str, request: &Value) -> Result<Caller> {
        let checked = self.audit.check().await;
        if !FREEING.contains(&operation) {
            checked?;
        }
        let mut entry = self.entry(caller, operation, request);
        let has_row = !operation.starts_with("workflows.") && !WITHOUT_ROW.contains(&operation);
        if has_row {
            // It is committed only if the operation is allowed.
            entry.decision = Decision::Allowed;
        } else {
            self.audit.record_start(&entry).await?;
        }
        let text =
            serde_json::to_string(&entry).map_err(|error| Problem::caused(Code::Io, &error))?;
        let start = StartRecord { id: entry.id, text };
        Ok(Caller { start_record: Some(Arc::new(start)), ..caller.clone() })
    }

    async fn after(
        &self,
        caller: &Caller,
        operation: &str,
        request: &Value,
        end: std::result::Result<Value, &Problem>,
    ) {
        let start = caller.start_record.as_deref().and_then(|start| parse(&start.text));
        match (start, end) {
            (Some(start), Ok(answer)) => {
                let mut ended = start.ended(Decision::Allowed, None);
                ended.details.extend(details::of_answer(&answer));
                self.audit.record(ended).await;
            }
            (Some(start), Err(problem)) => {
                let decision = Decision::of_problem(problem.code);
                self.audit.record(start.ended(decision, Some(reason(problem)))).await;
            }
            // A sandbox of another owner has the same answer as one that does not exist.
            (None, Err(problem))
                if matches!(
                    problem.code,
                    Code::NotFound | Code::Forbidden | Code::AccessDenied | Code::Unauthenticated
                ) =>
            {
                let entry = self.entry(caller, operation, request);
                self.audit.record_refused(&entry, problem).await;
            }
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_read_is_an_operation() {
        for name in READS.iter().filter(|name| !name.starts_with("workflows.")) {
            let is_known = stockade_api::PLAIN.contains(name) || stockade_api::LONG.contains(name);
            assert!(is_known, "{name}");
        }
        for name in FREEING.iter().chain(&WITHOUT_ROW) {
            assert!(!READS.contains(name), "{name}");
        }
    }
}
