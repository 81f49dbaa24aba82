//! The objects of a sandbox: pure functions from what is requested to what the API server gets.
//!
//! Nothing secret is in an object: whoever may read pods reads them. The environment of commands goes through exec
//! to the keeper of the pod.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stockade_core::SandboxId;
use stockade_core::sandbox::{Limits, User};
use stockade_pod::{ARGUMENT, FIRST, INSTALL, PROGRAM, PROGRAMS, VOLUME};

use crate::cluster::Kind;
use crate::names::{CREATED, ID, INSTALLATION, LABELS, Names, SANDBOX};

/// The container in which commands run.
pub(crate) const CONTAINER: &str = "sandbox";
/// The user of a sandbox that names none.
pub(crate) const ORDINARY: User = User { user: 1000, group: 1000 };
/// The home directory, as in every runtime.
pub(crate) const HOME: &str = "/home/user";
/// What a file system in memory holds for secrets.
const SECRETS_BYTES: &str = "1Mi";
/// What init containers and processes of ours need besides the commands.
const OWN_MEMORY: &str = "64Mi";
const OWN_CPU: &str = "10m";
/// The quota of an owner's namespace level: no pod of it may have more rights than ours.
const RESTRICTED: &str = "restricted";

/// What a pod is made from.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The image of the commands.
    pub(crate) image: String,
    /// The image with the program `stockade`.
    pub(crate) own_image: String,
    pub(crate) user: User,
    pub(crate) limits: Limits,
    pub(crate) runtime_class: Option<String>,
    /// How long the pod lives at most, in seconds.
    pub(crate) lifetime_seconds: u64,
    /// The directories of copies, each of which has a volume.
    pub(crate) copies: Vec<String>,
}

/// What identifies the sandbox of a pod.
#[derive(Debug, Clone)]
pub(crate) struct Identity<'a> {
    pub(crate) names: &'a Names,
    pub(crate) id: &'a SandboxId,
    pub(crate) labels: &'a BTreeMap<String, String>,
    pub(crate) created_ms: u64,
}

impl Identity<'_> {
    /// The labels and annotations of its pod.
    fn metadata(&self) -> (Value, Value) {
        let labels = json!({
            INSTALLATION: self.names.installation,
            SANDBOX: self.names.sandbox(self.id),
        });
        let annotations = json!({
            ID: self.id.as_str(),
            LABELS: json!(self.labels).to_string(),
            CREATED: self.created_ms.to_string(),
        });
        (labels, annotations)
    }
}

fn object(kind: Kind, metadata: Value, rest: Value) -> Value {
    let (version, kind) = kind.version();
    let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": metadata });
    if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
        object.extend(rest);
    }
    object
}

/// The namespace of an owner. The API server refuses pods in it that have more rights than ours.
pub(crate) fn namespace(names: &Names, name: &str) -> Value {
    let labels = json!({
        INSTALLATION: names.installation,
        "pod-security.kubernetes.io/enforce": RESTRICTED,
    });
    object(Kind::Namespace, json!({ "name": name, "labels": labels }), json!({}))
}

/// The policy of a namespace: no pod in it connects to anything, and nothing connects to one.
pub(crate) fn network_policy(names: &Names) -> Value {
    let metadata = json!({
        "name": "stockade-deny-all",
        "labels": { INSTALLATION: names.installation },
    });
    let spec = json!({
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [],
        "egress": [],
    });
    object(Kind::NetworkPolicy, metadata, json!({ "spec": spec }))
}

/// The specification of a pod.
pub(crate) fn pod_spec(plan: &Plan) -> Value {
    let User { user, group } = plan.user;
    let rights = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "privileged": false,
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "runAsUser": user,
        "runAsGroup": group,
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    let own = json!({ "cpu": OWN_CPU, "memory": OWN_MEMORY });
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    let read_only = json!({ "name": "programs", "mountPath": PROGRAMS, "readOnly": true });
    let secrets = stockade_core::sandbox::SECRETS_DIRECTORY;
    let install = json!({
        "name": "install",
        "image": plan.own_image,
        "command": ["/stockade", ARGUMENT, INSTALL, PROGRAMS],
        "resources": { "requests": own, "limits": own },
        "securityContext": rights,
        "volumeMounts": [mount("programs", PROGRAMS)],
    });
    let mut mounts = vec![
        read_only,
        mount("data", VOLUME),
        mount("home", HOME),
        mount("temporary", "/tmp"),
        mount("more-temporary", "/var/tmp"),
        mount("secrets", secrets),
    ];
    let copies = || plan.copies.iter().enumerate().map(|(at, path)| (format!("copy-{at}"), path));
    mounts.extend(copies().map(|(name, path)| mount(&name, path)));
    let sandbox = json!({
        "name": CONTAINER,
        "image": plan.image,
        "command": [format!("{PROGRAMS}/{PROGRAM}"), ARGUMENT, FIRST],
        "resources": resources(&plan.limits),
        "securityContext": rights,
        "terminationMessagePolicy": "File",
        "volumeMounts": mounts,
    });
    let empty = |name: &str| json!({ "name": name, "emptyDir": {} });
    let mut volumes = vec![
        empty("programs"),
        empty("data"),
        empty("home"),
        empty("temporary"),
        empty("more-temporary"),
        json!({ "name": "secrets", "emptyDir": { "medium": "Memory", "sizeLimit": SECRETS_BYTES } }),
    ];
    volumes.extend(copies().map(|(name, _)| empty(&name)));
    let mut spec = json!({
        "activeDeadlineSeconds": plan.lifetime_seconds,
        "automountServiceAccountToken": false,
        "containers": [sandbox],
        "dnsPolicy": "None",
        "dnsConfig": { "nameservers": ["127.0.0.1"] },
        "enableServiceLinks": false,
        "hostIPC": false,
        "hostNetwork": false,
        "hostPID": false,
        "hostname": "stockade",
        "initContainers": [install],
        "restartPolicy": "Never",
        "securityContext": {
            "fsGroup": group,
            "runAsNonRoot": true,
            "runAsUser": user,
            "runAsGroup": group,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "setHostnameAsFQDN": false,
        "shareProcessNamespace": false,
        "terminationGracePeriodSeconds": 1,
        "volumes": volumes,
    });
    if let Some(class) = &plan.runtime_class {
        spec["runtimeClassName"] = json!(class);
    }
    spec
}

/// The change of a running pod to new limits.
pub(crate) fn resize(limits: &Limits) -> Value {
    let most = most(limits);
    let resources = json!({ "limits": most, "requests": most });
    let container = json!({ "name": CONTAINER, "resources": resources });
    json!({ "spec": { "containers": [container] } })
}

/// The limits that are set, as quantities.
fn most(limits: &Limits) -> serde_json::Map<String, Value> {
    let mut most = serde_json::Map::new();
    if let Some(bytes) = limits.memory_bytes {
        most.insert("memory".to_owned(), json!(bytes.to_string()));
    }
    if let Some(millis) = limits.cpu_millis {
        most.insert("cpu".to_owned(), json!(format!("{millis}m")));
    }
    most
}

fn resources(limits: &Limits) -> Value {
    let most = most(limits);
    // Requests that are not named are the limits, so that a sandbox has what it was promised.
    let requests = json!({
        "cpu": most.get("cpu").cloned().unwrap_or_else(|| json!(OWN_CPU)),
        "memory": most.get("memory").cloned().unwrap_or_else(|| json!(OWN_MEMORY)),
    });
    json!({ "limits": most, "requests": requests })
}

/// A plain pod.
pub(crate) fn pod(identity: &Identity<'_>, spec: Value) -> Value {
    let (labels, annotations) = identity.metadata();
    let name = identity.names.object(identity.id);
    let metadata = json!({ "name": name, "labels": labels, "annotations": annotations });
    object(Kind::Pod, metadata, json!({ "spec": spec }))
}

/// A sandbox of agent-sandbox. Its pod has its name.
pub(crate) fn sandbox(identity: &Identity<'_>, spec: Value, shutdown: &str) -> Value {
    let (labels, annotations) = identity.metadata();
    let name = identity.names.object(identity.id);
    let metadata = json!({ "name": name, "labels": labels });
    let spec = json!({
        "podTemplate": {
            "metadata": { "labels": labels, "annotations": annotations },
            "spec": spec,
        },
        "service": false,
        "shutdownTime": shutdown,
        "shutdownPolicy": "Delete",
    });
    object(Kind::Sandbox, metadata, json!({ "spec": spec }))
}

/// The template of the unused sandboxes of a kind.
pub(crate) fn template(names: &Names, name: &str, spec: Value) -> Value {
    let labels = json!({ INSTALLATION: names.installation });
    let spec = json!({
        "podTemplate": { "metadata": { "labels": labels }, "spec": spec },
        "service": false,
        "envVarsInjectionPolicy": "Disallowed",
        "volumeClaimTemplatesPolicy": "Disallowed",
        // That of the namespace is stricter than the one that the controller would make.
        "networkPolicyManagement": "Unmanaged",
    });
    object(Kind::Template, json!({ "name": name, "labels": labels }), json!({ "spec": spec }))
}

/// The unused sandboxes of a kind.
pub(crate) fn warm_pool(names: &Names, name: &str, replicas: u32) -> Value {
    let labels = json!({ INSTALLATION: names.installation });
    let spec = json!({ "replicas": replicas, "sandboxTemplateRef": { "name": name } });
    object(Kind::WarmPool, json!({ "name": name, "labels": labels }), json!({ "spec": spec }))
}

/// The claim of a sandbox to one of them.
pub(crate) fn claim(identity: &Identity<'_>, pool: &str, shutdown: &str) -> Value {
    let (labels, annotations) = identity.metadata();
    let name = identity.names.object(identity.id);
    let metadata = json!({ "name": name, "labels": labels });
    let spec = json!({
        "warmPoolRef": { "name": pool },
        "lifecycle": { "shutdownTime": shutdown, "shutdownPolicy": "Delete" },
        "additionalPodMetadata": { "labels": labels, "annotations": annotations },
    });
    object(Kind::Claim, metadata, json!({ "spec": spec }))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn plan() -> Plan {
        Plan {
            image: "debian:13".to_owned(),
            own_image: "stockade:1".to_owned(),
            user: ORDINARY,
            limits: Limits {
                memory_bytes: Some(1 << 28),
                cpu_millis: Some(1500),
                ..Limits::default()
            },
            runtime_class: Some("gvisor".to_owned()),
            lifetime_seconds: 3600,
            copies: vec!["/workspace".to_owned()],
        }
    }

    #[test]
    fn every_container_of_a_pod_has_no_more_rights_than_it_needs() {
        let spec = pod_spec(&plan());
        assert_eq!(spec["automountServiceAccountToken"], json!(false));
        assert_eq!(spec["runtimeClassName"], json!("gvisor"));
        for host in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"] {
            assert_eq!(spec[host], json!(false), "{host}");
        }
        let containers =
            ["containers", "initContainers"].map(|kind| spec[kind].as_array().unwrap());
        for container in containers.into_iter().flatten() {
            let rights = &container["securityContext"];
            assert_eq!(rights["runAsNonRoot"], json!(true));
            assert_ne!(rights["runAsUser"], json!(0));
            assert_eq!(rights["privileged"], json!(false));
            assert_eq!(rights["allowPrivilegeEscalation"], json!(false));
            assert_eq!(rights["readOnlyRootFilesystem"], json!(true));
            assert_eq!(rights["capabilities"], json!({ "drop": ["ALL"] }));
            assert_eq!(rights["seccompProfile"]["type"], json!("RuntimeDefault"));
            assert!(container.get("env").is_none());
        }
        // Only directories of the pod itself are mounted, and the program is not writable for commands.
        for volume in spec["volumes"].as_array().unwrap() {
            assert!(volume.get("emptyDir").is_some(), "{volume}");
        }
        let mounts = spec["containers"][0]["volumeMounts"].as_array().unwrap();
        let programs = mounts.iter().find(|mount| mount["mountPath"] == json!(PROGRAMS)).unwrap();
        assert_eq!(programs["readOnly"], json!(true));
        assert!(mounts.iter().any(|mount| mount["mountPath"] == json!("/workspace")));
    }

    #[test]
    fn limits_are_requested_as_they_are() {
        let spec = pod_spec(&plan());
        let resources = &spec["containers"][0]["resources"];
        assert_eq!(resources["limits"], json!({ "cpu": "1500m", "memory": "268435456" }));
        assert_eq!(resources["requests"], resources["limits"]);
    }

    #[test]
    fn nothing_is_allowed_in_the_network_of_a_namespace() {
        let policy = network_policy(&Names { installation: "main".to_owned() });
        assert_eq!(policy["spec"]["podSelector"], json!({}));
        assert_eq!(policy["spec"]["ingress"], json!([]));
        assert_eq!(policy["spec"]["egress"], json!([]));
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    }
}
