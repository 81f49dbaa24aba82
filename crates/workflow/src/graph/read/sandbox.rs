//! Reads the attributes of `<Sandbox>`, from an element or from a stored configuration.

use serde_json::{Map, Value};

use super::props::{Props, WORKFLOW, tagged};
use crate::graph::fault::Fault;
use crate::graph::limits::ToolLimits;
use crate::graph::sandbox::{OnLimit, Sandbox, Volume, unknown_egress};

/// The attributes in a provider's `request.config`.
const CONFIG: &[&str] = &[
    "runtime",
    "fallbackRuntime",
    "allowNetwork",
    "reviewDiffs",
    "autoAcceptDiffs",
    "allowNested",
    "image",
    "env",
    "egress",
    "ports",
    "volumes",
    "memoryLimit",
    "cpuLimit",
    "command",
    "workspace",
];

/// The fields of the objects in attributes.
const VOLUME: [&str; 3] = ["host", "container", "readonly"];
const PORT: [&str; 2] = ["host", "container"];
const WORKSPACE: [&str; 4] = ["name", "snapshotId", "idleTimeoutSecs", "persistence"];

impl Sandbox {
    /// Reads a sandbox from a [`Sandbox::config`] that a program in a sandbox wrote: it cannot name
    /// functions or providers.
    ///
    /// # Errors
    /// All errors in it.
    pub(crate) fn of_config(config: Map<String, Value>, input: Value) -> Result<Self, Vec<Fault>> {
        let strange = config.keys().find(|name| !CONFIG.contains(&name.as_str()));
        if let Some(name) = strange {
            let message =
                format!("the value of the attribute `{name}` of <Sandbox> cannot be serialized");
            return Err(vec![Fault { place: None, message }]);
        }
        let mut props = Props::new("Sandbox", config, None, &[]);
        let sandbox = Self { input, ..read_props(&mut props) };
        let mut faults = Vec::new();
        props.finish(&mut faults);
        if faults.is_empty() { Ok(sandbox) } else { Err(faults) }
    }
}

pub(super) fn read(props: &mut Props<'_>) -> Sandbox {
    let is_asked =
        ["workflow", "command", "provider"].iter().any(|name| props.peek(name).is_some());
    if !is_asked && props.peek("children").is_none() {
        props.fault(format!("needs `workflow`, {WORKFLOW}, or `command`"));
    }
    read_props(props)
}

fn read_props(props: &mut Props<'_>) -> Sandbox {
    let config = CONFIG
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), props.peek(name)?.clone())))
        .collect();
    // Before the provider is taken.
    let egress = egress(props);
    Sandbox {
        workflow: props.function_or("workflow", WORKFLOW),
        input: props.take("input").unwrap_or_default(),
        provider: props.take("provider").as_ref().map(provider),
        runtime: props.text("runtime"),
        fallback_runtime: props.text("fallbackRuntime"),
        allow_network: props.flag("allowNetwork").unwrap_or_default(),
        review_diffs: props.flag("reviewDiffs").unwrap_or(true),
        auto_accept_diffs: props.flag("autoAcceptDiffs").unwrap_or_default(),
        allow_nested: props.flag("allowNested").unwrap_or_default(),
        image: props.text("image"),
        env: props.pairs("env", "strings"),
        egress,
        ports: ports(props),
        volumes: volumes(props),
        memory_limit: props.text("memoryLimit"),
        cpu_limit: props.text("cpuLimit"),
        command: props.text("command"),
        workspace: workspace(props),
        tools: ToolLimits {
            output_bytes: props.count("maxOutputBytes", 1).flatten().map(u64::from),
            timeout: props.milliseconds("toolTimeoutMs"),
        },
        on_limit: props
            .choice("onLimit", &[("fail", OnLimit::Fail), ("wait", OnLimit::Wait)])
            .unwrap_or_default(),
        config,
    }
}

/// The id of a provider. The documentation of `<Sandbox>` gives the attribute no type, so a value that
/// is not a provider fails when it is called.
fn provider(found: &Value) -> String {
    let id = tagged(found, "provider").and_then(|object| object.get("id")).and_then(Value::as_str);
    id.unwrap_or("custom").to_owned()
}

/// The contract is read when the sandbox is executed; its fields are checked earlier, because a field that
/// is ignored may open the network.
fn egress(props: &mut Props<'_>) -> Option<Value> {
    let has_provider = props.peek("provider").is_some();
    let egress = props.take("egress")?;
    for message in unknown_egress(&egress, has_provider) {
        props.fault(message);
    }
    Some(egress)
}

fn workspace(props: &mut Props<'_>) -> Option<Map<String, Value>> {
    let workspace = props.object("workspace")?;
    props.check_fields("workspace", &workspace, &WORKSPACE);
    Some(workspace)
}

fn ports(props: &mut Props<'_>) -> Vec<Value> {
    let ports = props.list("ports");
    for (number, port) in ports.iter().enumerate() {
        match port.as_object() {
            Some(port) => props.check_fields(&format!("ports[{number}]"), port, &PORT),
            None => props.fault("`ports` must be a list of { host, container }"),
        }
    }
    ports
}

fn volumes(props: &mut Props<'_>) -> Vec<Volume> {
    let found = props.list("volumes");
    let mut volumes = Vec::new();
    for (number, value) in found.iter().enumerate() {
        let object = value.as_object();
        let strange = object.is_some_and(|it| it.keys().any(|key| !VOLUME.contains(&key.as_str())));
        match (object, volume(value)) {
            (Some(object), _) if strange => {
                props.check_fields(&format!("volumes[{number}]"), object, &VOLUME);
            }
            (_, Some(volume)) => volumes.push(volume),
            (_, None) => props.fault("`volumes` must be a list of { host, container, readonly? }"),
        }
    }
    volumes
}

fn volume(value: &Value) -> Option<Volume> {
    let object = value.as_object()?;
    let text = |name: &str| object.get(name)?.as_str().map(str::to_owned);
    let is_read_only = match object.get("readonly") {
        None | Some(Value::Null) => true,
        Some(said) => said.as_bool()?,
    };
    Some(Volume { host: text("host")?, container: text("container")?, is_read_only })
}
