//! Which server of a cluster executes a request: the one that holds its sandbox. A request that names none
//! is executed where it arrives.

use std::time::Duration;

use serde_json::Value;
use stockade_api::Result;
use stockade_core::{Code, OwnerId, Problem};
use stockade_durable::WorkflowId;

use crate::failure::store_problem;
use crate::hosts::{self, Presence};
use crate::service::Service;
use crate::spec::SNAPSHOT;
use crate::store::hosts as records;

/// Another server, which executes a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Its id.
    pub host: String,
    /// Its URL.
    pub address: String,
}

/// The operations whose member `id` names a sandbox.
const BY_ID: [&str; 12] = [
    "start",
    "stop",
    "pause",
    "resume",
    "renew",
    "change_metadata",
    "change_limits",
    "change_network",
    "set_secrets",
    "change_injections",
    "kill",
    "get_status",
];

/// The operations that name a sandbox, and only read what the database has.
const RECORDS: [&str; 3] = ["read_events", "commands", "open_port"];

/// The operations on a recorded operation that need the server that runs it.
const OF_OPERATIONS: [&str; 5] =
    ["cancel_operation", "get_command", "kill_command", "attach_command", "read_output"];

/// The operations that make a new sandbox, or decide about one.
const NEW: [&str; 2] = ["create", "select_runtime"];

/// What a request is about.
#[derive(Debug, PartialEq, Eq)]
enum Object<'r> {
    Sandbox(&'r str),
    Operation(&'r str),
    Snapshot(&'r str),
    /// A new sandbox; whether it has something of the host on which it is created.
    New {
        is_local: bool,
    },
    Nothing,
}

fn object<'r>(operation: &str, request: &'r Value) -> Object<'r> {
    let member = |name: &str| request.get(name).and_then(Value::as_str);
    if NEW.contains(&operation) {
        if let Some(snapshot) = member("image").and_then(|image| image.strip_prefix(SNAPSHOT)) {
            return Object::Snapshot(snapshot);
        }
        let has = |name: &str| match request.get(name) {
            None | Some(Value::Null) => false,
            Some(Value::Array(all)) => !all.is_empty(),
            Some(_) => true,
        };
        let is_local =
            ["workspace", "project", "volumes", "caches", "publish", "server"].into_iter().any(has);
        return Object::New { is_local };
    }
    let found = match operation {
        "restore" => member("snapshotId").map(Object::Snapshot),
        "remove_snapshot" => request.as_str().map(Object::Snapshot),
        "run_node" => {
            let inputs = request.get("inputs");
            inputs.and_then(|it| it.get("sandboxId")?.as_str()).map(Object::Sandbox)
        }
        name if OF_OPERATIONS.contains(&name) => {
            member("workflowId").or(request.as_str()).map(Object::Operation)
        }
        name if RECORDS.contains(&name) => None,
        name if BY_ID.contains(&name) => member("id").map(Object::Sandbox),
        // A session names it in its command.
        "open_session" => {
            let command = request.get("execute");
            command.and_then(|it| it.get("sandboxId")?.as_str()).map(Object::Sandbox)
        }
        _ => member("sandboxId").map(Object::Sandbox),
    };
    found.unwrap_or(Object::Nothing)
}

impl Service {
    /// The server that executes a request of an owner; `None` if this one does.
    ///
    /// # Errors
    /// [`Code::Unreachable`] if that server does not answer.
    pub async fn destination(
        &self,
        owner: &OwnerId,
        operation: &str,
        request: &Value,
    ) -> Result<Option<Destination>> {
        let Some(cluster) = &self.inner.options.cluster else { return Ok(None) };
        let store = &*self.inner.store;
        let host = match object(operation, request) {
            Object::Nothing => return Ok(None),
            Object::New { .. } if cluster.holds_sandboxes => return Ok(None),
            Object::New { is_local: true } => return Err(holds_none()),
            Object::New { is_local: false } => return self.least_loaded().await.map(Some),
            Object::Sandbox(id) => records::of_sandbox(store, id, owner).await?,
            Object::Snapshot(id) => records::of_snapshot(store, id, owner).await?,
            Object::Operation(id) => self.host_of_operation(id).await?,
        };
        let own = self.inner.host();
        let Some(host) = host.filter(|host| host != own) else { return Ok(None) };
        match self.reach(&host).await {
            Err(_) if operation == "get_status" => Ok(None),
            // Only its record is left, which each server can end.
            Err(_) if operation == "kill" && self.inner.is_given_up(&host).await? => Ok(None),
            reached => reached.map(Some),
        }
    }

    /// The server that runs an operation. The owner is checked there.
    async fn host_of_operation(&self, id: &str) -> Result<Option<String>> {
        let Ok(id) = WorkflowId::new(id) else { return Ok(None) };
        let info = self.engine.info(&id).await.map_err(store_problem)?;
        // What has ended is read from its record.
        Ok(info.filter(|info| !info.status.is_terminal()).and_then(|info| info.place))
    }

    /// Another server, if it answers.
    async fn reach(&self, host: &str) -> Result<Destination> {
        let found = records::find(&*self.inner.store, host).await?;
        match (found, hosts::presence(&self.inner, host).await?) {
            (Some(row), Presence::Alive) => {
                Ok(Destination { host: host.to_owned(), address: row.address })
            }
            (_, Presence::Silent(silence)) => Err(silent(host, silence)),
            (None, Presence::Alive) => Err(silent(host, Duration::MAX)),
        }
    }

    /// Waits until another server of the cluster does not renew its lease any more: a request to it may
    /// never be answered.
    pub async fn wait_until_silent(&self, host: &str) -> Problem {
        let Some(cluster) = &self.inner.options.cluster else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(cluster.heartbeat).await;
            // If the database cannot be read now, the next check reads it.
            if let Ok(Presence::Silent(silence)) = hosts::presence(&self.inner, host).await {
                return silent(host, silence);
            }
        }
    }

    /// The server for a new sandbox: the one with the fewest.
    async fn least_loaded(&self) -> Result<Destination> {
        let loads = records::loads(&*self.inner.store).await?;
        let load =
            |host: &str| loads.iter().find(|(id, _)| id == host).map_or(0, |(_, load)| *load);
        let mut hosts = records::list(&*self.inner.store).await?;
        hosts.retain(|host| host.holds_sandboxes && host.id != self.inner.host());
        hosts.sort_by_key(|host| (load(&host.id), host.id.clone()));
        for host in hosts {
            if hosts::presence(&self.inner, &host.id).await? == Presence::Alive {
                return Ok(Destination { host: host.id, address: host.address });
            }
        }
        Err(Problem::new(Code::Unreachable, "no server that holds sandboxes answers")
            .because("this server holds none itself")
            .remedied_by("start one without `--queues none`"))
    }
}

fn silent(host: &str, silence: Duration) -> Problem {
    let message = "the server that holds the sandbox does not answer";
    let why = match silence {
        Duration::MAX => format!("the server {host} is not known any more"),
        silence => format!("the server {host} was seen {} s ago", silence.as_secs()),
    };
    Problem::new(Code::Unreachable, message).because(why).remedied_by(
        "start that server again, then retry; if it never comes back, `stockade kill` ends the \
             record of the sandbox once the server is given up",
    )
}

fn holds_none() -> Problem {
    Problem::new(Code::Unsupported, "this server holds no sandboxes")
        .because("the request names something of the host on which the sandbox is created")
        .remedied_by("send the request to the server of that host")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_request_names_what_it_is_about() {
        let cases = [
            ("execute", json!({ "sandboxId": "a" }), Object::Sandbox("a")),
            ("open_session", json!({ "execute": { "sandboxId": "a" } }), Object::Sandbox("a")),
            ("stop", json!({ "id": "a" }), Object::Sandbox("a")),
            ("kill_command", json!({ "workflowId": "w" }), Object::Operation("w")),
            ("cancel_operation", json!("w"), Object::Operation("w")),
            ("operation", json!("w"), Object::Nothing),
            ("remove_snapshot", json!("s"), Object::Snapshot("s")),
            ("restore", json!({ "snapshotId": "s" }), Object::Snapshot("s")),
            ("run_node", json!({ "inputs": { "sandboxId": "a" } }), Object::Sandbox("a")),
            ("create", json!({ "id": "a", "volumes": [] }), Object::New { is_local: false }),
            ("create", json!({ "image": "snapshot:s" }), Object::Snapshot("s")),
            ("create", json!({ "workspace": {} }), Object::New { is_local: true }),
            ("read_events", json!({ "sandboxId": "a" }), Object::Nothing),
            ("list", json!({}), Object::Nothing),
        ];
        for (operation, request, expected) in &cases {
            assert_eq!(object(operation, request), *expected, "{operation}");
        }
    }

    #[test]
    fn the_named_operations_exist() {
        let named = BY_ID.iter().chain(&RECORDS).chain(&OF_OPERATIONS).chain(&NEW);
        for name in named {
            let is_known = stockade_api::PLAIN.contains(name) || stockade_api::LONG.contains(name);
            assert!(is_known, "{name}");
        }
    }
}
