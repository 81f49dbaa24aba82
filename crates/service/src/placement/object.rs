//! What a request is about, by the operation and its members.

use serde_json::Value;

use crate::possession::Kind;
use crate::spec::SNAPSHOT;

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

/// The operations whose member `name` names something.
const BY_NAME: [(&str, Kind); 9] = [
    ("create_volume", Kind::Volume),
    ("find_volume", Kind::Volume),
    ("remove_volume", Kind::Volume),
    ("create_workspace", Kind::Workspace),
    ("remove_workspace", Kind::Workspace),
    ("read_workspace", Kind::Workspace),
    ("change_workspace", Kind::Workspace),
    ("commit_workspace", Kind::Workspace),
    ("workspace_history", Kind::Workspace),
];

/// The operations whose member `id` names a bundle.
const OF_BUNDLES: [&str; 4] = ["show_bundle", "diff_bundle", "apply_bundle", "reject_bundle"];

/// The operations that all servers execute, and what they list. Images have no owner.
const LISTS: [(&str, Option<Kind>); 5] = [
    ("volumes", Some(Kind::Volume)),
    ("workspaces", Some(Kind::Workspace)),
    ("bundles", Some(Kind::Bundle)),
    ("images", None),
    ("remove_image", None),
];

/// The operations that copy files between a sandbox and a workspace.
const SYNCHRONIZATIONS: [&str; 2] = ["sync_from_vfs", "sync_to_vfs"];

/// What a request is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Object<'r> {
    Sandbox(&'r str),
    Operation(&'r str),
    Snapshot(&'r str),
    Named(Named<'r>),
    New(New<'r>),
    Synchronization { sandbox: &'r str, workspace: Option<&'r str> },
    List(Option<Kind>),
    Nothing,
}

/// Something that an owner has by a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named<'r> {
    pub(super) kind: Kind,
    /// None if the name is to be generated.
    pub(super) name: Option<&'r str>,
    /// Whether it is created if there is none.
    pub(super) is_new: bool,
}

/// What a new sandbox is made of.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct New<'r> {
    /// Whether it has something of the host on which it is created.
    pub(super) is_local: bool,
    pub(super) snapshot: Option<&'r str>,
    pub(super) volumes: Vec<&'r str>,
    /// The workspace that it belongs to.
    pub(super) workspace: Option<&'r str>,
}

pub(super) fn object<'r>(operation: &str, request: &'r Value) -> Object<'r> {
    let member = |name: &str| request.get(name).and_then(Value::as_str);
    if NEW.contains(&operation) {
        return Object::New(new(request));
    }
    if let Some((_, kind)) = LISTS.iter().find(|(name, _)| *name == operation) {
        return Object::List(*kind);
    }
    if let Some((_, kind)) = BY_NAME.iter().find(|(name, _)| *name == operation) {
        let is_new = operation.starts_with("create_");
        return Object::Named(Named { kind: *kind, name: member("name"), is_new });
    }
    let found = match operation {
        "restore" => {
            let mut new = request.get("sandbox").map(new).unwrap_or_default();
            new.snapshot = member("snapshotId");
            Some(Object::New(new))
        }
        "remove_snapshot" => request.as_str().map(Object::Snapshot),
        "run_node" => {
            let input = |name: &str| request.get("inputs").and_then(|it| it.get(name)?.as_str());
            let sandbox = input("sandboxId").map(Object::Sandbox);
            sandbox.or_else(|| input("snapshotId").map(Object::Snapshot))
        }
        name if OF_BUNDLES.contains(&name) => member("id")
            .map(|id| Object::Named(Named { kind: Kind::Bundle, name: Some(id), is_new: false })),
        name if SYNCHRONIZATIONS.contains(&name) => member("sandboxId").map(|sandbox| {
            let vfs = request.get("vfs");
            let workspace = vfs.and_then(|vfs| vfs.get("workspace")?.as_str());
            Object::Synchronization { sandbox, workspace }
        }),
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

/// What the request for a sandbox names.
fn new(request: &Value) -> New<'_> {
    let member = |name: &str| request.get(name).and_then(Value::as_str);
    let has = |name: &str| match request.get(name) {
        None | Some(Value::Null) => false,
        Some(Value::Array(all)) => !all.is_empty(),
        Some(_) => true,
    };
    let volumes = request.get("volumes").and_then(Value::as_array).into_iter().flatten();
    New {
        is_local: ["workspace", "publish", "server"].into_iter().any(has),
        snapshot: member("image").and_then(|image| image.strip_prefix(SNAPSHOT)),
        volumes: volumes.filter_map(|volume| volume.get("name")?.as_str()).collect(),
        workspace: member("workspaceId"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(kind: Kind, name: Option<&str>, is_new: bool) -> Object<'_> {
        Object::Named(Named { kind, name, is_new })
    }

    #[test]
    fn each_request_names_what_it_is_about() {
        let mount = json!([{ "name": "v", "inside": "/v" }]);
        let of_volume = New { volumes: vec!["v"], ..New::default() };
        let of_snapshot = New { snapshot: Some("s"), ..New::default() };
        let both = New { snapshot: Some("s"), volumes: vec!["v"], ..New::default() };
        let of_workspace = New { workspace: Some("w"), ..New::default() };
        let local = New { is_local: true, ..New::default() };
        let cases = [
            ("execute", json!({ "sandboxId": "a" }), Object::Sandbox("a")),
            ("open_session", json!({ "execute": { "sandboxId": "a" } }), Object::Sandbox("a")),
            ("stop", json!({ "id": "a" }), Object::Sandbox("a")),
            ("kill_command", json!({ "workflowId": "w" }), Object::Operation("w")),
            ("cancel_operation", json!("w"), Object::Operation("w")),
            ("operation", json!("w"), Object::Nothing),
            ("remove_snapshot", json!("s"), Object::Snapshot("s")),
            ("run_node", json!({ "inputs": { "sandboxId": "a" } }), Object::Sandbox("a")),
            ("create", json!({ "id": "a", "volumes": [] }), Object::New(New::default())),
            ("create", json!({ "image": "snapshot:s" }), Object::New(of_snapshot)),
            ("create", json!({ "workspace": {} }), Object::New(local)),
            ("create", json!({ "volumes": mount }), Object::New(of_volume)),
            ("create", json!({ "workspaceId": "w" }), Object::New(of_workspace)),
            (
                "restore",
                json!({ "snapshotId": "s", "sandbox": { "volumes": mount } }),
                Object::New(both),
            ),
            ("create_volume", json!({}), named(Kind::Volume, None, true)),
            ("remove_volume", json!({ "name": "v" }), named(Kind::Volume, Some("v"), false)),
            ("read_workspace", json!({ "name": "w" }), named(Kind::Workspace, Some("w"), false)),
            ("diff_bundle", json!({ "id": "b" }), named(Kind::Bundle, Some("b"), false)),
            (
                "sync_to_vfs",
                json!({ "sandboxId": "a", "vfs": { "workspace": "w" } }),
                Object::Synchronization { sandbox: "a", workspace: Some("w") },
            ),
            ("volumes", json!({}), Object::List(Some(Kind::Volume))),
            ("read_events", json!({ "sandboxId": "a" }), Object::Nothing),
            ("list", json!({}), Object::Nothing),
        ];
        for (operation, request, expected) in &cases {
            assert_eq!(object(operation, request), *expected, "{operation}");
        }
    }

    #[test]
    fn the_named_operations_exist() {
        let lists = LISTS.iter().map(|(name, _)| name);
        let by_name = BY_NAME.iter().map(|(name, _)| name);
        let named = BY_ID.iter().chain(&RECORDS).chain(&OF_OPERATIONS).chain(&NEW);
        let named = named.chain(&OF_BUNDLES).chain(&SYNCHRONIZATIONS).chain(lists).chain(by_name);
        for name in named.chain(&super::super::ENDS) {
            let is_known = stockade_api::PLAIN.contains(name) || stockade_api::LONG.contains(name);
            assert!(is_known, "{name}");
        }
    }
}
