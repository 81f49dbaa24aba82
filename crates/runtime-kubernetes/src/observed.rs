//! What a pod of the API server says about its sandbox.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use kube::core::DynamicObject;
use serde_json::Value;
use stockade_core::{Isolation, Level, SandboxId};
use stockade_runtime::{EndCause, State, Status};

use crate::names::{CREATED, ID, LABELS};
use crate::objects::CONTAINER;

/// Reasons for which a container waits that do not pass by themselves.
const BAD_IMAGE: [&str; 4] =
    ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"];
const BAD_CONTAINER: [&str; 3] =
    ["CreateContainerConfigError", "CreateContainerError", "RunContainerError"];

/// A pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) id: SandboxId,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) created_ms: u64,
    pub(crate) phase: Phase,
}

/// How far a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is scheduled, or its images are pulled. The reason why it cannot be, if one is known.
    Waiting(Option<Obstacle>),
    /// Its container runs.
    Running,
    /// Its container has ended, or it is being removed: why, in words.
    Ended(EndCause, String),
}

/// Why a pod does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The image cannot be used.
    Image(String),
    /// The container cannot be started.
    Container(String),
    /// No node takes it now.
    Unschedulable(String),
}

impl Pod {
    /// Reads a pod; `None` for one that is not of a sandbox.
    pub(crate) fn read(object: &DynamicObject) -> Option<Self> {
        let metadata = &object.metadata;
        let annotation = |name: &str| metadata.annotations.as_ref()?.get(name);
        let id = SandboxId::new(annotation(ID)?.as_str()).ok()?;
        let labels = annotation(LABELS).and_then(|text| serde_json::from_str(text).ok());
        let created_ms = annotation(CREATED).and_then(|text| text.parse().ok());
        let phase = if metadata.deletion_timestamp.is_some() {
            Phase::Ended(EndCause::ProcessesLost, "its pod is being removed".to_owned())
        } else {
            phase(&object.data["status"])
        };
        Some(Self {
            namespace: metadata.namespace.clone()?,
            name: metadata.name.clone()?,
            id,
            labels: labels.unwrap_or_default(),
            created_ms: created_ms.unwrap_or_default(),
            phase,
        })
    }

    /// The status of its sandbox, where the keeper in the pod cannot be asked.
    pub(crate) fn status(&self) -> Status {
        let (state, ended) = match &self.phase {
            Phase::Waiting(_) => (State::Creating, None),
            Phase::Running => (State::Running, None),
            Phase::Ended(cause, reason) => (State::Ended, Some((*cause, reason.clone()))),
        };
        Status {
            id: self.id.clone(),
            state,
            reason: ended.as_ref().map(|(_, reason)| reason.clone()),
            end_cause: ended.map(|(cause, _)| cause),
            labels: self.labels.clone(),
            created_at_ms: self.created_ms,
            lease_left: None,
            isolation: Isolation {
                level: Level::Reduced,
                walls: Vec::new(),
                limits: Vec::new(),
                reasons: vec!["the pod does not run, so it cannot be asked".to_owned()],
            },
            execs: Vec::new(),
        }
    }
}

fn phase(status: &Value) -> Phase {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let containers = |kind: &str| status[kind].as_array().cloned().unwrap_or_default();
    match status["phase"].as_str() {
        Some("Running") => {
            let own = containers("containerStatuses");
            let own = own.iter().find(|container| container["name"] == CONTAINER);
            let is_running = own.is_some_and(|own| own["state"].get("running").is_some());
            if is_running { Phase::Running } else { Phase::Waiting(None) }
        }
        Some(ended @ ("Succeeded" | "Failed")) => {
            let reason = text(&status["reason"]);
            let of_container = containers("containerStatuses");
            let of_container = of_container.iter().find_map(|container| {
                container["state"]["terminated"]["reason"].as_str().map(str::to_owned)
            });
            let cause = match reason.as_str() {
                "DeadlineExceeded" => EndCause::LeaseExpired,
                "NodeShutdown" | "Shutdown" | "NodeLost" => EndCause::HostRestarted,
                _ => EndCause::ProcessesLost,
            };
            let why = Some(reason).filter(|reason| !reason.is_empty()).or(of_container);
            Phase::Ended(cause, format!("its pod has ended: {}", why.as_deref().unwrap_or(ended)))
        }
        _ => Phase::Waiting(obstacle(status)),
    }
}

fn obstacle(status: &Value) -> Option<Obstacle> {
    let message = |of: &Value| {
        let (reason, message) = (of["reason"].as_str()?, of["message"].as_str());
        Some(message.map_or_else(|| reason.to_owned(), |text| format!("{reason}: {text}")))
    };
    for kind in ["initContainerStatuses", "containerStatuses"] {
        for container in status[kind].as_array().into_iter().flatten() {
            let waiting = &container["state"]["waiting"];
            let reason = waiting["reason"].as_str().unwrap_or_default();
            if BAD_IMAGE.contains(&reason) {
                return message(waiting).map(Obstacle::Image);
            }
            if BAD_CONTAINER.contains(&reason) {
                return message(waiting).map(Obstacle::Container);
            }
        }
    }
    let conditions = status["conditions"].as_array()?;
    let unscheduled = conditions.iter().find(|one| {
        one["type"] == "PodScheduled"
            && one["status"] == "False"
            && one["reason"] == "Unschedulable"
    });
    unscheduled.and_then(message).map(Obstacle::Unschedulable)
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_runs_when_its_container_does() {
        let container = |state: Value| {
            json!({ "phase": "Running",
                "containerStatuses": [{ "name": CONTAINER, "state": state }] })
        };
        assert_eq!(phase(&container(json!({ "running": {} }))), Phase::Running);
        assert_eq!(phase(&container(json!({ "waiting": {} }))), Phase::Waiting(None));
        assert_eq!(phase(&json!({})), Phase::Waiting(None));
    }

    #[test]
    fn it_is_told_why_a_pod_does_not_start() {
        let waiting = |reason: &str| {
            json!({ "phase": "Pending", "initContainerStatuses": [
                { "name": "install", "state": { "waiting": { "reason": reason } } }] })
        };
        let bad = Obstacle::Image("ErrImagePull".to_owned());
        assert_eq!(phase(&waiting("ErrImagePull")), Phase::Waiting(Some(bad)));
        assert_eq!(phase(&waiting("PodInitializing")), Phase::Waiting(None));
        let unscheduled = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled",
            "status": "False", "reason": "Unschedulable", "message": "0/3 nodes" }] });
        let full = Obstacle::Unschedulable("Unschedulable: 0/3 nodes".to_owned());
        assert_eq!(phase(&unscheduled), Phase::Waiting(Some(full)));
    }

    #[test]
    fn it_is_told_why_a_pod_has_ended() {
        let ended = |status: Value| match phase(&status) {
            Phase::Ended(cause, reason) => (cause, reason),
            other => panic!("{other:?}"),
        };
        let late = ended(json!({ "phase": "Failed", "reason": "DeadlineExceeded" }));
        assert_eq!(late.0, EndCause::LeaseExpired);
        let killed = ended(json!({ "phase": "Failed", "containerStatuses": [
            { "name": CONTAINER, "state": { "terminated": { "reason": "OOMKilled" } } }] }));
        assert_eq!(killed.0, EndCause::ProcessesLost);
        assert!(killed.1.contains("OOMKilled"));
    }
}
