//! Making and removing the objects of a sandbox, and listing those that exist. A failure on the way leaves nothing
//! that its labels do not find.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use stockade_core::runtime::Capability;
use stockade_core::sandbox::{LimitChange, LimitName, Limits};
use stockade_core::{SandboxId, SandboxSpec};
use stockade_pod::Request;
use stockade_runtime::{Error, Result, State, Status};

use crate::client::{Kubernetes, Opened};
use crate::cluster::Kind;
use crate::failure::Failure;
use crate::names::{INSTALLATION, Names};
use crate::objects::{self, Identity};
use crate::observed::{Obstacle, Phase, Pod, now_ms};
use crate::request;

/// How long a pod may take to start, with its images.
const START: Duration = Duration::from_secs(180);
/// How long a pod may take to be removed.
const REMOVAL: Duration = Duration::from_secs(60);
/// How long to wait for news of the watch before the API server is asked.
const NEWS: Duration = Duration::from_millis(500);
/// How much longer than its lease a sandbox lives in the cluster: its files are collected in that time.
const AFTER_LEASE: Duration = Duration::from_secs(3600);
/// How many pods are asked at once.
const AT_ONCE: usize = 8;

impl Kubernetes {
    /// Creates a sandbox, or finds it.
    pub(crate) async fn make(&self, id: &SandboxId, spec: &SandboxSpec) -> Result<Status> {
        request::check(spec)?;
        let opened = self.opened().await?;
        let own_image = self.own_image()?;
        let plan = request::plan(spec, self.options(), own_image)?;
        let is_new = match self.current_pod(opened, id).await {
            Ok(Pod { phase: Phase::Ended(..), .. }) => return self.state(id).await,
            Ok(_) => false,
            Err(Error::NoSandbox(_)) => {
                let made = self.make_objects(opened, id, spec, objects::pod_spec(&plan)).await;
                match made {
                    Ok(is_new) => is_new,
                    Err(error) => {
                        // The first error is reported; what stays is found by its labels.
                        let _ = self.remove(opened, id).await;
                        return Err(error);
                    }
                }
            }
            Err(error) => return Err(error),
        };
        if is_new {
            // What is known of a pod that the cluster has lost is not true of this one.
            self.forget_copies(id)?;
        }
        let started = self.start(opened, id, spec).await;
        match started {
            // Another request has started it.
            Err(error @ Error::Conflict(_)) => Err(error),
            Err(error) if is_new => {
                let _ = self.remove(opened, id).await;
                let _ = self.forget_copies(id);
                Err(error)
            }
            other => other,
        }
    }

    async fn start(&self, opened: &Opened, id: &SandboxId, spec: &SandboxSpec) -> Result<Status> {
        let pod = self.wait_until_running(opened, id).await?;
        let start = Request::Start {
            spec: Box::new(request::inside(spec)),
            isolation: Box::new(request::isolation(spec, self.options().runtime_class.as_deref())),
        };
        let status: Status = self.ask(id, &start).await?;
        self.copy_all(id, spec).await?;
        Ok(localized(status, &pod))
    }

    /// Creates the objects of a sandbox; whether they are new.
    async fn make_objects(
        &self,
        opened: &Opened,
        id: &SandboxId,
        spec: &SandboxSpec,
        pod: Value,
    ) -> Result<bool> {
        let failed = |failure: Failure| failure.into_error("create the pod");
        let agents = opened.agents().await.map_err(failed)?;
        let (cluster, names) = (&opened.cluster, &opened.names);
        let namespace = names.namespace(&spec.labels);
        self.make_namespace(opened, &namespace).await?;
        let created_ms = now_ms();
        let identity = Identity { names, id, labels: &spec.labels, created_ms };
        let shutdown = self.shutdown(created_ms, spec.lease);
        let (kind, object) = match (agents.extensions && self.options().warm > 0, agents.sandbox) {
            (true, _) => {
                let shared = Names::shared(&pod);
                let template = objects::template(names, &shared, pod);
                let made = cluster.create(Kind::Template, Some(&namespace), &template);
                made.await.map_err(failed)?;
                let pool = objects::warm_pool(names, &shared, self.options().warm);
                cluster.create(Kind::WarmPool, Some(&namespace), &pool).await.map_err(failed)?;
                (Kind::Claim, objects::claim(&identity, &shared, &shutdown))
            }
            (false, true) => (Kind::Sandbox, objects::sandbox(&identity, pod, &shutdown)),
            (false, false) => (Kind::Pod, objects::pod(&identity, pod)),
        };
        let created = cluster.create(kind, Some(&namespace), &object).await;
        let (found, is_new) = created.map_err(failed)?;
        is_ours(names, &found)?;
        Ok(is_new)
    }

    /// Makes the namespace of an owner, with the policy that denies every connection.
    async fn make_namespace(&self, opened: &Opened, name: &str) -> Result<()> {
        let failed = |failure: Failure| failure.into_error("create the namespace");
        let (cluster, names) = (&opened.cluster, &opened.names);
        let namespace = objects::namespace(names, name);
        let (found, _) = cluster.create(Kind::Namespace, None, &namespace).await.map_err(failed)?;
        is_ours(names, &found)?;
        let policy = objects::network_policy(names);
        let made = cluster.create(Kind::NetworkPolicy, Some(name), &policy).await;
        let (found, is_new) = made.map_err(failed)?;
        is_ours(names, &found)?;
        let is_empty = |rules: &Value| rules.as_array().is_none_or(Vec::is_empty);
        let spec = &found.data["spec"];
        let is_closed = is_empty(&spec["ingress"])
            && is_empty(&spec["egress"])
            && spec["policyTypes"] == policy["spec"]["policyTypes"]
            && spec["podSelector"].as_object().is_none_or(serde_json::Map::is_empty);
        if is_new || is_closed {
            return Ok(());
        }
        let text = format!("the network policy of the namespace {name} allows connections");
        Err(Error::Wall { wall: "network".to_owned(), reason: text })
    }

    async fn wait_until_running(&self, opened: &Opened, id: &SandboxId) -> Result<Pod> {
        let end = tokio::time::Instant::now() + START;
        let mut obstacle = None;
        loop {
            let pod = match self.pod(id).await {
                Ok(pod) => Some(pod),
                // A controller has not made it yet.
                Err(Error::NoSandbox(_)) => None,
                Err(error) => return Err(error),
            };
            match pod.map(|pod| (pod.phase.clone(), pod)) {
                Some((Phase::Running, pod)) => return Ok(pod),
                Some((Phase::Ended(_, reason), _)) => return Err(Error::Exhausted(reason)),
                Some((Phase::Waiting(Some(Obstacle::Image(text))), _)) => {
                    return Err(Error::Image(text));
                }
                Some((Phase::Waiting(Some(Obstacle::Container(text))), _)) => {
                    return Err(Error::Invalid(format!("the pod cannot be started: {text}")));
                }
                Some((Phase::Waiting(Some(Obstacle::Unschedulable(text))), _)) => {
                    obstacle = Some(text);
                }
                Some((Phase::Waiting(None), _)) | None => {}
            }
            if tokio::time::Instant::now() >= end {
                return Err(match obstacle {
                    Some(text) => Error::Exhausted(format!("no node takes the pod: {text}")),
                    None => Error::Deadline("start the pod"),
                });
            }
            opened.watch.news(NEWS).await;
        }
    }

    /// When the cluster ends a sandbox with this lease.
    fn shutdown(&self, created_ms: u64, lease: Option<Duration>) -> String {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let last = created_ms.saturating_add(millis(self.options().lifetime));
        let after = lease.map(|lease| {
            now_ms().saturating_add(millis(lease)).saturating_add(millis(AFTER_LEASE))
        });
        let seconds = after.map_or(last, |after| after.min(last)) / 1000;
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX).to_string()
    }

    /// Sets the lease: that of the keeper, and the end that the cluster enforces.
    pub(crate) async fn set_lease(&self, id: &SandboxId, lease: Option<Duration>) -> Result<()> {
        let () = self.ask(id, &Request::Renew { lease }).await?;
        let opened = self.opened().await?;
        let failed = |failure: Failure| failure.into_error("renew the lease");
        let agents = opened.agents().await.map_err(failed)?;
        let pod = self.pod(id).await?;
        let name = opened.names.object(id);
        let shutdown = self.shutdown(pod.created_ms, lease);
        let changes = [
            (agents.sandbox, Kind::Sandbox, json!({ "spec": { "shutdownTime": shutdown } })),
            (
                agents.extensions,
                Kind::Claim,
                json!({ "spec": { "lifecycle": { "shutdownTime": shutdown } } }),
            ),
        ];
        for (_, kind, change) in changes.iter().filter(|(is_served, ..)| *is_served) {
            let changed = opened.cluster.patch(*kind, &pod.namespace, &name, change).await;
            changed.map_err(failed)?;
        }
        Ok(())
    }

    /// Changes the limits of a running pod, and what its keeper knows of them.
    pub(crate) async fn resize(&self, id: &SandboxId, change: &LimitChange) -> Result<()> {
        let status = self.state(id).await?;
        if status.state == State::Ended {
            let (id, state) = (id.clone(), status.state);
            return Err(Error::WrongState { id, state, operation: "change" });
        }
        let (opened, pod) = (self.opened().await?, self.pod(id).await?);
        let refused = |limit, reason: String| Error::Limit {
            limit,
            reason,
            remedy: "create another sandbox".to_owned(),
        };
        if let (Some(_), Some(reason)) =
            (change.processes, request::missing(Capability::ProcessLimit))
        {
            return Err(refused(LimitName::Processes, reason.to_owned()));
        }
        if let Some((limit, _)) = change.each().find(|(_, value)| *value == 0) {
            return Err(refused(limit, "a limit of a pod cannot be 0".to_owned()));
        }
        let Some((limit, _)) = change.each().next() else { return Ok(()) };
        let resources = objects::resize(&Limits::default().with(change));
        match opened.cluster.resize(&pod.namespace, &pod.name, &resources).await {
            Ok(()) => self.ask(id, &Request::ChangeLimits { change: *change }).await,
            Err(failure) if matches!(failure.code(), Some(404 | 405)) => {
                let reason = "the cluster cannot change the limits of a running pod".to_owned();
                Err(refused(limit, reason))
            }
            Err(failure) => Err(failure.into_error("change the limits")),
        }
    }

    /// Removes the objects of a sandbox, and returns when its pod is gone.
    pub(crate) async fn remove(&self, opened: &Opened, id: &SandboxId) -> Result<()> {
        let failed = |failure: Failure| failure.into_error("remove the pod");
        let selector = opened.names.one(id);
        let agents = opened.agents().await.map_err(failed)?;
        let kinds =
            [(agents.extensions, Kind::Claim), (agents.sandbox, Kind::Sandbox), (true, Kind::Pod)];
        let end = tokio::time::Instant::now() + REMOVAL;
        loop {
            let mut left = false;
            for (_, kind) in kinds.iter().filter(|(is_served, _)| *is_served) {
                let listed = opened.cluster.list(*kind, None, &selector).await;
                for object in listed.map_err(failed)? {
                    left = true;
                    let (Some(namespace), Some(name)) =
                        (object.metadata.namespace, object.metadata.name)
                    else {
                        continue;
                    };
                    let is_asked = object.metadata.deletion_timestamp.is_some();
                    if !is_asked || *kind == Kind::Pod {
                        let deleted = opened.cluster.delete(*kind, &namespace, &name).await;
                        deleted.map_err(failed)?;
                    }
                }
            }
            if !left {
                opened.watch.forget(id);
                return Ok(());
            }
            if tokio::time::Instant::now() >= end {
                return Err(Error::Deadline("remove the pod"));
            }
            opened.watch.news(NEWS / 5).await;
        }
    }

    /// The status of a sandbox: as the keeper says, or as its pod does.
    pub(crate) async fn state(&self, id: &SandboxId) -> Result<Status> {
        let pod = self.pod(id).await?;
        if pod.phase != Phase::Running {
            return Ok(pod.status());
        }
        match self.ask::<Status>(id, &Request::Inspect).await {
            Ok(status) => Ok(localized(status, &pod)),
            Err(Error::NoSandbox(_) | Error::WrongState { .. } | Error::OutcomeUnknown(_)) => {
                let pod = self.current_pod(self.opened().await?, id).await?;
                Ok(unstarted(&pod))
            }
            Err(error) => Err(error),
        }
    }

    /// The sandboxes with these labels.
    pub(crate) async fn all(&self, labels: &BTreeMap<String, String>) -> Result<Vec<Status>> {
        let opened = self.opened().await?;
        let listed = opened.list(&opened.names.all()).await;
        let pods = listed.map_err(|failure| failure.into_error("list the pods"))?;
        let has_all =
            |pod: &Pod| labels.iter().all(|(name, value)| pod.labels.get(name) == Some(value));
        let states = pods.into_iter().filter(has_all).map(|pod| async move {
            match self.state(&pod.id).await {
                Ok(status) => Some(status),
                Err(Error::NoSandbox(_)) => None,
                // A pod that does not answer exists.
                Err(_) => Some(pod.status()),
            }
        });
        let states = futures_util::stream::iter(states).buffer_unordered(AT_ONCE);
        let mut found: Vec<_> = states.filter_map(std::future::ready).collect().await;
        found.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(found)
    }
}

/// The status of a pod whose keeper has no sandbox yet.
fn unstarted(pod: &Pod) -> Status {
    let status = pod.status();
    let state = if status.state == State::Running { State::Creating } else { status.state };
    Status { state, ..status }
}

/// A status of the keeper under the names that callers know.
fn localized(status: Status, pod: &Pod) -> Status {
    Status {
        id: pod.id.clone(),
        labels: pod.labels.clone(),
        created_at_ms: pod.created_ms,
        ..status
    }
}

/// Refuses an object of our name that is not ours.
fn is_ours(names: &Names, object: &DynamicObject) -> Result<()> {
    let label = object.metadata.labels.as_ref().and_then(|labels| labels.get(INSTALLATION));
    if label == Some(&names.installation) {
        return Ok(());
    }
    let name = object.metadata.name.as_deref().unwrap_or_default();
    Err(Error::Conflict(format!("the object {name} of the cluster, which is not of this server,")))
}
