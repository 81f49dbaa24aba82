//! What `<Sandbox>` says (Smithers' tables of props). Its types are checked when a
//! rendering is read; whether what it asks for can be had is decided when it is executed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::props::{Props, tagged};
use super::read::WORKFLOW;
use super::{Fault, Function, ToolLimits};

/// A workflow that is run in a sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Sandbox {
    /// Which workflow; `None` where a command or a provider needs none.
    pub workflow: Option<Function>,
    /// What it is given; nothing is null.
    pub input: Value,
    /// What the provider that executes it calls itself; `None` is a runtime of this host. Which one
    /// it is, if any, is for the author's realm to say when it is asked.
    pub provider: Option<String>,
    /// The runtime that is asked for, as it was written.
    pub runtime: Option<String>,
    /// Whether it may reach a network.
    pub allow_network: bool,
    /// Whether its changes to the project wait for somebody's decision.
    pub review_diffs: bool,
    /// Whether that decision is yes, whoever made the changes.
    pub auto_accept_diffs: bool,
    /// Whether it may be executed where a sandbox is around it already.
    pub allow_nested: bool,
    /// What its file system begins with.
    pub image: Option<String>,
    /// What its commands find in their environment.
    pub env: BTreeMap<String, String>,
    /// How it reaches the network, as it was written.
    pub egress: Option<Value>,
    /// Which of its ports the host shows.
    pub ports: Vec<Value>,
    /// Directories of the host that it sees.
    pub volumes: Vec<Volume>,
    /// How much memory it may use, such as `512m`.
    pub memory_limit: Option<String>,
    /// How many processors it may use, such as `0.5`.
    pub cpu_limit: Option<String>,
    /// What is executed instead of the workflow.
    pub command: Option<String>,
    /// Its workspace at a provider of such.
    pub workspace: Option<Map<String, Value>>,
    /// What its tools may take.
    pub tools: ToolLimits,
    /// What follows when too many are under way.
    pub on_limit: OnLimit,
    /// All of it as it was written, for providers.
    pub config: Map<String, Value>,
}

/// A directory or file of the host that a sandbox sees (Smithers' `SandboxVolumeMount`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its absolute path.
    pub host: String,
    /// Where it is inside.
    pub container: String,
    /// Whether it cannot be changed; so unless it is said otherwise.
    pub is_read_only: bool,
}

/// What follows when as many sandboxes are under way as there may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLimit {
    /// The task fails at once, as in Smithers.
    #[default]
    Fail,
    /// It waits for its turn.
    Wait,
}

/// What a provider is told in `request.config`.
const CONFIG: &[&str] = &[
    "runtime",
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

impl Sandbox {
    /// What somebody has written down as [`Sandbox::config`], which is no author's: nothing in it
    /// stands for a function or a provider.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn of_config(config: Map<String, Value>, input: Value) -> Result<Self, Vec<Fault>> {
        let strange = config.keys().find(|name| !CONFIG.contains(&name.as_str()));
        if let Some(name) = strange {
            let message = format!("<Sandbox> has no attribute `{name}` that could be written down");
            return Err(vec![Fault { place: None, message }]);
        }
        let mut props = Props::new("Sandbox", config, None, &[]);
        let sandbox = Self { input, ..given(&mut props) };
        let mut faults = Vec::new();
        props.finish(&mut faults);
        if faults.is_empty() { Ok(sandbox) } else { Err(faults) }
    }
}

pub(super) fn read(props: &mut Props<'_>) -> Sandbox {
    let is_asked =
        ["workflow", "command", "provider"].iter().any(|name| props.look(name).is_some());
    if !is_asked && props.look("children").is_none() {
        props.fault(format!("needs `workflow`, {WORKFLOW}, or `command`"));
    }
    given(props)
}

fn given(props: &mut Props<'_>) -> Sandbox {
    let config = CONFIG
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), props.look(name)?.clone())))
        .collect();
    Sandbox {
        workflow: props.function_or("workflow", WORKFLOW),
        input: props.take("input").unwrap_or_default(),
        provider: props.take("provider").as_ref().map(provider),
        runtime: props.text("runtime"),
        allow_network: props.flag("allowNetwork").unwrap_or_default(),
        review_diffs: props.flag("reviewDiffs").unwrap_or(true),
        auto_accept_diffs: props.flag("autoAcceptDiffs").unwrap_or_default(),
        allow_nested: props.flag("allowNested").unwrap_or_default(),
        image: props.text("image"),
        env: props.pairs("env", "texts"),
        egress: props.take("egress"),
        ports: props.list("ports"),
        volumes: volumes(props),
        memory_limit: props.text("memoryLimit"),
        cpu_limit: props.text("cpuLimit"),
        command: props.text("command"),
        workspace: props.object("workspace"),
        tools: ToolLimits {
            output_bytes: props.count("maxOutputBytes", 1).flatten().map(u64::from),
            timeout: props.milliseconds("toolTimeoutMs"),
        },
        on_limit: props
            .word("onLimit", &[("fail", OnLimit::Fail), ("wait", OnLimit::Wait)])
            .unwrap_or_default(),
        config,
    }
}

/// What is no provider fails when it is asked: the attribute has no type in Smithers.
fn provider(found: &Value) -> String {
    let id = tagged(found, "provider").and_then(|object| object.get("id")).and_then(Value::as_str);
    id.unwrap_or("custom").to_owned()
}

fn volumes(props: &mut Props<'_>) -> Vec<Volume> {
    let found = props.list("volumes");
    let read: Option<Vec<_>> = found.iter().map(volume).collect();
    read.unwrap_or_else(|| {
        props.fault("`volumes` must be a list of { host, container, readonly? }");
        Vec::new()
    })
}

fn volume(value: &Value) -> Option<Volume> {
    let object = value.as_object()?;
    let known = |name: &String| matches!(name.as_str(), "host" | "container" | "readonly");
    let text = |name: &str| object.get(name)?.as_str().map(str::to_owned);
    let is_read_only = match object.get("readonly") {
        None | Some(Value::Null) => true,
        Some(said) => said.as_bool()?,
    };
    let volume = Volume { host: text("host")?, container: text("container")?, is_read_only };
    object.keys().all(known).then_some(volume)
}
