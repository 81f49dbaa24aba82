//! The attributes of `<Sandbox>` (its documentation has a table of them). Their types are checked
//! when a rendering is read; whether they are supported is checked when the sandbox is executed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use stockade_core::smithers_egress::{self, Contract};

use super::function::Function;
use super::limits::ToolLimits;
use super::nearest::{nearest, unknown_field};

/// A sandbox that executes a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Sandbox {
    /// The workflow; `None` if a command or a provider needs none.
    pub workflow: Option<Function>,
    /// The input of the workflow; null if there is none.
    pub input: Value,
    /// The id of the provider that executes it; `None` means a runtime of this host. Only the realm of
    /// the workflow knows whether the provider exists.
    pub provider: Option<String>,
    /// The requested runtime, as it is written in the source.
    pub runtime: Option<String>,
    /// The runtime that is selected if the requested one is not usable.
    pub fallback_runtime: Option<String>,
    /// Whether it may connect to a network.
    pub allow_network: bool,
    /// Whether its changes to the project wait for a decision.
    pub review_diffs: bool,
    /// Whether its changes are accepted without a decision.
    pub auto_accept_diffs: bool,
    /// Whether it may be nested in another sandbox.
    pub allow_nested: bool,
    /// The image of its file system.
    pub image: Option<String>,
    /// Environment variables of its commands.
    pub env: BTreeMap<String, String>,
    /// Its egress contract, as it is written in the source.
    pub egress: Option<Value>,
    /// The ports that the host publishes.
    pub ports: Vec<Value>,
    /// Volumes, and directories and files of the host, that are mounted in it.
    pub volumes: Vec<Volume>,
    /// How much memory it may use, such as `512m`.
    pub memory_limit: Option<String>,
    /// How many processors it may use, such as `0.5`.
    pub cpu_limit: Option<String>,
    /// The command that is executed instead of the workflow.
    pub command: Option<String>,
    /// Its workspace at a provider of workspaces.
    pub workspace: Option<Map<String, Value>>,
    /// The limits of its tools.
    pub tools: ToolLimits,
    /// What happens when no slot is free.
    pub on_limit: OnLimit,
    /// The whole configuration as it is written in the source, for providers.
    pub config: Map<String, Value>,
}

/// A volume, or a directory or file of the host, that is mounted in a sandbox (upstream's
/// `SandboxVolumeMount`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its absolute path on the host, or the name of a volume.
    pub host: String,
    /// Its mount point in the sandbox.
    pub container: String,
    /// Whether it is read-only, which is the default.
    pub is_read_only: bool,
}

/// What happens when no slot for a sandbox is free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLimit {
    /// The task fails immediately, as in Smithers.
    #[default]
    Fail,
    /// The task waits for a slot.
    Wait,
}

/// What is wrong with the fields of an egress contract. A provider may have fields of its own, as the
/// documentation of `<Sandbox>` allows, but none that looks like a misspelt one of the contract.
pub(crate) fn unknown_egress(egress: &Value, has_provider: bool) -> Vec<String> {
    let Some(fields) = egress.as_object().filter(|fields| !fields.contains_key("$")) else {
        return vec!["`egress` must be an object".to_owned()];
    };
    let is_wrong = |field: &&String| {
        let is_known = Contract::FIELDS.contains(&field.as_str());
        let may_be_own = || has_provider && nearest(field, Contract::FIELDS).is_none();
        !is_known && !may_be_own()
    };
    let wrong = fields.keys().filter(is_wrong);
    wrong.map(|field| unknown_field("egress", field, &Contract::FIELDS)).collect()
}

impl Sandbox {
    /// Its egress contract, if it has one. Of a sandbox of this host with a network, the proxies on a
    /// loopback address are those of the host.
    ///
    /// # Errors
    /// The field of the contract that is invalid.
    pub(crate) fn contract(&self) -> Result<Option<Contract>, smithers_egress::Error> {
        let contract = self.egress.as_ref().map(Contract::parse).transpose()?;
        let is_here = self.provider.is_none() && self.allow_network;
        Ok(contract.map(|contract| if is_here { contract.on_this_machine() } else { contract }))
    }

    /// The ports of the host's loopback that it uses as proxies, which a user has to allow.
    pub fn host_ports(&self) -> BTreeSet<u16> {
        let contract = self.contract().ok().flatten();
        contract.map(|contract| contract.machine_ports()).unwrap_or_default()
    }
}
