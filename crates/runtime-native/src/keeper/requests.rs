//! The handling of each client request.

use std::collections::BTreeMap;

use stockade_core::sandbox::Root;
use stockade_core::{SandboxId, SandboxSpec};
use stockade_jail::cgroup;
use stockade_plan::Users;
use stockade_plan::wipe::wipe_all;

use super::client::Phase;
use super::context::Reply;
use super::launch::CreateRequest;
use super::record::{self, Environment};
use super::sandbox::PendingCommand;
use super::sandbox::{Lifecycle, Sandbox};
use super::usage::STARTER;
use super::{ClientId, Keeper, Key};
use crate::bubblewrap::{self, Launcher};
use crate::input_file::InputFile;
use crate::socket::Message;
use crate::wire::{Answer, CommandStrings, Failure, Layers, Metrics, PROTOCOL, Request};
use stockade_runtime::{Capability, Status};

impl Keeper {
    /// Handles a client's request, or starts to.
    pub(super) fn request(&mut self, id: ClientId, message: Message<Request>) {
        let Message { head, body, mut descriptors } = message;
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.phase = Phase::Waiting(None);
        let result = match head {
            Request::Hello { protocol } => {
                client.greeted = protocol == PROTOCOL;
                let version = env!("CARGO_PKG_VERSION").to_owned();
                let process = std::process::id();
                self.done(id, Answer::Hello { protocol: PROTOCOL, version, process })
            }
            Request::Drain => {
                self.context.log("another version takes over");
                self.draining = true;
                self.done(id, Answer::Done)
            }
            // A client of another version, or without a greeting, may not send any other request.
            _ if !client.greeted => {
                self.disconnect(id);
                return;
            }
            Request::Create { id: name, spec, layers, subordinate, container } => {
                let request = CreateRequest {
                    id: Some(name),
                    spec: *spec,
                    layers,
                    subordinate,
                    lock: descriptors.pop(),
                    container,
                };
                self.create(id, request)
            }
            Request::Destroy { id: name } => self.destroy(id, &name),
            Request::Inspect { id: name } => self.inspect(id, &name),
            Request::List { labels } => {
                let list = self.list(&labels);
                self.done(id, Answer::List(list))
            }
            Request::Renew { id: name, lease } => self.on(&name, |sandbox, context| {
                sandbox.renew(context, lease)?;
                context.answer(id, Answer::Done);
                Ok(())
            }),
            Request::End { id: name } => self.on(&name, |sandbox, context| {
                sandbox.end(context, id);
                Ok(())
            }),
            Request::ChangeLimits { id: name, change } => self.on(&name, |sandbox, context| {
                sandbox.change_limits(context, &change)?;
                context.answer(id, Answer::Done);
                Ok(())
            }),
            Request::Pause { id: name } => {
                self.on(&name, |sandbox, context| sandbox.pause(context, id))
            }
            Request::Resume { id: name } => self.on(&name, |sandbox, context| {
                sandbox.resume(context)?;
                context.answer(id, Answer::Done);
                Ok(())
            }),
            Request::Hold { id: name } => {
                let key = self.by_id.get(&name).copied();
                if let Some(client) = self.clients.get_mut(&id) {
                    client.phase = Phase::Waiting(key);
                }
                self.on(&name, |sandbox, context| sandbox.hold_paused(context, id))
            }
            Request::Execute { id: name, exec, command } => {
                let words = CommandStrings::decode(&body);
                wipe_all([body]);
                match words {
                    Some(words) => self.on(&name, |sandbox, context| {
                        let head = *command;
                        let given = InputFile::receive(&head, descriptors.pop())?;
                        sandbox.execute(
                            context,
                            PendingCommand { client: id, exec, head, words, input: given },
                        );
                        Ok(())
                    }),
                    None => Err(Failure::Invalid("the command's arguments are invalid".to_owned())),
                }
            }
            Request::Attach { id: name, exec, from } => self.on(&name, |sandbox, context| {
                let key = sandbox.key;
                let command = sandbox.command(&exec)?;
                let (number, input) = (command.number, command.input_for_client());
                let reply = Reply::Attached { sandbox: key, number, from, input };
                context.replies.push_back((id, reply));
                Ok(())
            }),
            Request::Command { id: name, exec, action } => {
                self.on(&name, |sandbox, context| sandbox.act(context, id, &exec, action))
            }
            Request::Connect { id: name, target } => {
                self.on(&name, |sandbox, context| sandbox.connect(context, id, target, body))
            }
            Request::Listeners { id: name } => {
                self.on(&name, |sandbox, context| sandbox.hand_out_listeners(context, id))
            }
            Request::Trusted { id: name } => {
                self.on(&name, |sandbox, context| sandbox.hand_out_trusted(context, id))
            }
            Request::Root { id: name } => {
                self.on(&name, |sandbox, context| sandbox.root(context, id))
            }
            Request::Supports { capability } if capability == Capability::Egress.as_str() => {
                self.prove_network(id)
            }
            Request::Supports { capability } => {
                let answer = self.supports(&capability);
                answer.and_then(|()| self.done(id, Answer::Done))
            }
            Request::Metrics => {
                let metrics = self.metrics();
                self.done(id, Answer::Metrics(metrics))
            }
        };
        if let Err(failure) = result {
            self.context.refuse(id, failure);
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "every request ends in the same way")]
    fn done(&mut self, id: ClientId, answer: Answer) -> Result<(), Failure> {
        self.context.answer(id, answer);
        Ok(())
    }

    /// Runs a function on a sandbox that exists.
    fn on(
        &mut self,
        id: &SandboxId,
        operation: impl FnOnce(&mut Sandbox, &mut super::context::Context) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let key = *self.by_id.get(id).ok_or(Failure::NoSandbox)?;
        self.with(key, operation).unwrap_or(Err(Failure::NoSandbox))
    }

    fn create(&mut self, client: ClientId, request: CreateRequest) -> Result<(), Failure> {
        let Some(id) = request.id.clone() else { return Err(Failure::NoSandbox) };
        if self.by_id.contains_key(&id) {
            return self.on(&id, |sandbox, context| {
                if !is_the_same(sandbox, request.spec) {
                    return Err(Failure::Conflict(format!("the sandbox {id}")));
                }
                match (&sandbox.life, sandbox.status()) {
                    (Lifecycle::Launching(_) | Lifecycle::Connecting(_), _) => {
                        sandbox.creators.push(client);
                    }
                    (_, Some(status)) => context.answer(client, Answer::Status(Box::new(status))),
                    (_, None) => return Err(Failure::NoSandbox),
                }
                Ok(())
            });
        }
        if self.draining {
            return Err(Failure::Draining);
        }
        if request.container.is_none()
            && !request.subordinate
            && is_served_by_pool(&request.spec, request.layers.as_ref(), self.context.users)
            && let Some(key) = self.take_from_pool()
        {
            self.refill_later();
            return self.create_from_pool(client, key, &id, request.spec);
        }
        self.context.metrics.pool_misses += 1;
        let key = self.next_key();
        let mut sandbox = Sandbox::create(&mut self.context, key, request)?;
        sandbox.creators.push(client);
        self.by_id.insert(id, key);
        self.sandboxes.insert(key, sandbox);
        Ok(())
    }

    fn create_from_pool(
        &mut self,
        client: ClientId,
        key: Key,
        id: &SandboxId,
        spec: SandboxSpec,
    ) -> Result<(), Failure> {
        let became = self.with(key, |sandbox, context| {
            let became = sandbox.claim(context, id, spec);
            match (&became, sandbox.status()) {
                (Ok(()), Some(status)) => {
                    context.metrics.pool_hits += 1;
                    context.answer(client, Answer::Status(Box::new(status)));
                }
                // The sandbox may be partly converted.
                _ => sandbox.destroy(context, None),
            }
            became
        });
        let became = became.unwrap_or(Err(Failure::NoSandbox));
        if became.is_ok() {
            self.by_id.insert(id.clone(), key);
        }
        became
    }

    fn destroy(&mut self, client: ClientId, id: &SandboxId) -> Result<(), Failure> {
        // Its id is free immediately.
        match self.by_id.remove(id) {
            None => self.done(client, Answer::Done),
            Some(key) => {
                self.with(key, |sandbox, context| sandbox.destroy(context, Some(client)));
                Ok(())
            }
        }
    }

    fn inspect(&mut self, client: ClientId, id: &SandboxId) -> Result<(), Failure> {
        let key = self.by_id.get(id).ok_or(Failure::NoSandbox)?;
        let status = self.sandboxes.get(key).and_then(Sandbox::status);
        let status = status.ok_or(Failure::NoSandbox)?;
        self.done(client, Answer::Status(Box::new(status)))
    }

    fn list(&self, labels: &BTreeMap<String, String>) -> Vec<Status> {
        let fits = |status: &Status| {
            labels.iter().all(|(name, value)| status.labels.get(name) == Some(value))
        };
        let known = self.by_id.values().filter_map(|key| self.sandboxes.get(key)?.status());
        known.filter(fits).collect()
    }

    fn metrics(&self) -> Metrics {
        Metrics {
            sandboxes: self.by_id.len() as u64,
            pool_ready: self.pool.ready() as u64,
            pool_filling: u64::from(self.pool.is_filling()),
            ..self.context.metrics
        }
    }

    /// Whether a capability is available here.
    fn supports(&self, capability: &str) -> Result<(), Failure> {
        let found = Capability::ALL.into_iter().find(|known| known.as_str() == capability);
        let Some(found) = found else {
            return Err(Failure::Unsupported {
                capability: capability.to_owned(),
                reason: "this keeper does not know it".to_owned(),
                remedy: None,
            });
        };
        let unsupported = |reason: String, remedy| {
            Err(Failure::Unsupported { capability: capability.to_owned(), reason, remedy })
        };
        let limits = match found {
            Capability::Users if self.context.launcher == Launcher::Bubblewrap => {
                let remedy = Some("--runtime native".to_owned());
                return unsupported(bubblewrap::ONE_USER.to_owned(), remedy);
            }
            Capability::Users if self.context.users != Users::Range => {
                let reason = "only root can give a sandbox several users".to_owned();
                return unsupported(reason, Some("sudo".to_owned()));
            }
            Capability::Checkpoint => {
                return unsupported("it does not store the memory of processes".to_owned(), None);
            }
            Capability::MemoryLimit => {
                cgroup::Limits { memory_bytes: Some(64 << 20), ..cgroup::Limits::default() }
            }
            Capability::CpuLimit => {
                cgroup::Limits { cpu_millis: Some(1000), ..cgroup::Limits::default() }
            }
            _ => return Ok(()),
        };
        match self.context.parent_group.create(&cgroup::fresh_name(), &limits) {
            Ok(mut group) => {
                // No process was in it.
                let _ = group.try_remove();
                Ok(())
            }
            Err(unavailable) => {
                let refusal = unavailable.refusals.into_iter().next();
                let (reason, remedy) = refusal
                    .map_or_else(Default::default, |r| (r.reason, r.remedy.text_for(STARTER)));
                unsupported(reason, Some(remedy))
            }
        }
    }
}

/// Whether a jail of the pool can serve this request.
fn is_served_by_pool(spec: &SandboxSpec, layers: Option<&Layers>, users: Users) -> bool {
    // Each field is named, so that a new one is not forgotten: a jail of the pool would ignore it.
    let SandboxSpec {
        root,
        private_base,
        workspace,
        // No sandbox of this host is one.
        remote_workspace: _,
        server: _,
        mounts,
        // It says something about the workspace and the mounts only.
        exact_paths: _,
        volumes,
        caches,
        environment: _,
        user,
        groups,
        working_directory: _,
        limits,
        best_effort: _,
        access,
        network,
        ssh_agent,
        labels: _,
        lease: _,
        // It is part of the request for each command.
        sudo: _,
    } = spec;
    // The jails of the pool have the host's own files.
    let has_own_files = *private_base || *ssh_agent;
    let unlimited = limits.memory_bytes.or(limits.cpu_millis).or(limits.processes);
    *root == Root::Host
        && !has_own_files
        && layers.is_none()
        && workspace.is_none()
        && mounts.is_empty()
        && volumes.is_empty()
        && caches.is_empty()
        && access.is_empty()
        && network.is_none()
        && user.is_none_or(|user| user == users.ordinary())
        && groups.is_empty()
        && unlimited.or(limits.disk_bytes).or(limits.shm_bytes).is_none()
}

/// Whether a sandbox was created with the same specification.
fn is_the_same(sandbox: &Sandbox, mut spec: SandboxSpec) -> bool {
    let environment = std::mem::take(&mut spec.environment);
    let known = if sandbox.record.has_environment {
        record::read_environment(sandbox.directory()).ok()
    } else {
        Some(Environment::new())
    };
    let same = spec == sandbox.record.spec && known.as_ref() == Some(&environment);
    [Some(environment), known].into_iter().flatten().for_each(record::wipe_environment);
    same
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use stockade_core::access::Rules;
    use stockade_core::network::Policy;
    use stockade_core::sandbox::{BestEffort, CacheMount, Limits, User, VolumeMount, Workspace};
    use stockade_core::{OwnerId, VolumeName};

    use super::*;

    #[test]
    fn the_pool_serves_only_what_it_holds() {
        let with = |change: &dyn Fn(&mut SandboxSpec)| {
            let mut spec = SandboxSpec::default();
            change(&mut spec);
            is_served_by_pool(&spec, None, Users::Range)
        };
        assert!(with(&|_| {}));
        assert!(with(&|spec| {
            spec.environment.insert("A".to_owned(), "b".into());
            spec.labels.insert("owner".to_owned(), "me".to_owned());
            spec.working_directory = Some("/tmp".into());
            spec.best_effort.insert(BestEffort::Memory);
            spec.user = Some(User { user: 1000, group: 1000 });
        }));
        let workspace = Workspace { host: "/a".into(), inside: "/b".into() };
        assert!(!with(&|spec| spec.workspace = Some(workspace.clone())));
        let (owner, name) = (OwnerId::from_uid(1), VolumeName::new("a").unwrap());
        let (inside, sub_path) = (PathBuf::from("/a"), None);
        let volume = VolumeMount {
            owner: owner.clone(),
            name: name.clone(),
            inside,
            writable: true,
            sub_path,
        };
        assert!(!with(&|spec| spec.volumes = vec![volume.clone()]));
        let cache = CacheMount { owner, name, project: None, inside: None };
        assert!(!with(&|spec| spec.caches = vec![cache.clone()]));
        assert!(!with(&|spec| spec.root = Root::Directory("/a".into())));
        assert!(!with(&|spec| spec.private_base = true));
        assert!(!with(&|spec| spec.ssh_agent = true));
        assert!(!with(&|spec| spec.groups = vec![4]));
        let rules = r#"[{"effect":"deny","level":"read","path":"/a"}]"#;
        assert!(!with(&|spec| spec.access = Rules::from_stored(rules)));
        assert!(!with(&|spec| spec.network = Some(Policy::default())));
        assert!(!with(&|spec| spec.user = Some(User { user: 7, group: 7 })));
        for limits in [
            Limits { memory_bytes: Some(1), ..Limits::default() },
            Limits { cpu_millis: Some(1), ..Limits::default() },
            Limits { processes: Some(1), ..Limits::default() },
            Limits { disk_bytes: Some(1), ..Limits::default() },
            Limits { shm_bytes: Some(1), ..Limits::default() },
        ] {
            assert!(!with(&|spec| spec.limits = limits));
        }
    }
}
