//! The choice of a sandbox's runtime, before anything of the sandbox is made. No runtime replaces
//! the requested one, unless the request names it as its fallback.

use std::sync::Arc;

use stockade_api::{CreateSandbox, Result};
use stockade_core::runtime::{Capability, RuntimeName, Support, Unselectable};
use stockade_core::sandbox::{BestEffort, ServerElsewhere};
use stockade_core::{Code, Problem};
use stockade_runtime::{Runtime, Unsupported};

use crate::inner::Inner;
use crate::spec;

/// The longest name of an unknown runtime that a message repeats.
const SHOWN_NAME_BYTES: usize = 64;

impl Inner {
    /// The runtime of a new sandbox: the requested one, or else the requested fallback.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for an unknown name, and for a request that the runtime can never
    /// grant; [`Code::Unsupported`] for a runtime that is not usable here.
    pub(crate) async fn select_runtime(&self, request: &CreateSandbox) -> Result<&'static str> {
        let requested = request.runtime.as_deref().unwrap_or(self.default_runtime);
        let fallback = request.fallback_runtime.as_deref();
        // A misspelt fallback is an error also where it is not needed.
        check_name(self, requested)?;
        fallback.map_or(Ok(()), |name| check_name(self, name))?;
        let refused = match self.usable_runtime(requested, request).await {
            Ok(runtime) => return Ok(runtime.name()),
            Err(problem) => problem,
        };
        let Some(fallback) = fallback else { return Err(refused) };
        match self.usable_runtime(fallback, request).await {
            Ok(runtime) => Ok(runtime.name()),
            Err(second) => {
                let cause = second.cause.clone().map(|cause| format!(": {cause}"));
                let message = format!(
                    "{}; and of the fallback: {}{}",
                    refused.message,
                    second.message,
                    cause.unwrap_or_default()
                );
                Err(Problem { message, ..refused })
            }
        }
    }

    /// The runtime of a name, if it is usable here and has what is requested.
    async fn usable_runtime(
        &self,
        name: &str,
        request: &CreateSandbox,
    ) -> Result<&Arc<dyn Runtime>> {
        let runtime = self.runtime_by_any_name(name)?;
        self.check_capabilities(name, runtime.name(), request)?;
        if let Some(server) = &request.server {
            return match self.reaches(&**runtime, server).await {
                Ok(()) => Ok(runtime),
                Err(Unsupported { reason, remedy }) => {
                    let message = format!("the server {} cannot be used", server.url);
                    let problem = Problem::new(Code::Unreachable, message).because(reason);
                    Err(problem.remedied_by(remedy.unwrap_or_default()))
                }
            };
        }
        if let Err(Unsupported { reason, remedy }) = runtime.configured() {
            let message = format!("the runtime `{name}` is not configured");
            let problem = Problem::new(Code::InvalidInput, message).because(reason);
            return Err(problem.remedied_by(remedy.unwrap_or_default()));
        }
        match self.available(&**runtime).await {
            Ok(()) => Ok(runtime),
            Err(Unsupported { reason, remedy }) => {
                let message = format!("the runtime `{name}` is not usable here");
                let problem = Problem::new(Code::Unsupported, message).because(reason);
                Err(match remedy {
                    Some(remedy) => problem.remedied_by(remedy),
                    None => problem,
                })
            }
        }
    }

    /// Whether a runtime is usable here, within the deadline.
    async fn available(&self, runtime: &dyn Runtime) -> std::result::Result<(), Unsupported> {
        let answer = tokio::time::timeout(self.options.deadline, runtime.available()).await;
        answer.unwrap_or_else(|_| {
            Err(Unsupported { reason: "it does not answer in time".to_owned(), remedy: None })
        })
    }

    /// Whether a runtime reaches a server elsewhere, within the deadline.
    async fn reaches(
        &self,
        runtime: &dyn Runtime,
        server: &ServerElsewhere,
    ) -> std::result::Result<(), Unsupported> {
        let answer = tokio::time::timeout(self.options.deadline, runtime.reaches(server)).await;
        answer.unwrap_or_else(|_| {
            Err(Unsupported { reason: "it does not answer in time".to_owned(), remedy: None })
        })
    }

    fn runtime_by_any_name(&self, name: &str) -> Result<&Arc<dyn Runtime>> {
        let own = match RuntimeName::select(name) {
            Ok(known) => known.as_str(),
            Err(Unselectable::NotSupported(reason)) => {
                let message = format!("the runtime `{name}` is not supported");
                return Err(
                    self.with_usable(Problem::new(Code::Unsupported, message).because(reason))
                );
            }
            // A runtime of tests has a name that no other program knows.
            Err(Unselectable::Unknown) => name,
        };
        self.runtimes.get(own).ok_or_else(|| {
            let message = format!("the runtime `{name}` is not part of this server");
            let mut problem = Problem::new(Code::Unsupported, message);
            if RuntimeName::select(own) == Ok(RuntimeName::Kubernetes) {
                problem = problem.because("it was built without the feature `kubernetes`");
            }
            self.with_usable(problem)
        })
    }

    fn with_usable(&self, problem: Problem) -> Problem {
        let known = self.runtimes.keys().copied().collect::<Vec<_>>().join(", ");
        problem.remedied_by(format!("use one of these runtimes: {known}"))
    }

    /// Refuses what a runtime declares that it never supports.
    fn check_capabilities(&self, name: &str, own: &str, request: &CreateSandbox) -> Result<()> {
        let Ok(runtime) = RuntimeName::select(own) else { return Ok(()) };
        if request.remote_workspace.is_some() && !runtime.has_remote_workspaces() {
            let message = format!("the runtime `{name}` does not support `remoteWorkspace`");
            let problem = Problem::new(Code::InvalidInput, message);
            return Err(problem.remedied_by("--runtime codeplane"));
        }
        let lacking = |runtime: RuntimeName| {
            required(request).into_iter().find_map(|(capability, property)| {
                match runtime.declares(capability) {
                    Support::No(reason) => Some((property, reason)),
                    Support::Yes | Support::Conditional(_) => None,
                }
            })
        };
        let Some((property, reason)) = lacking(runtime) else { return Ok(()) };
        let message = match property {
            MISSING_IMAGE => format!("the runtime `{name}` needs an image"),
            property => format!("the runtime `{name}` does not support `{property}`"),
        };
        let problem = Problem::new(Code::InvalidInput, message).because(reason);
        let other = RuntimeName::ALL
            .into_iter()
            .find(|other| self.runtimes.contains_key(other.as_str()) && lacking(*other).is_none());
        Err(match other {
            Some(other) => problem.remedied_by(format!("--runtime {other}")),
            None => problem,
        })
    }
}

/// Refuses a name that no runtime has.
fn check_name(inner: &Inner, name: &str) -> Result<()> {
    let is_known = RuntimeName::KNOWN.contains(&name) || inner.runtimes.contains_key(name);
    if is_known {
        return Ok(());
    }
    let shown: String = name.chars().take(SHOWN_NAME_BYTES).collect();
    let message = format!("there is no runtime {shown:?}");
    Err(inner.with_usable(Problem::new(Code::InvalidInput, message)))
}

/// Stands for an image that is missing in the request.
const MISSING_IMAGE: &str = "image missing";

/// The capabilities that a request needs, with the property that needs each.
fn required(request: &CreateSandbox) -> Vec<(Capability, &'static str)> {
    let limits = &request.limits;
    let is_required = |limit: Option<u64>, best_effort: BestEffort| {
        limit.is_some() && !request.best_effort.contains(&best_effort)
    };
    let is_host = request.image.as_deref().is_none_or(|image| image == "host");
    let is_snapshot = spec::snapshot(request).is_some();
    [
        (is_host, Capability::HostRoot, MISSING_IMAGE),
        (!is_host && !is_snapshot, Capability::Images, "image"),
        (is_snapshot, Capability::Snapshot, "image"),
        (request.private_base == Some(true), Capability::PrivateBase, "privateBase"),
        (!request.volumes.is_empty(), Capability::Volumes, "volumes"),
        (!request.caches.is_empty(), Capability::Volumes, "caches"),
        (request.workspace.is_some(), Capability::Workspace, "workspace"),
        (!request.mounts.is_empty(), Capability::HostMounts, "mounts"),
        (!request.access_rules.is_empty(), Capability::AccessRules, "accessRules"),
        (request.ssh_agent.is_some(), Capability::SshAgent, "sshAgent"),
        (request.network.is_some(), Capability::Egress, "network"),
        (!request.publish.is_empty(), Capability::Ports, "publish"),
        (
            is_required(limits.memory_bytes, BestEffort::Memory),
            Capability::MemoryLimit,
            "limits.memoryBytes",
        ),
        (
            is_required(limits.cpu_millis, BestEffort::Cpus),
            Capability::CpuLimit,
            "limits.cpuMillis",
        ),
        (
            is_required(limits.processes, BestEffort::Pids),
            Capability::ProcessLimit,
            "limits.processes",
        ),
        (
            is_required(limits.disk_bytes, BestEffort::Disk),
            Capability::DiskLimit,
            "limits.diskBytes",
        ),
    ]
    .into_iter()
    .filter_map(|(is_needed, capability, property)| is_needed.then_some((capability, property)))
    .collect()
}

#[cfg(test)]
mod tests {
    use stockade_core::sandbox::Limits;

    use super::*;

    #[test]
    fn a_request_needs_what_it_names_and_no_limit_of_best_effort() {
        let names = |request: &CreateSandbox| {
            required(request).into_iter().map(|(capability, _)| capability).collect::<Vec<_>>()
        };
        let plain = CreateSandbox::default();
        assert_eq!(names(&plain), [Capability::HostRoot]);
        let image = CreateSandbox { image: Some("node:20".to_owned()), ..plain.clone() };
        assert_eq!(names(&image), [Capability::Images]);
        let restored = CreateSandbox { image: Some("snapshot:s1".to_owned()), ..plain.clone() };
        assert_eq!(names(&restored), [Capability::Snapshot]);
        let private = CreateSandbox { private_base: Some(true), ..plain.clone() };
        assert_eq!(names(&private), [Capability::HostRoot, Capability::PrivateBase]);
        let limits = Limits { memory_bytes: Some(1), cpu_millis: Some(1), ..Limits::default() };
        let limited = CreateSandbox { limits, best_effort: [BestEffort::Cpus].into(), ..plain };
        assert_eq!(names(&limited), [Capability::HostRoot, Capability::MemoryLimit]);
    }
}
