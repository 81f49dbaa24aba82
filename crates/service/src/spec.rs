//! The conversion of a sandbox's request to a runtime's specification.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use stockade_api::{CreateSandbox, Expiry, ExpiryAction, Network, Result};
use stockade_core::access::Rules;
use stockade_core::network::secret::BoundSecret;
use stockade_core::sandbox::{
    CacheMount, Root, SSH_AGENT_DIRECTORY, SSH_AGENT_SOCKET, SSH_AGENT_VARIABLE, User,
};
use stockade_core::{Bytes, Code, OwnerId, Problem, SandboxSpec, SnapshotId, Ttl, cache};

use crate::failure::invalid;
use crate::ssh_agents;
use crate::store::sandboxes::SandboxRow;

/// How long a runtime keeps a sandbox that was created and not yet renewed.
const UNTIL_RENEWED: Duration = Duration::from_secs(120);

/// How much longer a runtime keeps a sandbox than the service: if no service is running at its end,
/// the sandbox ends all the same.
const GRACE: Duration = Duration::from_secs(60);

/// The prefix of an image name that refers to a snapshot.
pub(crate) const SNAPSHOT: &str = "snapshot:";

/// All checks of a request that need no other state.
pub(crate) fn check(request: &CreateSandbox) -> Result<()> {
    rules(request)?;
    request.command_timeout_seconds.map(duration).transpose()?;
    let mut names = BTreeSet::new();
    for user in &request.users {
        if user.name.is_empty() || !names.insert(&user.name) {
            return Err(invalid(format!(
                "the user {:?} has an invalid or duplicate name",
                user.name
            )));
        }
    }
    if let Some(proxy) = &request.proxy
        && let Some(port) = proxy.default_port
        && !proxy.exposed_ports.contains(&port)
    {
        return Err(invalid(format!("the default port {port} is not an exposed port")));
    }
    if let Some(network) = &request.network {
        network.policy()?;
        network.check_upstream_proxy()?;
        network.check_secrets()?;
        check_secret_names(network, &request.environment)?;
    }
    let ports: BTreeSet<_> = request.publish.iter().map(|port| (port.address, port.host)).collect();
    if ports.len() < request.publish.len() {
        return Err(invalid("a port of the host can be published only once"));
    }
    if request.publish.len() > PUBLISHED_PORTS {
        return Err(invalid(format!("at most {PUBLISHED_PORTS} ports can be published")));
    }
    if request.publish.iter().any(|port| port.host == 0 || port.inside == 0) {
        return Err(invalid("a published port must be a number from 1 to 65535")
            .because("it is the same each time that the sandbox starts")
            .remedied_by("for any free port, use `stockade forward ID 0:PORT`"));
    }
    if request.volumes.len() + request.caches.len() > VOLUMES {
        return Err(invalid(format!("at most {VOLUMES} volumes and caches can be mounted")));
    }
    for unknown in &request.caches {
        if unknown.inside.is_none() && cache::tool(unknown.name.as_str()).is_none() {
            let known: Vec<_> = cache::TOOLS.iter().map(|tool| tool.name).collect();
            return Err(invalid(format!("there is no cache {:?}", unknown.name.as_str()))
                .because(format!("known caches: {}", known.join(", ")))
                .remedied_by(format!("give it a path inside: {}:/path", unknown.name)));
        }
    }
    if let Some(workspace) = &request.remote_workspace {
        workspace.check().map_err(invalid)?;
    }
    for name in request.environment.keys() {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(invalid(format!("{name:?} is not a valid variable name")));
        }
    }
    if let Some(agent) = &request.ssh_agent {
        ssh_agents::check(agent)?;
        if request.environment.contains_key(SSH_AGENT_VARIABLE) {
            let message = format!("the variable {SSH_AGENT_VARIABLE} is that of the ssh agent");
            return Err(invalid(message).remedied_by("omit it, or the ssh agent"));
        }
    }
    if request.keep && request.on_expiry == Some(ExpiryAction::Terminate) {
        let message = "a sandbox that is terminated when it expires cannot keep its files";
        return Err(invalid(message).remedied_by("omit `keep`, or use `onExpiry: stop`"));
    }
    root(request).map(drop)
}

/// Refuses a secret whose variable the sandbox's environment sets.
pub(crate) fn check_secret_names(
    network: &Network,
    environment: &BTreeMap<String, Bytes>,
) -> Result<()> {
    match network.secrets.iter().find(|secret| environment.contains_key(&secret.name)) {
        Some(BoundSecret { name, .. }) => {
            Err(invalid(format!("`--env` and `--secret` both set {name}")))
        }
        None => Ok(()),
    }
}

fn rules(request: &CreateSandbox) -> Result<Rules> {
    Rules::from_values(request.access_rules.clone()).map_err(|error| {
        Problem::new(Code::RuleInvalid, format!("access rule {} is invalid", error.index))
            .because(error.reason)
    })
}

/// How many volumes and caches one sandbox may have.
const VOLUMES: usize = 64;
/// How many ports of the host one sandbox may have.
const PUBLISHED_PORTS: usize = 64;

/// The TTL of a sandbox, from now on.
pub(crate) fn ttl(expiry: Expiry, default: Option<Duration>) -> Result<Option<Duration>> {
    match expiry {
        Expiry::Default => Ok(default),
        Expiry::Never => Ok(None),
        Expiry::Seconds(seconds) => duration(seconds).map(Some),
    }
}

/// A time to live in seconds.
pub(crate) fn duration(seconds: f64) -> Result<Duration> {
    Ttl::from_seconds(seconds).map(Ttl::as_duration).map_err(|error| invalid(error.to_string()))
}

/// The public form of a request's image.
pub(crate) fn image(request: &CreateSandbox) -> String {
    request.image.clone().unwrap_or_else(|| "host".to_owned())
}

/// The name of the image that a request names, if it is no path.
pub(crate) fn image_name(request: &CreateSandbox) -> Option<&str> {
    let is_name = |name: &&str| {
        !name.is_empty() && *name != "host" && !name.starts_with('/') && !name.starts_with(SNAPSHOT)
    };
    request.image.as_deref().filter(is_name)
}

/// The id of the snapshot that a request starts from.
pub(crate) fn snapshot(request: &CreateSandbox) -> Option<&str> {
    request.image.as_deref()?.strip_prefix(SNAPSHOT)
}

/// The image name of a snapshot.
pub(crate) fn snapshot_image(id: &SnapshotId) -> String {
    format!("{SNAPSHOT}{id}")
}

fn root(request: &CreateSandbox) -> Result<Root> {
    Ok(match request.image.as_deref() {
        None | Some("host") => Root::Host,
        Some("") => return Err(invalid("the name of an image must not be empty")),
        Some(path) if path.starts_with('/') => Root::Directory(PathBuf::from(path)),
        Some(image) => match image.strip_prefix(SNAPSHOT) {
            Some(id) => Root::Snapshot(SnapshotId::new(id).map_err(|e| invalid(e.to_string()))?),
            None => Root::Image(image.to_owned()),
        },
    })
}

/// The specification for a runtime. It is the same each time, because a runtime recognizes a
/// repeated request by it.
pub(crate) fn sandbox_spec(row: &SandboxRow, service: &str) -> Result<SandboxSpec> {
    let mut spec = specification(&row.request, &row.owner, row.rules.clone(), row.labels(service))?;
    if let Root::Image(name) = &mut spec.root {
        name.clone_from(&row.image);
    }
    Ok(spec)
}

/// The specification of a request.
///
/// # Errors
/// [`Code::InvalidInput`] for a request that cannot be converted, [`Code::RuleInvalid`] for access
/// rules.
pub fn requested_spec(request: &CreateSandbox, owner: &OwnerId) -> Result<SandboxSpec> {
    specification(request, owner, rules(request)?, request.metadata.clone())
}

fn specification(
    request: &CreateSandbox,
    owner: &OwnerId,
    access: Rules,
    labels: BTreeMap<String, String>,
) -> Result<SandboxSpec> {
    let caches: Vec<_> = request.caches.iter().map(|cache| cache.of(owner)).collect();
    let mut environment = request.environment.clone();
    for (name, value) in caches.iter().flat_map(CacheMount::variables) {
        environment.entry((*name).to_owned()).or_insert_with(|| (*value).into());
    }
    if request.ssh_agent.is_some() {
        let socket = format!("{SSH_AGENT_DIRECTORY}/{SSH_AGENT_SOCKET}");
        environment.insert(SSH_AGENT_VARIABLE.to_owned(), socket.into());
    }
    Ok(SandboxSpec {
        root: root(request)?,
        private_base: request.private_base == Some(true),
        workspace: request.workspace.clone(),
        remote_workspace: request.remote_workspace.clone(),
        server: request.server.clone(),
        mounts: request.mounts.clone(),
        exact_paths: request.exact_paths,
        volumes: request.volumes.iter().map(|volume| volume.of(owner)).collect(),
        caches,
        environment,
        user: request.default_uid.map(|user| {
            let named = request.users.iter().find(|entry| entry.uid == user);
            User { user, group: named.and_then(|entry| entry.gid).unwrap_or(user) }
        }),
        // Those of an image's user are found where the image is.
        groups: Vec::new(),
        sudo: request.sudo,
        working_directory: request.working_directory.clone(),
        limits: request.limits,
        best_effort: request.best_effort.clone(),
        access,
        network: request.network.as_ref().map(Network::policy).transpose()?,
        ssh_agent: request.ssh_agent.is_some(),
        labels,
        // The lease for the whole TTL, however much of it has passed: so it is the same each time.
        lease: match request.expiry {
            Expiry::Never => None,
            Expiry::Seconds(seconds) => Some(duration(seconds)?.saturating_add(GRACE)),
            Expiry::Default => Some(UNTIL_RENEWED),
        },
    })
}

/// The lease in a runtime for a sandbox that expires at that time.
pub(crate) fn lease(expires_at: Option<i64>, now_ms: i64) -> Option<Duration> {
    let left = u64::try_from(expires_at? - now_ms).unwrap_or(0);
    Some(Duration::from_millis(left) + GRACE)
}
