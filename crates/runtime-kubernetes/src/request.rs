//! What a request may ask of a pod, and what is reported of its isolation.

use stockade_core::runtime::{Capability, RuntimeName, Support};
use stockade_core::sandbox::{LimitName, Root, User};
use stockade_core::{Enforcement, Isolation, Level, LimitReport, SandboxSpec, WallReport};
use stockade_runtime::{Error, Result, Unsupported};

use crate::copies;
use crate::objects::{ORDINARY, Plan};
use crate::options::Options;

/// The walls that the objects of a pod request, by the names of all runtimes.
const WALLS: [&str; 6] = ["pid", "root", NETWORK, "capabilities", "no_new_privs", "seccomp"];
const NETWORK: &str = "network";
/// What a network policy depends on.
const PLUGIN: &str = "it is a network policy, which the network plugin of the cluster must enforce";
const OF_THE_CLUSTER: &str = "the cluster makes the walls, and this server cannot prove them";

/// The reason why pods do not have a capability; `None` if they do.
pub(crate) const fn missing(capability: Capability) -> Option<&'static str> {
    match RuntimeName::Kubernetes.declares(capability) {
        Support::No(reason) => Some(reason),
        Support::Yes | Support::Conditional(_) => None,
    }
}

/// The refusal of a capability that pods do not have.
pub(crate) fn refused(capability: Capability) -> Error {
    let reason = missing(capability).unwrap_or("it is not supported here").to_owned();
    (capability, Unsupported { reason, remedy: Some("--runtime native".to_owned()) }).into()
}

/// Refuses what cannot be requested.
pub(crate) fn check(spec: &SandboxSpec) -> Result<()> {
    let requested = [
        (matches!(spec.root, Root::Host), Capability::HostRoot),
        (spec.private_base, Capability::PrivateBase),
        (!spec.volumes.is_empty() || !spec.caches.is_empty(), Capability::Volumes),
        (!spec.access.is_empty(), Capability::AccessRules),
        (spec.network.is_some(), Capability::Egress),
        (matches!(spec.root, Root::Snapshot(_)), Capability::Snapshot),
        (!spec.groups.is_empty() || spec.sudo, Capability::Users),
        (spec.ssh_agent, Capability::SshAgent),
    ];
    if let Some((_, capability)) = requested.iter().find(|(requested, _)| *requested) {
        return Err(refused(*capability));
    }
    if matches!(spec.root, Root::Directory(_)) {
        let text = "a pod starts from an image, and not from a directory of this host";
        return Err(Error::Invalid(text.to_owned()));
    }
    if spec.user.is_some_and(|user| user.user == 0 || user.group == 0) {
        return Err(Error::Invalid("a pod does not run as root: name another user".to_owned()));
    }
    for (limit, capability) in
        [(LimitName::Processes, Capability::ProcessLimit), (LimitName::Disk, Capability::DiskLimit)]
    {
        if let (true, Some(reason)) = (is_requested(spec, limit), missing(capability))
            && !spec.best_effort.contains(&limit.into())
        {
            return Err(Error::Limit {
                limit,
                reason: reason.to_owned(),
                remedy: format!("--best-effort {limit}"),
            });
        }
    }
    if spec.limits.shm_bytes.is_some() {
        let text = "the size of the shared memory of a pod cannot be chosen";
        return Err(Error::Invalid(text.to_owned()));
    }
    if spec.limits.memory_bytes == Some(0) || spec.limits.cpu_millis == Some(0) {
        return Err(Error::Invalid("a limit of a pod cannot be 0".to_owned()));
    }
    Ok(())
}

const fn is_requested(spec: &SandboxSpec, limit: LimitName) -> bool {
    match limit {
        LimitName::Memory => spec.limits.memory_bytes.is_some(),
        LimitName::Cpus => spec.limits.cpu_millis.is_some(),
        LimitName::Processes => spec.limits.processes.is_some(),
        LimitName::Disk => spec.limits.disk_bytes.is_some(),
    }
}

/// What the pod of a request is made from.
pub(crate) fn plan(spec: &SandboxSpec, options: &Options, own_image: String) -> Result<Plan> {
    let Root::Image(image) = &spec.root else { return Err(refused(Capability::HostRoot)) };
    Ok(Plan {
        image: image.clone(),
        own_image,
        user: user(spec),
        limits: spec.limits,
        runtime_class: options.runtime_class.clone(),
        lifetime_seconds: options.lifetime.as_secs(),
        copies: copies::directories(spec)?,
    })
}

pub(crate) fn user(spec: &SandboxSpec) -> User {
    spec.user.unwrap_or(ORDINARY)
}

/// What the keeper of the pod is asked for: limits are for the cluster to enforce, and files of this host are
/// copied when it runs.
pub(crate) fn inside(spec: &SandboxSpec) -> SandboxSpec {
    SandboxSpec { user: Some(user(spec)), workspace: None, mounts: Vec::new(), ..spec.clone() }
}

/// The isolation of a pod, as far as its objects request it: the kubelet puts it in force.
pub(crate) fn isolation(spec: &SandboxSpec, runtime_class: Option<&str>) -> Isolation {
    let limit = |limit: LimitName| {
        let is_enforced = matches!(limit, LimitName::Memory | LimitName::Cpus);
        LimitReport {
            name: limit.as_str().into(),
            enforcement: if is_enforced { Enforcement::Enforced } else { Enforcement::Refused },
            by: if is_enforced { "the kubelet" } else { "pods have no such limit" }.to_owned(),
        }
    };
    let all = [LimitName::Memory, LimitName::Cpus, LimitName::Processes, LimitName::Disk];
    let limits: Vec<_> =
        all.into_iter().filter(|name| is_requested(spec, *name)).map(limit).collect();
    let wall = |name: &'static str| WallReport {
        name: name.into(),
        raised: true,
        reason: (name == NETWORK).then(|| PLUGIN.to_owned()),
    };
    let class = runtime_class.map(|class| format!("the runtime class `{class}` isolates the pod"));
    let reasons = [format!("{NETWORK}: {PLUGIN}"), OF_THE_CLUSTER.to_owned()];
    Isolation {
        level: Level::Reduced,
        walls: WALLS.map(wall).into(),
        limits,
        reasons: reasons.into_iter().chain(class).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> SandboxSpec {
        SandboxSpec { root: Root::Image("debian:13".to_owned()), ..SandboxSpec::default() }
    }

    #[test]
    fn what_a_pod_cannot_have_is_refused_by_name() {
        check(&spec()).unwrap();
        let host = SandboxSpec { root: Root::Host, ..spec() };
        assert!(matches!(
            check(&host).unwrap_err(),
            Error::Unsupported { capability: Capability::HostRoot, .. }
        ));
        let root = SandboxSpec { user: Some(User { user: 0, group: 0 }), ..spec() };
        assert!(matches!(check(&root).unwrap_err(), Error::Invalid(_)));
        let mut few = spec();
        few.limits.processes = Some(10);
        assert!(matches!(
            check(&few).unwrap_err(),
            Error::Limit { limit: LimitName::Processes, .. }
        ));
        few.best_effort.insert(LimitName::Processes.into());
        check(&few).unwrap();
        let reported = isolation(&few, None);
        assert_eq!(reported.limits[0].enforcement, Enforcement::Refused);
    }
}
