//! Checks of objects: against schemas, and against the level `restricted` that namespaces enforce.

use serde_json::{Value, json};

const POD_SPEC: &str = include_str!("../schemas/pod_spec.json");
const KINDS: &str = include_str!("../schemas/kinds.json");

/// The schema of a kind, with that of the specification of pods in it.
fn schema(kind: &str) -> Option<Value> {
    let kinds: Value = serde_json::from_str(KINDS).unwrap();
    let mut schema = kinds.get(kind)?.clone();
    schema["$defs"] = kinds["$defs"].clone();
    schema["$defs"]["podSpec"] = serde_json::from_str(POD_SPEC).unwrap();
    Some(schema)
}

/// Checks an object of a kind.
pub(crate) fn check(kind: &str, object: &Value) -> Result<(), String> {
    let schema = schema(kind).ok_or_else(|| format!("there is no schema for {kind}"))?;
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator
        .iter_errors(object)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    if !errors.is_empty() {
        return Err(errors.join("; "));
    }
    let pod = match kind {
        "pods" => &object["spec"],
        "sandboxes" | "sandboxtemplates" => &object["spec"]["podTemplate"]["spec"],
        _ => return Ok(()),
    };
    restricted(pod)
}

/// What the level `restricted` of the pod security standards requires, as far as a pod of ours could break it.
fn restricted(spec: &Value) -> Result<(), String> {
    for host in ["hostNetwork", "hostPID", "hostIPC"] {
        if spec[host] == true {
            return Err(format!("violates PodSecurity: {host}"));
        }
    }
    for kind in ["containers", "initContainers"] {
        for container in spec[kind].as_array().into_iter().flatten() {
            let rights = &container["securityContext"];
            let is_restricted = rights["allowPrivilegeEscalation"] == false
                && rights["runAsNonRoot"] == true
                && rights["privileged"] != true
                && rights["runAsUser"] != 0
                && rights["capabilities"]["drop"] == json!(["ALL"])
                && rights["capabilities"]["add"].is_null()
                && rights["seccompProfile"]["type"] == "RuntimeDefault";
            if !is_restricted {
                return Err(format!("violates PodSecurity: {}", container["name"]));
            }
        }
    }
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        if volume.get("hostPath").is_some() {
            return Err("violates PodSecurity: hostPath".to_owned());
        }
    }
    Ok(())
}

#[test]
fn objects_that_a_cluster_would_refuse_are_refused() {
    let pod = |spec: Value| json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" }, "spec": spec });
    let container = |rights: Value| json!({ "containers": [{ "name": "a", "image": "b", "securityContext": rights }] });
    let rights = json!({
        "allowPrivilegeEscalation": false,
        "runAsNonRoot": true,
        "runAsUser": 1000,
        "capabilities": { "drop": ["ALL"] },
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    check("pods", &pod(container(rights.clone()))).unwrap();
    for (name, value) in [
        ("runAsUser", json!(0)),
        ("privileged", json!(true)),
        ("allowPrivilegeEscalation", json!(true)),
        ("capabilities", json!({ "drop": [] })),
        ("runAsUsr", json!(1000)),
        ("runAsUser", json!("1000")),
    ] {
        let mut bad = rights.clone();
        bad[name] = value;
        assert!(check("pods", &pod(container(bad))).is_err(), "{name}");
    }
    assert!(check("pods", &pod(json!({}))).is_err());
    assert!(check("unknown", &json!({})).is_err());
    let claim = json!({ "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
        "metadata": { "name": "a" }, "spec": {} });
    assert!(check("sandboxclaims", &claim).is_err());
}
