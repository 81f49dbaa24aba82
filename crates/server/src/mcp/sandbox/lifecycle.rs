//! `create`, `sandboxes` and `kill`.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stockade_api::{CreateSandbox, Expiry, KillSandbox, ListSandboxes, Network, Problem, Sandbox};
use stockade_core::network::AllowedHost;
use stockade_core::sandbox::{Limits, Workspace};
use stockade_core::{Code, SandboxId};

use super::Grants;
use super::operation::{Facts, On, Operation, Reply, Scope, Stop};
use crate::mcp::Effects;
use crate::mcp::call::{Answer, Question};
use crate::mcp::untrusted::line;

/// The longest life of a sandbox, in seconds.
const MAX_TTL: f64 = 7.0 * 86_400.0;
/// The most variables, hosts and labels together.
const MEMBERS: usize = 256;
/// How many sandboxes are listed.
const LISTED: u32 = 100;

/// A sandbox for clients.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct SandboxValue {
    /// The id, for the argument `sandbox` of other tools.
    sandbox: String,
    /// Such as `running`, `paused`, `stopped` or `terminated`.
    state: String,
    /// The directory that paths are relative to; the home of the sandbox's user when absent.
    directory: Option<String>,
    /// The directory of the host that it sees as its workspace, without changing it.
    workspace: Option<String>,
    /// The rules of its network, such as `allow example.com`; everything else is denied.
    hosts: Vec<String>,
    labels: BTreeMap<String, String>,
    created_at: String,
    /// When it expires; never when absent.
    expires_at: Option<String>,
    /// The bundle with its changes, if one was made when it stopped or ended.
    bundle: Option<String>,
}

impl SandboxValue {
    pub(super) fn new(sandbox: &Sandbox) -> Self {
        let path = |path: &Path| line(path.as_os_str().as_encoded_bytes());
        let workspace = sandbox.workspace.as_ref();
        let directory = workspace.map(|it| it.inside.as_path());
        let hosts = sandbox.network.iter().flat_map(|network| network.policy.rules());
        let hosts = hosts.map(|rule| {
            let ports: Vec<_> = rule.ports.iter().map(u16::to_string).collect();
            let ports =
                if ports.is_empty() { String::new() } else { format!(":{}", ports.join(",")) };
            format!("{} {}{ports}", rule.action, rule.target)
        });
        let time = |time: &stockade_core::Time| {
            let value = serde_json::to_value(time).ok();
            value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
        };
        Self {
            sandbox: sandbox.id.to_string(),
            state: sandbox.state.to_string(),
            directory: directory.or(sandbox.working_directory.as_deref()).map(path),
            workspace: workspace.map(|it| path(&it.host)),
            hosts: hosts.collect(),
            labels: sandbox.metadata.clone(),
            created_at: time(&sandbox.created_at),
            expires_at: sandbox.expires_at.as_ref().map(time),
            bundle: sandbox.bundle.clone(),
        }
    }
}

/// Creates a sandbox.
#[derive(Debug)]
pub(super) struct Create;

/// The properties of a new sandbox, also of one from a snapshot.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct CreateArguments {
    /// An image in the store of the server; the programs of the server's machine when absent.
    image: Option<String>,
    /// Environment variables of every command. They are stored, so that they must not contain secrets.
    env: BTreeMap<String, String>,
    /// The hosts that it may connect to, as `HOST` or `HOST:PORT`; none when empty. The user is asked first.
    allow_hosts: Vec<String>,
    /// A directory on the host that it sees copy-on-write; only below the directories that the user has named.
    workspace: Option<String>,
    /// Labels by which it can be found.
    labels: BTreeMap<String, String>,
    /// The memory limit in mebibytes.
    memory_mib: Option<u64>,
    /// The processor limit, such as 0.5.
    cpus: Option<f64>,
    /// How long it lives, in seconds, at most a week; an hour when absent.
    ttl_seconds: Option<f64>,
}

impl CreateArguments {
    /// The request, if it is granted or the user allows it.
    pub(super) async fn request(self, on: &On<'_>) -> Result<CreateSandbox, Stop> {
        let invalid = |message: String| Problem::new(Code::InvalidInput, message);
        if self.env.len() + self.labels.len() + self.allow_hosts.len() > MEMBERS {
            let message = format!("more than {MEMBERS} variables, labels and hosts");
            return Err(invalid(message).into());
        }
        // A path would be one of the host.
        let is_path = |image: &str| image.starts_with(['/', '.']) || image.starts_with("snapshot:");
        if self.image.as_deref().is_some_and(is_path) {
            let message = "`image` must be the name of an image, not a path or snapshot";
            return Err(invalid(message.to_owned()).into());
        }
        if let Some(ttl) = self.ttl_seconds
            && !(1.0..=MAX_TTL).contains(&ttl)
        {
            return Err(invalid(format!("`ttlSeconds` must be from 1 to {MAX_TTL}")).into());
        }
        if self.cpus.is_some_and(|cpus| !(0.01..=1024.0).contains(&cpus)) {
            return Err(invalid("`cpus` must be from 0.01 to 1024".to_owned()).into());
        }
        let memory_bytes = self.memory_mib.map(|mib| mib.checked_mul(1 << 20));
        if memory_bytes == Some(None) {
            return Err(invalid("`memoryMib` is too large".to_owned()).into());
        }
        let workspace =
            self.workspace.map(|path| workspace(&on.context.grants, &path)).transpose()?;
        let network = network(on, &self.allow_hosts).await?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the number was checked"
        )]
        let cpu_millis = self.cpus.map(|cpus| (cpus * 1000.0).round() as u64);
        Ok(CreateSandbox {
            image: self.image,
            environment: self
                .env
                .into_iter()
                .map(|(name, value)| (name, value.into_bytes().into()))
                .collect(),
            limits: Limits {
                memory_bytes: memory_bytes.flatten(),
                cpu_millis,
                ..Limits::default()
            },
            working_directory: workspace.as_ref().map(|it| it.inside.clone()),
            workspace,
            network,
            metadata: self.labels,
            expiry: self.ttl_seconds.map_or(Expiry::Default, Expiry::Seconds),
            ..CreateSandbox::default()
        })
    }
}

/// The workspace at a path, if the user has granted it. Links are resolved first, so that none leads out
/// of what is granted.
fn workspace(grants: &Grants, path: &str) -> Result<Workspace, Problem> {
    let refused = || {
        let message = format!("the directory {} is not granted", line(path.as_bytes()));
        Problem::new(Code::Forbidden, message)
            .because("the user names the directories that may be workspaces when the server starts")
            .remedied_by("stockade mcp --allow-workspace DIR")
    };
    let named = Path::new(path);
    let is_plain = named.is_absolute() && !named.components().any(|it| it == Component::ParentDir);
    if !is_plain {
        return Err(refused());
    }
    let real = named.canonicalize().map_err(|_| refused())?;
    let is_granted =
        |granted: &PathBuf| granted.canonicalize().is_ok_and(|granted| real.starts_with(granted));
    if !grants.workspaces.iter().any(is_granted) || !real.is_dir() {
        return Err(refused());
    }
    Ok(Workspace { host: real.clone(), inside: real })
}

/// The network with these hosts, if they are granted or the user allows them.
async fn network(on: &On<'_>, hosts: &[String]) -> Result<Option<Network>, Stop> {
    if hosts.is_empty() {
        return Ok(None);
    }
    let allow: Result<Vec<AllowedHost>, _> = hosts.iter().map(|host| host.parse()).collect();
    let allow = allow.map_err(|error: String| {
        Problem::new(Code::RuleInvalid, format!("`allowHosts` is invalid: {error}"))
    })?;
    let is_granted = allow.iter().all(|host| on.context.grants.hosts.contains(host));
    if !is_granted {
        let list: Vec<_> = allow.iter().map(ToString::to_string).collect();
        let question = Question {
            message: format!("Let a new sandbox connect to these hosts?\n{}", list.join("\n")),
            confirm: "Allow these connections",
            extra: None,
            subject: list.join(" "),
        };
        match on.call.ask(question).await? {
            Answer::Yes { .. } => {}
            Answer::No => {
                let message = "the user has not allowed the connections";
                return Err(Problem::new(Code::Forbidden, message).into());
            }
            Answer::Unavailable => {
                let message = "network access of a sandbox is granted by the user";
                return Err(Problem::new(Code::Forbidden, message)
                    .because("this client cannot ask its user (elicitation)")
                    .remedied_by(format!("stockade mcp --allow {}", list.join(" --allow ")))
                    .into());
            }
        }
    }
    Ok(Some(Network { allow, ..Network::default() }))
}

#[async_trait]
impl Operation for Create {
    type Arguments = CreateArguments;
    type Value = SandboxValue;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "create",
            title: "Create a sandbox",
            text: "Creates a sandbox: an isolated environment for commands that sees neither the files of the user nor the network, unless that is granted. The result has its id for other tools. It ends after `ttlSeconds`; end it with `kill` when it is not needed any more.",
            effects: Effects::ADDS,
            on_sandbox: false,
            is_long: false,
        }
    }

    async fn call(
        &self,
        on: On<'_>,
        arguments: CreateArguments,
    ) -> Result<Reply<SandboxValue>, Stop> {
        let request = arguments.request(&on).await?;
        let created = on.context.sandboxes.create(&on.call.writer(), request).await?;
        Ok(Reply::new(SandboxValue::new(&created)))
    }
}

/// Lists sandboxes.
#[derive(Debug)]
pub(super) struct List;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct ListArguments {
    /// Only those with all of these labels.
    labels: BTreeMap<String, String>,
    /// Only those after this one, for the next part of a long list.
    after: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListValue {
    /// The sandboxes, the newest first, at most 100.
    sandboxes: Vec<SandboxValue>,
    /// Whether there are more.
    more: bool,
}

#[async_trait]
impl Operation for List {
    type Arguments = ListArguments;
    type Value = ListValue;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "sandboxes",
            title: "List sandboxes",
            text: "Lists the sandboxes that are not terminated.",
            effects: Effects::READ_ONLY,
            on_sandbox: false,
            is_long: false,
        }
    }

    async fn call(&self, on: On<'_>, arguments: ListArguments) -> Result<Reply<ListValue>, Stop> {
        let after = arguments.after.map(SandboxId::new).transpose();
        let after = after
            .map_err(|_| Problem::new(Code::InvalidInput, "`after` is not the id of a sandbox"))?;
        let request = ListSandboxes {
            metadata: arguments.labels,
            after,
            limit: Some(LISTED),
            ..ListSandboxes::default()
        };
        let listed = on.context.sandboxes.list(on.call.reader(), request).await?;
        let sandboxes = listed.sandboxes.iter().map(SandboxValue::new).collect();
        Ok(Reply::new(ListValue { sandboxes, more: listed.more }))
    }
}

/// Terminates a sandbox.
#[derive(Debug)]
pub(super) struct Kill;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct KillArguments {}

#[async_trait]
impl Operation for Kill {
    type Arguments = KillArguments;
    type Value = SandboxValue;

    fn facts(&self, _: &Scope) -> Facts {
        Facts {
            name: "kill",
            title: "Terminate a sandbox",
            text: "Terminates a sandbox and removes its files. Changes in its workspace become a bundle first.",
            effects: Effects::CHANGES.idempotent(),
            on_sandbox: true,
            is_long: false,
        }
    }

    async fn call(&self, on: On<'_>, _: KillArguments) -> Result<Reply<SandboxValue>, Stop> {
        let sandbox = on.sandbox().await?;
        let request = KillSandbox::new(sandbox.id);
        let killed = on.context.sandboxes.kill(&on.call.writer(), request).await?;
        Ok(Reply::new(SandboxValue::new(&killed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_granted_directories_are_workspaces() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("granted/below")).unwrap();
        std::fs::create_dir(root.join("other")).unwrap();
        std::fs::write(root.join("granted/file"), "").unwrap();
        std::os::unix::fs::symlink(root.join("other"), root.join("granted/out")).unwrap();
        let grants = Grants { workspaces: vec![root.join("granted")], ..Grants::default() };
        let allowed = |path: &str| workspace(&grants, root.join(path).to_str().unwrap()).is_ok();
        assert!(allowed("granted"));
        assert!(allowed("granted/below"));
        for refused in ["other", "granted/out", "granted/../other", "granted/file", "granted2", ""]
        {
            assert!(!allowed(refused), "{refused}");
        }
        assert!(workspace(&grants, "granted").is_err());
        assert!(workspace(&Grants::default(), root.to_str().unwrap()).is_err());
    }
}
