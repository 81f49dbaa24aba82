//! The values of a node's input ports, and what its operations are called with.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use stockade_api::{Caller, Problem, Proxy, Result, Sandboxes};
use stockade_core::access::{Level, Rules};
use stockade_core::sandbox::ServerElsewhere;
use stockade_core::{Code, SandboxId};

use super::table::{Node, PASSTHROUGH};
use crate::failure::{access_problem, invalid};

/// The values, by port.
#[derive(Debug)]
pub(super) struct Ports {
    node: &'static str,
    values: Map<String, Value>,
}

/// One run of a node.
pub(super) struct Call<'a> {
    pub(super) sandboxes: &'a dyn Sandboxes,
    pub(super) caller: &'a Caller,
    pub(super) ports: &'a Ports,
    /// The server elsewhere for a sandbox that names no runtime.
    pub(super) server: Option<ServerElsewhere>,
}

impl Call<'_> {
    /// The caller of one of the operations of the node.
    pub(super) fn caller_of(&self, operation: &str) -> Caller {
        let key = self.caller.idempotency_key.as_ref();
        let key = key.map(|key| format!("{key}:{operation}"));
        Caller { idempotency_key: key, ..self.caller.clone() }
    }
}

impl Ports {
    /// The values, if the node has these ports.
    pub(super) fn new(node: &'static Node, mut values: Map<String, Value>) -> Result<Self> {
        values.retain(|_, value| !value.is_null());
        let is_known = |name: &str| node.inputs.contains(&name) || PASSTHROUGH.contains(&name);
        if let Some(name) = values.keys().find(|name| !is_known(name)) {
            let ports: Vec<_> = node.inputs.iter().chain(&PASSTHROUGH).copied().collect();
            let message = format!("{} has no input {name:?}", node.name);
            return Err(Problem::new(Code::InvalidInput, message)
                .because(format!("its inputs are {}", ports.join(", "))));
        }
        Ok(Self { node: node.name, values })
    }

    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// The value of a port, if there is one.
    pub(super) fn optional<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let Some(value) = self.values.get(name) else { return Ok(None) };
        serde_json::from_value(value.clone()).map(Some).map_err(|error| {
            let message = format!("{}: the input `{name}` is invalid", self.node);
            Problem::new(Code::InvalidInput, message).because(error.to_string())
        })
    }

    /// The value of a port that must have one.
    pub(super) fn required<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        self.optional(name)?
            .ok_or_else(|| invalid(format!("{} needs the input `{name}`", self.node)))
    }

    pub(super) fn or_default<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T> {
        Ok(self.optional(name)?.unwrap_or_default())
    }

    pub(super) fn sandbox(&self) -> Result<SandboxId> {
        self.required("sandboxId")
    }

    /// Checks a path with the access rules that have come along the chain. Those of the sandbox are
    /// checked by each operation.
    pub(super) fn check_path(&self, level: Level, path: &[u8]) -> Result<()> {
        let values: Vec<Value> = self.or_default("accessRules")?;
        let rules = Rules::from_values(values).map_err(|error| {
            Problem::new(Code::RuleInvalid, "an access rule is invalid").because(error.to_string())
        })?;
        if rules.is_empty() {
            return Ok(());
        }
        rules.allows(level, path).map_err(|error| access_problem(&error))
    }

    /// The port of the container, if the endpoint configuration allows it; its default if none is
    /// named.
    pub(super) fn endpoint(&self) -> Result<u16> {
        let proxy: Proxy = self.or_default("proxyConfig")?;
        let port = self.optional("port")?.or(proxy.default_port).ok_or_else(|| {
            let needs = "needs the input `port`, or a `defaultPort` in `proxyConfig`";
            invalid(format!("{} {needs}", self.node))
        })?;
        let is_exposed = proxy.exposed_ports.is_empty()
            || proxy.exposed_ports.contains(&port)
            || proxy.default_port == Some(port);
        match is_exposed {
            true => Ok(port),
            false => Err(Problem::new(Code::Forbidden, format!("the port {port} is not exposed"))
                .because("`exposedPorts` of `proxyConfig` does not contain it")),
        }
    }
}

/// The members of a JSON object.
pub(super) fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// An answer as JSON.
pub(super) fn to_value(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap_or_default()
}
